//! The collector as a process, fed through rings as many processes would: what an event costs it, with and without a trace, how
//! much memory it takes, and whether the number of locations matters.

use crate::load::{Feed, Load, Pattern};
use crate::{Figure, median};

const EVENTS: u64 = 60_000_000;
const ROUNDS: usize = 3;

pub fn figures() -> Result<Vec<Figure>, String> {
    let mut alone = Vec::new();
    for _ in 0..ROUNDS {
        let load = Load { processes: 8, threads: 1, pattern: Pattern::Walk, trace: false };
        let run = Feed::start(&load)?.run_for_events(EVENTS)?;
        alone.push(run.nanoseconds_of_main_thread / EVENTS as f64);
    }
    Ok(vec![Figure {
        what: "collector: decode, order and attribute an event, 8 ranks",
        value: median(alone),
        unit: "ns",
        yardstick: "to reach: 50 million a second",
        yardstick_value: 20.0,
    }])
}
