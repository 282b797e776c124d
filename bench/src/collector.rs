//! Measures a collector process while this program fills its rings as many processes would: the cost of an event with and without
//! a trace, the memory that it needs, the effect of the number of locations, and the cost while the job does nothing.

use crate::load::{Feed, Load, Pattern, event_bytes};
use crate::{Figure, child, median, medians};
use std::path::Path;
use std::time::Duration;

const ROUNDS: usize = 5;

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    let mut figures = vec![throughput()?];
    figures.extend(traced()?);
    Ok(figures)
}

/// The load of a typical program: each rank has a few hundred call paths, up to 20 frames deep.
const TYPICAL_LOAD: Load = Load {
    processes: 8,
    threads: 1,
    pattern: Pattern::Walk { calls_per_message: 0 },
    trace: false,
    all_threads: false,
    most_series: 2000,
    waits: true,
};

fn throughput() -> anyhow::Result<Figure> {
    const EVENTS: u64 = 60_000_000;
    let [measured] =
        medians(ROUNDS, |_| Ok(Feed::start(&TYPICAL_LOAD)?.run_for_events(EVENTS)?.cpu_per_event()))?;
    Ok(Figure {
        what: "collector: decode, order and attribute an event, CPU of all threads",
        value: measured,
        unit: "ns",
        yardstick: "target: 50 million a second",
        yardstick_value: 20.0,
    })
}

/// Measures the cost of a trace, whose records are kept while the program runs and are written as OTF2 when it has ended. Also
/// measures how long a user waits for that.
fn traced() -> anyhow::Result<[Figure; 3]> {
    const EVENTS: u64 = 32_000_000;
    let load = Load { trace: true, ..TYPICAL_LOAD };
    let (mut cpu, mut bytes) = ([const { Vec::new() }; 2], [0.0; 2]);
    let [waited, theirs] = medians(ROUNDS, |which| {
        let (used, events, wall);
        if which == 0 {
            let run = Feed::start(&load)?.run_for_events(EVENTS)?;
            (used, events, wall) = (run.cpu_nanoseconds_at_end, run.events, run.seconds_to_finish * 1e9);
            bytes[0] = run.trace_bytes / run.events as f64;
        } else {
            let directory = tempfile::tempdir_in("/dev/shm")?;
            let ran = written_bare(u64::from(load.processes), EVENTS, 0, directory.path())?;
            (used, events, wall) = (ran.used.cpu_seconds * 1e9, EVENTS, ran.seconds * 1e9);
            bytes[1] = event_bytes(&directory.path().join("traces")) / EVENTS as f64;
        }
        cpu[which].push(used / events as f64);
        Ok(wall / events as f64)
    })?;
    let [cpu, cpu_theirs] = cpu.map(median);
    let figure = Figure::new;
    Ok([
        figure(
            "collector: the same, including writing the OTF2 trace, CPU",
            cpu,
            "ns",
            "OTF2's C library alone writes the same, CPU; target: 1.5 x",
            cpu_theirs,
        ),
        figure(
            "collector: from the program's end to the finished trace, per event, wall",
            waited,
            "ns",
            "OTF2's C library alone writes the same, wall",
            theirs,
        ),
        figure(
            "collector: size of the trace, per event",
            bytes[0],
            "bytes",
            "OTF2's C library alone writes the same",
            bytes[1],
        ),
    ])
}

fn written_bare(
    locations: u64,
    events: u64,
    calls_per_message: usize,
    directory: &Path,
) -> anyhow::Result<child::Ran> {
    let mut command = std::process::Command::new(std::env::current_exe()?);
    command.args([crate::bare::WRITE_COMMAND, &locations.to_string(), &(events / locations).to_string()]);
    child::run(command.arg(calls_per_message.to_string()).arg(directory))
}

/// Measures how long a user waits after the program's end: without messages, with a message for every ten enters and leaves, and
/// with a message in each call. The first and the last case are compared with OTF2's library alone. Times are per enter or leave.
pub fn messages() -> anyhow::Result<Vec<Figure>> {
    const EVENTS: u64 = 16_000_000;
    let waited = |calls_per_message| -> anyhow::Result<f64> {
        let load = Load { trace: true, pattern: Pattern::Walk { calls_per_message }, ..TYPICAL_LOAD };
        let run = Feed::start(&load)?.run_for_events(EVENTS)?;
        Ok(run.seconds_to_finish * 1e9 / run.events as f64)
    };
    let alone = |calls_per_message| -> anyhow::Result<f64> {
        let directory = tempfile::tempdir_in("/dev/shm")?;
        let ran =
            written_bare(u64::from(TYPICAL_LOAD.processes), EVENTS, calls_per_message, directory.path())?;
        Ok(ran.seconds * 1e9 / EVENTS as f64)
    };
    let [none, few, each, theirs, theirs_each] = medians(ROUNDS, |which| match which {
        0 => waited(0),
        1 => waited(5),
        2 => waited(1),
        3 => alone(0),
        _ => alone(1),
    })?;
    let figure =
        |what, value, yardstick, yardstick_value| Figure::new(what, value, "ns", yardstick, yardstick_value);
    Ok(vec![
        figure(
            "messages: from the program's end to the finished trace, one per 10 enters and leaves, wall",
            few,
            "without messages; target: 1.2 x",
            none,
        ),
        figure("messages: the same, one per call", each, "without messages", none),
        figure(
            "messages: OTF2's C library alone writes the same, one message per call, wall",
            theirs_each,
            "without messages",
            theirs,
        ),
    ])
}

/// Events per second of all locations together.
const RATE: f64 = 4e6;

/// Measures the collector's peak memory for the events of an hour, at 20,000 events per second, and for a tenth of them. They are
/// written within 18 seconds and within 1.8 seconds.
pub fn memory() -> anyhow::Result<Vec<Figure>> {
    let load = Load { processes: 64, pattern: Pattern::Tree { deep: 4, wide: 6 }, ..TYPICAL_LOAD };
    let peak = |milliseconds| -> anyhow::Result<f64> {
        let run = Feed::start(&load)?.run_at_rate(RATE, Duration::from_millis(milliseconds))?;
        let callpaths =
            run.summary["devices"][0]["views"][0]["callpaths"]["path"].as_array().map_or(0, Vec::len);
        // The trees of all ranks have 64 x 1,554 = 99,456 call paths.
        if callpaths < 99_000 {
            anyhow::bail!("{callpaths} call paths");
        }
        Ok(run.peak_bytes / 1e6)
    };
    let figure =
        |what, value| Figure { what, value, unit: "MB", yardstick: "at most", yardstick_value: 64.0 };
    Ok(vec![
        figure("collector: peak memory, 64 locations, 100,000 call paths", peak(1_800)?),
        figure("collector: the same, ten times the events (an hour's worth)", peak(18_000)?),
    ])
}

/// Measures the cost of 1,098,048 call paths on 8 ranks. Each path is called at least twice.
pub fn callpaths() -> anyhow::Result<Vec<Figure>> {
    const CALL_PATHS: f64 = 1_098_048.0;
    let load = Load { processes: 8, pattern: Pattern::Tree { deep: 6, wide: 7 }, ..TYPICAL_LOAD };
    let run = Feed::start(&load)?.run_at_rate(RATE, Duration::from_secs(2))?;
    let [json, text, page] = run.results_bytes;
    let figure = Figure::new;
    let megabyte = 1e6;
    Ok(vec![
        figure(
            "call paths: time after the program's end, a million call paths on 8 ranks",
            run.seconds_to_finish * 1e6 / CALL_PATHS,
            "s",
            "at most",
            2.0,
        ),
        figure(
            "call paths: the same, CPU",
            (run.cpu_nanoseconds_at_end - run.cpu_nanoseconds) * 1e-9 * 1e6 / CALL_PATHS,
            "s",
            "at most",
            1.0,
        ),
        figure(
            "call paths: size of summary.json, per call path",
            json / CALL_PATHS,
            "bytes",
            "at most",
            80.0,
        ),
        figure("call paths: size of report.html", page / megabyte, "MB", "at most", 5.0),
        figure("call paths: size of summary.txt", text / megabyte, "MB", "at most", 0.1),
    ])
}

/// `ampere-bench --load PROCESSES THREADS SECONDS` only runs the load of [`many_locations`], to be watched with a profiler.
pub const LOAD_COMMAND: &str = "--load";

pub fn load(processes: &str, threads: &str, seconds: &str) -> anyhow::Result<()> {
    let load = Load { processes: processes.parse()?, threads: threads.parse()?, ..ALL_THREADS_LOAD };
    let cost = Feed::start(&load)?.settled_cpu_per_event(RATE, Duration::from_secs(seconds.parse()?))?;
    println!("{cost:.2} ns per event");
    Ok(())
}

/// The load of [`many_locations`], which sets the numbers of processes and threads.
const ALL_THREADS_LOAD: Load =
    Load { pattern: Pattern::Tree { deep: 3, wide: 4 }, all_threads: true, ..TYPICAL_LOAD };

/// Measures the cost of an event at the same number of events per second, from 1,024 threads of 64 processes and from 16 threads
/// of 16 processes.
pub fn many_locations() -> anyhow::Result<Vec<Figure>> {
    let [few, many] = medians(ROUNDS, |which| {
        let (processes, threads) = [(16, 1), (64, 16)][which];
        let load = Load { processes, threads, ..ALL_THREADS_LOAD };
        Feed::start(&load)?.settled_cpu_per_event(RATE, Duration::from_secs(6))
    })?;
    Ok(vec![Figure {
        what: "collector: CPU per event at 4 million events a second, 1,024 locations",
        value: many,
        unit: "ns",
        yardstick: "16 locations; target: 2.2 x",
        yardstick_value: few,
    }])
}

/// Measures a full node: the size of its shared memory, the collector's descriptors and files, and how often it writes.
pub fn many_ranks() -> anyhow::Result<Vec<Figure>> {
    let load = Load { processes: 128, trace: true, ..TYPICAL_LOAD };
    let footprint = Feed::start(&load)?.footprint(1e6, Duration::from_secs(4))?;
    let figure = Figure::new;
    Ok(vec![
        figure(
            "128 ranks: shared memory",
            footprint.shared_bytes / 1e6,
            "MB",
            "at most; without this limit: 1,074 MB",
            268.0,
        ),
        figure(
            "128 ranks: descriptors of the collector",
            footprint.descriptors,
            "",
            "at most; without this limit: 530",
            200.0,
        ),
        figure(
            "128 ranks: files in the output directory",
            footprint.files,
            "",
            "at most; without this limit: 258",
            8.0,
        ),
        figure(
            "128 ranks: writes of the collector, at a million events a second",
            footprint.writes_per_second,
            "/s",
            "at most; without this limit: 3,600 /s",
            100.0,
        ),
    ])
}

/// The number of enters and leaves of one send and its receive.
const EVENTS_PER_MESSAGE: f64 = 4.0;

/// Measures what it costs to find, during a run, which ranks wait for each other, if each rank sends `rate` messages a second.
/// Returns the CPU nanoseconds per message if waits are found and if they are not, and the number of ranks.
pub fn exchange(rate: f64, duration: Duration) -> anyhow::Result<([f64; 2], f64)> {
    let ranks = f64::from(TYPICAL_LOAD.processes);
    let costs = medians(ROUNDS, |which| {
        let load = Load { pattern: Pattern::Exchange, waits: which == 0, ..TYPICAL_LOAD };
        let per_event =
            Feed::start(&load)?.settled_cpu_per_event(rate * ranks * EVENTS_PER_MESSAGE, duration)?;
        Ok(per_event * EVENTS_PER_MESSAGE)
    })?;
    Ok((costs, ranks))
}

pub fn idle() -> anyhow::Result<Vec<Figure>> {
    let load = Load { processes: 16, ..TYPICAL_LOAD };
    let [share] = medians(3, |_| Feed::start(&load)?.idle(Duration::from_secs(5)))?;
    Ok(vec![Figure {
        what: "collector: CPU while the job does nothing",
        value: 100.0 * share,
        unit: "% of core",
        yardstick: "at most",
        yardstick_value: 0.5,
    }])
}
