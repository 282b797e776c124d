//! Code that the tests share: a handler that collects events, a small trace, and the path of a recorded trace.
#![allow(dead_code)]

use otf2::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Enter(RegionRef),
    Leave(RegionRef),
    Metric(MetricRef, Vec<MetricValue>),
    Other(&'static str),
}

/// Keeps all events in the order in which they were delivered.
#[derive(Default)]
pub struct Collect {
    pub events: Vec<(LocationRef, u64, Event)>,
    pub others: bool,
    pub stop_after: Option<usize>,
}

impl Collect {
    fn push(&mut self, location: LocationRef, time: u64, event: Event) -> Flow {
        self.events.push((location, time, event));
        match self.stop_after {
            Some(limit) if self.events.len() >= limit => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    pub fn of(&self, location: LocationRef) -> Vec<(u64, Event)> {
        let own = self.events.iter().filter(|(of, ..)| *of == location);
        own.map(|(_, time, event)| (*time, event.clone())).collect()
    }

    pub fn counts(&self) -> BTreeMap<LocationRef, u64> {
        let mut counts = BTreeMap::new();
        for (location, ..) in &self.events {
            *counts.entry(*location).or_default() += 1;
        }
        counts
    }

    /// Checks that the events are sorted by time, and those of the same time by location.
    pub fn assert_ordered(&self) {
        for pair in self.events.windows(2) {
            assert!((pair[0].1, pair[0].0) <= (pair[1].1, pair[1].0), "{pair:?}");
        }
    }
}

impl EventHandler for Collect {
    fn enter(&mut self, location: LocationRef, time: u64, region: RegionRef, _: Option<u64>) -> Flow {
        self.push(location, time, Event::Enter(region))
    }
    fn leave(&mut self, location: LocationRef, time: u64, region: RegionRef) -> Flow {
        self.push(location, time, Event::Leave(region))
    }
    fn metric(
        &mut self,
        location: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> Flow {
        self.push(location, time, Event::Metric(metric, values.to_vec()))
    }
    fn wants_other(&self) -> bool {
        self.others
    }
    fn other(&mut self, location: LocationRef, time: u64, name: &'static str) -> Flow {
        self.push(location, time, Event::Other(name))
    }
}

pub fn read(directory: &Path) -> (Trace, Collect, ReadReport) {
    let mut trace = Trace::open(&directory.join("traces.otf2")).expect("opens");
    let mut events = Collect::default();
    let report = trace.read_events(&mut events).expect("reads");
    (trace, events, report)
}

/// Two CPU locations and a GPU stream with a metric.
pub fn definitions() -> Definitions {
    let clock = ClockProperties {
        timer_resolution: 1_000_000_000,
        global_offset: 5,
        trace_length: 1_000_000,
        realtime_timestamp: Some(1_700_000_000_000_000_000),
    };
    let mut d = Definitions { clock, ..Definitions::default() };
    d.paradigms.push(Paradigm {
        paradigm: ParadigmType::Mpi,
        name: "MPI".into(),
        class: ParadigmClass::Process,
    });
    let machine = d.system_tree_nodes.push(SystemTreeNode {
        name: "frontier".into(),
        class_name: "machine".into(),
        domains: vec![SystemTreeDomain::Machine],
        ..Default::default()
    });
    let node = d.system_tree_nodes.push(SystemTreeNode {
        name: "node 1".into(),
        class_name: "node".into(),
        parent: Some(machine),
        domains: vec![SystemTreeDomain::SharedMemory],
        properties: vec![Property { name: "cabinet".into(), value: PropertyValue::String("x1".into()) }],
    });
    for (number, rank) in ["MPI Rank 0", "MPI Rank 1"].into_iter().enumerate() {
        let group = d.location_groups.push(LocationGroup {
            name: rank.into(),
            kind: LocationGroupType::Process,
            system_tree_parent: Some(node),
            ..Default::default()
        });
        d.locations.push(Location {
            name: "Master thread".into(),
            kind: LocationType::CpuThread,
            group: Some(group),
            properties: vec![Property { name: "MPI rank".into(), value: PropertyValue::U64(number as u64) }],
            ..Default::default()
        });
    }
    let gpu = d.location_groups.push(LocationGroup {
        name: "ROCm Context 0".into(),
        kind: LocationGroupType::Accelerator,
        system_tree_parent: Some(node),
        creating_location_group: Some(LocationGroupRef(0)),
        ..Default::default()
    });
    let stream = LocationRef(1 << 32 | 7);
    d.locations.insert(
        stream,
        Location {
            name: "HIP[0:7]".into(),
            kind: LocationType::AcceleratorStream,
            group: Some(gpu),
            ..Default::default()
        },
    );
    for name in ["main", "solve<double>(int)", "MPI_Allreduce"] {
        d.regions.push(Region {
            name: name.into(),
            canonical_name: format!("_Z{name}"),
            role: RegionRole::Function,
            paradigm: ParadigmType::Compiler,
            source_file: (name == "main").then(|| "/src/main.c".into()),
            begin_line: 3,
            end_line: 9,
            ..Default::default()
        });
    }
    let energy = d.metric_members.push(MetricMember {
        name: "energy".into(),
        description: "of the package".into(),
        kind: MetricType::Other,
        mode: MetricMode::AccumulatedStart,
        value_type: MetricValueType::U64,
        base: MetricBase::Decimal,
        exponent: -6,
        unit: "J".into(),
    });
    let power = d.metric_members.push(MetricMember {
        name: "power".into(),
        mode: MetricMode::AbsolutePoint,
        value_type: MetricValueType::F64,
        base: MetricBase::Decimal,
        unit: "W".into(),
        ..Default::default()
    });
    let class = d.add_metric_class(MetricClass {
        members: vec![energy, power],
        occurrence: MetricOccurrence::Asynchronous,
        recorder_kind: RecorderKind::Gpu,
        recorders: vec![stream],
    });
    d.add_metric_instance(MetricInstance {
        class,
        recorder: stream,
        scope: MetricScope::SystemTreeNode,
        scope_number: 1,
    });
    d.add_mpi_world(&[LocationRef(0), LocationRef(1)]);
    d
}

pub const STREAM: LocationRef = LocationRef(1 << 32 | 7);
pub const CLASS: MetricClassRef = MetricClassRef(0);
pub const INSTANCE: MetricRef = MetricRef { class: CLASS, instance: Some(MetricInstanceRef(1)) };

/// Writes `calls` pairs of enter and leave on each CPU location and as many samples on the stream. Returns the definitions, with
/// the number of events of each location.
pub fn write(directory: &Path, calls: u64) -> Definitions {
    let archive = ArchiveWriter::create(directory).unwrap();
    archive.set_creator("otf2 tests").unwrap();
    archive.set_machine_name("frontier").unwrap();
    archive.set_description("a test").unwrap();
    let mut first = archive.event_writer(LocationRef(0)).unwrap();
    let mut second = archive.event_writer(LocationRef(1)).unwrap();
    let mut stream = archive.event_writer(STREAM).unwrap();
    for i in 0..calls {
        let time = 10 + 100 * i;
        let region = RegionRef((i % 3) as u32);
        first.enter(time, region).unwrap();
        first.leave(time + 50, region).unwrap();
        second.enter(time, region).unwrap();
        second.leave(time + 70, region).unwrap();
        let metric = if i % 2 == 0 { CLASS.into() } else { INSTANCE };
        stream.metric(time + 60, metric, &[MetricValue::U64(i), MetricValue::F64(0.5 * i as f64)]).unwrap();
    }
    assert_eq!(first.close().unwrap(), 2 * calls);
    assert_eq!(second.close().unwrap(), 2 * calls);
    assert_eq!(stream.close().unwrap(), calls);
    let definitions = definitions();
    archive.finish(&definitions).unwrap();
    definitions
}

/// Returns the recorded trace of a real run, if it is available.
pub fn real_trace() -> Option<PathBuf> {
    let next_to =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/mi300a-two-kernels/traces.otf2");
    next_to.exists().then_some(next_to)
}

/// Returns the output of a program; `None` if it is not installed.
pub fn output(program: &str, arguments: &[&str]) -> Option<(String, String)> {
    let output = match std::process::Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("{program}: {error}"),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
    Some((stdout, stderr))
}
