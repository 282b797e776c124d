//! One line: readings each of which can follow the one before.

use super::reading::Reading;
use ampere_model::Timestamp;

/// Of a line that waits to be believed, so many readings are kept whatever they are, and then only those that rise.
const STILLS_KEPT: u64 = 1000;
/// A first step from a value that may be wrong is so many times the largest that follows. A real one can be the largest.
const UNUSUAL_STEP: f64 = 4.0;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
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
pub(super) struct Line {
    /// The last reading before the first rise.
    pub begin: Reading,
    /// The readings after it that are not handed out yet.
    pub waiting: Vec<Reading>,
    pub last: Reading,
    /// When the value last changed.
    pub changed: Timestamp,
    pub rises: u32,
    /// Of a line that begins with a suspicious value: its first step, and the largest of those that follow.
    first_step: Option<(Step, Step)>,
    pub is_suspicious: bool,
    pub readings: u64,
    /// Number of its first reading, counted over all lines.
    first_turn: u64,
    /// Number of its latest reading, counted over all lines.
    pub turn: u64,
    /// Its last rise came after readings of other lines: by chance, one of these may have come near. It is handed out when
    /// the line goes on without others in between.
    pub is_unproven: bool,
    /// Readings of other lines came since it last changed.
    is_interrupted: bool,
}

impl Line {
    pub fn new(reading: Reading, is_suspicious: bool, turn: u64) -> Line {
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

    /// Appends a reading. Returns the time since the value last changed, if it changes now and no reading of another line
    /// came in between.
    pub fn append(&mut self, reading: Reading, turn: u64) -> Option<u64> {
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
                let with_first = |(first, largest): (Step, Step)| (first, largest.max(step));
                self.first_step = Some(self.first_step.map_or((step, Step::default()), with_first));
            }
        }
        if self.rises == 0 {
            self.begin = reading;
        } else {
            self.wait(reading);
        }
        self.last = reading;
        update
    }

    /// Keeps a reading until it is handed out. Of a long time without a change, first and last are enough.
    fn wait(&mut self, reading: Reading) {
        if let [.., a, b] = &mut self.waiting[..]
            && a.value == reading.value
            && b.value == reading.value
            && self.readings > STILLS_KEPT
        {
            *b = reading;
        } else {
            self.waiting.push(reading);
        }
    }

    /// Whether its first value may not have been a value of the counter.
    pub fn is_doubtful(&self) -> bool {
        self.first_step.is_some_and(|(first, largest)| {
            UNUSUAL_STEP * largest.units < first.units
                && UNUSUAL_STEP * largest.units_per_tick < first.units_per_tick
        })
    }

    /// Whether the counter is known to count on this line.
    pub fn is_confirmed(&self) -> bool {
        self.rises > 0
    }

    /// Whether most readings since its first one, up to `turn`, are on it. Of noise, some always rise by chance.
    pub fn has_most(&self, turn: u64) -> bool {
        2 * self.readings > turn - self.first_turn + 1
    }

    /// Whether it may be that nothing was spent.
    pub fn may_stand_still(&self, turn: u64) -> bool {
        !self.is_suspicious && self.has_most(turn)
    }

    /// Drops the first value: the line begins with the second.
    pub fn drop_first_value(&mut self) {
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
