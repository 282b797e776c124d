//! The attribution engine alone: many ranks that share one device, 20 frames deep.

use crate::{Figure, median};
use ampere_attribution::{Engine, Increase, LocationIndex, Policy, Sharing};
use ampere_model::RegionRef;
use std::time::Instant;

const EVENTS: u64 = 8_000_000;
const DEPTH: u64 = 20;
/// Of one rank, from one sample of the device to the next: more ranks are more events between two samples.
const EVENTS_PER_SAMPLE: u64 = 125;
/// The hard case: most frames that are paid at a sample were entered once since the one before.
const FEW_EVENTS_PER_SAMPLE: u64 = 2;

pub fn figures() -> Result<Vec<Figure>, String> {
    let (mut few, mut many, mut hard) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..5 {
        few.push(run(8, EVENTS_PER_SAMPLE));
        many.push(run(512, EVENTS_PER_SAMPLE));
        hard.push(run(512, FEW_EVENTS_PER_SAMPLE));
    }
    let (few, many, hard) = (median(few), median(many), median(hard));
    Ok(vec![
        Figure {
            what: "engine: an event, 8 ranks on one device, depth 20",
            value: few,
            unit: "ns",
            yardstick: "to reach",
            yardstick_value: 10.0,
        },
        Figure {
            what: "engine: an event, 512 ranks on one device",
            value: many,
            unit: "ns",
            yardstick: "1.5 x the one with 8",
            yardstick_value: 1.5 * few,
        },
        Figure {
            what: "engine: an event, 512 ranks, 2 events each per sample",
            value: hard,
            unit: "ns",
            yardstick: "the one with 125 events per sample",
            yardstick_value: many,
        },
    ])
}

/// Nanoseconds per event. Every rank goes up and down its 20 frames, one event in turn.
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
