//! The attribution engine alone: many ranks that share one device, 20 frames deep.

use crate::{Figure, median};
use ampere_attribution::{Engine, Increase, LocationIndex, Policy, Sharing};
use ampere_model::RegionRef;
use std::time::Instant;

const EVENTS: u64 = 8_000_000;
const DEPTH: u64 = 20;
const EVENTS_PER_SAMPLE: u64 = 1000;

pub fn figures() -> Vec<Figure> {
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        few.push(run(8));
        many.push(run(512));
    }
    let (few, many) = (median(few), median(many));
    vec![
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
    ]
}

/// Nanoseconds per event. Every rank goes up and down its 20 frames, one event in turn.
fn run(ranks: u64) -> f64 {
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::TimeSliced, Sharing::Shared);
    let locations: Vec<LocationIndex> = (0..ranks).map(|_| engine.add_location()).collect();
    locations.iter().for_each(|location| engine.bind(view, *location));
    engine.sample(view, 0, Increase::First);
    let begun = Instant::now();
    for event in 0..EVENTS {
        let (rank, step) = (event % ranks, event / ranks % (2 * DEPTH));
        let (location, time) = (locations[rank as usize], event * 10);
        if step < DEPTH {
            engine.enter(location, time, RegionRef(step as u32));
        } else {
            engine.leave(location, time);
        }
        if event % EVENTS_PER_SAMPLE == 0 {
            engine.sample(view, time, Increase::Joules(1.0));
        }
    }
    begun.elapsed().as_nanos() as f64 / EVENTS as f64
}
