//! Metrics whose values show more than the joules of a device: the freshness of Cray's counters, and a meter that several nodes
//! have recorded.

use crate::index::number;
use ampere_model::text::listed;
use otf2::{Definitions, MetricClassRef, MetricMember, MetricRef, MetricValue};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Cray's counters are updated ten times a second, and their freshness with them.
const STALE_SECONDS_MIN: f64 = 1.0;

/// The values of the metrics `freshness` of Cray's counters.
#[derive(Default)]
pub(crate) struct Freshness {
    positions: HashMap<MetricClassRef, usize>,
    /// The last value on each node, the time when it changed, and the longest time without a change.
    nodes: BTreeMap<String, (f64, u64, u64)>,
}

impl Freshness {
    pub fn new(definitions: &Definitions) -> Freshness {
        let is_one = |member: &MetricMember| {
            let name = member.name.to_lowercase();
            name.contains("cray") && name.contains("freshness")
        };
        let classes = definitions.metric_classes.iter().filter_map(|(reference, class)| {
            let members = class.members.iter().map(|member| definitions.metric_members.get(*member));
            let at = members.map(|member| member.is_some_and(is_one)).position(|is_one| is_one)?;
            Some((reference, at))
        });
        Freshness { positions: classes.collect(), nodes: BTreeMap::new() }
    }

    /// Processes an event. `node` returns the node that it is about.
    pub fn read(
        &mut self,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
        node: impl FnOnce() -> String,
    ) {
        let Some(position) = self.positions.get(&metric.class) else { return };
        let Some(value) = values.get(*position).map(|value| number(*value)) else { return };
        let (last, since, longest) = self.nodes.entry(node()).or_insert((value, time, 0));
        *longest = (*longest).max(time.saturating_sub(*since));
        // Several ranks may have read it, one of them a moment before another.
        if value > *last {
            (*last, *since) = (value, time);
        }
    }

    /// Returns the reasons why joules are in doubt, one line for each node.
    pub fn doubts(&self, ticks_per_second: u64) -> impl Iterator<Item = String> {
        self.nodes.iter().filter_map(move |(node, (_, _, longest))| {
            let seconds = *longest as f64 / ticks_per_second as f64;
            (seconds >= STALE_SECONDS_MIN).then(|| {
                format!(
                    "Cray's counters on {node} were not updated for {seconds:.2} s, by their freshness: their joules may be missing"
                )
            })
        })
    }
}

/// The number of consecutive values of a print.
const VALUES: usize = 8;
/// The number of prints that are kept of a device, and how many of them two recorders of one meter have in common at least: one
/// of them may begin or end earlier than the other.
const PRINTS: usize = 16;
const PRINTS_IN_COMMON_MIN: usize = 12;
/// In the values of a print, increases differ by at least this fraction: nodes of the same constant power show the same values.
const VARYING_MIN: f64 = 1.0 / 64.0;

/// A device's values so far, as the least hashes of [`VALUES`] consecutive ones that differ.
#[derive(Default)]
pub(crate) struct Prints {
    last: VecDeque<f64>,
    least: BTreeSet<u64>,
}

impl Prints {
    pub fn add(&mut self, value: f64, is_power: bool) {
        if self.last.back() == Some(&value) {
            return;
        }
        self.last.push_back(value);
        if self.last.len() <= VALUES {
            return;
        }
        self.last.pop_front();
        let rises = self.last.iter().zip(self.last.iter().skip(1)).map(|(before, after)| after - before);
        let (least, most) = rises.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), rise| {
            (least.min(rise), most.max(rise))
        });
        if is_power || most - least > VARYING_MIN * most {
            let mut hasher = DefaultHasher::new();
            self.last.iter().for_each(|value| value.to_bits().hash(&mut hasher));
            self.least.insert(hasher.finish());
            if self.least.len() > PRINTS {
                self.least.pop_last();
            }
        }
    }
}

/// A device, and what its values have in common with those of another node if both are of one meter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Meter {
    pub node: String,
    pub counter: String,
    prints: BTreeSet<u64>,
}

impl Meter {
    /// `None` if the values do not vary enough to be known again.
    pub fn new(node: &str, counter: String, prints: &Prints) -> Option<Meter> {
        let is_known = prints.least.len() == PRINTS;
        is_known.then(|| Meter { node: node.to_owned(), counter, prints: prints.least.clone() })
    }

    fn is_same(&self, other: &Meter) -> bool {
        self.counter == other.counter
            && self.node != other.node
            && self.prints.intersection(&other.prints).count() >= PRINTS_IN_COMMON_MIN
    }
}

/// Returns a line for each meter that several nodes seem to have recorded.
pub(crate) fn doubts_of_shared(meters: &[Meter]) -> Vec<String> {
    const NAMES_MAX: usize = 4;
    let mut known: Vec<bool> = vec![false; meters.len()];
    let mut doubts = Vec::new();
    for at in 0..meters.len() {
        let is_other = |other: &usize| !known[*other] && meters[at].is_same(&meters[*other]);
        let same: Vec<usize> =
            if known[at] { Vec::new() } else { (at + 1..meters.len()).filter(is_other).collect() };
        if same.is_empty() {
            continue;
        }
        same.iter().for_each(|other| known[*other] = true);
        let mut nodes: Vec<&str> = same.iter().chain([&at]).map(|one| meters[*one].node.as_str()).collect();
        nodes.sort_unstable();
        doubts.push(format!(
            "{} has the same values on {}, to the digit: if it is one meter, its joules are counted {} times",
            meters[at].counter,
            listed(nodes.iter(), NAMES_MAX),
            nodes.len()
        ));
    }
    doubts
}
