//! A trace through `ampere attribute`'s code, against reading the same events and doing nothing.

use crate::{Figure, median};
use ampere_collector::config::Config;
use ampere_collector::offline;
use otf2::{
    ArchiveWriter, ClockProperties, Definitions, EventHandler, LocationGroup, LocationGroupType, LocationRef,
    LocationType, MetricBase, MetricClass, MetricMember, MetricMode, MetricOccurrence, MetricRef, MetricType,
    MetricValue, MetricValueType, ParadigmType, RecorderKind, RegionRef, RegionRole, Trace,
};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

const RANKS: u64 = 4;
const CALLS_PER_RANK: u64 = 500_000;
const EVENTS: f64 = (RANKS * CALLS_PER_RANK * 2) as f64;

pub fn figures() -> Vec<Figure> {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
    write(directory.path()).expect("a trace");
    let trace = directory.path().join("traces.otf2");
    let (mut ours, mut nothing) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let begun = Instant::now();
        let done =
            offline::attribute(&trace, &Config::default(), None, &mut |_, _| {}).expect("a good trace");
        ours.push(begun.elapsed().as_nanos() as f64 / EVENTS);
        assert_eq!(done.summary.quality.events, EVENTS as u64);
        let begun = Instant::now();
        let mut trace = Trace::open(&trace).expect("a good trace");
        trace.read_events(&mut Nothing).expect("a good trace");
        nothing.push(begun.elapsed().as_nanos() as f64 / EVENTS);
    }
    vec![Figure {
        what: "attribute: an event, 4 ranks interleaved, two views",
        value: median(ours),
        unit: "ns",
        yardstick: "reading the same events in order, doing nothing",
        yardstick_value: median(nothing),
    }]
}

struct Nothing;

impl EventHandler for Nothing {
    fn enter(&mut self, _: LocationRef, _: u64, _: RegionRef) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    fn leave(&mut self, _: LocationRef, _: u64, _: RegionRef) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    fn metric(&mut self, _: LocationRef, _: u64, _: MetricRef, _: &[MetricValue]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

fn write(directory: &Path) -> Result<(), otf2::Error> {
    let archive = ArchiveWriter::create(directory)?;
    let mut definitions = Definitions {
        clock: ClockProperties {
            timer_resolution: 1_000_000_000,
            global_offset: 0,
            trace_length: CALLS_PER_RANK * 20,
            realtime_timestamp: None,
        },
        ..Definitions::default()
    };
    let regions: Vec<RegionRef> = (0..8)
        .map(|i| {
            definitions.regions.push(otf2::Region {
                name: format!("function {i}"),
                canonical_name: format!("function {i}"),
                description: String::new(),
                role: RegionRole::Function,
                paradigm: ParadigmType::Compiler,
                flags: 0,
                source_file: None,
                begin_line: 0,
                end_line: 0,
            })
        })
        .collect();
    let location = |definitions: &mut Definitions, number: u64, kind, events| {
        let group = definitions.location_groups.push(LocationGroup {
            name: format!("MPI Rank {number}"),
            kind: LocationGroupType::Process,
            system_tree_parent: None,
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
    };
    for rank in 0..RANKS {
        let mut writer = archive.event_writer(LocationRef(rank))?;
        for call in 0..CALLS_PER_RANK {
            let region = regions[(call % 8) as usize];
            writer.enter(call * 20 + rank, region)?;
            writer.leave(call * 20 + rank + 10, region)?;
        }
        let events = writer.close()?;
        location(&mut definitions, rank, LocationType::CpuThread, events);
    }
    let member = definitions.metric_members.push(MetricMember {
        name: "estimate:::energy".to_owned(),
        description: String::new(),
        kind: MetricType::Other,
        mode: MetricMode::AccumulatedStart,
        value_type: MetricValueType::U64,
        base: MetricBase::Decimal,
        exponent: -9,
        unit: "J".to_owned(),
    });
    let class = definitions.add_metric_class(MetricClass {
        members: vec![member],
        occurrence: MetricOccurrence::Asynchronous,
        recorder_kind: RecorderKind::Abstract,
        recorders: Vec::new(),
    });
    let mut writer = archive.event_writer(LocationRef(RANKS))?;
    for sample in 0..=CALLS_PER_RANK * 20 / 1_000_000 {
        writer.metric_u64(sample * 1_000_000, class, sample * 100_000_000)?;
    }
    let events = writer.close()?;
    location(&mut definitions, RANKS, LocationType::Metric, events);
    archive.finish(&definitions)
}
