//! The collector as a process, fed through rings as many processes would: what an event costs it, with and without a trace, how
//! much memory it takes, and whether the number of locations matters.

use crate::load::{Feed, Load, Pattern};
use crate::{Figure, median};

const EVENTS: u64 = 60_000_000;
const ROUNDS: usize = 3;

pub fn figures() -> Result<Vec<Figure>, String> {
    let mut figures = vec![];
    figures.push(traced()?);
    Ok(figures)
}

fn throughput() -> Result<Figure, String> {
    let load = Load { processes: 8, threads: 1, pattern: Pattern::Walk, trace: false, all_threads: true };
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
    let load = Load {
        processes: 64,
        threads: 1,
        pattern: Pattern::Tree { deep: 4, wide: 6 },
        trace: false,
        all_threads: true,
    };
    for events in [10_000_000u64, 60_000_000] {
        let run = Feed::start(&load)?.run_at_rate(4e6, std::time::Duration::from_secs(events / 4_000_000))?;
        eprintln!(
            "{} {} {}",
            run.events,
            run.nanoseconds_of_main_thread / run.events as f64,
            run.peak_bytes / 1e6
        );
    }
    Ok(vec![])
}

fn many_locations() -> Result<Vec<Figure>, String> {
    let load = Load { processes: 16, threads: 1, pattern: Pattern::Walk, trace: false, all_threads: true };
    eprintln!("idle {}", Feed::start(&load)?.idle(std::time::Duration::from_secs(5))?);
    for (processes, threads) in [(16, 1), (64, 16)] {
        let load = Load {
            processes,
            threads,
            pattern: Pattern::Tree { deep: 3, wide: 4 },
            trace: false,
            all_threads: true,
        };
        let run = Feed::start(&load)?.run_at_rate(4e6, std::time::Duration::from_secs(5))?;
        eprintln!(
            "{} {} {}",
            run.events,
            run.nanoseconds_of_main_thread / run.events as f64,
            run.peak_bytes / 1e6
        );
    }
    Ok(vec![])
}

const TRACED_EVENTS: u64 = 32_000_000;

fn traced() -> Result<Figure, String> {
    let load = Load { processes: 8, threads: 1, pattern: Pattern::Walk, trace: true, all_threads: false };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let run = Feed::start(&load)?.run_for_events(TRACED_EVENTS)?;
        eprintln!(
            "{} {}",
            run.nanoseconds_of_main_thread / run.events as f64,
            run.seconds_to_finish * 1e9 / run.events as f64
        );
        ours.push((run.nanoseconds_of_main_thread + run.seconds_to_finish * 1e9) / run.events as f64);
        theirs.push(written_bare(u64::from(load.processes), TRACED_EVENTS)?);
    }
    Ok(Figure {
        what: "collector: the same with the OTF2 trace written",
        value: median(ours),
        unit: "ns",
        yardstick: "OTF2's C library writes the same alone; to reach: 1.5 x",
        yardstick_value: median(theirs),
    })
}

/// Nanoseconds an event.
fn written_bare(locations: u64, events: u64) -> Result<f64, String> {
    let directory = tempfile::tempdir_in("/dev/shm").map_err(|e| e.to_string())?;
    let mut command = std::process::Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.args([crate::bare::WRITE_COMMAND, &locations.to_string(), &(events / locations).to_string()]);
    let ran = crate::child::run(command.arg(directory.path()));
    let seconds: f64 = String::from_utf8_lossy(&ran.output).trim().parse().map_err(|e| format!("{e}"))?;
    Ok(seconds * 1e9 / events as f64)
}
