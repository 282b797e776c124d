//! Decides whether two counters are the same one, by the first values that they showed.

use ampere_model::{MetricValue, Timestamp};

/// The maximum number of readings with a new value that are compared.
const READINGS_MAX: usize = 256;
/// This many equal values are not a coincidence: each is one of about a thousand possible ones.
const EQUAL_MIN: usize = 3;
/// Values of a counter that moves with every reading are never equal. Instead, at least this many must lie between two of the
/// other counter's.
const BETWEEN_MIN: usize = 200;
/// The counters are known to differ once this many values of one are impossible for the other.
const AGAINST_MIN: usize = 3;

/// The first values of a counter that differ from the previous one, in order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstReadings {
    /// Devices that became known earlier and may have the same counter.
    pub others: Vec<usize>,
    pub is_wanted: bool,
    pub values: Vec<(Timestamp, u64)>,
}

impl FirstReadings {
    /// Takes a reading, if readings are to be compared.
    pub fn add(&mut self, time: Timestamp, value: MetricValue) {
        if !self.is_wanted || self.values.len() >= READINGS_MAX {
            return;
        }
        // The bit patterns of positive floating-point numbers are in the order of the numbers.
        let value = match value {
            MetricValue::U64(value) => Some(value),
            MetricValue::I64(value) => u64::try_from(value).ok(),
            MetricValue::F64(value) => Some(value.to_bits()).filter(|_| value >= 0.0),
        };
        let Some(value) = value else { return };
        if self.values.last().is_none_or(|(_, last)| *last != value) {
            self.values.push((time, value));
        }
    }
}

/// Whether two counters are the same one, by their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sameness {
    One,
    Two,
    Unknown,
}

/// Compares the values of two counters. Equal values, or values between two of the other counter's, show that they are the same
/// one.
pub(crate) fn sameness(one: &[(Timestamp, u64)], other: &[(Timestamp, u64)], has_ended: bool) -> Sameness {
    let (mut equal, mut between, mut against) = (0, 0, 0);
    for (time, value) in other.iter().skip(1) {
        let next = one.partition_point(|(at, _)| at <= time);
        let near = &one[next.saturating_sub(2)..(next + 2).min(one.len())];
        if near.iter().any(|(_, near)| near == value) {
            equal += 1;
            continue;
        }
        let around = next.checked_sub(1).and_then(|before| Some((one[before].1, one.get(next)?.1)));
        match around {
            Some((before, after)) if before <= *value && *value <= after => between += 1,
            // This is the end of a counter's range.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of a counter that rises by `ticks` per reading, read at these times.
    fn counter(start: u64, ticks: u64, times: impl Iterator<Item = u64>) -> Vec<(Timestamp, u64)> {
        times.map(|time| (time, start + time / 10 * ticks)).collect()
    }

    #[test]
    fn one_counter_that_is_read_twice_is_one() {
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
}
