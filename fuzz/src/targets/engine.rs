//! Passes events and samples of several locations to the engine, in any order and at any times.

use crate::bytes::Bytes;
use ampere_attribution::{Counter, CounterKind, Engine, Limits, LocationIndex, Policy, Sharing, ViewIndex};
use ampere_model::RegionRef;

pub fn run(data: &[u8]) {
    let mut from = Bytes::new(data);
    let mut engine = Engine::new();
    let head = from.u8();
    let mut views: Vec<ViewIndex> = Vec::new();
    for policy in [Policy::TimeSliced, Policy::BusyOnly] {
        for sharing in [Sharing::Shared, Sharing::Independent] {
            views.push(engine.add_view(policy, sharing));
        }
    }
    let locations: Vec<LocationIndex> = (0..1 + head % 4).map(|_| engine.add_location()).collect();
    let kind = if head & 0x10 == 0 {
        let wraps_at = (head & 0x20 != 0).then(|| from.u64());
        CounterKind::Cumulative { joules_per_unit: 1e-6, wraps_at }
    } else {
        CounterKind::Instantaneous { watts_per_unit: 1e-3, is_of_time_before: false }
    };
    let limits = Limits {
        ticks_per_second: 1e9,
        watts_max: if head & 0x40 == 0 { f64::INFINITY } else { 20e3 },
        gap: (head & 0x80 != 0).then_some(4.0),
        stale_seconds: 10.0,
    };
    let mut counter = Counter::new(kind, limits);
    let mut time = 0u64;
    for _ in 0..1024 {
        if from.is_empty() {
            break;
        }
        let op = from.u8();
        let location = locations[usize::from(op >> 4) % locations.len()];
        match op & 15 {
            0..=2 => engine.enter(location, time, RegionRef(u32::from(from.u8() % 8))),
            3..=5 => engine.leave(location, time),
            6 => engine.enter_calls(location, time, RegionRef(0), from.edge_u64()),
            7 => drop(engine.close(location, time)),
            8 => time = time.saturating_add(u64::from(from.u16())),
            9 => time = from.edge_u64(),
            10 => engine.bind(views[usize::from(op >> 4) % 4], location),
            11 => engine.bind_member(views[usize::from(op >> 4) % 4], location, u64::from(from.u8() % 3)),
            12 => engine.unbind(views[usize::from(op >> 4) % 4], location),
            13 => {
                match op >> 4 & 3 {
                    0 => counter.read_f64(time, f64::from_bits(from.u64()), 0),
                    1 => counter.read_i64(time, from.u64() as i64, 0),
                    2 => counter.decide_before(from.edge_u64()),
                    _ => counter.read_u64(time, from.edge_u64(), 0),
                }
                while let Some(sample) = counter.sample() {
                    views.iter().for_each(|view| engine.sample(*view, sample.time, sample.increase));
                }
            }
            _ => {
                drop(engine.report(views[usize::from(op >> 4) % 4]));
            }
        }
    }
    for view in views {
        let totals = engine.totals(view);
        let sum = totals.total_joules.abs();
        if sum < 1e300 {
            let error = totals.conservation_error_joules;
            let rounding = 1e-9 + 1e-6 * sum;
            assert!(error <= rounding, "{error} J of {sum} J");
            let report = engine.report(view);
            let paths =
                report.callpaths.iter().map(|r| (r.resolved_joules, r.exclusive_joules, r.possible_joules));
            let regions =
                report.regions.iter().map(|r| (r.resolved_joules, r.exclusive_joules, r.possible_joules));
            for (resolved, attributed, possible) in paths.chain(regions) {
                let in_order = resolved <= attributed + rounding && attributed <= possible + rounding;
                assert!(in_order, "{resolved} J at least, {attributed} J, {possible} J at most");
            }
        }
    }
}
