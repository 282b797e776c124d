//! Divides the time of a thread among the stacks that were sampled, so that each sample stands for the same time.
//!
//! A thread is sampled once in each period of its CPU time. If a sample's stack were charged until the next sample outside calls,
//! functions that make no recorded calls would get too much: after their samples, more of the time is outside calls than after
//! those of functions that make many. So each stack's share of the recent CPU time is its share of the recent samples. The stack
//! that is charged is called the one that is *shown*: a stack is shown from its sample on, and when a call or range begins or
//! ends after it has exceeded its share by half a sample's time, the stack that is furthest below its share is shown.
//!
//! The calls of one function, which may have several callers, are divided in the same way, and each function separately.
//!
//! Ranges may be much shorter than a period. So each call path of ranges has divisions of its own, and so has each range, for
//! paths without samples. They are used when the range is entered again: in a range that is entered once, such as a numbered
//! step, the first sample would get all of the time after it. Until then, time and samples are in the common divisions.
//!
//! Often the same function runs whenever a certain call has ended. The time after such a call has its own division, so that the
//! function is shown when it runs. If several functions run there, their time and samples are in the division of the range:
//! they would otherwise be shown by turns, although each may run for several periods.

use ampere_model::RegionRef;
use std::collections::HashMap;

/// The factor by which earlier samples count less with each sample.
const DECAY: f64 = 1.0 - 1.0 / 1024.0;
/// The maximum number of recent samples whose mean interval determines for how much time the next sample counts.
const RECENT_MAX: f64 = 64.0;
/// The division of the time after a call is used from this many samples on, while at least this share of them are of one stack.
const STEADY_SAMPLES: f64 = 7.5;
const STEADY_SHARE: f64 = 0.95;
/// A stack is forgotten when its samples count as less than this.
const SAMPLES_MIN: f64 = 0.5;
/// All divisions except the common ones are forgotten when there are this many, or when they have this many stacks.
const DIVISIONS_MAX: usize = 1024;
const STACKS_MAX: usize = 1 << 14;
/// A place is a number that identifies a call path of ranges, a single range, or the end of a call in one. This is the place of
/// the common divisions.
const COMMON: u64 = 0;

#[derive(Default)]
pub(crate) struct Credits {
    divisions: Vec<Division>,
    /// The number of stacks in all of them.
    stacks: usize,
    /// The division of each place. The time outside calls and the calls of each function have separate divisions.
    by_place: HashMap<u64, usize>,
    ranges: Vec<OpenRange>,
    /// How often the ranges have changed.
    changes: u64,
    /// The place after the call that ended last in the innermost range, and the division that is used there, if there is one.
    after: Option<u64>,
    steady: Option<usize>,
    /// The open call whose time is divided.
    call: Option<RegionRef>,
    /// The divisions that are used for the other time outside calls (index 0), and for the open call (index 1).
    used: [Used; 2],
}

struct OpenRange {
    /// The places of the call path of ranges up to this one, of the range alone, and of the common divisions.
    places: [u64; 3],
    /// How often the ranges had changed when this one began.
    since: u64,
}

/// The index of a place in [`OpenRange::places`] (2 for the common divisions), and its division, if there is one.
#[derive(Clone, Copy, Default)]
struct Used {
    place: usize,
    division: Option<usize>,
}

impl Credits {
    /// Changes the ranges in which the thread is, and chooses the stack that is shown there.
    pub fn enter(&mut self, ranges: &[RegionRef]) {
        self.changes += 1;
        self.ranges.truncate(ranges.len());
        for range in &ranges[self.ranges.len()..] {
            let outside = self.ranges.last().map_or(COMMON, |outside| outside.places[0]);
            let places = [place_in(outside, *range), place_in(COMMON, *range), COMMON];
            self.ranges.push(OpenRange { places, since: self.changes });
        }
        self.used[0] = self.find(None);
        (self.after, self.steady) = (None, None);
        self.choose_outside();
    }

    /// Chooses the stack that is shown in a call from now on.
    pub fn begin(&mut self, call: RegionRef) {
        self.call = Some(call);
        self.used[1] = self.find(self.call);
        self.used[1].division.into_iter().for_each(|at| self.divisions[at].choose());
    }

    /// Chooses the stack that is shown outside of calls from now on, after a call or function that has ended.
    pub fn end(&mut self, ended: RegionRef) {
        let path = self.ranges.last().map_or(COMMON, |range| range.places[0]);
        let after = place_in(path.rotate_left(1) ^ 1, ended);
        self.after = Some(after);
        self.steady = self.by_place.get(&after).copied().filter(|at| self.divisions[*at].is_steady);
        self.choose_outside();
    }

    fn choose_outside(&mut self) {
        self.call = None;
        self.current(false).into_iter().for_each(|at| self.divisions[at].choose());
    }

    fn current(&self, is_in_call: bool) -> Option<usize> {
        let steady = self.steady.filter(|_| !is_in_call);
        steady.or(self.used[usize::from(is_in_call)].division)
    }

    fn find(&self, call: Option<RegionRef>) -> Used {
        let at = |place: u64| self.by_place.get(&place_of(place, call)).copied();
        let own = self.ranges.last().and_then(|range| {
            let is_usable = |at: &usize| self.divisions[*at].since < range.since;
            let own = |place: usize| at(range.places[place]).filter(is_usable);
            [0, 1].into_iter().find_map(|place| Some(Used { place, division: Some(own(place)?) }))
        });
        own.unwrap_or_else(|| Used { place: 2, division: at(COMMON) })
    }

    /// Counts a sample that was taken in this call, or outside of calls. Its stack is shown from then on.
    pub fn add(&mut self, call: Option<RegionRef>, stack: &[RegionRef]) {
        if self.divisions.len() >= DIVISIONS_MAX || self.stacks >= STACKS_MAX {
            self.forget_places();
        }
        if let Some(after) = self.after.filter(|_| call.is_none()) {
            let at = self.add_at(after, stack, true);
            self.steady = self.steady.filter(|_| self.divisions[at].is_steady);
            if self.steady.is_some() {
                return;
            }
        }
        let places = self.ranges.last().map_or([COMMON; 3], |range| range.places);
        let kind = usize::from(call.is_some());
        for at in 0..=self.used[kind].place {
            if at == 0 || places[at] != places[at - 1] {
                let is_timed = places[at] == places[self.used[kind].place];
                let division = self.add_at(place_of(places[at], call), stack, is_timed);
                self.divisions[division].is_common = places[at] == COMMON;
                self.used[kind].division = Some(division);
            }
        }
    }

    /// Adds a sample to the division of a place. A division that does not count the time (`is_timed` is `false`) keeps only the
    /// last sample: earlier samples would be credited again later, without their time.
    fn add_at(&mut self, place: u64, stack: &[RegionRef], is_timed: bool) -> usize {
        let at = *self.by_place.entry(place).or_insert(self.divisions.len());
        if at == self.divisions.len() {
            self.divisions.push(Division { since: self.changes, ..Division::default() });
        }
        let division = &mut self.divisions[at];
        self.stacks -= division.stacks.len();
        if !is_timed {
            let Division { since, is_common, .. } = *division;
            *division = Division { since, is_common, ..Division::default() };
        }
        division.add(stack);
        self.stacks += division.stacks.len();
        at
    }

    fn forget_places(&mut self) {
        self.by_place.retain(|_, at| self.divisions[*at].is_common);
        let mut before = std::mem::take(&mut self.divisions);
        for at in self.by_place.values_mut() {
            self.divisions.push(std::mem::take(&mut before[*at]));
            *at = self.divisions.len() - 1;
        }
        self.stacks = self.divisions.iter().map(|division| division.stacks.len()).sum();
        (self.steady, self.used) = (None, [self.find(None), self.find(self.call)]);
    }

    /// Counts CPU time for the stack that is shown.
    #[inline]
    pub fn spend(&mut self, ticks: f64) {
        let current = self.current(self.call.is_some());
        current.into_iter().for_each(|at| self.divisions[at].spend(ticks));
    }

    /// Returns the stack that is shown in the open call, or outside of calls. It is empty before the first sample.
    #[inline]
    pub fn shown(&self, is_in_call: bool) -> &[RegionRef] {
        self.current(is_in_call).map_or(&[], |at| self.divisions[at].shown())
    }
}

/// Returns the place of a region in another place. It is a hash: two different places are practically never equal by chance.
fn place_in(place: u64, region: RegionRef) -> u64 {
    let mixed = (place.rotate_left(23) ^ (u64::from(region.0) + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

fn place_of(place: u64, call: Option<RegionRef>) -> u64 {
    call.map_or(place, |call| place_in(!place, call))
}

#[derive(Default)]
struct Division {
    stacks: Vec<Credit>,
    /// The index of the stack that is shown.
    shown: usize,
    /// All samples, and the time in which any stack was shown.
    all: Shares,
    /// The mean time between the last samples, the number of times in this mean, and the time since the last sample.
    recent: f64,
    recent_samples: f64,
    time_since: f64,
    /// How often the ranges had changed before its first sample.
    since: u64,
    is_common: bool,
    /// Whether nearly all samples are of one stack.
    is_steady: bool,
}

struct Credit {
    stack: Vec<RegionRef>,
    shares: Shares,
}

#[derive(Clone, Copy, Default)]
struct Shares {
    samples: f64,
    /// The ticks of CPU time for which the stack was shown.
    time: f64,
}

impl Division {
    fn add(&mut self, stack: &[RegionRef]) {
        // When the period is doubled, a sample begins to count for twice the time. Earlier ones do not.
        let mean = self.mean();
        let mut weight = 1.0;
        if mean > 0.0 && self.time_since > 0.0 {
            self.recent_samples = (self.recent_samples + 1.0).min(RECENT_MAX);
            self.recent += (self.time_since - self.recent) / self.recent_samples;
            weight = (self.recent / mean).clamp(1.0 / 16.0, 16.0);
        }
        self.time_since = 0.0;
        for credit in &mut self.stacks {
            credit.shares.samples *= DECAY;
            credit.shares.time *= DECAY;
        }
        self.stacks.retain(|credit| credit.shares.samples >= SAMPLES_MIN * weight);
        self.shown = self.stacks.iter().position(|credit| credit.stack == stack).unwrap_or_else(|| {
            self.stacks.push(Credit { stack: stack.to_vec(), shares: Shares::default() });
            self.stacks.len() - 1
        });
        self.stacks[self.shown].shares.samples += weight;
        self.all = self.stacks.iter().fold(Shares::default(), |all, Credit { shares, .. }| Shares {
            samples: all.samples + shares.samples,
            time: all.time + shares.time,
        });
        let most = self.stacks.iter().map(|credit| credit.shares.samples).fold(0.0, f64::max);
        self.is_steady = self.all.samples > STEADY_SAMPLES && most >= STEADY_SHARE * self.all.samples;
    }

    #[inline]
    fn spend(&mut self, ticks: f64) {
        if let Some(shown) = self.stacks.get_mut(self.shown) {
            shown.shares.time += ticks;
            self.all.time += ticks;
            self.time_since += ticks;
        }
    }

    /// Returns the time for which a sample counts.
    fn mean(&self) -> f64 {
        self.all.time / self.all.samples
    }

    #[inline]
    fn choose(&mut self) {
        let mean = self.mean();
        let due = |credit: &Credit| credit.shares.samples * mean - credit.shares.time;
        if self.stacks.get(self.shown).is_some_and(|shown| due(shown) < -0.5 * mean) {
            let of_stacks = self.stacks.iter().map(due).enumerate();
            let most = of_stacks.max_by(|(_, one), (_, other)| one.total_cmp(other));
            self.shown = most.map_or(0, |(at, _)| at);
        }
    }

    #[inline]
    fn shown(&self) -> &[RegionRef] {
        self.stacks.get(self.shown).map_or(&[], |credit| &credit.stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_before_a_longer_period_do_not_count_for_more_time_than_they_had() {
        let mut division = Division::default();
        let mut late = 0.0;
        for sample in 0..6000 {
            let (function, period) = if sample < 2000 { (sample % 2, 1.0) } else { (2 + sample % 2, 2.0) };
            division.add(&[RegionRef(function)]);
            for _ in 0..10 {
                division.spend(period / 10.0);
                division.choose();
                late += if sample >= 2000 && division.shown()[0].0 < 2 { period / 10.0 } else { 0.0 };
            }
        }
        assert!(late < 200.0, "{late} of 8000 in functions that had ended");
    }

    #[test]
    fn the_number_of_ranges_and_stacks_that_are_kept_is_limited() {
        let mut credits = Credits::default();
        let stack = |number: u32| [RegionRef(number)];
        for number in 0..10 * DIVISIONS_MAX as u32 {
            credits.enter(&[RegionRef(0), RegionRef(number)]);
            credits.begin(RegionRef(1));
            credits.add(Some(RegionRef(1)), &stack(2));
            credits.end(RegionRef(1));
            credits.add(None, &stack(number % 3));
            assert!(credits.divisions.len() < DIVISIONS_MAX + 3, "{}", credits.divisions.len());
        }
        // Outside all ranges, the common divisions are used. They are never forgotten.
        credits.enter(&[]);
        credits.begin(RegionRef(1));
        assert_eq!(credits.shown(true), stack(2));
        for number in 0..10 * STACKS_MAX as u32 {
            credits.enter(&[RegionRef(number % 100)]);
            credits.add(None, &stack(number));
            let stacks: usize = credits.divisions.iter().map(|division| division.stacks.len()).sum();
            assert!(credits.stacks == stacks && stacks < STACKS_MAX + 3, "{stacks}");
        }
    }
}
