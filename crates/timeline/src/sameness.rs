//! Decides whether two counters are the same, by the first values that they showed.

use ampere_model::{MetricValue, Timestamp};

/// The maximum number of readings with a new value that are compared.
const READINGS_MAX: usize = 256;
/// This many equal values are not a coincidence: each is one of about a thousand possible values.
const EQUAL_MIN: usize = 3;
/// Values of a counter that moves with every reading are never equal. Instead, at least this many values must lie between two
/// values of the other counter.
const BETWEEN_MIN: usize = 200;
/// The counters are known to differ once this many values of one are impossible for the other.
const AGAINST_MIN: usize = 3;
/// If nothing but the values shows that two counters are one, at least this many equal values must end an increment that differs
/// from the previous one: two counters of constant power show the same, too.
const VARYING_MIN: usize = 16;
/// The reciprocal of the least difference between two such increments, as a fraction. Rounding can cause smaller differences.
const VARYING_RECIPROCAL: f64 = 64.0;

/// A function that compares the values of two counters. The last argument is `true` if no more readings come.
pub(crate) type Compare = fn(&FirstReadings, &FirstReadings, bool) -> Sameness;

/// The first values of a counter that differ from the previous one, in order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstReadings {
    /// The devices whose counters this one may repeat, in the order of their numbers.
    pub others: Vec<(usize, Compare)>,
    pub is_wanted: bool,
    pub values: Vec<(Timestamp, u64)>,
    /// Whether the values are the bit patterns of floating-point numbers.
    are_bits: bool,
}

impl FirstReadings {
    /// Processes a reading, if readings are to be compared.
    pub fn add(&mut self, time: Timestamp, reading: MetricValue) {
        if !self.is_wanted || self.values.len() >= READINGS_MAX {
            return;
        }
        // The bit patterns of positive floating-point numbers are in the order of the numbers.
        let value = match reading {
            MetricValue::U64(value) => Some(value),
            MetricValue::I64(value) => u64::try_from(value).ok(),
            MetricValue::F64(value) => Some(value.to_bits()).filter(|_| value >= 0.0),
        };
        let Some(value) = value else { return };
        self.are_bits = matches!(reading, MetricValue::F64(_));
        if self.values.last().is_none_or(|(_, last)| *last != value) {
            self.values.push((time, value));
        }
    }
}

/// Whether two counters are the same, by their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sameness {
    One,
    Two,
    Unknown,
}

/// Compares the values of two counters. Equal values, or values between two of the other counter's, show that they are the same
/// counter.
pub(crate) fn sameness(one: &[(Timestamp, u64)], other: &[(Timestamp, u64)], has_ended: bool) -> Sameness {
    let mut equal = 0;
    let mut between = 0;
    let mut against = 0;
    for (time, value) in other.iter().skip(1) {
        if is_near(one, *time, *value) {
            equal += 1;
            continue;
        }
        let next = one.partition_point(|(at, _)| at <= time);
        let around = next.checked_sub(1).and_then(|before| Some((one[before].1, one.get(next)?.1)));
        match around {
            Some((before, after)) if before <= *value && *value <= after => between += 1,
            // The counter has reached the end of its range.
            Some((before, after)) if after < before => {}
            Some(_) => against += 1,
            None => {}
        }
    }
    let (in_step, is_risen) = (equal + between, one.len() > 1 || other.len() > 1);
    let are_two =
        against >= AGAINST_MIN && 4 * against > in_step || has_ended && is_risen && against > in_step;
    if are_two {
        return Sameness::Two;
    }
    let is_enough = equal >= EQUAL_MIN || in_step >= BETWEEN_MIN || has_ended && in_step > 0;
    match is_enough && 8 * against <= in_step {
        true => Sameness::One,
        false => Sameness::Unknown,
    }
}

/// Whether a counter has this value at about this time.
fn is_near(of: &[(Timestamp, u64)], time: Timestamp, value: u64) -> bool {
    let next = of.partition_point(|(at, _)| *at <= time);
    of[next.saturating_sub(2)..(next + 2).min(of.len())].iter().any(|(_, near)| *near == value)
}

/// Compares the values of two counters if nothing else shows that they may be one. Two devices do not have the same values while
/// their power varies.
pub(crate) fn sameness_by_values_alone(
    one: &FirstReadings,
    other: &FirstReadings,
    has_ended: bool,
) -> Sameness {
    let mut equal = 0;
    let mut unequal = 0;
    let mut varying = 0;
    let mut rise = 0.0;
    for pair in other.values.windows(2) {
        let [(_, before), (time, value)] = [pair[0], pair[1]];
        let increment = match other.are_bits {
            true => f64::from_bits(value) - f64::from_bits(before),
            false => value.saturating_sub(before) as f64,
        };
        let last = std::mem::replace(&mut rise, increment);
        if !is_near(&one.values, time, value) {
            unequal += 1;
            continue;
        }
        equal += 1;
        let is_exact = other.are_bits || rise.min(last) >= VARYING_RECIPROCAL;
        varying += usize::from(is_exact && (rise - last).abs() * VARYING_RECIPROCAL > rise.max(last));
    }
    let (are_two, is_all) = (8 * unequal > equal, has_ended || other.values.len() >= READINGS_MAX);
    match () {
        () if are_two && unequal >= VARYING_MIN => Sameness::Two,
        () if !is_all => Sameness::Unknown,
        () if are_two || varying < VARYING_MIN => Sameness::Two,
        () => Sameness::One,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of a counter that rises by `ticks` per reading, read at these times.
    fn counter(start: u64, ticks: u64, times: impl Iterator<Item = u64>) -> Vec<(Timestamp, u64)> {
        times.map(|time| (time, start + time / 10 * ticks)).collect()
    }

    #[test]
    fn a_counter_that_is_read_twice_is_recognised_as_one() {
        let one = counter(7_000, 813, (0..400).step_by(10));
        // The same counter is read a moment later, at other times, and while it moves.
        assert_eq!(sameness(&one, &counter(7_000, 813, (2..400).step_by(10)), false), Sameness::One);
        assert_eq!(sameness(&one, &counter(7_000, 813, (5..400).step_by(30)), false), Sameness::One);
        let moving =
            |shift: u64| (0..250).map(|at| (at * 10 + shift, 50 + at * 813 + shift * 81)).collect::<Vec<_>>();
        assert_eq!(sameness(&moving(0), &moving(3), false), Sameness::One);
        // The values were written a moment later; one of the two ended early.
        let late: Vec<_> = one.iter().map(|(time, value)| (time + 11, *value)).collect();
        assert_eq!(sameness(&one, &late, false), Sameness::One);
        assert_eq!(sameness(&one[..2], &one[..2], false), Sameness::Unknown);
        assert_eq!(sameness(&one[..2], &one[..2], true), Sameness::One);
    }

    #[test]
    fn two_counters_that_start_in_the_same_way_are_two() {
        let one = counter(7_000, 813, (0..400).step_by(10));
        assert_eq!(sameness(&one, &counter(7_000, 502, (2..400).step_by(10)), false), Sameness::Two);
        assert_eq!(sameness(&one, &counter(9_999, 813, (2..400).step_by(10)), false), Sameness::Two);
        assert_eq!(sameness(&one, &counter(7_000, 806, (2..400).step_by(10)), true), Sameness::Two);
        let still = [(0, 5)];
        assert_eq!(sameness(&still, &still, true), Sameness::Unknown, "two that stand still");
    }

    fn readings(of: impl Iterator<Item = (Timestamp, MetricValue)>) -> FirstReadings {
        let mut readings = FirstReadings { is_wanted: true, ..FirstReadings::default() };
        of.for_each(|(time, value)| readings.add(time, value));
        readings
    }

    #[test]
    fn values_alone_show_one_counter_only_while_its_power_varies() {
        // A counter whose increments vary around 900, in a pattern that depends on `step`. If `step` is 0, they are constant.
        let of = |step: u64| {
            let value = |at: u64| 5_000 + at * 900 + at * at * step % 211;
            readings((0..200).map(|at| (at * 10, MetricValue::U64(value(at)))))
        };
        let (varying, constant) = (of(97), of(0));
        let late =
            readings((0..200).map(|at| (at * 10 + 3, MetricValue::U64(varying.values[at as usize].1))));
        let floats = readings((0..200).map(|at| (at, MetricValue::F64(at as f64 * 2.6))));
        assert_eq!(sameness_by_values_alone(&floats, &floats, true), Sameness::Two, "constant power");
        assert_eq!(sameness_by_values_alone(&varying, &late, true), Sameness::One);
        assert_eq!(
            sameness_by_values_alone(&varying, &late, false),
            Sameness::Unknown,
            "it may differ later"
        );
        assert_eq!(sameness_by_values_alone(&varying, &of(90), false), Sameness::Two);
        assert_eq!(sameness_by_values_alone(&constant, &constant, true), Sameness::Two);
        let few = readings((0..10).map(|at| (at, MetricValue::U64(varying.values[at as usize].1))));
        assert_eq!(sameness_by_values_alone(&few, &few, true), Sameness::Two, "too few");
        let offset =
            readings(varying.values.iter().map(|(time, value)| (*time, MetricValue::U64(value + 1))));
        assert_eq!(sameness_by_values_alone(&varying, &offset, true), Sameness::Two);
    }
}
