//! Compares runs, or groups of runs: the joules of each, and where they differ. Differences are relative to the first group.
//!
//! ```text
//! figures.rs     the figures that are compared
//! statistics.rs  means, and the ranges of their differences and ratios
//! programs.rs    the names of programs, which differ in runs of two versions
//! ranked.rs      the rows that a table shows
//! verdict.rs     the comparison in one sentence
//! check.rs       whether a figure is more than a limit above that of the first group; its tests are in check_tests.rs
//! text.rs        as a table
//! page.rs        as a page
//! rows.rs        as rows of CSV, and as JSON
//! markdown.rs    as a comment on a change
//! junit.rs       the checks as test cases
//! ```

pub mod check;
#[cfg(test)]
mod check_tests;
mod figures;
mod junit;
mod markdown;
mod page;
mod programs;
mod ranked;
mod rows;
pub mod statistics;
mod text;
mod verdict;

use crate::first::names::{paths, shortened};
use ampere_figures::summary::Summary;
use ampere_model::digits::{self, MEASURED, column};
use ampere_model::text::{printable, short};
use check::Checked;
pub use figures::{By, Per};
use figures::{Figured, Kind};
use statistics::{Difference, Sample};
use std::collections::{BTreeMap, BTreeSet};

const NAME_CHARS_MAX: usize = 56;
/// The maximum length of an interval in a column.
const RANGE_CHARS_MAX: usize = 13;
/// A run whose time or energy differs by more than this factor from those of all others in its group is named.
const OUTLIER_RATIO: f64 = 1.5;
/// Joules per unit of work are written with an exponent if all are smaller than this: a unit may be one operation.
const PLAIN_MIN: f64 = 0.1;
/// The maximum length of a call path.
const PATH_CHARS_MAX: usize = 110;

/// The formats of a comparison, for the option `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// The rows that differ most
    Table,
    /// All figures, with the value of each run
    Json,
    /// A row for each figure of each group
    Csv,
    /// One page, which needs no other file
    Html,
    /// The verdict and the rows that differ most, for a comment on a change
    Markdown,
    /// A test case for each figure that --fail-above checks, as JUnit's XML
    Junit,
}

/// A run with the name by which people recognise it.
pub struct Named {
    /// The run's directory, as it was given on the command line.
    pub name: String,
    /// The figures of that run.
    pub summary: Summary,
}

/// A run without its tables.
struct About {
    name: String,
    /// The number of ranks or processes, in words.
    who: Option<String>,
    run: ampere_figures::summary::Run,
    /// For each kind of view, the policies and the sharings by which its joules were divided.
    shared_by: BTreeMap<String, BTreeSet<(String, String)>>,
    /// The watts with which its devices were estimated, in words; empty if they are not known.
    estimated_by: BTreeSet<String>,
}

/// The groups of runs that are compared.
pub struct Comparison {
    kind: Kind,
    per: Per,
    groups: Vec<Vec<About>>,
    /// The reason why the joules of these runs may differ even if the programs use the same energy.
    incomparable: Option<String>,
    notes: Vec<String>,
    rows: Vec<Row>,
    /// The standard errors of sampled rows of each run, as fractions of their joules, by group.
    sampled_errors: Vec<Vec<SampledErrors>>,
    checks: Vec<Checked>,
}

type SampledErrors = BTreeMap<(By, String), f64>;

/// One figure in all groups.
struct Row {
    by: By,
    /// The name of the device, function, kernel or call path; empty for figures of the run itself.
    name: String,
    /// The index of the figure in `By::figures`.
    figure: usize,
    groups: Vec<Sample>,
    /// The difference between the first group and each of the others.
    differences: Vec<Difference>,
}

impl Row {
    /// Returns the figure's name in files.
    fn figure(&self) -> &'static str {
        self.by.figures()[self.figure]
    }

    /// Whether no run has 0, which stands for a figure that a run does not have.
    fn is_in_all_runs(&self) -> bool {
        self.groups.iter().flat_map(|group| &group.values).all(|value| *value > 0.0)
    }

    /// Whether the figure is 0 in all groups.
    fn is_zero(&self) -> bool {
        self.groups.iter().all(|group| group.mean == 0.0)
    }
}

impl Comparison {
    /// Compares exclusive joules: those of functions without the functions that they call.
    pub fn of(groups: Vec<Vec<Named>>, per: Per) -> Comparison {
        Comparison::of_kind(groups, per, false)
    }

    /// Compares inclusive joules: those of functions and of the functions that they call.
    pub fn of_inclusive(groups: Vec<Vec<Named>>, per: Per) -> Comparison {
        Comparison::of_kind(groups, per, true)
    }

    fn of_kind(groups: Vec<Vec<Named>>, per: Per, is_inclusive: bool) -> Comparison {
        let all_lead = groups.iter().flatten().all(|run| figures::leads(&run.summary));
        let mut runs = groups.iter().flatten();
        let has_dynamic = runs.all(|run| figures::has_dynamic(&run.summary, all_lead, is_inclusive));
        let has_waiting = groups.iter().flatten().all(|run| run.summary.run.waiting.is_some());
        let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
        let programs = programs::of(groups.iter().flatten().map(|run| &run.summary));
        let mut values: BTreeMap<(By, String), Vec<figures::Values>> = BTreeMap::new();
        let mut functions: Vec<BTreeSet<String>> = Vec::new();
        let mut sampled_errors = Vec::new();
        let (count, mut at) = (sizes.iter().sum(), 0);
        let mut described = Vec::with_capacity(groups.len());
        for runs in groups {
            let (mut abouts, mut of_group) = (Vec::with_capacity(runs.len()), Vec::new());
            for run in runs {
                let mut own = BTreeSet::new();
                let mut errors = SampledErrors::new();
                for Figured { mut key, values: figures, error } in figures::of(&run.summary, all_lead, per) {
                    if let Some(program) = programs.get(at) {
                        program.replace_name(&mut key);
                    }
                    error.into_iter().for_each(|error| _ = errors.insert(key.clone(), error));
                    if matches!(key.0, By::Function | By::Kernel) {
                        own.insert(key.1.clone());
                    }
                    values.entry(key).or_insert_with(|| vec![Default::default(); count])[at] = figures;
                }
                functions.push(own);
                of_group.push(errors);
                at += 1;
                abouts.push(About::of(run));
            }
            described.push(abouts);
            sampled_errors.push(of_group);
        }
        let mut notes = notes(&described, &functions, per);
        notes.extend(programs::note(&programs));
        let rows = values.into_iter().flat_map(|((by, name), values)| rows_of(by, &name, &values, &sizes));
        let rows = rows.filter(|row| has_dynamic || !figures::is_of_activity(row.figure()));
        let rows = rows.filter(|row| has_waiting || !figures::is_of_waiting(row.figure()));
        let rows = rows.filter(|row| row.by != By::Work || row.is_in_all_runs());
        let incomparable = why_incomparable(&described);
        let rows = rows.collect();
        let kind = Kind { has_dynamic, is_inclusive };
        let checks = Vec::new();
        let mut comparison =
            Comparison { per, kind, groups: described, incomparable, notes, rows, sampled_errors, checks };
        comparison.correct();
        comparison
    }

    /// Returns what was checked, in the order of the checks.
    pub fn checks(&self) -> &[Checked] {
        &self.checks
    }

    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Returns the table for a terminal of this width.
    pub fn table(&self, width: usize) -> Vec<u8> {
        text::render(self, width).into_bytes()
    }

    pub fn render(&self, form: Form) -> Vec<u8> {
        match form {
            Form::Table => self.table(usize::MAX),
            Form::Json => rows::json(self),
            Form::Csv => rows::csv(self),
            Form::Html => page::render(self).into_bytes(),
            Form::Markdown => markdown::render(self).into_bytes(),
            Form::Junit => junit::render(self).into_bytes(),
        }
    }

    /// Returns the mean and the standard deviation of each group as the cells of a table's rows. All cells have the same number
    /// of decimals, except in the tables of runs and of units of work, whose rows are different figures.
    fn cells(&self, rows: &[&Row]) -> Vec<Vec<(String, String)>> {
        let runs = self.groups.iter().flatten().map(|about| &about.run);
        let digits = runs.map(|run| digits::of_energy(&run.energy)).min().unwrap_or(MEASURED);
        let of_runs = rows.iter().any(|row| matches!(row.by, By::Run | By::Work));
        let alike = rows.chunks(if of_runs { 1 } else { rows.len().max(1) });
        let cells = |rows: &[&Row]| {
            let digits = if rows[0].figure() == "seconds" { MEASURED } else { digits };
            let values = |group: &Sample| [group.mean, group.deviation.unwrap_or_default()];
            let values: Vec<f64> = rows.iter().flat_map(|row| &row.groups).flat_map(values).collect();
            let is_tiny = rows[0].by == By::Work && values.iter().all(|value| *value < PLAIN_MIN);
            let texts = if is_tiny {
                values.iter().map(|value| format!("{value:.digits$e}", digits = digits - 1)).collect()
            } else {
                column(&values, digits)
            };
            let mut texts = texts.into_iter();
            let mut row =
                |row: &&Row| row.groups.iter().filter_map(|_| texts.next().zip(texts.next())).collect();
            rows.iter().map(&mut row).collect::<Vec<_>>()
        };
        alike.flat_map(cells).collect()
    }

    /// Returns the change of a row between the first group and another one, for people.
    fn change(&self, row: &Row, group: usize) -> String {
        match self.is_comparable(row) {
            true => change(row.groups[0].mean, row.groups[group].mean),
            false => NOT_COMPARED.to_owned(),
        }
    }

    /// Returns the interval of a change, for people.
    fn range(&self, row: &Row, group: usize) -> String {
        if self.is_comparable(row) { short_range(row, group) } else { String::new() }
    }

    /// Explains `NOT_COMPARED`, which tables show instead of a change, if joules cannot be compared.
    fn not_compared(&self) -> Option<String> {
        self.incomparable
            .as_ref()
            .map(|_| format!("{NOT_COMPARED} as a change: joules that cannot be compared"))
    }

    /// Whether the errors of samples explain all differences of a row.
    fn is_within_sampling_error(&self, row: &Row) -> bool {
        (1..self.groups.len()).all(|group| self.is_sampling_error(row, group))
    }

    /// Whether the error of samples explains the difference between the first group and another one: the difference is less than
    /// twice its standard error. If the scatter of the runs is known, it decides, except for a row that only one of the groups
    /// has.
    fn is_sampling_error(&self, row: &Row, group: usize) -> bool {
        let difference = &row.differences[group - 1];
        let is_in_one = [0, group].iter().any(|at| row.groups[*at].mean == 0.0);
        if row.figure != row.by.shown(self.kind) || (difference.p.is_some() && !is_in_one) {
            return false;
        }
        let key = (row.by, row.name.clone());
        let error = |at: usize| {
            let runs = self.sampled_errors.get(at).into_iter().flatten().zip(&row.groups[at].values);
            let of_runs = runs.filter_map(|(errors, joules)| Some(errors.get(&key)? * joules));
            of_runs.fold(0.0, f64::hypot) / row.groups[at].values.len() as f64
        };
        difference.of_means.abs() < 2.0 * error(0).hypot(error(group))
    }

    /// Whether there are groups of several runs, whose noise is known.
    fn has_samples(&self) -> bool {
        self.groups.iter().any(|runs| runs.len() > 1)
    }
}

/// Words for intervals without an end, and the reason why there is none.
const UNBOUNDED: &str = "unbounded";
const AT_LEAST: &str = "≥";
const WHY_UNBOUNDED: &str = "the first mean is not clearly above 0";

/// The change of a figure that cannot be compared.
const NOT_COMPARED: &str = "-";

fn rows_of(by: By, name: &str, values: &[figures::Values], sizes: &[usize]) -> Vec<Row> {
    let row = |figure: usize| {
        let mut of_runs = values.iter().map(|values| values[figure]);
        let groups: Vec<Sample> =
            sizes.iter().map(|size| Sample::of(of_runs.by_ref().take(*size).collect())).collect();
        let differences = groups[1..].iter().map(|group| Difference::between(&groups[0], group)).collect();
        Row { by, name: name.to_owned(), figure, groups, differences }
    };
    (0..by.figures().len()).map(row).collect()
}

impl About {
    fn of(named: Named) -> About {
        let mut shared_by: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
        for view in named.summary.devices.iter().flat_map(|device| &device.views) {
            let rules = shared_by.entry(view.view.clone()).or_default();
            rules.insert((view.policy.clone(), view.sharing.clone()));
        }
        let estimates = named.summary.devices.iter().filter_map(|device| device.estimate.as_ref());
        let estimated_by =
            estimates.map(|by| format!("{} W idle and {} W per core", by.idle_watts, by.watts_per_core));
        let estimated_by = estimated_by.collect();
        let who = crate::first::who(&named.summary);
        About { name: named.name, who, run: named.summary.run, shared_by, estimated_by }
    }

    /// Whether both are figures of one run. The id of another tool's trace is only the name of its directory.
    fn is_same_run(&self, other: &About) -> bool {
        let (a, b) = (&self.run, &other.run);
        let has_id = !a.id.is_empty() && [a, b].iter().all(|run| run.host != "trace");
        let has_start_time = !a.start.is_empty();
        (has_id && a.id == b.id)
            || (has_start_time && (&a.start, &a.end, &a.nodes) == (&b.start, &b.end, &b.nodes))
    }

    /// Returns the words of the run's command without numbers and without the directories of files. They stay the same if only
    /// sizes change.
    fn words(&self) -> Vec<&str> {
        let words = self.run.command.iter().map(|word| crate::first::file_name(word));
        words.filter(|word| !word.is_empty() && word.parse::<f64>().is_err()).collect()
    }
}

/// Returns the reason why joules of these runs differ even if the programs use the same energy.
fn why_incomparable(groups: &[Vec<About>]) -> Option<String> {
    let kinds: BTreeSet<&str> = groups.iter().flatten().map(|run| run.run.energy.as_str()).collect();
    if kinds.len() > 1 {
        let kinds: Vec<&str> = kinds.into_iter().collect();
        return Some(format!("their sources differ ({})", printable(&kinds.join(", "))));
    }
    let known = groups.iter().flatten().map(|run| &run.estimated_by).filter(|watts| !watts.is_empty());
    let watts: BTreeSet<String> = known.map(|watts| Vec::from_iter(watts.clone()).join(", ")).collect();
    let watts: Vec<String> = watts.into_iter().collect();
    (watts.len() > 1).then(|| format!("the runs were estimated with different watts ({})", watts.join("; ")))
}

/// Returns the notes about the runs that a reader has to know.
fn notes(groups: &[Vec<About>], functions: &[BTreeSet<String>], per: Per) -> Vec<String> {
    let runs = || groups.iter().flatten();
    let differ = |same: &dyn Fn(&About, &About) -> bool| {
        let first = runs().next();
        first.is_some_and(|first| !runs().all(|run| same(first, run)))
    };
    let mut notes = Vec::new();
    if !functions.is_empty() && have_nothing_in_common(functions) {
        notes.push("they have no function in common, so they are runs of different programs".to_owned());
    } else if differ(&|a, b| a.run.command.is_empty() || b.run.command.is_empty() || a.words() == b.words()) {
        notes.push(
            "their commands differ: differences may come from the program or from its input".to_owned(),
        );
    }
    // A run without GPU kernels has no view of them.
    let is_same = |a: &About, b: &About| {
        a.shared_by.iter().all(|(view, rules)| b.shared_by.get(view).is_none_or(|other| other == rules))
    };
    if runs().any(|run| !runs().all(|other| is_same(run, other))) {
        notes.push(
            "their joules were divided in different ways (policy, sharing): differences may come from that, too".to_owned(),
        );
    }
    for (what, advice, is_divided, number) in SIZES {
        // Runs without MPI have no ranks.
        let is_known = runs().all(|run| number(run) > 0);
        if is_known && differ(&|a, b| number(a) == number(b)) && !is_divided(per) {
            let mut numbers: Vec<String> = Vec::new();
            for number in runs().map(|run| number(run).to_string()) {
                if !numbers.contains(&number) {
                    numbers.push(number);
                }
            }
            notes.push(format!(
                "they ran on {} {what}, and figures are sums: {advice} divides them by their number",
                numbers.join(" and ")
            ));
        }
    }
    notes.extend(groups.iter().filter_map(|runs| outlier(runs)));
    if groups.iter().any(|runs| runs.len() > 1) && groups.iter().any(|runs| runs.len() == 1) {
        notes.push("a group of one run has no deviation, so there is no interval".to_owned());
    }
    notes
}

/// Returns the note about a run that took, or used, far more or less than all others of its group.
fn outlier(runs: &[About]) -> Option<String> {
    let note = |of: fn(&About) -> f64, verb: &str, unit: &str| {
        let note_of = |at: usize| {
            let others = || runs.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, run)| of(run));
            let (one, least, most) =
                (of(&runs[at]), others().fold(f64::INFINITY, f64::min), others().fold(0.0, f64::max));
            let is_outlier = one > OUTLIER_RATIO * most || OUTLIER_RATIO * one < least;
            let [one, least, most] = [one, least, most].map(|value| digits::significant(value, 3));
            is_outlier.then(|| {
                format!(
                    "{} {verb} {one} {unit}, the other runs of its group {least} to {most} {unit}: leave it out to reduce the noise",
                    printable(&runs[at].name)
                )
            })
        };
        (0..runs.len()).filter(|_| runs.len() > 2).find_map(note_of)
    };
    note(|run| run.run.seconds, "took", "s").or_else(|| note(|run| run.run.total_joules, "used", "J"))
}

/// A size of runs: the word, the option that divides by it, whether figures are divided by it already, and the number.
type Size = (&'static str, &'static str, fn(Per) -> bool, fn(&About) -> u32);
const SIZES: [Size; 2] = [
    ("ranks", "--per rank", |per| per == Per::Rank, |run| run.run.ranks),
    ("nodes", "--per node", |per| per != Per::Run, |run| run.run.nodes.len() as u32),
];

/// Whether one of the runs has functions, but none that the first run also has. MPI functions are not counted.
fn have_nothing_in_common(functions: &[BTreeSet<String>]) -> bool {
    let own = |of: &BTreeSet<String>| -> BTreeSet<String> {
        of.iter().filter(|name| !ampere_model::regions::is_mpi(name)).cloned().collect()
    };
    let first = own(&functions[0]);
    !first.is_empty()
        && functions[1..].iter().map(own).any(|other| !other.is_empty() && other.is_disjoint(&first))
}

/// Describes a run, without its name.
fn line(about: &About) -> String {
    let of = &about.run;
    let command =
        if of.command.is_empty() { String::new() } else { format!(": {}", printable(&of.command.join(" "))) };
    format!(
        "{}on {}, {}{}{command}",
        about.who.as_ref().map_or_else(String::new, |who| format!("{who} ")),
        printable(&of.nodes.join(", ")),
        printable(&of.energy),
        of.state_words(),
    )
}

/// Returns the names of rows of one kind, each in at most `room` characters. The end of a call path is kept.
fn names(rows: &[&Row], room: usize) -> Vec<String> {
    let Some(first) = rows.first() else { return Vec::new() };
    let texts: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    match first.by {
        By::Run => rows.iter().map(|row| By::words(row.figure()).to_owned()).collect(),
        By::Work | By::Python | By::Function | By::Kernel => shortened(&texts, room.min(NAME_CHARS_MAX)).0,
        By::CallPath => {
            let split: Vec<Vec<&str>> =
                texts.iter().map(|text| text.split(figures::SEPARATOR).collect()).collect();
            let split: Vec<&[&str]> = split.iter().map(Vec::as_slice).collect();
            paths(&split, room.min(PATH_CHARS_MAX))
        }
        By::Device => texts.iter().map(|text| short(text, room.min(NAME_CHARS_MAX))).collect(),
    }
}

/// Returns the name of one row.
fn shown(row: &Row) -> String {
    names(&[row], usize::MAX).remove(0)
}

/// Formats a difference for people: in percent, or as a multiple if it is too large for percent.
fn change(from: f64, to: f64) -> String {
    if from == to {
        return "=".to_owned();
    }
    if from <= 0.0 {
        return "new".to_owned();
    }
    if is_multiple(from, to) { multiple(to / from) } else { format!("{:+.1} %", 100.0 * (to - from) / from) }
}

/// Whether a change is too large for percent.
fn is_multiple(from: f64, to: f64) -> bool {
    to - from >= 10.0 * from
}

/// Formats a multiple in at most seven characters.
fn multiple(of: f64) -> String {
    match of {
        0.0..9.95 => format!("x {of:.1}"),
        9.95..1e5 => format!("x {of:.0}"),
        _ => format!("x {of:.0e}"),
    }
}

/// Formats the interval of a change in the unit of the change: percent of the first group's mean, or multiples of it. If that
/// mean is zero, the interval of the difference is formatted in the unit of the figure. Returns `?` if a group has one run.
fn range(row: &Row, group: usize) -> String {
    range_in(row, group, 1)
}

/// Formats the interval of a change for a column.
fn short_range(row: &Row, group: usize) -> String {
    let of = |decimals: usize| range_in(row, group, decimals).replace(" to ", "..");
    Some(of(1)).filter(|text| text.chars().count() <= RANGE_CHARS_MAX).unwrap_or_else(|| of(0))
}

fn range_in(row: &Row, group: usize, decimals: usize) -> String {
    let (first, other) = (&row.groups[0], &row.groups[group]);
    let Some((low, high)) = statistics::ratio(first, other) else {
        let interval = row.differences[group - 1].interval;
        return interval.map_or_else(
            || "?".to_owned(),
            |(low, high)| format!("{} to {}", plain(low.max(0.0)), plain(high)),
        );
    };
    let percents = [low, high].map(|of| 100.0 * (of - 1.0));
    let is_long = percents.iter().any(|of| of.is_finite() && of.abs() >= 100.0);
    let (ends, unit) = match is_multiple(first.mean, other.mean) {
        true => ([low, high].map(multiple), ""),
        false => (percents.map(|of| signed(of, if is_long { 0 } else { decimals })), " %"),
    };
    match (low, high.is_finite()) {
        (_, true) => format!("{} to {}{unit}", ends[0], ends[1]),
        (0.0, false) => UNBOUNDED.to_owned(),
        (_, false) => format!("{AT_LEAST} {}{unit}", ends[0]),
    }
}

fn plain(value: f64) -> String {
    match value {
        0.0..1.0 => digits::significant(value, 2),
        1.0..1e5 => digits::significant(value, 3),
        _ => format!("{value:.1e}"),
    }
}

/// Formats a number with its sign. Zero, and a number that is rounded to zero, have no sign.
fn signed(value: f64, decimals: usize) -> String {
    let unit = 10_f64.powi(decimals as i32);
    match (value * unit).round() / unit {
        0.0 => format!("{:.decimals$}", 0.0),
        large if large >= 1e4 => format!("{large:+.0e}"),
        rounded => format!("{rounded:+.decimals$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_below_one_percent_of_all_groups_are_one_row() {
        let row = |by: By, name: &str, joules: [f64; 2]| {
            let mut values = [figures::Values::default(); 2];
            for (values, joules) in values.iter_mut().zip(joules) {
                values[by.figures().iter().position(|figure| figure.contains("joules")).unwrap_or(0)] =
                    joules;
            }
            rows_of(by, name, &values, &[1, 1])
        };
        let functions = [
            ("work", [80.0, 85.0]),
            ("grows", [0.5, 14.0]),
            ("small", [0.5, 0.9]),
            ("never_ran", [0.0, 0.0]),
        ];
        let functions = functions.into_iter().flat_map(|(name, joules)| row(By::Function, name, joules));
        let rows = row(By::Run, "", [100.0, 100.0]).into_iter().chain(functions).collect();
        let groups = vec![Vec::new(), Vec::new()];
        let comparison = Comparison {
            per: Per::Run,
            kind: Kind::default(),
            groups,
            incomparable: None,
            notes: Vec::new(),
            rows,
            sampled_errors: Vec::new(),
            checks: Vec::new(),
        };
        let shown = |form| String::from_utf8(comparison.render(form)).expect("UTF-8");
        for form in [Form::Table, Form::Html] {
            let text = shown(form);
            assert!(text.contains("work") && text.contains("grows"), "{text}");
            assert!(
                !text.contains("never_ran") && !text.contains(" small") && !text.contains(">small"),
                "{text}"
            );
            assert!(text.contains("2 more, each below 1 % of both runs"), "{text}");
        }
        let more = shown(Form::Table).lines().find(|line| line.contains("2 more")).map(str::to_owned);
        let figures: Vec<String> =
            more.iter().flat_map(|line| line.split_whitespace().take(3)).map(str::to_owned).collect();
        assert_eq!(figures, ["0.50", "0.90", "+80.0"], "their sums");
        assert!(shown(Form::Csv).contains("never_ran"));
    }
}
