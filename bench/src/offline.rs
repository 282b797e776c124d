//! Measures the code behind `ampere attribute` on a trace, compared with reading the same events and doing nothing.

use crate::trace::{Event, Shape};
use crate::{Figure, medians};
use ampere_settings::Config;
use ampere_trace::offline;
use otf2::{EventHandler, Trace};

const RANKS: u64 = 4;
const CALLS_PER_RANK: u64 = 500_000;
const REGIONS: u32 = 8;

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let shape = Shape { ranks: RANKS, regions: REGIONS, devices: 1, nodes: 1 };
    let written = shape.write(directory.path(), calls)?;
    let (trace, events) = (written.anchor, written.rank_events);
    let [ours, nothing] = medians(5, |which| {
        let begun = cpu_nanoseconds();
        if which == 0 {
            let done = offline::attribute(&trace, &Config::default(), None, &mut |_, _| {})?;
            assert_eq!(done.summary.quality.records.events, events);
        } else {
            Trace::open(&trace)?.read_events(&mut Nothing)?;
        }
        Ok((cpu_nanoseconds() - begun) / events as f64)
    })?;
    Ok(vec![Figure {
        what: "attribute: CPU per event, 4 ranks interleaved, two views",
        value: ours,
        unit: "ns",
        yardstick: "reading the same events in order, doing nothing, CPU",
        yardstick_value: nothing,
    }])
}

/// Returns the CPU time of this process, in nanoseconds.
pub fn cpu_nanoseconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Short calls, one frame deep. The times of the ranks differ by one tick each.
fn calls(rank: u64) -> impl Iterator<Item = Event> {
    (0..CALLS_PER_RANK).flat_map(move |call| {
        let (time, region) = (call * 20 + rank, (call % u64::from(REGIONS)) as u32);
        [Event::Enter(time, region), Event::Leave(time + 10, region)]
    })
}

struct Nothing;

impl EventHandler for Nothing {}
