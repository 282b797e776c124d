//! Which readings of a cumulative counter can be true.
//!
//! A *line* is a sequence of readings each of which can follow the one before: it is not below it, and not further above
//! than the device's greatest power allows. Energy is counted on the *main* line. A reading that the main line cannot lead
//! to is held on a line of its own, until one of two things happens. Either the main line goes on, and what was held were
//! misreadings; or the other line goes on for so long without the main one that the counter must have been reset.
//!
//! Three rules keep misreadings from becoming joules:
//! - A rise is handed out when the next reading is not below it. If a later one is, the rise is taken back: nothing is
//!   handed out until the counter is where it was said to be.
//! - A line that never rises counts nothing.
//! - A line that begins at 0, or with all bits set, begins with its second value if the step to it is several times larger, and
//!   faster, than all steps that follow: such a first reading was no value of this counter.
//!
//! ```text
//! reading.rs   a raw reading               line.rs      one line
//! mod.rs       which line a reading is on, and when lines change
//! output.rs    what is handed out of the main line, and what is taken back
//! ```

mod line;
mod output;
mod reading;

pub(crate) use output::{Decided, Findings};
pub(crate) use reading::{Reading, Value};

use crate::intervals::Intervals;
use ampere_model::Timestamp;
use line::Line;
use output::HandedOut;
use std::collections::VecDeque;

/// How far beyond the counter's usual time between changes a stall, and a wrong rise, can last.
const UPDATES_PER_WINDOW: f64 = 10.0;
const SHORTEST_WINDOW_SECONDS: f64 = 1.0;
/// The time between two changes of a counter, until it is known.
const USUAL_UPDATE_SECONDS: f64 = 0.1;
/// The sampler may read a counter this late, even one that changes often.
const LATE_SECONDS: f64 = 0.01;
/// Lines beside the main one.
const LINES_MAX: usize = 3;
/// A line with so many rises replaces a main line that has never risen; and any main line, at the end.
const RISES_OF_A_LINE: u32 = 3;

/// What a counter can do in some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    pub ticks_per_second: f64,
    /// Units, at the device's greatest power.
    pub units_per_second: f64,
    /// The counter starts again at 0 there.
    pub range: i128,
}

/// Readings go in, decisions come out.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    reach: Reach,
    main: Option<Line>,
    /// Readings that the main line cannot lead to.
    others: Vec<Line>,
    handed_out: HandedOut,
    /// Samples before this cannot be handed out any more.
    floor: Timestamp,
    /// Times from change to change of the counter.
    updates: Intervals,
    latest: Option<Reading>,
    /// Number of the latest reading.
    turn: u64,
    /// To be taken by the caller.
    pub decided: VecDeque<Decided>,
    pub findings: Findings,
}

/// A line that a reading can be on: the main one, or one of the others, by its place.
#[derive(Clone, Copy)]
enum Which {
    Main,
    Other(usize),
}

impl Lines {
    pub fn new(reach: Reach) -> Lines {
        Lines {
            reach,
            main: None,
            others: Vec::new(),
            handed_out: HandedOut::default(),
            floor: 0,
            updates: Intervals::default(),
            latest: None,
            turn: 0,
            decided: VecDeque::new(),
            findings: Findings::default(),
        }
    }

    pub fn set_range(&mut self, range: i128) {
        self.reach.range = range;
    }

    fn update_seconds(&self) -> f64 {
        let usual = self.updates.lower_quartile().map(|ticks| ticks as f64 / self.reach.ticks_per_second);
        usual.unwrap_or(USUAL_UPDATE_SECONDS)
    }

    fn window_seconds(&self) -> f64 {
        (UPDATES_PER_WINDOW * self.update_seconds()).max(SHORTEST_WINDOW_SECONDS)
    }

    fn seconds(&self, from: Timestamp, to: Timestamp) -> f64 {
        to.saturating_sub(from) as f64 / self.reach.ticks_per_second
    }

    /// The reading as one of a line, if the line can have got there from its last reading `from`. `changed`: when the line's
    /// value last changed.
    fn follow(&self, from: &Reading, changed: Timestamp, to: &Reading) -> Option<Reading> {
        let (update, window) = (self.update_seconds(), self.window_seconds());
        let still = self.seconds(changed, from.time);
        let passed = self.seconds(from.time, to.time);
        // A change that was seen late leaves less time until the next one.
        let stall = still.min(window).max(update.clamp(LATE_SECONDS, USUAL_UPDATE_SECONDS));
        let units_max = self.reach.units_per_second * (passed + stall).max(f64::MIN_POSITIVE);
        if units_max >= self.reach.range as f64 && units_max.is_finite() {
            return None; // it may have passed its range any number of times
        }
        let (value, wrapped) = match (from.value, to.value) {
            (_, Value::Integer(raw)) if raw >= self.reach.range => return None,
            (Value::Integer(a), Value::Integer(raw)) => {
                let same = from.passed + raw;
                let last = a - from.passed;
                let can_wrap = last < self.reach.range - 1 && passed + still <= window;
                match same >= a {
                    true => (Value::Integer(same), 0),
                    false if can_wrap && last >= 0 => {
                        (Value::Integer(same + self.reach.range), self.reach.range)
                    }
                    false => return None,
                }
            }
            (_, value) => (value, 0),
        };
        let units = from.value.units_to(value);
        (0.0..=units_max).contains(&units).then_some(Reading { value, passed: from.passed + wrapped, ..*to })
    }

    /// Takes a reading. They come in order of time.
    pub fn read(&mut self, reading: Reading) {
        let is_error_code = reading.value.as_f64() < 0.0
            && self.main.as_ref().is_some_and(|main| main.last.value.as_f64() >= 0.0);
        if is_error_code {
            self.findings.misreadings += 1;
            return;
        }
        self.turn += 1;
        self.latest = Some(reading);
        if self.main.is_none() {
            return self.begin(reading);
        }
        match self.line_of(&reading) {
            Some((Which::Main, reading)) => match &self.main {
                // Any reading may follow a line that has never risen, and on which no reading was for a window, but others were.
                Some(main) if !main.is_confirmed() && main.turn + 1 < self.turn && self.is_old(main) => {
                    self.findings.misreadings += main.readings;
                    self.drop_others();
                    self.begin(reading);
                }
                _ => self.continue_main(reading),
            },
            Some((Which::Other(other), reading)) => self.continue_other(other, reading),
            None => match self.before_wrong_rises(&reading) {
                Some((before, reading)) => self.take_back(before, reading),
                None => self.hold(reading),
            },
        }
    }

    /// Drops the lines beside the main one: their readings were misreadings.
    fn drop_others(&mut self) {
        self.findings.misreadings += self.others.drain(..).map(|line| line.readings).sum::<u64>();
    }

    fn line(&self, reading: Reading) -> Line {
        Line::new(reading, reading.value.is_suspicious(self.reach.range), self.turn)
    }

    /// Begins a main line.
    fn begin(&mut self, reading: Reading) {
        self.main = Some(self.line(reading));
        self.hand_out_begin(reading, false);
    }

    /// Of the lines that can lead to a reading, the one that was read last.
    fn line_of(&self, reading: &Reading) -> Option<(Which, Reading)> {
        let follow = |line: &Line| self.follow(&line.last, line.changed, reading);
        // After readings of other lines, the main one is not met again in a suspicious value.
        let can_be_met = |main: &&Line| {
            let is_after_others = main.turn + 1 < self.turn && main.last.value != reading.value;
            !is_after_others || !reading.value.is_suspicious(self.reach.range)
        };
        let main = self.main.as_ref().filter(can_be_met);
        let main = main.and_then(|line| Some((line.turn, Which::Main, follow(line)?)));
        // A line that has only a suspicious value does not get a reading that the main line leads to as well.
        let others = self.others.iter().enumerate().filter(|(_, line)| {
            let is_no_value = line.is_suspicious && line.rises == 0 && line.last.value != reading.value;
            main.is_none() || !is_no_value
        });
        let others = others.filter_map(|(at, line)| Some((line.turn, Which::Other(at), follow(line)?)));
        let latest = others.chain(main).max_by_key(|(turn, ..)| *turn);
        latest.map(|(_, which, reading)| (which, reading))
    }

    fn continue_main(&mut self, reading: Reading) {
        self.drop_others();
        let window = self.window_seconds();
        let Some(main) = &mut self.main else { return };
        let comes_back = main.turn + 1 < self.turn;
        if comes_back && main.is_unproven {
            main.waiting.clear(); // nothing has confirmed it: the sample is this one
        }
        main.is_unproven = comes_back;
        self.findings.wraps += u64::from(reading.passed > main.last.passed);
        let was_confirmed = main.is_confirmed();
        let is_rise = main.last.value != reading.value;
        if let Some(update) = main.append(reading, self.turn) {
            self.updates.add(update);
        }
        self.findings.still = reading.time - main.changed;
        if !main.is_confirmed() {
            return;
        }
        if main.is_doubtful() {
            if self.seconds_in_doubt() < window {
                return;
            }
            self.resolve_doubt();
        } else if !was_confirmed || self.begin_is_waiting() {
            self.hand_out_first_value();
        }
        // A reading that is no rise needs none after it.
        self.hand_out_waiting(usize::from(is_rise));
    }

    fn continue_other(&mut self, other: usize, reading: Reading) {
        if self.is_old(&self.others[other]) {
            let mut line = self.line(reading);
            line.readings += self.others[other].readings;
            self.others[other] = line;
            return;
        }
        if let Some(update) = self.others[other].append(reading, self.turn) {
            self.updates.add(update);
        }
        self.change_line_if_due(other);
    }

    /// Begins a line with a reading that nothing leads to.
    fn hold(&mut self, reading: Reading) {
        if self
            .main
            .as_ref()
            .is_some_and(|main| main.is_confirmed() && !main.is_doubtful() && !main.is_unproven)
        {
            self.hand_out_waiting(0);
        }
        if self.others.len() >= LINES_MAX {
            let unrisen = self.others.iter().enumerate().filter(|(_, line)| line.rises == 0);
            let Some((oldest, _)) = unrisen.min_by_key(|(_, line)| line.turn) else {
                self.findings.misreadings += 1;
                return;
            };
            self.findings.misreadings += self.others.remove(oldest).readings;
        }
        // A counter that moves seldom: its first steps look out of reach.
        let has_begun = self.main.as_ref().is_some_and(Line::is_confirmed);
        let all = self.main.iter().chain(&self.others).filter(|_| !has_begun);
        let latest = all.max_by_key(|line| line.turn).filter(|line| !line.is_suspicious);
        if let Some(line) = latest.filter(|line| line.last.value.units_to(reading.value) > 0.0) {
            self.updates.add(reading.time - line.changed);
        }
        self.others.push(self.line(reading));
    }

    /// Whether a line has not been read for so long that its history counts no more. Readings that it leads to are still its
    /// own.
    fn is_old(&self, line: &Line) -> bool {
        let now = self.latest.map_or(0, |latest| latest.time);
        self.seconds(line.last.time, now) > self.window_seconds()
    }

    /// Another line has gone on. If the main one has not been met for long enough, the counter was reset.
    fn change_line_if_due(&mut self, other: usize) {
        let window = self.window_seconds();
        let main_is_confirmed = self.main.as_ref().is_some_and(Line::is_confirmed);
        let line = &mut self.others[other];
        let is_long =
            line.last.time.saturating_sub(line.begin.time) as f64 >= window * self.reach.ticks_per_second;
        if line.is_confirmed() && is_long && line.is_doubtful() {
            line.drop_first_value();
        }
        let is_certain = is_long || (!main_is_confirmed && line.rises >= RISES_OF_A_LINE);
        if line.is_confirmed() && !line.is_doubtful() && is_certain && line.has_most(self.turn) {
            self.change_line(other);
        }
    }

    /// Makes another line the main one.
    fn change_line(&mut self, other: usize) {
        let mut line = self.others.remove(other);
        self.drop_others();
        let before = self.main.take();
        let is_reset = before.as_ref().is_some_and(Line::is_confirmed);
        self.findings.misreadings += before.filter(|_| !is_reset).map_or(0, |main| main.readings);
        while line.begin.time < self.floor && !line.waiting.is_empty() {
            line.begin = line.waiting.remove(0);
            self.findings.is_revised = true;
        }
        let last = line.waiting.last().copied();
        let is_rise =
            last.is_some_and(|last| line.waiting.iter().rev().nth(1).is_none_or(|b| b.value != last.value));
        self.findings.still = line.last.time - line.changed;
        self.hand_out_begin(Reading { time: line.begin.time.max(self.floor), ..line.begin }, is_reset);
        self.main = Some(line);
        self.hand_out_waiting(usize::from(is_rise));
    }

    /// No sample that is still to come is before this. `None`: before the next reading.
    pub fn undecided_since(&self) -> Option<Timestamp> {
        let main = self.main.as_ref()?;
        let begin = Some(main.begin.time).filter(|_| self.begin_is_waiting());
        let of_main = begin.or(main.waiting.first().map(|waiting| waiting.time));
        let others = self.others.iter().filter(|line| !self.is_old(line)).map(|line| line.begin.time);
        of_main.into_iter().chain(others).min()
    }

    /// The caller cannot wait any longer: samples from now on are not before this.
    pub fn decide_before(&mut self, time: Timestamp) {
        let Some(main) = &self.main else { return };
        if main.is_confirmed() {
            if main.is_doubtful() {
                self.resolve_doubt();
                self.findings.is_revised = true;
            }
            let Some(main) = &self.main else { return };
            let early =
                main.waiting.iter().filter(|waiting| waiting.time < time && !main.is_unproven).count();
            self.hand_out_waiting(main.waiting.len() - early);
        } else if self.begin_is_waiting() && main.begin.time < time && main.may_stand_still(self.turn) {
            self.hand_out(main.begin);
        }
        self.floor = self.floor.max(time);
    }

    /// There are no more readings.
    pub fn end(&mut self) {
        let Some(main) = &self.main else { return };
        // A counter that was reset is below where it was. One that is above may have caught up faster than it should.
        let is_below = |line: &Line| {
            !main.is_confirmed()
                || line.rises >= RISES_OF_A_LINE
                || line.last.value.units_to(main.last.value) > 0.0
        };
        let candidates = self.others.iter().enumerate();
        let is_certain = |line: &Line| line.is_confirmed() && line.has_most(self.turn) && is_below(line);
        let risen = candidates.filter(|(_, line)| is_certain(line));
        if let Some((at, _)) = risen.max_by_key(|(_, line)| line.turn) {
            let line = &mut self.others[at];
            if line.is_doubtful() && line.rises > 1 {
                line.drop_first_value();
            }
            self.change_line(at);
        }
        self.drop_others();
        let Some(main) = &self.main else { return };
        let is_unproven = main.is_unproven;
        if main.is_doubtful() && main.rises > 1 {
            self.resolve_doubt();
        } else if main.is_confirmed() || main.may_stand_still(self.turn) {
            self.hand_out_first_value();
        } else if main.has_most(self.turn) {
            self.findings.stills += main.readings.saturating_sub(2); // it never showed a value to count from
        }
        self.hand_out_waiting(usize::from(is_unproven));
        self.hand_out_the_rest_as_unknown();
    }
}
