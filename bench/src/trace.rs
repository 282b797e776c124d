//! Generated traces: ranks that enter and leave regions, and energy counters that are sampled every millisecond.

use otf2::{
    ArchiveWriter, ClockProperties, CommRef, Communication, Definitions, LocationGroup, LocationGroupType,
    LocationRef, LocationType, MetricBase, MetricClass, MetricClassRef, MetricMember, MetricMode,
    MetricOccurrence, MetricType, MetricValueType, ParadigmType, RecorderKind, RegionRef, RegionRole,
    SystemTreeNode, SystemTreeNodeRef,
};
use std::path::{Path, PathBuf};

/// A tick is a nanosecond.
const TICKS_PER_SECOND: u64 = 1_000_000_000;
const SAMPLE_TICKS: u64 = 1_000_000;
/// The communicator of all ranks, in traces with communication.
pub const WORLD: CommRef = CommRef(0);
/// The counters are in nanojoules, so this is a power of 100 W.
const NANOJOULES_PER_SAMPLE: u64 = 100_000_000;

pub struct Shape {
    pub ranks: u64,
    pub regions: u32,
    pub devices: u64,
    /// Ranks and devices are assigned to nodes in turn.
    pub nodes: u64,
}

pub struct Written {
    pub anchor: PathBuf,
    /// Number of events of the ranks: enters and leaves, and communication if there is any.
    pub rank_events: u64,
    pub samples: u64,
}

pub enum Event {
    Enter(u64, u32),
    Leave(u64, u32),
    Communicate(u64, Communication),
}

impl Shape {
    /// Writes a trace with these events on each rank, in constant memory. If the ranks communicate, all regions are MPI's.
    pub fn write<I: Iterator<Item = Event>>(
        &self,
        directory: &Path,
        events_of: impl Fn(u64) -> I,
    ) -> Result<Written, otf2::Error> {
        let archive = ArchiveWriter::create(directory)?;
        let mut definitions = Definitions::default();
        let mut last = 0;
        let mut rank_events = 0;
        let mut samples = 0;
        let nodes: Vec<_> = (0..self.nodes).map(|node| add_node(&mut definitions, node)).collect();
        let node_of = |number: u64| nodes[(number % self.nodes) as usize];
        let mut paradigm = ParadigmType::Compiler;
        for rank in 0..self.ranks {
            let mut writer = archive.event_writer(LocationRef(rank))?;
            for event in events_of(rank) {
                match event {
                    Event::Enter(time, region) => {
                        writer.enter(time, RegionRef(region))?;
                        last = last.max(time);
                    }
                    Event::Leave(time, region) => {
                        writer.leave(time, RegionRef(region))?;
                        last = last.max(time);
                    }
                    Event::Communicate(time, event) => {
                        writer.communication(time, event)?;
                        paradigm = ParadigmType::Mpi;
                    }
                }
            }
            let events = writer.close()?;
            rank_events += events;
            add_location(&mut definitions, rank, LocationType::CpuThread, events, node_of(rank));
        }
        (0..self.regions).for_each(|number| add_region(&mut definitions, number, paradigm));
        if paradigm == ParadigmType::Mpi {
            definitions.add_mpi_world(&(0..self.ranks).map(LocationRef).collect::<Vec<_>>());
        }
        for device in 0..self.devices {
            let class = add_counter(&mut definitions, device);
            let location = self.ranks + device;
            let mut writer = archive.event_writer(LocationRef(location))?;
            for sample in 0..=last / SAMPLE_TICKS {
                writer.metric_u64(sample * SAMPLE_TICKS, class, sample * NANOJOULES_PER_SAMPLE)?;
            }
            let events = writer.close()?;
            samples += events;
            add_location(&mut definitions, location, LocationType::Metric, events, node_of(device));
        }
        definitions.clock = ClockProperties {
            timer_resolution: TICKS_PER_SECOND,
            global_offset: 0,
            trace_length: last,
            realtime_timestamp: None,
        };
        archive.finish(&definitions)?;
        Ok(Written { anchor: directory.join("traces.otf2"), rank_events, samples })
    }
}

fn add_region(definitions: &mut Definitions, number: u32, paradigm: ParadigmType) {
    definitions.regions.push(otf2::Region {
        name: format!("function {number}"),
        canonical_name: format!("function {number}"),
        description: String::new(),
        role: RegionRole::Function,
        paradigm,
        flags: 0,
        source_file: None,
        begin_line: 0,
        end_line: 0,
    });
}

fn add_node(definitions: &mut Definitions, number: u64) -> SystemTreeNodeRef {
    definitions.system_tree_nodes.push(SystemTreeNode {
        name: format!("node{number}"),
        class_name: "node".to_owned(),
        ..SystemTreeNode::default()
    })
}

fn add_location(
    definitions: &mut Definitions,
    number: u64,
    kind: LocationType,
    events: u64,
    node: SystemTreeNodeRef,
) {
    let group = definitions.location_groups.push(LocationGroup {
        name: format!("MPI Rank {number}"),
        kind: LocationGroupType::Process,
        system_tree_parent: Some(node),
        creating_location_group: None,
        properties: Vec::new(),
    });
    let location = otf2::Location {
        name: "Master thread".to_owned(),
        kind,
        events,
        group: Some(group),
        properties: Vec::new(),
    };
    definitions.locations.insert(LocationRef(number), location);
}

fn add_counter(definitions: &mut Definitions, number: u64) -> MetricClassRef {
    let member = definitions.metric_members.push(MetricMember {
        name: format!("bench:::energy:device={number}"),
        description: String::new(),
        kind: MetricType::Other,
        mode: MetricMode::AccumulatedStart,
        value_type: MetricValueType::U64,
        base: MetricBase::Decimal,
        exponent: -9,
        unit: "J".to_owned(),
    });
    definitions.add_metric_class(MetricClass {
        members: vec![member],
        occurrence: MetricOccurrence::Asynchronous,
        recorder_kind: RecorderKind::Abstract,
        recorders: Vec::new(),
    })
}

/// The events of one rank that has a great many call paths, one after the other.
pub struct ManyPaths {
    time: u64,
    /// Number of the innermost call. Its frames are entered, and then left.
    call: u32,
    step: u32,
    remaining: u64,
}

impl ManyPaths {
    const DEPTH: u32 = 5;
    const CALLEES: u32 = 7;
    pub const REGIONS: u32 = ManyPaths::DEPTH * ManyPaths::CALLEES;
    /// With their callers, these calls have 12,503 call paths.
    const INNERMOST: u32 = 10_716;

    pub fn new(rank: u64, events: u64) -> ManyPaths {
        ManyPaths { time: rank, call: 0, step: 0, remaining: events / u64::from(2 * ManyPaths::DEPTH) }
    }

    /// The region at a depth, given by a digit of the call's number.
    fn region(&self, depth: u32) -> u32 {
        let digit = self.call / ManyPaths::CALLEES.pow(ManyPaths::DEPTH - 1 - depth) % ManyPaths::CALLEES;
        depth * ManyPaths::CALLEES + digit
    }
}

impl Iterator for ManyPaths {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if self.remaining == 0 {
            return None;
        }
        self.time += MEAN_TICKS;
        let step = self.step;
        let event = match step < ManyPaths::DEPTH {
            true => Event::Enter(self.time, self.region(step)),
            false => Event::Leave(self.time, self.region(2 * ManyPaths::DEPTH - 1 - step)),
        };
        self.step += 1;
        if self.step == 2 * ManyPaths::DEPTH {
            (self.step, self.remaining) = (0, self.remaining - 1);
            self.call = (self.call + 1) % ManyPaths::INNERMOST;
        }
        Some(event)
    }
}

/// The events of one rank of a realistic program: calls of irregular length, up to 20 frames deep, with a few hundred call paths
/// that repeat.
pub struct Walk {
    random: u64,
    time: u64,
    stack: Vec<u32>,
    remaining: u64,
}

impl Walk {
    pub const REGIONS: u32 = DEPTH * CALLEES;

    pub fn new(rank: u64, events: u64) -> Walk {
        Walk { random: rank + 1, time: 0, stack: Vec::new(), remaining: events }
    }

    /// Returns a random number by Marsaglia's xorshift.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

const DEPTH: u32 = 20;
const CALLEES: u32 = 3;
/// A function calls more than one other function only if its depth is a multiple of this number. Otherwise there would be more
/// call paths than programs usually have.
const BRANCH_EVERY: u32 = 4;
/// Mean number of ticks between two events, so that there are 100 events between two samples.
const MEAN_TICKS: u64 = 10_000;

impl Iterator for Walk {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let depth = self.stack.len() as u32;
        self.remaining = self.remaining.checked_sub(1).or_else(|| (depth > 0).then_some(0))?;
        let random = self.random();
        self.time += 1 + random % (2 * MEAN_TICKS);
        let deeper = depth == 0 || (depth < DEPTH && random >> 63 == 0);
        // A call is only entered if enough events remain to leave all frames.
        if deeper && self.remaining > u64::from(depth) {
            let callee = if depth.is_multiple_of(BRANCH_EVERY) { (random >> 32) as u32 % CALLEES } else { 0 };
            let region = depth * CALLEES + callee;
            self.stack.push(region);
            return Some(Event::Enter(self.time, region));
        }
        // At the end all frames are left.
        self.stack.pop().map(|region| Event::Leave(self.time, region))
    }
}
