//! Traces as other tools write them, with counters that are recorded in odd ways. Each is of 100 W for a second, read every
//! 50 ms, while `main` runs on each rank: so many joules have to come out, whatever the trace is like.

use ampere_tests::runs::{Place, attribute, list, number};
use otf2::{
    ArchiveWriter, ClockProperties, Definitions, EventWriter, Location, LocationGroup, LocationGroupType,
    LocationRef, LocationType, MetricBase, MetricClass, MetricClassRef, MetricMember, MetricMode,
    MetricOccurrence, MetricType, MetricValue, MetricValueType, RecorderKind, Region, RegionRef,
    SystemTreeNode, SystemTreeNodeRef,
};
use serde_json::Value;
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
        let directory = place.directory.path().join("trace");
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

    /// Units of 10^exponent joules.
    fn metric(&mut self, name: &str, exponent: i64, mode: MetricMode) -> MetricClassRef {
        let member = self.definitions.metric_members.push(MetricMember {
            name: name.into(),
            description: String::new(),
            kind: MetricType::Other,
            mode,
            value_type: MetricValueType::U64,
            base: MetricBase::Decimal,
            exponent,
            unit: "J".into(),
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
        self.archive.finish(&self.definitions).expect("a trace");
        let trace: PathBuf = self.place.directory.path().join("trace/traces.otf2");
        attribute(&trace, more)
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
fn a_delay_is_one_from_the_first_moment_on() {
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
        let config = trace.place.directory.path().join("ampere.toml");
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
fn a_metric_of_differences_is_left_out_and_told() {
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
