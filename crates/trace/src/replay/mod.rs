//! Describes a trace for a replay: its processes, locations and metrics. `play.rs` plays it into a live collector.
//!
//! A definitions log cannot express location groups, streams on other nodes, or a metric's unit. `ampere replay` writes them into
//! the session's `replay.json`, which the collector reads. Devices, and the locations that draw from them, are found as in
//! `ampere attribute`.

mod communication;
mod play;

pub use play::{InvalidSpeed, Player, Speed};

use crate::devices::TraceDevices;
use crate::index::CPU_TIME;
use crate::locations::{doubt_of_functions, threads_without_frames};
use crate::meters::{doubts_of_shared, notes_of_shared};
use crate::metric_recorders::{Recorders, are_in_doubt};
use crate::metrics::{Found, Metrics, OnNodes, notes_of_silent};
use crate::nesting::Nesting;
use crate::offline::readings_of;
use crate::parts::{Related, mean_powers, relate};
use crate::places::{
    Ranks, doubt_of_equal_nodes, doubt_of_nodes, doubt_of_uncounted, node_of, node_of_group,
};
use crate::series::Series;
use crate::value_type;
use crate::{evidence, index, left_out, waits, work};
use ampere_attribution::Increase;
use ampere_model::{LocalLocation, OTHER_JOBS_CPU_TIME, Quality};
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, FoundDevice, Recorded};
use ampere_timeline::counter_traits::CounterTraits;
use ampere_timeline::topology::{Accelerator, CounterEvidence};
use anyhow::{Context, bail};
use otf2::{
    AttributeRef, ClockProperties, Definitions, EventHandler, Flow, LocationGroupRef, LocationGroupType,
    LocationRef, LocationType, MetricRef, MetricValue, MetricValueType, Trace,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The name of the file, which is next to the session's rings.
pub const FILE_NAME: &str = "replay.json";

/// The description of a trace that is played.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Replay {
    pub trace: PathBuf,
    /// The resolution of the trace's clock.
    pub ticks_per_second: u64,
    /// The time of the first event that is played.
    pub first: u64,
    /// The time of the last event that is played.
    pub last: u64,
    /// Nanoseconds since 1970 at `first`, if the trace has them.
    pub realtime_ns: Option<u64>,
    pub processes: Vec<ReplayedProcess>,
    /// Each node with the time of its first enter and of its last enter, leave or sample. Empty for a trace that ampere wrote.
    #[serde(default)]
    pub functions_ran: BTreeMap<String, (u64, u64)>,
    /// The devices, in the order of their first samples.
    pub metrics: Vec<ReplayedMetric>,
    /// The names of all metrics of the trace, including those that are not devices.
    pub metric_names: Vec<String>,
    /// The nodes for which the trace has the CPU time of other jobs. Their numbers follow those of the metrics.
    #[serde(default)]
    pub other_jobs: Vec<String>,
    /// The units of work and the ranges that the trace has. Their numbers follow those of other jobs.
    #[serde(default)]
    pub work: Vec<ReplayedWork>,
    /// Whether the trace has the CPU time of locations.
    pub has_cpu_times: bool,
    /// The locations that recorded samples of the metrics.
    pub recorders: Vec<u64>,
    /// The number of enters, leaves and samples.
    pub events: u64,
    /// The delay with which events of GPU streams are played; `None`: at the end.
    pub stream_lag_ticks: Option<u64>,
    /// The maximum delay of a GPU stream's events.
    pub longest_lag_ticks: u64,
    /// The greatest error of one node's times on the clock of another.
    #[serde(default)]
    pub clock_error_ticks: u64,
    /// One line for each part of the trace that cannot be played or is unknown.
    pub notes: Vec<String>,
    /// One line for each irregularity of the trace that does not make the figures incomplete.
    #[serde(default)]
    pub odd: Vec<String>,
}

/// A series of units of work, or of ranges.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReplayedWork {
    /// The node on which they were counted.
    pub node: String,
    /// The name of the metric.
    pub metric: String,
}

/// A `replay.json` that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct ReplayFileError {
    path: PathBuf,
    reason: ReplayFileReason,
}

#[derive(Debug, thiserror::Error)]
enum ReplayFileReason {
    #[error("cannot be read: {0}")]
    Read(std::io::Error),
    #[error("cannot be written: {0}")]
    Write(std::io::Error),
    #[error("{0}")]
    Json(serde_json::Error),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayedProcess {
    /// The number of the process' location group in the trace.
    #[serde(default)]
    pub reference: u32,
    /// A number that is unique among the processes: the rank, if each process has one of its own.
    pub number: u32,
    /// The number of ranks in the job.
    pub size: u32,
    pub rank: Option<u32>,
    pub node: String,
    /// The name of the process' location group.
    pub group: String,
    /// Its name in the evidence of counters, if that is not the group's name.
    #[serde(default)]
    pub owner: String,
    /// The environment variables that decide which devices the process uses, `NAME=value`.
    pub environment: Vec<String>,
    pub locations: Vec<ReplayedLocation>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayedLocation {
    /// The location's number in the trace.
    pub reference: u64,
    /// The location's number in its process: 0 is the main thread.
    pub id: u32,
    pub name: String,
    /// Whether the location is a GPU stream.
    pub gpu: bool,
    pub node: String,
    pub group: String,
    /// Whether the location is known to belong to this process. Other locations are played by any process.
    pub is_of_process: bool,
    /// The device of a GPU stream.
    pub accelerator: Accelerator,
    #[serde(default)]
    pub samples: ReplayedSamples,
}

/// Whether the frames of a location are samples of a thread's stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplayedSamples {
    /// The frames are calls that were recorded.
    #[default]
    None,
    /// The frames are samples of a thread that has no recorded calls.
    Alone,
    /// The frames are samples of a thread whose calls are recorded on another location, which has this number in the trace.
    On(u64),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayedMetric {
    pub node: String,
    /// The metric's name in the trace.
    pub name: String,
    /// The metric's description in the trace.
    pub description: String,
    /// The metric's unit in the trace.
    pub unit: String,
    /// Whether `exponent` is for the base 2 instead of 10.
    pub binary: bool,
    /// The exponent of the unit's scale.
    pub exponent: i64,
    #[serde(with = "value_type")]
    pub value: MetricValueType,
    /// The joules of one unit, if the metric is defined as an energy.
    pub joules_per_unit: Option<f64>,
    /// The other parts of the metric's definition.
    #[serde(default)]
    pub recorded: Recorded,
    /// The samples that are played: their location, and the numbers of the metric's member and instance.
    #[serde(default)]
    pub series: (u64, u32, Option<u32>),
    /// Evidence about the locations that use the device.
    pub evidence: CounterEvidence,
    #[serde(default)]
    pub traits: CounterTraits,
}

impl ReplayedMetric {
    /// Returns the device in the form that an attributor takes.
    pub fn as_found(&self) -> FoundDevice {
        FoundDevice {
            node: self.node.clone(),
            metric: self.name.clone(),
            source: "trace".to_owned(),
            quality: self.quality(),
            joules_per_unit: self.joules_per_unit,
        }
    }

    /// Returns the quality of the joules.
    pub fn quality(&self) -> Quality {
        index::quality_of(&self.description).unwrap_or(Quality::Measured)
    }
}

impl ReplayedProcess {
    /// Finds a location by its number in the process.
    pub fn location(&self, id: LocalLocation) -> Option<&ReplayedLocation> {
        self.locations.iter().find(|location| location.id == id.0)
    }
}

impl Replay {
    /// Reads the trace once, or more often if several locations record the same metric, or some nodes have no energy that rises.
    ///
    /// # Errors
    /// A trace that cannot be read, or has nothing to play.
    pub fn of_trace(path: &Path, config: &Config) -> anyhow::Result<Replay> {
        let trace = Trace::open(path)?;
        let definitions = &trace.definitions().clone();
        let clock = &definitions.clock;
        let mut metrics = Metrics::new(definitions, config);
        let surveyed = processes(definitions, trace.missing(), &BTreeSet::new());
        let read = |metrics: &Metrics, exceptions: &OnNodes| -> anyhow::Result<_> {
            let survey = |recorders| Survey::new(definitions, config, metrics.clone(), recorders, &surveyed);
            let unreadable = || format!("cannot read {}", path.display());
            let (mut recorders, mut survey_of_events) = (None, survey(None));
            let mut report =
                Trace::open(path)?.read_events(&mut survey_of_events).with_context(unreadable)?;
            if survey_of_events.devices.is_undecided {
                recorders = Some(Recorders::survey(path, config, None, exceptions)?);
                survey_of_events = survey(recorders.clone());
                report = Trace::open(path)?.read_events(&mut survey_of_events).with_context(unreadable)?;
            }
            Ok((recorders, survey_of_events, report))
        };
        let (mut recorders, mut survey, mut report) = read(&metrics, &OnNodes::new())?;
        let exceptions = survey.exceptions();
        if !exceptions.is_empty() {
            metrics = metrics.with(exceptions.clone());
            (recorders, survey, report) = read(&metrics, &exceptions)?;
        }
        let processes =
            processes(definitions, trace.missing(), &survey.threads_without_frames(trace.missing()));
        let doubts = survey.doubts();
        let mut notes: Vec<String> =
            trace.missing().iter().map(|l| index::missing_line(&trace, *l)).collect();
        notes.extend(report.truncated.iter().map(|(location, why)| {
            format!("location {} is replayed only up to the end of its events: {why}", location.0)
        }));
        notes.extend(survey.note_of_coalesced_calls());
        if recorders
            .as_ref()
            .is_some_and(|recorders| are_in_doubt(recorders.doubtful_joules(), survey.joules()))
        {
            notes.push(index::IN_DOUBT.to_owned());
        }
        let ends = report.unended.iter().filter_map(|location| Some(survey.ran.get(location)?.1));
        let readings = readings_of(&survey.attributor);
        let nesting = Nesting::of(&report.nesting, &ends.collect::<Vec<_>>(), readings);
        notes.extend(nesting.doubt());
        notes.extend(doubts);
        let replayed_metrics = survey.metrics();
        let Some((first, last)) = survey.spans.filter(|_| !replayed_metrics.is_empty()) else {
            let hint = notes.first().map_or_else(String::new, |first| format!(" ({first})"));
            bail!(
                "{}{hint}",
                index::no_energy(path, definitions, &metrics.left_out, metrics.energy_is_known, config)
            );
        };
        let names: HashSet<&str> = replayed_metrics.iter().map(|metric| metric.name.as_str()).collect();
        metrics.left_out.measured.retain(|name| !names.contains(name.as_str()));
        let mut odd = metrics.left_out.notes();
        let is_played = |node: &str, name: &str| {
            replayed_metrics.iter().any(|metric| (metric.node.as_str(), metric.name.as_str()) == (node, name))
        };
        odd.extend(notes_of_silent(&exceptions, is_played));
        odd.extend(nesting.note());
        odd.extend(nesting.note_of_replay());
        odd.extend(recorders.iter().flat_map(Recorders::notes).cloned());
        odd.extend(notes_of_shared(&survey.devices.meters()));
        let mut recorders: Vec<u64> = survey.recorders.iter().map(|location| location.0).collect();
        recorders.sort_unstable();
        Ok(Replay {
            trace: std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
            ticks_per_second: clock.timer_resolution.max(1),
            first,
            last,
            realtime_ns: realtime_ns(clock, first),
            functions_ran: survey.functions_ran(),
            metrics: replayed_metrics,
            metric_names: index::metric_names(definitions).into_iter().collect(),
            has_cpu_times: definitions.metric_members.values().any(|member| member.name == CPU_TIME),
            recorders,
            other_jobs: survey.other_jobs.into_iter().collect(),
            work: survey.work.into_iter().collect(),
            events: survey.events,
            stream_lag_ticks: Some(0),
            longest_lag_ticks: survey.longest_frame,
            clock_error_ticks: waits::clock_error(&trace, config),
            notes,
            odd,
            processes,
        })
    }

    /// Returns the type of the samples with this number: of a metric, of other jobs, or of work.
    fn value_type(&self, number: usize) -> MetricValueType {
        match self.metrics.get(number) {
            Some(metric) => metric.value,
            None if number < self.metrics.len() + self.other_jobs.len() => MetricValueType::U64,
            None => MetricValueType::F64,
        }
    }

    /// Reads `replay.json`.
    ///
    /// # Errors
    /// A file that cannot be read, or that is not a `replay.json`.
    pub fn load(path: &Path) -> Result<Replay, ReplayFileError> {
        let failed = |reason| ReplayFileError { path: path.to_owned(), reason };
        let text = std::fs::read(path).map_err(|e| failed(ReplayFileReason::Read(e)))?;
        serde_json::from_slice(&text).map_err(|e| failed(ReplayFileReason::Json(e)))
    }

    /// Writes `replay.json`, readable for this user only.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), ReplayFileError> {
        let failed = |reason| ReplayFileError { path: path.to_owned(), reason };
        let text = serde_json::to_string_pretty(self).map_err(|e| failed(ReplayFileReason::Json(e)))?;
        ampere_ring::files::replace_private(path, &text).map_err(|e| failed(ReplayFileReason::Write(e)))
    }

    /// Sets the delay with which streams are played; `None`: at the end. `step_ticks` is the replay's step.
    pub fn delay_streams(&mut self, lag_ticks: Option<u64>, step_ticks: u64) {
        self.stream_lag_ticks = lag_ticks;
        self.longest_lag_ticks = lag_ticks.map_or(u64::MAX, |lag| {
            let steps = step_ticks.saturating_mul(2);
            self.longest_lag_ticks.saturating_add(lag).saturating_add(steps).saturating_add(1)
        });
    }

    /// Finds a process by the number that stands for its pid: see [`ReplayedProcess::id`].
    pub fn process(&self, id: u32) -> Option<&ReplayedProcess> {
        self.processes.iter().find(|process| process.id() == id)
    }

    /// Returns the names of all nodes, for figures of the whole run.
    pub fn node(&self) -> String {
        let mut nodes: Vec<&str> = self.processes.iter().map(|p| p.node.as_str()).collect();
        nodes.extend(self.metrics.iter().map(|m| m.node.as_str()));
        nodes.sort_unstable();
        nodes.dedup();
        nodes.join(",")
    }
}

/// Converts a time to nanoseconds since 1970, if the trace has its start.
fn realtime_ns(clock: &ClockProperties, time: u64) -> Option<u64> {
    let since_offset = u128::from(time.saturating_sub(clock.global_offset));
    let nanoseconds = since_offset * 1_000_000_000 / u128::from(clock.timer_resolution.max(1));
    clock.realtime_timestamp.map(|start| start.saturating_add(nanoseconds as u64))
}

/// Returns the processes: every location group that is a process, or that has a CPU thread. A GPU stream belongs to the creator
/// of its context, or to the first process on its node. No thread in `without_frames` is a main thread.
fn processes(
    definitions: &Definitions,
    missing: &[LocationRef],
    without_frames: &BTreeSet<LocationRef>,
) -> Vec<ReplayedProcess> {
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
    let group_node = |group| node_of_group(definitions, Some(group));
    let owners = evidence::owners(definitions);
    let all_ranks = Ranks::of(definitions);
    for (reference, group) in of_kind(LocationType::AcceleratorStream) {
        let creator = groups.get(group).and_then(|g| g.creating_location_group);
        let own = [creator, Some(group)].into_iter().flatten().find(|g| members.contains_key(g));
        let node = group_node(group);
        let near = || members.keys().copied().find(|g| group_node(*g) == node);
        let owner = own.or_else(near).or_else(|| members.keys().next().copied()).unwrap_or(group);
        members.entry(owner).or_default().push(reference);
    }
    members.retain(|_, locations| !locations.is_empty());
    let ranks: Vec<Option<u32>> = members.keys().map(|group| all_ranks.get(*group)).collect();
    let distinct: HashSet<u32> = ranks.iter().flatten().copied().collect();
    let numbered = distinct.len() == ranks.len();
    let largest = distinct.iter().max().map_or(0, |rank| rank.saturating_add(1));
    let size = if numbered { largest.max(ranks.len() as u32) } else { ranks.len() as u32 };
    let all = members.into_iter().zip(ranks).enumerate();
    all.map(|(at, ((group, locations), rank))| ReplayedProcess {
        reference: group.0,
        number: rank.filter(|_| numbered).unwrap_or(at as u32),
        size,
        rank,
        node: group_node(group),
        group: groups.get(group).map_or_else(String::new, |g| g.name.clone()),
        owner: owners.get(&group).cloned().unwrap_or_default(),
        environment: evidence::of_group(definitions, group),
        locations: replayed_locations(definitions, group, &locations, (missing, without_frames)),
    })
    .collect()
}

fn replayed_locations(
    definitions: &Definitions,
    process: LocationGroupRef,
    locations: &[LocationRef],
    (missing, without_frames): (&[LocationRef], &BTreeSet<LocationRef>),
) -> Vec<ReplayedLocation> {
    let mut next = 1;
    let mut main_is_known = false;
    let mut all = Vec::new();
    for reference in locations {
        let Some(location) = definitions.locations.get(*reference) else { continue };
        let gpu = location.kind == LocationType::AcceleratorStream;
        let may_be_main = !evidence::is_of_other_threads(location) && !without_frames.contains(reference);
        let main = !gpu && !main_is_known && may_be_main;
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
            node: node_of(definitions, *reference),
            group: group.map_or_else(String::new, |g| g.name.clone()),
            is_of_process: evidence.process == Some(u64::from(process.0)),
            accelerator: evidence.accelerator,
            samples: match evidence::samples(definitions, *reference) {
                None => ReplayedSamples::None,
                Some(None) => ReplayedSamples::Alone,
                Some(Some(on)) => ReplayedSamples::On(on.0),
            },
        });
    }
    all
}

/// The trace's span, and its metrics with samples.
struct Survey<'a> {
    spans: Option<(u64, u64)>,
    events: u64,
    /// For each GPU stream, the number of open frames and the start of the outermost.
    streams: HashMap<LocationRef, (u32, u64)>,
    longest_frame: u64,
    /// The time of each location's first enter, and of its last enter, leave or sample.
    ran: HashMap<LocationRef, (u64, u64)>,
    attributor: Attributor,
    devices: TraceDevices<'a>,
    /// The type of each device's samples.
    types: Vec<MetricValueType>,
    joules: Vec<f64>,
    /// Devices that are not played, because their parts disprove them.
    disproved: Vec<Series>,
    recorders: HashSet<LocationRef>,
    /// The nodes with the CPU time of other jobs.
    other_jobs: BTreeSet<String>,
    work: BTreeSet<ReplayedWork>,
    /// The attribute with the number of calls that an enter stands for, in ampere's own traces.
    calls: Option<AttributeRef>,
    coalesced_calls: u64,
}

impl<'a> Survey<'a> {
    fn new(
        definitions: &'a Definitions,
        config: &Config,
        metrics: Metrics,
        recorders: Option<Recorders>,
        processes: &[ReplayedProcess],
    ) -> Survey<'a> {
        let streams = processes.iter().flat_map(|process| &process.locations).filter(|l| l.gpu);
        Survey {
            spans: None,
            events: 0,
            streams: streams.map(|l| (LocationRef(l.reference), (0, 0))).collect(),
            longest_frame: 0,
            ran: HashMap::new(),
            attributor: Attributor::new(config.clone(), definitions.clock.timer_resolution),
            devices: TraceDevices::new(definitions, metrics, recorders, Vec::new()),
            disproved: Vec::new(),
            types: Vec::new(),
            joules: Vec::new(),
            recorders: HashSet::new(),
            other_jobs: BTreeSet::new(),
            work: BTreeSet::new(),
            calls: index::calls_attribute(definitions),
            coalesced_calls: 0,
        }
    }

    fn note_of_coalesced_calls(&self) -> Option<String> {
        (self.coalesced_calls > 0).then(|| {
            format!(
                "{} calls were coalesced when the trace was recorded, and are replayed as one call per call path and group: \
                 times and joules are right, numbers of calls are not (ampere attribute has them)",
                self.coalesced_calls
            )
        })
    }

    fn end_samples(&mut self) {
        for device in 0..self.attributor.devices.len() {
            self.attributor.devices[device].counter_mut().end();
            self.take_samples(device);
        }
    }

    /// Returns the power metrics that are devices because no energy of the same part rises, and the energies that they replace.
    fn exceptions(&mut self) -> OnNodes {
        self.end_samples();
        self.devices.exceptions(&self.attributor)
    }

    fn take_samples(&mut self, device: usize) {
        while let Some(sample) = self.attributor.devices[device].sample() {
            if let Increase::Joules(joules) | Increase::Lost(joules) = sample.increase {
                self.joules[device] += joules;
            }
        }
    }

    fn cover(&mut self, time: u64) {
        self.events += 1;
        let (first, last) = self.spans.unwrap_or((time, time));
        self.spans = Some((first.min(time), last.max(time)));
    }

    fn functions_ran(&self) -> BTreeMap<String, (u64, u64)> {
        let mut all: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (location, (first, last)) in self.ran.iter().filter(|_| !self.is_our_own()) {
            let node = node_of(self.devices.definitions(), *location);
            let span = all.entry(node).or_insert((*first, *last));
            *span = (span.0.min(*first), span.1.max(*last));
        }
        all
    }

    fn is_our_own(&self) -> bool {
        self.devices.found.iter().any(|found| found.is_stated)
    }

    /// Returns the threads that only record metrics. In ampere's own traces, the main threads are those of the run.
    fn threads_without_frames(&self, missing: &[LocationRef]) -> BTreeSet<LocationRef> {
        if self.is_our_own() {
            return BTreeSet::new();
        }
        let has_frames = |of: LocationRef| missing.contains(&of) || self.ran.contains_key(&of);
        threads_without_frames(self.devices.definitions(), &self.devices.found, has_frames)
    }

    /// Returns the devices, in the order of their first samples.
    fn metrics(&self) -> Vec<ReplayedMetric> {
        let is_played = |found: &&Found| !self.disproved.contains(&found.series);
        let found = self.devices.found.iter().filter(is_played);
        let found = found.filter_map(|found| Some((found, self.types.get(found.number?)?)));
        let members = &self.devices.definitions().metric_members;
        found
            .map(|(found, value)| {
                let member = members.get(found.series.member);
                ReplayedMetric {
                    node: found.device.node.clone(),
                    name: found.device.metric.clone(),
                    description: member.map_or_else(String::new, |m| m.description.clone()),
                    unit: member.map_or_else(String::new, |m| m.unit.clone()),
                    binary: member.is_some_and(|m| m.base == otf2::MetricBase::Binary),
                    exponent: member.map_or(0, |m| m.exponent),
                    value: *value,
                    joules_per_unit: found.device.joules_per_unit,
                    series: found.series.as_numbers(),
                    recorded: found.recorded.clone(),
                    evidence: found.evidence.clone(),
                    traits: found.traits.clone(),
                }
            })
            .collect()
    }

    /// Returns the reasons why joules are in doubt, one line each.
    fn doubts(&mut self) -> Vec<String> {
        let Related { notes, doubts, .. } = self.relate();
        let of = |_: &Attributor, device: usize| self.joules.get(device).copied().unwrap_or(0.0);
        let counted = mean_powers(&self.attributor, &of);
        let definitions = self.devices.definitions();
        let missing = left_out::missing(definitions, &self.devices.shown, &counted);
        let counted = counted.into_iter().map(|device| device.node).collect();
        let of_nodes = doubt_of_nodes(definitions).into_iter().chain(doubt_of_equal_nodes(definitions));
        let of_nodes = of_nodes.chain(doubt_of_uncounted(definitions, &counted));
        let of_meters = self.devices.freshness.doubts(self.attributor.ticks_per_second);
        let of_meters = of_meters.chain(doubts_of_shared(&self.devices.meters()));
        let kind_of = |at: LocationRef| definitions.locations.get(at).map(|location| location.kind);
        let is_thread = |at: LocationRef| {
            [LocationType::CpuThread, LocationType::AcceleratorStream].map(Some).contains(&kind_of(at))
        };
        let not_threads: BTreeSet<_> = self.ran.keys().copied().filter(|at| !is_thread(*at)).collect();
        let of_functions = doubt_of_functions(definitions, not_threads);
        let doubts = notes.into_iter().chain(doubts).chain(of_nodes).chain(of_meters).chain(of_functions);
        doubts.chain(left_out::doubt(&missing)).collect()
    }

    /// Finds the devices that are parts of others, and those that their parts disprove.
    fn relate(&mut self) -> Related {
        self.end_samples();
        self.attributor.judge_repeated(true);
        let mut all = Related::default();
        loop {
            let mut found = self.devices.found.clone();
            found.retain(|found| !self.disproved.contains(&found.series));
            let joules = &self.joules;
            let of = |_: &Attributor, device: usize| joules.get(device).copied().unwrap_or(0.0);
            let definitions = self.devices.definitions();
            let Related { disproved, notes, doubts } =
                relate(definitions, &mut found, &mut self.attributor, &of);
            for known in &mut self.devices.found {
                let now = found.iter().find(|found| found.series == known.series);
                known.traits.contains = now.map_or_else(Vec::new, |now| now.traits.contains.clone());
            }
            let is_done = disproved.is_empty();
            self.disproved.extend(disproved);
            all.notes.extend(notes);
            all.doubts = doubts;
            if is_done {
                return all;
            }
        }
    }

    /// Returns the joules of all devices that are not contained in another.
    fn joules(&self) -> f64 {
        let devices = self.devices.found.iter().filter(|found| !self.disproved.contains(&found.series));
        let topmost = devices.filter_map(|found| found.number).filter(|device| {
            self.attributor.whole(*device).is_none() && !self.attributor.is_repeated(*device)
        });
        topmost.map(|device| self.joules[device]).sum()
    }
}

impl EventHandler for Survey<'_> {
    fn attribute(&self) -> Option<AttributeRef> {
        self.calls
    }

    fn enter(
        &mut self,
        location: LocationRef,
        time: u64,
        _region: otf2::RegionRef,
        calls: Option<u64>,
    ) -> Flow {
        self.coalesced_calls = self.coalesced_calls.saturating_add(calls.unwrap_or(0));
        self.cover(time);
        let ran = self.ran.entry(location).or_insert((time, time));
        ran.1 = ran.1.max(time);
        if let Some((depth, begun)) = self.streams.get_mut(&location) {
            if *depth == 0 {
                *begun = time;
            }
            *depth += 1;
        }
        ControlFlow::Continue(())
    }

    fn leave(&mut self, location: LocationRef, time: u64, _region: otf2::RegionRef) -> Flow {
        self.cover(time);
        if let Some(ran) = self.ran.get_mut(&location) {
            ran.1 = ran.1.max(time);
        }
        if let Some((depth, begun)) = self.streams.get_mut(&location) {
            *depth = depth.saturating_sub(1);
            if *depth == 0 {
                self.longest_frame = self.longest_frame.max(time.saturating_sub(*begun));
            }
        }
        ControlFlow::Continue(())
    }

    fn end(&mut self, location: LocationRef, last: u64) -> Flow {
        if let Some(ran) = self.ran.get_mut(&location) {
            ran.1 = ran.1.max(last);
            self.cover(last);
        }
        ControlFlow::Continue(())
    }

    fn metric(
        &mut self,
        location: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> Flow {
        let definitions = self.devices.definitions();
        if is_of_other_jobs(definitions, metric) {
            self.other_jobs.insert(node_of(definitions, location));
        }
        if let Some(work) = work_of(definitions, location, metric) {
            self.work.insert(work);
            self.recorders.insert(location);
        }
        let samples = self.devices.samples(location, time, (metric, values), &mut self.attributor);
        for (device, value) in samples {
            if device == self.types.len() {
                self.types.push(value_type::of(&value));
                self.joules.push(0.0);
            }
            self.attributor.devices[device].read(time, index::value(value), 0);
            self.take_samples(device);
            self.cover(time);
            self.recorders.insert(location);
        }
        if self.devices.is_undecided { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Whether a metric is the CPU time of other jobs, which is alone in its class.
fn is_of_other_jobs(definitions: &Definitions, metric: MetricRef) -> bool {
    let class = definitions.metric_classes.get(metric.class);
    let mut members = class.iter().flat_map(|class| &class.members);
    members.any(|member| {
        definitions.metric_members.get(*member).is_some_and(|member| member.name == OTHER_JOBS_CPU_TIME)
    })
}

/// Returns the series of work or ranges that a location records by a metric.
fn work_of(definitions: &Definitions, location: LocationRef, metric: MetricRef) -> Option<ReplayedWork> {
    let metric = work::metric_of(definitions, metric)?.to_owned();
    Some(ReplayedWork { node: node_of(definitions, location), metric })
}

/// Returns the members of a metric's class that are devices, other jobs' CPU time or units of work: their positions in the class,
/// and their numbers among the replay's metrics.
pub fn numbered_members(
    replay: &Replay,
    definitions: &Definitions,
    location: LocationRef,
    metric: MetricRef,
) -> Vec<(usize, u32)> {
    let Some(class) = definitions.metric_classes.get(metric.class) else { return Vec::new() };
    let members = class.members.iter().copied().enumerate();
    members
        .filter_map(|(position, member)| {
            let series = Series { location, member, instance: metric.instance }.as_numbers();
            let number = replay.metrics.iter().position(|metric| metric.series == series);
            let of_jobs = || {
                let node = node_of(definitions, location);
                let place = replay.other_jobs.iter().position(|other| *other == node);
                place.filter(|_| is_of_other_jobs(definitions, metric)).map(|at| replay.metrics.len() + at)
            };
            let of_work = || {
                let work = work_of(definitions, location, metric)?;
                let place = replay.work.iter().position(|other| *other == work)?;
                Some(replay.metrics.len() + replay.other_jobs.len() + place)
            };
            Some((position, number.or_else(of_jobs).or_else(of_work)? as u32))
        })
        .collect()
}
