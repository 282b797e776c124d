//! Traces as other tools write them, with counters that are recorded in odd ways. Each is of 100 W for a second, read every
//! 50 ms, while `main` runs on each rank: so many joules have to come out, whatever the trace is like.

use ampere_tests::artifact;
use ampere_tests::jobs::Place;
use ampere_tests::runs::{assert_same_figures, attribute, list, number, succeed, text};
use otf2::{
    ArchiveWriter, ClockProperties, Definitions, EventWriter, Location, LocationGroup, LocationGroupType,
    LocationRef, LocationType, MetricBase, MetricClass, MetricClassRef, MetricMember, MetricMode,
    MetricOccurrence, MetricType, MetricValue, MetricValueType, RecorderKind, Region, RegionRef,
    SystemTreeNode, SystemTreeNodeRef,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

const SECOND: u64 = 1_000_000;
const WATTS: u64 = 100;
const READINGS: u64 = 20;

struct Trace {
    place: Place,
    archive: ArchiveWriter,
    definitions: Definitions,
    main: RegionRef,
}

impl Trace {
    fn new() -> Trace {
        let place = Place::new();
        let directory = place.path("trace");
        std::fs::create_dir(&directory).expect("a directory");
        let archive = ArchiveWriter::create(&directory).expect("an archive");
        let clock = ClockProperties {
            timer_resolution: SECOND,
            trace_length: 10 * SECOND,
            ..ClockProperties::default()
        };
        let mut definitions = Definitions { clock, ..Definitions::default() };
        let main = definitions.regions.push(Region { name: "main".into(), ..Region::default() });
        Trace { place, archive, definitions, main }
    }

    fn node(&mut self, name: &str) -> SystemTreeNodeRef {
        let class_name = "node".into();
        let node = SystemTreeNode { name: name.into(), class_name, ..SystemTreeNode::default() };
        self.definitions.system_tree_nodes.push(node)
    }

    /// A rank's main thread.
    fn rank(&mut self, rank: u64, node: SystemTreeNodeRef) -> LocationRef {
        let group = self.definitions.location_groups.push(LocationGroup {
            name: format!("MPI Rank {rank}"),
            kind: LocationGroupType::Process,
            system_tree_parent: Some(node),
            creating_location_group: None,
            properties: Vec::new(),
        });
        let location = Location {
            name: "Master thread".into(),
            kind: LocationType::CpuThread,
            events: 0,
            group: Some(group),
            properties: Vec::new(),
        };
        self.definitions.locations.insert(LocationRef(rank), location);
        LocationRef(rank)
    }

    fn writer(&self, location: LocationRef) -> EventWriter<'_> {
        self.archive.event_writer(location).expect("a location")
    }

    /// A GPU stream of a rank's, with a context of its own.
    fn stream(&mut self, rank: u64, name: &str) -> LocationRef {
        let process = self.definitions.locations.get(LocationRef(rank)).and_then(|l| l.group);
        let node = process.and_then(|p| self.definitions.location_groups.get(p)?.system_tree_parent);
        let group = self.definitions.location_groups.push(LocationGroup {
            name: format!("HIP Context of {rank}"),
            kind: LocationGroupType::Accelerator,
            system_tree_parent: node,
            creating_location_group: process,
            properties: Vec::new(),
        });
        let reference = LocationRef((1 << 32) | rank);
        let location = Location {
            name: name.into(),
            kind: LocationType::AcceleratorStream,
            events: 0,
            group: Some(group),
            properties: Vec::new(),
        };
        self.definitions.locations.insert(reference, location);
        reference
    }

    /// Units of 10^exponent joules.
    fn metric(&mut self, name: &str, exponent: i64, mode: MetricMode) -> MetricClassRef {
        self.metric_in(name, "J", (MetricBase::Decimal, exponent), mode)
    }

    fn metric_in(
        &mut self,
        name: &str,
        unit: &str,
        (base, exponent): (MetricBase, i64),
        mode: MetricMode,
    ) -> MetricClassRef {
        let member = self.definitions.metric_members.push(MetricMember {
            name: name.into(),
            description: String::new(),
            kind: MetricType::Other,
            mode,
            value_type: MetricValueType::U64,
            base,
            exponent,
            unit: unit.into(),
        });
        self.definitions.add_metric_class(MetricClass {
            members: vec![member],
            occurrence: MetricOccurrence::Asynchronous,
            recorder_kind: RecorderKind::Abstract,
            recorders: Vec::new(),
        })
    }

    fn counter(&mut self) -> MetricClassRef {
        self.metric("energy", -6, MetricMode::AccumulatedStart)
    }

    fn attribute(self, more: &[&str]) -> Value {
        attribute(&self.finish().1, more)
    }

    fn finish(self) -> (Place, PathBuf) {
        self.archive.finish(&self.definitions).expect("a trace");
        let trace = self.place.path("trace/traces.otf2");
        (self.place, trace)
    }

    /// What `ampere attribute` says; `replay`, the trace that it writes, and `report -f chrome` have to say the same.
    fn everywhere(self) -> Value {
        let (place, trace) = self.finish();
        let offline = attribute(&trace, &[]);
        let mut replay = place.command(artifact("ampere"));
        succeed(replay.arg("replay").arg(&trace).args(["--speed", "max", "-o"]).arg(place.path("out")));
        let live = place.summary("out");
        assert_same_figures(&live, &offline);
        assert_same_figures(&attribute(&place.path("out/traces.otf2"), &[]), &offline);
        for key in ["complete", "energy", "nodes"] {
            assert_eq!(live["run"][key], offline["run"][key], "{key}: {}", live["run"]);
        }
        let (said, known) = (live["run"]["notes"].to_string(), list(&offline["run"], "notes"));
        assert!(
            known.iter().all(|note| said.contains(note.as_str().unwrap_or("?"))),
            "{known:?} not in {said}"
        );
        let mut report = place.command(artifact("ampere"));
        let report = succeed(report.args(["report", "-f", "chrome"]).arg(place.path("out")));
        assert_eq!(text(&report.stderr), "", "what is drawn is what the summary has");
        let events: Value = serde_json::from_slice(&report.stdout).expect("JSON");
        let names = |list: &[Value], key: &str| -> BTreeSet<String> {
            list.iter().filter_map(|entry| entry[key].as_str()).map(str::to_owned).collect()
        };
        let drawn = list(&events, "traceEvents").iter().filter(|event| event["ph"] == "C").cloned();
        let drawn = names(&drawn.collect::<Vec<_>>(), "name");
        let drawn: BTreeSet<_> =
            drawn.iter().filter_map(|name| name.split(" [").next()).map(str::to_owned).collect();
        assert_eq!(drawn, names(list(&offline, "devices"), "name"));
        offline
    }
}

/// `main` from the first reading to the last, and what a counter of this unit reads, from a zero of its own.
fn a_second(trace: &Trace, writer: &mut EventWriter, class: MetricClassRef, units_per_joule: u64, late: u64) {
    for reading in 0..=READINGS {
        let time = SECOND + reading * SECOND / READINGS;
        if reading == 0 {
            writer.enter(time, trace.main).expect("an event");
        }
        let joules_by_20 = reading * WATTS;
        let value = joules_by_20 * units_per_joule / READINGS + late;
        writer.metric(time + late, class, &[MetricValue::U64(value)]).expect("a sample");
    }
    writer.leave(2 * SECOND + late, trace.main).expect("an event");
}

fn joules(summary: &Value) -> Vec<f64> {
    list(summary, "devices").iter().map(|device| number(device, "total_joules")).collect()
}

#[track_caller]
fn are(joules: &[f64], expected: &[f64]) {
    assert_eq!(joules.len(), expected.len(), "{joules:?}");
    let close = joules.iter().zip(expected).all(|(is, should)| (is - should).abs() < 1e-6);
    assert!(close, "{joules:?} and not {expected:?}");
}

/// A counter that has counted for long, and readings of it that are wrong. What is not known is told in seconds.
#[test]
fn misreadings_add_no_joules() {
    const BEFORE: u64 = 5_000_000_000;
    let high = BEFORE + 10_000_000_000;
    // The number of the reading and what was read; joules, misreadings, and how long nothing is known.
    type Case<'a> = (&'a [(u64, u64)], f64, u64, f64);
    let cases: [Case; 7] = [
        (&[], 100.0, 0, 0.0),
        (&[(9, 0), (10, 0)], 100.0, 2, 0.0),
        (&[(0, 0)], 95.0, 1, 0.05),
        (&[(7, high)], 100.0, 1, 0.0),
        (&[(3, u64::MAX), (4, 0), (5, 17), (6, high)], 100.0, 4, 0.0),
        (&[(20, u64::MAX)], 95.0, 1, 0.05),
        (&[(18, 0), (19, 0), (20, 0)], 85.0, 3, 0.15),
    ];
    for (wrong, expected, misreadings, uncovered) in cases {
        let mut trace = Trace::new();
        let (node, class) = (trace.node("a"), trace.counter());
        let location = trace.rank(0, node);
        let mut writer = trace.writer(location);
        for reading in 0..=READINGS {
            let time = SECOND + reading * SECOND / READINGS;
            if reading == 0 {
                writer.enter(time, trace.main).expect("an event");
            }
            let right = BEFORE + reading * WATTS * 1_000_000 / READINGS;
            let value = wrong.iter().find(|(at, _)| *at == reading).map_or(right, |(_, value)| *value);
            writer.metric(time, class, &[MetricValue::U64(value)]).expect("a sample");
        }
        writer.leave(2 * SECOND, trace.main).expect("an event");
        writer.close().expect("a location");
        let summary = trace.everywhere();
        are(&joules(&summary), &[expected]);
        assert_eq!(summary["quality"]["unusable_samples"], misreadings, "{wrong:?}");
        let told = number(&summary["devices"][0], "uncovered_seconds");
        assert!((told - uncovered).abs() < 1e-9, "{wrong:?}: {told} s");
    }
}

/// As PAPI's counters are by Score-P: each process begins at 0, and reads when it has an event.
#[test]
fn a_counter_that_each_rank_records_is_one_counter() {
    let mut trace = Trace::new();
    let node = trace.node("a");
    let class = trace.counter();
    for rank in 0..3 {
        let location = trace.rank(rank, node);
        let mut writer = trace.writer(location);
        a_second(&trace, &mut writer, class, 1_000_000, rank * 20_000);
        writer.close().expect("a location");
    }
    let summary = trace.attribute(&[]);
    are(&joules(&summary), &[100.0]);
    assert_eq!(summary["quality"]["counter_resets"], 0);
    let notes = summary["run"]["notes"].to_string();
    assert!(
        notes.contains("energy on a is recorded by 3 locations: the samples of the first are taken"),
        "{notes}"
    );
    assert_eq!(summary["run"]["complete"], true);
}

#[test]
fn metrics_of_one_name_have_each_their_own_unit() {
    let mut trace = Trace::new();
    for (rank, (node, exponent)) in [("a", -6), ("b", -3)].into_iter().enumerate() {
        let node = trace.node(node);
        let class = trace.metric("energy", exponent, MetricMode::AccumulatedStart);
        let location = trace.rank(rank as u64, node);
        let mut writer = trace.writer(location);
        a_second(&trace, &mut writer, class, 10u64.pow(-exponent as u32), 0);
        writer.close().expect("a location");
    }
    are(&joules(&trace.attribute(&[])), &[100.0, 100.0]);
}

/// It ends with the location's last enter or leave, and not with its last sample.
#[test]
fn a_frame_that_is_never_left_is_not_charged_with_what_follows() {
    let mut trace = Trace::new();
    let (node, class) = (trace.node("a"), trace.counter());
    let inner = trace.definitions.regions.push(Region { name: "inner".into(), ..Region::default() });
    let location = trace.rank(0, node);
    let mut writer = trace.writer(location);
    let sample = |tenth: u64, writer: &mut EventWriter| {
        let value = MetricValue::U64(tenth * WATTS * 1_000_000 / 10);
        writer.metric(SECOND + tenth * SECOND / 10, class, &[value]).expect("a sample");
    };
    sample(0, &mut writer);
    writer.enter(SECOND, trace.main).expect("an event");
    writer.enter(SECOND, inner).expect("an event");
    writer.leave(2 * SECOND, inner).expect("an event");
    (10..=90).for_each(|tenth| sample(tenth, &mut writer));
    writer.close().expect("a location");
    let summary = trace.attribute(&[]);
    are(&joules(&summary), &[900.0]);
    let view = &summary["devices"][0]["views"][0];
    are(&[number(view, "attributed_joules"), number(view, "idle_joules")], &[100.0, 800.0]);
    assert_eq!(summary["quality"]["late_events"], 0);
}

#[test]
fn a_delay_applies_from_the_first_sample_on() {
    let mut figures = Vec::new();
    for begin in [0, 100 * SECOND] {
        let mut trace = Trace::new();
        let (node, class) = (trace.node("a"), trace.counter());
        let location = trace.rank(0, node);
        let mut writer = trace.writer(location);
        for reading in 0..=4 {
            let value = MetricValue::U64(reading * 2_500_000);
            writer.metric(begin + reading * 25_000, class, &[value]).expect("a sample");
        }
        writer.enter(begin + 100_000, trace.main).expect("an event");
        writer.leave(begin + 200_000, trace.main).expect("an event");
        writer.metric(begin + 275_000, class, &[MetricValue::U64(27_500_000)]).expect("a sample");
        writer.close().expect("a location");
        let config = trace.place.path("ampere.toml");
        std::fs::write(
            &config,
            "[[device]]\nname = \"e\"\nmetric = 'energy'\nscale = 1e-6\ndelay = \"75ms\"\n",
        )
        .expect("room");
        let summary = trace.attribute(&["--config", config.to_str().expect("text")]);
        let view = &summary["devices"][0]["views"][0];
        figures.push([number(view, "attributed_joules"), number(view, "idle_joules")]);
    }
    are(&figures[0], &figures[1]);
    are(&figures[0], &[10.0, 17.5]);
}

/// Static functions of two files, one in the other.
#[test]
fn functions_of_one_name_are_one_row() {
    let mut trace = Trace::new();
    let (node, class) = (trace.node("a"), trace.counter());
    let both = ["a.c", "b.c"].map(|file| {
        let source_file = Some(file.to_owned());
        trace.definitions.regions.push(Region { name: "init".into(), source_file, ..Region::default() })
    });
    let location = trace.rank(0, node);
    let mut writer = trace.writer(location);
    let sample = |writer: &mut EventWriter, time: u64, joules: u64| {
        writer.metric(time, class, &[MetricValue::U64(joules * 1_000_000)]).expect("a sample");
    };
    sample(&mut writer, SECOND, 0);
    both.iter().for_each(|region| writer.enter(SECOND, *region).expect("an event"));
    both.iter().rev().for_each(|region| writer.leave(2 * SECOND, *region).expect("an event"));
    sample(&mut writer, 2 * SECOND, WATTS);
    writer.close().expect("a location");
    let summary = trace.attribute(&[]);
    let view = &summary["devices"][0]["views"][0];
    let rows = list(view, "regions");
    assert_eq!(rows.len(), 1, "{rows:?}");
    let figures = ["calls", "exclusive_joules", "inclusive_joules"].map(|key| number(&rows[0], key));
    are(&figures, &[2.0, 100.0, 100.0]);
    assert_eq!(list(view, "callpaths").len(), 2);
}

#[test]
fn a_metric_of_differences_is_left_out_with_a_note() {
    let mut trace = Trace::new();
    let (node, class) = (trace.node("a"), trace.counter());
    let odd = trace.metric("steps", -6, MetricMode::RelativeLast);
    let location = trace.rank(0, node);
    let mut writer = trace.writer(location);
    a_second(&trace, &mut writer, class, 1_000_000, 0);
    writer.metric(3 * SECOND, odd, &[MetricValue::U64(7)]).expect("a sample");
    writer.close().expect("a location");
    let summary = trace.attribute(&[]);
    are(&joules(&summary), &[100.0]);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("metric steps is recorded as differences"), "{notes}");
}

const GPU: &str = "A2rocm_smi:::energy_count:device=0";

/// Ranks of one node, each of which runs `main` for a second, and records a counter of this name at these watts, from a zero
/// of its own. As PAPI's, it is in microjoules and has no unit.
fn ranks_with(trace: &mut Trace, name: &str, watts: &[f64]) {
    let node = trace.node("a");
    let class = trace.metric_in(name, "#", (MetricBase::Decimal, 0), MetricMode::AccumulatedStart);
    for (rank, watts) in (0..).zip(watts) {
        let location = trace.rank(rank, node);
        let mut writer = trace.writer(location);
        writer.enter(SECOND, trace.main).expect("an event");
        for reading in 0..=READINGS {
            let microjoules = watts * 1e6 * reading as f64 / READINGS as f64;
            let value = MetricValue::U64(rank * 1_000_000 * u64::from(*watts > 0.0) + microjoules as u64);
            let time = SECOND + reading * SECOND / READINGS;
            writer.metric(time, class, &[value]).expect("a sample");
        }
        writer.leave(2 * SECOND, trace.main).expect("an event");
        writer.close().expect("a location");
    }
}

fn names(summary: &Value) -> Vec<&str> {
    list(summary, "devices").iter().filter_map(|device| device["name"].as_str()).collect()
}

/// Joules of a device in the ranks view, by location group.
fn by_rank(device: &Value) -> Vec<(&str, f64)> {
    let rows = list(&list(device, "views")[0], "callpaths").iter();
    rows.map(|row| (row["location_group"].as_str().expect("a name"), number(row, "exclusive_joules")))
        .collect()
}

#[test]
fn gpus_that_each_rank_sees_as_number_0_are_each_a_device() {
    let mut trace = Trace::new();
    let watts = [100.0, 150.0, 200.0, 250.0, 300.0];
    ranks_with(&mut trace, GPU, &watts);
    for rank in 0..5 {
        let stream = trace.stream(rank, "HIP[0:0]");
        let mut writer = trace.writer(stream);
        writer.enter(SECOND + SECOND / 2, trace.main).expect("an event");
        writer.leave(2 * SECOND, trace.main).expect("an event");
        writer.close().expect("a location");
    }
    let summary = trace.everywhere();
    assert_eq!(names(&summary), [0, 1, 2, 3, 4].map(|rank| format!("GPU-0@rank {rank}")));
    are(&joules(&summary), &watts);
    are(&[number(&summary["run"], "total_joules")], &[1000.0]);
    for (rank, device) in list(&summary, "devices").iter().enumerate() {
        assert_eq!(by_rank(device).len(), 1);
        assert_eq!(by_rank(device)[0].0, format!("MPI Rank {rank}"));
        are(
            &[by_rank(device)[0].1, number(&list(device, "views")[1], "attributed_joules")],
            &[watts[rank], watts[rank] / 2.0],
        );
    }
    let run = &summary["run"];
    assert_eq!(run["complete"], true, "{run}");
    assert!(run["notes"].to_string().contains("is recorded by 5 locations, and is 5 devices"), "{run}");
}

#[test]
fn ranks_that_share_a_gpu_are_told_from_those_that_do_not() {
    let mut trace = Trace::new();
    ranks_with(&mut trace, GPU, &[100.0, 100.0, 300.0, 300.0]);
    let summary = trace.everywhere();
    assert_eq!(names(&summary), ["GPU-0@rank 0", "GPU-0@rank 2"]);
    are(&joules(&summary), &[100.0, 300.0]);
    let of = |device: usize| by_rank(&list(&summary, "devices")[device]);
    assert_eq!(of(0).iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), ["MPI Rank 0", "MPI Rank 1"]);
    are(&of(1).iter().map(|(_, joules)| *joules).collect::<Vec<_>>(), &[150.0, 150.0]);
    assert_eq!(summary["run"]["complete"], true);
}

/// Two GPUs with the same work, each read by two ranks at times of their own: the counters move every 15 ms, and differ by the noise
/// of their power alone.
#[test]
fn ranks_that_share_a_gpu_are_told_by_what_they_read_at_odd_times() {
    const UPDATE: u64 = 15_000;
    let mut seed = 1u64;
    let mut random = move |limit: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % limit
    };
    let mut trace = Trace::new();
    let node = trace.node("a");
    let class = trace.metric_in(GPU, "#", (MetricBase::Decimal, 0), MetricMode::AccumulatedStart);
    // 300 W, 30 % more or less from update to update, in microjoules.
    let gpus: Vec<Vec<u64>> = (0..2)
        .map(|_| {
            let mut risen = 0;
            (0..20 * SECOND / UPDATE)
                .map(|_| {
                    risen += UPDATE * (210 + random(181));
                    risen
                })
                .collect()
        })
        .collect();
    for rank in 0..4 {
        let gpu = &gpus[rank as usize / 2];
        let location = trace.rank(rank, node);
        let mut writer = trace.writer(location);
        writer.enter(SECOND, trace.main).expect("an event");
        let mut time = rank * 1000;
        while let Some(value) = gpu.get((time / UPDATE) as usize) {
            let value = MetricValue::U64(value + rank * 777);
            writer.metric(SECOND + time, class, &[value]).expect("a sample");
            time += 1 + random(100_000);
        }
        writer.leave(22 * SECOND, trace.main).expect("an event");
        writer.close().expect("a location");
    }
    let summary = trace.attribute(&[]);
    assert_eq!(names(&summary), ["GPU-0@rank 0", "GPU-0@rank 2"], "{}", summary["run"]);
    assert_eq!(summary["run"]["complete"], true);
}

/// Nothing shows whether it is one GPU or two.
#[test]
fn two_idle_gpus_of_one_name_stay_two_with_a_note() {
    let said = "whether rank 0 and rank 1 read one counter cannot be told";
    let mut trace = Trace::new();
    ranks_with(&mut trace, GPU, &[1e-3, 1e-3]);
    let class = trace.counter();
    let location = trace.rank(2, SystemTreeNodeRef(0));
    let mut writer = trace.writer(location);
    a_second(&trace, &mut writer, class, 1_000_000, 0);
    writer.close().expect("a location");
    // Two readings each: no more than one update.
    let few = |trace: &mut Trace| {
        let node = trace.node("b");
        let class = trace.metric_in(GPU, "#", (MetricBase::Decimal, 0), MetricMode::AccumulatedStart);
        for rank in 3..5 {
            let location = trace.rank(rank, node);
            let mut writer = trace.writer(location);
            for reading in 0..2 {
                let value = MetricValue::U64(17 * rank + reading * 300_000);
                writer.metric(SECOND + reading * 10_000, class, &[value]).expect("a sample");
            }
            writer.close().expect("a location");
        }
    };
    few(&mut trace);
    let summary = trace.everywhere();
    let run = &summary["run"];
    assert!(names(&summary).ends_with(&["GPU-0@rank 3", "GPU-0@rank 4"]), "{:?}", names(&summary));
    assert!(
        run["notes"].to_string().contains("whether rank 3 and rank 4 read one counter cannot be told"),
        "{run}"
    );
    assert_eq!(run["complete"], true, "0.3 J of 100 J do not matter: {run}");

    let mut trace = Trace::new();
    ranks_with(&mut trace, GPU, &[0.0, 0.0]);
    let summary = trace.attribute(&[]);
    assert_eq!(names(&summary), ["GPU-0@rank 0", "GPU-0@rank 1"]);
    assert!(summary["run"]["notes"].to_string().contains(said), "{}", summary["run"]);
    assert_eq!(summary["run"]["complete"], true);

    let mut trace = Trace::new();
    few(&mut trace);
    let run = &trace.everywhere()["run"];
    assert_eq!(run["complete"], false, "it is all there is: {run}");
}

#[test]
fn a_die_whose_counter_stays_0_is_no_device() {
    let mut trace = Trace::new();
    ranks_with(&mut trace, GPU, &[100.0, 0.0]);
    let summary = trace.everywhere();
    assert_eq!(names(&summary), ["GPU-0"]);
    are(&joules(&summary), &[100.0]);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("rank 1 recorded nothing but 0, which is no device"), "{notes}");
}

/// A power that is 100 W on average: 50 W and 150 W by turns, read `READINGS` times in a second, while `main` runs.
fn power(trace: &mut Trace, class: MetricClassRef, units_per_watt: f64) {
    let node = trace.node("a");
    let location = trace.rank(0, node);
    let mut writer = trace.writer(location);
    writer.enter(SECOND, trace.main).expect("an event");
    for reading in 0..=READINGS {
        let watts = if reading % 2 == 0 { 50.0 } else { 150.0 };
        let value = MetricValue::U64((watts * units_per_watt).round() as u64);
        writer.metric(SECOND + reading * SECOND / READINGS, class, &[value]).expect("a sample");
    }
    writer.leave(2 * SECOND, trace.main).expect("an event");
    writer.close().expect("a location");
}

#[test]
fn a_power_is_integrated_in_its_own_unit() {
    use MetricBase::{Binary, Decimal};
    for (unit, base, exponent, units_per_watt) in [
        ("W", Decimal, 0, 1.0),
        ("uW", Decimal, 0, 1e6),
        ("mW", Decimal, 0, 1e3),
        ("kW", Decimal, -6, 1e3),
        ("W", Decimal, -3, 1e3),
        ("W", Binary, -4, 16.0),
    ] {
        let made = || {
            let mut trace = Trace::new();
            let class = trace.metric_in("node_power", unit, (base, exponent), MetricMode::AbsolutePoint);
            power(&mut trace, class, units_per_watt);
            trace
        };
        // Without any setting, and with one that does not say its scale.
        let trace = made();
        let config = trace.place.path("ampere.toml");
        let setting = "[[device]]\nname = \"node\"\nmetric = 'node_power'\nkind = \"instantaneous\"\n";
        std::fs::write(&config, setting).expect("room");
        let configured = trace.attribute(&["--config", config.to_str().expect("text")]);
        for summary in [configured, made().everywhere()] {
            are(&joules(&summary), &[100.0]);
            assert_eq!(summary["run"]["energy"], "integrated", "{unit}");
            assert_eq!(summary["devices"][0]["energy"], "integrated", "{unit}");
        }
    }
}

#[test]
fn a_power_is_about_the_time_that_its_mode_says() {
    use MetricMode::{AbsoluteLast, AbsoluteNext, AbsolutePoint, AccumulatedStart};
    // 50 W, 150 W, 150 W after a third of the time each: from a sample on, or until it.
    for (mode, expected) in
        [(AbsolutePoint, 200.0), (AbsoluteNext, 200.0), (AccumulatedStart, 200.0), (AbsoluteLast, 300.0)]
    {
        let mut trace = Trace::new();
        let class = trace.metric_in("node_power", "W", (MetricBase::Decimal, 0), mode);
        let node = trace.node("a");
        let location = trace.rank(0, node);
        let mut writer = trace.writer(location);
        writer.enter(SECOND, trace.main).expect("an event");
        for (time, watts) in (1..).zip([50, 150, 150]) {
            writer.metric(time * SECOND, class, &[MetricValue::U64(watts)]).expect("a sample");
        }
        writer.leave(3 * SECOND, trace.main).expect("an event");
        writer.close().expect("a location");
        let summary = trace.everywhere();
        are(&joules(&summary), &[expected]);
        are(&[number(&summary["devices"][0]["views"][0], "attributed_joules")], &[expected]);
    }
}

/// As PAPI's metrics are by Score-P: no unit, and accumulated by their mode.
#[test]
fn powers_of_known_names_are_powers_where_there_is_no_energy() {
    let papi = |trace: &mut Trace, name: &str| {
        trace.metric_in(name, "#", (MetricBase::Decimal, 0), MetricMode::AccumulatedStart)
    };
    let gpu_power = "A2rocm_smi:::power_average:device=0:sensor=0";
    let mut trace = Trace::new();
    let class = papi(&mut trace, gpu_power);
    papi(&mut trace, "A2rocm_smi:::current_socket_power:device=0");
    power(&mut trace, class, 1e6);
    let summary = trace.everywhere();
    assert_eq!(names(&summary), ["GPU-0"]);
    are(&joules(&summary), &[100.0]);
    assert_eq!(summary["run"]["energy"], "integrated");
    assert!(summary["run"]["notes"].to_string().contains("current_socket_power:device=0 is left out"));

    // A GPU that has its own counter; a limit.
    let mut trace = Trace::new();
    let class = papi(&mut trace, gpu_power);
    power(&mut trace, class, 1e6);
    let counter = papi(&mut trace, GPU);
    let limit = trace.metric_in("power_cap", "W", (MetricBase::Decimal, 0), MetricMode::AbsolutePoint);
    let location = trace.rank(1, SystemTreeNodeRef(0));
    let mut writer = trace.writer(location);
    for reading in 0..2 {
        let time = (1 + reading) * SECOND;
        writer.metric(time, counter, &[MetricValue::U64(reading * 70_000_000)]).expect("a sample");
        writer.metric(time, limit, &[MetricValue::U64(500)]).expect("a sample");
    }
    writer.close().expect("a location");
    let summary = trace.attribute(&[]);
    are(&joules(&summary), &[70.0]);
    assert_eq!(summary["run"]["energy"], "measured");
}

/// A Frontier node: the GPUs' own counters, and Cray's.
#[test]
fn crays_counters_are_found_and_no_joule_is_counted_twice() {
    let cray = |name: &str| format!("A2coretemp:::craypm:{name}");
    let all = [
        (cray("energy"), 500),
        (cray("cpu_energy"), 50),
        (cray("memory_energy"), 30),
        (cray("accel0_energy"), 130),
        (cray("accel1_energy"), 240),
        (cray("accel0_energy_timestamp"), 7_000_000),
        ("A2rocm_smi:::energy_count:device=0".to_owned(), 120_000_000),
        ("A2rocm_smi:::energy_count:device=2".to_owned(), 230_000_000),
    ];
    // Without the node's, the accelerators' count, and not the GPUs' in them.
    for (from, total) in [(0, 500.0), (1, 50.0 + 30.0 + 130.0 + 240.0)] {
        let mut trace = Trace::new();
        let node = trace.node("frontier00001");
        let locations = [0, 1].map(|rank| trace.rank(rank, node));
        for (rank, location) in locations.into_iter().enumerate() {
            let classes = all[from..].iter().map(|(name, units)| {
                let class =
                    trace.metric_in(name, "#", (MetricBase::Decimal, 0), MetricMode::AccumulatedStart);
                (class, *units)
            });
            let classes: Vec<_> = classes.collect();
            let mut writer = trace.writer(location);
            writer.enter(SECOND, trace.main).expect("an event");
            // Both ranks record them.
            for reading in 0..=READINGS {
                for (class, units) in &classes {
                    let value = MetricValue::U64(1_000 + units * reading / READINGS);
                    let time = SECOND + reading * SECOND / READINGS + rank as u64;
                    writer.metric(time, *class, &[value]).expect("a sample");
                }
            }
            writer.leave(2 * SECOND + 1, trace.main).expect("an event");
            writer.close().expect("a location");
        }
        let summary = trace.everywhere();
        let mut names = names(&summary);
        names.sort_unstable();
        let expected = ["GPU-0", "GPU-2", "accel0", "accel1", "cpu", "memory", "node"];
        assert_eq!(names, expected[..expected.len() - from]);
        are(&[number(&summary["run"], "total_joules")], &[total]);
        let accelerator =
            list(&summary, "devices").iter().find(|d| d["name"] == "accel1").expect("it is there");
        assert_eq!((&accelerator["kind"], &accelerator["contains"][0]), (&"gpu".into(), &"GPU-2".into()));
        assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    }
}

/// As a part of a trace: counters, and no thread.
#[test]
fn a_node_is_known_by_its_counters() {
    let mut trace = Trace::new();
    let (node, class) = (trace.node("frontier00001"), trace.counter());
    let location = trace.rank(0, node);
    let mut writer = trace.writer(location);
    a_second(&trace, &mut writer, class, 1_000_000, 0);
    writer.close().expect("a location");
    trace.definitions.locations.get_mut(location).expect("it is there").kind = LocationType::Metric;
    let summary = trace.attribute(&[]);
    assert_eq!(summary["run"]["nodes"][0], "frontier00001");
}

#[test]
fn shares_of_time_are_of_the_time_of_all_ranks() {
    let mut trace = Trace::new();
    ranks_with(&mut trace, "energy", &[100.0, 100.0, 100.0]);
    let (_place, path) = trace.finish();
    let mut command = std::process::Command::new(artifact("ampere"));
    let output = succeed(command.arg("attribute").arg(&path).arg("--time"));
    let table = text(&output.stdout);
    let time = table.split_once("\ntime ").map_or(table.as_str(), |(_, time)| time);
    let shares: Vec<f64> =
        time.split_whitespace().filter_map(|word| word.strip_suffix('%')?.parse().ok()).collect();
    // One function, three ranks, one call path.
    assert_eq!(shares, [100.0, 33.3, 33.3, 33.3, 100.0], "{table}");
}
