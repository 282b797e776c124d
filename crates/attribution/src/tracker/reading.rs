//! Raw readings of a cumulative counter, and the decisions about them.

use ampere_model::Timestamp;
use std::collections::VecDeque;

/// A raw value. Integers are kept as integers, because an `f64` is exact only up to 2^53.
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

    /// Returns the increase from this value to a later one, in units of the counter.
    pub fn units_to(self, later: Value) -> f64 {
        match (self, later) {
            (Value::Integer(a), Value::Integer(b)) => (b - a) as f64,
            (a, b) => b.as_f64() - a.as_f64(),
        }
    }

    /// Whether the value is 0, or has all bits of a counter set: a device that does not answer returns such a value.
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
    /// The sum of the passed ranges in `value`.
    pub passed: i128,
    pub tag: u64,
}

impl Reading {
    pub fn new(time: Timestamp, value: Value, tag: u64) -> Reading {
        Reading { time, value, passed: 0, tag }
    }
}

/// A decision about a reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Decision {
    /// The counting starts, or starts again, with this reading. `is_reset`: energy had been counted on the track before.
    Start { reading: Reading, is_reset: bool },
    /// The counter has risen by `units`.
    Rise { reading: Reading, units: f64, interval: u64 },
    /// No reading until this time could be true.
    Unknown { time: Timestamp },
}

/// Observations of the counter, in addition to its values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    pub misreadings: u64,
    /// Readings of a counter that had not risen yet, which are represented by one sample.
    pub unchanged: u64,
    pub wraps: u64,
    /// Pairs of tags: the readings between the two were emitted and then found to be wrong.
    pub taken_back: Vec<(u64, u64)>,
    /// Whether later readings showed that an emitted sample was wrong.
    pub is_revised: bool,
    /// The time for which the main track has not changed, as of its latest reading.
    pub unchanged_ticks: u64,
}

/// The emitted readings of the main track.
#[derive(Clone, Debug)]
pub(super) struct Emitted {
    /// The recent readings, oldest first.
    pub history: VecDeque<Reading>,
    pub highest: Value,
    /// The time of the last sample.
    pub until: Timestamp,
}

impl Default for Emitted {
    fn default() -> Emitted {
        Emitted { history: VecDeque::new(), highest: Value::Integer(0), until: 0 }
    }
}
