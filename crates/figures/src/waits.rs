//! The energy that ranks used while they waited for each other in MPI: in the rows of a view, and for the run.

use crate::callpaths::{Callpath, Callpaths, Figures, Name, rounded};
use crate::summary::Region;
use ampere_attribution::{LocationIndex, ViewIndex};
use ampere_model::numbers::NumberMap;
use ampere_timeline::attributor::{Attributor, Unit};
use ampere_timeline::waiting::{ByKind, GROUPS_MAX, Kind, ViewWaits};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// The maximum number of causes in [`Waiting::causes`].
const CAUSES_MAX: usize = 100;

/// The joules that a run used while ranks waited in MPI. Devices that are contained in others are not counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    pub joules: f64,
    /// The number of messages of which both sides are known.
    pub matched_messages: u64,
    /// The number of messages of which only one side is known: waiting for them is not counted.
    pub unmatched_messages: u64,
    /// The number of receives that completed after another receive with the same ranks and tag, although that one was started
    /// later: the figures of these two messages may have been exchanged.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reordered_receives: u64,
    /// The number of calls that were so long that only the last part of their waiting is counted, or none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shortened_calls: u64,
    /// Whether waiting for ranks of other nodes is not included, because the run is still running.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_part: bool,
    /// The part of the joules that was used waiting for ranks that were not on a CPU; `None` if that was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_on_cpu_joules: Option<f64>,
    /// The joules of each kind of wait: "late sender", "late receiver", "barrier", "n-to-n", "1-to-n" and "n-to-1".
    pub kinds: BTreeMap<String, f64>,
    /// The functions that caused the most, each on one rank.
    pub causes: Vec<Cause>,
    /// Which ranks have waited for which. Summaries of older versions do not have this.
    #[serde(default)]
    pub pairs: Pairs,
}

/// Which ranks have waited for which: two tables, each as columns. With more than [`GROUPS_MAX`] ranks, consecutive ranks form
/// a group. If a rank was late because it was itself waiting, that part belongs to the rank for which it waited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pairs {
    /// The location group of the first rank of each group, such as "MPI Rank 0".
    pub first: Vec<Name>,
    /// The location group of the last rank of each group.
    pub last: Vec<Name>,
    /// The number of ranks of each group.
    pub ranks: Vec<u32>,
    /// The group that has waited.
    pub waiting: Vec<u32>,
    /// The group that it has waited for, which may be the same.
    pub cause: Vec<u32>,
    pub joules: Vec<f64>,
}

impl Pairs {
    fn group(&self, at: usize) -> (Name, Name, u32) {
        (self.first[at].clone(), self.last[at].clone(), self.ranks[at])
    }

    /// Whether the columns fit together.
    pub(crate) fn is_sound(&self) -> bool {
        let (groups, pairs) = (self.ranks.len(), self.joules.len());
        let in_range = |at: &u32| (*at as usize) < groups;
        groups <= GROUPS_MAX
            && [self.first.len(), self.last.len()] == [groups; 2]
            && [self.waiting.len(), self.cause.len()] == [pairs; 2]
            && self.waiting.iter().chain(&self.cause).all(in_range)
    }

    fn push_group(&mut self, (first, last, ranks): (Name, Name, u32)) {
        self.first.push(first);
        self.last.push(last);
        self.ranks.push(ranks);
    }

    /// Sets the joules that are not 0, by the groups that have waited and those that they have waited for.
    fn set_joules(&mut self, joules: &BTreeMap<(u32, u32), f64>) {
        (self.waiting, self.cause, self.joules) = Default::default();
        for ((waiting, cause), joules) in joules.iter().filter(|(_, joules)| **joules > 0.0) {
            self.waiting.push(*waiting);
            self.cause.push(*cause);
            self.joules.push(rounded(*joules, i32::MAX));
        }
    }

    /// Iterates over the two groups and the joules of each pair.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32, f64)> + '_ {
        let groups = self.waiting.iter().copied().zip(self.cause.iter().copied());
        groups.zip(&self.joules).map(|((waiting, cause), joules)| (waiting, cause, *joules))
    }

    /// Adds the pairs of other nodes.
    fn with(&self, more: &Pairs) -> Pairs {
        let parts = [self, more];
        let mut groups: Vec<(Name, Name, u32)> =
            parts.iter().flat_map(|part| (0..part.first.len()).map(|at| part.group(at))).collect();
        groups.sort_by(|a, b| (a.0.len(), a).cmp(&(b.0.len(), b)));
        groups.dedup();
        let size = groups.len().div_ceil(GROUPS_MAX).max(1);
        let mut all = Pairs::default();
        for of in groups.chunks(size) {
            let ranks = of.iter().map(|group| group.2).sum();
            all.push_group((of[0].0.clone(), of[of.len() - 1].1.clone(), ranks));
        }
        let new: HashMap<_, u32> =
            groups.iter().zip(0..).map(|(group, at)| (group, at / size as u32)).collect();
        let mut joules: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        for part in parts {
            for (waiting, cause, more) in part.iter() {
                let pair = [waiting, cause].map(|at| new[&part.group(at as usize)]);
                *joules.entry(pair.into()).or_default() += more;
            }
        }
        all.set_joules(&joules);
        all
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A function that made ranks wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    pub region: Name,
    /// The location group of the rank that the region ran on, such as "MPI Rank 0".
    pub location_group: Name,
    /// The joules that other ranks used while this function made them wait.
    pub joules: f64,
}

impl Waiting {
    /// Returns the waiting of all devices of an attributor that are not contained in another; `None` if it was not computed.
    pub(crate) fn of(attributor: &Attributor) -> Option<Waiting> {
        let waiting = attributor.waiting.as_ref()?;
        let counts = waiting.counts();
        let mut all = Waiting {
            matched_messages: counts.matched_messages,
            unmatched_messages: counts.unmatched_messages,
            reordered_receives: counts.reordered_receives,
            shortened_calls: counts.cut_calls + counts.forgotten_waits,
            is_part: waiting.is_part(),
            not_on_cpu_joules: attributor.knows_cpu_times.then_some(0.0),
            kinds: Kind::ALL.iter().map(|kind| (kind.as_str().to_owned(), 0.0)).collect(),
            ..Waiting::default()
        };
        let mut causes: HashMap<(u32, u32), f64> = HashMap::new();
        let mut pairs: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        for waits in of_devices(attributor) {
            all.not_on_cpu_joules.iter_mut().for_each(|joules| *joules += waits.not_on_cpu);
            for (_, joules) in waits.waited.iter() {
                all.joules += joules.sum();
                for kind in Kind::ALL {
                    *all.kinds.entry(kind.as_str().to_owned()).or_default() += joules.get(kind);
                }
            }
            for ((location, node), joules) in waits.caused.iter() {
                let (_, region) = attributor.engine.caller_of(location, node);
                *causes.entry((location.0, region.0)).or_default() += joules.sum();
            }
            for (waiting, row) in (0..).zip(&waits.pairs) {
                for (cause, joules) in (0..).zip(row) {
                    *pairs.entry((waiting, cause)).or_default() += joules;
                }
            }
        }
        for ranks in waiting.groups() {
            let name = |location: LocationIndex| -> Name {
                attributor.locations[location.0 as usize].group.as_str().into()
            };
            if let (Some(first), Some(last)) = (ranks.first().copied(), ranks.last().copied()) {
                all.pairs.push_group((name(first), name(last), ranks.len() as u32));
            }
        }
        all.pairs.set_joules(&pairs);
        let cause = |((location, region), joules): ((u32, u32), f64)| Cause {
            region: attributor.regions.name(ampere_model::RegionRef(region)).into(),
            location_group: attributor.locations[location as usize].group.as_str().into(),
            joules,
        };
        all.set_causes(causes.into_iter().map(cause));
        Some(all)
    }

    /// Adds the waiting of other nodes.
    pub fn with(mut self, more: &Waiting) -> Waiting {
        self.joules += more.joules;
        self.matched_messages += more.matched_messages;
        self.unmatched_messages += more.unmatched_messages;
        self.reordered_receives += more.reordered_receives;
        self.shortened_calls += more.shortened_calls;
        let [own, more_own] = [self.not_on_cpu_joules, more.not_on_cpu_joules];
        self.not_on_cpu_joules = own.map_or(more_own, |own| Some(own + more_own.unwrap_or(0.0)));
        self.pairs = self.pairs.with(&more.pairs);
        for (kind, joules) in &more.kinds {
            *self.kinds.entry(kind.clone()).or_default() += joules;
        }
        let causes = std::mem::take(&mut self.causes);
        self.set_causes(causes.into_iter().chain(more.causes.iter().cloned()));
        self
    }

    /// Sets the largest causes, with one entry for each function of each rank.
    fn set_causes(&mut self, causes: impl Iterator<Item = Cause>) {
        let mut sums: BTreeMap<(Name, Name), f64> = BTreeMap::new();
        for Cause { region, location_group, joules } in causes {
            *sums.entry((location_group, region)).or_default() += joules;
        }
        let cause = |((location_group, region), joules): ((Name, Name), f64)| Cause {
            region,
            location_group,
            joules,
        };
        self.causes = sums.into_iter().map(cause).filter(|cause| cause.joules > 0.0).collect();
        self.causes.sort_by(|a, b| b.joules.total_cmp(&a.joules));
        self.causes.truncate(CAUSES_MAX);
    }

    /// Returns the part of the messages of which only one side is known.
    pub fn unmatched_share(&self) -> f64 {
        let all = self.matched_messages + self.unmatched_messages;
        if all == 0 { 0.0 } else { self.unmatched_messages as f64 / all as f64 }
    }
}

/// Iterates over the waits of all devices that are not contained in another.
pub fn of_devices(attributor: &Attributor) -> impl Iterator<Item = &ViewWaits> {
    let counts = |number: usize| attributor.counts(number) && attributor.whole(number).is_none();
    let devices = attributor.devices.iter().enumerate();
    let devices = devices.filter(move |(number, device)| device.info.unit == Unit::Joules && counts(*number));
    devices.filter_map(|(_, device)| attributor.waiting.as_ref()?.of_view(device.views.ranks))
}

/// Adds waiting to the rows of a ranks view. Rows of this view have the number of their location, and that of the call path
/// within it. Causes of ranks that do not draw from the device get rows of their own.
pub(crate) fn add_to_rows(attributor: &Attributor, view: ViewIndex, rows: &mut Callpaths) {
    let Some(waiting) = &attributor.waiting else { return };
    let waits = waiting.of_view(view);
    let mut caused: NumberMap<_, &ByKind> = waits.into_iter().flat_map(|waits| waits.caused.iter()).collect();
    let sum = |joules: Option<&ByKind>| Some(joules.map_or(0.0, ByKind::sum));
    for row in rows.iter_mut() {
        let key = (ampere_attribution::LocationIndex(row.location), ampere_attribution::NodeIndex(row.path));
        row.figures.waited_joules = sum(waits.and_then(|waits| waits.waited.get(key)));
        row.figures.caused_waiting_joules = sum(caused.remove(&key));
    }
    let elsewhere = caused.into_iter().map(|((location, node), joules)| Callpath {
        path: node.0,
        location_group: 0,
        location: location.0,
        figures: Figures::of_cause(joules.sum()),
    });
    rows.set_causes_elsewhere(elsewhere.collect());
}

/// Adds waiting to the regions of a ranks view.
pub(crate) fn add_to_regions(attributor: &Attributor, view: ViewIndex, regions: &mut Vec<Region>) {
    let Some(waiting) = &attributor.waiting else { return };
    let mut sums: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    if let Some(waits) = waiting.of_view(view) {
        for (which, rows) in [&waits.waited, &waits.caused].into_iter().enumerate() {
            for ((location, node), joules) in rows.iter() {
                let (_, region) = attributor.engine.caller_of(location, node);
                sums.entry(attributor.regions.name(region)).or_default()[which] += joules.sum();
            }
        }
    }
    for row in &mut *regions {
        let [waited, caused] = sums.remove(&*row.region).unwrap_or_default();
        (row.figures.waited_joules, row.figures.caused_waiting_joules) = (Some(waited), Some(caused));
    }
    regions.extend(sums.into_iter().map(|(region, [_, caused])| Region {
        region: region.into(),
        figures: Figures::of_cause(caused),
        sampled_error_joules: None,
        watts: Default::default(),
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pairs of a node with these ranks. The first rank has waited for each of them.
    fn node(ranks: std::ops::Range<u32>) -> Pairs {
        let mut pairs = Pairs::default();
        let groups = ranks.len() as u32;
        for rank in ranks {
            let name: Name = format!("MPI Rank {rank}").into();
            pairs.push_group((name.clone(), name, 1));
        }
        pairs.set_joules(&(0..groups).map(|cause| ((0, cause), f64::from(cause))).collect());
        pairs
    }

    #[test]
    fn pairs_of_several_nodes_are_one_table() {
        let few = node(0..2).with(&node(9..12));
        let names: Vec<&str> = few.first.iter().map(|name| &**name).collect();
        assert_eq!(names, ["MPI Rank 0", "MPI Rank 1", "MPI Rank 9", "MPI Rank 10", "MPI Rank 11"]);
        assert_eq!(few.iter().collect::<Vec<_>>(), [(0, 1, 1.0), (2, 3, 1.0), (2, 4, 2.0)]);
        assert!(few.is_sound());
        assert_eq!(few.with(&few).first, few.first, "the same ranks are not listed twice");
        let many = node(0..100).with(&node(100..200));
        assert_eq!((many.ranks.len(), &*many.first[1], &*many.last[1]), (100, "MPI Rank 2", "MPI Rank 3"));
        assert_eq!(many.iter().map(|(.., joules)| joules).sum::<f64>(), 2.0 * 99.0 * 50.0);
        assert!(many.is_sound());
        let damaged = Pairs { cause: vec![200; many.cause.len()], ..many };
        assert!(!damaged.is_sound());
    }
}
