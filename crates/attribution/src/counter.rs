//! A counter's raw readings as joules between two samples, and what was odd about them.
//!
//! Counters are not to be trusted. A reading can be no number, come out of order, or be a driver's error code; a counter
//! can be reset, wrap, stand still, start late, read 0 before it reads what it counted since boot, or not be read for
//! seconds. Each of these has one rule here, and none of them ever adds energy that nobody has spent.

use ampere_model::Timestamp;

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CounterKind {
    /// Energy since some start: joules = difference x `joules_per_unit`.
    Cumulative {
        joules_per_unit: f64,
        /// The counter has this many values and starts again at 0 (RAPL: 2^32). `None`: it never does, so a decrease is a
        /// reset.
        wraps_at: Option<u64>,
    },
    /// Power: joules = earlier value x `watts_per_unit` x seconds.
    Instantaneous { watts_per_unit: f64 },
}

/// What happened between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Increase {
    /// The first sample: nothing before it is known.
    First,
    Joules(f64),
    /// Known joules, spent in a gap of the sampling: nobody can be charged with them.
    Lost(f64),
    /// The counter was reset: what was spent since the last sample cannot be known.
    Reset,
    /// No sample: not a number, negative, impossible, or older than the one before. It is to be left out.
    Unusable,
}

/// What is believed of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    pub ticks_per_second: f64,
    /// More power than this cannot be. A step of a cumulative counter may be a second's worth larger than its interval
    /// allows, because readings jitter.
    pub watts_max: f64,
    /// An interval so many times as long as the usual one (the median of those before), and at least a second, is a gap.
    /// `None`: none is.
    pub gap: Option<f64>,
    /// A counter that has not changed for so long is stale.
    pub stale_seconds: f64,
}

impl Limits {
    /// Believes everything that a number can say; stale after 10 seconds.
    pub fn none(ticks_per_second: f64) -> Limits {
        Limits { ticks_per_second, watts_max: f64::INFINITY, gap: None, stale_seconds: 10.0 }
    }
}

/// What was seen of a counter so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CounterFigures {
    /// Times of the first and the last usable reading.
    pub first: Option<Timestamp>,
    pub last: Option<Timestamp>,
    pub wraps: u64,
    /// Intervals whose joules are lost.
    pub gaps: u64,
    /// The longest time between two usable readings.
    pub longest_interval_ticks: u64,
    /// The longest time without a change of the value.
    pub longest_still_ticks: u64,
    /// As of the last reading it has not changed for long. Of a cumulative counter that means frozen, or nothing spent.
    pub stale: bool,
}

/// A rise at more than so many times the power of before is not believed where the counter had just fallen.
const UNUSUAL_RISE: f64 = 10.0;

/// The last reading of one counter. Integers are kept as such: 2^53 is not enough for raw ticks.
#[derive(Clone, Debug)]
pub struct Counter {
    kind: CounterKind,
    limits: Limits,
    last: Option<Reading>,
    /// `last` is the first one, or the first after a reset: there is no step yet that confirms it.
    unconfirmed: bool,
    /// What was known before `last`, where that is less: the reading before, and the joules per tick until then.
    before_drop: Option<(Reading, f64)>,
    /// Joules per tick of the last step.
    rate: Option<f64>,
    /// The reading that could not be after `last`. If the next one goes on from there, it was a reset after all.
    suspect: Option<Reading>,
    changed: Timestamp,
    intervals: Intervals,
    figures: CounterFigures,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    time: Timestamp,
    value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Integer(u64),
    Float(f64),
}

/// From one reading to another.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Up(f64),
    Wrapped(f64),
    Down,
    Impossible,
}

impl Counter {
    pub fn new(kind: CounterKind, limits: Limits) -> Counter {
        Counter {
            kind,
            limits,
            last: None,
            unconfirmed: true,
            before_drop: None,
            rate: None,
            suspect: None,
            changed: 0,
            intervals: Intervals::default(),
            figures: CounterFigures::default(),
        }
    }

    pub fn figures(&self) -> CounterFigures {
        self.figures
    }

    pub fn read_u64(&mut self, time: Timestamp, value: u64) -> Increase {
        self.read(Reading { time, value: Value::Integer(value) })
    }

    pub fn read_i64(&mut self, time: Timestamp, value: i64) -> Increase {
        match u64::try_from(value) {
            Ok(value) => self.read_u64(time, value),
            Err(_) => self.read_f64(time, value as f64),
        }
    }

    pub fn read_f64(&mut self, time: Timestamp, value: f64) -> Increase {
        if value.is_finite() {
            self.read(Reading { time, value: Value::Float(value) })
        } else {
            Increase::Unusable
        }
    }

    fn read(&mut self, now: Reading) -> Increase {
        if self.is_no_power(now.value) {
            return Increase::Unusable;
        }
        let Some(last) = self.last else {
            self.begin(now);
            return Increase::First;
        };
        if now.time < last.time {
            return Increase::Unusable;
        }
        let before_drop = self.before_drop.take();
        match self.step(last, now) {
            Step::Up(joules) => {
                match before_drop.and_then(|before| self.undo_drop(before, last, now, joules)) {
                    Some(lost) => lost,
                    None => self.go_on(last, now, joules),
                }
            }
            Step::Wrapped(joules) => {
                self.figures.wraps += 1;
                self.go_on(last, now, joules)
            }
            // An error code, not a reset: the counter goes on after it.
            Step::Down if now.value.as_f64() < 0.0 => Increase::Unusable,
            Step::Down => {
                let rate = self.rate;
                self.begin(now);
                self.before_drop = rate.map(|rate| (last, rate));
                Increase::Reset
            }
            // It read 0 before it was ready.
            Step::Impossible if self.unconfirmed && last.value.as_f64() <= 0.0 => {
                self.begin(now);
                Increase::First
            }
            Step::Impossible => match self.suspect.map(|suspect| self.step(suspect, now)) {
                Some(Step::Up(_) | Step::Wrapped(_)) => {
                    self.begin(now);
                    Increase::Reset
                }
                _ => {
                    self.suspect = Some(now);
                    Increase::Unusable
                }
            },
        }
    }

    /// A counter that reads less once and then what it would have read is not reset: that one reading was wrong. It is known by
    /// a rise to where the counter was, at many times the power of before: a counter that begins at 0 takes longer. What was
    /// spent since is known, and not who was charged with which part of it.
    fn undo_drop(
        &mut self,
        (before, rate): (Reading, f64),
        low: Reading,
        now: Reading,
        risen: f64,
    ) -> Option<Increase> {
        let ticks = now.time.saturating_sub(low.time).max(1);
        let Step::Up(joules) = self.step(before, now) else { return None };
        if risen <= UNUSUAL_RISE * rate * ticks as f64 {
            return None;
        }
        self.go_on(before, now, joules);
        Some(Increase::Lost(joules))
    }

    fn is_no_power(&self, value: Value) -> bool {
        match self.kind {
            CounterKind::Instantaneous { watts_per_unit } => {
                let watts = value.as_f64() * watts_per_unit;
                watts < 0.0 || watts > self.limits.watts_max
            }
            CounterKind::Cumulative { .. } => false,
        }
    }

    /// What is known begins, or begins again, with this reading.
    fn begin(&mut self, now: Reading) {
        self.last = Some(now);
        self.unconfirmed = true;
        self.rate = None;
        self.suspect = None;
        self.changed = now.time;
        self.figures.first.get_or_insert(now.time);
        self.figures.last = Some(now.time);
        self.figures.stale = false;
    }

    fn go_on(&mut self, last: Reading, now: Reading, joules: f64) -> Increase {
        let ticks = now.time - last.time;
        let gap = self.is_gap(ticks);
        self.intervals.add(ticks);
        self.last = Some(now);
        self.rate = Some(joules / ticks.max(1) as f64);
        self.unconfirmed = false;
        self.suspect = None;
        if now.value != last.value {
            self.changed = now.time;
        }
        let still = now.time - self.changed;
        let figures = &mut self.figures;
        figures.last = Some(now.time);
        figures.longest_interval_ticks = figures.longest_interval_ticks.max(ticks);
        figures.longest_still_ticks = figures.longest_still_ticks.max(still);
        figures.stale = still as f64 >= self.limits.stale_seconds * self.limits.ticks_per_second;
        figures.gaps += u64::from(gap);
        if gap { Increase::Lost(joules) } else { Increase::Joules(joules) }
    }

    fn is_gap(&self, ticks: u64) -> bool {
        match (self.limits.gap, self.intervals.median()) {
            (Some(times), Some(usual)) => {
                ticks as f64 > (times * usual as f64).max(self.limits.ticks_per_second)
            }
            _ => false,
        }
    }

    fn step(&self, from: Reading, to: Reading) -> Step {
        let seconds = to.time.saturating_sub(from.time) as f64 / self.limits.ticks_per_second;
        let (joules_per_unit, wraps_at) = match self.kind {
            CounterKind::Instantaneous { watts_per_unit } => {
                return Step::Up(from.value.as_f64() * watts_per_unit * seconds);
            }
            CounterKind::Cumulative { joules_per_unit, wraps_at } => (joules_per_unit, wraps_at),
        };
        let possible = |joules: f64| joules <= self.limits.watts_max * (seconds + 1.0);
        let up = match (from.value, to.value) {
            (Value::Integer(a), Value::Integer(b)) => b.checked_sub(a).map(|units| units as f64),
            (a, b) => Some(b.as_f64() - a.as_f64()).filter(|units| *units >= 0.0),
        };
        if let Some(units) = up {
            let joules = units * joules_per_unit;
            return if possible(joules) { Step::Up(joules) } else { Step::Impossible };
        }
        match (from.value, to.value, wraps_at) {
            // A counter that wraps can be reset, too: then this would seldom be possible.
            (Value::Integer(a), Value::Integer(b), Some(range)) if a < range => {
                let joules = (range - a + b) as f64 * joules_per_unit;
                if possible(joules) { Step::Wrapped(joules) } else { Step::Down }
            }
            _ => Step::Down,
        }
    }
}

impl Value {
    fn as_f64(self) -> f64 {
        match self {
            Value::Integer(integer) => integer as f64,
            Value::Float(float) => float,
        }
    }
}

/// The lengths of the last intervals.
#[derive(Clone, Copy, Debug, Default)]
struct Intervals {
    ticks: [u64; Intervals::KEPT],
    count: usize,
}

impl Intervals {
    const KEPT: usize = 15;
    /// With fewer, nothing is usual yet.
    const LEAST: usize = 5;

    fn add(&mut self, ticks: u64) {
        self.ticks[self.count % Intervals::KEPT] = ticks;
        self.count += 1;
    }

    fn median(&self) -> Option<u64> {
        let mut known = self.ticks;
        let known = &mut known[..self.count.min(Intervals::KEPT)];
        known.sort_unstable();
        (known.len() >= Intervals::LEAST).then(|| known[known.len() / 2])
    }
}
