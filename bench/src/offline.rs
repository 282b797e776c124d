//! A trace through `ampere attribute`'s code, against reading the same events and doing nothing.

use crate::trace::{Event, Shape};
use crate::{Figure, median};
use ampere_collector::config::Config;
use ampere_collector::offline;
use otf2::{EventHandler, LocationRef, MetricRef, MetricValue, RegionRef, Trace};
use std::ops::ControlFlow;
use std::time::Instant;

const RANKS: u64 = 4;
const CALLS_PER_RANK: u64 = 500_000;
const REGIONS: u32 = 8;

pub fn figures() -> Result<Vec<Figure>, String> {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
    let shape = Shape { ranks: RANKS, regions: REGIONS, devices: 1 };
    let written = shape.write(directory.path(), calls).expect("a trace");
    let (trace, events) = (written.anchor, written.calls);
    let (mut ours, mut nothing) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let begun = Instant::now();
        let done =
            offline::attribute(&trace, &Config::default(), None, &mut |_, _| {}).expect("a good trace");
        ours.push(begun.elapsed().as_nanos() as f64 / events as f64);
        assert_eq!(done.summary.quality.events, events);
        let begun = Instant::now();
        let mut trace = Trace::open(&trace).expect("a good trace");
        trace.read_events(&mut Nothing).expect("a good trace");
        nothing.push(begun.elapsed().as_nanos() as f64 / events as f64);
    }
    Ok(vec![Figure {
        what: "attribute: an event, 4 ranks interleaved, two views",
        value: median(ours),
        unit: "ns",
        yardstick: "reading the same events in order, doing nothing",
        yardstick_value: median(nothing),
    }])
}

/// Short calls, one frame deep, which the ranks make at the same times but for a tick.
fn calls(rank: u64) -> impl Iterator<Item = Event> {
    (0..CALLS_PER_RANK).flat_map(move |call| {
        let (time, region) = (call * 20 + rank, (call % u64::from(REGIONS)) as u32);
        [Event::Enter(time, region), Event::Leave(time + 10, region)]
    })
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
