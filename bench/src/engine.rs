//! Measures the attribution engine alone, for many ranks that share one device. Each rank is up to 20 frames deep.

use crate::{Figure, least, medians};
use ampere_attribution::{Engine, Increase, LocationIndex, Policy, Sharing};
use ampere_model::RegionRef;
use std::time::Instant;

const EVENTS: u64 = 8_000_000;
const DEPTH: u64 = 20;
/// Events of one rank between two samples of the device. With more ranks there are more events between two samples.
const EVENTS_PER_SAMPLE: u64 = 125;
/// The same in the hard case, in which most frames that receive energy from a sample were entered only once since the previous
/// one.
const FEW_EVENTS_PER_SAMPLE: u64 = 2;

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    // SAFETY: our own library, which has no initialisers; the function has this type.
    let library = unsafe { libloading::Library::new(least::build_engine()?)? };
    // SAFETY: as above.
    let least = unsafe { library.get::<unsafe extern "C" fn(u64, u64) -> u64>(b"least_engine")? };
    let minimal_c = |ranks| {
        let begun = Instant::now();
        // SAFETY: the function accepts any numbers above 0.
        std::hint::black_box(unsafe { least(std::hint::black_box(ranks), EVENTS) });
        begun.elapsed().as_nanos() as f64 / EVENTS as f64
    };
    let [few, least_few, many, least_many, hard] = medians(5, |which| {
        Ok(match which {
            0 => run(8, EVENTS_PER_SAMPLE),
            1 => minimal_c(8),
            2 => run(512, EVENTS_PER_SAMPLE),
            3 => minimal_c(512),
            _ => run(512, FEW_EVENTS_PER_SAMPLE),
        })
    })?;
    let figure = |what, value, yardstick, yardstick_value| Figure {
        what,
        value,
        unit: "ns",
        yardstick,
        yardstick_value,
    };
    const MINIMAL_C: &str = "C: a stack, and the time added to the innermost frame";
    Ok(vec![
        figure("engine: an event, 8 ranks on one device, depth 20", few, MINIMAL_C, least_few),
        figure("engine: an event, 512 ranks on one device", many, MINIMAL_C, least_many),
        figure(
            "engine: an event, 512 ranks, 2 events each per sample",
            hard,
            "the same with 125 events per sample",
            many,
        ),
    ])
}

/// Measures nanoseconds per event. The ranks take turns; each enters 20 frames and leaves them again.
fn run(ranks: u64, events_per_sample: u64) -> f64 {
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::TimeSliced, Sharing::Shared);
    let locations: Vec<LocationIndex> = (0..ranks).map(|_| engine.add_location()).collect();
    locations.iter().for_each(|location| engine.bind(view, *location));
    engine.sample(view, 0, Increase::First);
    let mut time = 0;
    let begun = Instant::now();
    for round in 0..EVENTS / ranks {
        let step = round % (2 * DEPTH);
        for location in &locations {
            time += 10;
            if step < DEPTH {
                engine.enter(*location, time, RegionRef(step as u32));
            } else {
                engine.leave(*location, time);
            }
        }
        if round % events_per_sample == 0 {
            engine.sample(view, time, Increase::Joules(1.0));
        }
    }
    begun.elapsed().as_nanos() as f64 / EVENTS as f64
}
