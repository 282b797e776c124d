//! A view as a table: per call path and per region, exclusive and inclusive.

use crate::engine::Engine;
use crate::policy::{Policy, Sharing};
use crate::steps::{LocationIndex, NodeIndex, ViewIndex};
use crate::view::{Consumer, View, ViewTotals};
use ampere_model::RegionRef;
use std::collections::BTreeMap;

/// The calls, the time and the joules of one call path of one location.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct CallpathRow {
    pub location: LocationIndex,
    /// The number of the call path, as in [`Engine::nodes`].
    pub node: NodeIndex,
    /// The regions from the outermost on. [`Engine::report_rows`] leaves it empty.
    pub path: Vec<RegionRef>,
    pub calls: u64,
    pub exclusive_joules: f64,
    pub inclusive_joules: f64,
    /// The exclusive joules in addition to those that the device always draws; 0 unless the policy is *active*.
    pub dynamic_joules: f64,
    /// The inclusive joules in addition to those that the device always draws.
    pub inclusive_dynamic_joules: f64,
    /// The least that its exclusive joules can be: see [`ViewReport`].
    pub resolved_joules: f64,
    /// The most that its exclusive joules can be.
    pub possible_joules: f64,
    pub exclusive_ticks: u64,
    pub resolved_ticks: u64,
    /// The least and the most power, in joules per tick, of the sample intervals in which it ran: see [`ViewReport`].
    pub joules_per_tick: Option<(f64, f64)>,
}

/// The sum of the call paths that end in a region.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct RegionRow {
    pub region: RegionRef,
    pub calls: u64,
    pub exclusive_joules: f64,
    /// The inclusive joules. A region that is on the stack twice is counted once.
    pub inclusive_joules: f64,
    /// The exclusive joules in addition to those that the device always draws: see [`CallpathRow`].
    pub dynamic_joules: f64,
    /// The inclusive joules in addition to those that the device always draws.
    pub inclusive_dynamic_joules: f64,
    pub resolved_joules: f64,
    /// The most that the joules can be. A sample interval is counted once, even if several of the region's call paths ran in
    /// it.
    pub possible_joules: f64,
    pub exclusive_ticks: u64,
    pub resolved_ticks: u64,
    /// The least and the most power, in joules per tick, of the sample intervals in which it ran: see [`ViewReport`].
    pub joules_per_tick: Option<(f64, f64)>,
}

/// A view as a table.
///
/// # Least and most joules
/// Resolved joules are those of the sample intervals that belonged to one frame alone, from end to end; possible joules are
/// those of all intervals in which it ran at all, including lost ones. Its exclusive joules are between these two. With
/// independent sharing, where each consumer is given all joules, an interval is possible for a region once for each consumer (a
/// group counts as one).
///
/// Under the policy *active* both are dynamic joules. Resolved joules are then those of the intervals in which nothing else was
/// active, and possible joules those of all intervals in which the frame was active at all.
///
/// # Least and most power
/// Under the policy *time sliced*, the power of a sample interval is the device's (joules / length), however many frames shared
/// it. Under *busy only*, it is the power that each frame was charged for (joules / run time of all).
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct ViewReport {
    pub policy: Policy,
    pub sharing: Sharing,
    pub totals: ViewTotals,
    /// Sorted by exclusive joules, the largest first.
    pub callpaths: Vec<CallpathRow>,
    /// Sorted by exclusive joules, the largest first.
    pub regions: Vec<RegionRow>,
}

impl Engine {
    /// Returns all rows of a view.
    pub fn report(&self, view: ViewIndex) -> ViewReport {
        let mut callpaths = Vec::new();
        let report = self.report_rows(view, &mut |row| {
            let path = self.location(row.location.0).paths.path(row.node);
            callpaths.push(CallpathRow { path, ..row });
        });
        callpaths.sort_by(|a, b| b.exclusive_joules.total_cmp(&a.exclusive_joules));
        ViewReport { callpaths, ..report }
    }

    /// Like [`Engine::report`], but passes the call paths to `each`, those of a location in the order of their nodes, because
    /// there may be too many to hold them twice.
    pub fn report_rows(&self, view: ViewIndex, each: &mut dyn FnMut(CallpathRow)) -> ViewReport {
        let seen = self.view(view);
        let mut regions = BTreeMap::new();
        let consumers = seen.consumers.all.iter().enumerate();
        for consumer in consumers.filter(|(_, consumer)| !consumer.is_removed_and_uncharged()) {
            self.report_consumer(seen, consumer, each, &mut regions);
        }
        for (region, joules) in seen.possible_regions.iter() {
            if let Some(row) = regions.get_mut(&region) {
                row.possible_joules += joules;
            }
        }
        let mut regions: Vec<RegionRow> = regions.into_values().collect();
        regions.sort_by(|a, b| b.exclusive_joules.total_cmp(&a.exclusive_joules));
        ViewReport {
            policy: seen.policy,
            sharing: seen.sharing,
            totals: self.totals(view),
            callpaths: Vec::new(),
            regions,
        }
    }

    /// Returns a location's call paths, callers first: the number of each, its caller's (or [`NodeIndex::ROOT`]), and its
    /// innermost region.
    pub fn nodes(
        &self,
        location: LocationIndex,
    ) -> impl DoubleEndedIterator<Item = (NodeIndex, NodeIndex, RegionRef)> {
        self.location(location.0).paths.nodes().map(|(at, node)| (at, node.parent, node.region))
    }

    fn report_consumer(
        &self,
        seen: &View,
        (number, consumer): (usize, &Consumer),
        each: &mut dyn FnMut(CallpathRow),
        regions: &mut BTreeMap<RegionRef, RegionRow>,
    ) {
        let paths = &self.location(consumer.location).paths;
        // All joules, and their dynamic part.
        let mut inclusive = vec![[0.0; 2]; paths.len()];
        // Children come after their parents: in reverse order, every subtree is summed before its parent is.
        for (at, node) in paths.nodes().rev() {
            let own = [consumer.account(at).joules, seen.dynamic_joules(number, at)];
            for (part, joules) in own.into_iter().enumerate() {
                inclusive[at.0 as usize][part] += joules;
                inclusive[node.parent.0 as usize][part] += inclusive[at.0 as usize][part];
            }
        }
        for (at, node) in paths.nodes() {
            let (account, resolved) = (
                consumer.account(at),
                seen.resolved.get(&(consumer.location, at)).copied().unwrap_or_default(),
            );
            let [inclusive_joules, inclusive_dynamic_joules] = inclusive[at.0 as usize];
            let row = CallpathRow {
                location: LocationIndex(consumer.location),
                node: at,
                path: Vec::new(),
                calls: node.calls,
                exclusive_joules: account.joules,
                inclusive_joules,
                dynamic_joules: seen.dynamic_joules(number, at),
                inclusive_dynamic_joules,
                resolved_joules: resolved.joules,
                possible_joules: account.possible,
                exclusive_ticks: node.exclusive_ticks,
                resolved_ticks: resolved.ticks,
                joules_per_tick: account.prices(),
            };
            let region = regions.entry(node.region).or_insert_with(|| RegionRow::new(node.region));
            region.add(&row, paths.is_outermost(at));
            each(row);
        }
    }
}

impl RegionRow {
    fn new(region: RegionRef) -> RegionRow {
        RegionRow {
            region,
            calls: 0,
            exclusive_joules: 0.0,
            inclusive_joules: 0.0,
            dynamic_joules: 0.0,
            inclusive_dynamic_joules: 0.0,
            resolved_joules: 0.0,
            possible_joules: 0.0,
            exclusive_ticks: 0,
            resolved_ticks: 0,
            joules_per_tick: None,
        }
    }

    fn add(&mut self, row: &CallpathRow, outermost: bool) {
        self.calls = self.calls.saturating_add(row.calls);
        self.exclusive_joules += row.exclusive_joules;
        self.dynamic_joules += row.dynamic_joules;
        self.resolved_joules += row.resolved_joules;
        self.exclusive_ticks = self.exclusive_ticks.saturating_add(row.exclusive_ticks);
        self.resolved_ticks = self.resolved_ticks.saturating_add(row.resolved_ticks);
        if outermost {
            self.inclusive_joules += row.inclusive_joules;
            self.inclusive_dynamic_joules += row.inclusive_dynamic_joules;
        }
        self.joules_per_tick = match (self.joules_per_tick, row.joules_per_tick) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        };
    }
}
