//! Tests with simulated counters: the estimate must find their parameters, and must not report what cannot be known.

use super::*;
use crate::calibrate::wave::Edge;
use proptest::prelude::*;

type Change<'a> = &'a dyn Fn(&mut Vec<(u64, u64)>);

const ORIGIN_NS: u64 = 5_000_000_000_000;

/// A simulated counter that lags, and the wave that it sees. Times are in seconds, powers in watts.
#[derive(Clone, Debug)]
struct MadeUp {
    /// The period of the wave.
    period: f64,
    /// The number of periods.
    periods: usize,
    /// The busy fraction of a period.
    duty: f64,
    /// The lag of the counter behind the load.
    delay: f64,
    /// The power in the idle part of a period.
    idle: f64,
    /// The power in the busy part of a period.
    busy: f64,
    /// The mean time between updates.
    update: f64,
    /// The largest deviation from `update`.
    jitter: f64,
    /// The standard deviation of the power's noise between two updates.
    noise: f64,
    /// The joules of one step of the counter.
    tick_joules: f64,
    /// The time between two readings.
    reading: f64,
    /// The fraction of movements that no reading shows.
    missed: f64,
}

impl Default for MadeUp {
    fn default() -> MadeUp {
        MadeUp {
            period: 1.0,
            periods: 20,
            duty: 0.5,
            delay: 0.12,
            idle: 90.0,
            busy: 400.0,
            update: 0.015,
            jitter: 0.0,
            noise: 0.0,
            tick_joules: 15.3e-6,
            reading: 0.001,
            missed: 0.0,
        }
    }
}

/// Random numbers from 0 to 1 that are the same in every run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns an approximately normally distributed number with mean 0 and standard deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

fn ns(seconds: f64) -> u64 {
    (ORIGIN_NS as f64 + seconds * 1e9).round() as u64
}

impl MadeUp {
    fn wave(&self) -> Wave {
        let edges = (0..self.periods).flat_map(|n| {
            let rise = n as f64 * self.period;
            let fall = rise + self.duty * self.period;
            [Edge { at_ns: ns(rise), rises: true }, Edge { at_ns: ns(fall), rises: false }]
        });
        Wave::new(&edges.collect::<Vec<_>>()).unwrap()
    }

    /// Returns the movements from a period before the wave to one after it.
    fn movements(&self, seed: u64) -> Vec<(u64, u64)> {
        let mut chance = Chance(seed);
        let wave = self.wave();
        let end = (self.periods + 1) as f64 * self.period;
        let mut cursor = wave.cursor();
        let mut at = -self.period + self.update * chance.next();
        let mut extra = 0.0;
        let mut busy = 0.0;
        let mut movements: Vec<(u64, u64)> = Vec::new();
        while at < end {
            busy = cursor.busy_until(at - self.delay).max(busy);
            let joules = 1000.0 + self.idle * (at + self.period) + (self.busy - self.idle) * busy + extra;
            let ticks = (joules / self.tick_joules).floor();
            let seen = (at / self.reading).ceil() * self.reading;
            let nanojoules = (ticks * self.tick_joules * 1e9) as u64;
            let moved = movements.last().is_none_or(|last| last.1 != nanojoules && last.0 < ns(seen));
            if moved && chance.next() >= self.missed {
                movements.push((ns(seen), nanojoules));
            }
            let step = self.update + self.jitter * (2.0 * chance.next() - 1.0);
            extra += self.noise * chance.normal() * step;
            at += step;
        }
        movements
    }

    fn estimate(&self) -> Estimate {
        estimate(&self.movements(1), &self.wave(), self.reading)
    }
}

/// Returns the response of a counter that must respond.
#[track_caller]
fn response(made_up: &MadeUp) -> Response {
    let outcome = made_up.estimate();
    assert_eq!(outcome.verdict, Verdict::Responds, "{made_up:?} {outcome:?}");
    outcome.response.unwrap()
}

#[track_caller]
fn close(what: &str, found: f64, expected: f64, within: f64) {
    assert!((found - expected).abs() <= within, "{what}: {found}, not {expected} ± {within}");
}

#[test]
fn delay_levels_and_update_period_are_found() {
    let found = response(&MadeUp::default());
    // A movement is seen at the next reading, on average half a reading period (half a millisecond) later.
    close("delay", found.delay, 0.1205, 0.0005);
    close("idle", found.idle, 90.0, 0.5);
    close("busy", found.busy, 400.0, 0.5);
    // A time of 15 ms is measured with a resolution of a millisecond, so the same energy may seem to take 15 or 16 ms.
    assert!(found.idle_noise.unwrap() < 4.0 && found.busy_noise.unwrap() < 16.0, "{found:?}");
    assert!((0.0005..0.002).contains(&found.delay_error), "{found:?}");
    let update = MadeUp { jitter: 0.002, ..MadeUp::default() }.estimate().update.unwrap();
    close("update", update.median, 0.015, 0.001);
    assert!(update.p10 < 0.0145 && update.p90 > 0.0155, "{update:?}");
}

#[test]
fn the_delay_of_every_kind_of_counter_is_found() {
    for (what, made_up, within) in [
        ("every reading", MadeUp { update: 0.001, ..MadeUp::default() }, 0.001),
        (
            "HPE Cray's counter, ten updates per second",
            MadeUp { update: 0.1, tick_joules: 1.0, ..MadeUp::default() },
            0.004,
        ),
        ("not punctual", MadeUp { update: 0.1, jitter: 0.03, ..MadeUp::default() }, 0.002),
        ("at the limit of the method", MadeUp { update: 0.24, jitter: 0.01, ..MadeUp::default() }, 0.01),
        ("no lag", MadeUp { delay: 0.0, ..MadeUp::default() }, 0.001),
        ("a small load on a large node", MadeUp { idle: 3000.0, busy: 3050.0, ..MadeUp::default() }, 0.002),
        ("a short wave", MadeUp { period: 0.2, delay: 0.03, periods: 50, ..MadeUp::default() }, 0.001),
        ("seldom busy", MadeUp { duty: 0.1, ..MadeUp::default() }, 0.001),
        ("mostly busy", MadeUp { duty: 0.9, ..MadeUp::default() }, 0.001),
        ("no power when idle", MadeUp { idle: 0.0, ..MadeUp::default() }, 0.001),
        ("few periods", MadeUp { periods: 4, ..MadeUp::default() }, 0.001),
        ("noise", MadeUp { noise: 40.0, ..MadeUp::default() }, 0.004),
        ("half the movements missed", MadeUp { missed: 0.5, ..MadeUp::default() }, 0.002),
        ("long", MadeUp { delay: 0.7, ..MadeUp::default() }, 0.002),
    ] {
        let outcome = made_up.estimate();
        let found = outcome.response.unwrap_or_else(|| panic!("{what}: {outcome:?}"));
        close(what, found.delay, made_up.delay, within);
        close(
            what,
            found.busy - found.idle,
            made_up.busy - made_up.idle,
            0.05 * (made_up.busy - made_up.idle),
        );
        assert!(found.delay_error < 0.02, "{what}: {found:?}");
    }
}

#[test]
fn the_noise_of_each_level_is_found() {
    let made_up = MadeUp { noise: 12.0, update: 0.02, reading: 1e-6, ..MadeUp::default() };
    let found = response(&made_up);
    close("idle noise", found.idle_noise.unwrap(), 12.0, 2.0);
    close("busy noise", found.busy_noise.unwrap(), 12.0, 2.0);
    assert!(found.delay_error < 0.004, "{found:?}");
}

#[test]
fn a_counter_that_averages_lags_by_half_of_its_window() {
    // The mean of 20 counters with delays between 0 and 200 ms is a counter that averages the last 200 ms.
    let one = MadeUp { update: 0.01, reading: 0.01, ..MadeUp::default() };
    let shifted: Vec<Vec<(u64, u64)>> =
        (0..20).map(|n| MadeUp { delay: 0.005 + 0.01 * n as f64, ..one.clone() }.movements(1)).collect();
    let count = shifted.iter().map(Vec::len).min().unwrap();
    let movements: Vec<(u64, u64)> = (0..count)
        .map(|at| (shifted[0][at].0, shifted.iter().map(|series| series[at].1 / 20).sum()))
        .collect();
    let found = estimate(&movements, &one.wave(), 0.01).response.unwrap();
    close("delay", found.delay, 0.1, 0.01);
    close("busy", found.busy, 400.0, 4.0);
}

#[test]
fn a_negative_delay_is_not_set() {
    let found = response(&MadeUp { delay: -0.04, ..MadeUp::default() });
    close("delay", found.delay, -0.04, 0.001);
    assert_eq!(found.delay_to_set(), 0.0);
    assert_eq!(response(&MadeUp::default()).delay_to_set(), response(&MadeUp::default()).delay);
}

#[test]
fn a_counter_that_does_not_see_the_load_has_no_delay() {
    for noise in [0.0, 1.0, 25.0] {
        for seed in 0..10 {
            let made_up = MadeUp { busy: 90.0, noise, ..MadeUp::default() };
            let outcome = estimate(&made_up.movements(seed), &made_up.wave(), made_up.reading);
            assert_eq!(outcome.verdict, Verdict::NoResponse, "noise {noise}, {seed}: {outcome:?}");
            assert_eq!(outcome.response, None);
            close("mean", outcome.mean_watts.unwrap(), 90.0, 5.0);
        }
    }
    // Another load with a period of 0.77 s, which is unrelated to the wave, is not a response either.
    let made_up = MadeUp::default();
    let other = MadeUp { period: 0.77, periods: 26, ..MadeUp::default() };
    let outcome = estimate(&other.movements(1), &made_up.wave(), 0.001);
    assert_eq!(outcome.verdict, Verdict::NoResponse, "{outcome:?}");
    // A power that falls while the load is busy is not a response.
    let inverse = MadeUp { idle: 400.0, busy: 90.0, delay: 0.1, duty: 0.3, ..MadeUp::default() };
    let found = inverse.estimate();
    assert!(found.response.is_none_or(|r| r.busy > r.idle), "{found:?}");
}

#[test]
fn a_wave_that_is_too_short_for_the_counter_is_aliased() {
    for update in [0.3, 0.5, 1.0, 1.3] {
        let outcome = MadeUp { update, jitter: 0.01, ..MadeUp::default() }.estimate();
        assert_eq!(outcome.verdict, Verdict::Aliased, "{update}: {outcome:?}");
        assert_eq!(outcome.response, None);
        close("update", outcome.update.unwrap().median, update, 0.02);
    }
}

#[test]
fn a_counter_that_does_not_move_is_reported() {
    let made_up = MadeUp::default();
    for movements in [vec![], vec![(ORIGIN_NS, 5)], vec![(ORIGIN_NS, 5), (ns(3.0), 6), (ns(3.01), 7)]] {
        assert_eq!(estimate(&movements, &made_up.wave(), 0.001).verdict, Verdict::Still, "{movements:?}");
    }
    // The counter was read only before and after the wave.
    let far: Vec<(u64, u64)> =
        made_up.movements(1).iter().map(|(at, value)| (at + 60_000_000_000, *value)).collect();
    assert_eq!(estimate(&far, &made_up.wave(), 0.001).verdict, Verdict::Still);
}

#[test]
fn resets_wraps_jumps_and_freezes_change_nothing() {
    let made_up = MadeUp::default();
    let sound = response(&made_up).delay;
    let movements = made_up.movements(1);
    let at = |seconds: f64| movements.partition_point(|(time, _)| *time < ns(seconds));
    let changed = |change: Change| {
        let mut movements = movements.clone();
        change(&mut movements);
        estimate(&movements, &made_up.wave(), 0.001)
    };
    let reset = changed(&|m| m[at(5.3)..].iter_mut().for_each(|one| one.1 -= 800_000_000_000));
    let jump = changed(&|m| m[at(5.3)..].iter_mut().for_each(|one| one.1 += 1_000_000_000_000_000_000));
    let wrap = changed(&|m| m.iter_mut().for_each(|one| one.1 = one.1.wrapping_sub(3_000_000_000_000)));
    for (what, outcome, resets) in [("reset", reset, 1), ("jump", jump, 1), ("wrap", wrap, 0)] {
        assert_eq!((outcome.verdict, outcome.resets), (Verdict::Responds, resets), "{what}: {outcome:?}");
        close(what, outcome.response.unwrap().delay, sound, 0.0005);
    }
    // After a short freeze, one step of the counter shows all the energy; a long freeze leaves no usable interval.
    let short = changed(&|m| drop(m.drain(at(5.3)..at(5.6))));
    let long = changed(&|m| drop(m.drain(at(5.3)..at(9.6))));
    for (what, outcome, gaps) in [("short freeze", short, 0), ("long freeze", long, 1)] {
        assert_eq!((outcome.verdict, outcome.gaps), (Verdict::Responds, gaps), "{what}: {outcome:?}");
        close(what, outcome.response.unwrap().delay, sound, 0.002);
    }
}

#[test]
fn levels_of_few_steady_intervals_are_those_of_the_fit() {
    let found = response(&MadeUp { update: 0.14, duty: 0.15, noise: 10.0, ..MadeUp::default() });
    assert_eq!(found.busy_noise, None, "an interval lies within the 150 ms only by chance: {found:?}");
    close("busy", found.busy, 400.0, 25.0);
}

#[test]
fn the_error_is_as_large_as_reported() {
    let made_up = MadeUp { noise: 60.0, update: 0.03, reading: 1e-4, ..MadeUp::default() };
    let wave = made_up.wave();
    let deviations: Vec<f64> = (0..100)
        .map(|seed| {
            let found = estimate(&made_up.movements(seed), &wave, made_up.reading).response.unwrap();
            (found.delay - made_up.delay).abs() / found.delay_error
        })
        .collect();
    let within = |errors: f64| deviations.iter().filter(|deviation| **deviation <= errors).count();
    // For normally distributed errors, 68 and 95 of a hundred are expected.
    assert!((50..=85).contains(&within(1.0)), "{} within one standard error", within(1.0));
    assert!(within(2.0) >= 85 && within(5.0) == 100, "{} within two", within(2.0));
}

#[test]
fn the_watts_by_phase_show_the_delay() {
    let outcome = MadeUp { delay: 0.25, update: 0.005, ..MadeUp::default() }.estimate();
    let watts = &outcome.phase_watts;
    assert_eq!(watts.len(), CELLS);
    let cell = |phase: f64| watts[(phase * CELLS as f64) as usize];
    for (phase, expected) in [(0.1, 90.0), (0.2, 90.0), (0.3, 400.0), (0.7, 400.0), (0.8, 90.0)] {
        close("watts", cell(phase), expected, 5.0);
    }
}

/// The number of cases; PROPTEST_CASES raises it.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(48)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// The delay of any counter must be found within 3 ms plus the uncertainty of a single edge. Noise moves as much energy
    /// across an edge as moving the edge by update x noise / amplitude would.
    #[test]
    fn any_delay_is_found(
        delay in 0.0..0.4f64,
        update in 0.005..0.1f64,
        jitter in 0.0..0.2f64,
        noise in 0.0..30.0f64,
        amplitude in 100.0..500.0f64,
        duty in 0.3..0.7f64,
        period in 0.5..2.0f64,
        missed in 0.0..0.3f64,
        seed in 0..1000u64,
    ) {
        let made_up = MadeUp {
            delay: delay * period,
            update: update * period,
            jitter: jitter * update * period,
            noise,
            busy: 90.0 + amplitude,
            duty,
            period,
            periods: 12,
            missed,
            ..MadeUp::default()
        };
        let outcome = estimate(&made_up.movements(seed), &made_up.wave(), made_up.reading);
        if outcome.verdict == Verdict::NoResponse {
            // With only a dozen movements in a period, or with much noise, the wave may not be found.
            prop_assert!(noise > 0.15 * amplitude || update > 0.08, "this wave must be found");
            return Ok(());
        }
        prop_assert_eq!(outcome.verdict, Verdict::Responds);
        let found = outcome.response.unwrap();
        let error = (found.delay - made_up.delay).abs();
        let one_edge = made_up.update * noise / amplitude;
        prop_assert!(error <= 0.003 + one_edge, "{} {:?}", error, found);
        let watts = (found.busy - found.idle - amplitude).abs();
        prop_assert!(watts <= 0.05 * amplitude + noise, "{} W off, {:?}", watts, found);
    }

    /// Readings of any kind must end in a verdict, and not in a panic or NaN.
    #[test]
    fn any_readings_end_in_a_verdict(movements in proptest::collection::vec((0..30_000u64, any::<u64>()), 0..200)) {
        let movements: Vec<(u64, u64)> =
            movements.into_iter().map(|(ms, value)| (ORIGIN_NS + ms * 1_000_000, value)).collect();
        let outcome = estimate(&movements, &MadeUp::default().wave(), 0.001);
        if let Some(found) = outcome.response {
            prop_assert!(found.delay.is_finite() && found.delay_error.is_finite() && found.busy.is_finite());
        }
    }
}
