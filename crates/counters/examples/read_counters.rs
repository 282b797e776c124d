//! Prints the node's counters and what they count in N seconds (default 2): `read_counters [N]`.

use std::time::{Duration, Instant};

use ampere_counters::{Settings, open_sources};

fn main() {
    let seconds: f64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2.0);
    let mut notes = Vec::new();
    let mut settings = Settings::default();
    settings.apply_environment(&mut notes);
    let mut opened = open_sources(&settings);
    for note in notes.iter().chain(&opened.notes) {
        println!("note: {note}");
    }
    for source in &mut opened.sources {
        let devices = source.devices().to_vec();
        let before: Vec<_> = (0..devices.len()).map(|i| source.read(i)).collect();
        let start = Instant::now();
        let (mut reads, mut changes, mut last) = (0u64, 0u64, 0);
        let mut spent = Duration::ZERO;
        while start.elapsed().as_secs_f64() < seconds {
            std::thread::sleep(Duration::from_millis(1));
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
