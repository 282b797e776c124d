//! Ranks side by side: in groups if there are many, and the joules of each function on each of them.

use super::rows::{Names, rounded};
use super::{Heat, Now, NowCell, NowFunction, RANKS_MAX, Ranks, Waits};
use crate::over_ranks::is_compared;
use ampere_figures::callpaths::Name;
use ampere_figures::waits::Pairs;
use ampere_model::text::{printable, short};
use std::collections::HashMap;

/// The maximum number of functions that are shown by rank.
pub(super) const FUNCTIONS_MAX: usize = 24;
const NOW_FUNCTIONS_MAX: usize = 10;
const LABEL_MAX: usize = 40;
/// The maximum number of processes without a rank that are named with their functions.
const NAMED_MAX: usize = 3;

/// Ranks in groups of equal size; only the last groups may differ.
pub(super) struct Groups {
    /// The group of each rank, in the order in which they were given.
    pub of: Vec<u32>,
    pub ranks: Ranks,
}

/// Returns a rank's number, or the name of its location group: `Process 12 (lmp)` is `12 lmp`, because labels are cut at the end.
pub(super) fn label(group: &str) -> String {
    let process = group.strip_prefix("Process ").and_then(|named| named.strip_suffix(')'));
    match process.and_then(|named| named.split_once(" (")) {
        Some((pid, program)) => short(&format!("{pid} {program}"), LABEL_MAX),
        None => short(group.strip_prefix("MPI Rank ").unwrap_or(group), LABEL_MAX),
    }
}

impl Groups {
    /// Groups the ranks. `names` are those of their location groups. "MPI Rank 10" comes after "MPI Rank 9". If there are MPI
    /// ranks, all other processes are the last group.
    pub fn new(names: &[&str]) -> Groups {
        let is_rank = is_compared(names);
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by_key(|at| (!is_rank(*at as u32), names[*at].len(), names[*at]));
        let (in_order, others) = order.split_at(order.partition_point(|at| is_rank(*at as u32)));
        let size = in_order.len().div_ceil(RANKS_MAX).max(1);
        let (mut of, mut ranks) = (vec![0; names.len()], Ranks::default());
        let groups = in_order.chunks(size).chain(others.chunks(others.len().max(1)));
        for (number, members) in groups.enumerate() {
            members.iter().for_each(|at| of[*at] = number as u32);
            let [first, last] = [members[0], members[members.len() - 1]].map(|at| label(names[at]));
            ranks.label.push(match members.len() {
                1 => first,
                many if members == others => format!("{many} other processes"),
                _ => format!("{first}-{last}"),
            });
            ranks.count.push(members.len() as u32);
        }
        ranks.has_others = !others.is_empty();
        Groups { of, ranks }
    }

    pub fn len(&self) -> usize {
        self.ranks.label.len()
    }
}

/// Returns the table of functions by groups. `functions` has each function's name, and its joules in each group.
pub(super) fn heat(mut functions: Vec<(&str, Vec<f64>)>, names: &mut Names) -> Heat {
    let sum = |joules: &[f64]| joules.iter().sum::<f64>();
    functions.sort_by(|a, b| sum(&b.1).total_cmp(&sum(&a.1)).then_with(|| a.0.cmp(b.0)));
    functions.truncate(FUNCTIONS_MAX);
    let mut heat = Heat::default();
    for (name, joules) in functions.into_iter().filter(|(_, joules)| sum(joules) > 0.0) {
        heat.name.push(names.number(name));
        heat.joules.push(joules.into_iter().map(rounded).collect());
    }
    heat
}

impl Waits {
    pub(super) fn of(pairs: &Pairs) -> Waits {
        let groups = pairs.first.iter().zip(&pairs.last).zip(&pairs.ranks);
        let label = |((first, last), ranks): ((&Name, &Name), &u32)| match ranks {
            1 => label(first),
            _ => format!("{}-{}", label(first), label(last)),
        };
        Waits {
            label: groups.map(label).collect(),
            waiting: pairs.waiting.clone(),
            cause: pairs.cause.clone(),
            joules: pairs.joules.iter().copied().map(rounded).collect(),
        }
    }
}

impl Now {
    /// Returns the functions that ranks are executing. `all` has the label of each process and the region that it is in, which is
    /// empty if it is in none. If there are numbered ranks, the other processes are shown on a separate line.
    pub fn of(all: &[(&str, &str)]) -> Now {
        let is_numbered = |(label, _): &(&str, &str)| label.parse::<u32>().is_ok();
        let (mut ranks, mut others): (Vec<_>, Vec<_>) = all.iter().copied().partition(is_numbered);
        if ranks.is_empty() {
            std::mem::swap(&mut ranks, &mut others);
        }
        let mut counts: HashMap<&str, usize> = HashMap::new();
        ranks.iter().for_each(|(_, region)| *counts.entry(region).or_default() += 1);
        let mut functions: Vec<(&str, usize)> = counts.into_iter().collect();
        functions.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let more = functions.split_off(NOW_FUNCTIONS_MAX.min(functions.len()));
        let place: HashMap<&str, u32> = functions.iter().map(|row| row.0).zip(0..).collect();
        let size = ranks.len().div_ceil(RANKS_MAX).max(1);
        let cells = ranks.chunks(size).map(|group| {
            let mut most: HashMap<&str, usize> = HashMap::new();
            group.iter().for_each(|(_, region)| *most.entry(region).or_default() += 1);
            let region = most.into_iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(a.0))).map(|row| row.0);
            let [first, last] = [group[0].0, group[group.len() - 1].0].map(label);
            let label = if group.len() > 1 { format!("{first}-{last}") } else { first };
            NowCell { label, function: region.and_then(|region| place.get(region).copied()) }
        });
        let cells = cells.collect();
        let shown =
            |name: &str, ranks| NowFunction { name: short(&printable(name), super::NAME_CHARS_MAX), ranks };
        let mut functions: Vec<NowFunction> =
            functions.into_iter().map(|(name, ranks)| shown(name, ranks)).collect();
        if !more.is_empty() {
            let words = format!("{} other functions", more.len());
            functions.push(shown(&words, more.iter().map(|row| row.1).sum()));
        }
        Now { functions, cells, others: other_processes(&others) }
    }
}

/// Names the functions that the processes without a rank are executing.
fn other_processes(others: &[(&str, &str)]) -> String {
    let place = |(process, region): &(&str, &str)| {
        let region = if region.is_empty() { "no function" } else { region };
        format!("{} in {}", label(process), short(&printable(region), LABEL_MAX))
    };
    let named: Vec<String> = others.iter().take(NAMED_MAX).map(place).collect();
    let more = others.len().saturating_sub(NAMED_MAX);
    match others.len() {
        0 => String::new(),
        1 => format!("and 1 other process: {}", named[0]),
        many if more == 0 => format!("and {many} other processes: {}", named.join(", ")),
        many => format!("and {many} other processes: {} and {more} more", named.join(", ")),
    }
}
