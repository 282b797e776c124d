//! /metrics with ten thousand series: how long a scrape takes, and what the rings notice of it.

use crate::load::{Feed, Load, Pattern};
use crate::{Figure, median};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// 64 ranks of 160 functions each.
const LOAD: Load = Load {
    processes: 64,
    threads: 1,
    pattern: Pattern::Tree { deep: 1, wide: 160 },
    trace: false,
    all_threads: false,
    most_series: 20_000,
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

/// The longest that a record waited, and seconds for each scrape of so many series.
fn run(scraped: bool) -> anyhow::Result<(f64, Vec<f64>)> {
    let feed = Feed::start(&LOAD)?;
    let announced = feed.output().join("collector.json");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let mut times = Vec::new();
            while scraped && !over.load(Ordering::Relaxed) {
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
        over.store(true, Ordering::Relaxed);
        let times = scraper.join().map_err(|_| anyhow::anyhow!("the scraper failed"))?;
        Ok((run?.longest_wait_seconds, times))
    })
}

/// Series of the family with a series for each rank and function.
fn scrape(announced: &Path) -> Option<usize> {
    let text = std::fs::read_to_string(announced).ok()?;
    let json: serde_json::Value = serde_json::from_str(&text).ok()?;
    let address = json["url"].as_str()?.strip_prefix("http://")?.to_owned();
    let mut stream = TcpStream::connect(&address).ok()?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut body = String::new();
    stream.read_to_string(&mut body).ok()?;
    Some(body.lines().filter(|line| line.starts_with("ampere_region_energy_joules_total{")).count())
}
