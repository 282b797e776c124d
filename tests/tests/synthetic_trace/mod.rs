//! A generated trace: two ranks on two nodes, each with a second thread and three GPU streams, and counters of several kinds. It
//! is 90 s long, so that streams can be later than the limit for which the collector usually waits.

use otf2::{
    ArchiveWriter, ClockProperties, Definitions, EventWriter, Location, LocationGroup, LocationGroupRef,
    LocationGroupType, LocationRef, LocationType, MetricBase, MetricClass, MetricClassRef, MetricMember,
    MetricMode, MetricOccurrence, MetricType, MetricValue, MetricValueType, ParadigmType, RecorderKind,
    Region, RegionRef, RegionRole, SystemTreeNode, SystemTreeNodeRef,
};
use std::path::{Path, PathBuf};

/// Settings that define which metrics are devices: three energies with definitions of their own, and a power.
pub const CONFIG: &str = r#"
[[device]]
name = "GPU-$1"
metric = 'rocm_smi:::energy_count:device=(\d)'
scale = 15.3e-6
[[device]]
name = "cpu"
metric = 'cpu_energy'
delay = "20ms"
[[device]]
name = "node"
metric = 'node_power'
kind = "instantaneous"
scale = 0.5
locations = ['HIP\[1:\d\]']
ranks = [0]
"#;

pub const MAIN_OF_RANK_1: u64 = 1;
const SECONDS: u64 = 90;
/// The number is not round, and times are far from zero.
const TICKS_PER_SECOND: u64 = 1_234_567;
const OFFSET: u64 = 1 << 52;

pub struct Shape {
    /// Number of outermost calls of each main thread.
    pub calls: u64,
    pub samples: u64,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { calls: 3000, samples: 900 }
    }
}

/// A generator that returns the same sequence of numbers in each test.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

fn at(part: u64, of: u64) -> u64 {
    OFFSET + (u128::from(SECONDS * TICKS_PER_SECOND) * u128::from(part) / u128::from(of)) as u64
}

/// Writes the trace into a new directory, and returns the path of its anchor file.
pub fn write(directory: &Path, shape: &Shape) -> PathBuf {
    std::fs::create_dir_all(directory).expect("a directory");
    let archive = ArchiveWriter::create(directory).expect("an archive");
    let mut d = Definitions {
        clock: ClockProperties {
            timer_resolution: TICKS_PER_SECOND,
            global_offset: OFFSET,
            trace_length: SECONDS * TICKS_PER_SECOND + 1,
            realtime_timestamp: Some(1_700_000_000_000_000_000),
        },
        ..Definitions::default()
    };
    let regions = ["main", "solve", "MPI_Send", "kernel a", "kernel b"].map(|name| {
        let paradigm = if name.starts_with("MPI") { ParadigmType::Mpi } else { ParadigmType::Compiler };
        let role = RegionRole::Function;
        d.regions.push(Region {
            name: name.into(),
            canonical_name: name.into(),
            paradigm,
            role,
            ..Region::default()
        })
    });
    let classes = metrics(&mut d);
    for rank in 0..2u64 {
        let node = tree_node(&mut d, &format!("node{rank}"), "node", None);
        let process = group(&mut d, format!("MPI Rank {rank}"), LocationGroupType::Process, node, None);
        let mut random = Random(rank + 1);
        let location = |d: &mut Definitions, number: u64, name: String, kind, group| {
            let reference = LocationRef((number << 32) | rank);
            let location = Location { name, kind, events: 0, group: Some(group), properties: Vec::new() };
            d.locations.insert(reference, location);
            archive.event_writer(reference).expect("a location")
        };
        let main = location(&mut d, 0, "Master thread".into(), LocationType::CpuThread, process);
        main_thread(main, &regions, shape.calls, &mut random);
        let worker = location(&mut d, 1, "OMP thread 1".into(), LocationType::CpuThread, process);
        kernels(worker, &regions[1..3], 50, &mut random);
        for (number, (device, stream)) in [(0, 0), (0, 1), (1, 0)].into_iter().enumerate() {
            let below = tree_node(&mut d, &device.to_string(), "ROCm Device", Some(node));
            let name = format!("Context of device {device}");
            let context = group(&mut d, name, LocationGroupType::Accelerator, below, Some(process));
            let name = format!("HIP[{device}:{stream}]");
            let kind = LocationType::AcceleratorStream;
            let writer = location(&mut d, 2 + number as u64, name, kind, context);
            kernels(writer, &regions[3..], if stream == 1 { 3 } else { 200 }, &mut random);
        }
        let sampler = location(&mut d, 9, "sampler".into(), LocationType::Metric, process);
        samples(sampler, &classes, shape.samples, &mut random);
    }
    archive.finish(&d).expect("a trace");
    directory.join("traces.otf2")
}

fn tree_node(
    d: &mut Definitions,
    name: &str,
    class: &str,
    parent: Option<SystemTreeNodeRef>,
) -> SystemTreeNodeRef {
    let node =
        SystemTreeNode { name: name.into(), class_name: class.into(), parent, ..SystemTreeNode::default() };
    d.system_tree_nodes.push(node)
}

fn group(
    d: &mut Definitions,
    name: String,
    kind: LocationGroupType,
    node: SystemTreeNodeRef,
    creator: Option<LocationGroupRef>,
) -> LocationGroupRef {
    d.location_groups.push(LocationGroup {
        name,
        kind,
        system_tree_parent: Some(node),
        creating_location_group: creator,
        properties: Vec::new(),
    })
}

/// Defines the metrics: two energies in ticks of their own, an energy as a floating-point number, a power, and a temperature.
fn metrics(d: &mut Definitions) -> Vec<MetricClassRef> {
    use MetricValueType::{F64, I64, U64};
    let all = [
        ("rocm_smi:::energy_count:device=0", "#", U64),
        ("rocm_smi:::energy_count:device=1", "#", I64),
        ("cpu_energy", "J", F64),
        ("node_power", "W", U64),
        ("temperature", "C", U64),
    ];
    let classes = all.map(|(name, unit, value_type)| {
        let member = d.metric_members.push(MetricMember {
            name: name.into(),
            description: String::new(),
            kind: MetricType::Other,
            mode: MetricMode::AccumulatedStart,
            value_type,
            base: MetricBase::Decimal,
            exponent: 0,
            unit: unit.into(),
        });
        d.add_metric_class(MetricClass {
            members: vec![member],
            occurrence: MetricOccurrence::Asynchronous,
            recorder_kind: RecorderKind::Abstract,
            recorders: Vec::new(),
        })
    });
    classes.to_vec()
}

/// Writes `main`, and nested calls inside it.
fn main_thread(mut writer: EventWriter, regions: &[RegionRef], calls: u64, random: &mut Random) {
    let mut write = |time, enter, region| {
        let written = if enter { writer.enter(time, region) } else { writer.leave(time, region) };
        written.expect("an event");
    };
    write(at(0, 1), true, regions[0]);
    for call in 0..calls {
        let slot = |part| at(call * 10 + part, calls * 10);
        write(slot(1), true, regions[1]);
        write(slot(2 + random.below(3)), true, regions[2]);
        write(slot(5 + random.below(2)), false, regions[2]);
        write(slot(7 + random.below(3)), false, regions[1]);
    }
    write(at(1, 1), false, regions[0]);
    writer.close().expect("a location");
}

fn kernels(mut writer: EventWriter, regions: &[RegionRef], count: u64, random: &mut Random) {
    for kernel in 0..count {
        let region = regions[random.below(2) as usize];
        let slot = |part| at(kernel * 10 + part, count * 10);
        writer.enter(slot(random.below(4)), region).expect("an event");
        writer.leave(slot(4 + random.below(6)), region).expect("an event");
    }
    writer.close().expect("a location");
}

fn samples(mut writer: EventWriter, classes: &[MetricClassRef], count: u64, random: &mut Random) {
    let (mut ticks, mut joules) = ([1u64 << 40, 77], 0.0);
    for sample in 0..count {
        let time = at(sample * 10 + random.below(10), count * 10);
        for (which, class) in classes.iter().enumerate() {
            let value = match which {
                0 | 1 => {
                    ticks[which] += random.below(1_000_000);
                    if which == 0 { MetricValue::U64(ticks[0]) } else { MetricValue::I64(ticks[1] as i64) }
                }
                2 => {
                    joules += random.below(1000) as f64 / 7.0;
                    MetricValue::F64(joules)
                }
                _ => MetricValue::U64(200 + random.below(300)),
            };
            writer.metric(time, *class, &[value]).expect("a sample");
        }
    }
    writer.close().expect("a location");
}
