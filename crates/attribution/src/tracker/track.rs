//! One track: a sequence of readings, each of which can follow the one before.

use super::reading::Reading;
use ampere_model::Timestamp;

/// After this many readings of a track, only the first and the last of several waiting readings with the same value are kept.
const STILLS_KEPT: u64 = 1000;
/// A first value is near 0 if the second one is at least this many times larger.
const NEAR_ZERO_RATIO: f64 = 100.0;
/// A first step that is more than this many times the largest of those that follow may come from a wrong value. The first step of
/// a real counter can be the largest, too, but hardly by so much.
const UNUSUAL_STEP: f64 = 4.0;
/// The number of rises before a suspicious first value can be dropped.
const RISES_AFTER_SUSPICIOUS: u32 = 2;
/// The number of rises before a first value can be dropped only because it is near 0. Of two or three steps, the first is often
/// the largest.
const RISES_AFTER_NEAR_ZERO: u32 = 4;

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
pub(super) struct Track {
    /// The last reading before the first rise.
    pub start: Reading,
    /// The later readings that are not emitted yet.
    pub waiting: Vec<Reading>,
    pub last: Reading,
    /// The time when the value last changed.
    pub changed: Timestamp,
    pub rises: u32,
    /// For a track that starts with a suspicious value, or near 0: its first step, and the largest of those that follow.
    first_step: Option<(Step, Step)>,
    pub is_suspicious: bool,
    pub readings: u64,
    /// The number of the track's first reading, counted over all tracks.
    first_number: u64,
    /// The number of the track's latest reading, counted over all tracks.
    pub number: u64,
    /// Whether the track's last rise came after readings of other tracks, one of which may have come near it by chance. The
    /// rise is emitted when the next reading of this track comes without others in between.
    pub is_unproven: bool,
    /// Whether there were readings of other tracks since the value last changed.
    is_interrupted: bool,
}

impl Track {
    pub fn new(reading: Reading, is_suspicious: bool, number: u64) -> Track {
        Track {
            start: reading,
            waiting: Vec::new(),
            last: reading,
            changed: reading.time,
            rises: 0,
            first_step: None,
            is_suspicious,
            readings: 1,
            first_number: number,
            number,
            is_unproven: false,
            is_interrupted: false,
        }
    }

    /// Appends a reading. Returns the time since the value last changed, if it changes now and no reading of another track came
    /// in between.
    pub fn append(&mut self, reading: Reading, number: u64) -> Option<u64> {
        let step = self.last.value.units_to(reading.value);
        self.readings += 1;
        self.is_interrupted |= number > self.number + 1;
        self.number = number;
        let mut update = None;
        if step > 0.0 {
            self.rises += 1;
            let since = reading.time - self.changed;
            update = Some(since).filter(|_| !std::mem::take(&mut self.is_interrupted));
            self.changed = reading.time;
            let is_from_zero =
                self.last.value.as_f64().abs() * NEAR_ZERO_RATIO <= reading.value.as_f64().abs();
            if self.is_suspicious || self.first_step.is_some() || (self.rises == 1 && is_from_zero) {
                let ticks = reading.time.saturating_sub(self.last.time).max(1);
                let step = Step { units: step, units_per_tick: step / ticks as f64 };
                let with_first = |(first, largest): (Step, Step)| (first, largest.max(step));
                self.first_step = Some(self.first_step.map_or((step, Step::default()), with_first));
            }
        }
        if self.rises == 0 {
            self.start = reading;
        } else {
            self.wait(reading);
        }
        self.last = reading;
        update
    }

    /// Keeps a reading until it is emitted. If the value does not change for long, the first and the last reading are enough.
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

    /// Whether the track's first value may be a misreading.
    pub fn is_doubtful(&self) -> bool {
        self.first_step.is_some_and(|(first, largest)| {
            UNUSUAL_STEP * largest.units < first.units
                && UNUSUAL_STEP * largest.units_per_tick < first.units_per_tick
        })
    }

    /// Whether enough steps are known to drop a doubtful first value.
    pub fn has_steps_to_compare(&self) -> bool {
        self.rises >= if self.is_suspicious { RISES_AFTER_SUSPICIOUS } else { RISES_AFTER_NEAR_ZERO }
    }

    /// Whether the counter is known to count on this track.
    pub fn is_confirmed(&self) -> bool {
        self.rises > 0
    }

    /// Whether most readings from the track's first one to number `number` are on the track. Even in pure noise, some readings
    /// rise by chance.
    pub fn has_most_readings(&self, number: u64) -> bool {
        2 * self.readings > number - self.first_number + 1
    }

    /// Whether the device may have used no energy.
    pub fn may_stand_still(&self, number: u64) -> bool {
        !self.is_suspicious && self.has_most_readings(number)
    }

    /// Drops the first value: the track starts with the second.
    pub fn drop_first_value(&mut self) {
        if !self.waiting.is_empty() {
            self.start = self.waiting.remove(0);
            self.rises -= 1;
        }
        if self.rises == 0 {
            self.start = self.last;
            self.waiting.clear();
        }
        self.first_step = None;
        self.is_suspicious = false;
    }
}
