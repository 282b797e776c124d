//! The spool becomes an OTF2 archive. Locations are written one after another, in constant memory, by the same way from
//! record to event as the live attribution took.

use crate::attributor::Attributor;
use crate::clock::SessionClock;
use crate::evidence;
use crate::nature::Nature;
use crate::process::Process;
use crate::replay::{ReplayedMetric, ValueType};
use crate::spool::Spool;
use crate::text::one_line;
use crate::topology::{Accelerator, Evidence, Place};
use ampere_model::{Device, LocationKind, Timestamp};
use ampere_ring::decoder::{Decoder, Event};
use locations::{Task, Written};
use otf2::{
    ArchiveWriter, Attribute, AttributeRef, ClockProperties, Definitions, LocationGroup, LocationGroupRef,
    LocationGroupType, LocationRef, LocationType, MetricBase, MetricClass, MetricClassRef, MetricMember,
    MetricMode, MetricOccurrence, MetricType, MetricValue, MetricValueType, RecorderKind, SystemTreeDomain,
    SystemTreeNode, SystemTreeNodeRef,
};
use scorep_names::{paradigm, role};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

mod locations;
pub mod scorep_names;

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

    /// A sample's 64 bits.
    pub fn value(&self, bits: u64) -> MetricValue {
        self.value.value(bits)
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

/// Writes the archive into `output`, from what the processes' locations and `samples` have on disk in `spool`. The error is
/// one line.
pub fn write(
    output: &Path,
    spool: &Path,
    clock: SessionClock,
    processes: &[Process],
    (metrics, samples): (&[SampledMetric], Option<&Spool>),
    attributor: &Attributor,
    complete: bool,
) -> Result<(), NoTrace> {
    let no_trace = |error: anyhow::Error, was_begun| {
        let (output, spool) = (output.display(), spool.display());
        let why = format!("no complete trace in {output}: {}; the records are in {spool}", one_line(&error));
        NoTrace { why, was_begun }
    };
    let archive = ArchiveWriter::create(output).map_err(|error| {
        let was_begun = !matches!(error, otf2::Error::Exists(_) | otf2::Error::NotFound(_));
        no_trace(error.into(), was_begun)
    })?;
    fill(spool, archive, clock, processes, (metrics, samples), attributor, complete).map_err(|error| {
        // Half of an archive can be read by nobody, and takes the room that the summary may need.
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

/// `spool`: where parts of the archive may lie until they are put together.
fn fill(
    spool: &Path,
    archive_writer: ArchiveWriter,
    clock: SessionClock,
    processes: &[Process],
    (metrics, samples): (&[SampledMetric], Option<&Spool>),
    attributor: &Attributor,
    complete: bool,
) -> anyhow::Result<()> {
    let archive = &archive_writer;
    archive.set_creator(concat!("ampere ", env!("CARGO_PKG_VERSION")))?;
    let mut definitions = Definitions::default();
    let mut span = Span::NOTHING;
    for region in attributor.regions.all() {
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
    let mut tree = Tree::new(&mut definitions, complete);
    let numbers = process_numbers(processes);
    let (mut mains, mut tasks) = (Vec::new(), Vec::new());
    let mut order: Vec<usize> = (0..processes.len()).collect();
    order.sort_by_key(|at| numbers[*at]);
    for at in &order {
        let (process, number) = (&processes[*at], numbers[*at]);
        let node = tree.node(&mut definitions, &process.info.hostname);
        let group = definitions.location_groups.push(LocationGroup {
            name: process.group(),
            kind: LocationGroupType::Process,
            system_tree_parent: Some(node),
            creating_location_group: None,
            properties: evidence::process_properties(process.environment(), process.thread_seconds),
        });
        let mut contexts = BTreeMap::new();
        for (at, location) in process.locations.iter().enumerate() {
            let group = match location.definition.kind {
                LocationKind::Gpu => context(&mut definitions, &mut contexts, process, at, node, group),
                _ => group,
            };
            let reference = LocationRef((u64::from(location.definition.id.0) << 32) | u64::from(number));
            if location.definition.id.0 == 0 && location.definition.kind == LocationKind::CpuThread {
                mains.push(reference);
            }
            tasks.push(Task {
                reference,
                name: format!("location {} of {}", location.definition.name, process.group()),
                regions: &process.definitions,
                spool: location.spool.as_ref(),
            });
            definitions.locations.insert(
                reference,
                otf2::Location {
                    name: location.definition.name.clone(),
                    kind: match location.definition.kind {
                        LocationKind::CpuThread => LocationType::CpuThread,
                        LocationKind::Gpu => LocationType::AcceleratorStream,
                        LocationKind::Metric => LocationType::Metric,
                    },
                    events: 0, // until they are written
                    group: Some(group),
                    properties: Vec::new(),
                },
            );
        }
        let recorded: Vec<bool> = metrics.iter().map(|m| recorder_of(m, processes, &order) == *at).collect();
        if recorded.contains(&true) {
            let by = Recorder { group, number };
            counter_nodes(&mut definitions, metrics, &recorded, &mut tree);
            write_samples(archive, samples, metrics, &recorded, &mut definitions, by, &mut span)?;
        }
    }
    if processes.is_empty() && !metrics.is_empty() {
        // Nothing but the counters: they have a group of their own.
        let node = tree.node(&mut definitions, &ampere_ring::process::node_name());
        let group = definitions.location_groups.push(LocationGroup {
            name: "ampere".to_owned(),
            kind: LocationGroupType::Process,
            system_tree_parent: Some(node),
            creating_location_group: None,
            properties: Vec::new(),
        });
        let (recorded, by) = (vec![true; metrics.len()], Recorder { group, number: 0 });
        counter_nodes(&mut definitions, metrics, &recorded, &mut tree);
        write_samples(archive, samples, metrics, &recorded, &mut definitions, by, &mut span)?;
    }
    let in_mpi =
        |process: &Process| process.rank_number().is_some() && process.rank.is_some_and(|(_, size)| size > 1);
    if processes.iter().any(in_mpi) {
        definitions.add_mpi_world(&mains);
    }
    for Written { reference, events } in locations::write(spool, archive, &tasks, &mut span)? {
        if let Some(location) = definitions.locations.get_mut(reference) {
            location.events = events;
        }
    }
    let first = span.first.min(span.last);
    definitions.clock = ClockProperties {
        timer_resolution: clock.ticks_per_second,
        global_offset: first,
        trace_length: span.last.saturating_sub(first) + 1,
        realtime_timestamp: clock.realtime_ns(first),
    };
    archive_writer.finish(&definitions)?;
    Ok(())
}

/// The lower half of a location's reference: the rank where every process has its own, else a running number.
fn process_numbers(processes: &[Process]) -> Vec<u32> {
    let ranks: Vec<Option<u32>> = processes.iter().map(|p| p.rank.map(|(rank, _)| rank)).collect();
    let distinct: HashSet<&Option<u32>> = ranks.iter().collect();
    if distinct.len() == ranks.len() && ranks.iter().all(Option::is_some) {
        return ranks.into_iter().flatten().collect();
    }
    (0..processes.len() as u32).collect()
}

/// The process that is said to have recorded a metric: the one whose own it is, its node's first, or else the first.
fn recorder_of(metric: &SampledMetric, processes: &[Process], order: &[usize]) -> usize {
    let on_node = || order.iter().filter(|at| processes[**at].info.hostname == metric.node);
    let own = on_node().find(|at| metric.place.own.first() == Some(&processes[**at].group()));
    own.or_else(|| on_node().next()).or(order.first()).copied().unwrap_or(0)
}

struct Recorder {
    group: LocationGroupRef,
    number: u32,
}

/// Those counters that are `recorded` here, as a metric location of a process, as Score-P records a per-host metric.
fn write_samples(
    archive: &ArchiveWriter,
    spool: Option<&Spool>,
    metrics: &[SampledMetric],
    recorded: &[bool],
    definitions: &mut Definitions,
    recorder: Recorder,
    span: &mut Span,
) -> anyhow::Result<()> {
    // Above all location numbers that a process can have.
    let reference = LocationRef((u64::from(u32::MAX >> 1) << 32) | u64::from(recorder.number));
    let classes: Vec<Option<MetricClassRef>> = metrics
        .iter()
        .zip(recorded)
        .map(|(metric, recorded)| {
            if !recorded {
                return None;
            }
            let member = definitions.metric_members.push(metric.member.clone());
            Some(definitions.add_metric_class(MetricClass {
                members: vec![member],
                occurrence: MetricOccurrence::Asynchronous,
                recorder_kind: RecorderKind::Abstract,
                recorders: Vec::new(),
            }))
        })
        .collect();
    // One that has a file of events has to be defined.
    let Some(spool) = spool else { return Ok(()) };
    let mut writer = archive.event_writer(reference)?;
    let mut stream = Decoder::default();
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
        records.iter().for_each(|record| stream.decode(*record, &mut take));
        Ok(result?)
    })?;
    let events = writer.close()?;
    let ours = metrics.iter().zip(recorded).filter(|(_, recorded)| **recorded).map(|(metric, _)| metric);
    let properties = ours.flat_map(|metric| {
        let name = &metric.member.name;
        metric.nature.properties(name).into_iter().chain(evidence::own_property(name, &metric.place.own))
    });
    definitions.locations.insert(
        reference,
        otf2::Location {
            name: "ampere sampler".to_owned(),
            kind: LocationType::Metric,
            events,
            group: Some(recorder.group),
            properties: properties.collect(),
        },
    );
    Ok(())
}

/// The system tree: machine, nodes, and accelerators as they appear.
struct Tree {
    machine: SystemTreeNodeRef,
    nodes: BTreeMap<String, SystemTreeNodeRef>,
}

impl Tree {
    fn new(definitions: &mut Definitions, complete: bool) -> Tree {
        let machine = definitions.system_tree_nodes.push(SystemTreeNode {
            name: std::env::var("SCOREP_MACHINE_NAME").unwrap_or_else(|_| "Linux".to_owned()),
            class_name: "machine".to_owned(),
            parent: None,
            domains: vec![SystemTreeDomain::Machine],
            properties: evidence::machine_properties(complete),
        });
        Tree { machine, nodes: BTreeMap::new() }
    }

    fn node(&mut self, definitions: &mut Definitions, name: &str) -> SystemTreeNodeRef {
        let machine = self.machine;
        *self.nodes.entry(name.to_owned()).or_insert_with(|| {
            definitions.system_tree_nodes.push(SystemTreeNode {
                name: name.to_owned(),
                class_name: "node".to_owned(),
                parent: Some(machine),
                domains: vec![SystemTreeDomain::SharedMemory],
                properties: Vec::new(),
            })
        })
    }
}

/// What is known of the counters' GPUs.
fn counter_nodes(
    definitions: &mut Definitions,
    metrics: &[SampledMetric],
    recorded: &[bool],
    tree: &mut Tree,
) {
    for (metric, _) in metrics.iter().zip(recorded).filter(|(_, recorded)| **recorded) {
        let above = tree.node(definitions, &metric.node);
        let node = evidence::counter_node(&metric.member.name, &metric.place, above);
        node.into_iter().for_each(|node| {
            definitions.system_tree_nodes.push(node);
        });
    }
}

/// The contexts of a process, by name and by what is known of their device.
type Contexts = BTreeMap<(String, Accelerator, bool), LocationGroupRef>;

/// The location group of a GPU stream: its context, below a device in the system tree.
fn context(
    definitions: &mut Definitions,
    contexts: &mut Contexts,
    process: &Process,
    location: usize,
    node: SystemTreeNodeRef,
    creator: LocationGroupRef,
) -> LocationGroupRef {
    let name = process.group_of(&process.locations[location].definition);
    let Evidence { accelerator, process: owner, .. } = process.evidence(location, 0);
    let key = (name.clone(), accelerator.clone(), owner.is_some());
    if let Some(known) = contexts.get(&key) {
        return *known;
    }
    let number = accelerator.number.map(|number| number.to_string());
    let number = number.unwrap_or_else(|| name.rsplit(' ').next().unwrap_or_default().to_owned());
    let device = definitions.system_tree_nodes.push(SystemTreeNode {
        name: number,
        class_name: "Accelerator".to_owned(),
        parent: Some(node),
        domains: vec![SystemTreeDomain::AcceleratorDevice],
        properties: evidence::accelerator_properties(&accelerator),
    });
    let group = definitions.location_groups.push(LocationGroup {
        name: name.clone(),
        kind: LocationGroupType::Accelerator,
        system_tree_parent: Some(device),
        creating_location_group: owner.map(|_| creator),
        properties: Vec::new(),
    });
    contexts.insert(key, group);
    group
}

fn or(text: &str, otherwise: &str) -> String {
    if text.is_empty() { otherwise.to_owned() } else { text.to_owned() }
}
