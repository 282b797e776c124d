//! A device's power over the whole run as a limited number of steps: when there are too many, pairs of steps are merged. Joules
//! between two samples are spread evenly, so that the steps add up to what was counted.

use ampere_attribution::Increase;
use ampere_model::Timestamp;
use serde::{Deserialize, Serialize};

const STEPS_MAX: usize = 512;
/// The resolution at the start of a run.
const STEPS_PER_SECOND: u64 = 100;

/// A power curve in the form that summaries have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PowerCurve {
    pub step_seconds: f64,
    /// The mean power of each step, from the first sample to the last.
    pub watts: Vec<f64>,
}

/// A device's energy over the run.
#[derive(Clone, Debug)]
pub struct Curve {
    ticks_per_second: u64,
    /// The length of a step in ticks.
    step: u64,
    begin: Timestamp,
    last: Option<Timestamp>,
    joules: Vec<f64>,
    /// For each step, whether the joules of a part of it are unknown.
    unknown: Vec<bool>,
    samples: u64,
    longest_interval: u64,
}

impl Curve {
    /// Makes a curve that has no samples yet.
    pub fn new(ticks_per_second: u64) -> Curve {
        let step = (ticks_per_second / STEPS_PER_SECOND).max(1);
        Curve {
            ticks_per_second: ticks_per_second.max(1),
            step,
            begin: 0,
            last: None,
            joules: Vec::new(),
            unknown: Vec::new(),
            samples: 0,
            longest_interval: 0,
        }
    }

    /// Adds the joules since the previous sample.
    pub fn add_sample(&mut self, time: Timestamp, increase: Increase) {
        let joules = match increase {
            Increase::First | Increase::Reset => 0.0,
            Increase::Joules(joules) | Increase::Lost(joules) => joules,
        };
        match self.last {
            None => self.begin = time,
            Some(last) => {
                let (from, to) = (last - self.begin, time.max(last) - self.begin);
                let is_unknown = matches!(increase, Increase::First | Increase::Reset);
                self.add(from, to, joules, is_unknown);
                self.longest_interval = self.longest_interval.max(to - from);
            }
        }
        self.samples += 1;
        self.last = self.last.max(Some(time));
    }

    /// Spreads joules over the steps between two times, which count from the first sample.
    fn add(&mut self, from: u64, to: u64, joules: f64, is_unknown: bool) {
        while to > self.step.saturating_mul(STEPS_MAX as u64) {
            self.step = self.step.saturating_mul(2);
            self.joules = self.joules.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.unknown = self.unknown.chunks(2).map(|pair| pair.contains(&true)).collect();
        }
        // If both times are the same, the joules go to the step that ends there.
        let from = if from == to { from.saturating_sub(1) } else { from };
        let (first, end) = (from / self.step, to.div_ceil(self.step).max(from / self.step + 1));
        self.joules.resize(self.joules.len().max((end as usize).min(STEPS_MAX)), 0.0);
        self.unknown.resize(self.joules.len(), false);
        let whole = to - from;
        for at in first..end {
            let (left, right) = (at.saturating_mul(self.step), (at + 1).saturating_mul(self.step));
            let part = match whole {
                0 => 1.0,
                whole => right.min(to).saturating_sub(left.max(from)) as f64 / whole as f64,
            };
            let at = (at as usize).min(self.joules.len() - 1);
            self.joules[at] += joules * part;
            self.unknown[at] |= is_unknown;
        }
    }

    /// Returns the length of a time in seconds.
    pub fn seconds(&self, ticks: u64) -> f64 {
        ticks as f64 / self.ticks_per_second as f64
    }

    /// Returns the times of the first and the last sample.
    pub fn span(&self) -> Option<(Timestamp, Timestamp)> {
        Some((self.begin, self.last?))
    }

    /// Returns the mean time between samples in ticks, but at least a step, because nothing is known within a step.
    pub fn interval(&self) -> Option<u64> {
        let (begin, last) = self.span()?;
        let intervals = self.samples.checked_sub(1).filter(|count| *count > 0)?;
        Some(((last - begin) / intervals).max(self.step))
    }

    /// Returns the longest time between samples, in ticks.
    pub fn longest_interval(&self) -> u64 {
        self.longest_interval
    }

    /// Returns the joules between two times; `None` if a part of them is unknown.
    pub fn between(&self, from: Timestamp, to: Timestamp) -> Option<f64> {
        let (begin, last) = self.span()?;
        if from < begin || to > last || from >= to {
            return None;
        }
        let (from, to) = (from - begin, to - begin);
        let mut sum = 0.0;
        for at in from / self.step..to.div_ceil(self.step) {
            let (joules, is_unknown) = (*self.joules.get(at as usize)?, self.unknown[at as usize]);
            if is_unknown {
                return None;
            }
            let left = at.saturating_mul(self.step);
            let right = left.saturating_add(self.step).min(last - begin);
            sum += joules * (right.min(to) - left.max(from)) as f64 / (right - left) as f64;
        }
        Some(sum)
    }

    /// Returns the power of each step; `None` without two samples.
    pub fn power(&self) -> Option<PowerCurve> {
        let covered = self.last? - self.begin;
        let per_second = self.ticks_per_second as f64;
        let watts = self.joules.iter().enumerate().map(|(at, joules)| {
            let left = covered.saturating_sub((at as u64).saturating_mul(self.step)).min(self.step);
            let watts = if left == 0 { 0.0 } else { joules * per_second / left as f64 };
            (watts * 1000.0).round() / 1000.0
        });
        let curve = PowerCurve { step_seconds: self.step as f64 / per_second, watts: watts.collect() };
        (covered > 0).then_some(curve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn power_is_where_it_was_spent() {
        let mut curve = Curve::new(1000);
        curve.add_sample(5000, Increase::First);
        curve.add_sample(5010, Increase::Joules(1.0)); // 100 W
        curve.add_sample(5030, Increase::Joules(4.0)); // 200 W
        curve.add_sample(5035, Increase::Joules(0.5)); // 100 W, half a step
        assert_eq!(
            curve.power(),
            Some(PowerCurve { step_seconds: 0.01, watts: vec![100.0, 200.0, 200.0, 100.0] })
        );
        assert_eq!(Curve::new(1000).power(), None);
    }

    #[test]
    fn energy_between_two_times_is_that_of_the_samples() {
        let mut curve = Curve::new(1000);
        curve.add_sample(5000, Increase::First);
        curve.add_sample(6000, Increase::Joules(100.0));
        curve.add_sample(6500, Increase::Joules(100.0));
        for (from, to, expected) in [
            (5000, 6500, Some(200.0)),
            (5000, 5500, Some(50.0)),
            (5995, 6005, Some(1.5)),
            (6499, 6500, Some(0.2)),
            (4999, 6000, None),
            (6000, 6501, None),
            (6000, 6000, None),
        ] {
            let joules = curve.between(from, to);
            assert!(joules.is_some() == expected.is_some(), "{from} to {to}: {joules:?}");
            let difference = joules.unwrap_or(0.0) - expected.unwrap_or(0.0);
            assert!(difference.abs() < 1e-9, "{from} to {to}: {joules:?}");
        }
        curve.add_sample(7000, Increase::Reset);
        curve.add_sample(8000, Increase::Joules(100.0));
        assert_eq!(curve.between(6000, 8000), None, "the joules before the reset are unknown");
        assert!(curve.between(7000, 8000).is_some_and(|joules| (joules - 100.0).abs() < 1e-9));
        assert_eq!((curve.interval(), curve.longest_interval()), (Some(750), 1000));
    }

    #[test]
    fn any_times_give_finite_figures() {
        let mut curve = Curve::new(0);
        for time in [0, 1, u64::MAX / 2, u64::MAX, u64::MAX, 7] {
            curve.add_sample(time, Increase::Joules(1.0));
        }
        for (from, to) in [(0, u64::MAX), (1, 7), (u64::MAX - 1, u64::MAX)] {
            assert!(curve.between(from, to).is_some_and(f64::is_finite));
        }
        let shown = curve.power().unwrap();
        assert!(shown.watts.len() <= STEPS_MAX && shown.watts.iter().all(|watts| watts.is_finite()));
    }

    proptest! {
        #[test]
        fn steps_add_up(steps in prop::collection::vec((0u64..100_000, 0.0f64..1000.0), 1..200)) {
            let mut curve = Curve::new(1000);
            let (mut time, mut sum) = (17, 0.0);
            curve.add_sample(time, Increase::First);
            for (ticks, joules) in steps {
                time += ticks;
                sum += joules;
                curve.add_sample(time, Increase::Joules(joules));
            }
            prop_assert!((curve.joules.iter().sum::<f64>() - sum).abs() <= 1e-9 * sum.max(1.0));
            prop_assert!(curve.joules.len() <= STEPS_MAX);
        }
    }
}
