//! What a function or a call path used on each rank, beside each other: its sum, the least, the mean and the most of one rank, and
//! the ranks that stand out.

use crate::summary::{Device, Summary, View};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// So many times the width of the middle half lies between it and a rank that stands out.
const FAR: f64 = 3.0;
/// Ranks that differ by no more than this part of their middle are alike, however close all others are.
const ALIKE: f64 = 0.05;
/// Of fewer ranks none stands out.
const LEAST_RANKS: usize = 5;

/// The joules of something on each rank that it ran on, exclusive ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread<'a, K> {
    /// A function's name, or the number of a call path.
    pub what: K,
    /// Of all ranks.
    pub joules: f64,
    /// Of all ranks.
    pub seconds: f64,
    /// Of all ranks.
    pub calls: u64,
    /// How many ranks it ran on.
    pub ranks: usize,
    /// Of the rank that used least.
    pub least: f64,
    /// Of the rank that used most.
    pub most: f64,
    /// Ranks that stand out and their joules, the most different first.
    pub standing_out: Vec<(Rank<'a>, f64)>,
}

/// A rank, or a process that has none: its node, and the number of its location group's name.
pub type Rank<'a> = (&'a str, u32);

impl<K> Spread<'_, K> {
    /// Of one rank on average.
    pub fn mean(&self) -> f64 {
        self.joules / self.ranks as f64
    }
}

/// By function, most joules first.
pub fn functions<'a>(summary: &'a Summary, views: &[(&'a Device, &'a View)]) -> Vec<Spread<'a, &'a str>> {
    spreads(views, |path| summary.name(summary.paths.name[path as usize]))
}

/// By call path, most joules first.
pub fn callpaths<'a>(views: &[(&'a Device, &'a View)]) -> Vec<Spread<'a, u32>> {
    spreads(views, |path| path)
}

/// All of a rank, most joules first.
pub fn whole<'a>(views: &[(&'a Device, &'a View)]) -> Option<Spread<'a, ()>> {
    spreads(views, |_| ()).pop()
}

#[derive(Default)]
struct Sums<'a> {
    seconds: f64,
    calls: u64,
    joules: BTreeMap<Rank<'a>, f64>,
}

fn spreads<'a, K: Copy + Eq + Hash + Ord>(
    views: &[(&'a Device, &'a View)],
    key: impl Fn(u32) -> K,
) -> Vec<Spread<'a, K>> {
    let mut all: HashMap<K, Sums> = HashMap::new();
    for (device, view) in views {
        for row in view.callpaths.iter() {
            let sums = all.entry(key(row.path)).or_default();
            sums.seconds += row.figures.exclusive_seconds;
            sums.calls = sums.calls.saturating_add(row.figures.calls);
            *sums.joules.entry((device.node.as_str(), row.location_group)).or_insert(0.0) +=
                row.figures.exclusive_joules;
        }
    }
    let mut spreads: Vec<Spread<K>> = all.into_iter().map(|(what, sums)| sums.spread(what)).collect();
    spreads.sort_by(|a, b| b.joules.total_cmp(&a.joules).then(a.what.cmp(&b.what)));
    spreads
}

impl<'a> Sums<'a> {
    fn spread<K>(self, what: K) -> Spread<'a, K> {
        let mut by_joules: Vec<(Rank, f64)> = self.joules.into_iter().collect();
        by_joules.sort_by(|a, b| a.1.total_cmp(&b.1));
        let joules = |at: usize| by_joules[at].1;
        let ranks = by_joules.len();
        let (low, middle, high) =
            (joules(ranks / 4), joules(ranks / 2), joules((3 * ranks / 4).min(ranks - 1)));
        let width = (high - low).max(ALIKE * middle);
        let distance = |joules: f64| (low - joules).max(joules - high);
        let is_far = |joules: f64| ranks >= LEAST_RANKS && distance(joules) > FAR * width;
        let mut standing_out: Vec<(Rank, f64)> =
            by_joules.iter().filter(|(_, joules)| is_far(*joules)).copied().collect();
        standing_out.sort_by(|a, b| distance(b.1).total_cmp(&distance(a.1)));
        Spread {
            what,
            joules: by_joules.iter().map(|(_, joules)| joules).sum(),
            seconds: self.seconds,
            calls: self.calls,
            ranks,
            least: joules(0),
            most: joules(ranks - 1),
            standing_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(joules: &[f64]) -> Spread<'static, ()> {
        let joules = joules.iter().enumerate().map(|(rank, joules)| (("n", rank as u32), *joules)).collect();
        Sums { seconds: 1.0, calls: 1, joules }.spread(())
    }

    #[test]
    fn one_rank_of_many_that_differs_stands_out() {
        let mut joules = vec![10.0; 16];
        assert_eq!(spread(&joules).standing_out, []);
        joules[3] = 10.9; // within what ranks differ by
        assert_eq!(spread(&joules).standing_out, []);
        joules[7] = 30.0;
        joules[9] = 1.0;
        let seen = spread(&joules);
        assert_eq!(seen.standing_out, [(("n", 7), 30.0), (("n", 9), 1.0)]);
        assert_eq!((seen.least, seen.most, seen.ranks), (1.0, 30.0, 16));
        assert!((seen.mean() - (13.0 * 10.0 + 10.9 + 31.0) / 16.0).abs() < 1e-12);
    }

    #[test]
    fn of_ranks_that_all_differ_none_stands_out() {
        let joules: Vec<f64> = (0..32).map(f64::from).collect();
        assert_eq!(spread(&joules).standing_out, []);
        assert_eq!(spread(&[1.0, 100.0]).standing_out, []);
    }
}
