//! Shortens names of functions. A C++ name loses its arguments, its return type and its namespaces, so that it is the same in each
//! table, and then the arguments of templates if there is no room for them. The class and the method are kept.

use ampere_model::signature::{operator, outside_of_brackets, without_arguments};
use ampere_model::text::{compact, printable, short};
use std::collections::{HashMap, HashSet};

/// The maximum number of nodes that are named.
const NAMED_MAX: usize = 3;
/// In less room the caller of the last function of a call path is not shown.
const CALLER_ROOM_MIN: usize = 8;
/// In less room the function in which two call paths differ is not shown.
const DIFFERENCE_ROOM_MIN: usize = 6;

/// Returns the names as a table shows them, each in at most `room` characters, and whether one had to be cut in its
/// middle for that.
pub fn shortened(names: &[&str], room: usize) -> (Vec<String>, bool) {
    shortened_each(names, |_| room)
}

/// Like [`shortened`]; `room` returns the room for each name by its index.
pub fn shortened_each(names: &[&str], room: impl Fn(usize) -> usize) -> (Vec<String>, bool) {
    let plain: Vec<String> = names.iter().map(|name| printable(without_arguments(name))).collect();
    let inner: Vec<&str> = plain.iter().map(|name| last_two(name)).collect();
    let [of_inner, of_plain] =
        [&inner, &plain.iter().map(String::as_str).collect()].map(|forms: &Vec<&str>| uses(forms, names));
    let whole = names.iter().enumerate().map(|(at, name)| {
        // Functions that differ only in their namespaces keep them. Those that differ only in their arguments keep both.
        match (of_inner[inner[at]], of_plain[plain[at].as_str()]) {
            (1, _) => inner[at].to_owned(),
            (_, 1) => plain[at].clone(),
            _ => printable(name),
        }
    });
    let whole: Vec<String> = whole.collect();
    let fitting: Vec<String> = whole.iter().enumerate().map(|(at, name)| into_room(name, room(at))).collect();
    let forms = uses(&fitting.iter().map(String::as_str).collect::<Vec<_>>(), names);
    let mut is_cut = false;
    let shown = fitting.iter().zip(&whole).enumerate().map(|(at, (form, whole))| {
        // Names that would look the same keep the parts in which they differ.
        let form = if forms[form.as_str()] > 1 { whole } else { form };
        is_cut |= form.chars().count() > room(at);
        short(form, room(at))
    });
    (shown.collect(), is_cut)
}

/// Returns the number of different names that each form stands for.
fn uses<'a>(forms: &[&'a str], names: &[&str]) -> HashMap<&'a str, usize> {
    let mut uses: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (form, name) in forms.iter().zip(names) {
        uses.entry(form).or_default().insert(name);
    }
    uses.into_iter().map(|(form, names)| (form, names.len())).collect()
}

/// Returns the name of one function; see [`shortened`].
pub fn shorten(name: &str, room: usize) -> String {
    shortened(&[name], room).0.remove(0)
}

/// Returns a call path in at most `room` characters: the outermost functions are left out if it is too long. The last function
/// and its caller are kept, and the caller's name is cut if necessary. For a function that calls itself, the depth is shown.
pub fn path(regions: &[&str], room: usize) -> String {
    let calls: Vec<&[&str]> = regions.chunk_by(|caller, called| caller == called).collect();
    let names: Vec<&str> = calls.iter().map(|same| same[0]).collect();
    let last = times("", calls.last().map_or(0, |same| same.len()) as u32).chars().count();
    let (names, _) = shortened(&names, room.saturating_sub(4 + last).max(1));
    let mut shown = String::new();
    for (at, (name, same)) in names.iter().zip(&calls).enumerate().rev() {
        // Unless this is the outermost function, "… > " may still be put before it.
        let prefix = if at == 0 { 0 } else { 4 };
        let left = room.saturating_sub(prefix + if shown.is_empty() { 0 } else { 3 + shown.chars().count() });
        let name = times(name, same.len() as u32);
        let is_caller = at + 2 == calls.len() && left >= CALLER_ROOM_MIN;
        let name = if is_caller { short(&into_room(&name, left), left) } else { name };
        if !shown.is_empty() && name.chars().count() > left {
            return format!("… > {shown}");
        }
        shown = if shown.is_empty() { name } else { format!("{name} > {shown}") };
    }
    shown
}

/// Returns call paths, each in at most `room` characters; see [`path`]. Different paths that would look the same show the
/// functions in which they differ as well.
pub fn paths(all: &[&[&str]], room: usize) -> Vec<String> {
    let shown: Vec<String> = all.iter().map(|regions| path(regions, room)).collect();
    let mut alike: HashMap<&str, Vec<&[&str]>> = HashMap::new();
    shown.iter().zip(all).for_each(|(form, regions)| alike.entry(form).or_default().push(regions));
    let with_difference = |(form, regions): (&String, &&[&str])| {
        let names = differences(regions, &alike[form.as_str()]);
        if names.is_empty() || !form.starts_with('…') {
            return form.clone();
        }
        // The caller of the last function is left out if there is no room for it next to a function that differs.
        let ends = form.rmatch_indices(" > ").take(2).map(|(at, separator)| &form[at + separator.len()..]);
        let fitting = ends.collect::<Vec<_>>().into_iter().rev().find_map(|end| {
            let left = room.saturating_sub("… > ".chars().count() + end.chars().count());
            // Each function comes before " > … > ".
            let room_of = |count: usize| (left / count.max(1)).saturating_sub(7);
            let first = (0..names.len()).find(|at| room_of(names.len() - at) >= DIFFERENCE_ROOM_MIN)?;
            let room = room_of(names.len() - first);
            let names: String = names[first..].iter().map(|name| shorten(name, room) + " > … > ").collect();
            Some(format!("… > {names}{end}"))
        });
        fitting.unwrap_or_else(|| form.clone())
    };
    shown.iter().zip(all).map(with_difference).collect()
}

/// Returns the functions of a call path that distinguish it from all others, the outermost first. This is one function if that
/// is enough.
fn differences<'a>(regions: &[&'a str], others: &[&[&str]]) -> Vec<&'a str> {
    fn from_end<'r>(regions: &[&'r str], at: usize) -> Option<&'r str> {
        regions.len().checked_sub(at + 1).map(|at| regions[at])
    }
    let mut others: Vec<&[&str]> = others.iter().copied().filter(|other| *other != regions).collect();
    let mut names = Vec::new();
    while !others.is_empty() {
        let differs = |at: usize, other: &&[&str]| from_end(other, at) != from_end(regions, at);
        let from_all = (0..regions.len()).find(|at| others.iter().all(|other| differs(*at, other)));
        let from_some = || (0..regions.len()).find(|at| others.iter().any(|other| differs(*at, other)));
        let Some(at) = from_all.or_else(from_some) else { break };
        names.extend(from_end(regions, at).map(|name| (at, name)));
        others.retain(|other| !differs(at, other));
    }
    names.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    names.into_iter().map(|(_, name)| name).collect()
}

/// Returns the first of the shorter forms that fits, or the shortest.
fn into_room(name: &str, room: usize) -> String {
    let fits = |name: &String| name.chars().count() <= room;
    let forms: [&dyn Fn() -> String; 4] =
        [&|| name.to_owned(), &|| without_template_arguments(name), &|| last_two(name).to_owned(), &|| {
            last_two(&without_template_arguments(name)).to_owned()
        }];
    let all: Vec<String> = forms.iter().map(|form| form()).collect();
    all.iter().find(|form| fits(form)).unwrap_or(&all[3]).clone()
}

/// Shortens template arguments: `f<…>` instead of `f<double, 3>`.
fn without_template_arguments(name: &str) -> String {
    let mut depth = 0usize;
    let mut at = 0;
    let mut out = String::new();
    while let Some(c) = name[at..].chars().next() {
        let length = operator(&name[at..]).unwrap_or(c.len_utf8());
        let is_bracket = length == c.len_utf8();
        match c {
            '<' if is_bracket => {
                out.push_str(if depth == 0 { "<…>" } else { "" });
                depth += 1;
            }
            '>' if is_bracket && depth > 0 => depth -= 1,
            _ if depth == 0 => out.push_str(&name[at..at + length]),
            _ => {}
        }
        at += length;
    }
    out
}

/// Returns the last two parts of a name: class and method. Parts without a name of their own, such as those of closures, are
/// kept in addition.
fn last_two(name: &str) -> &str {
    let mut starts: Vec<usize> = outside_of_brackets(name, "::").iter().map(|at| at + 2).collect();
    starts.insert(0, 0);
    let mut named = starts.iter().rev().filter(|at| !name[**at..].starts_with(['{', '$', '\'']));
    named.nth(1).map_or(name, |at| &name[*at..])
}

/// Returns the names of nodes, shortened.
pub fn nodes_of(nodes: &[String]) -> String {
    match nodes {
        [] => "no node".to_owned(),
        few if few.len() <= NAMED_MAX => few.join(", "),
        many => compact(&many.iter().map(String::as_str).collect::<Vec<_>>()),
    }
}

/// Returns the name of a region that is on the stack `count` times, because it calls itself: "fib x18".
pub fn times(name: &str, count: u32) -> String {
    if count > 1 { format!("{name} x{count}") } else { name.to_owned() }
}

/// Explains the depth of a recursion, which [`times`] adds to names.
pub const RECURSION: &str = "x2, x3, ...: this many calls of the function, each made by the one before it";

/// Whether a path in words has a function that calls itself; see [`times`].
pub fn is_recursive(path: &str) -> bool {
    let is_depth = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    path.split(" > ").any(|name| name.rsplit_once(" x").is_some_and(|(_, depth)| is_depth(depth)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_the_same_name_beside_any_others() {
        let shown = |names: &[&str]| shortened(names, 80).0;
        let lammps = ["LAMMPS_NS::PairLJCut::compute(int, int)", "LAMMPS_NS::Neigh::build()", "MPI_Send"];
        assert_eq!(shown(&lammps), ["PairLJCut::compute", "Neigh::build", "MPI_Send"]);
        assert_eq!(shown(&lammps[..1]), ["PairLJCut::compute"]);
        assert_eq!(shown(&["a::C::f()", "b::C::f()"]), ["a::C::f", "b::C::f"], "they differ in nothing else");
        assert_eq!(shown(&["app::main::{lambda()#1}::operator()"]), ["main::{lambda()#1}::operator()"]);
        assert_eq!(shown(&["app::run::{{closure}}"]), ["app::run::{{closure}}"]);
        assert_eq!(shown(&["Solver::step()", "Solver::solve()"]), ["Solver::step", "Solver::solve"]);
        assert_eq!(shown(&["f(int)", "f(double)"]), ["f(int)", "f(double)"], "they differ in nothing else");
    }

    #[test]
    fn class_and_method_are_the_last_to_be_cut() {
        let name = "void app::detail::Grid<double, app::Box<3> >::relax<app::Fast>(app::Box<3> const&)";
        assert_eq!(shorten(name, 80), "Grid<double, app::Box<3> >::relax<app::Fast>");
        assert_eq!(shorten(name, 40), "Grid<…>::relax<…>");
        assert_eq!(shorten(name, 25), "Grid<…>::relax<…>");
        let long = format!("{}::{}", "Class".repeat(10), "method".repeat(10));
        assert_eq!(shorten(&long, 30).chars().count(), 30);
        assert!(shortened(&[&long], 30).1 && !shortened(&[name], 20).1);
        let kernels = ["void app::scale<double>(double*)", "void app::scale<float>(float*)"];
        assert_eq!(shortened(&kernels, 18).0, ["app::scale<double>", "app::scale<float>"]);
        assert!(shortened(&kernels, 16).1, "they differ in the arguments of their template");
    }

    #[test]
    fn different_paths_look_different() {
        let [open, scan] = [
            ["main", "open_device", "library_function", "read"],
            ["main", "scan_bus", "library_function", "read"],
        ];
        let shown = paths(&[&open, &scan, &["main", "read"]], 36);
        assert_eq!(shown, ["… > open_device > … > read", "… > scan_bus > … > read", "main > read"]);
        assert_eq!(paths(&[&open, &open], 36), ["… > library_function > read"; 2], "of two processes");
        let [long, float, other] = [
            ["main", "sum", "long_add", "allocate_memory", "take_from_the_pool", "malloc"],
            ["main", "sum", "float_add", "allocate_memory", "take_from_the_pool", "malloc"],
            ["main", "other", "long_add", "allocate_memory", "take_from_the_pool", "malloc"],
        ];
        let three = paths(&[&long, &float, &other], 40);
        assert_eq!(
            three,
            ["… > sum > … > long_add > … > malloc", "… > float_add > … > malloc", "… > other > … > malloc"]
        );
        let narrow = paths(&[&open, &scan], 22);
        assert!(narrow.iter().all(|path| path.chars().count() <= 22), "{narrow:?}");
    }

    #[test]
    fn a_path_keeps_its_end() {
        assert_eq!(path(&["main", "solve(int)", "MPI_Send"], 40), "main > solve > MPI_Send");
        assert_eq!(
            path(&["main", "app::Solver::exchange(int)", "MPI_Send"], 32),
            "… > Solver::exchange > MPI_Send"
        );
        assert_eq!(
            path(&["main", "app::Solver::exchange(int)", "MPI_Send"], 28),
            "… > Solver::…ange > MPI_Send"
        );
        assert_eq!(path(&["main", "solve(int)", "MPI_Send"], 18), "… > MPI_Send");
        assert_eq!(path(&["main", "fib", "fib", "fib"], 40), "main > fib x3");
        assert!(is_recursive("main > fib x3 > leaf") && !is_recursive("main > x3 > f x"));
        let long = "x".repeat(100);
        assert!(path(&["main", &long, &long, &long], 40).chars().count() <= 40);
    }
}
