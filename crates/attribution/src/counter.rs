//! A counter's raw readings as joules between two samples.

use ampere_model::Timestamp;

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CounterKind {
    /// Energy since some start: joules = difference x `joules_per_unit`.
    Cumulative { joules_per_unit: f64 },
    /// Power: joules = earlier value x `watts_per_unit` x seconds.
    Instantaneous { watts_per_unit: f64, ticks_per_second: f64 },
}

/// What happened between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Increase {
    /// The first sample: nothing before it is known.
    First,
    Joules(f64),
    /// Known joules, spent in a gap of the sampling: nobody can be charged with them.
    Lost(f64),
    /// The counter went back (a reset): what was spent since the last sample cannot be known.
    Reset,
    /// No sample: not a number, or older than the one before. It is to be left out.
    Unusable,
}

/// The last reading of one counter. Integers are kept as such: 2^53 is not enough for raw ticks.
#[derive(Clone, Debug)]
pub struct Counter {
    kind: CounterKind,
    last: Option<(Timestamp, Value)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Integer(u64),
    Float(f64),
}

impl Counter {
    pub fn new(kind: CounterKind) -> Counter {
        Counter { kind, last: None }
    }

    pub fn read_u64(&mut self, time: Timestamp, value: u64) -> Increase {
        self.read(time, Value::Integer(value))
    }

    pub fn read_i64(&mut self, time: Timestamp, value: i64) -> Increase {
        match u64::try_from(value) {
            Ok(value) => self.read(time, Value::Integer(value)),
            Err(_) => self.read(time, Value::Float(value as f64)),
        }
    }

    pub fn read_f64(&mut self, time: Timestamp, value: f64) -> Increase {
        if value.is_finite() { self.read(time, Value::Float(value)) } else { Increase::Unusable }
    }

    fn read(&mut self, time: Timestamp, value: Value) -> Increase {
        let Some((then, before)) = self.last else {
            self.last = Some((time, value));
            return Increase::First;
        };
        if time < then {
            return Increase::Unusable;
        }
        self.last = Some((time, value));
        match self.kind {
            CounterKind::Cumulative { joules_per_unit } => match (before, value) {
                (Value::Integer(a), Value::Integer(b)) if b >= a => {
                    Increase::Joules((b - a) as f64 * joules_per_unit)
                }
                (Value::Integer(_), Value::Integer(_)) => Increase::Reset,
                _ => {
                    let difference = as_f64(value) - as_f64(before);
                    if difference >= 0.0 {
                        Increase::Joules(difference * joules_per_unit)
                    } else {
                        Increase::Reset
                    }
                }
            },
            CounterKind::Instantaneous { watts_per_unit, ticks_per_second } => {
                Increase::Joules(as_f64(before) * watts_per_unit * (time - then) as f64 / ticks_per_second)
            }
        }
    }
}

fn as_f64(value: Value) -> f64 {
    match value {
        Value::Integer(integer) => integer as f64,
        Value::Float(float) => float,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_counters_keep_their_last_digit() {
        let mut counter = Counter::new(CounterKind::Cumulative { joules_per_unit: 1e-9 });
        assert_eq!(counter.read_u64(1, u64::MAX - 3), Increase::First);
        assert_eq!(counter.read_u64(2, u64::MAX - 1), Increase::Joules(2e-9));
    }

    #[test]
    fn a_counter_that_goes_back_is_a_reset_and_never_a_wrap() {
        let mut counter = Counter::new(CounterKind::Cumulative { joules_per_unit: 1.0 });
        counter.read_u64(1, 1000);
        assert_eq!(counter.read_u64(2, 10), Increase::Reset);
        assert_eq!(counter.read_u64(3, 15), Increase::Joules(5.0));
        assert_eq!(counter.read_i64(4, -15), Increase::Reset);
    }

    #[test]
    fn power_is_held_until_the_next_sample() {
        let kind = CounterKind::Instantaneous { watts_per_unit: 1e-6, ticks_per_second: 1e3 };
        let mut counter = Counter::new(kind);
        assert_eq!(counter.read_f64(0, 2e6), Increase::First);
        assert_eq!(counter.read_f64(500, 8e6), Increase::Joules(1.0));
        assert_eq!(counter.read_f64(1500, 0.0), Increase::Joules(8.0));
    }

    #[test]
    fn what_is_no_sample_is_left_out() {
        let mut counter = Counter::new(CounterKind::Cumulative { joules_per_unit: 1.0 });
        assert_eq!(counter.read_f64(1, f64::NAN), Increase::Unusable);
        assert_eq!(counter.read_u64(5, 10), Increase::First);
        assert_eq!(counter.read_u64(4, 20), Increase::Unusable);
        assert_eq!(counter.read_u64(6, 12), Increase::Joules(2.0));
    }
}
