//! Which readings of a cumulative counter can be true.
//!
//! A *line* is a sequence of readings each of which can follow the one before: it is not below it, and not further above
//! than the device's greatest power allows. The *main* line is the one that energy is counted on. A reading that the main
//! line cannot lead to is held on a line of its own, until either the main line goes on, and what was held were
//! misreadings, or the other line goes on for so long without the main one that the counter must have been reset.
//!
//! Three rules keep misreadings from becoming joules:
//! - A rise is handed out when the next reading is not below it. If a later one is, the rise is taken back: nothing is
//!   handed out until the counter is where it was said to be.
//! - A line that never rises counts nothing.
//! - A line that begins at 0, or with all bits set, begins with its second value if the step to it is several times larger, and
//!   faster, than all steps that follow: such a first reading was no value of this counter.

use ampere_model::Timestamp;
use std::collections::VecDeque;

/// How far beyond the counter's usual time between changes a stall, and a wrong rise, can last.
const UPDATES_PER_WINDOW: f64 = 10.0;
const SHORTEST_WINDOW_SECONDS: f64 = 1.0;
/// The time between two changes of a counter, until it is known.
const USUAL_UPDATE_SECONDS: f64 = 0.1;
/// A reading may be so late, however often the counter changes.
const LATE_SECONDS: f64 = 0.01;
/// Lines beside the main one.
const LINES_MAX: usize = 3;
/// A line with so many rises takes the place of a main one that has never risen; and of any, at the end.
const RISES_OF_A_LINE: u32 = 3;
const HISTORY_MAX: usize = 4096;
/// Of a line that waits to be believed, so many readings are kept whatever they are, and then those that rise.
const STILLS_KEPT: u64 = 1000;
/// A first step from a value that may be none is so many times the largest that follows. A real one can be the largest.
const UNUSUAL_STEP: f64 = 4.0;

/// A raw value. Integers are kept as such: 2^53 is not enough for raw ticks.
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
    fn units_to(self, later: Value) -> f64 {
        match (self, later) {
            (Value::Integer(a), Value::Integer(b)) => (b - a) as f64,
            (a, b) => b.as_f64() - a.as_f64(),
        }
    }

    /// 0, or all bits of a counter set: what a device that does not answer reads as.
    fn is_suspicious(self, range: i128) -> bool {
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
    /// Of the line: with the ranges that the counter has passed on it.
    pub value: Value,
    /// What of `value` is passed ranges.
    passed: i128,
    pub tag: u64,
}

impl Reading {
    pub fn new(time: Timestamp, value: Value, tag: u64) -> Reading {
        Reading { time, value, passed: 0, tag }
    }
}

/// What is decided of a reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Decided {
    /// What is known begins, or begins again, with this reading. `is_reset`: on the line before energy had been counted.
    Begins { reading: Reading, is_reset: bool },
    /// So many units more than all before.
    Rises { reading: Reading, units: f64, interval: u64 },
    /// No reading until then could be true.
    Unknown { time: Timestamp },
}

#[derive(Clone, Copy, Debug, Default)]
struct Step {
    units: f64,
    units_per_tick: f64,
}

impl Step {
    fn max(self, other: Step) -> Step {
        Step {
            units: self.units.max(other.units),
            units_per_tick: self.units_per_tick.max(other.units_per_tick),
        }
    }
}

#[derive(Clone, Debug)]
struct Line {
    /// The last reading before the first rise.
    begin: Reading,
    /// Those after it that are not handed out yet.
    waiting: Vec<Reading>,
    last: Reading,
    changed: Timestamp,
    rises: u32,
    /// Of a line that begins with a suspicious value: its first step, and the most of those that follow.
    first_step: Option<(Step, Step)>,
    is_suspicious: bool,
    readings: u64,
    /// Number of its first reading, of all lines'.
    first_turn: u64,
    /// Number of the latest reading on it, of all lines'.
    turn: u64,
    /// Its last rise came after readings of other lines: by chance, one of these may have come near. It is handed out when
    /// the line goes on without others in between.
    is_unproven: bool,
    /// Readings of other lines came since it last changed.
    is_interrupted: bool,
}

impl Line {
    fn new(reading: Reading, is_suspicious: bool, turn: u64) -> Line {
        Line {
            begin: reading,
            waiting: Vec::new(),
            last: reading,
            changed: reading.time,
            rises: 0,
            first_step: None,
            is_suspicious,
            readings: 1,
            first_turn: turn,
            turn,
            is_unproven: false,
            is_interrupted: false,
        }
    }

    /// The time since the last change, if this is one and readings of no other line came between.
    fn take(&mut self, reading: Reading, turn: u64) -> Option<u64> {
        let step = self.last.value.units_to(reading.value);
        self.readings += 1;
        self.is_interrupted |= turn > self.turn + 1;
        self.turn = turn;
        let mut update = None;
        if step > 0.0 {
            self.rises += 1;
            let since = reading.time - self.changed;
            update = Some(since).filter(|_| !std::mem::take(&mut self.is_interrupted));
            self.changed = reading.time;
            if self.is_suspicious {
                let ticks = reading.time.saturating_sub(self.last.time).max(1);
                let step = Step { units: step, units_per_tick: step / ticks as f64 };
                let most = |(first, most): (Step, Step)| (first, most.max(step));
                self.first_step = Some(self.first_step.map_or((step, Step::default()), most));
            }
        }
        if self.rises == 0 {
            self.begin = reading;
        } else if let [.., a, b] = &mut self.waiting[..]
            && a.value == reading.value
            && b.value == reading.value
            && self.readings > STILLS_KEPT
        {
            *b = reading;
        } else {
            self.waiting.push(reading);
        }
        self.last = reading;
        update
    }

    /// Whether its first value may have been no value of the counter.
    fn is_doubtful(&self) -> bool {
        self.first_step.is_some_and(|(first, most)| {
            UNUSUAL_STEP * most.units < first.units
                && UNUSUAL_STEP * most.units_per_tick < first.units_per_tick
        })
    }

    /// Whether most readings since its first one, up to `turn`, are on it. Of noise, some always rise by chance.
    fn has_most(&self, turn: u64) -> bool {
        2 * self.readings > turn - self.first_turn + 1
    }

    /// Whether it may be that nothing was spent.
    fn stands_still(&self, turn: u64) -> bool {
        !self.is_suspicious && self.has_most(turn)
    }

    /// Its first value was none: it begins with the second.
    fn begin_later(&mut self) {
        if !self.waiting.is_empty() {
            self.begin = self.waiting.remove(0);
            self.rises -= 1;
        }
        if self.rises == 0 {
            self.begin = self.last;
            self.waiting.clear();
        }
        self.first_step = None;
        self.is_suspicious = false;
    }
}

/// What a counter can do in some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    pub ticks_per_second: f64,
    /// Units, at the device's greatest power.
    pub units_per_second: f64,
    /// The counter starts again at 0 there.
    pub range: i128,
}

#[derive(Clone, Debug)]
pub(crate) struct Lines {
    reach: Reach,
    main: Option<Line>,
    others: Vec<Line>,
    /// What was handed out of the main line lately, oldest first.
    history: VecDeque<Reading>,
    /// The highest value that was handed out of the main line.
    highest: Value,
    /// Time of the last sample that was handed out.
    handed_out: Timestamp,
    /// Samples before this cannot be handed out any more.
    floor: Timestamp,
    updates: Intervals,
    latest: Option<Reading>,
    turn: u64,
    pub decided: VecDeque<Decided>,
    pub misreadings: u64,
    /// Readings of a counter that had not risen yet, for which one sample stands.
    pub stills: u64,
    pub wraps: u64,
    /// Tags of readings that were handed out and then found to be wrong: those between the two.
    pub taken_back: Vec<(u64, u64)>,
    /// Whether something was handed out otherwise than is known now.
    pub is_revised: bool,
    /// How long the main line has not changed, as of its latest reading.
    pub still: u64,
}

impl Lines {
    pub fn new(reach: Reach) -> Lines {
        Lines {
            reach,
            main: None,
            others: Vec::new(),
            history: VecDeque::new(),
            highest: Value::Integer(0),
            handed_out: 0,
            floor: 0,
            updates: Intervals::default(),
            latest: None,
            turn: 0,
            decided: VecDeque::new(),
            misreadings: 0,
            stills: 0,
            wraps: 0,
            taken_back: Vec::new(),
            is_revised: false,
            still: 0,
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

    /// The value on a line that a raw reading is, if the line can have got there from its last value.
    fn way(&self, from: &Reading, changed: Timestamp, to: &Reading) -> Option<Reading> {
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

    /// Readings come in order of time.
    pub fn read(&mut self, reading: Reading) {
        // An error code.
        if reading.value.as_f64() < 0.0
            && self.main.as_ref().is_some_and(|main| main.last.value.as_f64() >= 0.0)
        {
            self.misreadings += 1;
            return;
        }
        self.turn += 1;
        self.latest = Some(reading);
        if self.main.is_none() {
            return self.begin(reading);
        }
        match self.line_of(&reading) {
            Some((None, reading)) => match &self.main {
                // After other readings, one that has stood alone for so long leads anywhere.
                Some(main) if main.rises == 0 && main.turn + 1 < self.turn && self.is_old(main) => {
                    self.misreadings += main.readings;
                    self.drop_others();
                    self.begin(reading);
                }
                _ => self.go_on(reading),
            },
            Some((Some(other), reading)) => {
                if self.is_old(&self.others[other]) {
                    let readings = self.others[other].readings + 1;
                    self.others[other] = Line { readings, ..self.line(reading) };
                    return;
                }
                let update = self.others[other].take(reading, self.turn);
                update.iter().for_each(|update| self.updates.add(*update));
                self.change_line_if_due(other);
            }
            None => match self.before_wrong_rises(&reading) {
                Some((before, reading)) => self.take_back(before, reading),
                None => self.hold(reading),
            },
        }
    }

    /// What was held beside the main line were misreadings.
    fn drop_others(&mut self) {
        self.misreadings += self.others.drain(..).map(|line| line.readings).sum::<u64>();
    }

    fn line(&self, reading: Reading) -> Line {
        Line::new(reading, reading.value.is_suspicious(self.reach.range), self.turn)
    }

    fn begin(&mut self, reading: Reading) {
        self.main = Some(self.line(reading));
        self.hand_out_begin(reading, false);
    }

    /// Of the lines that can lead to a reading the one that was read last: the main one (`None`), or which of the others.
    fn line_of(&self, reading: &Reading) -> Option<(Option<usize>, Reading)> {
        let way = |line: &Line| self.way(&line.last, line.changed, reading);
        // After readings of other lines, the main one is not met again in a value that may be none.
        let is_met = |main: &&Line| {
            let is_after_others = main.turn + 1 < self.turn && main.last.value != reading.value;
            !is_after_others || !reading.value.is_suspicious(self.reach.range)
        };
        let main = self.main.as_ref().filter(is_met);
        let main = main.and_then(|line| Some((line.turn, None, way(line)?)));
        // Of a value that is none, nothing goes on that the main line leads to, too.
        let others = self.others.iter().enumerate().filter(|(_, line)| {
            let is_none = line.is_suspicious && line.rises == 0 && line.last.value != reading.value;
            main.is_none() || !is_none
        });
        let others = others.filter_map(|(at, line)| Some((line.turn, Some(at), way(line)?)));
        let latest = others.chain(main).max_by_key(|(turn, ..)| *turn);
        latest.map(|(_, at, reading)| (at, reading))
    }

    /// The main line goes on.
    fn go_on(&mut self, reading: Reading) {
        self.drop_others();
        let window = self.window_seconds();
        let Some(main) = &mut self.main else { return };
        let comes_back = main.turn + 1 < self.turn;
        if comes_back && main.is_unproven {
            main.waiting.clear(); // nothing has confirmed it: the sample is this one
        }
        main.is_unproven = comes_back;
        self.wraps += u64::from(reading.passed > main.last.passed);
        let was_confirmed = main.rises > 0;
        let is_rise = main.last.value != reading.value;
        let update = main.take(reading, self.turn);
        update.iter().for_each(|update| self.updates.add(*update));
        self.still = reading.time - main.changed;
        if main.rises == 0 {
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

    fn begin_is_waiting(&self) -> bool {
        self.main.as_ref().is_some_and(|main| main.begin.time > self.handed_out)
    }

    fn seconds_in_doubt(&self) -> f64 {
        let main = self.main.as_ref();
        main.map_or(0.0, |main| main.waiting.first().map_or(0.0, |w| self.seconds(w.time, main.last.time)))
    }

    fn resolve_doubt(&mut self) {
        let Some(main) = &mut self.main else { return };
        main.begin_later();
        let begin = main.begin;
        self.hand_out_begin(begin, false);
    }

    /// The main line has risen: until its last reading before it stood still.
    fn hand_out_first_value(&mut self) {
        let Some(main) = &self.main else { return };
        let begin = main.begin;
        if begin.time > self.handed_out && begin.time >= self.floor {
            // Beside the first one, this one, and those that wait.
            self.stills += main.readings.saturating_sub(2 + main.waiting.len() as u64);
            self.hand_out(begin);
        }
    }

    /// Hands out what waits of the main line but for the last so many.
    fn hand_out_waiting(&mut self, keep: usize) {
        let Some(main) = &mut self.main else { return };
        let count = main.waiting.len().saturating_sub(keep);
        let ready: Vec<Reading> = main.waiting.drain(..count).collect();
        for reading in ready {
            if reading.time < self.floor {
                self.is_revised = true; // too late for a sample: its joules come with the next one
            } else {
                self.hand_out(reading);
            }
        }
    }

    fn hand_out(&mut self, reading: Reading) {
        let units = self.highest.units_to(reading.value);
        if units > 0.0 {
            self.highest = reading.value;
        }
        let interval = reading.time.saturating_sub(self.handed_out);
        self.handed_out = reading.time.max(self.handed_out);
        self.history.push_back(reading);
        let window = self.window_seconds();
        while self.history.len() > 1
            && (self.history.len() > HISTORY_MAX || self.seconds(self.history[1].time, reading.time) > window)
        {
            self.history.pop_front();
        }
        self.decided.push_back(Decided::Rises { reading, units: units.max(0.0), interval });
    }

    fn hand_out_begin(&mut self, reading: Reading, is_reset: bool) {
        self.highest = reading.value;
        self.handed_out = reading.time;
        self.history.clear();
        self.history.push_back(reading);
        self.decided.push_back(Decided::Begins { reading, is_reset });
    }

    /// What was handed out last, of all that a reading can follow, where no line leads to it.
    fn before_wrong_rises(&self, reading: &Reading) -> Option<(Reading, Reading)> {
        let main = self.main.as_ref().filter(|main| main.rises > 0 && !main.is_doubtful())?;
        let window = self.window_seconds();
        let is_recent = |before: &&Reading| self.seconds(before.time, reading.time) <= window;
        // One that is unproven comes right after what was handed out last, however long ago that was.
        let last = self.history.back().filter(|_| main.is_unproven);
        let candidates = last.into_iter().chain(self.history.iter().rev().filter(is_recent));
        let mut ways =
            candidates.filter_map(|before| Some((*before, self.way(before, before.time, reading)?)));
        ways.find(|(_, reading)| reading.value.units_to(main.last.value) > 0.0)
    }

    /// The rises between the two were none.
    fn take_back(&mut self, before: Reading, reading: Reading) {
        self.drop_others();
        let handed_out = self.history.iter().rev().take_while(|last| **last != before).count();
        self.history.truncate(self.history.len() - handed_out);
        let Some(main) = &mut self.main else { return };
        self.misreadings += (handed_out + main.waiting.len()) as u64;
        main.waiting.clear();
        if handed_out > 0 {
            self.is_revised = true;
            self.taken_back.push((before.tag, reading.tag));
        }
        main.last = before;
        main.changed = before.time;
        self.go_on(reading);
    }

    /// A reading that nothing leads to begins a line.
    fn hold(&mut self, reading: Reading) {
        if self.main.as_ref().is_some_and(|main| main.rises > 0 && !main.is_doubtful() && !main.is_unproven) {
            self.hand_out_waiting(0);
        }
        if self.others.len() >= LINES_MAX {
            let unrisen = self.others.iter().enumerate().filter(|(_, line)| line.rises == 0);
            let Some((oldest, _)) = unrisen.min_by_key(|(_, line)| line.turn) else {
                self.misreadings += 1;
                return;
            };
            self.misreadings += self.others.remove(oldest).readings;
        }
        // A counter that moves seldom: its first steps look out of reach.
        let has_begun = self.main.as_ref().is_some_and(|main| main.rises > 0);
        let all = self.main.iter().chain(&self.others).filter(|_| !has_begun);
        let latest = all.max_by_key(|line| line.turn).filter(|line| !line.is_suspicious);
        if let Some(line) = latest.filter(|line| line.last.value.units_to(reading.value) > 0.0) {
            self.updates.add(reading.time - line.changed);
        }
        self.others.push(self.line(reading));
    }

    /// Whether a line has not been read for so long that what it had is over: readings that it leads to are still its own.
    fn is_old(&self, line: &Line) -> bool {
        let now = self.latest.map_or(0, |latest| latest.time);
        self.seconds(line.last.time, now) > self.window_seconds()
    }

    /// Another line has gone on. If the main one has not been met for long enough, the counter was reset.
    fn change_line_if_due(&mut self, other: usize) {
        let window = self.window_seconds();
        let main_is_confirmed = self.main.as_ref().is_some_and(|main| main.rises > 0);
        let line = &mut self.others[other];
        let is_long =
            line.last.time.saturating_sub(line.begin.time) as f64 >= window * self.reach.ticks_per_second;
        if line.rises > 0 && is_long && line.is_doubtful() {
            line.begin_later();
        }
        let is_certain = is_long || (!main_is_confirmed && line.rises >= RISES_OF_A_LINE);
        if line.rises > 0 && !line.is_doubtful() && is_certain && line.has_most(self.turn) {
            self.change_line(other);
        }
    }

    fn change_line(&mut self, other: usize) {
        let mut line = self.others.remove(other);
        self.drop_others();
        let before = self.main.take();
        let is_reset = before.as_ref().is_some_and(|main| main.rises > 0);
        self.misreadings += before.filter(|_| !is_reset).map_or(0, |main| main.readings);
        while line.begin.time < self.floor && !line.waiting.is_empty() {
            line.begin = line.waiting.remove(0);
            self.is_revised = true;
        }
        let last = line.waiting.last().copied();
        let is_rise =
            last.is_some_and(|last| line.waiting.iter().rev().nth(1).is_none_or(|b| b.value != last.value));
        self.still = line.last.time - line.changed;
        self.hand_out_begin(Reading { time: line.begin.time.max(self.floor), ..line.begin }, is_reset);
        self.main = Some(line);
        self.hand_out_waiting(usize::from(is_rise));
    }

    /// No sample that is still to come is before this. `None`: before the next reading.
    pub fn undecided_since(&self) -> Option<Timestamp> {
        let main = self.main.as_ref()?;
        let begin = Some(main.begin.time).filter(|time| *time > self.handed_out);
        let of_main = begin.or(main.waiting.first().map(|waiting| waiting.time));
        let others = self.others.iter().filter(|line| !self.is_old(line)).map(|line| line.begin.time);
        of_main.into_iter().chain(others).min()
    }

    /// The caller cannot wait any longer: samples from now on are not before this.
    pub fn decide_before(&mut self, time: Timestamp) {
        let Some(main) = &self.main else { return };
        if main.rises > 0 {
            if main.is_doubtful() {
                self.resolve_doubt();
                self.is_revised = true;
            }
            let Some(main) = &self.main else { return };
            let early =
                main.waiting.iter().filter(|waiting| waiting.time < time && !main.is_unproven).count();
            self.hand_out_waiting(main.waiting.len() - early);
        } else if main.begin.time > self.handed_out && main.begin.time < time && main.stands_still(self.turn)
        {
            self.hand_out(main.begin);
        }
        self.floor = self.floor.max(time);
    }

    /// There are no more readings.
    pub fn end(&mut self) {
        let Some(main) = &self.main else { return };
        // A counter that was reset is below where it was. One that is above may have caught up faster than it should.
        let is_below = |line: &Line| {
            main.rises == 0
                || line.rises >= RISES_OF_A_LINE
                || line.last.value.units_to(main.last.value) > 0.0
        };
        let candidates = self.others.iter().enumerate();
        let is_certain = |line: &Line| line.rises > 0 && line.has_most(self.turn) && is_below(line);
        let risen = candidates.filter(|(_, line)| is_certain(line));
        if let Some((at, _)) = risen.max_by_key(|(_, line)| line.turn) {
            let line = &mut self.others[at];
            if line.is_doubtful() && line.rises > 1 {
                line.begin_later();
            }
            self.change_line(at);
        }
        self.drop_others();
        let Some(main) = &self.main else { return };
        let is_unproven = main.is_unproven;
        if main.is_doubtful() && main.rises > 1 {
            self.resolve_doubt();
        } else if main.rises > 0 || main.stands_still(self.turn) {
            self.hand_out_first_value();
        } else if main.has_most(self.turn) {
            self.stills += main.readings.saturating_sub(2); // it never said anything
        }
        self.hand_out_waiting(usize::from(is_unproven));
        if let Some(latest) = self.latest.filter(|latest| latest.time > self.handed_out) {
            self.decided.push_back(Decided::Unknown { time: latest.time });
            self.handed_out = latest.time;
        }
    }
}

/// The lengths of the last intervals.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Intervals {
    ticks: [u64; Intervals::KEPT],
    count: usize,
}

impl Intervals {
    const KEPT: usize = 15;

    pub fn add(&mut self, ticks: u64) {
        self.ticks[self.count % Intervals::KEPT] = ticks;
        self.count += 1;
    }

    /// `None` where there are fewer than so many.
    pub fn median(&self, least: usize) -> Option<u64> {
        self.quantile(2, least)
    }

    /// Of four, one is shorter.
    pub fn lower_quartile(&self) -> Option<u64> {
        self.quantile(4, 1)
    }

    fn quantile(&self, parts: usize, least: usize) -> Option<u64> {
        let mut known = self.ticks;
        let known = &mut known[..self.count.min(Intervals::KEPT)];
        known.sort_unstable();
        (known.len() >= least).then(|| known[known.len() / parts])
    }
}
