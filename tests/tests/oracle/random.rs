//! A small random trace with everything for which the definition has a rule, and the input for its attribution.

use ampere_tests::random::Random;
use otf2::{
    ArchiveWriter, Definitions, EventWriter, LocationGroup, LocationGroupRef, LocationGroupType, LocationRef,
    LocationType, MetricBase, MetricClass, MetricClassRef, MetricMember, MetricMode, MetricOccurrence,
    MetricType, MetricValue, MetricValueType, RecorderKind, RegionRef, SystemTreeNode, SystemTreeNodeRef,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// A counter of a node, its names in both configurations, and its consumers.
struct Device {
    name: String,
    node: String,
    metric: String,
    /// The scale in the configuration, or `None` if the metric's definition has it.
    scale: Option<f64>,
    unit: Unit,
    mode: MetricMode,
    instantaneous: bool,
    /// Whether `kind` is configured. A unit determines it as well.
    kind_is_configured: bool,
    value: MetricValueType,
    /// The rank that records the counter, if each rank has its own of this name, or if all record the same one.
    recorder: Option<u32>,
    /// Whether consumers are found automatically and not configured.
    found: bool,
    /// The numbers of the ranks whose main threads are its consumers.
    ranks: Vec<u32>,
    streams: Vec<String>,
    /// If the device is a GPU: the streams whose process is known, with its rank.
    kernels: Vec<(u32, String)>,
}

/// Unit, base and exponent of a metric.
type Unit = (&'static str, MetricBase, i64);

const NO_UNIT: Unit = ("", MetricBase::Decimal, 0);
/// The exponents are small enough that no value is higher than a device can reach.
const ENERGIES: [Unit; 6] = [
    ("uJ", MetricBase::Decimal, 0),
    ("nJ", MetricBase::Decimal, 2),
    (" J ", MetricBase::Binary, -22),
    ("kJ", MetricBase::Decimal, -9),
    ("", MetricBase::Decimal, -6),
    ("#", MetricBase::Binary, -21),
];
const POWERS: [Unit; 6] = [
    ("uW", MetricBase::Decimal, 0),
    ("mW", MetricBase::Decimal, -3),
    ("W", MetricBase::Binary, -20),
    ("kW", MetricBase::Decimal, -9),
    ("MW", MetricBase::Decimal, -12),
    ("#", MetricBase::Decimal, -6),
];

/// Who records GPU 0 of a node.
#[derive(Clone, Copy, PartialEq)]
enum Recorders {
    /// A sampler, which also records all other devices.
    Node,
    /// Each rank records its own GPU.
    Own,
    /// All ranks record the same counter, each from a zero of its own.
    Same,
}

pub struct Generated {
    /// The settings for `ampere attribute --config`.
    pub toml: String,
    /// The input of the oracle: see [`json_of`].
    pub json: Value,
    pub policy: &'static str,
}

const NAMES: [&str; 5] = ["main", "solve", "MPI_Send", "kernel<int, 4>(float*)", "f"];

pub fn write(random: &mut Random, directory: &Path) -> Result<Generated, otf2::Error> {
    let archive = ArchiveWriter::create(directory)?;
    let mut trace = Trace::new(random, archive);
    let policy = *random.choose(&["time_sliced", "busy_only", "active"]);
    // CPU times may be in the trace whatever the policy is, and only some threads have them.
    trace.cpu_time = (policy == "active" || random.one_in(4)).then(|| trace.cpu_time_class());
    let mut devices = Vec::new();
    let mut rank = 0;
    for node in 0..1 + random.below(2) {
        let name = format!("node{node}");
        let tree = trace.node(&name);
        let ranks: Vec<u32> = (rank..).take(1 + random.below(3) as usize).collect();
        rank += ranks.len() as u32;
        let recorders = *random.choose(&[Recorders::Node, Recorders::Own, Recorders::Same]);
        let mut groups = Vec::new();
        for rank in &ranks {
            let group = trace.group(tree, format!("MPI Rank {rank}"), LocationGroupType::Process);
            groups.push(group);
            trace.calls(random, group, "Master thread", LocationType::CpuThread)?;
            if random.one_in(3) {
                trace.calls(random, group, "OMP thread 1", LocationType::CpuThread)?;
            }
            if random.one_in(3) {
                trace.frameless_thread(random, group)?;
            }
        }
        let gpus = if recorders == Recorders::Node { random.below(3) } else { 0 };
        let (mut streams, mut kernels) = (Vec::new(), Vec::new());
        for gpu in 0..gpus {
            let creator = random.below(2 * ranks.len() as u64) as usize;
            let context = LocationGroup {
                name: format!("HIP Context {gpu}"),
                kind: LocationGroupType::Accelerator,
                system_tree_parent: Some(tree),
                creating_location_group: groups.get(creator).copied(),
                ..Default::default()
            };
            // Some tools put streams into the group of their process.
            let own = groups.get(creator).filter(|_| random.one_in(3)).copied();
            let group = own.unwrap_or_else(|| trace.definitions.location_groups.push(context));
            for stream in 0..1 + random.below(3) {
                let name = format!("HIP[{gpu}:{stream}]");
                trace.calls(random, group, &name, LocationType::AcceleratorStream)?;
                kernels.extend(ranks.get(creator).map(|rank| (gpu, (*rank, name.clone()))));
                streams.push((gpu, name));
            }
        }
        let of_gpu = |gpu: u64| streams.iter().filter(|(g, _)| *g == gpu).map(|(_, s)| s.clone()).collect();
        for gpu in 0..gpus {
            devices.push(Device {
                name: format!("{name}-GPU-{gpu}"),
                node: name.clone(),
                metric: format!("A2rocm_smi:::energy_count:device={gpu}"),
                scale: Some(1e-6),
                unit: NO_UNIT,
                mode: MetricMode::AccumulatedStart,
                instantaneous: false,
                kind_is_configured: true,
                value: MetricValueType::U64,
                recorder: None,
                found: false,
                ranks: ranks.clone(),
                streams: of_gpu(gpu),
                kernels: kernels.iter().filter(|(g, _)| *g == gpu).map(|(_, of)| of.clone()).collect(),
            });
        }
        if recorders != Recorders::Node {
            let own = recorders == Recorders::Own;
            devices.extend(trace.recorded_by_ranks(random, tree, &name, &ranks, &groups, own)?);
        }
        if gpus == 0 || random.one_in(2) {
            use MetricMode::{AbsoluteLast, AbsoluteNext, AbsolutePoint, AccumulatedStart};
            let (instantaneous, configured) = (random.one_in(2), random.one_in(2));
            let unit = *random.choose(if instantaneous { &POWERS } else { &ENERGIES });
            let modes = if instantaneous {
                &[AbsoluteLast, AbsoluteNext, AbsolutePoint, AccumulatedStart]
            } else {
                &[AccumulatedStart; 4]
            };
            devices.push(Device {
                name: format!("{name}-other"),
                node: name.clone(),
                metric: "anything at all".to_owned(),
                scale: configured.then(|| *random.choose(&[1.0, 1e-9, 0.25, 1e6])),
                unit: if configured { NO_UNIT } else { unit },
                mode: *random.choose(modes),
                instantaneous,
                kind_is_configured: configured || unit.0 == "#" || random.one_in(2),
                value: *random.choose(&[MetricValueType::U64, MetricValueType::I64, MetricValueType::F64]),
                recorder: None,
                found: false,
                ranks: ranks.iter().copied().filter(|_| !random.one_in(4)).collect(),
                streams: streams.iter().map(|(_, s)| s.clone()).filter(|_| random.one_in(2)).collect(),
                kernels: Vec::new(),
            });
        }
        trace.samples(random, tree, &devices, &name)?;
    }
    let baselines: Vec<f64> =
        devices.iter().map(|_| *random.choose(&[0.0, 1e-3, 0.3, 20.0, 1e3, 1e6])).collect();
    trace.archive.finish(&trace.definitions)?;
    Ok(Generated { toml: toml(&devices, &baselines), json: json_of(&devices, &baselines), policy })
}

struct Trace {
    archive: ArchiveWriter,
    definitions: Definitions,
    next: u64,
    /// Nothing happens before this time, and sampling starts around it.
    start: u64,
    step: u64,
    /// The metric of locations' CPU times, if the trace has it.
    cpu_time: Option<MetricClassRef>,
}

impl Trace {
    fn new(random: &mut Random, archive: ArchiveWriter) -> Trace {
        let mut definitions = Definitions::default();
        definitions.clock.timer_resolution = *random.choose(&[1000, 1_000_000, 1_000_000_000, 2_100_000_000]);
        for name in NAMES {
            let region =
                otf2::Region { name: name.into(), canonical_name: name.into(), ..Default::default() };
            definitions.regions.push(region);
        }
        let start = *random.choose(&[1000, 1_000_000_000, 1 << 53, (1 << 63) + 12345]);
        let step = *random.choose(&[1, 3, 1000, 1_000_003]);
        Trace { archive, definitions, next: 0, start, step, cpu_time: None }
    }

    fn node(&mut self, name: &str) -> SystemTreeNodeRef {
        let node = SystemTreeNode { name: name.into(), class_name: "node".into(), ..Default::default() };
        self.definitions.system_tree_nodes.push(node)
    }

    fn group(&mut self, node: SystemTreeNodeRef, name: String, kind: LocationGroupType) -> LocationGroupRef {
        let group = LocationGroup { name, kind, system_tree_parent: Some(node), ..Default::default() };
        self.definitions.location_groups.push(group)
    }

    fn location(
        &mut self,
        group: LocationGroupRef,
        name: &str,
        kind: LocationType,
        events: impl FnOnce(&mut EventWriter) -> Result<(), otf2::Error>,
    ) -> Result<(), otf2::Error> {
        let reference = LocationRef(self.next);
        self.next += 1;
        let mut writer = self.archive.event_writer(reference)?;
        events(&mut writer)?;
        let events = writer.close()?;
        let location =
            otf2::Location { name: name.into(), kind, events, group: Some(group), ..Default::default() };
        self.definitions.locations.insert(reference, location);
        Ok(())
    }

    /// Writes frames of all durations, including zero; recursion; pauses without any frame; and sometimes leaves without
    /// enters.
    fn calls(
        &mut self,
        random: &mut Random,
        group: LocationGroupRef,
        name: &str,
        kind: LocationType,
    ) -> Result<(), otf2::Error> {
        let (mut time, step) = (self.start - random.below(100), self.step);
        let count = random.below(80);
        let cpu_time = self.cpu_time.filter(|_| kind == LocationType::CpuThread && !random.one_in(4));
        let mut cpu_time = cpu_time.map(|class| CpuTime::new(class, time, self.nanoseconds_per_tick()));
        self.location(group, name, kind, |writer| {
            let mut stack = Vec::new();
            for _ in 0..count {
                time += if random.one_in(3) { 0 } else { random.below(20) * step };
                if let Some(cpu_time) = &mut cpu_time
                    && random.one_in(2)
                {
                    cpu_time.write(random, time, writer)?;
                }
                let deeper = random.below(6) >= stack.len() as u64;
                if deeper {
                    stack.push(RegionRef(random.below(NAMES.len() as u64) as u32));
                    writer.enter(time, stack[stack.len() - 1])?;
                } else if let Some(region) = stack.pop() {
                    writer.leave(time, region)?;
                }
            }
            for region in stack.into_iter().rev() {
                writer.leave(time, region)?;
                time += random.below(3) * step;
            }
            if random.one_in(5) {
                writer.leave(time, RegionRef(0))?;
            }
            Ok(())
        })
    }

    /// Writes a thread of which only the CPU time is known.
    fn frameless_thread(&mut self, random: &mut Random, group: LocationGroupRef) -> Result<(), otf2::Error> {
        let Some(class) = self.cpu_time else { return Ok(()) };
        let (mut time, step) = (self.start - random.below(100), self.step);
        let mut cpu_time = CpuTime::new(class, time, self.nanoseconds_per_tick());
        let count = 1 + random.below(80);
        self.location(group, "worker", LocationType::CpuThread, |writer| {
            for _ in 0..count {
                time += random.below(20) * step;
                cpu_time.write(random, time, writer)?;
            }
            Ok(())
        })
    }

    fn nanoseconds_per_tick(&self) -> f64 {
        1e9 / self.definitions.clock.timer_resolution as f64
    }

    fn cpu_time_class(&mut self) -> MetricClassRef {
        let member = self.definitions.metric_members.push(MetricMember {
            name: CPU_TIME.to_owned(),
            description: String::new(),
            kind: MetricType::Other,
            mode: MetricMode::AccumulatedStart,
            value_type: MetricValueType::U64,
            base: MetricBase::Decimal,
            exponent: -9,
            unit: "s".to_owned(),
        });
        self.definitions.add_metric_class(MetricClass {
            members: vec![member],
            occurrence: MetricOccurrence::Asynchronous,
            recorder_kind: RecorderKind::Abstract,
            recorders: Vec::new(),
        })
    }

    /// Adds a GPU of this name for each rank, or one for all. Its samples are on a location of each rank.
    fn recorded_by_ranks(
        &mut self,
        random: &mut Random,
        node: SystemTreeNodeRef,
        name: &str,
        ranks: &[u32],
        groups: &[LocationGroupRef],
        own: bool,
    ) -> Result<Vec<Device>, otf2::Error> {
        let device = |rank: u32, ranks: &[u32], streams: Vec<String>| Device {
            name: match own && groups.len() > 1 {
                true => format!("{name}-GPU@rank {rank}"),
                false => format!("{name}-GPU"),
            },
            node: name.to_owned(),
            metric: "A2rocm_smi:::energy_count:device=0".to_owned(),
            scale: None,
            unit: ("uJ", MetricBase::Decimal, 0),
            mode: MetricMode::AccumulatedStart,
            instantaneous: false,
            kind_is_configured: false,
            value: MetricValueType::U64,
            recorder: Some(rank),
            found: true,
            ranks: ranks.to_vec(),
            kernels: streams.iter().map(|stream| (rank, stream.clone())).collect(),
            streams,
        };
        let mut devices = Vec::new();
        // All ranks that share a counter read these values, which rise steadily enough for the same counter to be recognised.
        let (mut time, mut value) = (self.start - random.below(100), 17);
        let shared: Vec<(u64, u64)> = (0..60)
            .map(|_| {
                time += (10 + random.below(20)) * self.step;
                value += 400_000 + random.below(100_000);
                (time, value)
            })
            .collect();
        for (at, (rank, process)) in ranks.iter().zip(groups).enumerate() {
            let mut streams = Vec::new();
            if own {
                let name = format!("HIP Context of rank {rank}");
                let context = LocationGroup {
                    name: name.clone(),
                    kind: LocationGroupType::Accelerator,
                    system_tree_parent: Some(node),
                    creating_location_group: Some(*process),
                    ..Default::default()
                };
                let context = self.definitions.location_groups.push(context);
                self.calls(random, context, "HIP[0:0]", LocationType::AcceleratorStream)?;
                streams.push(format!("{name}/HIP[0:0]"));
            }
            let consumers = if own { &ranks[at..=at] } else { ranks };
            let device = device(*rank, consumers, streams);
            let class = self.metric(&device);
            let last = self.start + random.below(1200) * self.step;
            let first = self.start - random.below(200);
            let mut counter = Sampled::new(random, &device, class, first, last);
            // The steps differ enough for these counters not to be recognised as the same one.
            counter.largest_step = 200_000 * 5u64.pow(at as u32);
            counter.value = counter.value.max(first_value_min(counter.largest_step));
            let (step, offset) = (self.step, at as u64);
            self.location(*process, "sampler", LocationType::Metric, |writer| {
                if !own {
                    return shared.iter().try_for_each(|(time, value)| {
                        writer.metric(time + offset, class, &[MetricValue::U64(value + (offset << 40))])
                    });
                }
                while counter.time <= counter.last {
                    let value = counter.read(random);
                    writer.metric(counter.time, class, &[value])?;
                    counter.time += (1 + random.below(60)) * step;
                }
                Ok(())
            })?;
            if own || at == 0 {
                devices.push(device);
            }
        }
        Ok(devices)
    }

    /// Writes the devices of a node on one location.
    fn samples(
        &mut self,
        random: &mut Random,
        node: SystemTreeNodeRef,
        devices: &[Device],
        name: &str,
    ) -> Result<(), otf2::Error> {
        let mut counters: Vec<Sampled> = Vec::new();
        for device in devices.iter().filter(|device| device.node == name && device.recorder.is_none()) {
            let class = self.metric(device);
            // Sampling starts before or after the first frame, and ends before or after the last one.
            let last = self.start + random.below(1200) * self.step;
            let first = self.start - random.below(200);
            counters.push(Sampled::new(random, device, class, first, last));
        }
        let group = self.group(node, format!("samplers of {name}"), LocationGroupType::Process);
        let step = self.step;
        self.location(group, "sampler", LocationType::Metric, |writer| {
            // The events of one location must be in order.
            while let Some(next) = counters.iter_mut().filter(|c| c.time <= c.last).min_by_key(|c| c.time) {
                let value = next.read(random);
                writer.metric(next.time, next.class, &[value])?;
                // There may be two samples at the same time, but not at the start, for which the definition has no rule.
                let at_once = next.samples > 1 && random.one_in(15);
                next.time += if at_once { 0 } else { (1 + random.below(60)) * step };
            }
            Ok(())
        })
    }

    fn metric(&mut self, device: &Device) -> MetricClassRef {
        // Every node has its own definitions of the same name, as in Score-P's traces.
        let member = self.definitions.metric_members.push(MetricMember {
            name: device.metric.clone(),
            description: String::new(),
            kind: MetricType::Other,
            mode: device.mode,
            value_type: device.value,
            base: device.unit.1,
            exponent: device.unit.2,
            unit: device.unit.0.to_owned(),
        });
        self.definitions.add_metric_class(MetricClass {
            members: vec![member],
            occurrence: MetricOccurrence::Asynchronous,
            recorder_kind: RecorderKind::Abstract,
            recorders: Vec::new(),
        })
    }
}

const CPU_TIME: &str = "ampere::cpu_time";

/// The CPU time of a location while its points are written.
struct CpuTime {
    class: MetricClassRef,
    last: u64,
    nanoseconds: u64,
    nanoseconds_per_tick: f64,
}

impl CpuTime {
    fn new(class: MetricClassRef, start: u64, nanoseconds_per_tick: f64) -> CpuTime {
        CpuTime { class, last: start, nanoseconds: 0, nanoseconds_per_tick }
    }

    /// Writes a point at `time`: since the last one the thread ran all of the time, none of it, or a part.
    fn write(&mut self, random: &mut Random, time: u64, writer: &mut EventWriter) -> Result<(), otf2::Error> {
        let whole = (time - self.last) as f64 * self.nanoseconds_per_tick;
        self.nanoseconds += (whole * *random.choose(&[0.0, 0.0, 1.0, 1.0, 0.37])) as u64;
        self.last = time;
        writer.metric(time, self.class, &[MetricValue::U64(self.nanoseconds)])
    }
}

/// The state of a counter while its samples are written.
struct Sampled {
    class: MetricClassRef,
    time: u64,
    last: u64,
    kind: MetricValueType,
    instantaneous: bool,
    value: u64,
    largest_step: u64,
    samples: u64,
}

impl Sampled {
    fn new(random: &mut Random, device: &Device, class: MetricClassRef, first: u64, last: u64) -> Sampled {
        let largest_step = *random.choose(&[2, 1000, 5_000_000]);
        let value = *random.choose(&[1, 17, 1 << 33, (1 << 62) + 1]).max(&first_value_min(largest_step));
        let value = if device.value == MetricValueType::F64 { value % (1 << 40) } else { value };
        Sampled {
            class,
            time: first,
            last,
            kind: device.value,
            instantaneous: device.instantaneous,
            value,
            samples: 0,
            largest_step,
        }
    }

    /// Reads a counter, which stands still now and then.
    fn read(&mut self, random: &mut Random) -> MetricValue {
        let step = match random.one_in(5) {
            true => 0,
            false => random.below(self.largest_step),
        };
        self.samples += 1;
        self.value = if self.instantaneous { step } else { self.value + step };
        match self.kind {
            MetricValueType::I64 => MetricValue::I64(self.value as i64),
            MetricValueType::F64 => MetricValue::F64(self.value as f64 * 0.5),
            _ => MetricValue::U64(self.value),
        }
    }
}

/// A counter does not start near 0: if the first rise were then larger and faster than all later ones, the first value might not
/// be a reading.
fn first_value_min(largest_step: u64) -> u64 {
    largest_step / 50 + 1
}

fn toml(devices: &[Device], baselines: &[f64]) -> String {
    let mut text = String::new();
    for (device, baseline) in devices.iter().zip(baselines) {
        let patterns: Vec<String> =
            device.streams.iter().map(|s| s.replace('[', "\\[").replace(']', "\\]")).collect();
        let name = device.name.split('@').next().unwrap_or_default();
        if device.found && text.contains(&format!("'{name}'")) {
            continue; // the setting applies to all recorders
        }
        let _ = write!(
            text,
            "[[device]]\nname = '{name}'\nnode = '{}'\nmetric = '{}'\n",
            device.node, device.metric
        );
        if let Some(scale) = device.scale {
            let _ = writeln!(text, "scale = {scale:?}");
        }
        let _ = writeln!(text, "baseline_watts = {baseline:?}");
        if device.kind_is_configured {
            let kind = if device.instantaneous { "instantaneous" } else { "cumulative" };
            let _ = writeln!(text, "kind = '{kind}'");
        }
        if !device.found {
            let _ = writeln!(text, "ranks = {:?}\nlocations = {}", device.ranks, json!(patterns));
        }
    }
    text
}

/// Lists each device once for each view ("GPU-0 ranks"), and once more for each consumer alone ("GPU-0 ranks of MPI Rank 0/Master
/// thread").
fn json_of(devices: &[Device], baselines: &[f64]) -> Value {
    let mut all = Vec::new();
    let setting = |device: &Device| {
        // A setting applies to all recorders of a metric.
        let name = |device: &Device| device.name.split('@').next().unwrap_or_default().to_owned();
        let first = devices.iter().position(|other| name(other) == name(device));
        baselines[first.unwrap_or_default()]
    };
    for device in devices {
        let mut kernels: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (rank, stream) in &device.kernels {
            kernels.entry(format!("MPI Rank {rank}")).or_default().push(stream);
        }
        let mut ask = |name: String, view: &str, consumers: &[String]| {
            let mut asked = json!({
                "name": name, "node": device.node, "metric": device.metric,
                "kind": if device.instantaneous { "instantaneous" } else { "cumulative" }, "consumers": consumers,
                "baseline_watts": setting(device)
            });
            // In the kernels view, a stream is active while a frame is open, and threads work for no stream.
            if view == "ranks" {
                (asked["activity"], asked["kernels"]) = (CPU_TIME.into(), json!(kernels));
            }
            if let Some(scale) = device.scale {
                asked["scale"] = scale.into();
            }
            if let Some(rank) = device.recorder {
                asked["recorder"] = format!("MPI Rank {rank}").into();
            }
            all.push(asked);
        };
        let mains: Vec<String> =
            device.ranks.iter().map(|rank| format!("MPI Rank {rank}/Master thread")).collect();
        for (view, consumers) in [("ranks", &mains), ("kernels", &device.streams)] {
            let name = format!("{} {view}", device.name);
            for consumer in consumers {
                ask(format!("{name} of {consumer}"), view, std::slice::from_ref(consumer));
            }
            ask(name, view, consumers);
        }
    }
    json!({"devices": all})
}
