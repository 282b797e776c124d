//! Describes the energy that ranks used while they waited for each other in MPI, in words and as tables.

use crate::first::names;
use crate::first::screen::{Column, Names, Table};
use ampere_figures::summary::{Summary, topmost};
use ampere_figures::waits::{Cause, Waiting};
use ampere_model::digits::{column, energy, percent};
use ampere_model::order::largest_first;
use ampere_model::regions::is_mpi;
use ampere_model::text::short;
use std::collections::BTreeMap;

/// The maximum number of causes that the sentence names.
const NAMED_MAX: usize = 2;
/// A cause with a smaller fraction of the waiting is not named.
const NAMED_PART_MIN: f64 = 0.05;
/// The maximum number of causes in the table.
const ROWS_MAX: usize = 15;
/// The maximum length of a function's name in the sentence.
const NAME_CHARS_MAX: usize = 40;
/// A smaller fraction of messages of which one side is unknown is not mentioned.
const UNMATCHED_PART_MIN: f64 = 0.005;

/// Returns the waiting of a run, if there was any.
pub fn of(summary: &Summary) -> Option<&Waiting> {
    summary.run.waiting.as_ref().filter(|waiting| waiting.joules > 0.0)
}

/// Returns sentences about the energy of waiting, its causes, waiting for ranks without a CPU, and what is not counted or not
/// certain. The first is always there if any energy was used waiting.
pub fn words(summary: &Summary) -> Vec<String> {
    let Some(waiting) = of(summary) else { return Vec::new() };
    let (joules, whole) = (waiting.joules, summary.run.total_joules);
    let about = if summary.run.energy == "estimated" { "~" } else { "" };
    let part = percent(joules, whole);
    let mut words = vec![format!(
        "{about}{} of {about}{} ({part} of total) were used waiting in MPI{}",
        energy(joules),
        energy(whole),
        if waiting.is_part { " within this node" } else { "" }
    )];
    // A rank without a CPU is late in whichever function it happens to be. If most waiting was for such ranks, a function is named
    // only if it caused most: a rank may have slept there.
    let is_most = waiting.not_on_cpu_joules > Some(waiting.joules / 2.0);
    let is_named = |cause: &&Cause| match is_most {
        true => cause.joules > joules / 2.0 && !is_mpi(&cause.region),
        false => cause.joules >= NAMED_PART_MIN * joules,
    };
    let large = waiting.causes.iter().filter(is_named);
    let named = large.take(NAMED_MAX).enumerate().map(|(at, cause)| {
        let by = if at == 0 { "of that was caused by" } else { "by" };
        let region = names::shorten(&cause.region, NAME_CHARS_MAX);
        format!("{} {by} {region} on {}", percent(cause.joules, joules), rank(cause))
    });
    words.extend(Some(named.collect::<Vec<_>>().join(", ")).filter(|causes| !causes.is_empty()));
    words.extend(without_cpu(waiting).map(|part| match is_most {
        true => format!("in {part} of it, the late rank was not on a CPU: it slept, or lacked a CPU"),
        false => format!("in {part} of it, the late rank was not on a CPU"),
    }));
    words.extend(lower_bound(waiting).or_else(|| not_followed(summary)));
    words
}

/// Returns the fraction of the waiting that was for ranks that were not on a CPU, if it is large.
pub fn without_cpu(waiting: &Waiting) -> Option<String> {
    let joules = waiting.not_on_cpu_joules.filter(|joules| *joules >= NAMED_PART_MIN * waiting.joules)?;
    (joules > 0.0).then(|| percent(joules, waiting.joules))
}

/// Returns the name of the rank of a cause: "rank 3".
fn rank(cause: &Cause) -> String {
    let name = cause.location_group.strip_prefix("MPI Rank ").map(|number| format!("rank {number}"));
    name.unwrap_or_else(|| short(&cause.location_group, NAME_CHARS_MAX))
}

/// Returns a sentence if some waiting is not counted, or is not certain.
pub fn lower_bound(waiting: &Waiting) -> Option<String> {
    let unmatched = waiting.unmatched_share();
    let shortened = waiting.shortened_calls;
    if unmatched >= UNMATCHED_PART_MIN {
        let all = (waiting.matched_messages + waiting.unmatched_messages) as f64;
        let part = percent(waiting.unmatched_messages as f64, all);
        return Some(format!("{part} of the messages are unmatched: waiting is a lower bound"));
    }
    if shortened > 0 {
        return Some(format!(
            "{shortened} calls were too long to be followed from their start: waiting is a lower bound"
        ));
    }
    let (reordered, all) = (waiting.reordered_receives as f64, waiting.matched_messages as f64);
    (reordered >= UNMATCHED_PART_MIN * all && reordered > 0.0).then(|| {
        let part = percent(reordered, all);
        format!("{part} of the messages were received in another order than was asked for: their waiting is uncertain")
    })
}

/// Returns a sentence if much energy was used in calls of which the causes of waits are unknown. These are functions of one-sided
/// communication, and collective operations with neighbours, in which no waits were found.
fn not_followed(summary: &Summary) -> Option<String> {
    let views = topmost(summary).flat_map(|device| &device.views).filter(|view| view.view == "ranks");
    let mut joules: BTreeMap<&str, f64> = BTreeMap::new();
    for row in views.flat_map(|view| &view.regions) {
        let name = row.region.to_ascii_lowercase();
        let is_followed = row.figures.waited_joules.is_some_and(|joules| joules > 0.0);
        if !is_followed && (name.starts_with("mpi_win_") || name.starts_with("mpi_neighbor_")) {
            *joules.entry(&*row.region).or_default() += row.figures.exclusive_joules;
        }
    }
    let whole = summary.run.total_joules;
    let (name, most) = joules.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most >= NAMED_PART_MIN * whole && most > 0.0).then(|| {
        let part = percent(most, whole);
        format!(
            "{name} used {part} of all joules, and whom it waits for is not known: waiting is a lower bound"
        )
    })
}

/// Returns the tables of kinds and of causes.
pub fn tables(waiting: &Waiting, digits: usize) -> Vec<Table<'_>> {
    let mut kinds: Vec<(&str, f64)> =
        waiting.kinds.iter().map(|(kind, joules)| (kind.as_str(), *joules)).collect();
    kinds.retain(|(_, joules)| *joules > 0.0);
    largest_first(&mut kinds, |(_, joules)| *joules);
    let shares = |joules: &[f64]| joules.iter().map(|joules| percent(*joules, waiting.joules)).collect();
    let columns = |joules: Vec<f64>| {
        vec![Column::new("J", column(&joules, digits)), Column::new("of waiting", shares(&joules))]
    };
    let of_kinds = Table {
        before: columns(kinds.iter().map(|(_, joules)| *joules).collect()),
        head: "what ranks waited for".to_owned(),
        names: Names::Texts(kinds.iter().map(|(kind, _)| (*kind).to_owned()).collect()),
        after: Vec::new(),
    };
    let causes: Vec<&Cause> = waiting.causes.iter().take(ROWS_MAX).collect();
    let mut before = columns(causes.iter().map(|cause| cause.joules).collect());
    before.push(Column {
        is_left: true,
        ..Column::new("on", causes.iter().map(|cause| rank(cause)).collect())
    });
    let of_causes = Table {
        before,
        head: "function that caused the waiting".to_owned(),
        names: Names::Functions(causes.iter().map(|cause| &*cause.region).collect()),
        after: Vec::new(),
    };
    [of_kinds, of_causes].into_iter().filter(|table| !table.before[0].cells.is_empty()).collect()
}
