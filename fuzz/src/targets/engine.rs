//! Passes events and samples of several locations to the engine, in any order and at any times.

use crate::bytes::Bytes;
use ampere_attribution::{Counter, CounterKind, Engine, Limits, LocationIndex, Policy, Sharing, ViewIndex};
use ampere_model::RegionRef;

pub fn run(data: &[u8]) {
    let mut from = Bytes::new(data);
    let mut engine = Engine::new();
    let head = from.u8();
    let mut views: Vec<ViewIndex> = Vec::new();
    for policy in [Policy::TimeSliced, Policy::BusyOnly, Policy::Active] {
        for sharing in [Sharing::Shared, Sharing::Independent] {
            views.push(engine.add_view(policy, sharing));
        }
    }
    views.iter().for_each(|view| engine.set_baseline(*view, f64::from(head >> 2 & 3) * 1e-8));
    let locations: Vec<LocationIndex> = (0..1 + head % 4).map(|_| engine.add_location()).collect();
    // The part of the time that each location is on a CPU, if that is known, and its CPU time up to `known_until`.
    let (mut on_cpu, mut cpu_times) = (vec![None; locations.len()], vec![0.0; locations.len()]);
    let mut known_until = 0;
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
        let view = views[usize::from(op >> 4) % views.len()];
        match op & 15 {
            0..=2 => engine.enter(location, time, RegionRef(u32::from(from.u8() % 8))),
            3..=5 => engine.leave(location, time),
            6 => engine.enter_calls(location, time, RegionRef(0), from.edge_u64()),
            7 => drop(engine.close(location, time)),
            8 => time = time.saturating_add(u64::from(from.u16())),
            9 => time = from.edge_u64(),
            10 => engine.bind(view, location),
            11 => engine.bind_member(view, location, u64::from(from.u8() % 3)),
            12 => engine.unbind(view, location),
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
            14 => on_cpu[usize::from(op >> 4) % locations.len()] = Some(f64::from(from.u8()) / 255.0),
            _ => {
                drop(engine.report(view));
            }
        }
        // Points of CPU time come before the steps and samples of later times.
        for ((location, part), ticks) in locations.iter().zip(&on_cpu).zip(&mut cpu_times) {
            if let Some(part) = part {
                *ticks += time.saturating_sub(known_until) as f64 * part;
                engine.add_cpu_time(*location, time.max(known_until), *ticks);
            }
        }
        known_until = known_until.max(time);
    }
    for view in views {
        let totals = engine.totals(view);
        let sum = totals.total_joules.abs();
        if sum < 1e300 {
            let error = totals.conservation_error_joules;
            let rounding = 1e-9 + 1e-6 * sum;
            assert!(error <= rounding, "{error} J of {sum} J");
            let report = engine.report(view);
            let is_active = report.policy == Policy::Active;
            let bounded = |all, dynamic| if is_active { dynamic } else { all };
            let paths = report.callpaths.iter().map(|row| {
                (row.resolved_joules, bounded(row.exclusive_joules, row.dynamic_joules), row.possible_joules)
            });
            let regions = report.regions.iter().map(|row| {
                (row.resolved_joules, bounded(row.exclusive_joules, row.dynamic_joules), row.possible_joules)
            });
            for (resolved, attributed, possible) in paths.chain(regions) {
                let in_order = resolved <= attributed + rounding && attributed <= possible + rounding;
                assert!(in_order, "{resolved} J at least, {attributed} J, {possible} J at most");
            }
        }
    }
}
