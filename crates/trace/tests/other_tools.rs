//! Traces of other tools whose counters are easily counted twice, read as those of another part, or left out without a note. In
//! each trace, `work` runs for 4 s, and metrics are recorded every 10 ms.

use ampere_figures::summary::Summary;
use ampere_settings::Config;
use ampere_trace::replay::Replay;
use otf2::{
    ArchiveWriter, ClockProperties, Definitions, Location, LocationGroup, LocationGroupRef,
    LocationGroupType, LocationRef, LocationType, MetricClass, MetricClassRef, MetricInstance, MetricMember,
    MetricMode, MetricRef, MetricScope, MetricValue, MetricValueType, Region, RegionRef, SystemTreeNode,
    SystemTreeNodeRef,
};
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000;
const READINGS: u64 = 400;

/// The value of a metric in each hundredth of a second.
type At<'a> = &'a dyn Fn(u64) -> f64;

struct Trace {
    definitions: Definitions,
    work: RegionRef,
    /// The metrics of each location, with their values.
    samples: BTreeMap<u64, Vec<(MetricRef, Vec<f64>)>>,
}

impl Trace {
    fn new() -> Trace {
        let length = 4 * SECOND;
        let clock =
            ClockProperties { timer_resolution: SECOND, trace_length: length, ..ClockProperties::default() };
        let mut definitions = Definitions { clock, ..Definitions::default() };
        let work = definitions.regions.push(Region { name: "work".into(), ..Region::default() });
        Trace { definitions, work, samples: BTreeMap::new() }
    }

    fn part(&mut self, class: &str, name: &str, parent: Option<SystemTreeNodeRef>) -> SystemTreeNodeRef {
        let (class_name, name) = (class.into(), name.into());
        let part = SystemTreeNode { name, class_name, parent, ..SystemTreeNode::default() };
        self.definitions.system_tree_nodes.push(part)
    }

    fn group(&mut self, name: &str, at: SystemTreeNodeRef) -> LocationGroupRef {
        self.definitions.location_groups.push(LocationGroup {
            name: name.into(),
            kind: LocationGroupType::Process,
            system_tree_parent: Some(at),
            ..LocationGroup::default()
        })
    }

    /// Adds a location. Those whose name is `worker` run `work`. One that is `killed` has no events after 2 s, and one that `exits`
    /// has none after 3.98 s.
    fn location(&mut self, kind: LocationType, name: &str, group: LocationGroupRef) -> LocationRef {
        let number = LocationRef(self.definitions.locations.last().map_or(0, |last| last.0 + 1));
        let location = Location { name: name.into(), kind, group: Some(group), ..Location::default() };
        self.definitions.locations.insert(number, location);
        number
    }

    /// Adds a process with a thread, and returns a location for its metrics.
    fn rank(&mut self, rank: u32, node: SystemTreeNodeRef) -> LocationRef {
        let group = self.group(&format!("MPI Rank {rank}"), node);
        self.location(LocationType::CpuThread, "worker", group);
        self.location(LocationType::Metric, "reader", group)
    }

    fn class(&mut self, name: &str, unit: &str, description: &str) -> MetricClassRef {
        let is_power = name.to_lowercase().contains("power") || unit.ends_with('W');
        let mode = if is_power { MetricMode::AbsolutePoint } else { MetricMode::AccumulatedStart };
        let member = self.definitions.metric_members.push(MetricMember {
            name: name.into(),
            description: description.into(),
            unit: unit.into(),
            mode,
            value_type: MetricValueType::F64,
            ..MetricMember::default()
        });
        self.definitions.add_metric_class(MetricClass { members: vec![member], ..MetricClass::default() })
    }

    /// Returns a metric whose values are about a part of the system tree.
    fn about(&mut self, class: MetricClassRef, recorder: LocationRef, part: SystemTreeNodeRef) -> MetricRef {
        let (scope, scope_number) = (MetricScope::SystemTreeNode, part.0.into());
        let instance = MetricInstance { class, recorder, scope, scope_number };
        MetricRef { class, instance: Some(self.definitions.add_metric_instance(instance)) }
    }

    fn record(&mut self, location: LocationRef, metric: impl Into<MetricRef>, value: At) {
        self.record_until(READINGS, location, metric, value);
    }

    fn record_until(&mut self, last: u64, location: LocationRef, metric: impl Into<MetricRef>, value: At) {
        let values = (0..=last).map(value).collect();
        self.samples.entry(location.0).or_default().push((metric.into(), values));
    }

    /// Returns the summary. A replay of the trace must be incomplete for the same reasons.
    fn attribute(self) -> Summary {
        let place = tempfile::tempdir().unwrap();
        let archive = ArchiveWriter::create(place.path()).unwrap();
        for (reference, location) in self.definitions.locations.iter() {
            let mut events = archive.event_writer(reference).unwrap();
            let works = location.name == "worker" || location.kind == LocationType::AcceleratorStream;
            let last = match location.name.as_str() {
                "killed" => Some(2 * SECOND),
                "exits" => Some(398 * SECOND / 100),
                _ => None,
            };
            if works || last.is_some() {
                events.enter(0, self.work).unwrap();
            }
            if let Some(last) = last {
                events.enter(last, self.work).unwrap();
                events.leave(last, self.work).unwrap();
            }
            let samples = self.samples.get(&reference.0).map_or(&[][..], Vec::as_slice);
            for at in 0..=READINGS {
                for (metric, values) in samples {
                    if let Some(value) = values.get(at as usize) {
                        let value = MetricValue::F64(*value);
                        events.metric(at * SECOND / 100, *metric, &[value]).unwrap();
                    }
                }
            }
            if works {
                events.leave(4 * SECOND, self.work).unwrap();
            }
            events.close().unwrap();
        }
        archive.finish(&self.definitions).unwrap();
        let (trace, config) = (place.path().join("traces.otf2"), Config::default());
        let summary =
            ampere_trace::offline::attribute(&trace, &config, None, &mut |_, _| {}).unwrap().summary;
        let replay = Replay::of_trace(&trace, &config).unwrap();
        let unknown: Vec<&String> =
            replay.notes.iter().filter(|note| !summary.run.missing.contains(note)).collect();
        assert!(unknown.is_empty(), "only in a replay: {unknown:?}");
        assert!(
            summary.run.complete
                || summary.run.missing.iter().any(|note| is_of_figures(note) || replay.notes.contains(note))
        );
        summary
    }
}

/// Whether a note is made from the figures. A collector into which the trace is replayed makes such notes, too.
fn is_of_figures(note: &str) -> bool {
    ["its energy is known for", "readings could not be true", "cannot be told"]
        .iter()
        .any(|words| note.contains(words))
}

/// Returns the summary of a node with these metrics, given by name, unit and value.
fn of_node(metrics: &[(&str, &str, At)]) -> Summary {
    let mut trace = Trace::new();
    let node = trace.part("node", "a", None);
    let reader = trace.rank(0, node);
    for (name, unit, value) in metrics {
        let class = trace.class(name, unit, "");
        trace.record(reader, class, value);
    }
    trace.attribute()
}

/// Returns a counter of a constant power.
fn counter(watts: f64) -> impl Fn(u64) -> f64 {
    move |at| watts * at as f64 / 100.0
}

/// Returns a counter in millijoules whose power varies.
fn varying(watts: u64) -> impl Fn(u64) -> f64 {
    move |at| (watts * 10 * at + at * at * 97 % 211) as f64
}

/// The joules that a counter of a varying power adds to those of a constant one.
const MORE: f64 = (READINGS * READINGS * 97 % 211) as f64 / 1000.0;

#[track_caller]
fn assert_joules_are(summary: &Summary, expected: f64) {
    let total = summary.run.total_joules;
    assert!((total - expected).abs() < 1e-6, "{total} J and not {expected} J: {:?}", summary.run.notes);
}

#[track_caller]
fn assert_complete(summary: &Summary) {
    assert!(summary.run.complete, "{:?}", summary.run.missing);
}

#[track_caller]
fn assert_incomplete(summary: &Summary, words: &str) {
    assert!(!summary.run.complete, "{:?}", summary.run.notes);
    assert!(summary.run.missing.iter().any(|note| note.contains(words)), "{:?}", summary.run.missing);
}

/// Returns, for each node, the joules of its devices that are attributed to functions.
fn attributed(summary: &Summary) -> BTreeMap<&str, f64> {
    let mut joules = BTreeMap::new();
    for of in &summary.devices {
        *joules.entry(of.node.as_str()).or_default() += of.views[0].attributed_joules;
    }
    joules
}

/// Returns the kind and the joules of each device, by the counter's name.
fn devices(summary: &Summary) -> BTreeMap<&str, (&str, f64)> {
    summary.devices.iter().map(|of| (of.name.as_str(), (of.kind.as_str(), of.total_joules))).collect()
}

/// Each hardware thread of a core shows the core's counter, in a tree with cores and in one without.
#[test]
fn the_counter_of_a_core_counts_once_however_many_threads_it_has() {
    for has_cores in [true, false] {
        for name in ["core energy", "energy"] {
            let mut trace = Trace::new();
            let node = trace.part("node", "a", None);
            let reader = trace.rank(0, node);
            let class = trace.class(name, "mJ", "");
            for core in 0..2 {
                let above = if has_cores { trace.part("core", &core.to_string(), Some(node)) } else { node };
                for thread in 0..2 {
                    let cpu = trace.part("cpu", &(core + 2 * thread).to_string(), Some(above));
                    let metric = trace.about(class, reader, cpu);
                    trace.record(reader, metric, &varying(10 * (core + 1)));
                }
            }
            let summary = trace.attribute();
            assert_joules_are(&summary, 4.0 * (10.0 + 20.0) + 2.0 * MORE);
            assert_complete(&summary);
            assert!(
                summary
                    .run
                    .notes
                    .iter()
                    .any(|note| note.contains("all read one counter") || note.contains("rise in step"))
            );
        }
    }
}

/// The threads of one core show one counter even if its power is constant, those of two cores do not.
#[test]
fn cores_of_the_same_constant_power_are_two() {
    let mut trace = Trace::new();
    let node = trace.part("node", "a", None);
    let reader = trace.rank(0, node);
    let class = trace.class("core energy", "J", "");
    for core in 0..2 {
        let above = trace.part("core", &core.to_string(), Some(node));
        let metric = trace.about(class, reader, above);
        trace.record(reader, metric, &counter(10.0));
    }
    let summary = trace.attribute();
    assert_joules_are(&summary, 80.0);
    assert_complete(&summary);
}

#[test]
fn devices_of_the_same_constant_power_are_two() {
    let gpus = [0, 1].map(|gpu| format!("rocm_smi:::power_average:device={gpu}"));
    let summary = of_node(&gpus.each_ref().map(|name| (name.as_str(), "W", &(|_| 100.0) as At)));
    assert_joules_are(&summary, 800.0);
    assert_complete(&summary);
    let gpus = [0, 1].map(|gpu| format!("rocm_smi:::energy_count:device={gpu}"));
    let value = counter(100.0);
    let summary = of_node(&gpus.each_ref().map(|name| (name.as_str(), "J", &value as At)));
    assert_joules_are(&summary, 800.0);
    assert_complete(&summary);
}

/// Each rank records the power of the first GPU that it sees, which may be a GPU of its own.
#[test]
fn recorders_of_the_same_constant_power_of_a_gpu_may_read_two() {
    for (is_constant, expected) in [(true, 800.0), (false, 400.0)] {
        let mut trace = Trace::new();
        let node = trace.part("node", "a", None);
        let class = trace.class("rocm_smi:::power_average:device=0", "W", "");
        for rank in 0..2 {
            let reader = trace.rank(rank, node);
            let power = |at: u64| if is_constant || at < 200 { 100.0 } else { 100.0 + (at / 20) as f64 };
            trace.record(reader, class, &power);
        }
        let summary = trace.attribute();
        match is_constant {
            true => assert_incomplete(&summary, "which recorders of one metric read the same counter"),
            false => assert_complete(&summary),
        }
        let varying = (200..READINGS).map(|at| (at / 20) as f64 / 100.0).sum::<f64>();
        assert_joules_are(&summary, if is_constant { expected } else { expected + varying });
    }
}

/// Sensors of a node, its CPUs and its GPUs have groups at their places in the tree.
#[test]
fn the_place_of_a_sensor_states_its_kind() {
    let mut trace = Trace::new();
    let node = trace.part("node", "a", None);
    trace.rank(0, node);
    let class = trace.class("power draw", "W", "");
    let places = [("CPU", "0", 80.0), ("CPU", "1", 80.0), ("GPU", "0", 200.0), ("GPU", "1", 210.0)];
    for (kind, name, watts) in places {
        let part = trace.part(kind, name, Some(node));
        let group = trace.group("sensor", part);
        let reader = trace.location(LocationType::Metric, "reader", group);
        trace.record(reader, class, &|_| watts);
    }
    let group = trace.group("sensor", node);
    let reader = trace.location(LocationType::Metric, "reader", group);
    trace.record(reader, class, &|_| 700.0);
    let summary = trace.attribute();
    assert_joules_are(&summary, 2800.0);
    assert_complete(&summary);
    let devices = devices(&summary);
    for (kind, name, watts) in places {
        let (found, joules) = devices[format!("power draw@{kind} {name}").as_str()];
        assert_eq!((found, joules.round()), (kind.to_lowercase().as_str(), 4.0 * watts), "{kind} {name}");
    }
}

/// The first thread of a process only records metrics.
#[test]
fn the_main_thread_is_the_first_one_with_frames() {
    let mut trace = Trace::new();
    let node = trace.part("node", "a", None);
    let group = trace.group("MPI Rank 0", node);
    let recorder = trace.location(LocationType::CpuThread, "recorder", group);
    for _ in 0..2 {
        trace.location(LocationType::CpuThread, "worker", group);
    }
    let class = trace.class("node energy", "J", "");
    trace.record(recorder, class, &counter(100.0));
    let summary = trace.attribute();
    let view = &summary.devices[0].views[0];
    assert!((view.attributed_joules - 400.0).abs() < 1e-6 && view.idle_joules < 1e-6, "{view:?}");
    assert_complete(&summary);
}

/// The meters of NVIDIA Grace, by PAPI's or lo2s' names, or with their texts as descriptions.
#[test]
fn the_module_of_a_grace_hopper_contains_its_other_meters() {
    let texts = ["Module", "Grace", "CPU", "SysIO"].map(|part| format!("{part} Power Socket 0"));
    let watts = [500.0, 150.0, 100.0, 20.0];
    type Named = fn(usize, &str) -> (String, String);
    let names: [Named; 4] = [
        |_, text| ("power1_average".to_owned(), text.to_owned()),
        |_, text| (text.to_owned(), String::new()),
        |chip, text| (format!("power_meter-acpi-{chip}/power1 ({text})"), String::new()),
        |chip, text| (format!("hwmon{chip}/power1_average"), text.to_owned()),
    ];
    for name in names {
        // Without the module's meter, Grace's is the whole; without that, the CPU and its IO are two parts.
        for (first, expected) in [(0, 500.0), (1, 150.0), (2, 120.0)] {
            let mut trace = Trace::new();
            let node = trace.part("node", "a", None);
            let reader = trace.rank(0, node);
            for (chip, (text, watts)) in texts.iter().zip(watts).enumerate().skip(first) {
                let (name, description) = name(chip, text);
                let class = trace.class(&name, "W", &description);
                trace.record(reader, class, &move |_| watts);
            }
            let summary = trace.attribute();
            assert_joules_are(&summary, 4.0 * expected);
            assert_complete(&summary);
        }
    }
}

#[test]
fn sockets_of_amd_smi_are_processors() {
    let (core, package) = (counter(30e6), counter(100e6));
    let (rapl, gpu) = (counter(99e9), counter(200e6));
    let summary = of_node(&[
        ("amd_smi:::energy_socket=0", "#", &package),
        ("amd_smi:::energy_socket=0_core=0", "#", &core),
        ("amd_smi:::energy_socket=1", "#", &package),
        ("amd_smi:::energy_consumed:device=0", "#", &gpu),
        ("rapl:::PACKAGE_ENERGY:PACKAGE0", "#", &rapl),
    ]);
    assert_joules_are(&summary, 4.0 * (100.0 + 100.0 + 200.0));
    assert_complete(&summary);
    let kinds: Vec<&str> = devices(&summary).values().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, ["gpu", "cpu", "cpu", "cpu", "cpu"]);
}

/// The tiles of a card of Level Zero, by their names and by their places.
#[test]
fn tiles_are_parts_of_their_card() {
    let card = counter(200.0);
    let first = counter(90.0);
    let second = counter(80.0);
    for names in [
        ["zes:::energy:device=0", "zes:::energy:device=0:subdevice=0", "zes:::energy:device=0:subdevice=1"],
        ["level_zero card 0 energy", "level_zero card 0 tile 0 energy", "level_zero card 0 tile 1 energy"],
        ["gpu0.energy", "gpu0.0.energy", "gpu0.1.energy"],
    ] {
        let summary = of_node(&[(names[0], "J", &card), (names[1], "J", &first), (names[2], "J", &second)]);
        assert_joules_are(&summary, 800.0);
        assert_complete(&summary);
    }
    for name in ["energy", "gpu energy"] {
        let mut trace = Trace::new();
        let node = trace.part("node", "a", None);
        let reader = trace.rank(0, node);
        let class = trace.class(name, "J", "");
        for gpu in 0..2 {
            let card = trace.part("GPU", &gpu.to_string(), Some(node));
            let metric = trace.about(class, reader, card);
            trace.record(reader, metric, &counter(200.0 + f64::from(gpu)));
            for tile in 0..2 {
                let part = trace.part("tile", &tile.to_string(), Some(card));
                let metric = trace.about(class, reader, part);
                trace.record(reader, metric, &counter(90.0 + f64::from(tile)));
            }
        }
        let summary = trace.attribute();
        assert_joules_are(&summary, 4.0 * 401.0);
        assert_complete(&summary);
        assert!(summary.devices.iter().all(|device| device.kind == "gpu"));
    }
}

/// Sensors of a board number processors and GPUs from 1 on, libraries from 0 on.
#[test]
fn numbers_from_one_are_those_from_zero() {
    let rapl = ["rapl:::PACKAGE_ENERGY:PACKAGE0", "rapl:::PACKAGE_ENERGY:PACKAGE1"];
    let (first, second) = (counter(50.0), counter(60.0));
    for (names, unit, values) in [
        (["CPU 1 Power", "CPU 2 Power"], "W", [&(|_| 50.0) as At, &|_| 60.0]),
        (["hdeem/CPU1/E", "hdeem/CPU2/E"], "J", [&first as At, &second]),
    ] {
        let summary = of_node(&[
            (rapl[0], "J", &first),
            (rapl[1], "J", &second),
            (names[0], unit, values[0]),
            (names[1], unit, values[1]),
        ]);
        assert_joules_are(&summary, 440.0);
        assert_complete(&summary);
    }
    let gpus = [0, 1].map(|gpu| format!("nvml:::A100:device_{gpu}:total_energy_consumption"));
    let summary = of_node(&[
        (&gpus[0], "J", &first),
        (&gpus[1], "J", &second),
        ("GPU 1 Power", "W", &|_| 50.0),
        ("GPU 2 Power", "W", &|_| 60.0),
    ]);
    assert_joules_are(&summary, 440.0);
    assert_complete(&summary);
    // If one of three GPUs has no sensor, the others may have either number.
    let third = "nvml:::A100:device_2:total_energy_consumption";
    let summary = of_node(&[
        (&gpus[0], "J", &first),
        (&gpus[1], "J", &second),
        (third, "J", &first),
        ("GPU 1 Power", "W", &|_| 60.0),
        ("GPU 2 Power", "W", &|_| 50.0),
    ]);
    assert_joules_are(&summary, 640.0);
}

/// LIKWID's names of a package's metrics do not name the package.
#[test]
fn the_package_of_likwid_contains_its_cores() {
    let package = counter(100.0);
    let cores = counter(60.0);
    let memory = counter(20.0);
    let summary = of_node(&[
        ("Energy [J]", "", &package),
        ("Power [W]", "", &|_| 100.0),
        ("Energy PP0 [J]", "", &cores),
        ("Power PP0 [W]", "", &|_| 60.0),
        ("Energy DRAM [J]", "", &memory),
        ("Power DRAM [W]", "", &|_| 20.0),
    ]);
    assert_joules_are(&summary, 480.0);
    assert_complete(&summary);
    let summary = of_node(&[("Power [W]", "", &|_| 100.0), ("Power DRAM [W]", "", &|_| 20.0)]);
    assert_joules_are(&summary, 480.0);
    assert_complete(&summary);
    let platform = counter(150.0);
    let summary = of_node(&[
        ("Energy [J]", "", &package),
        ("Energy Core [J]", "", &cores),
        ("Energy L3 [J]", "", &memory),
        ("Energy PLATFORM [J]", "", &platform),
    ]);
    assert_joules_are(&summary, 600.0);
    assert_complete(&summary);
}

#[test]
fn units_are_known_if_they_are_unambiguous_and_named_otherwise() {
    for (unit, value) in [("KW", 0.1), ("kilowatts", 0.1), ("UW", 100e6)] {
        let summary = of_node(&[("node power", unit, &|_| value)]);
        assert_joules_are(&summary, 400.0);
        assert_complete(&summary);
    }
    for (unit, watts) in [("kilojoules", 0.1), ("KJ", 0.1), ("mWh", 100.0 / 3.6), ("UJ", 100e6)] {
        let value = counter(watts);
        let summary = of_node(&[("node energy", unit, &value)]);
        assert_joules_are(&summary, 400.0);
        assert_complete(&summary);
    }
    let package = counter(50.0);
    for unit in ["VA", "kVA", "volt-amperes"] {
        let summary = of_node(&[("supply", unit, &|_| 100.0), ("package energy", "J", &package)]);
        assert_joules_are(&summary, 200.0);
        assert_incomplete(&summary, "left out: supply");
        let note = format!("its unit, '{unit}', is not known");
        assert!(summary.run.notes.iter().any(|of| of.contains(&note)), "{:?}", summary.run.notes);
    }
}

/// Two hosts read one meter; one of them begins a moment later, or both have meters of their own.
#[test]
fn a_meter_that_two_nodes_record_makes_a_run_incomplete() {
    let power = |at: u64| 300.0 + (at * at * 97 % 4001) as f64 * 0.1;
    let energy = varying(300);
    for (name, unit, value) in [("pdu power", "W", &power as At), ("node energy", "mJ", &energy)] {
        for (later, is_one) in [(Some(0), true), (Some(20), true), (None, false)] {
            let mut trace = Trace::new();
            for (rank, node) in ["n1", "n2"].into_iter().enumerate() {
                let node = trace.part("node", node, None);
                let reader = trace.rank(rank as u32, node);
                let class = trace.class(name, unit, "");
                let own = |at: u64| match later {
                    Some(later) => value(at + later * rank as u64),
                    None => value(at) + value(at * (rank as u64 + 3)),
                };
                trace.record(reader, class, &own);
            }
            let summary = trace.attribute();
            match is_one {
                true => assert_incomplete(
                    &summary,
                    &format!("{name} has the same values on n1, n2, to the digit"),
                ),
                false => assert_complete(&summary),
            }
        }
    }
}

#[test]
fn nodes_of_the_same_constant_power_have_a_meter_each() {
    let energy = counter(300.0);
    for (name, unit, value, has_note) in [
        ("node power", "W", &(|_| 300.0) as At, false),
        ("node energy", "J", &energy, false),
        ("pdu power", "W", &|_| 300.0, true),
        ("pdu energy", "J", &energy, true),
    ] {
        let mut trace = Trace::new();
        for (rank, node) in ["n1", "n2"].into_iter().enumerate() {
            let node = trace.part("node", node, None);
            let reader = trace.rank(rank as u32, node);
            let class = trace.class(name, unit, "");
            trace.record(reader, class, value);
        }
        let summary = trace.attribute();
        assert_joules_are(&summary, 2400.0);
        assert_complete(&summary);
        let note = format!("{name} has the same values on n1, n2, which vary too little");
        assert_eq!(summary.run.notes.iter().any(|of| of.contains(&note)), has_note, "{name}");
    }
}

#[test]
fn many_powers_that_are_no_numbers_or_negative_make_a_run_incomplete() {
    for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -5.0] {
        for every in [10, 200] {
            let value = |at: u64| if at % every == every / 2 { wrong } else { 100.0 };
            let summary = of_node(&[("node power", "W", &value)]);
            assert_joules_are(&summary, 400.0);
            let misread = READINGS / every;
            let reason = format!("{misread} of 401 readings are negative, not numbers, or too high");
            // Two readings of 401 hardly change the joules.
            if misread > 4 {
                assert_incomplete(&summary, &reason)
            } else {
                assert_complete(&summary)
            }
            assert_eq!(summary.quality.readings.unusable_samples, misread);
        }
    }
}

/// The counter of a node stands still for the last two seconds, or changes only every 0.8 s.
#[test]
fn a_counter_that_no_longer_changes_makes_a_run_incomplete() {
    for name in ["A2coretemp:::craypm:energy", "cray_pm:::PM_ENERGY:NODE", "rapl:::PACKAGE_ENERGY:PACKAGE0"] {
        let stuck = |at: u64| 100.0 * at.min(200) as f64 / 100.0;
        let summary = of_node(&[(name, "J", &stuck)]);
        assert_incomplete(&summary, "its counter did not change for the last 2.00 s");
        let slow = |at: u64| (at / 80 * 80) as f64;
        assert_complete(&of_node(&[(name, "J", &slow)]));
        let never = |_: u64| 1000.0;
        assert_incomplete(&of_node(&[(name, "J", &never)]), "its counter did not change for the last 4.00 s");
    }
    // A GPU or a core may use no energy while it sleeps.
    let asleep = |at: u64| at.min(200) as f64;
    for name in ["rocm_smi:::energy_count:device=0", "x86_energy/CORE1/E"] {
        assert_complete(&of_node(&[(name, "J", &asleep)]));
    }
}

/// A power may be constant; that Cray's counters are not updated shows in their freshness.
#[test]
fn crays_counters_whose_freshness_stands_still_make_a_run_incomplete() {
    let names = ["A2coretemp:::craypm:power", "A2coretemp:::craypm:freshness"];
    let (fresh, stuck) = (|at: u64| (at / 10) as f64, |at: u64| (at.min(200) / 10) as f64);
    assert_complete(&of_node(&[(names[0], "#", &|_| 500.0), (names[1], "#", &fresh)]));
    let summary = of_node(&[(names[0], "#", &|_| 500.0), (names[1], "#", &stuck)]);
    assert_joules_are(&summary, 2000.0);
    assert_incomplete(&summary, "Cray's counters on a were not updated for 2.00 s");
}

/// Both processes read one counter, the first one only for a second.
#[test]
fn a_counter_has_the_readings_that_cover_the_longest_time() {
    let mut trace = Trace::new();
    let node = trace.part("node", "a", None);
    let class = trace.class("package energy", "mJ", "");
    for (rank, last) in [(0, READINGS / 4), (1, READINGS)] {
        let reader = trace.rank(rank, node);
        trace.record_until(last, reader, class, &varying(100));
    }
    let summary = trace.attribute();
    assert_eq!(summary.devices.len(), 1, "{:?}", summary.run.notes);
    assert_joules_are(&summary, 400.0 + MORE);
    assert_complete(&summary);
}

#[test]
fn functions_that_are_never_left_make_a_run_incomplete_if_they_end_before_the_readings() {
    for name in ["worker", "killed", "exits"] {
        let mut trace = Trace::new();
        let node = trace.part("node", "a", None);
        let reader = trace.rank(0, node);
        let group = trace.group("MPI Rank 1", node);
        trace.location(LocationType::CpuThread, name, group);
        let class = trace.class("node energy", "J", "");
        trace.record(reader, class, &counter(100.0));
        let summary = trace.attribute();
        assert_joules_are(&summary, 400.0);
        match name {
            "killed" => assert_incomplete(&summary, "or the last event of their location: 1"),
            _ => assert_complete(&summary),
        }
    }
}

#[test]
fn functions_are_those_of_threads_also_without_a_type_and_are_named_if_they_are_left_out() {
    for (kind, works) in [(LocationType::Unknown, true), (LocationType::Metric, false)] {
        let mut trace = Trace::new();
        let node = trace.part("node", "a", None);
        let group = trace.group("MPI Rank 0", node);
        trace.location(kind, "worker", group);
        let reader = trace.location(LocationType::Metric, "reader", group);
        let class = trace.class("node energy", "J", "");
        trace.record(reader, class, &counter(100.0));
        let summary = trace.attribute();
        assert_joules_are(&summary, 400.0);
        match works {
            true => assert!((attributed(&summary)["a"] - 400.0).abs() < 1e-6),
            false => assert_incomplete(&summary, "a type that only has metrics: worker"),
        }
    }
}

/// Where threads have a type, a meter outside of the nodes has none.
#[test]
fn a_location_without_a_type_is_no_thread_if_others_are() {
    let mut trace = Trace::new();
    let node = trace.part("node", "n1", None);
    trace.rank(0, node);
    let outside = trace.part("node", "mgmt", None);
    let meters = trace.group("meters", outside);
    let meter = trace.location(LocationType::Unknown, "meter", meters);
    let class = trace.class("n1.power", "W", "");
    trace.record(meter, class, &|_| 100.0);
    let summary = trace.attribute();
    assert_joules_are(&summary, 400.0);
    assert!((attributed(&summary)["n1"] - 400.0).abs() < 1e-6);
    assert_complete(&summary);
}

/// The writer has defined a node for each group.
#[test]
fn a_context_is_on_the_node_of_its_process_and_equal_nodes_are_in_doubt() {
    for is_context in [true, false] {
        let mut trace = Trace::new();
        let [node, other] = [(); 2].map(|()| trace.part("node", "n1", None));
        let reader = trace.rank(0, node);
        let kind = if is_context { LocationGroupType::Accelerator } else { LocationGroupType::Process };
        let group = trace.definitions.location_groups.push(LocationGroup {
            name: "CUDA Context 0".into(),
            kind,
            system_tree_parent: Some(other),
            creating_location_group: is_context.then_some(LocationGroupRef(0)),
            ..LocationGroup::default()
        });
        let stream = if is_context { LocationType::AcceleratorStream } else { LocationType::Metric };
        let stream = trace.location(stream, if is_context { "worker" } else { "reader" }, group);
        let class = trace.class("gpu energy", "J", "");
        trace.record(if is_context { stream } else { reader }, class, &counter(100.0));
        let summary = trace.attribute();
        match is_context {
            true => {
                assert_eq!(summary.run.nodes, ["n1"]);
                assert_eq!(summary.devices[0].views[1].attributed_joules.round(), 400.0);
                assert_complete(&summary);
            }
            false => assert_incomplete(&summary, "several nodes with the name and path n1"),
        }
    }
}

/// Nodes in two containers may have one name, and the same place in the tree.
#[test]
fn nodes_of_the_same_name_and_path_are_several() {
    for has_root in [false, true] {
        let mut trace = Trace::new();
        let root = has_root.then(|| trace.part("machine", "cluster", None));
        let class = trace.class("node energy", "J", "");
        for rank in 0..2 {
            let node = trace.part("node", "localhost", root);
            let reader = trace.rank(rank, node);
            trace.record(reader, class, &counter(100.0 + 200.0 * f64::from(rank)));
        }
        let summary = trace.attribute();
        assert_eq!(summary.run.nodes, ["localhost (1)", "localhost (2)"]);
        assert_joules_are(&summary, 1600.0);
        let joules = attributed(&summary);
        assert_eq!(joules.values().map(|joules| joules.round()).collect::<Vec<_>>(), [400.0, 1200.0]);
        assert_incomplete(&summary, "if they are one, its joules are counted several times");
    }
}

/// The metrics have the hosts' names without their domain, the system tree has them with it.
#[test]
fn a_metric_of_a_node_need_not_have_its_domain() {
    let mut trace = Trace::new();
    let reader = (0..2).map(|rank| {
        let node = trace.part("node", &format!("gpu0{rank}.hpc.de"), None);
        trace.rank(rank, node)
    });
    let reader = reader.last().unwrap();
    for node in 0..2 {
        let class = trace.class(&format!("hpc.gpu0{node}.power"), "W", "");
        trace.record(reader, class, &move |_| 100.0 + 100.0 * f64::from(node));
    }
    let summary = trace.attribute();
    assert_joules_are(&summary, 1200.0);
    let joules = attributed(&summary);
    assert_eq!(joules.into_iter().collect::<Vec<_>>(), [("gpu00.hpc.de", 400.0), ("gpu01.hpc.de", 800.0)]);
    assert!(summary.devices.iter().all(|device| device.kind != "gpu"), "{:?}", devices(&summary));
    assert_complete(&summary);
}

/// The rank on each node has recorded the counters of its own devices, whose names are also those of hosts.
#[test]
fn counters_of_several_nodes_are_not_those_of_the_node_in_their_name() {
    for (hosts, are_nodes) in [(["gpu1", "gpu2"], true), (["gpu", "cpu"], false)] {
        let mut trace = Trace::new();
        for (rank, host) in (0..).zip(hosts) {
            let node = trace.part("node", &format!("{host}.lab.de"), None);
            let reader = trace.rank(rank, node);
            for (at, of) in hosts.iter().enumerate() {
                let class = trace.class(&format!("{of}.energy"), "J", "");
                let watts = 100.0 * f64::from(rank + 1) + 10.0 * at as f64;
                trace.record(reader, class, &counter(watts));
            }
        }
        let summary = trace.attribute();
        assert_joules_are(&summary, 4.0 * (100.0 + 110.0 + 200.0 + 210.0));
        match are_nodes {
            true => assert_incomplete(&summary, "or belong to another node"),
            false => {
                let joules = attributed(&summary);
                assert_eq!(joules.values().map(|joules| joules.round()).collect::<Vec<_>>(), [1640.0, 840.0]);
                assert_complete(&summary);
            }
        }
    }
}

/// Returns the joules of the kernels of each device.
fn of_kernels(summary: &Summary) -> Vec<f64> {
    let views = summary.devices.iter().flat_map(|device| &device.views);
    views.filter(|of| of.view == "kernels").map(|view| view.attributed_joules.round()).collect()
}

/// Other tools have names of their own for the counters of the GPUs. Each rank uses one of the GPUs.
#[test]
fn the_number_of_a_gpu_may_be_anywhere_in_the_name_of_its_counter() {
    for (names, unit, stream) in [
        (["ID0::energy_count", "ID1::energy_count"], "", "HIP"),
        (["power_usage on CUDA: 0", "power_usage on CUDA: 1"], "W", "CUDA"),
        (["GPU 0 energy", "GPU 1 energy"], "J", "HIP"),
        (["card1 energy", "card2 energy"], "J", "HIP"),
        (["energy_gpu_0", "energy_gpu_1"], "J", "CUDA"),
    ] {
        let mut trace = Trace::new();
        let node = trace.part("node", "a", None);
        for (gpu, name) in (0..).zip(names) {
            let reader = trace.rank(gpu, node);
            let context = trace.definitions.location_groups.push(LocationGroup {
                name: "Context 0".into(),
                kind: LocationGroupType::Accelerator,
                system_tree_parent: Some(node),
                creating_location_group: Some(LocationGroupRef(gpu)),
                ..LocationGroup::default()
            });
            trace.location(LocationType::AcceleratorStream, &format!("{stream}[{gpu}:0]"), context);
            let class = trace.class(name, unit, "");
            let watts = 100.0 + 100.0 * f64::from(gpu);
            match unit {
                "W" => trace.record(reader, class, &move |_| watts),
                _ => trace.record(reader, class, &counter(watts)),
            }
        }
        let summary = trace.attribute();
        // Without a number 0, it is not known from which number on the tool counts.
        if names[0].contains('1') {
            assert_incomplete(&summary, "cannot be told");
            continue;
        }
        assert_eq!(of_kernels(&summary), [400.0, 800.0], "{names:?}: {:?}", summary.run.missing);
        assert_complete(&summary);
    }
}

/// The scope of a GPU's counter is a context or a stream on it, or the stream or a location of the context has recorded it.
#[test]
fn kernels_have_the_joules_of_the_counter_whose_scope_is_their_context() {
    let ways = [Some(MetricScope::LocationGroup), Some(MetricScope::Location), None];
    let cases = ways.map(|way| (way, "gpu energy", false)).into_iter();
    for (way, name, is_by_context) in cases.chain([(None, "energy", false), (None, "energy", true)]) {
        let mut trace = Trace::new();
        let node = trace.part("node", "a", None);
        let reader = trace.rank(0, node);
        let class = trace.class(name, "J", "");
        for gpu in 0..2 {
            let context = trace.definitions.location_groups.push(LocationGroup {
                name: format!("CUDA Context {gpu}"),
                kind: LocationGroupType::Accelerator,
                system_tree_parent: Some(node),
                creating_location_group: Some(LocationGroupRef(0)),
                ..LocationGroup::default()
            });
            let stream = trace.location(LocationType::AcceleratorStream, "worker", context);
            let instance = way.map(|scope| {
                let scope_number = if scope == MetricScope::Location { stream.0 } else { context.0.into() };
                let instance = MetricInstance { class, recorder: reader, scope, scope_number };
                trace.definitions.add_metric_instance(instance)
            });
            let recorder = match way {
                Some(_) => reader,
                None if is_by_context => trace.location(LocationType::Metric, "reader", context),
                None => stream,
            };
            trace.record(recorder, MetricRef { class, instance }, &counter(100.0 + 100.0 * f64::from(gpu)));
        }
        let summary = trace.attribute();
        assert_joules_are(&summary, 1200.0);
        assert_eq!(of_kernels(&summary), [400.0, 800.0], "{way:?} {name} {is_by_context}");
        assert_complete(&summary);
    }
}

#[test]
fn a_counter_contains_the_parts_next_to_it_in_its_path() {
    let [node, accelerator] = [500.0, 200.0].map(counter);
    let [node_watts, cpu_watts, memory_watts] = [500.0, 200.0, 50.0].map(|watts| move |_: u64| watts);
    for summary in [
        of_node(&[("pm/energy", "J", &node), ("pm/accel_energy", "J", &accelerator)]),
        of_node(&[
            ("cray_pm/power", "W", &node_watts),
            ("cray_pm/cpu_power", "W", &cpu_watts),
            ("cray_pm/memory_power", "W", &memory_watts),
        ]),
    ] {
        assert_joules_are(&summary, 2000.0);
        assert_complete(&summary);
    }
}

#[test]
fn a_run_is_incomplete_if_one_of_the_unknown_counters_may_contain_the_others() {
    let of = |watts: &[(&str, f64)]| {
        let watts: Vec<_> = watts.iter().map(|(name, watts)| (*name, move |_| *watts)).collect();
        of_node(&watts.iter().map(|(name, watts)| (*name, "W", watts as At)).collect::<Vec<_>>())
    };
    let doubt = "does not show whether it contains";
    assert_incomplete(
        &of(&[("supply", 330.0), ("ATX 12V", 100.0), ("EPS 12V", 110.0), ("PCIe", 60.0)]),
        doubt,
    );
    let supplies = [("PSU0 power", 160.0), ("PSU1 power", 170.0)];
    let parts = [("package-0 power", 100.0), ("package-1 power", 90.0), ("gpu 0 power", 60.0)];
    let summary = of(&[&supplies[..], &parts].concat());
    assert_joules_are(&summary, 1320.0);
    assert_complete(&summary);
    let ends = [("PSU1 PIN", 330.0), ("PSU1 POUT", 300.0)];
    let summary = of(&ends);
    assert_joules_are(&summary, 1320.0);
    assert_complete(&summary);
    assert_complete(&of(&[&ends[..], &parts].concat()));
    assert_complete(&of(&[("phase 1", 330.0), ("phase 2", 100.0), ("phase 3", 110.0)]));
}

/// Score-P's synchronous plugins store the counter for all ranks until MPI is initialised, and then 0 for all but one.
#[test]
fn ranks_that_record_only_zeros_after_the_first_readings_have_no_counter() {
    for (name, unit) in [("Intel RAPL PCKG[0]", "J"), ("hdeem/BLADE/P", "W")] {
        let mut trace = Trace::new();
        let node = trace.part("node", "a", None);
        let class = trace.class(name, unit, "");
        for rank in 0..4 {
            let reader = trace.rank(rank, node);
            let value = |at: u64| match unit {
                _ if rank > 0 && at > 20 => 0.0,
                "J" => at as f64,
                _ => 100.0 + (at % 5) as f64,
            };
            trace.record(reader, class, &value);
        }
        let summary = trace.attribute();
        assert_joules_are(&summary, if unit == "J" { 400.0 } else { 408.0 });
        assert_complete(&summary);
    }
}
