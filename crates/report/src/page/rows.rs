//! Functions, kernels and call paths as tables, and the names in them.

use super::{NAME_CHARS_MAX, PathRow, Paths, Rows, Tables};
use crate::first::names::{is_recursive, shortened};
use crate::highlights::Sums;
use crate::over_devices::Sum;
use crate::over_ranks::{SHARE_MIN, Spread, Spreads, is_mpi_rank};
use ampere_figures::callpaths::rounded_seconds;
use ampere_figures::nodes::job::Others;
use ampere_figures::summary::{Region, Summary, View};
use ampere_model::digits::energy;
use ampere_model::order::largest_first;
use ampere_model::regions::is_mpi;
use ampere_model::text::{printable, short};
use std::collections::{BTreeMap, HashMap};

/// The maximum number of rows of a table of all devices, and of one device.
const ROWS_MAX: usize = 1500;
pub(super) const DEVICE_ROWS_MAX: usize = 200;
/// The maximum length of the shorter form of a name.
const NAME_ROOM: usize = 60;
/// The maximum number of ranks that are named because they stand out.
const NAMED_MAX: usize = 5;

#[derive(Default)]
pub(super) struct Names {
    pub all: Vec<String>,
    pub mpi: Vec<u32>,
    numbers: HashMap<String, u32>,
}

impl Names {
    pub fn number(&mut self, name: &str) -> u32 {
        let shown = short(name, NAME_CHARS_MAX);
        if let Some(number) = self.numbers.get(&shown) {
            return *number;
        }
        let number = self.all.len() as u32;
        if is_mpi(&shown) {
            self.mpi.push(number);
        }
        self.all.push(shown.clone());
        self.numbers.insert(shown, number);
        number
    }

    /// Moves the names into the tables, with their shorter forms.
    pub fn put_into(self, tables: &mut Tables) {
        let all: Vec<&str> = self.all.iter().map(String::as_str).collect();
        let short = shortened(&all, NAME_ROOM).0.into_iter().zip(&all);
        // A name that was cut in its middle may lack brackets, by which arguments and namespaces are found.
        let is_shortened = |name: &str| !is_recursive(name) && !name.contains('…');
        tables.short_names = short
            .map(|(short, name)| Some(short).filter(|short| short != name && is_shortened(name)))
            .collect();
        (tables.names, tables.mpi) = (self.all, self.mpi);
    }
}

/// The figures of a function over all devices, in addition to its joules.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct More {
    pub inclusive_joules: f64,
    pub least_joules: f64,
    /// The figure is `None` in summaries of older versions.
    pub most_joules: Option<f64>,
    pub seconds: f64,
    pub calls: u64,
    pub waited_joules: f64,
    pub caused_waiting_joules: f64,
}

/// Makes rows of names with joules, in descending order of their joules, and their further figures.
pub(super) fn of_names(
    rows: &[(&str, f64)],
    dynamic: &HashMap<&str, f64>,
    sampled_errors: &HashMap<&str, f64>,
    more: impl Fn(&str) -> Option<More>,
    names: &mut Names,
) -> Rows {
    let mut table = Rows::default();
    for (name, joules) in rows.iter().take(ROWS_MAX) {
        table.name.push(names.number(name));
        table.joules.push(*joules);
        if !dynamic.is_empty() {
            table.dynamic_joules.push(dynamic.get(name).copied().unwrap_or_default());
        }
        table.sampled_error_joules.push(sampled_errors.get(name).copied());
        if let Some(more) = more(name) {
            table.inclusive_joules.push(more.inclusive_joules);
            table.least_joules.push(more.least_joules);
            table.most_joules.push(more.most_joules);
            table.seconds.push(rounded(rounded_seconds(more.seconds)));
            table.calls.push(more.calls);
            table.waited_joules.push(rounded(more.waited_joules));
            table.caused_waiting_joules.push(rounded(more.caused_waiting_joules));
        }
    }
    let (count, joules) = crate::text::left_out(rows.iter().map(|row| row.1), ROWS_MAX);
    table.others = Others { count, joules };
    table.without_unknown()
}

impl Rows {
    /// Makes columns empty if none of their values is known.
    fn without_unknown(mut self) -> Rows {
        if self.calls.iter().all(|calls| *calls == 0) {
            self.calls = Vec::new();
        }
        if self.seconds.iter().all(|seconds| *seconds == 0.0) {
            self.seconds = Vec::new();
        }
        if self.inclusive_joules.iter().all(|joules| *joules == 0.0) {
            self.inclusive_joules = Vec::new();
        }
        if self.most_joules.iter().all(|most| most.is_none_or(|joules| joules == 0.0)) {
            (self.least_joules, self.most_joules) = (Vec::new(), Vec::new());
        }
        if self.waited_joules.iter().chain(&self.caused_waiting_joules).all(|joules| *joules == 0.0) {
            (self.waited_joules, self.caused_waiting_joules) = (Vec::new(), Vec::new());
        }
        for column in [&mut self.watts, &mut self.sampled_error_joules] {
            if column.iter().all(Option::is_none) {
                column.clear();
            }
        }
        self
    }
}

/// Returns the functions of Python programs, each with the functions in C that it calls. `sums` are by name.
pub(super) fn of_python(
    sums: &BTreeMap<&str, Sum>,
    sampled_errors: &HashMap<&str, f64>,
    is_dynamic: bool,
    names: &mut Names,
) -> Rows {
    let own = |sum: &Sum| if is_dynamic { sum.dynamic } else { sum.joules };
    let mut rows: Vec<(&str, &Sum)> =
        sums.iter().map(|(name, sum)| (*name, sum)).filter(|(_, sum)| own(sum) > 0.0).collect();
    largest_first(&mut rows, |(_, sum)| own(sum));
    let dynamic =
        rows.iter().filter(|_| is_dynamic).map(|(name, sum)| (*name, rounded(sum.dynamic))).collect();
    let rows: Vec<(&str, f64)> = rows.iter().map(|(name, sum)| (*name, rounded(sum.joules))).collect();
    let more = |name: &str| sums.get(name).map(|sum| More { seconds: sum.seconds, ..More::default() });
    of_names(&rows, &dynamic, sampled_errors, more, names)
}

/// Returns the functions or kernels of one device.
pub(super) fn of_view(view: &View, is_time: bool, names: &mut Names) -> Rows {
    let mut table = Rows::default();
    for Region { region, figures, sampled_error_joules, watts } in view.own_regions().take(DEVICE_ROWS_MAX) {
        table.name.push(names.number(region));
        table.joules.push(figures.exclusive_joules);
        table.dynamic_joules.extend(figures.dynamic_joules);
        table.inclusive_joules.push(figures.inclusive_joules);
        table.seconds.push(rounded_seconds(figures.exclusive_seconds));
        table.calls.push(figures.calls);
        table.waited_joules.push(rounded(figures.waited_joules.unwrap_or_default()));
        table.caused_waiting_joules.push(rounded(figures.caused_waiting_joules.unwrap_or_default()));
        table.sampled_error_joules.push(*sampled_error_joules);
        table.watts.push(watts.typical(figures));
        if !is_time {
            table.least_joules.push(figures.resolved_joules);
            table.most_joules.push(figures.possible_joules);
        }
    }
    let joules = view.own_regions().map(|row| row.figures.exclusive_joules);
    let (count, joules) = crate::text::left_out(joules, DEVICE_ROWS_MAX);
    table.others = Others { count, joules };
    table.without_unknown()
}

pub(super) fn of_all(
    sums: &Sums,
    functions: impl Fn(&str) -> Option<More>,
    kernels: impl Fn(&str) -> Option<More>,
    names: &mut Names,
) -> (Rows, Rows) {
    let sampled = &sums.sampled_errors;
    (
        of_names(&sums.regions, &sums.dynamic_of, sampled, functions, names),
        of_names(&sums.kernels, &sums.dynamic_of_kernels, &HashMap::new(), kernels, names),
    )
}

/// Makes the table of call paths over all ranks. `waits` has the waited and the caused joules of each call path.
pub(super) fn of_paths(
    summary: &Summary,
    spreads: &Spreads,
    (whole, waits): (f64, &[[f64; 2]]),
    names: &mut Names,
) -> Paths {
    let rows = spreads.rows.iter().map(|spread| PathRow {
        path: crate::rows::shortened(summary, spread.what).iter().map(|name| names.number(name)).collect(),
        joules: rounded(spread.joules),
        least: rounded(spread.least),
        mean: rounded(spread.mean()),
        most: rounded(spread.most),
        ranks: spread.ranks,
        calls: spread.calls,
        waited_joules: rounded(waits[spread.what as usize][0]),
        caused_waiting_joules: rounded(waits[spread.what as usize][1]),
        far: if spread.joules >= SHARE_MIN * whole {
            far(spread, |group| summary.name(group))
        } else {
            String::new()
        },
    });
    Paths { rows: rows.collect(), others: Others { count: spreads.others.0, joules: spreads.others.1 } }
}

/// Returns the ranks whose joules are far from those of the others. `name` returns the name of a location group.
pub(super) fn far<'a>(spread: &Spread, name: impl Fn(u32) -> &'a str) -> String {
    let all = &spread.standing_out;
    let named = all.iter().take(NAMED_MAX);
    let named = named.map(|((_, group), used)| format!("{} {}", printable(name(*group)), energy(*used)));
    let named = named.collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Returns the average joules of the ranks, and the ranks that stand out.
pub(super) fn whole_words<'a>(whole: &Spread, is_dynamic: bool, name: impl Fn(u32) -> &'a str) -> String {
    let kind = if is_dynamic { " dynamic" } else { "" };
    let far = far(whole, &name);
    let far = if far.is_empty() { far } else { format!("; far from the others: {far}") };
    let [mean, least, most] = [whole.mean(), whole.least, whole.most].map(energy);
    let others = whole.other_processes();
    let is_rank = whole.most_on.is_none_or(|(_, group)| is_mpi_rank(name(group)));
    let what = if is_rank { "ranks" } else { "processes" };
    format!("{} {what}: {mean}{kind} each on average, {least} to {most}{far}{others}", whole.ranks)
}

/// Rounds to six digits, which is enough for colours and readers. Then a summary in memory gives the same result as one that was
/// read from a file, whose call paths have nine digits.
pub(super) fn rounded(joules: f64) -> f64 {
    if joules == 0.0 || !joules.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi((5 - joules.abs().log10().floor() as i32).clamp(-20, 20));
    (joules * scale).round() / scale
}
