//! The collector as a process, fed through rings as many processes would: what an event costs it, with and without a trace, how
//! much memory it takes, whether the number of locations matters, and what it costs when nothing happens.

use crate::load::{Feed, Load, Pattern};
use crate::{Figure, median};
use std::time::Duration;

const ROUNDS: usize = 5;

pub fn figures() -> Result<Vec<Figure>, String> {
    let mut figures = vec![throughput()?];
    figures.extend(traced()?);
    figures.extend(memory()?);
    Ok(figures)
}

/// As a program's ranks do: some hundred call paths each, up to 20 frames deep.
const RANKS: Load = Load {
    processes: 8,
    threads: 1,
    pattern: Pattern::Walk,
    trace: false,
    all_threads: false,
    most_series: 2000,
};

fn throughput() -> Result<Figure, String> {
    const EVENTS: u64 = 60_000_000;
    let run = || Ok(Feed::start(&RANKS)?.run_for_events(EVENTS)?.main_thread_per_event());
    let runs: Result<Vec<f64>, String> = (0..ROUNDS).map(|_| run()).collect();
    Ok(Figure {
        what: "collector: decode, order and attribute an event, one core",
        value: median(runs?),
        unit: "ns",
        yardstick: "to reach: 50 million a second",
        yardstick_value: 20.0,
    })
}

/// The records are kept while the program runs and become OTF2 when it is over: both, and what a user waits for.
fn traced() -> Result<[Figure; 2], String> {
    const EVENTS: u64 = 32_000_000;
    let load = Load { trace: true, ..RANKS };
    let (mut all, mut waited, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let run = Feed::start(&load)?.run_for_events(EVENTS)?;
        let finish = run.seconds_to_finish * 1e9 / run.events as f64;
        all.push(run.main_thread_per_event() + finish);
        waited.push(finish);
        theirs.push(written_bare(u64::from(load.processes), EVENTS)?);
    }
    let (all, waited, theirs) = (median(all), median(waited), median(theirs));
    Ok([
        Figure {
            what: "collector: the same with the OTF2 trace written",
            value: all,
            unit: "ns",
            yardstick: "OTF2's C library writes the same alone; to reach: 1.5 x",
            yardstick_value: theirs,
        },
        Figure {
            what: "collector: of that, after the program's end",
            value: waited,
            unit: "ns",
            yardstick: "OTF2's C library writes the same alone",
            yardstick_value: theirs,
        },
    ])
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

/// Events of all locations together, each second.
const RATE: f64 = 4e6;

/// An hour of a program with 20,000 events a second, in 18 seconds; and a tenth of it.
fn memory() -> Result<[Figure; 2], String> {
    let load = Load { processes: 64, pattern: Pattern::Tree { deep: 4, wide: 6 }, ..RANKS };
    let peak = |seconds| -> Result<f64, String> {
        let run = Feed::start(&load)?.run_at_rate(RATE, Duration::from_millis(seconds))?;
        let callpaths = run.summary["devices"][0]["views"][0]["callpaths"].as_array().map_or(0, Vec::len);
        if callpaths < 99_000 {
            return Err(format!("{callpaths} call paths"));
        }
        Ok(run.peak_bytes / 1e6)
    };
    let figure =
        |what, value| Figure { what, value, unit: "MB", yardstick: "at most", yardstick_value: 64.0 };
    Ok([
        figure("collector: most memory, 64 locations, 100,000 call paths", peak(1_800)?),
        figure("collector: the same, ten times the events (an hour's worth)", peak(18_000)?),
    ])
}

/// For a profiler: that load alone, of so many processes and threads, for so many seconds.
pub const LOAD_COMMAND: &str = "--load";

pub fn load(processes: &str, threads: &str, seconds: &str) {
    let number = |text: &str| text.parse::<u32>().map_err(|e| format!("{text}: {e}"));
    let run = || -> Result<f64, String> {
        let load = Load { processes: number(processes)?, threads: number(threads)?, ..LOCATIONS };
        let feed = Feed::start(&load)?;
        Ok(feed.run_at_rate(RATE, Duration::from_secs(number(seconds)?.into()))?.main_thread_per_event())
    };
    match run() {
        Ok(nanoseconds) => println!("{nanoseconds:.2} ns an event"),
        Err(why) => println!("{why}"),
    }
}

const LOCATIONS: Load = Load { pattern: Pattern::Tree { deep: 3, wide: 4 }, all_threads: true, ..RANKS };

/// The same events a second from 1,024 threads of 64 processes and from 16 of 16.
pub fn many_locations() -> Result<Vec<Figure>, String> {
    let cost = |processes, threads| -> Result<f64, String> {
        let load = Load { processes, threads, ..LOCATIONS };
        Ok(Feed::start(&load)?.run_at_rate(RATE, Duration::from_secs(4))?.main_thread_per_event())
    };
    let (mut many, mut few) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        few.push(cost(16, 1)?);
        many.push(cost(64, 16)?);
    }
    Ok(vec![Figure {
        what: "collector: an event at 4 million a second, 1,024 locations",
        value: median(many),
        unit: "ns",
        yardstick: "16 locations; to reach: 1.2 x",
        yardstick_value: median(few),
    }])
}

pub fn idle() -> Result<Vec<Figure>, String> {
    let load = Load { processes: 16, ..RANKS };
    let shares: Result<Vec<f64>, String> =
        (0..3).map(|_| Feed::start(&load)?.idle(Duration::from_secs(5))).collect();
    Ok(vec![Figure {
        what: "collector: CPU while the job does nothing",
        value: 100.0 * median(shares?),
        unit: "% of core",
        yardstick: "at most",
        yardstick_value: 0.5,
    }])
}
