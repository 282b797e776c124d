//! A counter's raw readings as joules between two samples, and what was odd about them.
//!
//! Counters are not to be trusted. A reading can be no number, come out of order, be a driver's error code or any other
//! misreading; a counter can be reset, wrap, stand still, start late, or not be read for seconds. `lines` decides which
//! readings can be true. What it does not know yet waits: a reading becomes a sample when the next one confirms it.

use crate::intervals::Intervals;
use crate::lines::{Decided, Lines, Reach, Reading, Value};
use ampere_model::Timestamp;
use std::collections::VecDeque;

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum CounterKind {
    /// Energy since some start: joules = difference x `joules_per_unit`.
    Cumulative {
        joules_per_unit: f64,
        /// The counter has this many values and starts again at 0 (RAPL: 2^32). `None`: 2^64, as 64-bit nanojoules have.
        wraps_at: Option<u64>,
    },
    /// Power: joules = value x `watts_per_unit` x seconds, of the time until the next sample, or since the one before.
    Instantaneous { watts_per_unit: f64, is_of_time_before: bool },
}

/// What is known of the time before a sample, since the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Increase {
    /// Nothing: what is known begins with this sample, or begins again after readings that could not be true.
    First,
    /// Joules to attribute.
    Joules(f64),
    /// Known joules, spent in a gap of the sampling: they cannot be attributed.
    Lost(f64),
    /// Nothing: the counter was reset.
    Reset,
}

/// A reading that is believed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Sample {
    pub time: Timestamp,
    pub increase: Increase,
    /// The caller's mark on the reading.
    pub tag: u64,
}

/// What is believed of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Limits {
    pub ticks_per_second: f64,
    /// More power than this cannot be.
    pub watts_max: f64,
    /// An interval so many times as long as the usual one (the median of those before), and at least a second, is a gap.
    /// `None`: none is.
    pub gap: Option<f64>,
    /// A counter that has not changed for so long is stale.
    pub stale_seconds: f64,
}

impl Limits {
    /// Believes every rise; stale after 10 seconds.
    pub fn none(ticks_per_second: f64) -> Limits {
        Limits { ticks_per_second, watts_max: f64::INFINITY, gap: None, stale_seconds: 10.0 }
    }
}

/// What was seen of a counter so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct CounterFigures {
    /// Times of the first and the last sample.
    pub first: Option<Timestamp>,
    pub last: Option<Timestamp>,
    /// Readings that are believed.
    pub samples: u64,
    pub wraps: u64,
    /// Readings that were not numbers, came out of order, or could not be true.
    pub misreadings: u64,
    /// Intervals whose joules are lost.
    pub gaps: u64,
    /// The longest time between two samples.
    pub longest_interval_ticks: u64,
    /// The longest time without a change of the value.
    pub longest_still_ticks: u64,
    /// As of the last reading it has not changed for long. Of a cumulative counter that means frozen, or nothing spent.
    pub stale: bool,
}

/// Readings go in, samples come out, in order of time.
#[derive(Clone, Debug)]
pub struct Counter {
    kind: CounterKind,
    limits: Limits,
    /// The readings of a cumulative counter.
    lines: Lines,
    /// The last reading of a power.
    power: Option<Power>,
    /// Time of the latest reading.
    latest: Option<Timestamp>,
    /// Pairs of tags: each reading whose tag lies between the two is known to be wrong.
    wrong: Vec<(u64, u64)>,
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

/// With fewer intervals than this, nothing is usual yet.
const INTERVALS_LEAST: usize = 5;

impl Counter {
    /// A counter that nothing was read of.
    pub fn new(kind: CounterKind, limits: Limits) -> Counter {
        let (units_per_joule, range) = match kind {
            CounterKind::Cumulative { joules_per_unit, wraps_at } => {
                (joules_per_unit.recip(), wraps_at.map_or(1 << 64, i128::from))
            }
            CounterKind::Instantaneous { .. } => (0.0, 0),
        };
        let units_per_second = limits.watts_max * units_per_joule;
        let reach = Reach { ticks_per_second: limits.ticks_per_second, units_per_second, range };
        Counter {
            kind,
            limits,
            lines: Lines::new(reach),
            power: None,
            latest: None,
            wrong: Vec::new(),
            samples: VecDeque::new(),
            intervals: Intervals::default(),
            figures: CounterFigures::default(),
        }
    }

    /// To be called before anything is read.
    pub fn set_wraps_at(&mut self, wraps_at: u64) {
        self.lines.set_range(wraps_at.into());
    }

    /// Leaves readings out that an earlier pass over the same ones found to be wrong: see [`Counter::taken_back`].
    pub fn leave_out(&mut self, wrong: Vec<(u64, u64)>) {
        self.wrong = wrong;
    }

    /// What was seen so far.
    pub fn figures(&self) -> CounterFigures {
        CounterFigures {
            misreadings: self.figures.misreadings + self.lines.findings.misreadings,
            samples: self.figures.samples + self.lines.findings.stills,
            wraps: self.lines.findings.wraps,
            ..self.figures
        }
    }

    /// Takes a reading. `tag` comes back in its sample.
    pub fn read_u64(&mut self, time: Timestamp, value: u64, tag: u64) {
        self.read(time, Value::Integer(value.into()), tag);
    }

    /// Takes a reading of a signed counter.
    pub fn read_i64(&mut self, time: Timestamp, value: i64, tag: u64) {
        self.read(time, Value::Integer(value.into()), tag);
    }

    /// Takes a reading of a counter of numbers with a fraction.
    pub fn read_f64(&mut self, time: Timestamp, value: f64, tag: u64) {
        if value.is_finite() {
            self.read(time, Value::Float(value), tag);
        } else {
            self.figures.misreadings += 1;
        }
    }

    /// Takes the next sample that is decided.
    pub fn sample(&mut self) -> Option<Sample> {
        self.samples.pop_front()
    }

    /// The earliest time that a sample can have that is still to come. `None`: none comes before the next reading.
    pub fn undecided_since(&self) -> Option<Timestamp> {
        self.lines.undecided_since()
    }

    /// The caller cannot wait: samples that are still to come are not before this.
    pub fn decide_before(&mut self, time: Timestamp) {
        self.lines.decide_before(time);
        self.take_decided();
    }

    /// There are no more readings.
    pub fn end(&mut self) {
        self.lines.end();
        self.take_decided();
    }

    /// Whether samples would be others had all that is known by now been known from the start.
    pub fn is_revised(&self) -> bool {
        self.lines.findings.is_revised
    }

    /// Pairs of tags: readings between the two became samples, and were wrong.
    pub fn taken_back(&self) -> &[(u64, u64)] {
        &self.lines.findings.taken_back
    }

    fn read(&mut self, time: Timestamp, value: Value, tag: u64) {
        let is_wrong = self.wrong.iter().any(|(before, after)| *before < tag && tag < *after);
        if is_wrong || self.latest.is_some_and(|latest| time < latest) || self.is_no_power(value) {
            self.figures.misreadings += 1;
            return;
        }
        self.latest = Some(time);
        match self.kind {
            CounterKind::Cumulative { .. } => {
                self.lines.read(Reading::new(time, value, tag));
                self.see_still(self.lines.findings.still);
                self.take_decided();
            }
            CounterKind::Instantaneous { watts_per_unit, is_of_time_before } => {
                self.read_power(time, value.as_f64(), watts_per_unit, is_of_time_before, tag);
            }
        }
    }

    fn is_no_power(&self, value: Value) -> bool {
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
            return self.put(time, Increase::First, 0, tag);
        };
        let ticks = time - last.time;
        let held = if is_of_time_before { value } else { last.value };
        let joules = held * watts_per_unit * (ticks as f64 / self.limits.ticks_per_second);
        let changed = if value == last.value { last.changed } else { time };
        self.power = Some(Power { time, value, changed });
        self.see_still(time - changed);
        self.put_joules(time, joules, ticks, tag);
    }

    fn take_decided(&mut self) {
        let CounterKind::Cumulative { joules_per_unit, .. } = self.kind else { return };
        while let Some(decided) = self.lines.decided.pop_front() {
            match decided {
                Decided::Begins { reading, is_reset } => {
                    let increase = if is_reset { Increase::Reset } else { Increase::First };
                    self.put(reading.time, increase, 0, reading.tag);
                }
                Decided::Rises { reading, units, interval } => {
                    self.put_joules(reading.time, units * joules_per_unit, interval, reading.tag);
                }
                Decided::Unknown { time } => self.put(time, Increase::First, 0, 0),
            }
        }
    }

    fn put_joules(&mut self, time: Timestamp, joules: f64, ticks: u64, tag: u64) {
        let is_gap = self.is_gap(ticks);
        self.intervals.add(ticks);
        self.figures.gaps += u64::from(is_gap);
        self.put(time, if is_gap { Increase::Lost(joules) } else { Increase::Joules(joules) }, ticks, tag);
    }

    fn put(&mut self, time: Timestamp, increase: Increase, ticks: u64, tag: u64) {
        let figures = &mut self.figures;
        figures.first.get_or_insert(time);
        figures.last = Some(time);
        figures.samples += 1;
        figures.longest_interval_ticks = figures.longest_interval_ticks.max(ticks);
        self.samples.push_back(Sample { time, increase, tag });
    }

    fn see_still(&mut self, still: u64) {
        let figures = &mut self.figures;
        figures.longest_still_ticks = figures.longest_still_ticks.max(still);
        figures.stale = still as f64 >= self.limits.stale_seconds * self.limits.ticks_per_second;
    }

    fn is_gap(&self, ticks: u64) -> bool {
        match (self.limits.gap, self.intervals.median(INTERVALS_LEAST)) {
            (Some(times), Some(usual)) => {
                ticks as f64 > (times * usual as f64).max(self.limits.ticks_per_second)
            }
            _ => false,
        }
    }
}
