//! Turns a counter's raw readings into joules between two samples, and counts irregularities.
//!
//! Counters cannot be trusted. A reading can come out of order, be something other than a number, a driver's error code, or any
//! other misreading. A counter can be reset, wrap, stop for a while, start late, or not be read for seconds. The `tracker`
//! decides which readings can be true. An undecided reading waits until the next one confirms it, and then becomes a sample.

use crate::intervals::Intervals;
use crate::tracker::{Decision, PlausibilityLimits, Reading, ReadingTracker, Value};
use ampere_model::Timestamp;
use std::collections::VecDeque;

/// What the values of a counter mean.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum CounterKind {
    /// Energy since some start: joules = difference x `joules_per_unit`.
    Cumulative {
        joules_per_unit: f64,
        /// The value at which the counter wraps to 0 (RAPL: 2^32). `None` means 2^64, as for 64-bit nanojoules.
        wraps_at: Option<u64>,
    },
    /// Power: joules = value x `watts_per_unit` x seconds. The value holds until the next sample or, if `is_of_time_before`,
    /// since the previous one.
    Instantaneous { watts_per_unit: f64, is_of_time_before: bool },
}

impl CounterKind {
    fn units_per_second(self, watts: f64) -> f64 {
        match self {
            CounterKind::Cumulative { joules_per_unit, .. } => watts * joules_per_unit.recip(),
            CounterKind::Instantaneous { .. } => 0.0,
        }
    }
}

/// What is known about the time between the previous sample and this one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Increase {
    /// Nothing is known: the counting starts with this sample, or starts again after readings that could not be true.
    First,
    /// Joules that can be attributed.
    Joules(f64),
    /// Known joules that were spent in a gap of the sampling and cannot be attributed.
    Lost(f64),
    /// Nothing is known, because the counter was reset.
    Reset,
}

/// A reading that is believed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Sample {
    pub time: Timestamp,
    pub increase: Increase,
    /// The tag that the caller gave the reading.
    pub tag: u64,
}

/// Limits on what is possible for a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Limits {
    pub ticks_per_second: f64,
    /// The device cannot draw more power than this.
    pub watts_max: f64,
    /// An interval is a gap if it is longer than a second and longer than this multiple of the usual interval (the median of
    /// those before). `None`: no interval is a gap.
    pub gap: Option<f64>,
    /// A counter that has not changed for this time is stale.
    pub stale_seconds: f64,
}

impl Limits {
    /// Limits that accept every rise; a counter is stale after 10 seconds.
    pub fn none(ticks_per_second: f64) -> Limits {
        Limits { ticks_per_second, watts_max: f64::INFINITY, gap: None, stale_seconds: 10.0 }
    }
}

/// The observations of a counter so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct CounterFigures {
    /// The times of the first and the last sample.
    pub first: Option<Timestamp>,
    pub last: Option<Timestamp>,
    /// The number of readings that are believed.
    pub samples: u64,
    pub wraps: u64,
    /// Readings that were not numbers, came out of order, or could not be true.
    pub misreadings: u64,
    /// The misreadings that came out of order.
    pub unordered: u64,
    /// The number of intervals whose joules are lost.
    pub gaps: u64,
    /// The longest time between two samples.
    pub longest_interval_ticks: u64,
    /// The longest time without a change of the value.
    pub longest_still_ticks: u64,
    /// The time without a change of the value, as of the last reading.
    pub still_ticks: u64,
    /// Whether the counter has not changed for long, as of the last reading. If it is cumulative, it is frozen or nothing was
    /// spent.
    pub stale: bool,
}

/// Turns readings into samples, in order of time.
#[derive(Clone, Debug)]
pub struct Counter {
    kind: CounterKind,
    limits: Limits,
    /// The readings of a cumulative counter.
    tracker: ReadingTracker,
    /// The last reading of a power.
    power: Option<Power>,
    /// The time of the latest reading.
    latest: Option<Timestamp>,
    /// Pairs of tags: each reading whose tag lies between the two is known to be wrong.
    excluded: Vec<(u64, u64)>,
    samples: VecDeque<Sample>,
    intervals: Intervals,
    figures: CounterFigures,
}

#[derive(Clone, Copy, Debug)]
struct Power {
    time: Timestamp,
    value: f64,
    changed: Timestamp,
}

/// The usual length is unknown until there are this many intervals.
const INTERVALS_MIN: usize = 5;

impl Counter {
    /// Makes a counter that has not been read.
    pub fn new(kind: CounterKind, limits: Limits) -> Counter {
        let range = match kind {
            CounterKind::Cumulative { wraps_at, .. } => wraps_at.map_or(1 << 64, i128::from),
            CounterKind::Instantaneous { .. } => 0,
        };
        let units_per_second = kind.units_per_second(limits.watts_max);
        let plausible =
            PlausibilityLimits { ticks_per_second: limits.ticks_per_second, units_per_second, range };
        Counter {
            kind,
            limits,
            tracker: ReadingTracker::new(plausible),
            power: None,
            latest: None,
            excluded: Vec::new(),
            samples: VecDeque::new(),
            intervals: Intervals::default(),
            figures: CounterFigures::default(),
        }
    }

    /// Sets the value at which the counter wraps. This must be called before anything is read.
    pub fn set_wraps_at(&mut self, wraps_at: u64) {
        self.tracker.set_range(wraps_at.into());
    }

    /// Sets the highest power that the device can draw. This must be called before anything is read.
    pub fn set_watts_max(&mut self, watts_max: f64) {
        self.limits.watts_max = watts_max;
        self.tracker.set_units_per_second(self.kind.units_per_second(watts_max));
    }

    /// Excludes readings that an earlier pass over the same readings found to be wrong: see [`Counter::taken_back`].
    pub fn exclude(&mut self, excluded: Vec<(u64, u64)>) {
        self.excluded = excluded;
    }

    /// Returns the observations so far.
    pub fn figures(&self) -> CounterFigures {
        CounterFigures {
            misreadings: self.figures.misreadings + self.tracker.findings.misreadings,
            samples: self.figures.samples + self.tracker.findings.unchanged,
            wraps: self.tracker.findings.wraps,
            ..self.figures
        }
    }

    /// Processes a reading. Its sample carries `tag`.
    pub fn read_u64(&mut self, time: Timestamp, value: u64, tag: u64) {
        self.read(time, Value::Integer(value.into()), tag);
    }

    /// Processes a reading of a signed counter.
    pub fn read_i64(&mut self, time: Timestamp, value: i64, tag: u64) {
        self.read(time, Value::Integer(value.into()), tag);
    }

    /// Processes a reading of a counter whose values are fractions.
    pub fn read_f64(&mut self, time: Timestamp, value: f64, tag: u64) {
        if value.is_finite() {
            self.read(time, Value::Float(value), tag);
        } else {
            self.figures.misreadings += 1;
        }
    }

    /// Returns the next sample that is decided, once.
    pub fn sample(&mut self) -> Option<Sample> {
        self.samples.pop_front()
    }

    /// Returns the earliest time that a future sample can have; `None` if there will be none before the next reading.
    pub fn undecided_since(&self) -> Option<Timestamp> {
        self.tracker.undecided_since()
    }

    /// Decides all samples before `time`, because the caller cannot wait any longer.
    pub fn decide_before(&mut self, time: Timestamp) {
        self.tracker.decide_before(time);
        self.take_decided();
    }

    /// Ends the input, because there are no more readings.
    pub fn end(&mut self) {
        self.tracker.end();
        self.take_decided();
    }

    /// Whether samples would have been different if everything that is known now had been known from the start.
    pub fn is_revised(&self) -> bool {
        self.tracker.findings.is_revised
    }

    /// Returns pairs of tags. Readings between the two tags became samples, but were wrong.
    pub fn taken_back(&self) -> &[(u64, u64)] {
        &self.tracker.findings.taken_back
    }

    fn read(&mut self, time: Timestamp, value: Value, tag: u64) {
        let is_excluded = self.excluded.iter().any(|(before, after)| *before < tag && tag < *after);
        let is_unordered = self.latest.is_some_and(|latest| time < latest);
        if is_excluded || is_unordered || self.is_implausible_power(value) {
            self.figures.misreadings += 1;
            self.figures.unordered += u64::from(is_unordered);
            return;
        }
        self.latest = Some(time);
        match self.kind {
            CounterKind::Cumulative { .. } => {
                self.tracker.read(Reading::new(time, value, tag));
                self.note_unchanged(self.tracker.findings.unchanged_ticks);
                self.take_decided();
            }
            CounterKind::Instantaneous { watts_per_unit, is_of_time_before } => {
                self.read_power(time, value.as_f64(), watts_per_unit, is_of_time_before, tag);
            }
        }
    }

    fn is_implausible_power(&self, value: Value) -> bool {
        match self.kind {
            CounterKind::Instantaneous { watts_per_unit, .. } => {
                let watts = value.as_f64() * watts_per_unit;
                watts < 0.0 || watts > self.limits.watts_max
            }
            CounterKind::Cumulative { .. } => false,
        }
    }

    fn read_power(
        &mut self,
        time: Timestamp,
        value: f64,
        watts_per_unit: f64,
        is_of_time_before: bool,
        tag: u64,
    ) {
        let Some(last) = self.power else {
            self.power = Some(Power { time, value, changed: time });
            return self.push(time, Increase::First, 0, tag);
        };
        let ticks = time - last.time;
        let held = if is_of_time_before { value } else { last.value };
        let joules = held * watts_per_unit * (ticks as f64 / self.limits.ticks_per_second);
        let changed = if value == last.value { last.changed } else { time };
        self.power = Some(Power { time, value, changed });
        self.note_unchanged(time - changed);
        self.push_joules(time, joules, ticks, tag);
    }

    fn take_decided(&mut self) {
        let CounterKind::Cumulative { joules_per_unit, .. } = self.kind else { return };
        while let Some(decision) = self.tracker.decisions.pop_front() {
            match decision {
                Decision::Start { reading, is_reset } => {
                    let increase = if is_reset { Increase::Reset } else { Increase::First };
                    self.push(reading.time, increase, 0, reading.tag);
                }
                Decision::Rise { reading, units, interval } => {
                    self.push_joules(reading.time, units * joules_per_unit, interval, reading.tag);
                }
                Decision::Unknown { time } => self.push(time, Increase::First, 0, 0),
            }
        }
    }

    fn push_joules(&mut self, time: Timestamp, joules: f64, ticks: u64, tag: u64) {
        let is_gap = self.is_gap(ticks);
        self.intervals.add(ticks);
        self.figures.gaps += u64::from(is_gap);
        self.push(time, if is_gap { Increase::Lost(joules) } else { Increase::Joules(joules) }, ticks, tag);
    }

    fn push(&mut self, time: Timestamp, increase: Increase, ticks: u64, tag: u64) {
        let figures = &mut self.figures;
        figures.first.get_or_insert(time);
        figures.last = Some(time);
        figures.samples += 1;
        figures.longest_interval_ticks = figures.longest_interval_ticks.max(ticks);
        self.samples.push_back(Sample { time, increase, tag });
    }

    fn note_unchanged(&mut self, still: u64) {
        let figures = &mut self.figures;
        figures.longest_still_ticks = figures.longest_still_ticks.max(still);
        figures.still_ticks = still;
        figures.stale = still as f64 >= self.limits.stale_seconds * self.limits.ticks_per_second;
    }

    fn is_gap(&self, ticks: u64) -> bool {
        match (self.limits.gap, self.intervals.median(INTERVALS_MIN)) {
            (Some(times), Some(usual)) => {
                ticks as f64 > (times * usual as f64).max(self.limits.ticks_per_second)
            }
            _ => false,
        }
    }
}
