//! Metrics whose values show more than the joules of a device: the freshness of Cray's counters, and a meter that several nodes
//! have recorded.

use crate::index::number;
use ampere_model::text::listed;
use otf2::{Definitions, MetricClassRef, MetricMember, MetricRef, MetricValue};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Joules are in doubt if the freshness of Cray's counters did not change for this time. The counters and their freshness are
/// updated ten times a second.
const STALE_SECONDS_MIN: f64 = 1.0;

/// The values of the metrics `freshness` of Cray's counters.
#[derive(Default)]
pub(crate) struct Freshness {
    positions: HashMap<MetricClassRef, usize>,
    /// The last value on each node, the time when it was first read, and the longest time in which it was read again.
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
        // Several ranks may have read the freshness, one of them a moment before another.
        if value > *last {
            (*last, *since) = (value, time);
        }
        *longest = (*longest).max(time.saturating_sub(*since));
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

/// The number of consecutive values in a print, which is a hash that works as a fingerprint.
const VALUES: usize = 8;
/// The number of prints that are kept for each device, and the least number of them that two recorders of one meter have in
/// common. These need not have all in common, because one recorder may begin or end earlier than the other.
const PRINTS: usize = 16;
const PRINTS_IN_COMMON_MIN: usize = 12;
/// The increases in a print of energies must differ by at least this fraction, because nodes with the same constant power show
/// the same values.
const VARYING_MIN: f64 = 1.0 / 64.0;

/// The prints of a device's values so far. A value that equals the one before is left out. Of the hashes of [`VALUES`]
/// consecutive values, the least ones are kept.
#[derive(Default)]
pub(crate) struct Prints {
    /// The hash of all values that differ from the one before.
    all: u64,
    last: VecDeque<f64>,
    least: BTreeSet<u64>,
    /// Whether a print occurred twice. Then the values vary so little that another device may have the same prints.
    repeats: bool,
}

impl Prints {
    pub fn add(&mut self, value: f64, is_power: bool) {
        if !value.is_finite() || self.last.back() == Some(&value) {
            return;
        }
        self.all = hash_of([self.all, value.to_bits()].into_iter());
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
            self.repeats |= !self.least.insert(hash_of(self.last.iter().map(|value| value.to_bits())));
            if self.least.len() > PRINTS {
                self.least.pop_last();
            }
        }
    }
}

fn hash_of(values: impl Iterator<Item = u64>) -> u64 {
    let mut hasher = DefaultHasher::new();
    values.for_each(|value| value.hash(&mut hasher));
    hasher.finish()
}

/// A device, with the hashes that show whether a device of another node reads the same meter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Meter {
    pub node: String,
    pub counter: String,
    prints: BTreeSet<u64>,
    /// The hash of all values, if these do not vary enough for prints, and the name does not show that the meter is the node's
    /// own.
    all: Option<u64>,
}

impl Meter {
    /// Returns `None` if the values cannot identify the meter, or if the meter shows only zeros.
    pub fn new(node: &str, counter: String, prints: &Prints, has_known_part: bool) -> Option<Meter> {
        let has_prints = prints.least.len() == PRINTS && !prints.repeats;
        let is_unknown = !has_prints && !has_known_part && prints.last.iter().any(|value| *value != 0.0);
        (has_prints || is_unknown).then(|| Meter {
            node: node.to_owned(),
            counter,
            prints: if has_prints { prints.least.clone() } else { BTreeSet::new() },
            all: is_unknown.then_some(prints.all),
        })
    }
}

/// Returns the reasons why joules are in doubt: a line for each meter that several nodes seem to have recorded.
pub(crate) fn doubts_of_shared(meters: &[Meter]) -> Vec<String> {
    let is_same =
        |one: &Meter, other: &Meter| one.prints.intersection(&other.prints).count() >= PRINTS_IN_COMMON_MIN;
    let line = |counter: &str, nodes: String, count: usize| {
        format!(
            "{counter} has the same values on {nodes}, to the digit: if it is one meter, its joules are counted {count} times"
        )
    };
    shared(meters, is_same, line)
}

/// Returns a note for each meter that several nodes may have recorded, and whose values vary too little to show whether they
/// have.
pub(crate) fn notes_of_shared(meters: &[Meter]) -> Vec<String> {
    let is_same = |one: &Meter, other: &Meter| one.all.is_some() && one.all == other.all;
    let line = |counter: &str, nodes: String, count: usize| {
        format!(
            "{counter} has the same values on {nodes}, which vary too little to show whether it is one meter: if it is, its joules are \
             counted {count} times"
        )
    };
    shared(meters, is_same, line)
}

/// Returns a line for each group of meters of one name that are the same on several nodes.
fn shared(
    meters: &[Meter],
    is_same: impl Fn(&Meter, &Meter) -> bool,
    line: impl Fn(&str, String, usize) -> String,
) -> Vec<String> {
    const NAMES_MAX: usize = 4;
    let mut by_counter: BTreeMap<&str, Vec<&Meter>> = BTreeMap::new();
    meters.iter().for_each(|meter| by_counter.entry(&meter.counter).or_default().push(meter));
    let mut lines = Vec::new();
    for (counter, mut rest) in by_counter {
        while let Some(first) = rest.pop() {
            let (same, others) = rest.into_iter().partition(|other| is_same(first, other));
            rest = others;
            let nodes: BTreeSet<&str> =
                same.iter().chain([&first]).map(|meter: &&Meter| meter.node.as_str()).collect();
            if nodes.len() > 1 {
                lines.push(line(counter, listed(nodes.iter(), NAMES_MAX), nodes.len()));
            }
        }
    }
    lines
}
