//! Decides which readings of the main track are emitted, and which are taken back.

use super::ReadingTracker;
use super::reading::{Decision, Emitted, Reading};
use std::collections::VecDeque;

const HISTORY_MAX: usize = 4096;

impl ReadingTracker {
    pub(super) fn start_is_waiting(&self) -> bool {
        self.main.as_ref().is_some_and(|main| main.start.time > self.emitted.until)
    }

    /// Returns the time since the main track's first step, whose first value may be wrong.
    pub(super) fn seconds_in_doubt(&self) -> f64 {
        let main = self.main.as_ref();
        main.map_or(0.0, |main| main.waiting.first().map_or(0.0, |w| self.seconds(w.time, main.last.time)))
    }

    pub(super) fn resolve_doubt(&mut self) {
        let Some(main) = &mut self.main else { return };
        main.drop_first_value();
        let start = main.start;
        self.emit_start(start, false);
    }

    /// Emits the last reading before the first rise of the main track. Up to this reading the value did not change.
    pub(super) fn emit_first_value(&mut self) {
        let Some(main) = &self.main else { return };
        let start = main.start;
        if start.time > self.emitted.until && start.time >= self.floor {
            // The first reading, the current one and the waiting ones are not counted as unchanged.
            self.findings.unchanged += main.readings.saturating_sub(2 + main.waiting.len() as u64);
            self.emit(start);
        }
    }

    /// Emits the waiting readings of the main track, except the last `keep`.
    pub(super) fn emit_waiting(&mut self, keep: usize) {
        let Some(main) = &mut self.main else { return };
        let count = main.waiting.len().saturating_sub(keep);
        let ready: Vec<Reading> = main.waiting.drain(..count).collect();
        for reading in ready {
            if reading.time < self.floor {
                self.findings.is_revised = true; // it is too late to emit this sample, so its joules are in the next one
            } else {
                self.emit(reading);
            }
        }
    }

    pub(super) fn emit(&mut self, reading: Reading) {
        let window = self.window_seconds();
        let emitted = &mut self.emitted;
        let units = emitted.highest.units_to(reading.value);
        if units > 0.0 {
            emitted.highest = reading.value;
        }
        let interval = reading.time.saturating_sub(emitted.until);
        emitted.until = reading.time.max(emitted.until);
        emitted.history.push_back(reading);
        while self.emitted.history.len() > 1
            && (self.emitted.history.len() > HISTORY_MAX
                || self.seconds(self.emitted.history[1].time, reading.time) > window)
        {
            self.emitted.history.pop_front();
        }
        self.decisions.push_back(Decision::Rise { reading, units: units.max(0.0), interval });
    }

    pub(super) fn emit_start(&mut self, reading: Reading, is_reset: bool) {
        self.emitted =
            Emitted { history: VecDeque::from([reading]), highest: reading.value, until: reading.time };
        self.decisions.push_back(Decision::Start { reading, is_reset });
    }

    /// At the end, marks the time after the last sample as unknown.
    pub(super) fn emit_rest_as_unknown(&mut self) {
        if let Some(latest) = self.latest.filter(|latest| latest.time > self.emitted.until) {
            self.decisions.push_back(Decision::Unknown { time: latest.time });
            self.emitted.until = latest.time;
        }
    }

    /// If a reading does not fit any track, finds the last emitted reading that it can follow. Returns that reading, and the
    /// given one as its successor. The readings that were emitted in between were wrong.
    pub(super) fn before_wrong_rises(&self, reading: &Reading) -> Option<(Reading, Reading)> {
        let main = self.main.as_ref().filter(|main| main.is_confirmed() && !main.is_doubtful())?;
        let window = self.window_seconds();
        let is_recent = |before: &&Reading| self.seconds(before.time, reading.time) <= window;
        // If the main track is unproven, the last emitted reading is a candidate, however old it is.
        let history = &self.emitted.history;
        let last = history.back().filter(|_| main.is_unproven);
        let candidates = last.into_iter().chain(history.iter().rev().filter(is_recent));
        let mut followed =
            candidates.filter_map(|before| Some((*before, self.follow(before, before.time, reading)?)));
        followed.find(|(_, reading)| reading.value.units_to(main.last.value) > 0.0)
    }

    /// Takes back the rises between the two readings.
    pub(super) fn take_back(&mut self, before: Reading, reading: Reading) {
        self.drop_others();
        let history = &mut self.emitted.history;
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
