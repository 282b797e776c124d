//! The comparison in one sentence: whether the energy differs, and which parts of it differ most.

use super::figures::{By, DYNAMIC_MPI};
use super::statistics::{Difference, ratio};
use super::text::range_head;
use super::{Comparison, Row, range, shown};
use ampere_model::regions::is_mpi;
use ampere_model::text::printable;

/// The maximum number of parts that a verdict names.
const PARTS_MAX: usize = 3;
/// A figure is called the same only if its whole confidence interval is within this fraction of it.
const NOISE_MAX: f64 = 0.1;
/// If groups are single runs, a part is named if it changes by at least this fraction of all joules.
const CHANGE_MIN: f64 = 0.01;
/// Static joules of an estimate are explained if they are at least this fraction of all joules.
const EXPLAINED_PART_MIN: f64 = 0.5;

/// Returns a sentence for each group except the first.
pub fn verdicts(comparison: &Comparison) -> Vec<String> {
    (1..comparison.groups.len()).map(|group| printable(&verdict(comparison, group))).collect()
}

fn verdict(comparison: &Comparison, group: usize) -> String {
    if let ([first], [other]) = (&*comparison.groups[0], &*comparison.groups[group])
        && first.is_same_run(other)
    {
        let differs = comparison.rows.iter().any(|row| row.differences[group - 1].of_means != 0.0);
        let what =
            if differs { "only the attribution of its joules differs" } else { "it is compared with itself" };
        return format!("1 and {} are the same run: {what}", group + 1);
    }
    let words = match &comparison.incomparable {
        Some(why) => {
            let time =
                change_of(comparison, group, "seconds").flatten().map(|change| format!("time {change}"));
            [Some(format!("joules cannot be compared: {why}")), time]
        }
        None => {
            let (all, details) = energy(comparison, group);
            let parts = parts(comparison, group);
            let parts = (!parts.is_empty()).then(|| parts.join(", "));
            let is_unknown = comparison
                .of_run("joules")
                .is_some_and(|row| row.differences[group - 1].is_significant() == Some(false))
                && noise_unless_same(comparison, group, "joules").is_some();
            match details {
                Some(details) if !is_unknown => [Some(format!("{all}: {details}")), parts],
                // What is known comes first.
                Some(details) => {
                    let known = std::iter::once(details).chain(parts).collect::<Vec<_>>().join("; ");
                    [Some(known), Some(all)]
                }
                None => [Some(all), parts],
            }
        }
    };
    words.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Describes how the energy has changed, and which of dynamic joules, static joules and time have changed, are the same, or are
/// not known.
fn energy(comparison: &Comparison, group: usize) -> (String, Option<String>) {
    const KINDS: [(&str, &str); 3] =
        [("dynamic_joules", "dynamic joules"), ("static_joules", "static joules"), ("seconds", "time")];
    let (mut differ, mut same, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for (figure, name) in KINDS {
        match change_of(comparison, group, figure) {
            Some(Some(change)) => differ.push(format!("{name}{} {change}", assumed(comparison, figure))),
            Some(None) => match noise_unless_same(comparison, group, figure) {
                Some(range) => unknown.push(format!("{name} not known ({range})")),
                None => same.push(name),
            },
            None => {}
        }
    }
    // Without dynamic joules there is only the time, which needs no mention if it is the same.
    if comparison.kind.has_dynamic && !same.is_empty() {
        differ.push(format!("{} the same", listed(&same)));
    }
    // Parts that are not known are named only if the energy is the same. Otherwise the tables have their noise.
    if noise_unless_same(comparison, group, "joules").is_none() {
        differ.extend(unknown);
    }
    (all_joules(comparison, group), (!differ.is_empty()).then(|| differ.join(", ")))
}

/// Describes the part of the estimated joules that is only idle watts multiplied by time, if it is at least half of them.
fn assumed(comparison: &Comparison, figure: &str) -> String {
    let all_estimated = comparison.groups.iter().flatten().all(|run| run.run.energy == "estimated");
    let [part, whole] = [figure, "joules"].map(|figure| comparison.of_run(figure).map_or(0.0, Row::size));
    match all_estimated && figure == "static_joules" && part >= EXPLAINED_PART_MIN * whole {
        true => format!(" ({:.0} % of it, idle watts x time)", 100.0 * part / whole),
        false => String::new(),
    }
}

/// Returns the change of a figure of the run in words; `Some(None)` if it is not significant or, between single runs, too small;
/// and `None` if the runs do not have the figure.
fn change_of(comparison: &Comparison, group: usize, figure: &str) -> Option<Option<String>> {
    let row = comparison.of_run(figure)?;
    let difference = &row.differences[group - 1];
    let is_large = difference.of_means.abs() >= CHANGE_MIN * row.groups[0].mean && difference.of_means != 0.0;
    Some(difference.is_significant().unwrap_or(is_large).then(|| by_how_much(row, group)))
}

/// Joins names: "a, b and c".
fn listed(names: &[&str]) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        names => names.concat(),
    }
}

/// Returns the interval of the change of a figure of the run, unless the interval shows that the runs are the same.
fn noise_unless_same(comparison: &Comparison, group: usize, figure: &str) -> Option<String> {
    let row = comparison.of_run(figure)?;
    let difference = &row.differences[group - 1];
    let is_narrow = match ratio(&row.groups[0], &row.groups[group]) {
        Some((low, high)) => low >= 1.0 - NOISE_MAX && high <= 1.0 + NOISE_MAX,
        None => difference.interval? == (0.0, 0.0),
    };
    let is_same = difference.is_within_noise() == Some(true) && is_narrow;
    (!is_same).then(|| format!("{} {}", range_head(), range(row, group)))
}

fn all_joules(comparison: &Comparison, group: usize) -> String {
    let Some(row) = comparison.of_run("joules") else { return "no energy is known".to_owned() };
    let is_estimated = comparison.groups.iter().flatten().any(|run| run.run.energy == "estimated");
    let energy = if is_estimated { "estimated energy" } else { "energy" };
    let energy = match comparison.per {
        super::Per::Run => energy.to_owned(),
        per => format!("{energy} per {}", per.name()),
    };
    let difference = &row.differences[group - 1];
    match difference.is_significant() {
        Some(false) => match noise_unless_same(comparison, group, "joules") {
            Some(range) => {
                format!("whether the {energy} differs is not known ({range}; more runs narrow it)")
            }
            None => format!("same {energy} (within noise)"),
        },
        Some(true) => format!("{energy} {}", by_how_much(row, group)),
        None if difference.of_means == 0.0 => format!("same {energy}"),
        None => format!("{energy} {} (noise not known: compare groups of runs)", by_how_much(row, group)),
    }
}

/// Returns the parts of the energy that differ most. All MPI functions are one part.
fn parts(comparison: &Comparison, group: usize) -> Vec<String> {
    let whole = comparison.whole().map_or(0.0, |row| row.groups[0].mean.max(row.groups[group].mean));
    let differs = |difference: &Difference| {
        let is_large = difference.of_means != 0.0 && difference.of_means.abs() >= CHANGE_MIN * whole;
        difference.is_significant().unwrap_or(is_large)
    };
    let (mpi, name) = match comparison.kind.has_dynamic {
        true => (DYNAMIC_MPI, "MPI's dynamic joules"),
        false => ("mpi_joules", "MPI's joules"),
    };
    let of_run = comparison.of_run(mpi).into_iter().map(|row| (row, name.to_owned()));
    // In a Python program, the joules of functions in C are also in the rows of the Python functions that called them.
    let has_python = comparison.rows.iter().any(|row| row.by == By::Python);
    let cpu_view = if has_python { By::Python } else { By::Function };
    // Inclusive joules of functions overlap, so they are not parts of the energy.
    let is_part = |by: &By| *by != By::Function || !comparison.kind.is_inclusive;
    let views = [cpu_view, By::Kernel].into_iter().filter(is_part);
    let functions: Vec<_> = views.map(|by| comparison.ranked(by).differ).collect();
    let functions = functions.iter().flatten().filter(|row| !is_mpi(&row.name)).map(|row| (*row, shown(row)));
    let is_named = |(row, _): &(&Row, String)| {
        differs(&row.differences[group - 1]) && !comparison.is_sampling_error(row, group)
    };
    let mut parts: Vec<(&Row, String)> = of_run.chain(functions).filter(is_named).collect();
    parts.sort_by(|a, b| {
        let size = |row: &Row| row.differences[group - 1].of_means.abs();
        size(b.0).total_cmp(&size(a.0))
    });
    parts.iter().take(PARTS_MAX).map(|(row, name)| format!("{name} {}", by_how_much(row, group))).collect()
}

/// Formats a change in whole percent, which is exact enough for a sentence.
fn by_how_much(row: &Row, group: usize) -> String {
    let [from, to] = [0, group].map(|at| row.groups[at].mean);
    let percent = 100.0 * (to - from) / from;
    match percent.abs() {
        _ if from <= 0.0 => "(new)".to_owned(),
        _ if to <= 0.0 => "(gone)".to_owned(),
        1000.0.. => format!("x {:.0}", to / from),
        9.5.. => format!("{percent:+.0} %"),
        _ => format!("{percent:+.1} %"),
    }
}
