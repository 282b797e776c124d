//! Makes an OTF2 archive from the spool. Locations are written one after another, in constant memory, and records are decoded in
//! the same way as for the live attribution.

use crate::evidence;
use crate::index::{CALLS_NAME, CORRELATION_NAME};
use crate::places::COUNTED_PART;
use crate::replay::{ReplayedMetric, ReplayedWork};
use crate::scorep_names::{paradigm, role};
use crate::spool::Spool;
use crate::value_type;
use ampere_attribution::LocationIndex;
use ampere_model::numbers::Handles;
use ampere_model::regions::Regions;
use ampere_model::text::one_line;
use ampere_model::{
    Communicator, Counted, Device, LocalLocation, Location, LocationKind, OTHER_JOBS_CPU_TIME, Program,
    Timestamp,
};
use ampere_owned::{Directory, Held};
use ampere_ring::decoder::{Decoder, Event};
use ampere_ring::process::own_name;
use ampere_timeline::attributor::counter_name;
use ampere_timeline::counter_traits::CounterTraits;
use ampere_timeline::linking::ThreadSeconds;
use ampere_timeline::topology::{Accelerator, CounterEvidence, Evidence};
use anyhow::Context;
use events::{LocationEvents, ProgramStrings, Task};
use otf2::{
    ArchiveWriter, Attribute, AttributeRef, ClockProperties, Definitions, LocationGroup, LocationGroupRef,
    LocationGroupType, LocationRef, LocationType, MetricBase, MetricClass, MetricInstance, MetricMember,
    MetricMode, MetricOccurrence, MetricRef, MetricScope, MetricType, MetricValue, MetricValueType, Paradigm,
    ParadigmClass, ParadigmType, RecorderKind, SystemTreeDomain, SystemTreeNode, SystemTreeNodeRef,
};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

mod communicators;
mod cpu_time;
mod events;
mod power;
mod sampled_events;

pub(crate) use events::named;
pub use power::Power;

pub struct TracedRun<'a> {
    /// The resolution of timestamps, in ticks per second.
    pub ticks_per_second: u64,
    /// Converts a time to nanoseconds since 1970, if that is known.
    pub realtime_ns: &'a dyn Fn(Timestamp) -> Option<u64>,
    pub regions: &'a Regions,
    pub processes: Vec<TracedProcess<'a>>,
    pub metrics: &'a [SampledMetric],
    /// The samples of all metrics; `None` if they were not kept.
    pub samples: Option<&'a Spool>,
    /// The power that locations were charged.
    pub power: Power<'a>,
    /// Whether it is known when the run's threads are on a CPU.
    pub knows_cpu_times: bool,
    /// Whether nothing of the run is missing.
    pub complete: bool,
    /// Whether other nodes have processes of the run.
    pub is_part: bool,
}

pub struct TracedProcess<'a> {
    pub node: String,
    pub group: String,
    /// Rank and size, as its host reports them. In a replay they are numbers of processes.
    pub rank: Option<(u32, u32)>,
    /// Whether the process has a rank in MPI's sense.
    pub is_mpi_rank: bool,
    /// Whether the locations are samples of the process' stacks. If the process is a rank, they are in addition to its recorded
    /// events.
    pub is_sampled: bool,
    /// The process' environment variables as `NAME=value`.
    pub environment: &'a [String],
    /// The CPU time of its threads, if that is known.
    pub thread_seconds: Option<ThreadSeconds>,
    /// The run's regions by the process' handles.
    pub regions: &'a Handles,
    pub communicators: &'a [Communicator],
    /// The program that runs in it, if its host has reported that.
    pub program: Option<&'a Program>,
    pub locations: Vec<TracedLocation<'a>>,
}

pub struct TracedLocation<'a> {
    pub definition: &'a Location,
    /// The location's number in the run's attributor.
    pub number: Option<LocationIndex>,
    /// The name of the location's group: that of its process, or of its accelerator's context.
    pub group: String,
    /// For a GPU stream, its device, and whether the stream is known to belong to its process.
    pub evidence: Evidence,
    pub samples: SampledFrames,
    /// The location whose CPU time the records contain; `None` for other records, or if that location is not known.
    pub cpu_time_of: Option<CpuTimeOf>,
    /// The records; `None` if the spool could not be made, which a note reports. The other locations are still written.
    pub spool: Option<&'a Spool>,
}

/// Whether the frames of a location are samples of a thread's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledFrames {
    /// The frames are calls that were recorded.
    None,
    /// The frames are samples of a thread that has no recorded calls.
    Alone,
    /// The frames are samples of a thread whose calls are recorded on another location: the index of its process in the run, and
    /// the location.
    On(usize, LocalLocation),
}

/// The location whose CPU time the records of a location contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuTimeOf {
    /// The CPU time of the location itself.
    Itself,
    /// The CPU time of all threads without a location in the process with this index in the run.
    OtherThreads(usize),
    /// The CPU time of another location: the index of its process in the run, and the location.
    Location(usize, LocalLocation),
}

impl TracedLocation<'_> {
    /// Whether the trace has a location for it in the group of the process with this index.
    fn is_in_group_of(&self, process: usize) -> bool {
        self.definition.kind != LocationKind::CpuTime
            || self.cpu_time_of == Some(CpuTimeOf::OtherThreads(process))
    }
}

/// The samples of one counter, in the form of the trace's definitions.
pub struct SampledMetric {
    pub node: String,
    member: MetricMember,
    evidence: CounterEvidence,
    traits: CounterTraits,
    /// Distinguishes the device if several have this metric.
    which: String,
}

impl SampledMetric {
    /// Describes a metric of ampere's sampler, in nanojoules.
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
        let (evidence, traits) = (evidence::of_device(device), CounterTraits::of_device(device));
        SampledMetric { node, member, evidence, traits, which: String::new() }
    }

    /// Describes the CPU time of other jobs on a node.
    pub fn of_other_jobs(node: String) -> SampledMetric {
        let member = MetricMember {
            name: OTHER_JOBS_CPU_TIME.to_owned(),
            description: "the CPU time that other jobs have used on this node".to_owned(),
            kind: MetricType::Other,
            mode: MetricMode::AccumulatedStart,
            value_type: MetricValueType::U64,
            base: MetricBase::Decimal,
            exponent: -9,
            unit: "s".to_owned(),
        };
        let (evidence, traits) = Default::default();
        SampledMetric { node, member, evidence, traits, which: String::new() }
    }

    /// Describes the units of work, or the ranges, that were counted on a node.
    pub fn of_work(work: &ReplayedWork) -> SampledMetric {
        let kind = Counted::of_metric(&work.metric).map_or(Counted::Work, |(kind, _)| kind);
        let (description, unit) = kind.description();
        let member = MetricMember {
            name: work.metric.clone(),
            description: description.to_owned(),
            kind: MetricType::Other,
            mode: MetricMode::AccumulatedStart,
            value_type: MetricValueType::F64,
            base: MetricBase::Decimal,
            exponent: 0,
            unit: unit.to_owned(),
        };
        let (evidence, traits) = Default::default();
        SampledMetric { node: work.node.clone(), member, evidence, traits, which: String::new() }
    }

    /// Describes a metric of a replayed trace, with raw values, so that the same configuration applies to them.
    pub fn replayed(metric: &ReplayedMetric) -> SampledMetric {
        let member = MetricMember {
            name: metric.name.clone(),
            description: metric.description.clone(),
            kind: MetricType::Other,
            mode: match metric.recorded.is_of_time_before {
                true => MetricMode::AbsoluteLast,
                false => MetricMode::AccumulatedStart,
            },
            value_type: metric.value,
            base: if metric.binary { MetricBase::Binary } else { MetricBase::Decimal },
            exponent: metric.exponent,
            unit: metric.unit.clone(),
        };
        SampledMetric {
            node: metric.node.clone(),
            member,
            evidence: metric.evidence.clone(),
            traits: metric.traits.clone(),
            which: metric.recorded.recorder.clone(),
        }
    }

    /// Converts a sample's 64 bits to the value in the trace.
    fn value(&self, bits: u64) -> MetricValue {
        value_type::from_bits(bits, self.member.value_type)
    }

    /// Converts a sample's 64 bits to the value for the attribution.
    pub fn reading(&self, bits: u64) -> ampere_model::MetricValue {
        crate::index::value(self.value(bits))
    }
}

/// Paradigms that have events other than enters and leaves.
const PARADIGMS: [(ParadigmType, &str, ParadigmClass); 2] = [
    (ParadigmType::Mpi, "MPI", ParadigmClass::Process),
    (ParadigmType::OpenMp, "OpenMP", ParadigmClass::ThreadForkJoin),
];

/// The attribute of an enter event that stands for several coalesced calls.
const CALLS: AttributeRef = AttributeRef(0);

fn calls_attribute() -> Attribute {
    let description = "The number of successive calls that this enter stands for, with the sum of their times; 0: it \
                       continues a call that was counted before";
    Attribute { name: CALLS_NAME.to_owned(), description: description.to_owned() }
}

/// The attribute of an enter event that has a correlation id.
const CORRELATION: AttributeRef = AttributeRef(1);

fn correlation_attribute() -> Attribute {
    let description =
        "The number that a launch and the work that it started on a GPU have in common, within a process";
    Attribute { name: CORRELATION_NAME.to_owned(), description: description.to_owned() }
}

/// The first and the last timestamp of the whole trace.
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

/// Writes the archive into `output` and returns the number of messages that were left out because the members of their
/// communicator are unknown. `parts` is a directory on the same file system for temporary files.
///
/// # Errors
/// The reason why there is no trace. A trace that was partly written is removed.
pub fn write(output: &Path, parts: &Path, run: &TracedRun) -> Result<u64, NoTrace> {
    let no_trace = |error: anyhow::Error, was_begun| {
        let (output, parts) = (output.display(), parts.display());
        let why = format!("no complete trace in {output}: {}; the records are in {parts}", one_line(&*error));
        NoTrace { why, was_begun }
    };
    if let Some(there) =
        FILES.map(|name| output.join(name)).iter().find(|path| path.symlink_metadata().is_ok())
    {
        return Err(no_trace(otf2::Error::Exists(there.clone()).into(), false));
    }
    let (begun, _held) = begin(output).map_err(|error| no_trace(error, false))?;
    // The OTF2 library accepts only paths. This one leads to exactly this directory.
    let within = begun.through_proc();
    let written = ArchiveWriter::create(&within).map_err(anyhow::Error::new);
    let written = written.and_then(|archive| fill(parts, archive, run));
    let put = written.and_then(|left_out| put_in_place(begun.path(), output).map(|()| left_out));
    put.map_err(|error| {
        // An incomplete archive cannot be read and takes space that the summary may need.
        remove_archive(begun.path());
        remove(output);
        let words = one_line(&*error).replace(&*within.to_string_lossy(), &output.to_string_lossy());
        no_trace(anyhow::Error::msg(words), true)
    })
    .inspect(|_| remove_archive(begun.path()))
}

/// The archive's files in the order in which they are moved to their places. Without the last one, there is no archive.
const FILES: [&str; 3] = ["traces", "traces.def", "traces.otf2"];
/// The prefix of a private directory in the output directory, in which an archive is written, so that nobody can redirect the
/// writes by a link. The name of the process follows.
const BEGUN: &str = ".ampere-trace-";

fn begin(output: &Path) -> anyhow::Result<(Directory, Held)> {
    remove_begun(output);
    let begun = output.join(format!("{BEGUN}{}", own_name()));
    let make = || {
        ampere_owned::make(&begun, ampere_owned::PRIVATE_MODE)?;
        let (begun, held) = ampere_owned::hold(&begun)?;
        Ok::<_, std::io::Error>((Directory::own_alone(&begun)?, held))
    };
    make().with_context(|| format!("cannot make {}", begun.display()))
}

fn put_in_place(begun: &Path, output: &Path) -> anyhow::Result<()> {
    ampere_owned::limit_mode(&begun.join(FILES[0]), mode_like(output))?;
    for name in FILES {
        let to = output.join(name);
        let moved = ampere_owned::move_new(&begun.join(name), &to);
        moved.with_context(|| format!("cannot move the trace to {}", to.display()))?;
    }
    Ok(())
}

/// Returns the mode of the trace's directory: the group may write into it if it may write into the run's.
fn mode_like(output: &Path) -> u32 {
    let of_group =
        Directory::own(output).and_then(|output| output.stat()).map_or(0, |found| found.st_mode & 0o020);
    ampere_owned::DIRECTORY_MODE | of_group
}

/// Removes a trace that this program has started or made in a directory.
pub fn remove(output: &Path) {
    let _ = ampere_owned::remove_file(&output.join("traces.otf2"));
    let _ = ampere_owned::remove_file(&output.join("traces.def"));
    let _ = ampere_owned::remove_flat(&output.join("traces"));
    remove_begun(output);
}

/// Removes the directories that killed processes on any node have left. Only the process that has the claim of the directory
/// writes a trace there.
fn remove_begun(output: &Path) {
    let _ = ampere_owned::remove_left(output, |name| name.starts_with(BEGUN));
}

/// Removes a directory with an archive. Files that are still open, as OTF2 leaves them after an error, take no space.
fn remove_archive(directory: &Path) {
    let _ = ampere_owned::remove_flat(&directory.join(FILES[0]));
    let _ = ampere_owned::remove_tree(directory);
}

#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct NoTrace {
    /// The reason in one line.
    pub why: String,
    /// Whether the files with the names of a trace were written by ampere.
    pub was_begun: bool,
}

fn fill(parts: &Path, archive: ArchiveWriter, run: &TracedRun) -> anyhow::Result<u64> {
    archive.set_creator(concat!("ampere ", env!("CARGO_PKG_VERSION")))?;
    let mut trace = Definer::new(run);
    let mut span = Span::NOTHING;
    let numbers = process_numbers(&run.processes);
    let mut order: Vec<usize> = (0..run.processes.len()).collect();
    order.sort_by_key(|at| numbers[*at]);
    let communicators =
        communicators::define(&mut trace.definitions, &run.processes, (&numbers, &order), run.is_part);
    let mut tasks = Vec::new();
    let mut groups: Vec<Option<LocationGroupRef>> = vec![None; run.processes.len()];
    for at in &order {
        let (process, number) = (&run.processes[*at], numbers[*at]);
        // Locations that have only the CPU time of other locations have no group.
        let has_group =
            process.locations.is_empty() || process.locations.iter().any(|of| of.is_in_group_of(*at));
        let group = match has_group {
            true => trace.process(process),
            false => groups.iter().copied().flatten().next().unwrap_or(LocationGroupRef(0)),
        };
        groups[*at] = has_group.then_some(group);
        trace.locations(process, (*at, &numbers), (group, &groups), &communicators[*at], &mut tasks);
        let recorded: Vec<bool> =
            run.metrics.iter().map(|m| recorder_of(m, &run.processes, &order) == *at).collect();
        if recorded.contains(&true) {
            trace.samples(&archive, run, &recorded, Recorder { group, number }, &mut span)?;
        }
    }
    if run.processes.is_empty() && !run.metrics.is_empty() {
        // A run that has only counters has a location group for them.
        let group = trace.group_of_counters(&ampere_ring::process::node_name());
        let by = Recorder { group, number: 0 };
        trace.samples(&archive, run, &vec![true; run.metrics.len()], by, &mut span)?;
    }
    cpu_time::define(&mut trace.definitions, run, &numbers, &mut tasks);
    power::define(&mut trace.definitions, &run.power, &mut tasks);
    sampled_events::define(&mut trace.definitions, run, &numbers, &mut tasks);
    let mut left_out = 0;
    for LocationEvents { reference, events, left_out: here } in
        events::write(parts, &archive, &tasks, &mut span)?
    {
        left_out += here;
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
    Ok(left_out)
}

fn reference(location: LocalLocation, number: u32) -> LocationRef {
    LocationRef((u64::from(location.0) << 32) | u64::from(number))
}

/// Returns the lower halves of location references: ranks if every process has its own, and running numbers otherwise. Processes
/// that are sampled come after all others.
fn process_numbers(processes: &[TracedProcess]) -> Vec<u32> {
    let recorded = || processes.iter().filter(|process| !process.is_sampled);
    let ranks: HashSet<u32> = recorded().filter_map(|process| Some(process.rank?.0)).collect();
    let are_ranks = ranks.len() == recorded().count();
    let world = recorded().filter_map(|process| Some(process.rank?.1)).max().unwrap_or(0);
    let after_ranks = ranks.into_iter().max().map_or(0, |last| last.saturating_add(1)).max(world);
    let (mut next, mut next_sampled) =
        (0.., if are_ranks { after_ranks } else { recorded().count() as u32 }..);
    let number = |process: &TracedProcess| match process.rank {
        _ if process.is_sampled => next_sampled.next(),
        Some((rank, _)) if are_ranks => Some(rank),
        _ => next.next(),
    };
    processes.iter().map(number).map(Option::unwrap_or_default).collect()
}

/// Returns the process whose location gets a metric's samples: the only one that draws from the counter, or else the first of
/// the node, or else the first of the run.
fn recorder_of(metric: &SampledMetric, processes: &[TracedProcess], order: &[usize]) -> usize {
    let on_node = || order.iter().filter(|at| processes[**at].node == metric.node);
    let own = on_node().find(|at| metric.evidence.own.first() == Some(&processes[**at].group));
    own.or_else(|| on_node().next()).or(order.first()).copied().unwrap_or(0)
}

struct Recorder {
    group: LocationGroupRef,
    number: u32,
}

/// The contexts of a process, by name and by the evidence about their device.
type Contexts = BTreeMap<(String, Accelerator, bool), LocationGroupRef>;

/// Collects the definitions of a trace.
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
        for (paradigm, name, class) in PARADIGMS {
            if definitions.regions.values().any(|region| region.paradigm == paradigm) {
                definitions.paradigms.push(Paradigm { paradigm, name: name.to_owned(), class });
            }
        }
        definitions.attributes.insert(CALLS, calls_attribute());
        definitions.attributes.insert(CORRELATION, correlation_attribute());
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

    /// Defines a process' locations, and adds those to write to `tasks`.
    fn locations<'a>(
        &mut self,
        process: &'a TracedProcess,
        (at, numbers): (usize, &[u32]),
        (group, groups): (LocationGroupRef, &[Option<LocationGroupRef>]),
        communicators: &'a communicators::Handles,
        tasks: &mut Vec<Task<'a>>,
    ) {
        let mut contexts = Contexts::new();
        let program = process.program.map(|program| self.program(program));
        for location in &process.locations {
            let definition = location.definition;
            let own_group = match (definition.kind, location.cpu_time_of) {
                (LocationKind::Gpu, _) => self.context(&mut contexts, process, location, group),
                (LocationKind::CpuTime, Some(CpuTimeOf::OtherThreads(of))) => groups[of].unwrap_or(group),
                (LocationKind::CpuTime, _) => continue,
                _ => group,
            };
            let reference = reference(definition.id, numbers[at]);
            tasks.push(Task {
                reference,
                name: format!("location {} of {}", definition.name, process.group),
                kind: definition.kind,
                number: location.number,
                regions: process.regions,
                communicators,
                program: program.clone(),
                spool: location.spool,
                power: power::LocationValues::default(),
                waited: power::LocationValues::default(),
                cpu_time: cpu_time::LocationCpuTime::default(),
                events: Vec::new(),
            });
            let kind = match definition.kind {
                LocationKind::CpuThread | LocationKind::CpuTime => LocationType::CpuThread,
                LocationKind::Gpu => LocationType::AcceleratorStream,
                LocationKind::Metric => LocationType::Metric,
            };
            let properties = match location.samples {
                SampledFrames::None if definition.kind == LocationKind::CpuTime => {
                    evidence::other_threads_properties()
                }
                SampledFrames::None => Vec::new(),
                SampledFrames::Alone => evidence::samples_properties(None),
                SampledFrames::On(process, id) => {
                    evidence::samples_properties(Some(self::reference(id, numbers[process])))
                }
            };
            self.location(reference, &definition.name, kind, own_group, properties);
        }
    }

    fn program(&mut self, program: &Program) -> ProgramStrings {
        let arguments = program.arguments.iter().map(|text| self.definitions.add_string(text));
        let arguments = arguments.collect();
        ProgramStrings { name: self.definitions.add_string(&program.name), arguments }
    }

    fn location(
        &mut self,
        reference: LocationRef,
        name: &str,
        kind: LocationType,
        group: LocationGroupRef,
        properties: Vec<otf2::Property>,
    ) {
        let events = 0; // the number is known only after they are written
        let location = otf2::Location { name: name.to_owned(), kind, events, group: Some(group), properties };
        self.definitions.locations.insert(reference, location);
    }

    /// Defines the location group of a GPU stream: its context, below a device in the system tree.
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
        // The number of a context is not the device's.
        let device = accelerator.number.map_or_else(|| name.clone(), |number| number.to_string());
        let node = self.node(&process.node);
        let device = self.definitions.system_tree_nodes.push(SystemTreeNode {
            name: device,
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

    /// Defines the metrics that are `recorded` by a process, with evidence about their GPUs, and writes a metric location with
    /// their samples, as Score-P does for a per-host metric.
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
            if let Some(node) = evidence::counter_node(&metric.member.name, &metric.evidence, above) {
                self.definitions.system_tree_nodes.push(node);
            }
        }
        // This is above all location numbers that a process can have.
        let reference = LocationRef((u64::from(u32::MAX >> 1) << 32) | u64::from(recorder.number));
        let define =
            |(metric, recorded): (&SampledMetric, &bool)| recorded.then(|| self.metric(metric, reference));
        let classes: Vec<Option<MetricRef>> = run.metrics.iter().zip(recorded).map(define).collect();
        let Some(spool) = run.samples else { return Ok(()) };
        // Every location with a file of events must be defined.
        let events = write_samples(archive, reference, spool, run.metrics, &classes, span)?;
        let properties = ours().flat_map(|metric| {
            let counter = counter_name(&metric.member.name, &metric.which);
            let traits = evidence::traits_properties(&metric.traits, &counter);
            traits.into_iter().chain(evidence::own_property(&counter, &metric.evidence.own))
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

    /// Defines a class and, if several counters have this metric, an instance that is about a part of the node.
    fn metric(&mut self, metric: &SampledMetric, recorder: LocationRef) -> MetricRef {
        let member = self.definitions.metric_members.push(metric.member.clone());
        let class = self.definitions.add_metric_class(MetricClass {
            members: vec![member],
            occurrence: MetricOccurrence::Asynchronous,
            recorder_kind: RecorderKind::Abstract,
            recorders: Vec::new(),
        });
        if metric.which.is_empty() {
            return class.into();
        }
        let node = self.node(&metric.node);
        let part = self.definitions.system_tree_nodes.push(SystemTreeNode {
            name: metric.which.clone(),
            class_name: COUNTED_PART.to_owned(),
            parent: Some(node),
            ..SystemTreeNode::default()
        });
        let (scope, scope_number) = (MetricScope::SystemTreeNode, part.0.into());
        let instance =
            self.definitions.add_metric_instance(MetricInstance { class, recorder, scope, scope_number });
        MetricRef { class, instance: Some(instance) }
    }
}

/// Writes the samples of the metrics that have a class in `classes`. Returns their number.
fn write_samples(
    archive: &ArchiveWriter,
    reference: LocationRef,
    spool: &Spool,
    metrics: &[SampledMetric],
    classes: &[Option<MetricRef>],
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
