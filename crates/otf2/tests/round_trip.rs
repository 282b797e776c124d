//! Written archives are read back, by this crate and by OTF2's own tools.

mod common;

use common::*;
use otf2::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
fn a_small_trace_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut written = write(directory.path(), 1000);
    let (trace, events, report) = read(directory.path());
    // The archive counted the events that it wrote.
    for (location, events) in [(LocationRef(0), 2000), (LocationRef(1), 2000), (STREAM, 1000)] {
        written.locations.get_mut(location).unwrap().events = events;
    }
    assert_eq!(trace.definitions(), &written);
    assert_eq!(trace.creator(), "otf2 tests");
    assert_eq!(trace.machine_name(), "frontier");
    assert_eq!(trace.description(), "a test");
    assert_eq!(trace.missing(), []);
    assert_eq!(trace.events_expected(), 5000);
    assert_eq!(report, ReadReport { delivered: 5000, records: 5000, ..ReadReport::default() });
    events.assert_ordered();
    let stream = events.of(STREAM);
    assert_eq!(stream[3], (370, Event::Metric(INSTANCE, vec![MetricValue::U64(3), MetricValue::F64(1.5)])));
    assert_eq!(stream[4].1, Event::Metric(CLASS.into(), vec![MetricValue::U64(4), MetricValue::F64(2.0)]));
    assert_eq!(
        events.of(LocationRef(1))[..2],
        [(10, Event::Enter(RegionRef(0))), (80, Event::Leave(RegionRef(0)))]
    );
}

#[test]
fn the_same_events_can_be_read_again() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 50);
    let (mut trace, first, _) = read(directory.path());
    let mut second = Collect::default();
    trace.read_events(&mut second).unwrap();
    assert_eq!(first.events, second.events);
}

#[test]
fn a_handler_can_stop() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 50);
    let mut trace = Trace::open(&directory.path().join("traces.otf2")).unwrap();
    let mut events = Collect { stop_after: Some(7), ..Collect::default() };
    let report = trace.read_events(&mut events).unwrap();
    assert!(report.stopped);
    assert_eq!((report.delivered, events.events.len()), (7, 7));
}

#[test]
fn several_chunks_and_large_records_are_read_back() {
    // Several megabytes on one location need many chunks, and metric events of 255 values are records with a long length.
    let directory = tempfile::tempdir().unwrap();
    let mut definitions = definitions();
    let member = MetricMemberRef(0);
    let wide =
        definitions.add_metric_class(MetricClass { members: vec![member; 255], ..MetricClass::default() });
    let archive = ArchiveWriter::create(directory.path()).unwrap();
    let mut writer = archive.event_writer(LocationRef(0)).unwrap();
    let value = |i: u64, k: u64| MetricValue::U64((i * 255 + k) << 20);
    for i in 0..3000 {
        writer.enter(i, RegionRef(1)).unwrap();
        let values: Vec<_> = (0..255).map(|k| value(i, k)).collect();
        writer.metric(i, wide, &values).unwrap();
        assert!(matches!(writer.metric(i, wide, &[value(0, 0); 256]), Err(Error::TooManyValues(256))));
    }
    assert_eq!(writer.close().unwrap(), 6000);
    archive.finish(&definitions).unwrap();
    assert!(directory.path().join("traces/0.evt").metadata().unwrap().len() > 4 << 20);
    let (_, events, report) = read(directory.path());
    assert_eq!(report.truncated, []);
    assert_eq!(events.events.len(), 6000);
    for (i, pair) in events.events.chunks(2).enumerate() {
        let expected = (0..255).map(|k| value(i as u64, k)).collect();
        assert_eq!(pair[0].2, Event::Enter(RegionRef(1)));
        assert_eq!(pair[1].2, Event::Metric(wide.into(), expected));
    }
}

#[test]
fn definitions_larger_than_a_chunk_are_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut definitions = definitions();
    for i in 0..120_000 {
        let name =
            format!("region number {i} with a name of some length, as templates of C++ have them {i:0200}");
        definitions.regions.push(Region { canonical_name: name.clone(), name, ..Region::default() });
    }
    ArchiveWriter::create(directory.path()).unwrap().finish(&definitions).unwrap();
    assert!(directory.path().join("traces.def").metadata().unwrap().len() > 20 << 20);
    let trace = Trace::open(&directory.path().join("traces.otf2")).unwrap();
    assert!(trace.definitions() == &definitions);
    assert_eq!(trace.missing().len(), 3);
}

#[test]
fn values_of_newer_versions_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let mut definitions = definitions();
    definitions.regions.insert(
        RegionRef(u32::MAX - 1),
        Region {
            name: "tomorrow".into(),
            role: RegionRole::Unrecognized(200),
            paradigm: ParadigmType::Unrecognized(99),
            flags: 1 << 31,
            ..Region::default()
        },
    );
    definitions.locations.insert(
        LocationRef(u64::MAX - 1),
        Location {
            kind: LocationType::Unrecognized(77),
            properties: vec![
                Property { name: "below zero".into(), value: PropertyValue::I64(-5) },
                Property { name: "half".into(), value: PropertyValue::F64(0.5) },
            ],
            ..Location::default()
        },
    );
    ArchiveWriter::create(directory.path()).unwrap().finish(&definitions).unwrap();
    let trace = Trace::open(&directory.path().join("traces.otf2")).unwrap();
    assert_eq!(trace.definitions(), &definitions);
}

#[derive(Clone, Debug)]
struct Step {
    location: u64,
    after: u64,
    event: Event,
}

fn step() -> impl Strategy<Value = Step> {
    let value = prop_oneof![
        any::<u64>().prop_map(MetricValue::U64),
        any::<i64>().prop_map(MetricValue::I64),
        (-1e300..1e300).prop_map(MetricValue::F64),
    ];
    let event = prop_oneof![
        4 => (0..u32::MAX).prop_map(|region| Event::Enter(RegionRef(region))),
        4 => (0..300_u32).prop_map(|region| Event::Leave(RegionRef(region))),
        1 => (2..u32::MAX, prop::collection::vec(value, 0..20))
            .prop_map(|(metric, values)| Event::Metric(MetricClassRef(metric).into(), values)),
    ];
    let after = prop_oneof![Just(0), 0..100_u64, 0..u64::from(u32::MAX)];
    (0..6_u64, after, event).prop_map(|(location, after, event)| Step { location, after, event })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_events_come_back_in_order(steps in prop::collection::vec(step(), 0..2000)) {
        let directory = tempfile::tempdir().unwrap();
        let mut definitions = definitions();
        let mut expected = Vec::new();
        {
            let archive = ArchiveWriter::create(directory.path()).unwrap();
            let mut writers = BTreeMap::new();
            let mut times = [0_u64; 6];
            let mut open: [Vec<RegionRef>; 6] = Default::default();
            for step in &steps {
                let location = LocationRef(step.location * 0x1_0000_0001);
                if !definitions.locations.contains(location) {
                    definitions.locations.insert(location, Location::default());
                }
                let writer = writers.entry(location).or_insert_with(|| archive.event_writer(location).unwrap());
                let time = &mut times[step.location as usize];
                *time += step.after;
                // Each leave ends the innermost region, so that the events nest.
                let open = &mut open[step.location as usize];
                let event = match &step.event {
                    Event::Leave(region) => open.pop().map_or(Event::Enter(*region), Event::Leave),
                    other => other.clone(),
                };
                if let Event::Enter(region) = &event {
                    open.push(*region);
                }
                match &event {
                    Event::Enter(region) => writer.enter(*time, *region).unwrap(),
                    Event::Leave(region) => writer.leave(*time, *region).unwrap(),
                    Event::Metric(metric, values) => writer.metric(*time, *metric, values).unwrap(),
                    Event::Other(_) => unreachable!(),
                }
                expected.push((location, *time, event));
            }
            // Closed by dropping.
            drop(writers);
            archive.finish(&definitions).unwrap();
        }
        expected.sort_by_key(|(location, time, _)| (*time, *location));
        let (trace, events, report) = read(directory.path());
        prop_assert_eq!(report.truncated, []);
        prop_assert_eq!(trace.events_expected(), steps.len() as u64);
        prop_assert_eq!(events.events, expected);
    }
}

#[test]
fn otf2_print_reads_an_archive() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 300);
    let anchor = directory.path().join("traces.otf2");
    let anchor = anchor.to_str().unwrap();
    let Some((events, warnings)) = output("otf2-print", &[anchor]) else {
        return eprintln!("skipped: no otf2-print");
    };
    assert_eq!(warnings, "");
    let count = |what: &str| events.lines().filter(|line| line.starts_with(what)).count();
    assert_eq!((count("ENTER"), count("LEAVE"), count("METRIC")), (600, 600, 300));
    assert!(events.contains("\"main\"") && events.contains("\"energy\""), "{}", &events[..2000]);
    let (definitions, warnings) = output("otf2-print", &["-G", anchor]).unwrap();
    assert_eq!(warnings, "");
    for word in [
        "MPI_COMM_WORLD",
        "HIP[0:7]",
        "ACCELERATOR",
        "ACCUMULATED_START",
        "ASYNCHRONOUS",
        "MPI rank",
        "/src/main.c",
    ] {
        assert!(definitions.contains(word), "{word} in {definitions}");
    }
    // The local definitions, which are empty, exist and are read.
    let (_, warnings) = output("otf2-print", &["-I", anchor]).unwrap();
    assert_eq!(warnings, "");
}

const PYTHON: &str = r#"
import sys
try:
    import otf2
except ImportError:
    print("absent")
    sys.exit()
with otf2.reader.open(sys.argv[1]) as trace:
    counts = {}
    last = None
    for location, event in trace.events:
        kind = type(event).__name__
        key = (location._ref, kind)
        counts[key] = counts.get(key, 0) + 1
        if kind == "Metric":
            last = event
    for (location, kind), count in sorted(counts.items()):
        print(location, kind, count)
    if last is not None:
        print("last", last.time, [m.name for m in getattr(last.metric, "metric_class", last.metric).members], last.values)
"#;

fn python(anchor: &std::path::Path) -> Option<Vec<String>> {
    let (text, warnings) = output("/usr/bin/python3", &["-c", PYTHON, anchor.to_str().unwrap()])?;
    assert_eq!(warnings, "");
    (text.trim() != "absent").then(|| text.lines().map(str::to_owned).collect())
}

#[test]
fn python_reads_an_archive() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 300);
    let Some(lines) = python(&directory.path().join("traces.otf2")) else {
        return eprintln!("skipped: no python3-otf2");
    };
    let stream = STREAM.0;
    let expected = [
        "0 Enter 300".to_owned(),
        "0 Leave 300".to_owned(),
        "1 Enter 300".to_owned(),
        "1 Leave 300".to_owned(),
        format!("{stream} Metric 300"),
    ];
    assert_eq!(lines[..5], expected);
    assert!(lines[5].contains("29970 ['energy', 'power']") && lines[5].contains("149.5"), "{}", lines[5]);
}

/// Enters, leaves and metric events of a real run, location by location, as the Python binding counts them.
#[test]
fn a_real_trace_is_read_as_python_reads_it() {
    let Some(anchor) = real_trace() else {
        return eprintln!("skipped: no ../shared/traces/mi300a-two-kernels");
    };
    let Some(lines) = python(&anchor) else { return eprintln!("skipped: no python3-otf2") };
    let mut trace = Trace::open(&anchor).unwrap();
    assert_eq!(trace.missing(), []);
    let mut events = Collect { others: true, ..Collect::default() };
    let report = trace.read_events(&mut events).unwrap();
    assert_eq!(report.truncated, []);
    assert_eq!(report.delivered, report.records);
    assert_eq!(report.delivered, trace.events_expected());
    events.assert_ordered();
    let mut counts = BTreeMap::new();
    for (location, _, event) in &events.events {
        let kind = match event {
            Event::Enter(region) => {
                assert!(trace.definitions().regions.contains(*region));
                "Enter"
            }
            Event::Leave(_) => "Leave",
            Event::Metric(metric, values) => {
                let class = trace.definitions().metric_classes.get(metric.class).unwrap();
                assert_eq!(class.members.len(), values.len());
                "Metric"
            }
            Event::Other(name) => name,
        };
        *counts.entry((*location, kind)).or_insert(0) += 1;
    }
    let counts: Vec<_> =
        counts.iter().map(|((location, kind), count)| format!("{location} {kind} {count}")).collect();
    let mut expected: Vec<_> = lines.iter().filter(|line| !line.starts_with("last")).cloned().collect();
    expected.sort();
    let mut counts = counts;
    counts.sort();
    assert!(!counts.is_empty());
    assert_eq!(counts, expected);
}

#[test]
fn the_definitions_of_a_real_trace_are_read() {
    let Some(anchor) = real_trace() else {
        return eprintln!("skipped: no ../shared/traces/mi300a-two-kernels");
    };
    let trace = Trace::open(&anchor).unwrap();
    let d = trace.definitions();
    assert!(d.regions.values().any(|region| region.name.contains("heavy_kernel")));
    assert!(d.locations.values().any(|location| {
        location.name == "HIP[0:0]" && location.kind == LocationType::AcceleratorStream && location.events > 0
    }));
    assert!(d.metric_members.values().any(|member| { member.name.contains("energy_count:device=0") }));
    // Goes up from a location to its node.
    let location = d.locations.values().next().unwrap();
    let mut node = d.location_groups.get(location.group.unwrap()).unwrap().system_tree_parent;
    let mut classes = Vec::new();
    while let Some(at) = node {
        let found = d.system_tree_nodes.get(at).unwrap();
        classes.push(found.class_name.clone());
        node = found.parent;
    }
    assert!(classes.contains(&"node".to_owned()), "{classes:?}");
}

/// The values of two attributes, as they come with enters.
#[derive(Default)]
struct Values {
    wanted: [Option<AttributeRef>; 2],
    next: Option<(LocationRef, u64)>,
    /// The time of each enter, and its values.
    enters: Vec<(u64, Option<u64>, Option<u64>)>,
}

impl EventHandler for Values {
    fn attribute(&self) -> Option<AttributeRef> {
        self.wanted[0]
    }

    fn second_attribute(&self) -> Option<AttributeRef> {
        self.wanted[1]
    }

    fn second_value(&mut self, location: LocationRef, value: u64) -> Flow {
        assert_eq!(self.next.replace((location, value)), None);
        std::ops::ControlFlow::Continue(())
    }

    fn enter(&mut self, location: LocationRef, time: u64, _: RegionRef, value: Option<u64>) -> Flow {
        let second = self.next.take().inspect(|(of, _)| assert_eq!(*of, location));
        self.enters.push((time, value, second.map(|(_, value)| value)));
        std::ops::ControlFlow::Continue(())
    }
}

#[test]
fn each_enter_comes_with_its_value_of_either_attribute() {
    let directory = tempfile::tempdir().unwrap();
    let mut d = Definitions::default();
    let group = d.location_groups.push(LocationGroup::default());
    for location in [0, 1] {
        d.locations.insert(LocationRef(location), Location { group: Some(group), ..Location::default() });
    }
    let region = d.regions.push(Region::default());
    let [first, second] = ["first", "second"]
        .map(|name| d.attributes.push(Attribute { name: name.into(), ..Attribute::default() }));
    let archive = ArchiveWriter::create(directory.path()).unwrap();
    let mut expected = Vec::new();
    for location in [0, 1] {
        let mut events = archive.event_writer(LocationRef(location)).unwrap();
        for number in 0..5000 {
            let time = 10 * number + location;
            let value = number << 40 | location;
            expected.push(match number % 3 {
                0 => events.enter(time, region).map(|()| (time, None, None)),
                1 => events.enter_with(time, region, first, value).map(|()| (time, Some(value), None)),
                _ => events.enter_with(time, region, second, value).map(|()| (time, None, Some(value))),
            });
            events.leave(time + 5, region).unwrap();
        }
        events.close().unwrap();
    }
    archive.finish(&d).unwrap();
    let mut expected: Vec<_> = expected.into_iter().map(Result::unwrap).collect();
    expected.sort_by_key(|enter| enter.0);
    let read = |wanted: [Option<AttributeRef>; 2], ahead: bool| {
        let mut trace = Trace::open(&directory.path().join("traces.otf2")).unwrap();
        let mut values = Values { wanted, ..Values::default() };
        match ahead {
            true => trace.read_events_ahead(&mut values).unwrap(),
            false => trace.read_events(&mut values).unwrap(),
        };
        values.enters
    };
    for ahead in [false, true] {
        assert_eq!(read([Some(first), Some(second)], ahead), expected);
        let one = expected.iter().map(|enter| (enter.0, None, enter.2)).collect::<Vec<_>>();
        assert_eq!(read([None, Some(second)], ahead), one);
    }
}
