//! A view as a table: per call path and per region, exclusive and inclusive.

use crate::callpaths::NodeIndex;
use crate::engine::{Engine, LocationIndex, ViewIndex};
use crate::view::{Account, Policy, Sharing, ViewTotals};
use ampere_model::RegionRef;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub struct CallpathRow {
    pub location: LocationIndex,
    /// Outermost first.
    pub path: Vec<RegionRef>,
    pub calls: u64,
    pub exclusive_joules: f64,
    pub inclusive_joules: f64,
    pub resolved_joules: f64,
    pub exclusive_ticks: u64,
    pub resolved_ticks: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RegionRow {
    pub region: RegionRef,
    pub calls: u64,
    pub exclusive_joules: f64,
    /// A region that is on the stack twice counts once.
    pub inclusive_joules: f64,
    pub resolved_joules: f64,
    pub exclusive_ticks: u64,
    pub resolved_ticks: u64,
}

#[derive(Clone, Debug)]
pub struct ViewReport {
    pub policy: Policy,
    pub sharing: Sharing,
    pub totals: ViewTotals,
    /// By exclusive joules, largest first.
    pub callpaths: Vec<CallpathRow>,
    /// By exclusive joules, largest first.
    pub regions: Vec<RegionRow>,
}

impl Engine {
    pub fn report(&self, view: ViewIndex) -> ViewReport {
        let seen = self.view(view);
        let mut callpaths = Vec::new();
        let mut regions = BTreeMap::new();
        for location in seen.locations() {
            self.report_location(location, seen.accounts_of(location), &mut callpaths, &mut regions);
        }
        let mut regions: Vec<RegionRow> = regions.into_values().collect();
        callpaths.sort_by(|a, b| b.exclusive_joules.total_cmp(&a.exclusive_joules));
        regions.sort_by(|a, b| b.exclusive_joules.total_cmp(&a.exclusive_joules));
        ViewReport {
            policy: seen.policy(),
            sharing: seen.sharing(),
            totals: self.totals(view),
            callpaths,
            regions,
        }
    }

    fn report_location(
        &self,
        location: u32,
        accounts: &[Account],
        callpaths: &mut Vec<CallpathRow>,
        regions: &mut BTreeMap<RegionRef, RegionRow>,
    ) {
        let paths = &self.location(location).paths;
        let nodes = paths.nodes();
        let account = |at: usize| accounts.get(at).copied().unwrap_or_default();
        let mut inclusive: Vec<f64> = (0..nodes.len()).map(|at| account(at).joules).collect();
        // Children come after their parents: from the back, every subtree is summed before its parent is.
        for at in (0..nodes.len()).rev() {
            if !nodes[at].parent.is_none() {
                inclusive[nodes[at].parent.0 as usize] += inclusive[at];
            }
        }
        for (at, node) in nodes.iter().enumerate() {
            let account = account(at);
            let path = paths.path(NodeIndex(at as u32));
            let row = regions.entry(node.region).or_insert(RegionRow {
                region: node.region,
                calls: 0,
                exclusive_joules: 0.0,
                inclusive_joules: 0.0,
                resolved_joules: 0.0,
                exclusive_ticks: 0,
                resolved_ticks: 0,
            });
            row.calls += node.calls;
            row.exclusive_joules += account.joules;
            row.resolved_joules += account.resolved_joules;
            row.exclusive_ticks += node.exclusive_ticks;
            row.resolved_ticks += account.resolved_ticks;
            let outermost = !path[..path.len() - 1].contains(&node.region);
            if outermost {
                row.inclusive_joules += inclusive[at];
            }
            callpaths.push(CallpathRow {
                location: LocationIndex(location),
                path,
                calls: node.calls,
                exclusive_joules: account.joules,
                inclusive_joules: inclusive[at],
                resolved_joules: account.resolved_joules,
                exclusive_ticks: node.exclusive_ticks,
                resolved_ticks: account.resolved_ticks,
            });
        }
    }
}
