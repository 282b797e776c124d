//! An existing OTF2 trace through the same attributor as a live run: `ampere attribute`.

use crate::attributor::{Attributor, Device, FoundDevice, LocationInfo, Unit, ViewKind};
use crate::clock_text;
use crate::config::Config;
use crate::nature::Nature;
use crate::numbers::NumberTable;
use crate::order::{Lane, QueueIndex};
use crate::summary::{QualityFigures, Run, Summary};
use crate::topology::Place as DevicePlace;
use crate::trace::{CALLS_NAME, scorep_names};
use crate::{conflicts, evidence};
use ampere_attribution::{CounterFigures, Increase, LocationIndex};
use ampere_model::{LocationKind, Quality, Region, RegionHandle, RegionRef, joules_per_unit};
use anyhow::{Context, bail};
use otf2::{
    AttributeRef, EventHandler, LocationGroupRef, LocationGroupType, LocationRef, LocationType, MetricRef,
    MetricValue, Trace,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::path::Path;

/// What a trace's locations and metrics are to the attributor.
struct Feed<'a> {
    attributor: &'a mut Attributor,
    locations: NumberTable<Place>,
    /// By the trace's own number: they are dense in any trace that a measurement system wrote.
    regions: Vec<Option<RegionRef>>,
    members: Classes,
    devices: BTreeMap<(String, String), Option<usize>>,
    recorders: Recorders,
    /// What the trace says of its counters.
    places: HashMap<(String, String), DevicePlace>,
    found: Vec<KnownDevice>,
    /// The time of the last one so far.
    latest_sample: u64,
    /// See [`Known`]: as it is found out.
    late_ends: HashMap<u64, u64>,
    /// Added to all times: by a delay, none becomes less than 0.
    shift: u64,
    quality: QualityFigures,
    node_of_location: HashMap<LocationRef, String>,
    definitions: &'a otf2::Definitions,
    /// Samples that are shifted by a sensor's delay have to be put in order again.
    delayed: Option<Delayed>,
    /// Of our own traces: how many calls an enter stands for.
    calls: Option<AttributeRef>,
    progress: &'a mut dyn FnMut(u64),
}

#[derive(Clone, Copy)]
struct Place {
    index: LocationIndex,
    /// Time of its last enter or leave, how many there were, and open frames.
    last: u64,
    events: u64,
    depth: u64,
    /// After so many of them, what is open ends.
    ends_after: Option<u64>,
    queue: Option<QueueIndex>,
}

impl Place {
    /// An event more. What was never left ends here, if it is known to be the location's last one before samples that follow.
    #[inline]
    fn count(&mut self, attributor: &mut Attributor) {
        self.events += 1;
        if self.ends_after == Some(self.events) {
            attributor.close(self.index, self.last);
            self.depth = 0;
        }
    }
}

#[derive(Clone)]
pub(crate) struct Member {
    pub position: usize,
    pub reference: otf2::MetricMemberRef,
    pub name: String,
    pub joules_per_unit: Option<f64>,
    pub quality: Quality,
}

/// Per metric class, the members that may be energy counters.
pub(crate) type Classes = HashMap<otf2::MetricClassRef, Vec<Member>>;

struct Delayed {
    lane: Lane,
    /// Per device: delays differ, and within a queue times must not go back.
    samples: Vec<QueueIndex>,
    waited: u64,
}

/// Numbers from here on are taken for undefined: a table of them would not fit into memory.
const MOST_REGIONS: u32 = 1 << 24;
/// How many events are collected before they are put in order.
const DELAYED_BATCH: u64 = 4096;

pub struct Attributed {
    pub summary: Summary,
    /// One line each: what was not read, and why.
    pub warnings: Vec<String>,
    /// One line each: what is odd about the settings.
    pub odd: Vec<String>,
    /// Who spends from what became known too late.
    moved: bool,
}

/// A device that was found in a trace, and what the trace says of it.
type KnownDevice = (FoundDevice, DevicePlace, Nature);

/// Reads the whole trace. `progress` gets the number of events read so far, and is told the number to expect first.
pub fn attribute(
    path: &Path,
    config: &Config,
    only: Option<ViewKind>,
    progress: &mut dyn FnMut(u64, u64),
) -> anyhow::Result<Attributed> {
    let (attributed, known) = attribute_once(path, config, only, progress, Known::default())?;
    if !attributed.moved && known.ends.is_empty() {
        return Ok(attributed);
    }
    // A counter that came later than others, or that never moved, changed who spends from those; or a frame that is never left
    // ended before samples that came first: once more, with all that known before the first event.
    Ok(attribute_once(path, config, only, progress, known)?.0)
}

/// What the first look at a trace has found out.
#[derive(Default)]
struct Known {
    devices: Vec<KnownDevice>,
    /// Enters and leaves of the locations whose open frames are to end before later samples of theirs.
    ends: HashMap<u64, u64>,
}

/// What was found out is returned, and may be known before.
fn attribute_once(
    path: &Path,
    config: &Config,
    only: Option<ViewKind>,
    progress: &mut dyn FnMut(u64, u64),
    known: Known,
) -> anyhow::Result<(Attributed, Known)> {
    let mut trace = Trace::open(path)?;
    let definitions = trace.definitions();
    let locations = definitions.locations.iter().count();
    if locations > 0 && trace.missing().len() == locations {
        bail!(
            "{}: none of its {locations} locations has an event file; they are expected in {}",
            path.display(),
            path.with_extension("").display()
        );
    }
    let mut attributor = Attributor::new(config.clone(), definitions.clock.timer_resolution);
    let mut warnings: Vec<String> = trace.missing().iter().map(|l| missing_line(&trace, *l)).collect();
    let names = metric_names(definitions);
    let mut locations = add_locations(definitions, trace.missing(), &mut attributor);
    let places = evidence::places(definitions);
    let Known { devices: known, ends } = known;
    for (location, events) in ends {
        locations.get_mut(location).into_iter().for_each(|place| place.ends_after = Some(events));
    }
    let devices = known.iter().map(|(device, place, nature)| {
        let key = (device.node.clone(), device.metric.clone());
        let device = attributor.add_device_at(device.clone(), place.clone());
        device.iter().for_each(|device| attributor.set_nature(*device, nature.clone()));
        (key, device)
    });
    let devices = devices.collect();
    let delays = config.devices.iter().map(|device| device.delay.as_secs_f64());
    let longest_delay = attributor.ticks_of(delays.fold(0.0, f64::max));
    let delayed = config.devices.iter().any(|device| !device.delay.is_zero()).then(|| {
        let mut lane = Lane::default();
        locations.values_mut().for_each(|place| place.queue = Some(lane.add_location(place.index)));
        Delayed { samples: Vec::new(), lane, waited: 0 }
    });
    let mut regions = Vec::new();
    for (reference, region) in definitions.regions.iter().filter(|(reference, _)| reference.0 < MOST_REGIONS)
    {
        let at = reference.0 as usize;
        regions.resize(regions.len().max(at + 1), None);
        let reference = attributor.regions.add(&as_model(region));
        regions[at] = Some(attributor.regions.of_name(reference));
    }
    let calls = calls_attribute(definitions);
    let clock = definitions.clock.clone();
    let expected = trace.events_expected();
    progress(0, expected);
    let nodes: HashMap<LocationRef, String> = definitions
        .locations
        .iter()
        .map(|(reference, _)| (reference, node_of(definitions, reference)))
        .collect();
    let members = classes(definitions, config);
    let relative = relative_metrics(definitions, config);
    let energy_known = has_energy(definitions) || !members.is_empty();
    let definitions = definitions.clone();
    let mut step = |done| progress(done, expected);
    let mut feed = Feed {
        attributor: &mut attributor,
        locations,
        regions,
        members,
        devices,
        recorders: Recorders::default(),
        latest_sample: 0,
        late_ends: HashMap::new(),
        shift: longest_delay,
        places,
        found: known,
        quality: QualityFigures::default(),
        node_of_location: nodes,
        definitions: &definitions,
        delayed,
        calls,
        progress: &mut step,
    };
    let report = trace.read_events(&mut feed).with_context(|| format!("cannot read {}", path.display()))?;
    feed.put_in_order(u64::MAX);
    let (quality, mut known) = (feed.quality, feed.found);
    let late_ends = feed.late_ends;
    let recorders = feed.recorders.notes();
    attributor.end_time();
    attributor.learn_silence();
    for (found, place, _) in &mut known {
        place.silent = attributor.is_silent(&found.node, &found.metric);
    }
    for (location, why) in &report.truncated {
        warnings.push(format!("location {} is attributed up to where its events end: {why}", location.0));
    }
    if attributor.devices.is_empty() {
        // Where events are missing, the samples may have been among them.
        let first = warnings.first().map_or_else(String::new, |first| format!(" ({first})"));
        bail!("{}{first}", no_energy(path, &trace, energy_known, config));
    }
    let (nodes, ranks) = Summary::nodes_and_ranks(&attributor);
    let seconds = |ticks: u64| ticks as f64 / clock.timer_resolution.max(1) as f64;
    let length = seconds(clock.trace_length);
    // As of a run that is measured: the time that the joules are about.
    let counters = attributor.devices.iter().filter(|device| device.info.unit == Unit::Joules);
    let of_samples = |device: &Device| {
        let CounterFigures { first, last, .. } = device.counter_figures();
        let came = |time: u64| time.saturating_add(device.delay_ticks);
        (first.map(came), last.map(came))
    };
    let counters: Vec<_> = counters.map(of_samples).collect();
    let first = counters.iter().filter_map(|(first, _)| *first).min();
    let last = counters.iter().filter_map(|(_, last)| *last).max();
    let sampled = first.zip(last).map(|(first, last)| seconds(last.saturating_sub(first)));
    let mut odd = conflicts::notes(&attributor, &names);
    odd.extend(relative.into_iter().chain(recorders));
    let incomplete = evidence::is_incomplete(trace.definitions());
    if incomplete {
        odd.push(
            "the run that wrote this trace is incomplete: its own summary says what is missing".to_owned(),
        );
    }
    let run = Run {
        id: trace_id(path),
        command: Vec::new(),
        start: clock.realtime_timestamp.map_or_else(String::new, clock_text::rfc3339),
        end: clock.realtime_timestamp.map_or_else(String::new, |start| {
            clock_text::rfc3339(start.saturating_add((length * 1e9) as u64))
        }),
        complete: warnings.is_empty() && !incomplete,
        host: "trace".to_owned(),
        nodes,
        ranks,
        energy: String::new(),
        total_joules: 0.0,
        seconds: sampled.filter(|seconds| *seconds > 0.0).unwrap_or(length),
        timer: "trace".to_owned(),
        ticks_per_second: clock.timer_resolution,
        notes: warnings.iter().chain(&odd).cloned().collect(),
        ..Run::default()
    };
    let moved = attributor.links_moved();
    let summary = Summary::new(&attributor, only, run, quality);
    Ok((Attributed { summary, warnings, odd, moved }, Known { devices: known, ends: late_ends }))
}

impl EventHandler for Feed<'_> {
    fn enter(&mut self, location: LocationRef, time: u64, region: otf2::RegionRef) -> ControlFlow<()> {
        self.entered(location, time, region, None)
    }

    fn attribute(&self) -> Option<AttributeRef> {
        self.calls
    }

    fn enter_with(
        &mut self,
        location: LocationRef,
        time: u64,
        region: otf2::RegionRef,
        calls: u64,
    ) -> ControlFlow<()> {
        self.quality.coalesced_calls = self.quality.coalesced_calls.saturating_add(calls);
        self.entered(location, time, region, Some(calls.min(u32::MAX.into()) as u32))
    }

    fn leave(&mut self, location: LocationRef, time: u64, _region: otf2::RegionRef) -> ControlFlow<()> {
        let time = time.saturating_add(self.shift);
        self.count(time);
        if let Some(place) = self.locations.get_mut(location.0) {
            (place.last, place.depth) = (time, place.depth.saturating_sub(1));
            match (&mut self.delayed, place.queue) {
                (Some(delayed), Some(queue)) => delayed.lane.queue(queue).leave(time),
                _ => self.attributor.leave(place.index, time),
            }
            place.count(self.attributor);
        }
        ControlFlow::Continue(())
    }

    /// What was never left ends with the location's last event: nothing is known of it after that.
    fn end(&mut self, location: LocationRef) -> ControlFlow<()> {
        if let Some(place) = self.locations.get_mut(location.0) {
            match (&mut self.delayed, place.queue) {
                (Some(delayed), Some(queue)) => delayed.lane.queue(queue).close(place.last),
                _ => {
                    if place.depth > 0 && place.last < self.latest_sample {
                        self.late_ends.insert(location.0, place.events);
                    }
                    self.attributor.close(place.index, place.last);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn metric(
        &mut self,
        location: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> ControlFlow<()> {
        let Some(members) = self.members.get(&metric.class) else { return ControlFlow::Continue(()) };
        let time = time.saturating_add(self.shift);
        for Member { position, name, joules_per_unit, quality, .. } in members {
            let Some(value) = values.get(*position) else { continue };
            let node = self.node_of_location.get(&location).cloned().unwrap_or_default();
            let key = (node, name.clone());
            if !self.recorders.is_first(&key, location) {
                continue;
            }
            let attributor = &mut *self.attributor;
            let (places, known, definitions) = (&self.places, &mut self.found, self.definitions);
            let device = *self.devices.entry(key).or_insert_with_key(|key| {
                let found = FoundDevice {
                    node: key.0.clone(),
                    metric: name.clone(),
                    source: "trace".to_owned(),
                    quality: *quality,
                    joules_per_unit: *joules_per_unit,
                };
                let place = places.get(key).cloned().unwrap_or_default();
                let nature = Nature::in_trace(definitions, location, name);
                known.push((found.clone(), place.clone(), nature.clone()));
                let device = attributor.add_device_at(found, place)?;
                attributor.set_nature(device, nature);
                Some(device)
            });
            let Some(number) = device else { continue };
            let device = &mut attributor.devices[number];
            let (time, increase) = read(device, time, value);
            self.latest_sample = self.latest_sample.max(time);
            let views = [device.ranks, device.kernels];
            for view in views {
                match &mut self.delayed {
                    Some(delayed) => {
                        while delayed.samples.len() <= number {
                            delayed.samples.push(delayed.lane.add_counter());
                        }
                        delayed.lane.queue(delayed.samples[number]).sample(time, view, increase);
                    }
                    None => attributor.engine.sample(view, time, increase),
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Feed<'_> {
    /// `calls`: how many it stands for, where they were folded.
    #[inline]
    fn entered(
        &mut self,
        location: LocationRef,
        time: u64,
        region: otf2::RegionRef,
        calls: Option<u32>,
    ) -> ControlFlow<()> {
        let time = time.saturating_add(self.shift);
        self.count(time);
        if let Some(place) = self.locations.get_mut(location.0) {
            (place.last, place.depth) = (time, place.depth + 1);
            let attributor = &mut *self.attributor;
            let known = self.regions.get(region.0 as usize).copied().flatten();
            let region = known.unwrap_or_else(|| attributor.regions.add_unknown(region.0));
            let calls = calls.unwrap_or(1);
            match (&mut self.delayed, place.queue) {
                (Some(delayed), Some(queue)) => delayed.lane.queue(queue).enter(time, region, calls),
                _ => attributor.enter_folded(place.index, time, region, calls.into()),
            }
            place.count(attributor);
        }
        ControlFlow::Continue(())
    }

    fn count(&mut self, time: u64) {
        self.quality.events += 1;
        if let Some(delayed) = &mut self.delayed {
            delayed.waited += 1;
            if delayed.waited >= DELAYED_BATCH {
                self.put_in_order(time);
            }
        }
        if self.quality.events.is_multiple_of(1 << 20) {
            (self.progress)(self.quality.events);
        }
    }

    /// Hands over what no sample can come before any more, when the trace has been read up to `time`.
    fn put_in_order(&mut self, time: u64) {
        if let Some(delayed) = &mut self.delayed {
            delayed.waited = 0;
            let longest = self.attributor.longest_delay_ticks();
            // At the end there is nothing to wait for.
            let until = if time == u64::MAX { time } else { time.saturating_sub(longest) };
            delayed.lane.advance(until, self.attributor);
        }
    }
}

/// A sample of a device's, as the trace has it.
pub(crate) fn read(device: &mut Device, time: u64, value: &MetricValue) -> (u64, Increase) {
    match value {
        MetricValue::U64(value) => device.read_u64(time, *value),
        MetricValue::I64(value) => device.read_i64(time, *value),
        MetricValue::F64(value) => device.read_f64(time, *value),
    }
}

/// The attribute that says how many calls an enter stands for, in a trace of ours.
pub(crate) fn calls_attribute(definitions: &otf2::Definitions) -> Option<AttributeRef> {
    let mut attributes = definitions.attributes.iter();
    attributes.find(|(_, attribute)| attribute.name == CALLS_NAME).map(|(reference, _)| reference)
}

pub fn as_model(region: &otf2::Region) -> Region {
    Region {
        handle: RegionHandle(0),
        name: region.name.clone(),
        canonical_name: region.canonical_name.clone(),
        source_file: region.source_file.clone().unwrap_or_default(),
        begin_line: region.begin_line,
        end_line: region.end_line,
        region_type: scorep_names::region_type_of(region.role),
        paradigm: scorep_names::paradigm_of(region.paradigm),
    }
}

/// The name of the node that a location is on: the system tree's innermost "node" above it.
pub(crate) fn node_of(definitions: &otf2::Definitions, location: LocationRef) -> String {
    node_of_group(definitions, definitions.locations.get(location).and_then(|l| l.group))
}

/// The rank of a process: by its name, or 0 for the only one.
pub(crate) fn rank_of_group(definitions: &otf2::Definitions, group: LocationGroupRef) -> Option<u32> {
    let groups = &definitions.location_groups;
    let processes = || groups.values().filter(|g| g.kind == LocationGroupType::Process);
    let this = groups.get(group)?;
    let only = this.kind == LocationGroupType::Process && processes().count() == 1;
    let named = this.name.strip_prefix("MPI Rank ").and_then(|rank| rank.parse().ok());
    named.or(only.then_some(0))
}

pub(crate) fn node_of_group(definitions: &otf2::Definitions, group: Option<LocationGroupRef>) -> String {
    let mut at = group.and_then(|g| definitions.location_groups.get(g)).and_then(|g| g.system_tree_parent);
    let mut most = definitions.system_tree_nodes.len();
    while let Some(node) = at.and_then(|at| definitions.system_tree_nodes.get(at)) {
        if node.class_name == "node" || most == 0 {
            return node.name.clone();
        }
        most -= 1;
        at = node.parent;
    }
    String::new()
}

fn add_locations(
    definitions: &otf2::Definitions,
    missing: &[LocationRef],
    attributor: &mut Attributor,
) -> NumberTable<Place> {
    let mut all = NumberTable::default();
    let mut mains = std::collections::HashSet::new();
    for (reference, location) in definitions.locations.iter() {
        let kind = match location.kind {
            LocationType::CpuThread => LocationKind::CpuThread,
            LocationType::AcceleratorStream => LocationKind::Gpu,
            _ => continue,
        };
        let group = location.group.and_then(|g| definitions.location_groups.get(g));
        // The first CPU location of a group is the process' main one, also when its events are missing.
        let main = kind == LocationKind::CpuThread && mains.insert(location.group);
        if missing.contains(&reference) {
            continue;
        }
        let node = node_of(definitions, reference);
        let group = group.map_or_else(String::new, |g| g.name.clone());
        let rank = location.group.and_then(|g| rank_of_group(definitions, g));
        let info = LocationInfo { node, rank, group, name: location.name.clone(), kind, main };
        let index = attributor.add_location_with(info, evidence::of_location(definitions, reference));
        if main && let Some(group) = location.group {
            let seconds = evidence::thread_seconds(definitions, group);
            seconds.into_iter().for_each(|seconds| attributor.set_cpu_seconds(group.0.into(), seconds));
        }
        all.insert(reference.0, Place { index, last: 0, events: 0, depth: 0, ends_after: None, queue: None });
    }
    all
}

pub(crate) fn metric_names(definitions: &otf2::Definitions) -> BTreeSet<String> {
    definitions.metric_members.values().map(|member| member.name.clone()).collect()
}

/// Whether some metric is an energy by its definition.
pub(crate) fn has_energy(definitions: &otf2::Definitions) -> bool {
    definitions.metric_members.values().any(|member| energy_of(member).is_some())
}

/// Joules per unit of the raw value, from the metric's unit, base and exponent. Score-P's and PAPI's rocm_smi counters
/// say nothing in their unit: they are in microjoules.
fn energy_of(member: &otf2::MetricMember) -> Option<f64> {
    let base: f64 = if member.base == otf2::MetricBase::Binary { 2.0 } else { 10.0 };
    if let Some(joules) = joules_per_unit(&member.unit) {
        // 10^-9 as one division, not nine multiplications.
        let power = base.powi(member.exponent.unsigned_abs().min(1000) as i32);
        return Some(if member.exponent < 0 { joules / power } else { joules * power });
    }
    member.name.contains("rocm_smi:::energy_count:device=").then_some(1e-6)
}

/// For every metric class the members that could be devices.
pub(crate) fn classes(definitions: &otf2::Definitions, config: &Config) -> Classes {
    let mut classes = HashMap::new();
    for (reference, class) in definitions.metric_classes.iter() {
        let members: Vec<_> = class
            .members
            .iter()
            .enumerate()
            .filter_map(|(position, reference)| {
                let member = definitions.metric_members.get(*reference)?;
                (is_wanted(member, config) && !is_relative(member)).then(|| Member {
                    position,
                    reference: *reference,
                    name: member.name.clone(),
                    joules_per_unit: energy_of(member),
                    quality: quality_of(&member.description),
                })
            })
            .collect();
        if !members.is_empty() {
            classes.insert(reference, members);
        }
    }
    classes
}

fn is_wanted(member: &otf2::MetricMember, config: &Config) -> bool {
    let configured = config.devices.iter().any(|setting| setting.metric.is_match(&member.name));
    configured || (config.devices.is_empty() && energy_of(member).is_some())
}

/// Its values are differences, of what a counter counted in some time.
fn is_relative(member: &otf2::MetricMember) -> bool {
    use otf2::MetricMode::{RelativeLast, RelativeNext, RelativePoint};
    matches!(member.mode, RelativeLast | RelativeNext | RelativePoint)
}

/// A line for each counter that is left out for it.
fn relative_metrics(definitions: &otf2::Definitions, config: &Config) -> Vec<String> {
    let members = definitions.metric_members.values();
    let left_out = members.filter(|member| is_relative(member) && is_wanted(member, config));
    left_out
        .map(|member| {
            format!(
                "metric {} is recorded as differences, which are not understood: it is left out",
                member.name
            )
        })
        .collect()
}

/// Who records a counter. Each rank may do so, from its own zero and at its own times: together they are no counter.
#[derive(Default)]
pub(crate) struct Recorders {
    first: HashMap<(String, String), LocationRef>,
    others: BTreeMap<(String, String), BTreeSet<u64>>,
}

impl Recorders {
    /// Whether this is the location whose samples of a node's metric are taken: the first one.
    pub fn is_first(&mut self, key: &(String, String), location: LocationRef) -> bool {
        match self.first.get(key) {
            Some(first) if *first == location => true,
            Some(_) => {
                self.others.entry(key.clone()).or_default().insert(location.0);
                false
            }
            None => self.first.insert(key.clone(), location).is_none(),
        }
    }

    pub fn notes(&self) -> Vec<String> {
        let note = |((node, name), others): (&(String, String), &BTreeSet<u64>)| {
            let on = if node.is_empty() { String::new() } else { format!(" on {node}") };
            let others = others.len();
            format!("{name}{on} is recorded by {} locations: the samples of the first are taken", others + 1)
        };
        self.others.iter().map(note).collect()
    }
}

/// Our own traces say in the description of a metric how far it can be trusted.
pub(crate) fn quality_of(description: &str) -> Quality {
    let says = |quality: Quality| description.ends_with(&format!(": energy, {}", quality.as_str()));
    let less = [Quality::Estimated, Quality::Simulated, Quality::Integrated]
        .into_iter()
        .find(|quality| says(*quality));
    less.unwrap_or(Quality::Measured)
}

pub(crate) fn missing_line(trace: &Trace, location: LocationRef) -> String {
    let definitions = trace.definitions();
    let named = definitions.locations.get(location);
    let group = named.and_then(|l| l.group).and_then(|g| definitions.location_groups.get(g));
    format!(
        "location {} ({}/{}) has no event file: it is left out",
        location.0,
        group.map_or("", |g| &g.name),
        named.map_or("", |l| &l.name)
    )
}

pub(crate) fn no_energy(path: &Path, trace: &Trace, energy_known: bool, config: &Config) -> String {
    let names: Vec<&str> = trace.definitions().metric_members.values().map(|m| m.name.as_str()).collect();
    let has = match names.len() {
        0 => "it has no metric at all".to_owned(),
        1..=6 => format!("it has {}", names.join(", ")),
        many => format!("it has {} and {} more", names[..6].join(", "), many - 6),
    };
    let by_metric =
        config.devices.iter().find(|setting| names.iter().any(|name| setting.metric.is_match(name)));
    if let Some(node) = by_metric.and_then(|setting| setting.node.as_ref()) {
        let nodes: std::collections::BTreeSet<String> =
            trace.definitions().locations.iter().map(|(l, _)| node_of(trace.definitions(), l)).collect();
        let nodes = nodes.into_iter().collect::<Vec<_>>().join(", ");
        let pattern = node.as_str().trim_start_matches("^(?:").trim_end_matches(")$");
        return format!(
            "no node of {} matches node = '{pattern}' of the configuration: it has {nodes}",
            path.display()
        );
    }
    if !config.devices.is_empty() {
        return format!(
            "no [[device]] of the configuration matches a metric with samples in {}: {has}",
            path.display()
        );
    }
    if names.is_empty() {
        return format!(
            "{} has no energy metric, and no other: --time gives a time profile; for energy measure with ampere run, or have Score-P record an energy counter \
             (SCOREP_METRIC_PAPI, or a metric plugin)",
            path.display()
        );
    }
    let why = if energy_known { "no samples of an energy metric" } else { "no energy metric" };
    format!("{} has {why}: {has}; name the right one with a [[device]] in --config", path.display())
}

fn trace_id(path: &Path) -> String {
    let parent = std::fs::canonicalize(path).ok();
    let name = parent.as_deref().and_then(Path::parent).and_then(Path::file_name);
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
