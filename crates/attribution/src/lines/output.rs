//! What is handed out of the main line, and what is taken back.

use super::Lines;
use super::reading::{Reading, Value};
use ampere_model::Timestamp;
use std::collections::VecDeque;

const HISTORY_MAX: usize = 4096;

/// What is decided of a reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Decided {
    /// What is known begins, or begins again, with this reading. `is_reset`: energy had been counted on the line before.
    Begins { reading: Reading, is_reset: bool },
    /// So many units more than all before.
    Rises { reading: Reading, units: f64, interval: u64 },
    /// No reading until then could be true.
    Unknown { time: Timestamp },
}

/// What was seen of the counter beside its values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    pub misreadings: u64,
    /// Readings of a counter that had not risen yet, for which one sample stands.
    pub stills: u64,
    pub wraps: u64,
    /// Tags of readings that were handed out and then found to be wrong: those between the two.
    pub taken_back: Vec<(u64, u64)>,
    /// Whether later readings showed that a sample that was handed out was wrong.
    pub is_revised: bool,
    /// How long the main line has not changed, as of its latest reading.
    pub still: u64,
}

/// What was handed out of the main line.
#[derive(Clone, Debug)]
pub(super) struct HandedOut {
    /// Readings of lately, oldest first.
    history: VecDeque<Reading>,
    /// The highest value.
    highest: Value,
    /// Time of the last sample.
    until: Timestamp,
}

impl Default for HandedOut {
    fn default() -> HandedOut {
        HandedOut { history: VecDeque::new(), highest: Value::Integer(0), until: 0 }
    }
}

impl Lines {
    pub(super) fn begin_is_waiting(&self) -> bool {
        self.main.as_ref().is_some_and(|main| main.begin.time > self.handed_out.until)
    }

    /// How long the main line has gone on since its first value, which may be wrong.
    pub(super) fn seconds_in_doubt(&self) -> f64 {
        let main = self.main.as_ref();
        main.map_or(0.0, |main| main.waiting.first().map_or(0.0, |w| self.seconds(w.time, main.last.time)))
    }

    /// Drops the main line's first value.
    pub(super) fn resolve_doubt(&mut self) {
        let Some(main) = &mut self.main else { return };
        main.drop_first_value();
        let begin = main.begin;
        self.hand_out_begin(begin, false);
    }

    /// The main line has risen: until its last reading before that it stood still.
    pub(super) fn hand_out_first_value(&mut self) {
        let Some(main) = &self.main else { return };
        let begin = main.begin;
        if begin.time > self.handed_out.until && begin.time >= self.floor {
            // Beside the first one, this one, and those that wait.
            self.findings.stills += main.readings.saturating_sub(2 + main.waiting.len() as u64);
            self.hand_out(begin);
        }
    }

    /// Hands out what waits of the main line but for the last `keep`.
    pub(super) fn hand_out_waiting(&mut self, keep: usize) {
        let Some(main) = &mut self.main else { return };
        let count = main.waiting.len().saturating_sub(keep);
        let ready: Vec<Reading> = main.waiting.drain(..count).collect();
        for reading in ready {
            if reading.time < self.floor {
                self.findings.is_revised = true; // too late for a sample: its joules come with the next one
            } else {
                self.hand_out(reading);
            }
        }
    }

    pub(super) fn hand_out(&mut self, reading: Reading) {
        let window = self.window_seconds();
        let handed_out = &mut self.handed_out;
        let units = handed_out.highest.units_to(reading.value);
        if units > 0.0 {
            handed_out.highest = reading.value;
        }
        let interval = reading.time.saturating_sub(handed_out.until);
        handed_out.until = reading.time.max(handed_out.until);
        handed_out.history.push_back(reading);
        while self.handed_out.history.len() > 1
            && (self.handed_out.history.len() > HISTORY_MAX
                || self.seconds(self.handed_out.history[1].time, reading.time) > window)
        {
            self.handed_out.history.pop_front();
        }
        self.decided.push_back(Decided::Rises { reading, units: units.max(0.0), interval });
    }

    pub(super) fn hand_out_begin(&mut self, reading: Reading, is_reset: bool) {
        self.handed_out =
            HandedOut { history: VecDeque::from([reading]), highest: reading.value, until: reading.time };
        self.decided.push_back(Decided::Begins { reading, is_reset });
    }

    /// At the end: of the time after the last sample nothing is known.
    pub(super) fn hand_out_the_rest_as_unknown(&mut self) {
        if let Some(latest) = self.latest.filter(|latest| latest.time > self.handed_out.until) {
            self.decided.push_back(Decided::Unknown { time: latest.time });
            self.handed_out.until = latest.time;
        }
    }

    /// For a reading that no line leads to: the last one that was handed out and that it can follow, and the reading as one
    /// that does. What was handed out in between were wrong rises.
    pub(super) fn before_wrong_rises(&self, reading: &Reading) -> Option<(Reading, Reading)> {
        let main = self.main.as_ref().filter(|main| main.is_confirmed() && !main.is_doubtful())?;
        let window = self.window_seconds();
        let is_recent = |before: &&Reading| self.seconds(before.time, reading.time) <= window;
        // One that is unproven comes right after what was handed out last, however long ago that was.
        let history = &self.handed_out.history;
        let last = history.back().filter(|_| main.is_unproven);
        let candidates = last.into_iter().chain(history.iter().rev().filter(is_recent));
        let mut followed =
            candidates.filter_map(|before| Some((*before, self.follow(before, before.time, reading)?)));
        followed.find(|(_, reading)| reading.value.units_to(main.last.value) > 0.0)
    }

    /// Takes back the rises between the two readings.
    pub(super) fn take_back(&mut self, before: Reading, reading: Reading) {
        self.drop_others();
        let history = &mut self.handed_out.history;
        let wrong = history.iter().rev().take_while(|last| **last != before).count();
        history.truncate(history.len() - wrong);
        let Some(main) = &mut self.main else { return };
        self.findings.misreadings += (wrong + main.waiting.len()) as u64;
        main.waiting.clear();
        if wrong > 0 {
            self.findings.is_revised = true;
            self.findings.taken_back.push((before.tag, reading.tag));
        }
        main.last = before;
        main.changed = before.time;
        self.continue_main(reading);
    }
}
