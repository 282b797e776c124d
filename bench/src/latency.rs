//! The time from a counter's change to the first scrape of /metrics that shows it: a process with the plugin, its collector, and
//! a stand-in for librocm_smi64 whose counter changes at known times of CLOCK_MONOTONIC.
//!
//! A change is identified by its number: at the end the counter stops at a value whose time is known, and each earlier value is a
//! known number of steps smaller. A value that is shown late is therefore not mistaken for the next one.

use crate::{Figure, events};
use anyhow::{Context, anyhow, bail};
use rustix::time::{ClockId, clock_gettime};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The option that makes this program the process that is measured.
pub const CHILD: &str = "--latency";

const CHANGES: u32 = 240;
/// The step is neither a divisor nor a multiple of the collector's periods, so that changes occur at all phases of the periods.
const STEP_SECONDS: f64 = 0.083;
const WATTS: f64 = 1000.0;
/// Changes before this time are not measured: the collector must first determine its clock and open its counters.
const BEGINS_SECONDS: f64 = 3.0;
const SCRAPE_PERIOD: Duration = Duration::from_millis(5);

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    let mut latencies = measure()?;
    latencies.sort_by(f64::total_cmp);
    let quantile = |fraction: f64| {
        1e3 * latencies[((latencies.len() as f64 * fraction) as usize).min(latencies.len() - 1)]
    };
    Ok(vec![
        Figure {
            what: "latency: from a counter's change to /metrics, median",
            value: quantile(0.5),
            unit: "ms",
            yardstick: "limit, for the 99th percentile",
            yardstick_value: 250.0,
        },
        Figure {
            what: "latency: from a counter's change to /metrics, 99th percentile",
            value: quantile(0.99),
            unit: "ms",
            yardstick: "limit",
            yardstick_value: 250.0,
        },
    ])
}

fn monotonic() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// Returns the seconds from each change to the end of the first scrape that shows it.
fn measure() -> anyhow::Result<Vec<f64>> {
    let library = crate::child::stand_in()?;
    let shm = tempfile::tempdir_in("/dev/shm")?;
    let out = tempfile::tempdir()?;
    let epoch = monotonic();
    let ends = BEGINS_SECONDS + f64::from(CHANGES) * STEP_SECONDS;
    let step_ms = STEP_SECONDS * 1e3;
    let script = format!("watts={WATTS};epoch={epoch};step_ms={step_ms};freeze=0@{ends}-1e9");
    let own = std::env::current_exe()?;
    let mut child = Command::new(own)
        .arg(CHILD)
        .env("AMPERE_SHM", shm.path())
        .env("AMPERE_OUTPUT", out.path().join("out"))
        .env("AMPERE_LISTEN", "127.0.0.1:0")
        .env("AMPERE_TRACE", "off")
        .env("AMPERE_COUNTERS", "rocm_smi")
        .env("AMPERE_ROCM_SMI_LIBRARY", library)
        .env("STAND_IN_ROCM_SMI", script)
        .stdin(Stdio::piped())
        .spawn()?;
    let scrapes = scrape_until(&out.path().join("out/collector.json"), epoch + ends + 1.0);
    drop(child.stdin.take());
    let ended = child.wait()?;
    if !ended.success() {
        bail!("the process that is measured: {ended}");
    }
    latencies(&scrapes?, epoch + BEGINS_SECONDS, epoch + ends)
}

/// Returns the time and the joules of each scrape, starting with the first one that has any.
fn scrape_until(announced: &Path, end: f64) -> anyhow::Result<Vec<(f64, f64)>> {
    let (mut address, mut scrapes) = (None, Vec::new());
    while monotonic() < end {
        let begun = Instant::now();
        if address.is_none() {
            let text = std::fs::read(announced).unwrap_or_default();
            let json: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
            address = json["url"].as_str().and_then(|url| url.strip_prefix("http://")).map(str::to_owned);
        }
        if let Some(address) = &address {
            let body = scrape(address).context("cannot scrape /metrics")?;
            let line = body.lines().find(|line| line.starts_with("ampere_device_energy_joules_total{"));
            let joules = line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok());
            scrapes.extend(joules.map(|joules: f64| (monotonic(), joules)));
        }
        std::thread::sleep(SCRAPE_PERIOD.saturating_sub(begun.elapsed()));
    }
    Ok(scrapes)
}

fn scrape(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut body = String::new();
    stream.read_to_string(&mut body)?;
    Ok(body)
}

/// Returns the latencies, in seconds, of the changes between `begin` and `end`. After `end` the counter no longer changes.
fn latencies(scrapes: &[(f64, f64)], begin: f64, end: f64) -> anyhow::Result<Vec<f64>> {
    let (_, all) = *scrapes.last().context("no scrape showed any energy")?;
    let last_step = (end / STEP_SECONDS).floor();
    // The number of steps that a scrape shows.
    let shown = |joules: f64| {
        let behind = (all - joules) / (STEP_SECONDS * WATTS);
        let whole = (behind - behind.round()).abs() < 0.01;
        if whole {
            Ok(last_step - behind.round())
        } else {
            Err(anyhow!("{behind} is not a whole number of steps"))
        }
    };
    let mut next = (begin / STEP_SECONDS).ceil();
    let mut latencies = Vec::new();
    for (time, joules) in scrapes {
        let shown = shown(*joules)?;
        while next <= shown {
            latencies.push(time - next * STEP_SECONDS);
            next += 1.0;
        }
    }
    if next <= last_step || latencies.len() < 200 || latencies.iter().any(|latency| *latency < 0.0) {
        bail!("{} changes were seen, up to {next} of {last_step}", latencies.len());
    }
    Ok(latencies)
}

/// Runs in the child: makes calls now and then until the parent has gone.
pub fn child() {
    let library = crate::child::sibling("libscorep_substrate_ampere.so");
    // SAFETY: our own library; its initialisers are Rust's.
    let library = unsafe { libloading::Library::new(&library) }.expect("the built plugin");
    let host = events::Host::start(&library);
    let watch = std::thread::spawn(|| drop(std::io::stdin().read_to_end(&mut Vec::new())));
    while !watch.is_finished() {
        host.some_calls(100);
        std::thread::sleep(Duration::from_millis(10));
    }
    host.end();
}
