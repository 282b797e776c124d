//! Under pressure: calls are folded, never corrupted.
//!
//! Where a program calls tiny functions faster than a reader can follow, the writer counts and times the calls itself and
//! tells what has been, once a millisecond, as a *group*: per call path the calls that began and the ticks on top. Calls
//! and times are exact, and so is energy as far as it is linear within that millisecond; only the single start times are
//! gone, and how many is counted (*coalesced* calls).
//!
//! What is folded is what is short. A call path whose calls were shorter than a millisecond several times in a row is folded
//! from then on, with everything below it; the others are recorded as ever. One that turns out long after all has to prove
//! itself again, for longer. A frame that is open at the end of a millisecond is told of in slices, so that a group is never
//! about more than that.
//!
//! A group lies between two other records, and is about what ran between them: it is written before whatever is
//! recorded next. If the ring has no room for it, it waits and grows; only call paths beyond a thousand are then
//! suppressed.

use crate::calltree::{CallTree, Number, ROOT};
use crate::events::{EventWriter, RESERVE};
use crate::record::{Folded, Kind, Record};
use crate::ring::Reader;
use ampere_signal_safety::{sleep, unnoticed};
use std::time::{Duration, Instant};

/// What is done with calls that the reader cannot follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// They are left out and counted.
    Suppress,
    /// The program waits until there is room.
    All,
    /// They are folded while the pressure lasts.
    Auto,
    /// They are folded from the start.
    Folded,
}

impl Events {
    pub(crate) fn folds(self) -> bool {
        matches!(self, Events::Auto | Events::Folded)
    }
}

/// What folding and waiting need to know of the session. Both are asked seldom, and must not block.
#[derive(Clone, Copy)]
pub struct Surroundings {
    /// Of the clock that this time of an event is from; 0 if that cannot be told.
    pub ticks_per_second: fn(u64) -> u64,
    pub reader_is_alive: fn() -> bool,
    /// How often the reader has looked at all its rings.
    pub reader_rounds: fn() -> u64,
}

pub(crate) struct Folding {
    tree: CallTree,
    surroundings: Surroundings,
    pub active: bool,
    /// The innermost frame that is open, as far as it was entered since folding began.
    current: Number,
    /// The innermost of those that is in the ring.
    base: Number,
    /// When the innermost frame last changed.
    last: u64,
    /// When the first call of the group began.
    first: u64,
    /// A millisecond; what is folded is shorter.
    period: u64,
    /// A call that takes longer is long.
    long: u64,
    period_end: u64,
    /// Calls folded since it was last looked at, and the last time that they were too many to be recorded.
    calls: u32,
    busy: u64,
    /// Where the reader was when it was given up, plus the ring's capacity.
    given_up_at: Option<u64>,
}

/// A call that was taken for short is long after so many periods: well within the time that the reader allows for events
/// to come (100 ms), and longer than a thread loses its core for.
const LONG_PERIODS: u64 = 20;
/// Fewer calls a period can be recorded: a million a second.
const FEW_CALLS: u64 = 1000;
/// After so many periods of few calls, folding ends.
const QUIET_PERIODS: u64 = 1000;
/// While all events are waited for, it is looked this often whether the reader still lives.
const WAITS_PER_LOOK: u32 = 1000;
const WAIT: Duration = Duration::from_micros(50);
/// A reader that is dead is replaced within a fraction of this, or not at all.
const WAIT_FOR_ANOTHER: Duration = Duration::from_secs(3);

impl EventWriter {
    /// One that does with what finds no room as `events` says.
    pub fn with_events(ring: crate::RingProducer, events: Events, surroundings: Surroundings) -> EventWriter {
        let folding = Folding {
            tree: CallTree::new(),
            surroundings,
            active: false,
            current: ROOT,
            base: ROOT,
            last: 0,
            first: 0,
            period: 0,
            long: 0,
            period_end: 0,
            calls: 0,
            busy: 0,
            given_up_at: None,
        };
        let mut writer = EventWriter::new(ring);
        writer.events = events;
        writer.folding = Some(Box::new(folding));
        writer
    }

    /// All events are wanted: waits, as long as there is a reader, and a few seconds for another one to come in its place.
    /// `false`: nothing is to be waited for.
    #[cold]
    pub(crate) fn wait_for_room(&mut self) -> bool {
        let needed = self.open + 1 + RESERVE;
        let reached = self.ring.position() + self.ring.free(); // the reader's position and a constant
        let Some(folding) = self.folding.as_ref().filter(|_| self.events == Events::All) else {
            return false;
        };
        // Not even an empty ring has room for the leaves; or nobody has read anything since it was given up.
        if needed >= self.ring.capacity_records() || folding.given_up_at == Some(reached) {
            return false;
        }
        let alive = folding.surroundings.reader_is_alive;
        let rounds = folding.surroundings.reader_rounds;
        if self.wait_for(needed, alive, rounds) {
            return true;
        }
        let reached = self.ring.position() + self.ring.free();
        if let Some(folding) = &mut self.folding {
            folding.given_up_at = Some(reached);
        }
        false
    }

    /// `false`: nobody reads this ring, and nobody is going to. A handler may leave this by a `longjmp`, so that nothing is
    /// changed meanwhile that would have to be changed back.
    fn wait_for(&mut self, needed: u64, alive: fn() -> bool, rounds: fn() -> u64) -> bool {
        let (mut unread_since, mut last_round) = (None, rounds());
        loop {
            for _ in 0..WAITS_PER_LOOK {
                sleep(WAIT);
                if self.ring.free() > needed {
                    return true;
                }
            }
            let (round, reader) = (rounds(), self.ring.reader());
            let goes_on = std::mem::replace(&mut last_round, round) != round;
            match reader {
                Reader::GivenUp => return false,
                Reader::There if unnoticed(alive) => unread_since = None,
                // It has not had a turn since.
                Reader::NotYet if !goes_on && unnoticed(alive) => unread_since = None,
                // It has, and cannot open this ring; or is about to. Or there is none, and another one may come.
                _ => {
                    if unread_since.get_or_insert_with(Instant::now).elapsed() > WAIT_FOR_ANOTHER {
                        return false;
                    }
                }
            }
        }
    }

    #[cold]
    pub(crate) fn begin_folding(&mut self, timestamp: u64) -> bool {
        let Some(folding) = self.folding.as_mut().filter(|_| self.events.folds()) else { return false };
        folding.period = (folding.surroundings.ticks_per_second)(timestamp) / 1000;
        if folding.period == 0 {
            return false;
        }
        folding.long = LONG_PERIODS * folding.period;
        folding.active = true;
        (folding.current, folding.base) = (ROOT, ROOT);
        (folding.last, folding.busy) = (timestamp, timestamp);
        folding.period_end = timestamp.saturating_add(folding.period);
        folding.calls = 0;
        self.recording = false;
        self.limit = 0;
        true
    }

    #[inline(always)]
    pub(crate) fn fold_enter(&mut self, timestamp: u64, region: u32) {
        let Some(folding) = self.folding.as_mut() else { return self.suppress(timestamp, region) };
        if timestamp >= folding.period_end && !self.end_period(timestamp) {
            return self.enter_again(timestamp, region); // folding is over
        }
        let Some(folding) = self.folding.as_mut() else { return };
        folding.tick(timestamp);
        let Some(node) = folding.tree.child(folding.current, region) else {
            return self.begin_anew(timestamp, region);
        };
        if folding.current != folding.base || folding.tree[node].short {
            folding.open(node, timestamp);
        } else {
            self.record_or_fold(timestamp, node);
        }
    }

    #[inline(always)]
    pub(crate) fn fold_leave(&mut self, timestamp: u64, region: u32) {
        let Some(folding) = self.folding.as_mut() else { return };
        if timestamp >= folding.period_end && !self.end_period(timestamp) {
            return self.leave_again(timestamp, region);
        }
        let Some(folding) = self.folding.as_mut() else { return };
        folding.tick(timestamp);
        let node = folding.current;
        if node == folding.base {
            return self.leave_recorded(timestamp, region);
        }
        if folding.tree[node].region != region {
            return self.leave_another(timestamp, region);
        }
        folding.close(node, timestamp);
    }

    /// Some were entered or left unseen, because recording was switched off. The reader knows what is over then, and what
    /// is not: it is told what was open.
    #[cold]
    fn leave_another(&mut self, timestamp: u64, region: u32) {
        if self.resume_frames() {
            return self.leave_recorded(timestamp, region);
        }
        let Some(folding) = self.folding.as_mut() else { return };
        folding.close(folding.current, timestamp);
    }

    #[cold]
    fn enter_again(&mut self, timestamp: u64, region: u32) {
        self.enter(timestamp, region);
    }

    #[cold]
    fn leave_again(&mut self, timestamp: u64, region: u32) {
        self.leave(timestamp, region);
    }

    /// A call path that is not known to be short: its call is recorded, if there is room.
    #[cold]
    fn record_or_fold(&mut self, timestamp: u64, node: Number) {
        let written = self.write_group() && self.ring.has_room(self.open + 2 + RESERVE);
        let Some(folding) = self.folding.as_mut() else { return };
        if !written {
            return folding.open(node, timestamp);
        }
        folding.tree[node].start = timestamp;
        (folding.current, folding.base) = (node, node);
        let region = folding.tree[node].region;
        self.open += 1;
        self.ring.push_with_room(Record::new(Kind::Enter, timestamp, region));
    }

    /// The innermost frame is in the ring, and so is its leave then.
    #[cold]
    fn leave_recorded(&mut self, timestamp: u64, region: u32) {
        self.write_group_or_suppress();
        let Some(folding) = self.folding.as_mut() else { return };
        let node = folding.base;
        if node != ROOT {
            let ticks = timestamp.saturating_sub(folding.tree[node].start);
            folding.learn(node, ticks);
            // Below a frame that is in the ring, only frames that are.
            folding.base = folding.tree[node].parent;
            folding.current = folding.base;
        }
        if self.open > 0 {
            self.open -= 1;
            self.ring.push_with_room(Record::new(Kind::Leave, timestamp, region));
        } else {
            self.count_dropped();
        }
    }

    /// A period is over: its group is written, if there is room. Whether folding goes on.
    #[cold]
    fn end_period(&mut self, timestamp: u64) -> bool {
        self.write_group();
        let Some(folding) = self.folding.as_mut() else { return false };
        // The innermost frame had all the time since the last event to itself: that is told apart, where it belongs.
        if timestamp.saturating_sub(folding.last) > folding.period {
            folding.tick(timestamp);
            self.write_group();
        }
        let Some(folding) = self.folding.as_mut() else { return false };
        let periods = 1 + timestamp.saturating_sub(folding.period_end) / folding.period;
        if u64::from(folding.calls) > FEW_CALLS.saturating_mul(periods) {
            folding.busy = timestamp;
        }
        folding.calls = 0;
        folding.period_end = timestamp.saturating_add(folding.period);
        let quiet = timestamp.saturating_sub(folding.busy) > QUIET_PERIODS * folding.period;
        if quiet && self.events == Events::Auto {
            return !self.end_folding();
        }
        if folding.is_long(timestamp) {
            self.resume_frames();
        }
        true
    }

    /// No room for one more call path: all of them are forgotten, and learned again.
    #[cold]
    fn begin_anew(&mut self, timestamp: u64, region: u32) {
        if !self.resume_frames() {
            return self.suppress(timestamp, region);
        }
        let Some(folding) = self.folding.as_mut() else { return };
        folding.forget_frames();
        folding.tree.clear();
        self.enter_again(timestamp, region);
    }

    /// What is open and folded is in the ring from where it was last told of. `false`: there is no room.
    fn resume_frames(&mut self) -> bool {
        if !self.write_group() {
            return false;
        }
        let Some(folding) = self.folding.as_mut() else { return true };
        let frames = folding.folded_frames();
        if !self.ring.has_room(self.open + 2 * frames + RESERVE) {
            return false;
        }
        // From the innermost to the outermost, each at its place.
        let mut at = folding.current;
        for place in (0..frames).rev() {
            let node = &folding.tree[at];
            self.ring.put_with_room(place, Record::new(Kind::Resume, folding.last, node.region));
            at = node.parent;
        }
        self.ring.publish(frames);
        self.open += frames;
        folding.base = folding.current;
        folding.tree.settle(); // slices of frames that are in the ring now
        true
    }

    /// After an event that was left in the middle.
    pub(crate) fn repair_folding(&mut self) {
        if let Some(folding) = self.folding.as_mut().filter(|folding| folding.active) {
            folding.tree.repair();
        }
    }

    /// Everything that is open is in the ring, and what is entered from now on is, too. `false`: there is no room.
    pub(crate) fn end_folding(&mut self) -> bool {
        if self.folding.as_ref().is_none_or(|folding| !folding.active) {
            return true;
        }
        if !self.resume_frames() {
            return false;
        }
        if let Some(folding) = self.folding.as_mut() {
            folding.forget_frames();
            folding.active = false;
        }
        self.recording = true;
        self.limit = 0;
        true
    }

    /// The location ends: what has not been told is.
    #[cold]
    pub(crate) fn stop_folding(&mut self, timestamp: u64) {
        let Some(folding) = self.folding.as_mut().filter(|folding| folding.active) else { return };
        folding.tick(timestamp);
        self.write_group_or_suppress();
        if let Some(folding) = self.folding.as_mut() {
            folding.tree.settle(); // slices of frames that are over now
            folding.forget_frames();
            folding.active = false;
        }
    }

    /// Where a group cannot be told in its place any more, its calls are suppressed.
    pub(crate) fn write_group_or_suppress(&mut self) {
        if self.write_group() {
            return;
        }
        let Some(folding) = self.folding.as_mut() else { return };
        let mut calls = 0;
        folding.tree.each_pending(folding.base, |_, node| calls += node.calls);
        folding.tree.settle();
        self.count_suppressed(calls);
    }

    /// Writes what has been folded since the last group. `false`: there is no room for it.
    pub(crate) fn write_group(&mut self) -> bool {
        let Some(folding) = self.folding.as_mut() else { return true };
        if !folding.tree.is_pending() {
            return true;
        }
        let mut count = 0;
        folding.tree.each_pending(folding.base, |_, node| count += records_of(node.calls, node.exclusive));
        if count > 0 {
            if !self.ring.has_room(self.open + 1 + count + RESERVE) {
                return false;
            }
            self.ring.put_with_room(0, Record::new(Kind::Fold, folding.first, count as u32));
            let mut place = 1;
            folding.tree.each_pending(folding.base, |depth, node| {
                let (mut calls, mut ticks) = (node.calls, node.exclusive);
                for _ in 0..records_of(calls, ticks) {
                    let folded = Folded {
                        region: node.region,
                        depth: depth as u16,
                        calls: calls.min(Folded::MOST_CALLS.into()) as u32,
                        exclusive_ticks: ticks.min(Folded::MOST_TICKS),
                    };
                    self.ring.put_with_room(place, Record::folded(folded));
                    (calls, ticks) = (calls - u64::from(folded.calls), ticks - folded.exclusive_ticks);
                    place += 1;
                }
            });
            self.ring.publish(1 + count);
        }
        folding.tree.settle();
        folding.first = folding.last;
        if folding.current != folding.base {
            folding.tree.mark(folding.current); // it goes on
        }
        true
    }
}

/// How many records tell of one call path.
fn records_of(calls: u64, ticks: u64) -> u64 {
    let of_calls = calls.div_ceil(Folded::MOST_CALLS.into());
    of_calls.max(ticks.div_ceil(Folded::MOST_TICKS)).max(1)
}

impl Folding {
    /// The innermost frame had the time until now.
    #[inline(always)]
    fn tick(&mut self, timestamp: u64) {
        let path = &mut self.tree[self.current];
        path.exclusive = path.exclusive.saturating_add(timestamp.saturating_sub(self.last));
        self.last = self.last.max(timestamp);
    }

    #[inline(always)]
    fn open(&mut self, node: Number, timestamp: u64) {
        if self.tree.mark(node) {
            self.first = self.last; // the first of its group
        }
        let path = &mut self.tree[node];
        path.calls += 1;
        path.start = timestamp;
        self.calls += 1;
        self.current = node;
    }

    #[inline(always)]
    fn close(&mut self, node: Number, timestamp: u64) {
        let ticks = timestamp.saturating_sub(self.tree[node].start);
        self.current = self.tree[node].parent;
        if !self.tree[node].short || ticks > self.long {
            self.learn(node, ticks);
        }
    }

    #[cold]
    fn learn(&mut self, node: Number, ticks: u64) {
        self.tree.learn(node, ticks, self.period, self.long);
    }

    /// Frames that are open and not in the ring. That `base` is above `current` is not relied upon: an event that was left in
    /// the middle may have changed only one of them.
    fn folded_frames(&self) -> u64 {
        let (mut at, mut frames) = (self.current, 0);
        while at != self.base && at != ROOT {
            at = self.tree[at].parent;
            frames += 1;
        }
        frames
    }

    /// Whether a frame that is folded and open is long: then it should not be folded.
    fn is_long(&self, timestamp: u64) -> bool {
        let mut at = self.current;
        while at != self.base && at != ROOT {
            if timestamp.saturating_sub(self.tree[at].start) > self.long {
                return true;
            }
            at = self.tree[at].parent;
        }
        false
    }

    /// What is open is no longer looked at.
    fn forget_frames(&mut self) {
        (self.current, self.base) = (ROOT, ROOT);
    }
}
