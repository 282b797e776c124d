//! The spool becomes an OTF2 archive. Locations are written one after another, in constant memory, by the same way from
//! record to event as the live attribution took.

use crate::evidence;
use crate::replay::{ReplayedMetric, ValueType};
use crate::scorep_names::{paradigm, role};
use crate::spool::Spool;
use ampere_model::numbers::Handles;
use ampere_model::regions::Regions;
use ampere_model::text::one_line;
use ampere_model::{Device, Location, LocationKind, Timestamp};
use ampere_ring::decoder::{Decoder, Event};
use ampere_timeline::linking::ThreadSeconds;
use ampere_timeline::nature::Nature;
use ampere_timeline::topology::{Accelerator, Evidence, Place};
use locations::{Task, Written};
use otf2::{
    ArchiveWriter, Attribute, AttributeRef, ClockProperties, Definitions, LocationGroup, LocationGroupRef,
    LocationGroupType, LocationRef, LocationType, MetricBase, MetricClass, MetricClassRef, MetricMember,
    MetricMode, MetricOccurrence, MetricType, MetricValue, MetricValueType, RecorderKind, SystemTreeDomain,
    SystemTreeNode, SystemTreeNodeRef,
};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

mod locations;

/// A run, as far as its trace has something of it.
pub struct TracedRun<'a> {
    pub ticks_per_second: u64,
    /// Nanoseconds since 1970 of a time, where that is known.
    pub realtime_ns: &'a dyn Fn(Timestamp) -> Option<u64>,
    pub regions: &'a Regions,
    pub processes: Vec<TracedProcess<'a>>,
    pub metrics: &'a [SampledMetric],
    /// Of all metrics. `None`: they were not kept.
    pub samples: Option<&'a Spool>,
    /// Nothing of the run is missing.
    pub complete: bool,
}

pub struct TracedProcess<'a> {
    pub node: String,
    /// Name of its location group.
    pub group: String,
    /// Rank and size, as it said them itself: in a replay they number the processes.
    pub rank: Option<(u32, u32)>,
    /// Whether it has a rank in MPI's sense.
    pub is_mpi_rank: bool,
    /// `NAME=value`.
    pub environment: &'a [String],
    pub thread_seconds: Option<ThreadSeconds>,
    pub regions: &'a Handles,
    pub locations: Vec<TracedLocation<'a>>,
}

pub struct TracedLocation<'a> {
    pub definition: &'a Location,
    /// Name of its location group: its process', or that of its accelerator's context.
    pub group: String,
    /// Of a GPU stream: its device, and whether the stream is known to be its process' own.
    pub evidence: Evidence,
    /// `None`: it could not be made, which was noted then. The other locations' events are still worth having.
    pub spool: Option<&'a Spool>,
}

/// One counter's samples, as the trace's definitions say it.
pub struct SampledMetric {
    pub node: String,
    member: MetricMember,
    value: ValueType,
    place: Place,
    nature: Nature,
}

impl SampledMetric {
    /// Our sampler's: nanojoules.
    pub fn sampled(node: String, device: &Device) -> SampledMetric {
        let member = MetricMember {
            name: device.metric.clone(),
            description: format!("{}: energy, {}", device.name, device.quality.as_str()),
            kind: MetricType::Other,
            mode: MetricMode::AccumulatedStart,
            value_type: MetricValueType::U64,
            base: MetricBase::Decimal,
            exponent: -9,
            unit: "J".to_owned(),
        };
        let (place, nature) = (evidence::place_of(device), Nature::of_device(device));
        SampledMetric { node, member, value: ValueType::U64, place, nature }
    }

    /// A replayed trace's: raw values, so that the same configuration says the same about them.
    pub fn replayed(metric: &ReplayedMetric) -> SampledMetric {
        let member = MetricMember {
            name: metric.name.clone(),
            description: metric.description.clone(),
            kind: MetricType::Other,
            mode: match metric.recorded.is_of_time_before {
                true => MetricMode::AbsoluteLast,
                false => MetricMode::AccumulatedStart,
            },
            value_type: match metric.value {
                ValueType::U64 => MetricValueType::U64,
                ValueType::I64 => MetricValueType::I64,
                ValueType::F64 => MetricValueType::F64,
            },
            base: if metric.binary { MetricBase::Binary } else { MetricBase::Decimal },
            exponent: metric.exponent,
            unit: metric.unit.clone(),
        };
        let (node, place, nature) = (metric.node.clone(), metric.place.clone(), metric.nature.clone());
        SampledMetric { node, member, value: metric.value, place, nature }
    }

    /// A sample's 64 bits, as the trace has them.
    fn value(&self, bits: u64) -> MetricValue {
        self.value.value(bits)
    }

    /// A sample's 64 bits, as the attribution takes them.
    pub fn reading(&self, bits: u64) -> ampere_model::MetricValue {
        crate::index::value(self.value(bits))
    }
}

/// The attribute of an enter that stands for so many calls, which were folded.
const CALLS: AttributeRef = AttributeRef(0);
pub const CALLS_NAME: &str = "ampere::calls";

fn attribute_of_folded() -> Attribute {
    let description = "This enter stands for so many calls, one after the other, whose times together it has; 0: it goes \
                       on with one that was counted before";
    Attribute { name: CALLS_NAME.to_owned(), description: description.to_owned() }
}

/// First and last timestamp of the whole trace.
#[derive(Clone, Copy)]
struct Span {
    first: Timestamp,
    last: Timestamp,
}

impl Span {
    const NOTHING: Span = Span { first: Timestamp::MAX, last: 0 };

    fn join(&mut self, other: Span) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }

    fn cover(&mut self, time: Timestamp) {
        self.first = self.first.min(time);
        self.last = self.last.max(time);
    }
}

/// Writes the archive into `output`. `parts`: a directory on the same file system, in which parts of it may lie until they are put
/// together.
pub fn write(output: &Path, parts: &Path, run: &TracedRun) -> Result<(), NoTrace> {
    let no_trace = |error: anyhow::Error, was_begun| {
        let (output, parts) = (output.display(), parts.display());
        let why = format!("no complete trace in {output}: {}; the records are in {parts}", one_line(&*error));
        NoTrace { why, was_begun }
    };
    let archive = ArchiveWriter::create(output).map_err(|error| {
        let was_begun = !matches!(error, otf2::Error::Exists(_) | otf2::Error::NotFound(_));
        no_trace(error.into(), was_begun)
    })?;
    fill(parts, archive, run).map_err(|error| {
        // Half an archive cannot be read, and takes the room that the summary may need.
        remove_all(&output.join("traces"));
        let _ = std::fs::remove_file(output.join("traces.def"));
        no_trace(error, true)
    })
}

/// Why there is no trace.
pub struct NoTrace {
    /// One line.
    pub why: String,
    /// Whether what has a trace's names now is ours.
    pub was_begun: bool,
}

/// A directory and what is in it. Files that are still open somewhere, as OTF2 leaves them after an error, keep no room.
fn remove_all(directory: &Path) {
    for file in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if file.file_type().is_ok_and(|kind| kind.is_file()) {
            let _ = std::fs::OpenOptions::new().write(true).truncate(true).open(file.path());
        }
    }
    let _ = std::fs::remove_dir_all(directory);
}

fn fill(parts: &Path, archive: ArchiveWriter, run: &TracedRun) -> anyhow::Result<()> {
    archive.set_creator(concat!("ampere ", env!("CARGO_PKG_VERSION")))?;
    let mut trace = Definer::new(run);
    let mut span = Span::NOTHING;
    let numbers = process_numbers(&run.processes);
    let mut order: Vec<usize> = (0..run.processes.len()).collect();
    order.sort_by_key(|at| numbers[*at]);
    let (mut mains, mut tasks) = (Vec::new(), Vec::new());
    for at in &order {
        let (process, number) = (&run.processes[*at], numbers[*at]);
        let group = trace.process(process);
        trace.locations(process, number, group, &mut mains, &mut tasks);
        let recorded: Vec<bool> =
            run.metrics.iter().map(|m| recorder_of(m, &run.processes, &order) == *at).collect();
        if recorded.contains(&true) {
            trace.samples(&archive, run, &recorded, Recorder { group, number }, &mut span)?;
        }
    }
    if run.processes.is_empty() && !run.metrics.is_empty() {
        // Nothing but the counters: they have a group of their own.
        let group = trace.group_of_counters(&ampere_ring::process::node_name());
        let by = Recorder { group, number: 0 };
        trace.samples(&archive, run, &vec![true; run.metrics.len()], by, &mut span)?;
    }
    let in_mpi =
        |process: &TracedProcess| process.is_mpi_rank && process.rank.is_some_and(|(_, size)| size > 1);
    if run.processes.iter().any(in_mpi) {
        trace.definitions.add_mpi_world(&mains);
    }
    for Written { reference, events } in locations::write(parts, &archive, &tasks, &mut span)? {
        if let Some(location) = trace.definitions.locations.get_mut(reference) {
            location.events = events;
        }
    }
    let first = span.first.min(span.last);
    trace.definitions.clock = ClockProperties {
        timer_resolution: run.ticks_per_second,
        global_offset: first,
        trace_length: span.last.saturating_sub(first) + 1,
        realtime_timestamp: (run.realtime_ns)(first),
    };
    archive.finish(&trace.definitions)?;
    Ok(())
}

/// The lower half of a location's reference: the rank where every process has its own, else a running number.
fn process_numbers(processes: &[TracedProcess]) -> Vec<u32> {
    let ranks: Vec<Option<u32>> = processes.iter().map(|p| p.rank.map(|(rank, _)| rank)).collect();
    let distinct: HashSet<&Option<u32>> = ranks.iter().collect();
    if distinct.len() == ranks.len() && ranks.iter().all(Option::is_some) {
        return ranks.into_iter().flatten().collect();
    }
    (0..processes.len() as u32).collect()
}

/// The process that is said to have recorded a metric: the one whose own it is, its node's first, or else the first.
fn recorder_of(metric: &SampledMetric, processes: &[TracedProcess], order: &[usize]) -> usize {
    let on_node = || order.iter().filter(|at| processes[**at].node == metric.node);
    let own = on_node().find(|at| metric.place.own.first() == Some(&processes[**at].group));
    own.or_else(|| on_node().next()).or(order.first()).copied().unwrap_or(0)
}

struct Recorder {
    group: LocationGroupRef,
    number: u32,
}

/// The contexts of a process, by name and by what is known of their device.
type Contexts = BTreeMap<(String, Accelerator, bool), LocationGroupRef>;

/// A trace's definitions, as they become known.
struct Definer {
    definitions: Definitions,
    machine: SystemTreeNodeRef,
    nodes: BTreeMap<String, SystemTreeNodeRef>,
}

impl Definer {
    fn new(run: &TracedRun) -> Definer {
        let mut definitions = Definitions::default();
        for region in run.regions.all() {
            definitions.regions.push(otf2::Region {
                name: region.name.clone(),
                canonical_name: or(&region.canonical_name, &region.name),
                description: String::new(),
                role: role(region.region_type),
                paradigm: paradigm(region.paradigm),
                flags: 0,
                source_file: (!region.source_file.is_empty()).then(|| region.source_file.clone()),
                begin_line: region.begin_line,
                end_line: region.end_line,
            });
        }
        definitions.attributes.insert(CALLS, attribute_of_folded());
        let machine = definitions.system_tree_nodes.push(SystemTreeNode {
            name: std::env::var("SCOREP_MACHINE_NAME").unwrap_or_else(|_| "Linux".to_owned()),
            class_name: "machine".to_owned(),
            parent: None,
            domains: vec![SystemTreeDomain::Machine],
            properties: evidence::machine_properties(run.complete),
        });
        Definer { definitions, machine, nodes: BTreeMap::new() }
    }

    fn node(&mut self, name: &str) -> SystemTreeNodeRef {
        *self.nodes.entry(name.to_owned()).or_insert_with(|| {
            self.definitions.system_tree_nodes.push(SystemTreeNode {
                name: name.to_owned(),
                class_name: "node".to_owned(),
                parent: Some(self.machine),
                domains: vec![SystemTreeDomain::SharedMemory],
                properties: Vec::new(),
            })
        })
    }

    fn process(&mut self, process: &TracedProcess) -> LocationGroupRef {
        let node = self.node(&process.node);
        self.definitions.location_groups.push(LocationGroup {
            name: process.group.clone(),
            kind: LocationGroupType::Process,
            system_tree_parent: Some(node),
            creating_location_group: None,
            properties: evidence::process_properties(process.environment, process.thread_seconds),
        })
    }

    fn group_of_counters(&mut self, node: &str) -> LocationGroupRef {
        let node = self.node(node);
        self.definitions.location_groups.push(LocationGroup {
            name: "ampere".to_owned(),
            kind: LocationGroupType::Process,
            system_tree_parent: Some(node),
            creating_location_group: None,
            properties: Vec::new(),
        })
    }

    /// A process' locations. `mains` gets its main thread, `tasks` what is to be written.
    fn locations<'a>(
        &mut self,
        process: &'a TracedProcess,
        number: u32,
        group: LocationGroupRef,
        mains: &mut Vec<LocationRef>,
        tasks: &mut Vec<Task<'a>>,
    ) {
        let mut contexts = Contexts::new();
        for location in &process.locations {
            let definition = location.definition;
            let own_group = match definition.kind {
                LocationKind::Gpu => self.context(&mut contexts, process, location, group),
                _ => group,
            };
            let reference = LocationRef((u64::from(definition.id.0) << 32) | u64::from(number));
            if definition.id.0 == 0 && definition.kind == LocationKind::CpuThread {
                mains.push(reference);
            }
            tasks.push(Task {
                reference,
                name: format!("location {} of {}", definition.name, process.group),
                regions: process.regions,
                spool: location.spool,
            });
            let kind = match definition.kind {
                LocationKind::CpuThread => LocationType::CpuThread,
                LocationKind::Gpu => LocationType::AcceleratorStream,
                LocationKind::Metric => LocationType::Metric,
            };
            self.location(reference, &definition.name, kind, own_group, Vec::new());
        }
    }

    fn location(
        &mut self,
        reference: LocationRef,
        name: &str,
        kind: LocationType,
        group: LocationGroupRef,
        properties: Vec<otf2::Property>,
    ) {
        let events = 0; // until they are written
        let location = otf2::Location { name: name.to_owned(), kind, events, group: Some(group), properties };
        self.definitions.locations.insert(reference, location);
    }

    /// The location group of a GPU stream: its context, below a device in the system tree.
    fn context(
        &mut self,
        contexts: &mut Contexts,
        process: &TracedProcess,
        location: &TracedLocation,
        creator: LocationGroupRef,
    ) -> LocationGroupRef {
        let (name, Evidence { accelerator, process: owner, .. }) = (&location.group, &location.evidence);
        let key = (name.clone(), accelerator.clone(), owner.is_some());
        if let Some(known) = contexts.get(&key) {
            return *known;
        }
        let number = accelerator.number.map(|number| number.to_string());
        let number = number.unwrap_or_else(|| name.rsplit(' ').next().unwrap_or_default().to_owned());
        let node = self.node(&process.node);
        let device = self.definitions.system_tree_nodes.push(SystemTreeNode {
            name: number,
            class_name: "Accelerator".to_owned(),
            parent: Some(node),
            domains: vec![SystemTreeDomain::AcceleratorDevice],
            properties: evidence::accelerator_properties(accelerator),
        });
        let group = self.definitions.location_groups.push(LocationGroup {
            name: name.clone(),
            kind: LocationGroupType::Accelerator,
            system_tree_parent: Some(device),
            creating_location_group: owner.map(|_| creator),
            properties: Vec::new(),
        });
        contexts.insert(key, group);
        group
    }

    /// Those metrics that are `recorded` by a process: what is known of their GPUs, and a metric location with their samples, as Score-P
    /// records a per-host metric.
    fn samples(
        &mut self,
        archive: &ArchiveWriter,
        run: &TracedRun,
        recorded: &[bool],
        recorder: Recorder,
        span: &mut Span,
    ) -> anyhow::Result<()> {
        let ours =
            || run.metrics.iter().zip(recorded).filter(|(_, recorded)| **recorded).map(|(metric, _)| metric);
        for metric in ours() {
            let above = self.node(&metric.node);
            if let Some(node) = evidence::counter_node(&metric.member.name, &metric.place, above) {
                self.definitions.system_tree_nodes.push(node);
            }
        }
        let define =
            |(metric, recorded): (&SampledMetric, &bool)| recorded.then(|| self.metric_class(metric));
        let classes: Vec<Option<MetricClassRef>> = run.metrics.iter().zip(recorded).map(define).collect();
        let Some(spool) = run.samples else { return Ok(()) };
        // Above all location numbers that a process can have.
        let reference = LocationRef((u64::from(u32::MAX >> 1) << 32) | u64::from(recorder.number));
        // A location with a file of events has to be defined.
        let events = write_samples(archive, reference, spool, run.metrics, &classes, span)?;
        let properties = ours().flat_map(|metric| {
            let name = &metric.member.name;
            let nature = evidence::nature_properties(&metric.nature, name);
            nature.into_iter().chain(evidence::own_property(name, &metric.place.own))
        });
        self.location(
            reference,
            "ampere sampler",
            LocationType::Metric,
            recorder.group,
            properties.collect(),
        );
        if let Some(location) = self.definitions.locations.get_mut(reference) {
            location.events = events;
        }
        Ok(())
    }

    fn metric_class(&mut self, metric: &SampledMetric) -> MetricClassRef {
        let member = self.definitions.metric_members.push(metric.member.clone());
        self.definitions.add_metric_class(MetricClass {
            members: vec![member],
            occurrence: MetricOccurrence::Asynchronous,
            recorder_kind: RecorderKind::Abstract,
            recorders: Vec::new(),
        })
    }
}

/// The samples of the metrics that have a class here. Returns how many there are.
fn write_samples(
    archive: &ArchiveWriter,
    reference: LocationRef,
    spool: &Spool,
    metrics: &[SampledMetric],
    classes: &[Option<MetricClassRef>],
    span: &mut Span,
) -> anyhow::Result<u64> {
    let mut writer = archive.event_writer(reference)?;
    let mut decoder = Decoder::default();
    spool.read(|records| {
        let mut result = Ok(());
        let mut take = |event| {
            let Event::Sample(time, number, bits) = event else { return };
            let number = number as usize;
            if let Some(class) = classes.get(number).copied().flatten() {
                span.cover(time);
                let written = writer.metric(time, class, &[metrics[number].value(bits)]);
                if written.is_err() {
                    result = written;
                }
            }
        };
        records.iter().for_each(|record| decoder.decode(*record, &mut take));
        Ok(result?)
    })?;
    Ok(writer.close()?)
}

fn or(text: &str, otherwise: &str) -> String {
    if text.is_empty() { otherwise.to_owned() } else { text.to_owned() }
}
