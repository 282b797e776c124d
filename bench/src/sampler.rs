//! Measures the CPU time of the sampler's thread, and how often it misses a deadline. The sampler runs in a separate process,
//! because the stand-in for the vendor's library reads its script from the environment.

use crate::{Figure, child};
use ampere_collector::sampling::clock::Timer;
use ampere_collector::sampling::sampler::{RING_NAME, Sampler, SamplerOptions};
use ampere_counters::Settings;
use ampere_figures::summary::{Readings, SamplerOverhead};
use ampere_ring::RingConsumer;
use ampere_settings::Config;
use std::process::Command;
use std::time::{Duration, Instant};

pub const CHILD: &str = "--sampler";
const RUN: Duration = Duration::from_secs(5);
const PERIOD: Duration = Duration::from_millis(1);

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    let [eight, _] = measure("devices=8;busy_us=20")?;
    let [one, missed] = measure("devices=1")?;
    // On a loaded machine some readings are left out. This is the cost when none is left out.
    let at_1_khz = |seconds_per_reading: f64, devices: f64| 100.0 * seconds_per_reading * devices * 1000.0;
    Ok(vec![
        Figure {
            what: "sampler: 8 devices at 1 kHz, 20 us per reading, share of a core",
            value: at_1_khz(eight, 8.0),
            unit: "%",
            yardstick: "limit (the readings alone take 16 %)",
            yardstick_value: 20.0,
        },
        Figure {
            what: "sampler: 1 device at 1 kHz, share of a core",
            value: at_1_khz(one, 1.0),
            unit: "%",
            yardstick: "limit, for 8 devices",
            yardstick_value: 20.0,
        },
        Figure {
            what: "sampler: deadlines missed by more than 1 ms, at 1 ms",
            value: 100.0 * missed,
            unit: "%",
            yardstick: "limit, on a quiet core",
            yardstick_value: 1.0,
        },
    ])
}

/// Returns the CPU seconds per reading, including all other work of the sampler, and the fraction of missed deadlines.
fn measure(script: &str) -> anyhow::Result<[f64; 2]> {
    let mut child = Command::new(std::env::current_exe()?);
    child.arg(CHILD).arg(child::stand_in()?).env("STAND_IN_ROCM_SMI", script);
    let text = String::from_utf8(child::run(&mut child)?.output).unwrap_or_default();
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [cost, missed, ..] => Ok([cost, missed]),
        _ => anyhow::bail!("the child printed {text:?}"),
    }
}

/// Runs in the child.
pub fn child(library: &str) {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
    let settings = Settings {
        names: Some(vec!["rocm_smi"]),
        rocm_smi_library: Some(library.into()),
        ..Settings::default()
    };
    let gauges = Config::default().sampler.gauges.0;
    let options = SamplerOptions { period: PERIOD, gauges, settings, ..SamplerOptions::default() };
    let sampler = Sampler::start(directory.path(), Timer::usual(), options);
    let mut sampler = sampler.expect("a sampler");
    while sampler.found().is_none() {
        std::thread::sleep(PERIOD);
    }
    let mut ring = RingConsumer::open(&directory.path().join(RING_NAME)).expect("its ring");
    let begun = Instant::now();
    let mut batch = Vec::new();
    while begun.elapsed() < RUN {
        std::thread::sleep(Duration::from_millis(4));
        batch.clear();
        let count = ring.copy_out(&mut batch, usize::MAX).expect("an honest producer");
        ring.release(count);
    }
    let _ = sampler.stop();
    let figures = SamplerOverhead::from(&*sampler.figures);
    let devices = sampler.figures.devices().iter().map(Readings::from);
    let readings: u64 = devices.map(|device| device.readings).sum();
    let missed = figures.missed_deadlines as f64 / figures.deadlines.max(1) as f64;
    println!("{} {missed}", figures.cpu_seconds / readings.max(1) as f64);
}
