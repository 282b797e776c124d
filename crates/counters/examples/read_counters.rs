//! Prints the node's counters, the energy that each counts in the given time, and the time that a read takes. Usage:
//! `read_counters [SECONDS [PERIOD_MS]]`, by default 2 s and 1 ms. With 0 ms, the counters are read without a pause.

use std::time::{Duration, Instant};

use ampere_counters::open_sources;
use ampere_settings::Config;

fn main() {
    let argument = |n: usize| std::env::args().nth(n).and_then(|text| text.parse::<f64>().ok());
    let seconds = argument(1).unwrap_or(2.0);
    let period = Duration::try_from_secs_f64(argument(2).unwrap_or(1.0) * 1e-3).unwrap_or_default();
    let config = Config::load(None).expect("the environment's settings");
    let (settings, notes) = (config.sources, config.left_out);
    let mut opened = open_sources(&settings);
    for note in notes.iter().chain(&opened.notes) {
        println!("note: {note}");
    }
    for source in &mut opened.sources {
        let devices = source.devices().to_vec();
        let before: Vec<_> = (0..devices.len()).map(|i| source.read(i)).collect();
        let start = Instant::now();
        let mut reads = 0u64;
        let mut changes = 0u64;
        let mut last = 0;
        let mut spent = Duration::ZERO;
        while start.elapsed().as_secs_f64() < seconds {
            if !period.is_zero() {
                std::thread::sleep(period);
            }
            let from = Instant::now();
            for i in 0..devices.len() {
                let Ok(reading) = source.read(i) else { continue };
                reads += 1;
                if i == 0 && reading.raw != last {
                    changes += 1;
                    last = reading.raw;
                }
            }
            spent += from.elapsed();
        }
        let wall = start.elapsed().as_secs_f64();
        for (i, device) in devices.iter().enumerate() {
            println!(
                "{} {} [{} {}] {}",
                device.name, device.metric, device.quality, device.kind, device.description
            );
            println!("  pci {} tick {:e} J", device.pci.as_deref().unwrap_or("-"), device.resolution_joules);
            match (&before[i], &source.read(i)) {
                (Ok(before), Ok(after)) => {
                    let joules = after.nanojoules.wrapping_sub(before.nanojoules) as f64 * 1e-9;
                    println!("  {joules:.6} J in {wall:.3} s, {:.3} W", joules / wall);
                }
                (Err(error), _) | (_, Err(error)) => println!("  {error}"),
            }
        }
        let each = spent.as_secs_f64() * 1e6 / reads.max(1) as f64;
        println!("{}: {reads} reads, {each:.2} us each; first device changed {changes} times", source.name());
    }
}
