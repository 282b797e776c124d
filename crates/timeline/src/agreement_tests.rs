//! Compares counters and sensors as they would show invented loads, whose true energy is known.

use super::*;
use crate::attributor::FoundDevice;
use crate::counter_traits::CounterTraits;
use crate::power_sensor::PowerSensor;
use ampere_attribution::Increase;
use ampere_settings::Config;

const TICKS: f64 = 1e6;
const LAG: u64 = 1_000_000;

/// A sequence of powers in watts, each with the seconds for which it lasts.
type Load = [(f64, f64)];

fn seconds_of(load: &Load) -> f64 {
    load.iter().map(|(seconds, _)| seconds).sum()
}

/// Returns the joules spent until `until`.
fn energy(load: &Load, until: f64) -> f64 {
    let mut begin = 0.0;
    let part = |(seconds, watts): &(f64, f64)| {
        let spent = (until - begin).clamp(0.0, *seconds) * watts;
        begin += seconds;
        spent
    };
    load.iter().map(part).sum()
}

fn watts(load: &Load, at: f64) -> f64 {
    (energy(load, at) - energy(load, at - 1e-3)) / 1e-3
}

/// Returns a counter that is read every `every` seconds and shows a function of the time.
fn counter(load: &Load, every: f64, shows: impl Fn(f64) -> f64) -> Curve {
    let mut curve = Curve::new(TICKS as u64);
    let mut before = None;
    for reading in 0..=(seconds_of(load) / every) as u64 {
        let at = reading as f64 * every;
        let now = shows(at);
        let increase = before.map_or(Increase::First, |before| Increase::Joules(now - before));
        curve.add_sample((at * TICKS) as u64, increase);
        before = Some(now);
    }
    curve
}

/// Returns a counter without errors.
fn right(load: &Load, every: f64) -> Curve {
    counter(load, every, |at| energy(load, at))
}

/// Returns a power sensor that is read every `every` seconds, from 0.37 s on.
fn sensor(load: &Load, every: f64, shows: impl Fn(f64) -> f64) -> Curve {
    let mut sensor = PowerSensor::new("average", TICKS as u64);
    for reading in 0..((seconds_of(load) - 0.37) / every) as u64 {
        let at = 0.37 + reading as f64 * every;
        sensor.read((at * TICKS) as u64, Some(shows(at)));
    }
    sensor.energy
}

fn noise(at: f64) -> f64 {
    let hash = (at * 1e3) as u64;
    let hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 40) as f64 / (1u64 << 24) as f64 - 0.5
}

const STEADY: &Load = &[(60.0, 300.0)];
const PHASES: &Load = &[(20.0, 90.0), (30.0, 500.0), (10.0, 90.0), (25.0, 450.0), (5.0, 100.0)];
const SHORT: &Load = &[(0.6, 90.0), (3.8, 500.0), (2.6, 90.0)];

/// Pairs of measurements, each with the difference that is to be found.
fn unequal_but_alike() -> Vec<(&'static str, Curve, Curve, f64)> {
    let waves: Vec<(f64, f64)> = (0..200).flat_map(|_| [(0.35, 300.0), (0.35, 90.0)]).collect();
    let late = |at: f64| watts(SHORT, (at - 0.2).max(0.0));
    let lagging = |at: f64| watts(PHASES, (at - 0.5).max(0.0));
    vec![
        ("equal", right(STEADY, 0.01), right(STEADY, 0.1), 0.0),
        ("read at other times", right(PHASES, 0.015), right(PHASES, 0.11), 0.0),
        ("a factor", right(PHASES, 0.01), counter(PHASES, 0.1, |at| 1.04 * energy(PHASES, at)), 0.04),
        (
            "more, all the time",
            right(PHASES, 0.01),
            counter(PHASES, 0.1, |at| 1.02 * energy(PHASES, at) + 40.0 * at),
            0.02 + 40.0 * 90.0 / energy(PHASES, 90.0),
        ),
        ("a sensor", right(PHASES, 0.01), sensor(PHASES, 1.0, |at| watts(PHASES, at)), 0.0),
        ("a sensor that lags", right(PHASES, 0.01), sensor(PHASES, 1.0, lagging), 0.0),
        ("a sensor that is read often and lags", right(SHORT, 0.001), sensor(SHORT, 0.004, late), 0.0),
        (
            "a sensor that sees a wave now and then",
            right(&waves, 0.01),
            sensor(&waves, 1.0, |at| watts(&waves, at)),
            0.0,
        ),
        ("a noisy sensor", right(STEADY, 0.01), sensor(STEADY, 0.1, |at| 300.0 * (1.0 + noise(at))), 0.0),
        ("a short run", right(SHORT, 0.001), right(SHORT, 0.1), 0.0),
        ("a short run's sensor", right(SHORT, 0.001), sensor(SHORT, 0.1, |at| watts(SHORT, at)), 0.0),
    ]
}

#[test]
fn a_constant_difference_is_reported_without_a_change() {
    for (name, one, other, expected) in unequal_but_alike() {
        for (one, other, expected) in [(&one, &other, expected), (&other, &one, 1.0 / (1.0 + expected) - 1.0)]
        {
            let compared = compare(one, &[other]).expect(name);
            let difference = compared.joules[1] / compared.joules[0] - 1.0;
            // A sensor that is read once a second samples the wave only roughly.
            let within = if name.contains("now and then") { 0.2 } else { 0.03 };
            assert!((difference - expected).abs() < within, "{name}: {difference} and not {expected}");
            assert_eq!(deviation(one, &[other], LAG), None, "{name}");
        }
    }
}

#[test]
fn a_counter_is_compared_over_the_time_that_both_cover() {
    let one = right(PHASES, 0.01);
    let until = &PHASES[..2];
    let compared = compare(&one, &[&right(until, 0.1)]).unwrap();
    assert!((compared.ticks as f64 / TICKS - 50.0).abs() < 0.2, "{compared:?}");
    assert!(compared.joules.iter().all(|joules| (joules / energy(PHASES, 50.0) - 1.0).abs() < 0.01));
    // Two readings of a sensor are not enough for a comparison.
    assert_eq!(compare(&one, &[&right(&[(1.0, 90.0)], 1.0)]), None);
    // The joules spent just before a reset are not known, so that time is excluded from both.
    let mut reset = Curve::new(TICKS as u64);
    for second in 0..=60u64 {
        let increase = if second == 30 { Increase::Reset } else { Increase::Joules(300.0) };
        reset.add_sample(second * TICKS as u64, increase);
    }
    let compared = compare(&right(STEADY, 0.01), &[&reset]).unwrap();
    let seconds = compared.ticks as f64 / TICKS;
    assert!((56.0..59.5).contains(&seconds), "{seconds} s of 59 s");
    assert!(compared.joules.iter().all(|joules| (joules - 300.0 * seconds).abs() < 1.0), "{compared:?}");
}

#[test]
fn a_change_is_reported_with_its_time() {
    let frozen = |load: &'static Load, from: f64, to: f64| {
        counter(load, 0.01, move |at| energy(load, if (from..to).contains(&at) { from } else { at }))
    };
    let stopped = |load: &'static Load, from: f64, to: f64| {
        counter(load, 0.01, move |at| {
            let lost = energy(load, at.clamp(from, to)) - energy(load, from);
            energy(load, at) - lost
        })
    };
    let jump = counter(STEADY, 0.01, |at| energy(STEADY, at) + if at > 30.0 { 3000.0 } else { 0.0 });
    let drift = counter(STEADY, 0.01, |at| 300.0 * at * (1.0 + 0.5 * at / 60.0));
    let from_then_on = counter(STEADY, 0.01, |at| 300.0 * at.min(40.0) + 200.0 * (at - 40.0).max(0.0));
    let cases = [
        ("it catches up", frozen(STEADY, 20.0, 26.0), right(STEADY, 0.1), (20.0, 26.0)),
        ("it loses them", stopped(STEADY, 20.0, 26.0), right(STEADY, 0.1), (20.0, 26.0)),
        ("in a phase", stopped(PHASES, 25.0, 32.0), right(PHASES, 0.1), (25.0, 32.0)),
        (
            "with a sensor",
            stopped(PHASES, 62.0, 80.0),
            sensor(PHASES, 0.5, |at| watts(PHASES, at)),
            (62.0, 80.0),
        ),
        ("it jumps", jump, right(STEADY, 0.1), (30.0, 30.5)),
        ("it drifts", drift, right(STEADY, 0.1), (0.0, 20.0)),
        ("from then on", from_then_on, right(STEADY, 0.1), (40.0, 60.0)),
    ];
    for (name, one, other, (from, to)) in cases {
        for (one, other) in [(&one, &other), (&other, &one)] {
            let found = deviation(one, &[other], LAG).unwrap_or_else(|| panic!("{name}: nothing"));
            let found = [found.from, found.to].map(|time| time as f64 / TICKS);
            let near = |is: f64, should: f64| (is - should).abs() < 5.0;
            assert!(near(found[0], from) && near(found[1], to), "{name}: {found:?} and not {from} to {to}");
        }
    }
}

/// Returns a node like one of Frontier's. Each device has a metric, a kind, a power in watts, and the metrics that it contains.
fn node(devices: &[(&str, &str, f64, &[&str])]) -> Attributor {
    let mut attributor = Attributor::new(Config::default(), 1000);
    for (metric, kind, watts, contains) in devices {
        let found = FoundDevice {
            node: "n".to_owned(),
            metric: (*metric).to_owned(),
            source: "trace".to_owned(),
            quality: Quality::Measured,
            joules_per_unit: Some(1e-6),
        };
        let device = attributor.add_device(found).unwrap();
        let contains = contains.iter().map(|metric| (*metric).to_owned()).collect();
        attributor.set_traits(
            device,
            CounterTraits { kind: (*kind).to_owned(), contains, ..CounterTraits::default() },
        );
        for second in 0..=10u64 {
            attributor.read_now(device, second * 1000, second * (watts * 1e6) as u64 + 7);
        }
    }
    attributor
}

fn lines(attributor: &Attributor) -> Vec<String> {
    let checks = checks(attributor, true);
    let of_devices = attributor.devices.iter().zip(&checks);
    let line = |device: &Device, check: &Check| format!("{}: {}", device.info.name, check.text());
    of_devices.flat_map(|(device, checks)| checks.iter().map(move |check| line(device, check))).collect()
}

const GPU: &str = "rocm_smi:::energy_count:device=0";
const ACCELERATOR: &str = "cray_pm:::energy:accel0";
const CPU: &str = "cray_pm:::energy:cpu";

#[test]
fn a_node_is_compared_with_each_of_its_parts_once() {
    let contains = &[GPU, ACCELERATOR, CPU, "rapl:::energy:package-0"];
    let attributor = node(&[
        ("cray_pm:::energy:node", "node", 1000.0, contains),
        (GPU, "gpu", 400.0, &[]),
        (ACCELERATOR, "gpu", 420.0, &[GPU]),
        (CPU, "cpu", 200.0, &["rapl:::energy:package-0"]),
        ("rapl:::energy:package-0", "cpu", 190.0, &[]),
    ]);
    assert_eq!(
        lines(&attributor),
        [
            "node: of its 10000 J in 10.00 s, 6200 J are in cpu, accel0, 3800 J (38.0 %) in none of them",
            "GPU-0: accel0 (cray_pm) has 4200 J in 10.00 s, 5.0 % more than the 4000 J of its counter",
            "package-0: cpu (cray_pm) has 2000 J in 10.00 s, 5.3 % more than the 1900 J of its counter",
        ]
    );
    assert_eq!(notes(&attributor), Vec::<String>::new());
}

#[test]
fn parts_that_are_more_than_the_whole_are_a_note() {
    let attributor = node(&[
        ("cray_pm:::energy:node", "node", 500.0, &[GPU, CPU]),
        (GPU, "gpu", 400.0, &[]),
        (CPU, "cpu", 200.0, &[]),
    ]);
    assert_eq!(
        notes(&attributor),
        [
            "node on n has 5000 J, less than the 6000 J of its parts (cpu, GPU-0): one of these counters is wrong"
        ]
    );
}

#[test]
fn an_estimate_is_compared_with_nothing() {
    // The counter of a second die is always 0.
    const SECOND: &str = "rocm_smi:::energy_count:device=1";
    let attributor = node(&[("cray_pm:::energy:node", "node", 500.0, &[SECOND]), (GPU, "gpu", 300.0, &[])]);
    assert_eq!(lines(&attributor), Vec::<String>::new());
    let mut silent = node(&[(GPU, "gpu", 300.0, &[])]);
    for second in 0..=10u64 {
        silent.devices[0].read_power_sensor("average", second * 1000, Some(291.0), 1000);
    }
    assert_eq!(
        lines(&silent),
        [
            "GPU-0: its average power, integrated, has 2910 J in 10.00 s, 3.0 % less than the 3000 J of its counter"
        ]
    );
    silent.devices[0].info.quality = Quality::Integrated;
    assert_eq!(lines(&silent), Vec::<String>::new(), "it would be the same sensor");
}
