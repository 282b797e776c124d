//! An existing OTF2 trace through the same attributor as a live run: `ampere attribute`.

use crate::attributor::{Attributor, FoundDevice, LocationInfo, ViewKind};
use crate::clock_text;
use crate::config::Config;
use crate::order::{Lane, QueueIndex, What};
use crate::summary::{QualityFigures, Run, Summary};
use crate::trace::scorep_names;
use ampere_attribution::LocationIndex;
use ampere_model::{LocationKind, Quality, Region, RegionHandle, RegionRef, Timestamp, joules_per_unit};
use anyhow::{Context, bail};
use otf2::{
    EventHandler, LocationGroupRef, LocationGroupType, LocationRef, LocationType, MetricRef, MetricValue,
    Trace,
};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::Path;

/// What a trace's locations and metrics are to the attributor.
struct Feed<'a> {
    attributor: &'a mut Attributor,
    locations: HashMap<LocationRef, (LocationIndex, String)>,
    regions: HashMap<otf2::RegionRef, RegionRef>,
    members: Classes,
    devices: BTreeMap<(String, String), Option<usize>>,
    quality: QualityFigures,
    node_of_location: HashMap<LocationRef, String>,
    progress: &'a mut dyn FnMut(u64),
    /// Of everything that was attributed.
    last: Timestamp,
    /// Where samples show what was before: see [`Delayed`].
    delayed: Option<Delayed>,
}

/// A device's `delay` puts its samples before events that come earlier in the trace: these have to wait for them.
struct Delayed {
    lane: Lane,
    /// A trace's events come in the order of time; so do each device's samples.
    events: QueueIndex,
    samples: HashMap<usize, QueueIndex>,
    longest_ticks: u64,
}

impl Delayed {
    /// `None` without any delay: nothing has to wait then.
    fn of(config: &Config, ticks_per_second: u64) -> Option<Delayed> {
        let longest =
            config.devices.iter().map(|device| device.delay).max().filter(|delay| !delay.is_zero())?;
        let mut lane = Lane::default();
        let events = lane.add_queue();
        let longest_ticks = (longest.as_secs_f64() * ticks_per_second as f64).ceil() as u64;
        Some(Delayed { lane, events, samples: HashMap::new(), longest_ticks })
    }
}

/// Per metric class, the members that may be energy counters: (position, name, joules per unit).
pub(crate) type Classes = HashMap<otf2::MetricClassRef, Vec<(usize, String, Option<f64>)>>;

pub struct Attributed {
    pub summary: Summary,
    /// One line each: what was not read, and why.
    pub warnings: Vec<String>,
}

/// Reads the whole trace. `progress` gets the number of events read so far, and is told the number to expect first.
pub fn attribute(
    path: &Path,
    config: &Config,
    only: Option<ViewKind>,
    progress: &mut dyn FnMut(u64, u64),
) -> anyhow::Result<Attributed> {
    let mut trace = Trace::open(path)?;
    let definitions = trace.definitions();
    let mut attributor = Attributor::new(config.clone(), definitions.clock.timer_resolution);
    let mut warnings: Vec<String> = trace.missing().iter().map(|l| missing_line(&trace, *l)).collect();
    let found = find_metrics(definitions);
    let locations = add_locations(definitions, trace.missing(), &mut attributor);
    let regions = definitions
        .regions
        .iter()
        .map(|(reference, region)| (reference, attributor.regions.add(&as_model(region))))
        .collect();
    let clock = definitions.clock.clone();
    let expected = trace.events_expected();
    progress(0, expected);
    let nodes: HashMap<LocationRef, String> = definitions
        .locations
        .iter()
        .map(|(reference, _)| (reference, node_of(definitions, reference)))
        .collect();
    let host = host_of(&trace);
    let members = classes(definitions, &found, config);
    let energy_known = found.values().any(|unit| unit.is_some()) || !members.is_empty();
    let mut step = |done| progress(done, expected);
    let mut feed = Feed {
        attributor: &mut attributor,
        locations,
        regions,
        members,
        devices: BTreeMap::new(),
        quality: QualityFigures::default(),
        node_of_location: nodes,
        progress: &mut step,
        last: 0,
        delayed: Delayed::of(config, clock.timer_resolution.max(1)),
    };
    let report = trace.read_events(&mut feed).with_context(|| format!("cannot read {}", path.display()))?;
    // What is still open ends with the trace, as a live run's does.
    if let Some(Delayed { mut lane, .. }) = feed.delayed.take() {
        lane.advance(Timestamp::MAX, feed.attributor);
    }
    let (quality, last) = (feed.quality, feed.last);
    for location in 0..attributor.locations.len() {
        attributor.engine.close(LocationIndex(location as u32), last);
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
    let seconds = clock.trace_length as f64 / clock.timer_resolution.max(1) as f64;
    let run = Run {
        id: trace_id(path),
        command: Vec::new(),
        start: clock.realtime_timestamp.map_or_else(String::new, clock_text::rfc3339),
        end: clock.realtime_timestamp.map_or_else(String::new, |start| {
            clock_text::rfc3339(start.saturating_add((seconds * 1e9) as u64))
        }),
        complete: warnings.is_empty(),
        host,
        nodes,
        ranks,
        energy: String::new(),
        seconds,
        timer: "trace".to_owned(),
        ticks_per_second: clock.timer_resolution,
        notes: warnings.clone(),
    };
    Ok(Attributed { summary: Summary::new(&attributor, only, run, quality), warnings })
}

impl EventHandler for Feed<'_> {
    fn enter(&mut self, location: LocationRef, time: u64, region: otf2::RegionRef) -> ControlFlow<()> {
        self.count(time);
        if let Some((index, _)) = self.locations.get(&location) {
            let region = match self.regions.get(&region) {
                Some(region) => *region,
                None => {
                    let unknown = self.attributor.regions.add_unknown(region.0);
                    self.regions.insert(region, unknown);
                    unknown
                }
            };
            let enter = What::Enter(*index, region);
            self.event(time, enter);
        }
        ControlFlow::Continue(())
    }

    fn leave(&mut self, location: LocationRef, time: u64, _region: otf2::RegionRef) -> ControlFlow<()> {
        self.count(time);
        if let Some((index, _)) = self.locations.get(&location) {
            let leave = What::Leave(*index);
            self.event(time, leave);
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
        for (position, name, joules_per_unit) in members {
            let Some(value) = values.get(*position) else { continue };
            let node = self.node_of_location.get(&location).cloned().unwrap_or_default();
            let attributor = &mut *self.attributor;
            let device = *self.devices.entry((node, name.clone())).or_insert_with_key(|(node, name)| {
                attributor.add_device(FoundDevice {
                    node: node.clone(),
                    metric: name.clone(),
                    source: "trace".to_owned(),
                    quality: quality_of(name),
                    joules_per_unit: *joules_per_unit,
                })
            });
            let Some(number) = device else { continue };
            self.last = self.last.max(time);
            let device = &mut attributor.devices[number];
            let (time, increase) = match value {
                MetricValue::U64(value) => device.read_u64(time, *value),
                MetricValue::I64(value) => device.read_i64(time, *value),
                MetricValue::F64(value) => device.read_f64(time, *value),
            };
            let views = [device.ranks, device.kernels];
            for view in views {
                match &mut self.delayed {
                    Some(Delayed { lane, samples, .. }) => {
                        let queue = samples.entry(number).or_insert_with(|| lane.add_queue());
                        lane.push(*queue, time, What::Sample(view, increase));
                    }
                    None => attributor.engine.sample(view, time, increase),
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Feed<'_> {
    #[inline]
    fn event(&mut self, time: Timestamp, what: What) {
        let engine = &mut self.attributor.engine;
        match (&mut self.delayed, what) {
            (Some(delayed), what) => {
                delayed.lane.push(delayed.events, time, what);
                delayed.lane.advance(time.saturating_sub(delayed.longest_ticks), self.attributor);
            }
            (None, What::Enter(location, region)) => engine.enter(location, time, region),
            (None, What::Leave(location)) => engine.leave(location, time),
            (None, What::Sample(view, increase)) => engine.sample(view, time, increase),
        }
    }

    fn count(&mut self, time: Timestamp) {
        self.last = self.last.max(time);
        self.quality.events += 1;
        if self.quality.events.is_multiple_of(1 << 20) {
            (self.progress)(self.quality.events);
        }
    }
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
) -> HashMap<LocationRef, (LocationIndex, String)> {
    let mut all = HashMap::new();
    let mut mains = std::collections::HashSet::new();
    for (reference, location) in definitions.locations.iter() {
        let kind = match location.kind {
            LocationType::CpuThread => LocationKind::CpuThread,
            LocationType::AcceleratorStream => LocationKind::Gpu,
            _ => continue,
        };
        let rank = location.group.and_then(|g| rank_of_group(definitions, g));
        let group = location.group.and_then(|g| definitions.location_groups.get(g));
        // The first CPU location of a group is the process' main one, also when its events are missing.
        let main = kind == LocationKind::CpuThread && mains.insert(location.group);
        if missing.contains(&reference) {
            continue;
        }
        let node = node_of(definitions, reference);
        let group = group.map_or_else(String::new, |g| g.name.clone());
        let index = attributor.add_location(LocationInfo {
            node: node.clone(),
            rank,
            group,
            name: location.name.clone(),
            kind,
            main,
        });
        all.insert(reference, (index, node));
    }
    all
}

/// Every metric's name, with the joules of one of its units if it is an energy by its definition.
pub(crate) fn find_metrics(definitions: &otf2::Definitions) -> BTreeMap<String, Option<f64>> {
    definitions.metric_members.values().map(|member| (member.name.clone(), energy_of(member))).collect()
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
pub(crate) fn classes(
    definitions: &otf2::Definitions,
    found: &BTreeMap<String, Option<f64>>,
    config: &Config,
) -> Classes {
    let mut classes = HashMap::new();
    for (reference, class) in definitions.metric_classes.iter() {
        let members: Vec<_> = class
            .members
            .iter()
            .enumerate()
            .filter_map(|(position, member)| {
                let name = &definitions.metric_members.get(*member)?.name;
                let joules = found.get(name).copied().flatten();
                let configured = config.devices.iter().any(|setting| setting.metric.is_match(name));
                (configured || (config.devices.is_empty() && joules.is_some()))
                    .then(|| (position, name.clone(), joules))
            })
            .collect();
        if !members.is_empty() {
            classes.insert(reference, members);
        }
    }
    classes
}

pub(crate) fn quality_of(metric: &str) -> Quality {
    if metric.starts_with("estimate:::") { Quality::Estimated } else { Quality::Measured }
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
    if !config.devices.is_empty() {
        return format!(
            "no [[device]] of the configuration matches a metric with samples in {}: {has}",
            path.display()
        );
    }
    if names.is_empty() {
        return format!(
            "{} has no energy metric, and no other: measure with ampere run, or have Score-P record an energy counter \
             (SCOREP_METRIC_PAPI, or a metric plugin)",
            path.display()
        );
    }
    let why = if energy_known { "no samples of an energy metric" } else { "no energy metric" };
    format!("{} has {why}: {has}; name the right one with a [[device]] in --config", path.display())
}

fn host_of(_trace: &Trace) -> String {
    "trace".to_owned()
}

fn trace_id(path: &Path) -> String {
    let parent = std::fs::canonicalize(path).ok();
    let name = parent.as_deref().and_then(Path::parent).and_then(Path::file_name);
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
