//! Divides the nodes of a trace into shares that are attributed independently: no node's locations draw from another node's
//! devices.

use crate::devices::{Metrics, Series};
use crate::evidence;
use crate::index::{IN_DOUBT, no_energy, trace_id};
use crate::left_out;
use crate::metric_recorders::are_in_doubt;
use crate::nesting::Nesting;
use crate::offline::{Attributed, add_locations};
use crate::places::{Place, node_of, node_of_group, nodes_of, process_of};
use ampere_figures::clock_text;
use ampere_figures::nodes::summaries::of_one_trace;
use ampere_figures::summary::{Run, Summary};
use ampere_settings::Config;
use ampere_timeline::attributor::Attributor;
use ampere_timeline::conflicts;
use ampere_timeline::pipeline::{GpuStreams, Pipeline};
use ampere_timeline::threads::OtherThreads;
use anyhow::{Context, bail};
use otf2::{Definitions, LocationRef, Trace};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const INCOMPLETE: &str = "the run that wrote this trace is incomplete: its own summary says what is missing";

/// The names of some of a trace's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share(BTreeSet<String>);

impl Share {
    /// Whether a location is on one of these nodes.
    pub(crate) fn has(&self, definitions: &Definitions, location: LocationRef) -> bool {
        self.0.contains(&node_of(definitions, location))
    }
}

/// Divides a trace's nodes into at least one and at most `most` shares with similar numbers of events. The result is always the
/// same.
///
/// # Errors
/// The file is not a trace.
pub fn shares_of(trace: &Path, most: usize) -> anyhow::Result<Vec<Share>> {
    Ok(split(Trace::open(trace)?.definitions(), most))
}

pub(crate) fn split(definitions: &Definitions, most: usize) -> Vec<Share> {
    let mut together = Together::default();
    for (reference, location) in definitions.locations.iter() {
        let own = together.add(node_of(definitions, reference), location.events);
        // A stream may be on another node than its process.
        let process = node_of_group(definitions, process_of(definitions, reference));
        let process = together.add(process, 0);
        together.unite(own, process);
    }
    // What is recorded outside of the only node is about that node.
    let nodes = nodes_of(definitions);
    if let (Some(only), 1) = (nodes.first(), nodes.len()) {
        let (only, outside) = (together.add(only.clone(), 0), together.add(String::new(), 0));
        together.unite(only, outside);
    }
    // Values that are recorded through an instance may be about another node than the recorder's.
    for (reference, instance) in definitions.metric_instances.iter() {
        let own = together.add(node_of(definitions, instance.recorder), 0);
        let about = together.add(Place::new(definitions, instance.recorder, Some(reference)).node, 0);
        together.unite(own, about);
    }
    let mut all = together.by_events();
    let count = most.min(all.len()).max(1);
    let mut shares = vec![(0u64, BTreeSet::new()); count];
    for (events, nodes) in all.drain(..) {
        if let Some((sum, share)) = shares.iter_mut().min_by_key(|(sum, _)| *sum) {
            *sum = sum.saturating_add(events.max(1));
            share.extend(nodes);
        }
    }
    shares.into_iter().map(|(_, nodes)| Share(nodes)).collect()
}

/// Groups of nodes that cannot be divided.
#[derive(Default)]
struct Together {
    /// The number of each node's group, by the node's name.
    groups: BTreeMap<String, usize>,
    /// The number of events of each group.
    events: Vec<u64>,
}

impl Together {
    fn add(&mut self, node: String, events: u64) -> usize {
        let group = *self.groups.entry(node).or_insert_with(|| {
            self.events.push(0);
            self.events.len() - 1
        });
        self.events[group] = self.events[group].saturating_add(events);
        group
    }

    fn unite(&mut self, into: usize, group: usize) {
        if into != group {
            self.events[into] = self.events[into].saturating_add(std::mem::take(&mut self.events[group]));
            self.groups.values_mut().filter(|of| **of == group).for_each(|of| *of = into);
        }
    }

    /// Returns the groups with their numbers of events, the largest first.
    fn by_events(self) -> Vec<(u64, Vec<String>)> {
        let mut by_group: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for (node, group) in self.groups {
            by_group.entry(group).or_default().push(node);
        }
        let mut all: Vec<_> =
            by_group.into_iter().map(|(group, nodes)| (self.events[group], nodes)).collect();
        all.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        all
    }
}

/// The figures of a share.
#[derive(Serialize, Deserialize)]
pub struct Part {
    /// The summary. Its `run` has only what depends on the share.
    pub(crate) summary: Summary,
    /// A line for each part of the trace that was not read.
    pub(crate) warnings: Vec<String>,
    /// A line for each doubtful metric.
    pub(crate) notes: Vec<String>,
    /// The series that are devices: location, member and instance.
    pub(crate) devices: Vec<(u64, u32, Option<u32>)>,
    /// Lines that state why joules are in doubt.
    pub(crate) doubts: Vec<String>,
    /// Metrics whose joules may be missing.
    pub(crate) missing: BTreeSet<String>,
    pub(crate) nesting: Nesting,
    /// Ticks of the first and the last reading of counters.
    pub(crate) readings: Option<(u64, u64)>,
    /// Joules that may be counted twice.
    pub(crate) doubtful_joules: f64,
    pub(crate) other_threads: OtherThreads,
}

/// Joins the figures of all shares of a trace.
///
/// # Errors
/// The trace has no device.
pub fn join(path: &Path, config: &Config, mut parts: Vec<Part>) -> anyhow::Result<Attributed> {
    let trace = Trace::open(path)?;
    let definitions = trace.definitions();
    let metrics = Metrics::new(definitions, config);
    let warnings: Vec<String> = parts.iter().flat_map(|part| part.warnings.clone()).collect();
    if parts.iter().all(|part| part.summary.devices.is_empty()) {
        // Where events are missing, samples may be missing, too.
        let first = warnings.first().map_or_else(String::new, |first| format!(" ({first})"));
        bail!("{}{first}", no_energy(path, &trace, metrics.energy_is_known, config));
    }
    let mut odd = setting_notes(definitions, config, &metrics, &parts);
    // This order does not depend on the shares.
    odd.extend(parts.iter().flat_map(|part| part.notes.clone()).collect::<BTreeSet<String>>());
    odd.extend(metrics.left_out.notes());
    let is_incomplete = evidence::is_incomplete(definitions);
    odd.extend(is_incomplete.then(|| INCOMPLETE.to_owned()));
    let firsts = parts.iter().filter_map(|part| Some(part.readings?.0));
    let lasts = parts.iter().filter_map(|part| Some(part.readings?.1));
    let readings = firsts.min().zip(lasts.max());
    let doubtful_joules = parts.iter().map(|part| part.doubtful_joules).sum();
    let nesting = parts.iter().fold(Nesting::default(), |all, part| all.and(part.nesting));
    odd.extend(nesting.note());
    let missing = parts.iter().flat_map(|part| part.missing.iter().cloned()).collect();
    let doubts: BTreeSet<String> = (parts.iter().flat_map(|part| part.doubts.clone()))
        .chain(left_out::doubt(&missing))
        .chain(nesting.doubt())
        .collect();
    let other_threads = other_threads(definitions, &mut parts);
    let mut summaries = parts.into_iter().map(|part| part.summary);
    let first = summaries.next().context("a trace without a share")?;
    let mut summary = of_one_trace(first, summaries.collect());
    let mut of_parts = std::mem::take(&mut summary.run.notes);
    of_parts.extend(other_threads.note());
    summary.run.id = trace_id(path);
    summary.run.complete &= warnings.is_empty() && !is_incomplete;
    describe(&mut summary.run, definitions, readings);
    summary.run.complete &= doubts.is_empty();
    odd.extend(doubts);
    summary.run.notes = warnings.iter().chain(&odd).cloned().chain(of_parts).collect();
    if are_in_doubt(doubtful_joules, summary.run.total_joules) {
        odd.push(IN_DOUBT.to_owned());
        summary.run.notes.push(IN_DOUBT.to_owned());
        summary.run.complete = false;
    }
    Ok(Attributed { summary, warnings, odd })
}

/// Returns the notes that depend on all nodes.
fn setting_notes(
    definitions: &Definitions,
    config: &Config,
    metrics: &Metrics,
    parts: &[Part],
) -> Vec<String> {
    if config.devices.is_empty() {
        return Vec::new();
    }
    let attributor = Attributor::new(config.clone(), definitions.clock.timer_resolution);
    let mut pipeline = Pipeline::new(attributor, GpuStreams::InTime);
    add_locations(definitions, None, &[], &mut pipeline);
    let mut attributor = pipeline.attributor;
    for series in parts.iter().flat_map(|part| &part.devices) {
        if let Some(mut found) = metrics.describe(definitions, Series::of_numbers(*series)) {
            found.add_to(&mut attributor);
        }
    }
    conflicts::setting_notes(&attributor, &crate::index::metric_names(definitions))
}

/// Combines the other threads of all parts, and replaces the parts' own notes about them.
fn other_threads(definitions: &Definitions, parts: &mut [Part]) -> OtherThreads {
    let groups =
        || definitions.locations.values().filter_map(|of| definitions.location_groups.get(of.group?));
    let place = |name: &str| groups().position(|group| group.name == name).unwrap_or(usize::MAX);
    parts.iter_mut().fold(OtherThreads::None, |all, part| {
        let own = std::mem::take(&mut part.other_threads);
        let note = own.note();
        part.summary.run.notes.retain(|of_part| Some(of_part) != note.as_ref());
        all.with(own, place)
    })
}

/// Sets the dates and the length of a run.
fn describe(run: &mut Run, definitions: &Definitions, readings: Option<(u64, u64)>) {
    let clock = &definitions.clock;
    let seconds = |ticks: u64| ticks as f64 / clock.timer_resolution.max(1) as f64;
    let length = seconds(clock.trace_length);
    let end = clock.realtime_timestamp.map(|start| start.saturating_add((length * 1e9) as u64));
    let date = |time: Option<u64>| time.map_or_else(String::new, clock_text::rfc3339);
    // As in a measured run, the length is the time from the first to the last reading.
    let sampled = readings.map(|(first, last)| seconds(last.saturating_sub(first)));
    run.start = date(clock.realtime_timestamp);
    run.end = date(end);
    run.host = "trace".to_owned();
    run.timer = "trace".to_owned();
    run.ticks_per_second = clock.timer_resolution;
    run.seconds = sampled.filter(|seconds| *seconds > 0.0).unwrap_or(length);
}

#[cfg(test)]
mod tests {
    use super::*;
    use otf2::{Location, LocationGroup, LocationGroupType, SystemTreeNode};

    fn definitions(nodes: &[(&str, u64)]) -> Definitions {
        let mut all = Definitions::default();
        for (number, (name, events)) in nodes.iter().enumerate() {
            let node = all.system_tree_nodes.push(SystemTreeNode {
                name: (*name).to_owned(),
                class_name: "node".to_owned(),
                ..SystemTreeNode::default()
            });
            let group = all.location_groups.push(LocationGroup {
                kind: LocationGroupType::Process,
                system_tree_parent: Some(node),
                ..LocationGroup::default()
            });
            let location = Location { group: Some(group), events: *events, ..Location::default() };
            all.locations.insert(LocationRef(number as u64), location);
        }
        all
    }

    fn names(shares: &[Share]) -> Vec<Vec<&str>> {
        shares.iter().map(|share| share.0.iter().map(String::as_str).collect()).collect()
    }

    #[test]
    fn shares_have_about_as_many_events() {
        let all = definitions(&[("a", 5), ("b", 9), ("c", 4), ("d", 1), ("a", 1)]);
        assert_eq!(names(&split(&all, 1)), [["a", "b", "c", "d"]]);
        assert_eq!(names(&split(&all, 2)), [vec!["b", "d"], vec!["a", "c"]]);
        assert_eq!(split(&all, 9).len(), 4);
        assert_eq!(split(&Definitions::default(), 3).len(), 1);
    }

    #[test]
    fn a_stream_stays_with_its_process() {
        let mut all = definitions(&[("a", 5), ("b", 9), ("c", 7)]);
        let (process, other) = (all.locations.get(LocationRef(0)), all.locations.get(LocationRef(1)));
        let (process, other) = (process.and_then(|l| l.group), other.and_then(|l| l.group));
        let parent = other.and_then(|group| all.location_groups.get(group)?.system_tree_parent);
        let context = all.location_groups.push(LocationGroup {
            kind: LocationGroupType::Accelerator,
            system_tree_parent: parent,
            creating_location_group: process,
            ..LocationGroup::default()
        });
        let stream = Location { group: Some(context), events: 1, ..Location::default() };
        all.locations.insert(LocationRef(9), stream);
        assert_eq!(names(&split(&all, 3)), [vec!["a", "b"], vec!["c"]]);
    }
}
