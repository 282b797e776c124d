//! Measures how long a scrape of /metrics with ten thousand series takes, how scrapes affect the rings, and how much CPU time a
//! collector needs for all clients of its run.

use crate::load::{Feed, Load, Pattern};
use crate::{Figure, median};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// 64 ranks of 160 functions each.
const LOAD: Load = Load {
    processes: 64,
    threads: 1,
    pattern: Pattern::Tree { deep: 1, wide: 160 },
    trace: false,
    all_threads: false,
    most_series: 20_000,
    waits: true,
};
const RATE: f64 = 1e6;
const DURATION: Duration = Duration::from_secs(5);
const SCRAPE_PERIOD: Duration = Duration::from_millis(50);

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    let (quiet, _) = run(false)?;
    let (scraped, times) = run(true)?;
    if times.is_empty() {
        anyhow::bail!("no scrape had ten thousand series");
    }
    Ok(vec![
        Figure {
            what: "/metrics: a scrape of 10,000 series",
            value: median(times) * 1e3,
            unit: "ms",
            yardstick: "at most",
            yardstick_value: 10.0,
        },
        Figure {
            what: "/metrics: longest wait in a ring, 20 scrapes a second",
            value: scraped * 1e3,
            unit: "ms",
            yardstick: "the same without a scrape",
            yardstick_value: quiet * 1e3,
        },
    ])
}

/// Returns the longest time that a record waited, and the seconds that each scrape took.
fn run(with_scrapes: bool) -> anyhow::Result<(f64, Vec<f64>)> {
    let feed = Feed::start(&LOAD)?;
    let announced = feed.output().join("collector.json");
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let mut times = Vec::new();
            while with_scrapes && !has_ended.load(Ordering::Relaxed) {
                std::thread::sleep(SCRAPE_PERIOD);
                let begun = Instant::now();
                let series = scrape(&announced).unwrap_or(0);
                if series >= 10_000 {
                    times.push(begun.elapsed().as_secs_f64());
                }
            }
            times
        });
        let run = feed.run_at_rate(RATE, DURATION);
        has_ended.store(true, Ordering::Relaxed);
        let times = scraper.join().map_err(|_| anyhow::anyhow!("the scraper failed"))?;
        Ok((run?.longest_wait_seconds, times))
    })
}

/// Returns the number of series in the metric family with one series per rank and function.
fn scrape(announced: &Path) -> Option<usize> {
    let mut body = String::new();
    ask(&address(announced)?, "/metrics")?.read_to_string(&mut body).ok()?;
    Some(body.lines().filter(|line| line.starts_with("ampere_region_energy_joules_total{")).count())
}

fn address(announced: &Path) -> Option<String> {
    let text = std::fs::read_to_string(announced).ok()?;
    let json: serde_json::Value = serde_json::from_str(&text).ok()?;
    Some(json["url"].as_str()?.strip_prefix("http://")?.to_owned())
}

fn ask(address: &str, path: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    Some(stream)
}

/// A job of 64 ranks with 10,100 call paths each, and a small one.
const WATCHED: [(&str, Load); 2] = [
    (
        "viewers: a page, a scrape a second and ampere top, 64 ranks x 10,000 call paths",
        Load { pattern: Pattern::Tree { deep: 2, wide: 100 }, most_series: 2000, ..LOAD },
    ),
    (
        "viewers: the same, 4 ranks, a few hundred call paths",
        Load { processes: 4, pattern: Pattern::Walk { calls_per_message: 0 }, most_series: 2000, ..LOAD },
    ),
];
/// The rate and the duration after which each rank has called all paths.
const ALL_PATHS: (f64, Duration) = (2e6, Duration::from_secs(3));
const SETTLE: Duration = Duration::from_secs(2);
const WATCH: Duration = Duration::from_secs(8);
const WATCH_ROUNDS: usize = 5;
const POLL_PERIOD: Duration = Duration::from_secs(1);

/// Measures the CPU time of the collector with and without clients, in turn, and returns the difference. A client that reads the
/// stream of events acts like a browser; a client that sends the requests of `ampere top` acts like `ampere top` with call paths
/// shown.
pub fn viewers() -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (what, load) in WATCHED {
        let mut feed = Feed::start(&load)?;
        let mut events = feed.write_at_rate(ALL_PATHS.0, ALL_PATHS.1)?;
        let announced = feed.output().join("collector.json");
        let address = address(&announced).ok_or_else(|| anyhow::anyhow!("no collector.json"))?;
        let mut shares = [const { Vec::new() }; 2];
        for round in 0..2 * WATCH_ROUNDS {
            let is_watched = round % 2 == 1;
            let viewers = Viewers::default();
            let share = std::thread::scope(|scope| -> anyhow::Result<f64> {
                if is_watched {
                    viewers.start(scope, &address);
                }
                let share = (|| {
                    events += feed.write_at_rate(1e5, SETTLE)?;
                    let (begun, before) = (Instant::now(), feed.cpu_nanoseconds()?);
                    events += feed.write_at_rate(1e5, WATCH)?;
                    let used = feed.cpu_nanoseconds()? - before;
                    Ok(100.0 * used * 1e-9 / begun.elapsed().as_secs_f64())
                })();
                viewers.has_ended.store(true, Ordering::Relaxed);
                viewers.check(is_watched)?;
                share
            });
            shares[usize::from(is_watched)].push(share?);
        }
        let [alone, watched] = shares.map(median);
        eprintln!("{what}: {watched:.2} % of a core, {alone:.2} % without them");
        figures.push(Figure::new(what, watched - alone, "% of a core", "at most", 2.0));
        feed.finish(events)?;
    }
    Ok(figures)
}

/// Clients that watch a run, and how often each got an answer.
#[derive(Default)]
struct Viewers {
    has_ended: AtomicBool,
    /// Number of answers: events of the page, scrapes, snapshots, call paths.
    answers: [AtomicU32; 4],
}

impl Viewers {
    fn start<'scope>(&'scope self, scope: &'scope std::thread::Scope<'scope, '_>, address: &'scope str) {
        scope.spawn(|| self.read_events(address));
        scope.spawn(|| self.poll(address, &[(1, "/metrics")]));
        scope.spawn(|| self.poll(address, &[(2, "/snapshot.json"), (3, "/page.json")]));
    }

    /// Reads events until the watch ends. The collector ends a stream after half a minute.
    fn read_events(&self, address: &str) {
        let mut bytes = vec![0; 1 << 16];
        while !self.has_ended.load(Ordering::Relaxed) {
            let Some(mut stream) = ask(address, "/events") else { return };
            let _ = stream.set_read_timeout(Some(POLL_PERIOD));
            let mut has_ended_line = false;
            while !self.has_ended.load(Ordering::Relaxed) {
                match stream.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(length) => {
                        for byte in &bytes[..length] {
                            // An event ends with an empty line.
                            let is_end = *byte == b'\n';
                            self.answers[0].fetch_add(u32::from(is_end && has_ended_line), Ordering::Relaxed);
                            has_ended_line = is_end;
                        }
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => break,
                }
            }
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn poll(&self, address: &str, paths: &[(usize, &str)]) {
        while !self.has_ended.load(Ordering::Relaxed) {
            let begun = Instant::now();
            for (which, path) in paths {
                let mut body = Vec::new();
                let answer = ask(address, path).and_then(|mut stream| stream.read_to_end(&mut body).ok());
                let is_good = answer.is_some() && body.starts_with(b"HTTP/1.1 200");
                self.answers[*which].fetch_add(u32::from(is_good), Ordering::Relaxed);
            }
            std::thread::sleep(POLL_PERIOD.saturating_sub(begun.elapsed()));
        }
    }

    fn check(&self, is_watched: bool) -> anyhow::Result<()> {
        let answers = self.answers.each_ref().map(|count| count.load(Ordering::Relaxed));
        let answers_min = (SETTLE + WATCH).as_secs() as u32 / 2;
        if is_watched && answers.iter().any(|count| *count < answers_min) {
            anyhow::bail!("too few events, scrapes, snapshots or call paths were received: {answers:?}");
        }
        Ok(())
    }
}
