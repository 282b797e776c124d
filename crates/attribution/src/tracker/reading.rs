//! A raw reading of a cumulative counter.

use ampere_model::Timestamp;

/// A raw value. Integers are kept as integers: 2^53 is not enough for raw ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Integer(i128),
    Float(f64),
}

impl Value {
    pub fn as_f64(self) -> f64 {
        match self {
            Value::Integer(integer) => integer as f64,
            Value::Float(float) => float,
        }
    }

    /// Units from this value to a later one.
    pub fn units_to(self, later: Value) -> f64 {
        match (self, later) {
            (Value::Integer(a), Value::Integer(b)) => (b - a) as f64,
            (a, b) => b.as_f64() - a.as_f64(),
        }
    }

    /// Whether the value is 0, or has all bits of a counter set: this is what a device that does not answer reads as.
    pub fn is_suspicious(self, range: i128) -> bool {
        match self {
            Value::Integer(value) => {
                value == 0 || value == range - 1 || [32, 63, 64].iter().any(|bits| value == (1 << bits) - 1)
            }
            Value::Float(value) => value == 0.0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reading {
    pub time: Timestamp,
    /// The raw value plus the ranges that the counter has passed on the reading's track.
    pub value: Value,
    /// The part of `value` that is passed ranges.
    pub passed: i128,
    pub tag: u64,
}

impl Reading {
    pub fn new(time: Timestamp, value: Value, tag: u64) -> Reading {
        Reading { time, value, passed: 0, tag }
    }
}
