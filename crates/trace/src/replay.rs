//! An existing trace as something that is played into a live collector: what its processes, locations and metrics are.
//!
//! The plugin's interface has no words for a node's name, a location group or a metric's unit. They are written down here,
//! in the session's `replay.json`, by `ampere replay`; the collector and the hosts that it plays through both go by it.
//! What is a device, and who may spend from it, is found out as `ampere attribute` does.

use crate::devices::{Metrics, TraceDevices};
use crate::recorders::Recorders;
use crate::{evidence, index};
use ampere_attribution::Increase;
use ampere_model::{LocalLocation, Quality};
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, FoundDevice, Recorded};
use ampere_timeline::nature::Nature;
use ampere_timeline::topology::{Accelerator, Place};
use anyhow::{Context, bail};
use otf2::{
    AttributeRef, Definitions, EventHandler, LocationGroupRef, LocationGroupType, LocationRef, LocationType,
    MetricRef, MetricValue, Trace,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Beside the session's rings.
pub const FILE_NAME: &str = "replay.json";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Replay {
    pub trace: PathBuf,
    pub ticks_per_second: u64,
    /// Times of the first and the last event that is played.
    pub first: u64,
    pub last: u64,
    /// Nanoseconds since 1970 at `first`, where the trace knows.
    pub realtime_ns: Option<u64>,
    pub processes: Vec<ReplayedProcess>,
    /// In the order of their first samples.
    pub metrics: Vec<ReplayedMetric>,
    /// Of all of the trace's metrics, devices or not.
    pub metric_names: Vec<String>,
    /// Locations with samples of them.
    pub recorders: Vec<u64>,
    /// Enters, leaves and samples.
    pub events: u64,
    /// GPU streams are handed over when their events are so old; `None`: at the end.
    pub stream_lag_ticks: Option<u64>,
    /// A GPU stream's events come no later than this after their time.
    pub longest_lag_ticks: u64,
    /// One line each: what of the trace cannot be played, and why; or what is not known of it.
    pub notes: Vec<String>,
    /// One line each: what is odd about the trace, and nothing is missing for it.
    #[serde(default)]
    pub odd: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayedProcess {
    /// What its host calls its rank: different for every process.
    pub number: u32,
    /// Of how many.
    pub size: u32,
    /// The rank, where it is known.
    pub rank: Option<u32>,
    pub node: String,
    /// The location group's name.
    pub group: String,
    /// Its variables that links are found by, `NAME=value`.
    pub environment: Vec<String>,
    pub locations: Vec<ReplayedLocation>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayedLocation {
    /// In the trace.
    pub reference: u64,
    /// In its process: 0 is the main thread.
    pub id: u32,
    pub name: String,
    pub gpu: bool,
    pub node: String,
    pub group: String,
    /// Whether the trace says that it is this process': one that it says nothing about is played by some process.
    pub is_of_process: bool,
    /// Of a GPU stream, what the trace says of its device.
    pub accelerator: Accelerator,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayedMetric {
    pub node: String,
    pub name: String,
    pub description: String,
    pub unit: String,
    pub binary: bool,
    pub exponent: i64,
    pub value: ValueType,
    pub joules_per_unit: Option<f64>,
    #[serde(default)]
    pub recorded: Recorded,
    /// The location whose samples are played.
    #[serde(default)]
    pub recorder: u64,
    pub place: Place,
    #[serde(default)]
    pub nature: Nature,
}

/// How the 64 bits of a sample are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ValueType {
    U64,
    I64,
    F64,
}

impl ValueType {
    fn of(value: &MetricValue) -> ValueType {
        match value {
            MetricValue::U64(_) => ValueType::U64,
            MetricValue::I64(_) => ValueType::I64,
            MetricValue::F64(_) => ValueType::F64,
        }
    }

    /// A value as the bits of this type.
    pub fn bits(self, value: &MetricValue) -> u64 {
        match (self, value) {
            (ValueType::U64, MetricValue::U64(value)) => *value,
            (ValueType::U64, MetricValue::I64(value)) => *value as u64,
            (ValueType::U64, MetricValue::F64(value)) => *value as u64,
            (ValueType::I64, MetricValue::U64(value)) => *value,
            (ValueType::I64, MetricValue::I64(value)) => *value as u64,
            (ValueType::I64, MetricValue::F64(value)) => *value as i64 as u64,
            (ValueType::F64, MetricValue::U64(value)) => (*value as f64).to_bits(),
            (ValueType::F64, MetricValue::I64(value)) => (*value as f64).to_bits(),
            (ValueType::F64, MetricValue::F64(value)) => value.to_bits(),
        }
    }

    pub fn value(self, bits: u64) -> MetricValue {
        match self {
            ValueType::U64 => MetricValue::U64(bits),
            ValueType::I64 => MetricValue::I64(bits as i64),
            ValueType::F64 => MetricValue::F64(f64::from_bits(bits)),
        }
    }
}

impl ReplayedMetric {
    pub fn as_found(&self) -> FoundDevice {
        FoundDevice {
            node: self.node.clone(),
            metric: self.name.clone(),
            source: "trace".to_owned(),
            quality: self.quality(),
            joules_per_unit: self.joules_per_unit,
        }
    }

    pub fn quality(&self) -> Quality {
        index::quality_of(&self.description)
    }
}

impl ReplayedProcess {
    pub fn location(&self, id: LocalLocation) -> Option<&ReplayedLocation> {
        self.locations.iter().find(|location| location.id == id.0)
    }
}

impl Replay {
    /// Looks through the trace once. The error says why there is nothing to play.
    pub fn of_trace(path: &Path, config: &Config) -> anyhow::Result<Replay> {
        let mut trace = Trace::open(path)?;
        let definitions = trace.definitions();
        let clock = definitions.clock.clone();
        let mut notes: Vec<String> =
            trace.missing().iter().map(|l| index::missing_line(&trace, *l)).collect();
        let metric_names = index::metric_names(definitions).into_iter().collect();
        let metrics = Metrics::new(definitions, config);
        let mut odd = metrics.left_out.clone();
        let energy_known = metrics.energy_is_known;
        let definitions = &definitions.clone();
        let processes = processes(definitions, trace.missing());
        let streams = processes.iter().flat_map(|p| &p.locations).filter(|l| l.gpu);
        let survey = |recorders: Option<Recorders>| Survey {
            spans: None,
            events: 0,
            streams: streams.clone().map(|l| (LocationRef(l.reference), (0, 0))).collect(),
            longest_frame: 0,
            attributor: Attributor::new(config.clone(), clock.timer_resolution),
            devices: TraceDevices::new(definitions, metrics.clone(), recorders),
            values: Vec::new(),
            joules: Vec::new(),
            recorders: HashSet::new(),
            folded: index::calls_attribute(definitions),
            coalesced_calls: 0,
        };
        let unreadable = || format!("cannot read {}", path.display());
        let (mut recorders, mut first) = (None, survey(None));
        let mut report = trace.read_events(&mut first).with_context(unreadable)?;
        let survey = if first.devices.is_undecided {
            recorders = Some(Recorders::survey(path, config)?);
            let mut second = survey(recorders.clone());
            report = Trace::open(path)?.read_events(&mut second).with_context(unreadable)?;
            second
        } else {
            first
        };
        for (location, why) in &report.truncated {
            notes.push(format!("location {} is replayed up to where its events end: {why}", location.0));
        }
        if survey.coalesced_calls > 0 {
            notes.push(format!(
                "{} calls were folded when the trace was recorded, and are replayed as one call per call path and group: \
                 times and joules are right, numbers of calls are not (ampere attribute has them)",
                survey.coalesced_calls
            ));
        }
        let metrics = survey.metrics();
        odd.extend(recorders.iter().flat_map(Recorders::notes).cloned());
        let in_doubt = recorders.as_ref().is_some_and(|recorders| recorders.are_in_doubt(survey.joules()));
        if in_doubt {
            notes.push(index::IN_DOUBT.to_owned());
        }
        let Some((first, last)) = survey.spans.filter(|_| !metrics.is_empty()) else {
            let hint = notes.first().map_or_else(String::new, |first| format!(" ({first})"));
            bail!("{}{hint}", index::no_energy(path, &trace, energy_known, config));
        };
        let since_offset = first.saturating_sub(clock.global_offset);
        let nanoseconds =
            u128::from(since_offset) * 1_000_000_000 / u128::from(clock.timer_resolution.max(1));
        let mut recorders: Vec<u64> = survey.recorders.iter().map(|location| location.0).collect();
        recorders.sort_unstable();
        Ok(Replay {
            trace: std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
            ticks_per_second: clock.timer_resolution.max(1),
            first,
            last,
            realtime_ns: clock.realtime_timestamp.map(|start| start.saturating_add(nanoseconds as u64)),
            processes,
            metrics,
            metric_names,
            recorders,
            events: survey.events,
            stream_lag_ticks: Some(0),
            longest_lag_ticks: survey.longest_frame,
            notes,
            odd,
        })
    }

    pub fn load(path: &Path) -> Result<Replay, String> {
        let text = std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    pub fn save(&self, path: &Path) -> Result<(), String> {
        let text =
            serde_json::to_string_pretty(self).map_err(|e| format!("cannot encode the replay: {e}"))?;
        ampere_ring::files::replace_private(path, &text)
            .map_err(|e| format!("cannot write {}: {e}", path.display()))
    }

    /// Streams come so long after their events: `None` for at the end. `step_ticks`: how far the replay goes at a time.
    pub fn delay_streams(&mut self, lag_ticks: Option<u64>, step_ticks: u64) {
        self.stream_lag_ticks = lag_ticks;
        self.longest_lag_ticks = lag_ticks.map_or(u64::MAX, |lag| {
            let steps = step_ticks.saturating_mul(2);
            self.longest_lag_ticks.saturating_add(lag).saturating_add(steps).saturating_add(1)
        });
    }

    pub fn process(&self, number: u32) -> Option<&ReplayedProcess> {
        self.processes.iter().find(|process| process.number == number)
    }

    /// The name that figures of the whole run go by.
    pub fn node(&self) -> String {
        let mut nodes: Vec<&str> = self.processes.iter().map(|p| p.node.as_str()).collect();
        nodes.extend(self.metrics.iter().map(|m| m.node.as_str()));
        nodes.sort_unstable();
        nodes.dedup();
        nodes.join(",")
    }
}

/// The processes: every location group with a CPU thread, or that says it is one. A GPU stream is its context's creator's,
/// or of the first process on its node.
fn processes(definitions: &Definitions, missing: &[LocationRef]) -> Vec<ReplayedProcess> {
    let groups = &definitions.location_groups;
    let mut members: BTreeMap<LocationGroupRef, Vec<LocationRef>> = BTreeMap::new();
    for (reference, group) in groups.iter() {
        if group.kind == LocationGroupType::Process {
            members.insert(reference, Vec::new());
        }
    }
    let of_kind = |wanted| {
        let all = definitions.locations.iter().filter(move |(_, location)| location.kind == wanted);
        all.filter_map(|(reference, location)| Some((reference, location.group?)))
    };
    for (reference, group) in of_kind(LocationType::CpuThread) {
        members.entry(group).or_default().push(reference);
    }
    let group_node = |group| index::node_of_group(definitions, Some(group));
    for (reference, group) in of_kind(LocationType::AcceleratorStream) {
        let creator = groups.get(group).and_then(|g| g.creating_location_group);
        let own = [creator, Some(group)].into_iter().flatten().find(|g| members.contains_key(g));
        let node = group_node(group);
        let near = || members.keys().copied().find(|g| group_node(*g) == node);
        let owner = own.or_else(near).or_else(|| members.keys().next().copied()).unwrap_or(group);
        members.entry(owner).or_default().push(reference);
    }
    members.retain(|_, locations| !locations.is_empty());
    let ranks: Vec<Option<u32>> =
        members.keys().map(|group| index::rank_of_group(definitions, *group)).collect();
    let distinct: HashSet<u32> = ranks.iter().flatten().copied().collect();
    let numbered = distinct.len() == ranks.len();
    let largest = distinct.iter().max().map_or(0, |rank| rank.saturating_add(1));
    let size = if numbered { largest.max(ranks.len() as u32) } else { ranks.len() as u32 };
    let all = members.into_iter().zip(ranks).enumerate();
    all.map(|(at, ((group, locations), rank))| ReplayedProcess {
        number: rank.filter(|_| numbered).unwrap_or(at as u32),
        size,
        rank,
        node: group_node(group),
        group: groups.get(group).map_or_else(String::new, |g| g.name.clone()),
        environment: evidence::of_group(definitions, group),
        locations: replayed_locations(definitions, group, &locations, missing),
    })
    .collect()
}

fn replayed_locations(
    definitions: &Definitions,
    process: LocationGroupRef,
    locations: &[LocationRef],
    missing: &[LocationRef],
) -> Vec<ReplayedLocation> {
    let mut next = 1;
    let mut main_is_known = false;
    let mut all = Vec::new();
    for reference in locations {
        let Some(location) = definitions.locations.get(*reference) else { continue };
        let gpu = location.kind == LocationType::AcceleratorStream;
        let main = !gpu && !main_is_known;
        main_is_known |= main;
        if missing.contains(reference) {
            continue;
        }
        let id = if main { 0 } else { next };
        next += u32::from(!main);
        let group = location.group.and_then(|g| definitions.location_groups.get(g));
        let evidence = evidence::of_location(definitions, *reference);
        all.push(ReplayedLocation {
            reference: reference.0,
            id,
            name: location.name.clone(),
            gpu,
            node: index::node_of(definitions, *reference),
            group: group.map_or_else(String::new, |g| g.name.clone()),
            is_of_process: evidence.process == Some(u64::from(process.0)),
            accelerator: evidence.accelerator,
        });
    }
    all
}

/// What is in the trace's events: how long it is, and which metrics have samples.
struct Survey<'a> {
    spans: Option<(u64, u64)>,
    events: u64,
    /// GPU streams: open frames, and when the outermost began.
    streams: HashMap<LocationRef, (u32, u64)>,
    longest_frame: u64,
    /// Says what is a device.
    attributor: Attributor,
    devices: TraceDevices<'a>,
    /// By device.
    values: Vec<ValueType>,
    joules: Vec<f64>,
    recorders: HashSet<LocationRef>,
    /// Of our own traces: how many calls an enter stands for.
    folded: Option<AttributeRef>,
    coalesced_calls: u64,
}

impl Survey<'_> {
    fn cover(&mut self, time: u64) {
        self.events += 1;
        let (first, last) = self.spans.unwrap_or((time, time));
        self.spans = Some((first.min(time), last.max(time)));
    }

    /// In the order of their first samples.
    fn metrics(&self) -> Vec<ReplayedMetric> {
        let found = self.devices.found.iter().filter(|found| found.is_device).zip(&self.values);
        let members = &self.devices.definitions().metric_members;
        found
            .map(|(found, value)| {
                let member = members.get(found.member);
                let (place, nature, recorded) =
                    (found.place.clone(), found.nature.clone(), found.recorded.clone());
                ReplayedMetric {
                    node: found.device.node.clone(),
                    name: found.device.metric.clone(),
                    description: member.map_or_else(String::new, |m| m.description.clone()),
                    unit: member.map_or_else(String::new, |m| m.unit.clone()),
                    binary: member.is_some_and(|m| m.base == otf2::MetricBase::Binary),
                    exponent: member.map_or(0, |m| m.exponent),
                    value: *value,
                    joules_per_unit: found.device.joules_per_unit,
                    recorder: found.location.0,
                    recorded,
                    place,
                    nature,
                }
            })
            .collect()
    }

    /// Of all devices that are in no other.
    fn joules(&self) -> f64 {
        let devices = 0..self.attributor.devices.len();
        let topmost = devices.filter(|device| self.attributor.whole(*device).is_none());
        topmost.map(|device| self.joules[device]).sum()
    }
}

impl EventHandler for Survey<'_> {
    fn enter(&mut self, location: LocationRef, time: u64, _region: otf2::RegionRef) -> ControlFlow<()> {
        self.cover(time);
        if let Some((depth, begun)) = self.streams.get_mut(&location) {
            if *depth == 0 {
                *begun = time;
            }
            *depth += 1;
        }
        ControlFlow::Continue(())
    }

    fn attribute(&self) -> Option<AttributeRef> {
        self.folded
    }

    fn enter_with(
        &mut self,
        location: LocationRef,
        time: u64,
        region: otf2::RegionRef,
        calls: u64,
    ) -> ControlFlow<()> {
        self.coalesced_calls = self.coalesced_calls.saturating_add(calls);
        self.enter(location, time, region)
    }

    fn leave(&mut self, location: LocationRef, time: u64, _region: otf2::RegionRef) -> ControlFlow<()> {
        self.cover(time);
        if let Some((depth, begun)) = self.streams.get_mut(&location) {
            *depth = depth.saturating_sub(1);
            if *depth == 0 {
                self.longest_frame = self.longest_frame.max(time.saturating_sub(*begun));
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
        for at in 0..self.devices.members(metric) {
            let Some((position, device)) = self.devices.device(location, metric, at, &mut self.attributor)
            else {
                continue;
            };
            let Some(value) = values.get(position) else { continue };
            if device == self.values.len() {
                self.values.push(ValueType::of(value));
                self.joules.push(0.0);
            }
            self.attributor.devices[device].read(time, crate::index::value(*value), 0);
            while let Some(sample) = self.attributor.devices[device].sample() {
                if let Increase::Joules(joules) | Increase::Lost(joules) = sample.increase {
                    self.joules[device] += joules;
                }
            }
            self.cover(time);
            self.recorders.insert(location);
        }
        if self.devices.is_undecided { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Of every metric class, the members that are devices: position, and which of the replay's metrics.
pub fn numbered_members(
    replay: &Replay,
    definitions: &Definitions,
    location: LocationRef,
    metric: MetricRef,
) -> Vec<(usize, u32)> {
    let node = index::node_of(definitions, location);
    let Some(class) = definitions.metric_classes.get(metric.class) else { return Vec::new() };
    let named =
        class.members.iter().enumerate().filter_map(|(position, member)| {
            Some((position, &definitions.metric_members.get(*member)?.name))
        });
    named
        .filter_map(|(position, name)| {
            let is_it = |m: &ReplayedMetric| m.recorder == location.0 && m.node == node && m.name == *name;
            let number = replay.metrics.iter().position(is_it)?;
            Some((position, number as u32))
        })
        .collect()
}
