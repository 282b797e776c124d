//! The load: all cores alternate between spinning and sleeping, or a command reports when it is busy.

use super::wave::Edge;
use anyhow::{Context, bail};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsString;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The maximum duration of a load. A square wave need not be longer, and the samples are kept in memory.
pub const LOAD_MAX: Duration = Duration::from_secs(600);
/// The maximum number of edges. A command that prints more is faulty.
const EDGES_MAX: usize = 1_000_000;
const LINE_MAX: u64 = 4096;
/// The time within which a command must end after it was asked to.
const END_LIMIT: Duration = Duration::from_secs(2);
/// The interval between checks of whether the load has ended or was interrupted.
const POLL_PERIOD: Duration = Duration::from_millis(20);

pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returned if the user interrupts the load.
#[derive(Debug, thiserror::Error)]
#[error("interrupted: nothing was calibrated")]
pub struct Interrupted;

/// Keeps every thread busy in the first half of each period and asleep in the second. The times at which phases end are fixed
/// at the start. `progress` gets the elapsed time.
pub fn spin(
    period: Duration,
    periods: usize,
    threads: usize,
    stop: &AtomicBool,
    mut progress: impl FnMut(Duration),
) -> anyhow::Result<Vec<Edge>> {
    let started = Instant::now();
    let first_rise_ns = monotonic_ns() + 50_000_000; // by then all threads have started
    let (half_ns, stopped) = (period.as_nanos() as u64 / 2, Arc::new(AtomicBool::new(false)));
    let workers: std::io::Result<Vec<JoinHandle<Vec<Edge>>>> = (0..threads)
        .map(|_| {
            let stopped = stopped.clone();
            let work = move || one_thread(first_rise_ns, half_ns, periods, &stopped);
            std::thread::Builder::new().name("ampere-load".to_owned()).spawn(work)
        })
        .collect();
    let workers = workers.inspect_err(|_| stopped.store(true, Ordering::Relaxed));
    let workers = workers.context("cannot start a thread for each core")?;
    while workers.iter().any(|worker| !worker.is_finished()) {
        if stop.load(Ordering::Relaxed) {
            stopped.store(true, Ordering::Relaxed);
        }
        progress(started.elapsed());
        std::thread::sleep(POLL_PERIOD);
    }
    let edges: Vec<Vec<Edge>> = workers.into_iter().filter_map(|worker| worker.join().ok()).collect();
    if stop.load(Ordering::Relaxed) {
        return Err(Interrupted.into());
    }
    Ok(median_edges(&edges))
}

/// Returns, for each edge, the time by which half of the threads had passed it, so that a single thread that lost its core does
/// not matter.
fn median_edges(threads: &[Vec<Edge>]) -> Vec<Edge> {
    let count = threads.iter().map(Vec::len).min().unwrap_or(0);
    let edge = |number: usize| {
        let mut times: Vec<u64> = threads.iter().map(|edges| edges[number].at_ns).collect();
        times.sort_unstable();
        Edge { at_ns: times[times.len() / 2], rises: number.is_multiple_of(2) }
    };
    (0..count).map(edge).collect()
}

fn one_thread(first_rise_ns: u64, half_ns: u64, periods: usize, stopped: &AtomicBool) -> Vec<Edge> {
    let mut edges = Vec::with_capacity(2 * periods);
    for period in 0..periods as u64 {
        let rise = first_rise_ns + 2 * period * half_ns;
        sleep_until(rise, stopped);
        edges.push(Edge { at_ns: monotonic_ns(), rises: true });
        burn_until(rise + half_ns, stopped);
        edges.push(Edge { at_ns: monotonic_ns(), rises: false });
    }
    // The last idle phase is a part of the wave as well.
    sleep_until(first_rise_ns + 2 * periods as u64 * half_ns, stopped);
    edges
}

fn sleep_until(time_ns: u64, stopped: &AtomicBool) {
    loop {
        let left = time_ns.saturating_sub(monotonic_ns());
        if left == 0 || stopped.load(Ordering::Relaxed) {
            return;
        }
        // Sleeps are short, so that an interrupt is noticed.
        std::thread::sleep(Duration::from_nanos(left).min(Duration::from_millis(100)));
    }
}

/// Multiplies numbers until a time. The multiplications are independent, and there is no hint for spin loops: otherwise the
/// core would save power.
fn burn_until(time_ns: u64, stopped: &AtomicBool) {
    let mut values = [1.0f64, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7];
    while monotonic_ns() < time_ns && !stopped.load(Ordering::Relaxed) {
        for _ in 0..2000 {
            for value in &mut values {
                *value = *value * 0.5 + 0.5;
            }
            black_box(&mut values);
        }
    }
}

/// Runs the command to its end. Returns its `edge` lines; its other lines go to standard error. `progress` gets the number of
/// edges so far.
pub fn run(
    program: &std::path::Path,
    command: &[OsString],
    stop: &AtomicBool,
    mut progress: impl FnMut(usize),
) -> anyhow::Result<Vec<Edge>> {
    let shown = command[0].to_string_lossy().into_owned();
    let mut child = Command::new(program)
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {shown}"))?;
    let Some(output) = child.stdout.take() else { bail!("cannot read what {shown} prints") };
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let reader = std::thread::spawn(move || read_edges(output, &counted, |line| say!("{line}")));
    let status = wait(&mut child, &shown, stop, || progress(count.load(Ordering::Relaxed)))?;
    // A process that the command has left behind may keep the command's output open. If it does so for longer than this limit,
    // that is an error.
    let until = Instant::now() + END_LIMIT;
    while !reader.is_finished() && Instant::now() < until {
        std::thread::sleep(POLL_PERIOD);
    }
    if !status.success() {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("with status {code}"),
            (_, Some(signal)) => format!("by signal {signal}"),
            _ => "badly".to_owned(),
        };
        bail!("{shown} ended {how}: nothing was calibrated");
    }
    if !reader.is_finished() {
        bail!("{shown} has ended, and a process that it started still holds its output open");
    }
    let edges = reader.join().unwrap_or_else(|_| Err(anyhow::anyhow!("its output could not be read")));
    let edges = edges.map_err(|why| anyhow::anyhow!("{shown}: {why}"))?;
    if edges.is_empty() {
        bail!(
            "{shown} printed no edges: lines \"edge rise NANOSECONDS\" and \"edge fall NANOSECONDS\" of CLOCK_MONOTONIC, \
             as examples/hip/square_wave does"
        );
    }
    Ok(edges)
}

/// Waits for the command's end, and ends the command if it is interrupted or runs too long.
fn wait(
    child: &mut Child,
    shown: &str,
    stop: &AtomicBool,
    mut progress: impl FnMut(),
) -> anyhow::Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the command")? {
            return Ok(status);
        }
        if stop.load(Ordering::Relaxed) {
            end(child);
            return Err(Interrupted.into());
        }
        if begun.elapsed() > LOAD_MAX {
            end(child);
            bail!("{shown} is still running after {} s: 20 s is enough", LOAD_MAX.as_secs());
        }
        progress();
        std::thread::sleep(POLL_PERIOD);
    }
}

fn end(child: &mut Child) {
    let pid = rustix::process::Pid::from_child(child);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    let until = Instant::now() + END_LIMIT;
    while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(POLL_PERIOD);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Returns the edges in a command's output, counts them in `count`, and passes other lines to `other`. Reads to the end even
/// after an error, so that a full pipe does not stop the command.
fn read_edges(
    output: impl Read,
    count: &AtomicUsize,
    mut other: impl FnMut(&str),
) -> anyhow::Result<Vec<Edge>> {
    let mut output = BufReader::new(output);
    let (mut edges, mut wrong) = (Vec::new(), None);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = output.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
        if read.context("its output could not be read")? == 0 {
            return wrong.map_or(Ok(edges), Err);
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        match parse(text) {
            Line::Other => other(text),
            Line::Edge(edge) if edges.len() < EDGES_MAX => edges.push(edge),
            Line::Edge(_) => {
                wrong.get_or_insert_with(|| anyhow::anyhow!("more than {EDGES_MAX} edges"));
            }
            Line::Malformed => {
                let shown: String = text.chars().take(80).collect();
                wrong.get_or_insert_with(|| {
                    anyhow::anyhow!(
                        "{shown:?} is not an edge: \"edge rise NANOSECONDS\" or \"edge fall NANOSECONDS\""
                    )
                });
            }
        }
        count.store(edges.len(), Ordering::Relaxed);
    }
}

/// The kind of a line of the command's output.
#[derive(Debug, PartialEq)]
enum Line {
    Edge(Edge),
    /// A line that starts like an edge but cannot be parsed.
    Malformed,
    Other,
}

/// Parses `edge rise|fall <CLOCK_MONOTONIC> [<CLOCK_REALTIME>]`, in nanoseconds.
fn parse(line: &str) -> Line {
    let mut words = line.split_whitespace();
    if words.next() != Some("edge") {
        return Line::Other;
    }
    let rises = match words.next() {
        Some("rise") => Some(true),
        Some("fall") => Some(false),
        _ => None,
    };
    let at_ns = words.next().and_then(|word| word.parse::<u64>().ok()).filter(|ns| *ns < 1 << 62);
    rises.zip(at_ns).map_or(Line::Malformed, |(rises, at_ns)| Line::Edge(Edge { at_ns, rises }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_example_are_edges() {
        let rise = Edge { at_ns: 123, rises: true };
        assert_eq!(parse("edge rise 123 1763000000000000000"), Line::Edge(rise));
        assert_eq!(parse("edge fall 123"), Line::Edge(Edge { rises: false, ..rise }));
        assert_eq!(parse("edges of the wave"), Line::Other);
        assert_eq!(parse(""), Line::Other);
        for wrong in [
            "edge",
            "edge up 1",
            "edge rise",
            "edge rise -1",
            "edge rise 1.5",
            "edge fall 99999999999999999999",
        ] {
            assert_eq!(parse(wrong), Line::Malformed, "{wrong}");
        }
    }

    #[test]
    fn the_first_wrong_line_is_named_and_the_rest_is_read() {
        let count = AtomicUsize::new(0);
        let read =
            read_edges("edge rise 1\nedge x\nedge y\nedge fall 2\nhello\n".as_bytes(), &count, |line| {
                assert_eq!(line, "hello")
            });
        assert!(read.unwrap_err().to_string().starts_with("\"edge x\" is not an edge"));
        assert_eq!(count.load(Ordering::Relaxed), 2);
        let long = "x".repeat(3 * LINE_MAX as usize);
        assert_eq!(read_edges(format!("{long}\nedge rise 7").as_bytes(), &count, |_| {}).unwrap().len(), 1);
    }

    #[test]
    fn threads_are_alternately_busy_and_idle() {
        let stop = AtomicBool::new(false);
        let begun = monotonic_ns();
        let edges = spin(Duration::from_millis(100), 4, 2, &stop, |_| {}).unwrap();
        assert_eq!(edges.len(), 8);
        assert!(edges.iter().enumerate().all(|(n, edge)| edge.rises == (n % 2 == 0)));
        assert!(edges.windows(2).all(|pair| pair[1].at_ns > pair[0].at_ns));
        // A thread may be late, but never early.
        let due = |number: usize| begun + 50_000_000 + number as u64 * 50_000_000;
        assert!(edges.iter().enumerate().all(|(n, edge)| edge.at_ns >= due(n)), "{begun}: {edges:?}");
        assert!(edges[7].at_ns < begun + 10_000_000_000, "{begun}: {edges:?}");
        stop.store(true, Ordering::Relaxed);
        assert!(spin(Duration::from_secs(10), 4, 1, &stop, |_| {}).unwrap_err().is::<Interrupted>());
    }

    #[test]
    fn edges_are_the_medians_of_all_threads() {
        let thread =
            |late: u64| vec![Edge { at_ns: 10 + late, rises: true }, Edge { at_ns: 20 + late, rises: false }];
        let edges = median_edges(&[thread(0), thread(900), thread(1)]);
        assert_eq!(edges, thread(1));
    }
}
