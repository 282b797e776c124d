//! Ranks beside each other: in groups where there are many, and what each function used on each.

use super::rows::Names;
use super::{Heat, MOST_RANKS, Now, NowCell, NowFunction, Ranks};
use ampere_model::text::{printable, short};
use std::collections::HashMap;

/// Functions that are shown beside each other.
pub(super) const MOST_FUNCTIONS: usize = 24;
/// Functions that ranks are in.
const MOST_NOW: usize = 10;
const LONGEST_LABEL: usize = 40;

/// Ranks in groups of one size.
pub(super) struct Groups {
    /// Of each rank, in the order in which they were given.
    pub of: Vec<u32>,
    pub ranks: Ranks,
}

/// A rank's number, or the name of its location group.
pub(super) fn label(group: &str) -> String {
    short(group.strip_prefix("MPI Rank ").unwrap_or(group), LONGEST_LABEL)
}

impl Groups {
    /// `names`: of the ranks' location groups. "MPI Rank 10" comes after "MPI Rank 9".
    pub fn new(names: &[&str]) -> Groups {
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by_key(|at| (names[*at].len(), names[*at]));
        let size = names.len().div_ceil(MOST_RANKS).max(1);
        let (mut of, mut ranks) = (vec![0; names.len()], Ranks::default());
        for (number, members) in order.chunks(size).enumerate() {
            members.iter().for_each(|at| of[*at] = number as u32);
            let [first, last] = [members[0], members[members.len() - 1]].map(|at| label(names[at]));
            ranks.label.push(if members.len() > 1 { format!("{first}-{last}") } else { first });
            ranks.count.push(members.len() as u32);
        }
        Groups { of, ranks }
    }

    pub fn len(&self) -> usize {
        self.ranks.label.len()
    }
}

/// Functions x groups. `functions`: name and the joules of each group.
pub(super) fn heat(mut functions: Vec<(&str, Vec<f64>)>, names: &mut Names) -> Heat {
    let sum = |joules: &[f64]| joules.iter().sum::<f64>();
    functions.sort_by(|a, b| sum(&b.1).total_cmp(&sum(&a.1)).then_with(|| a.0.cmp(b.0)));
    functions.truncate(MOST_FUNCTIONS);
    let mut heat = Heat::default();
    for (name, joules) in functions.into_iter().filter(|(_, joules)| sum(joules) > 0.0) {
        heat.name.push(names.number(name));
        heat.joules.push(joules.into_iter().map(rounded).collect());
    }
    heat
}

/// Six digits, which a colour does not need and a reader does not miss: of a summary in memory the same as of one that was read,
/// whose call paths have nine.
pub(super) fn rounded(joules: f64) -> f64 {
    if joules == 0.0 || !joules.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi((5 - joules.abs().log10().floor() as i32).clamp(-20, 20));
    (joules * scale).round() / scale
}

impl Now {
    /// Of each rank its label and the region that it is in, empty if in none.
    pub fn of(ranks: &[(&str, &str)]) -> Now {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        ranks.iter().for_each(|(_, region)| *counts.entry(region).or_default() += 1);
        let mut functions: Vec<(&str, usize)> = counts.into_iter().collect();
        functions.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let others = functions.split_off(MOST_NOW.min(functions.len()));
        let place: HashMap<&str, u32> = functions.iter().map(|row| row.0).zip(0..).collect();
        let size = ranks.len().div_ceil(MOST_RANKS).max(1);
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
            |name: &str, ranks| NowFunction { name: short(&printable(name), super::LONGEST_NAME), ranks };
        let mut functions: Vec<NowFunction> =
            functions.into_iter().map(|(name, ranks)| shown(name, ranks)).collect();
        if !others.is_empty() {
            let words = format!("{} other functions", others.len());
            functions.push(shown(&words, others.iter().map(|row| row.1).sum()));
        }
        Now { functions, cells }
    }
}
