//! The collector as a process, fed through rings as many processes would: what an event costs it, with and without a trace, how
//! much memory it takes, and whether the number of locations matters.

use crate::load::{Feed, Load, Pattern};
use crate::{Figure, median};

const EVENTS: u64 = 60_000_000;
const ROUNDS: usize = 3;

pub fn figures() -> Result<Vec<Figure>, String> {
    let mut figures = vec![throughput()?];
    figures.extend(memory()?);
    figures.extend(many_locations()?);
    Ok(figures)
}

fn throughput() -> Result<Figure, String> {
    let load = Load { processes: 8, threads: 1, pattern: Pattern::Walk, trace: false };
    let runs: Result<Vec<f64>, String> = (0..ROUNDS)
        .map(|_| Ok(Feed::start(&load)?.run_for_events(EVENTS)?.nanoseconds_of_main_thread / EVENTS as f64))
        .collect();
    Ok(Figure {
        what: "collector: decode, order and attribute an event, 8 ranks",
        value: median(runs?),
        unit: "ns",
        yardstick: "to reach: 50 million a second",
        yardstick_value: 20.0,
    })
}

/// Of 64 locations with 100,000 call paths, after a short and after a long run.
fn memory() -> Result<Vec<Figure>, String> {
    let load = Load { processes: 64, threads: 1, pattern: Pattern::Tree { deep: 4, wide: 6 }, trace: false };
    for events in [10_000_000u64, 60_000_000] {
    let run = Feed::start(&load)?.run_at_rate(4e6, std::time::Duration::from_secs(events / 4_000_000))?;
    eprintln!("{} {} {}", run.events, run.nanoseconds_of_main_thread / run.events as f64, run.peak_bytes / 1e6);
    }
    Ok(vec![])
}

fn many_locations() -> Result<Vec<Figure>, String> {
    for (processes, threads) in [(16, 1), (64, 16)] {
    let load = Load { processes, threads, pattern: Pattern::Walk, trace: false };
    let run = Feed::start(&load)?.run_at_rate(4e6, std::time::Duration::from_secs(5))?;
    eprintln!("{} {} {}", run.events, run.nanoseconds_of_main_thread / run.events as f64, run.peak_bytes / 1e6);
    }
    Ok(vec![])
}
