//! Reads the counters during the load, in a thread of its own.
//!
//! The sampler of a run reads a counter less often once its update period is known. Here each counter is read all the time,
//! to measure that period. As in the sampler, a new value has the time of the first reading that shows it, so the measured
//! delay also applies to the sampler's samples.

use super::load::monotonic_ns;
use ampere_counters::{Device, ReadError, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub struct Counter {
    pub device: Device,
    /// The time of the first reading of each new value, in nanoseconds of CLOCK_MONOTONIC, and the value in nanojoules.
    pub movements: Vec<(u64, u64)>,
    pub readings: u64,
    pub failed: u64,
    /// The error of the last failed reading.
    pub error: Option<String>,
    /// The time between two readings.
    pub period: Duration,
    /// The minimum time from one reading of the counter to the next; zero if it may be read in every sampling period.
    pause: Duration,
    due: Instant,
}

pub struct Sampling {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Counter>>,
}

impl Sampling {
    /// Starts the thread. There must be at least one source.
    pub fn start(mut sources: Vec<Box<dyn Source>>, period: Duration) -> std::io::Result<Sampling> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = move || {
            let mut counters: Vec<Vec<Counter>> =
                sources.iter().map(|source| counters(source.as_ref(), period)).collect();
            let mut due = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                for (source, counters) in sources.iter_mut().zip(&mut counters) {
                    for (number, counter) in counters.iter_mut().enumerate() {
                        counter.read(source.as_mut(), number);
                    }
                }
                // If a reading took too long, the readings that are overdue are skipped.
                due = (due + period).max(Instant::now());
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            counters.into_iter().flatten().collect()
        };
        let thread = std::thread::Builder::new().name("ampere-sampler".to_owned()).spawn(work)?;
        Ok(Sampling { stop, thread })
    }

    /// Ends the thread and returns the counters.
    pub fn stop(self) -> anyhow::Result<Vec<Counter>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the thread that reads the counters ended early"))
    }
}

fn counters(source: &dyn Source, period: Duration) -> Vec<Counter> {
    let devices = source.devices().iter().enumerate();
    devices
        .map(|(number, device)| {
            let shortest = source.shortest_period(number);
            let pause = if shortest > period { shortest } else { Duration::ZERO };
            Counter {
                device: device.clone(),
                movements: Vec::new(),
                readings: 0,
                failed: 0,
                error: None,
                period: period.max(shortest),
                pause,
                due: Instant::now(),
            }
        })
        .collect()
}

impl Counter {
    fn read(&mut self, source: &mut dyn Source, number: usize) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        self.due = now + self.pause;
        let before = monotonic_ns();
        let reading = source.read(number);
        let time = before + monotonic_ns().saturating_sub(before) / 2;
        match reading {
            Ok(reading) => {
                self.readings += 1;
                if self.movements.last().is_none_or(|last| last.1 != reading.nanojoules) {
                    self.movements.push((time, reading.nanojoules));
                }
            }
            Err(ReadError::NotYet) => {}
            Err(error) => {
                self.failed += 1;
                self.error = Some(error.to_string());
            }
        }
    }
}
