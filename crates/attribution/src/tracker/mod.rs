//! Decides which readings of a cumulative counter can be true.
//!
//! A *track* is a sequence of readings. Each can follow the one before: it is not lower, and it is not higher than the device's
//! greatest power allows. Energy is counted on the *main* track. A reading that cannot follow the main track is held on a track
//! of its own, until one of two things happens. Either a reading continues the main track, so that the held readings were
//! misreadings. Or the other track is continued for a long enough time without the main one, so that the counter must have been
//! reset.
//!
//! Three rules keep misreadings from becoming joules:
//! - A rise is emitted when the next reading is not below it. If a later reading is below it, the rise is taken back: nothing
//!   more is emitted until the counter has reached the counted value again.
//! - A track that never rises counts nothing.
//! - A track that starts near 0, or with all bits set, starts with its second value if the step to it is several times larger, and
//!   faster, than all steps that follow: such a first reading was not a value of this counter.
//!
//! ```text
//! reading.rs  a raw reading, and decisions about readings
//! track.rs    one track
//! mod.rs      which track a reading is on, and when the main track changes
//! output.rs   which readings of the main track are emitted, and which are taken back
//! ```

mod output;
mod reading;
mod track;

pub(crate) use reading::{Decision, Reading, Value};

use crate::intervals::Intervals;
use ampere_model::Timestamp;
use reading::{Emitted, Findings};
use std::collections::VecDeque;
use track::Track;

/// A stall, and a wrong rise, can last for up to this many of the counter's usual times between changes.
const UPDATES_PER_WINDOW: f64 = 10.0;
const WINDOW_MIN_SECONDS: f64 = 1.0;
/// The time that is assumed between two changes of a counter, as long as it is not known.
const USUAL_UPDATE_SECONDS: f64 = 0.1;
/// The sampler may read a counter this late, even one that changes often.
const LATE_SECONDS: f64 = 0.01;
/// The maximum number of tracks other than the main one.
const OTHER_TRACKS_MAX: usize = 3;
/// A track with this many rises replaces a main track that has never risen; and, at the end, any main track.
const RISES_OF_A_TRACK: u32 = 3;

/// Limits on the change of a counter in some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlausibilityLimits {
    pub ticks_per_second: f64,
    /// The counter's units per second at the device's greatest power.
    pub units_per_second: f64,
    /// The value at which the counter starts again at 0.
    pub range: i128,
}

/// Decides which readings of a cumulative counter can be true.
#[derive(Clone, Debug)]
pub(crate) struct ReadingTracker {
    limits: PlausibilityLimits,
    main: Option<Track>,
    /// Tracks of readings that cannot follow the main track.
    others: Vec<Track>,
    emitted: Emitted,
    /// Samples before this time can no longer be emitted.
    floor: Timestamp,
    /// The times between the counter's changes.
    updates: Intervals,
    latest: Option<Reading>,
    /// The number of the latest reading.
    number: u64,
    /// The decisions that the caller has not yet taken.
    pub decisions: VecDeque<Decision>,
    pub findings: Findings,
}

/// A track that a reading can be on: the main one, or one of the others, by its index.
#[derive(Clone, Copy)]
enum TrackId {
    Main,
    Other(usize),
}

impl ReadingTracker {
    pub fn new(limits: PlausibilityLimits) -> ReadingTracker {
        ReadingTracker {
            limits,
            main: None,
            others: Vec::new(),
            emitted: Emitted::default(),
            floor: 0,
            updates: Intervals::default(),
            latest: None,
            number: 0,
            decisions: VecDeque::new(),
            findings: Findings::default(),
        }
    }

    pub fn set_range(&mut self, range: i128) {
        self.limits.range = range;
    }

    pub fn set_units_per_second(&mut self, units_per_second: f64) {
        self.limits.units_per_second = units_per_second;
    }

    fn update_seconds(&self) -> f64 {
        let usual = self.updates.lower_quartile().map(|ticks| ticks as f64 / self.limits.ticks_per_second);
        usual.unwrap_or(USUAL_UPDATE_SECONDS)
    }

    fn window_seconds(&self) -> f64 {
        (UPDATES_PER_WINDOW * self.update_seconds()).max(WINDOW_MIN_SECONDS)
    }

    fn seconds(&self, from: Timestamp, to: Timestamp) -> f64 {
        to.saturating_sub(from) as f64 / self.limits.ticks_per_second
    }

    /// Returns the reading `to` as a reading of a track, if it can follow the track's last reading `from`. `changed` is the time
    /// when the track's value last changed.
    fn follow(&self, from: &Reading, changed: Timestamp, to: &Reading) -> Option<Reading> {
        let (update, window) = (self.update_seconds(), self.window_seconds());
        let still = self.seconds(changed, from.time);
        let passed = self.seconds(from.time, to.time);
        // A change that was seen late leaves less time until the next one.
        let stall = still.min(window).max(update.clamp(LATE_SECONDS, USUAL_UPDATE_SECONDS));
        let units_max = self.limits.units_per_second * (passed + stall).max(f64::MIN_POSITIVE);
        if units_max >= self.limits.range as f64 && units_max.is_finite() {
            return None; // it may have wrapped any number of times
        }
        let (value, wrapped) = match (from.value, to.value) {
            (_, Value::Integer(raw)) if raw >= self.limits.range => return None,
            (Value::Integer(a), Value::Integer(raw)) => {
                let same = from.passed + raw;
                let last = a - from.passed;
                let can_wrap = last < self.limits.range - 1 && passed + still <= window;
                match same >= a {
                    true => (Value::Integer(same), 0),
                    false if can_wrap && last >= 0 => {
                        (Value::Integer(same + self.limits.range), self.limits.range)
                    }
                    false => return None,
                }
            }
            (_, value) => (value, 0),
        };
        let units = from.value.units_to(value);
        (0.0..=units_max).contains(&units).then_some(Reading { value, passed: from.passed + wrapped, ..*to })
    }

    /// Processes a reading. Readings come in order of time.
    pub fn read(&mut self, reading: Reading) {
        let is_error_code = reading.value.as_f64() < 0.0
            && self.main.as_ref().is_some_and(|main| main.last.value.as_f64() >= 0.0);
        if is_error_code {
            self.findings.misreadings += 1;
            return;
        }
        self.number += 1;
        self.latest = Some(reading);
        if self.main.is_none() {
            return self.start_main(reading);
        }
        match self.track_of(&reading) {
            Some((TrackId::Main, reading)) => match &self.main {
                // If the main track has never risen, and only other tracks were read for a window, it starts anew.
                Some(main) if !main.is_confirmed() && main.number + 1 < self.number && self.is_old(main) => {
                    self.findings.misreadings += main.readings;
                    self.drop_others();
                    self.start_main(reading);
                }
                _ => self.continue_main(reading),
            },
            Some((TrackId::Other(other), reading)) => self.continue_other(other, reading),
            None => match self.before_wrong_rises(&reading) {
                Some((before, reading)) => self.take_back(before, reading),
                None => self.hold(reading),
            },
        }
    }

    /// Drops the tracks other than the main one: their readings were misreadings.
    fn drop_others(&mut self) {
        self.findings.misreadings += self.others.drain(..).map(|track| track.readings).sum::<u64>();
    }

    fn track(&self, reading: Reading) -> Track {
        Track::new(reading, reading.value.is_suspicious(self.limits.range), self.number)
    }

    fn start_main(&mut self, reading: Reading) {
        self.main = Some(self.track(reading));
        self.emit_start(reading, false);
    }

    /// Among the tracks that a reading can follow, finds the one that was read last.
    fn track_of(&self, reading: &Reading) -> Option<(TrackId, Reading)> {
        let follow = |track: &Track| self.follow(&track.last, track.changed, reading);
        // After readings of other tracks, the main one is not resumed by a suspicious value.
        let may_resume = |main: &&Track| {
            let is_after_others = main.number + 1 < self.number && main.last.value != reading.value;
            !is_after_others || !reading.value.is_suspicious(self.limits.range)
        };
        let main = self.main.as_ref().filter(may_resume);
        let main = main.and_then(|track| Some((track.number, TrackId::Main, follow(track)?)));
        // A reading that can also follow the main track does not go to a track that has only a suspicious value or one below
        // the main track: such a single value was a misreading.
        let is_below = |track: &Track| {
            self.main.as_ref().is_some_and(|main| track.last.value.units_to(main.last.value) > 0.0)
        };
        let others = self.others.iter().enumerate().filter(|(_, track)| {
            let may_be_wrong = track.is_suspicious || is_below(track);
            let has_no_value = may_be_wrong && track.rises == 0 && track.last.value != reading.value;
            main.is_none() || !has_no_value
        });
        let others =
            others.filter_map(|(at, track)| Some((track.number, TrackId::Other(at), follow(track)?)));
        let latest = others.chain(main).max_by_key(|(number, ..)| *number);
        latest.map(|(_, id, reading)| (id, reading))
    }

    fn continue_main(&mut self, reading: Reading) {
        self.drop_others();
        let window = self.window_seconds();
        let Some(main) = &mut self.main else { return };
        let comes_back = main.number + 1 < self.number;
        if comes_back && main.is_unproven {
            main.waiting.clear(); // the last reading is not confirmed, so this reading becomes the sample
        }
        main.is_unproven = comes_back;
        self.findings.wraps += u64::from(reading.passed > main.last.passed);
        let was_confirmed = main.is_confirmed();
        let is_rise = main.last.value != reading.value;
        if let Some(update) = main.append(reading, self.number) {
            self.updates.add(update);
        }
        self.findings.unchanged_ticks = reading.time - main.changed;
        if !main.is_confirmed() {
            return;
        }
        if main.is_doubtful() {
            if !main.has_steps_to_compare() || self.seconds_in_doubt() < window {
                return;
            }
            self.resolve_doubt();
        } else if !was_confirmed || self.start_is_waiting() {
            self.emit_first_value();
        }
        // A reading that is not a rise needs no confirmation by the next one.
        self.emit_waiting(usize::from(is_rise));
    }

    fn continue_other(&mut self, other: usize, reading: Reading) {
        if self.is_old(&self.others[other]) {
            let mut track = self.track(reading);
            track.readings += self.others[other].readings;
            self.others[other] = track;
            return;
        }
        if let Some(update) = self.others[other].append(reading, self.number) {
            self.updates.add(update);
        }
        self.change_main_if_due(other);
    }

    /// Starts a track with a reading that cannot follow any track.
    fn hold(&mut self, reading: Reading) {
        if self
            .main
            .as_ref()
            .is_some_and(|main| main.is_confirmed() && !main.is_doubtful() && !main.is_unproven)
        {
            self.emit_waiting(0);
        }
        if self.others.len() >= OTHER_TRACKS_MAX {
            let never_risen = self.others.iter().enumerate().filter(|(_, track)| track.rises == 0);
            let Some((oldest, _)) = never_risen.min_by_key(|(_, track)| track.number) else {
                self.findings.misreadings += 1;
                return;
            };
            self.findings.misreadings += self.others.remove(oldest).readings;
        }
        // The first steps of a counter that rarely changes look too large.
        let has_begun = self.main.as_ref().is_some_and(Track::is_confirmed);
        let all = self.main.iter().chain(&self.others).filter(|_| !has_begun);
        let latest = all.max_by_key(|track| track.number).filter(|track| !track.is_suspicious);
        if let Some(track) = latest.filter(|track| track.last.value.units_to(reading.value) > 0.0) {
            self.updates.add(reading.time - track.changed);
        }
        self.others.push(self.track(reading));
    }

    /// Whether a track was read too long ago for its history to count. Readings that can follow it are still added to it.
    fn is_old(&self, track: &Track) -> bool {
        let now = self.latest.map_or(0, |latest| latest.time);
        self.seconds(track.last.time, now) > self.window_seconds()
    }

    /// Must be called when another track has been continued. Makes it the main track, because the counter was reset, if the main
    /// one has not been continued for a long enough time.
    fn change_main_if_due(&mut self, other: usize) {
        let window = self.window_seconds();
        let main_is_confirmed = self.main.as_ref().is_some_and(Track::is_confirmed);
        let track = &mut self.others[other];
        let is_long =
            track.last.time.saturating_sub(track.start.time) as f64 >= window * self.limits.ticks_per_second;
        if track.is_confirmed() && is_long && track.is_doubtful() {
            track.drop_first_value();
        }
        let is_certain = is_long || (!main_is_confirmed && track.rises >= RISES_OF_A_TRACK);
        if track.is_confirmed() && !track.is_doubtful() && is_certain && track.has_most_readings(self.number)
        {
            self.change_main(other);
        }
    }

    /// Makes another track the main one.
    fn change_main(&mut self, other: usize) {
        let mut track = self.others.remove(other);
        self.drop_others();
        let before = self.main.take();
        let is_reset = before.as_ref().is_some_and(Track::is_confirmed);
        self.findings.misreadings += before.filter(|_| !is_reset).map_or(0, |main| main.readings);
        while track.start.time < self.floor && !track.waiting.is_empty() {
            track.start = track.waiting.remove(0);
            self.findings.is_revised = true;
        }
        let last = track.waiting.last().copied();
        let is_rise =
            last.is_some_and(|last| track.waiting.iter().rev().nth(1).is_none_or(|b| b.value != last.value));
        self.findings.unchanged_ticks = track.last.time - track.changed;
        self.emit_start(Reading { time: track.start.time.max(self.floor), ..track.start }, is_reset);
        self.main = Some(track);
        self.emit_waiting(usize::from(is_rise));
    }

    /// Returns the earliest time that a future sample can have; `None` if there will be none before the next reading.
    pub fn undecided_since(&self) -> Option<Timestamp> {
        let main = self.main.as_ref()?;
        let start = Some(main.start.time).filter(|_| self.start_is_waiting());
        let of_main = start.or(main.waiting.first().map(|waiting| waiting.time));
        let others = self.others.iter().filter(|track| !self.is_old(track)).map(|track| track.start.time);
        of_main.into_iter().chain(others).min()
    }

    /// Decides all samples before `time`, because the caller cannot wait any longer.
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
            self.emit_waiting(main.waiting.len() - early);
        } else if self.start_is_waiting() && main.start.time < time && main.may_stand_still(self.number) {
            self.emit(main.start);
        }
        self.floor = self.floor.max(time);
    }

    /// Ends the input, because there are no more readings.
    pub fn end(&mut self) {
        let Some(main) = &self.main else { return };
        // A counter that was reset has a lower value than before. One with a higher value may have caught up faster than the
        // limits allow.
        let is_below = |track: &Track| {
            !main.is_confirmed()
                || track.rises >= RISES_OF_A_TRACK
                || track.last.value.units_to(main.last.value) > 0.0
        };
        let candidates = self.others.iter().enumerate();
        let is_certain =
            |track: &Track| track.is_confirmed() && track.has_most_readings(self.number) && is_below(track);
        let risen = candidates.filter(|(_, track)| is_certain(track));
        if let Some((at, _)) = risen.max_by_key(|(_, track)| track.number) {
            let track = &mut self.others[at];
            if track.is_doubtful() && track.has_steps_to_compare() {
                track.drop_first_value();
            }
            self.change_main(at);
        }
        self.drop_others();
        let Some(main) = &self.main else { return };
        let is_unproven = main.is_unproven;
        if main.is_doubtful() && main.has_steps_to_compare() {
            self.resolve_doubt();
        } else if main.is_confirmed() || main.may_stand_still(self.number) {
            self.emit_first_value();
        } else if main.has_most_readings(self.number) {
            self.findings.unchanged += main.readings.saturating_sub(2); // the counter never showed a value to count from
        }
        self.emit_waiting(usize::from(is_unproven));
        self.emit_rest_as_unknown();
    }
}
