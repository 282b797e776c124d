//! Coalesces calls that come faster than they can be recorded.
//!
//! When a program calls tiny functions faster than the collector can follow, the writer counts and times the calls itself and
//! writes the result once a millisecond as a *group*: for each call path the number of calls that began and their exclusive
//! ticks. Calls and times are exact, and so is the energy if the power is constant within that millisecond. Only the start times
//! of the single calls are lost, and the number of these calls is counted (*coalesced* calls).
//!
//! Only short calls are coalesced. A call path whose calls were shorter than a millisecond several times in a row is coalesced
//! from then on, together with everything that it calls; calls of other paths are still recorded. After a long call, a path needs
//! more short calls in a row before it is coalesced again. A frame that is open at the end of a millisecond is written in slices,
//! so that a group never covers much more than a millisecond.
//!
//! A group covers the calls between the previous record and the next one, and is written before the next record. If the ring has
//! no room for the group, the group is kept and grows; calls are suppressed only if it has more than a thousand call paths.

use crate::calltree::{CallTree, NodeIndex, ROOT};
use crate::output::{CORRELATED_RECORDS, Output};
use crate::overload::SessionProbes;
use crate::record::{CoalescedCalls, Kind, Record};

/// The state of coalescing on one location.
pub(crate) struct Coalescing {
    tree: CallTree,
    probes: SessionProbes,
    /// Whether calls are coalesced from the start, and not only under pressure.
    pub from_start: bool,
    /// The position and the time since which the rate of records is measured.
    measured_from: (u64, u64),
    /// The innermost open frame that was entered since coalescing began.
    current: NodeIndex,
    /// The innermost of the frames entered since then whose enter has been written to the ring.
    base: NodeIndex,
    /// The timestamp of the last event.
    last: u64,
    /// The time at which the first call of the group began.
    first: u64,
    /// The ticks of a millisecond. Calls that are coalesced are shorter.
    period: u64,
    /// The ticks above which a call is long.
    long: u64,
    /// The end of the current period.
    pub period_end: u64,
    /// The number of calls that were coalesced in this period and have been written in groups.
    calls: u64,
    /// The last time at which there were too many calls to record each.
    busy: u64,
}

/// The result of an enter.
pub(crate) enum Entered {
    /// The call is coalesced, or its enter is in the ring.
    Done,
    /// Coalescing has ended before this call.
    CoalescingEnded,
    NoRoom,
}

/// The number of periods after which a call of a path that was known to be short counts as long. That is well within the time
/// that the collector allows for events to arrive (100 ms), and longer than a thread is usually off its core.
const LONG_PERIODS: u64 = 20;
/// With at most this many calls per period, a million per second, each can be recorded.
const FEW_CALLS: u64 = 1000;
/// The number of periods with few calls after which coalescing ends.
const QUIET_PERIODS: u64 = 1000;

/// Above this rate a location's calls are coalesced even if the collector could follow: single calls are not worth the cost of
/// recording and keeping them.
pub const RECORDS_PER_SECOND: u64 = 10_000_000;
/// The rate of records is measured over at least this many records.
pub(crate) const MEASURED_RECORDS: u64 = 1 << 15;

impl Coalescing {
    pub fn new(probes: SessionProbes, from_start: bool) -> Coalescing {
        Coalescing {
            tree: CallTree::new(),
            probes,
            from_start,
            measured_from: (0, 0),
            current: ROOT,
            base: ROOT,
            last: 0,
            first: 0,
            period: 0,
            long: 0,
            period_end: 0,
            calls: 0,
            busy: 0,
        }
    }

    /// Whether calls are to be coalesced even if there is room for them.
    pub fn is_due(&mut self, position: u64, timestamp: u64) -> bool {
        self.from_start || self.is_too_fast(position, timestamp)
    }

    /// Whether more than [`RECORDS_PER_SECOND`] were written since the rate was last measured. A collector could keep up
    /// for a while, but only on a core that the program needs.
    fn is_too_fast(&mut self, position: u64, timestamp: u64) -> bool {
        let (before, time) = self.measured_from;
        let records = position - before;
        if time > 0 && records < MEASURED_RECORDS {
            return false;
        }
        self.measured_from = (position, timestamp);
        if time == 0 {
            return false;
        }
        let second = (self.probes.ticks_per_second)(timestamp);
        let ticks = u128::from(timestamp.saturating_sub(time));
        u128::from(records) * u128::from(second) > u128::from(RECORDS_PER_SECOND) * ticks
    }

    /// Begins to coalesce. `false` if the clock is not known.
    #[cold]
    pub fn begin(&mut self, timestamp: u64) -> bool {
        self.period = (self.probes.ticks_per_second)(timestamp) / 1000;
        if self.period == 0 {
            return false;
        }
        self.long = LONG_PERIODS * self.period;
        self.forget_frames();
        (self.last, self.busy) = (timestamp, timestamp);
        self.period_end = timestamp.saturating_add(self.period);
        self.calls = 0;
        true
    }

    #[inline(always)]
    pub fn enter(&mut self, output: &mut Output, timestamp: u64, region: u32) -> Entered {
        if timestamp >= self.period_end && !self.end_period(output, timestamp) {
            return Entered::CoalescingEnded;
        }
        self.tick(timestamp);
        let Some(node) = self.tree.child(self.current, region) else {
            return self.start_over(output, timestamp, region);
        };
        if self.current != self.base || self.tree[node].short {
            self.open(node, timestamp);
        } else {
            self.record_or_coalesce(output, timestamp, node);
        }
        Entered::Done
    }

    /// Returns `false`, with nothing done, if coalescing has ended.
    #[inline(always)]
    pub fn leave(&mut self, output: &mut Output, timestamp: u64, region: u32) -> bool {
        if timestamp >= self.period_end && !self.end_period(output, timestamp) {
            return false;
        }
        self.tick(timestamp);
        let node = self.current;
        if node == self.base {
            self.leave_recorded(output, timestamp, region);
        } else if self.tree[node].region != region {
            self.leave_other(output, timestamp, region);
        } else {
            self.close(node, timestamp);
        }
        true
    }

    /// Handles the leave of a frame that is not the innermost: frames were entered or left while recording was switched off. The
    /// open frames are written, and the decoder repairs the nesting.
    #[cold]
    fn leave_other(&mut self, output: &mut Output, timestamp: u64, region: u32) {
        if self.resume_frames(output) {
            return self.leave_recorded(output, timestamp, region);
        }
        self.close(self.current, timestamp);
    }

    /// Records a call of a path that is not known to be short, or coalesces it if there is no room.
    #[cold]
    fn record_or_coalesce(&mut self, output: &mut Output, timestamp: u64, node: NodeIndex) {
        if !(self.write_group(output) && output.has_room(2)) {
            return self.open(node, timestamp);
        }
        self.tree[node].start = timestamp;
        (self.current, self.base) = (node, node);
        output.enter(timestamp, self.tree[node].region);
    }

    /// Leaves the innermost frame, whose enter is in the ring.
    #[cold]
    fn leave_recorded(&mut self, output: &mut Output, timestamp: u64, region: u32) {
        self.write_group_or_suppress(output);
        let node = self.base;
        if node != ROOT {
            let ticks = timestamp.saturating_sub(self.tree[node].start);
            self.learn(node, ticks);
            // If a frame is in the ring, the frames around it are, too.
            self.base = self.tree[node].parent;
            self.current = self.base;
        }
        if output.open > 0 {
            output.leave(timestamp, region);
        } else {
            output.count_dropped(1);
        }
    }

    /// Ends a period: writes its group if there is room. Returns whether coalescing continues.
    #[cold]
    fn end_period(&mut self, output: &mut Output, timestamp: u64) -> bool {
        self.write_group(output);
        // The time since the last event belongs to the innermost frame alone, so it gets a separate group with its own time.
        if timestamp.saturating_sub(self.last) > self.period {
            self.tick(timestamp);
            self.write_group(output);
        }
        let periods = 1 + timestamp.saturating_sub(self.period_end) / self.period;
        if self.calls > FEW_CALLS.saturating_mul(periods) {
            self.busy = timestamp;
        }
        self.calls = 0;
        self.period_end = timestamp.saturating_add(self.period);
        let quiet = timestamp.saturating_sub(self.busy) > QUIET_PERIODS * self.period;
        if quiet && !self.from_start {
            return !self.end(output);
        }
        if self.is_long(timestamp) {
            self.resume_frames(output);
        }
        true
    }

    /// Called when the tree has no room for another call path: forgets all of them and starts to learn again.
    #[cold]
    fn start_over(&mut self, output: &mut Output, timestamp: u64, region: u32) -> Entered {
        if !self.resume_frames(output) {
            return Entered::NoRoom;
        }
        self.forget_frames();
        self.tree.clear();
        self.enter(output, timestamp, region)
    }

    /// Writes an enter for each coalesced open frame, because a record that belongs in them comes next. `false` if there is no
    /// room.
    #[cold]
    pub fn enter_frames(&mut self, output: &mut Output, timestamp: u64) -> bool {
        self.tick(timestamp);
        self.resume_frames(output)
    }

    /// Records a call that has a correlation id, inside enters for the coalesced open frames: a group has no place for ids.
    /// `false` if there is no room.
    #[cold]
    pub fn enter_correlated(&mut self, output: &mut Output, timestamp: u64, region: u32, id: u64) -> bool {
        if !(self.enter_frames(output, timestamp) && output.has_room(CORRELATED_RECORDS)) {
            return false;
        }
        let Some(node) = self.tree.child(self.current, region) else { return false };
        self.tree[node].start = timestamp;
        (self.current, self.base) = (node, node);
        output.enter_correlated(timestamp, region, id);
        true
    }

    /// Writes an enter for each coalesced open frame, at the time of the last event. `false` if there is no room.
    fn resume_frames(&mut self, output: &mut Output) -> bool {
        if !self.write_group(output) {
            return false;
        }
        let frames = self.coalesced_frames();
        if !output.has_room(2 * frames) {
            return false;
        }
        // From the innermost to the outermost, each in its slot.
        let mut at = self.current;
        for place in (0..frames).rev() {
            let node = &self.tree[at];
            output.ring.put_with_room(place, Record::new(Kind::Resume, self.last, node.region));
            at = node.parent;
        }
        output.ring.publish(frames);
        output.open += frames;
        self.base = self.current;
        self.tree.clear_pending(); // slices of frames that are in the ring now
        true
    }

    /// Makes the call tree consistent after the writing of an event was abandoned in the middle.
    pub fn repair(&mut self) {
        self.tree.repair();
    }

    /// Ends coalescing, after writing an enter for each coalesced open frame. `false` if there is no room.
    pub fn end(&mut self, output: &mut Output) -> bool {
        let has_room = self.resume_frames(output);
        if has_room {
            self.forget_frames();
        }
        has_room
    }

    /// Writes the pending calls, because the location ends.
    #[cold]
    pub fn end_location(&mut self, output: &mut Output, timestamp: u64) {
        self.tick(timestamp);
        self.write_group_or_suppress(output);
        self.tree.clear_pending(); // slices of frames that have ended
        self.forget_frames();
    }

    /// Writes the pending group. If there is no room for it, its calls are suppressed.
    pub fn write_group_or_suppress(&mut self, output: &mut Output) {
        if self.write_group(output) {
            return;
        }
        let mut calls = 0;
        self.tree.each_pending(self.base, |_, node| calls += node.calls);
        self.tree.clear_pending();
        output.count_suppressed(calls);
    }

    /// Writes the calls that were coalesced since the last group. `false` if there is no room for it.
    pub fn write_group(&mut self, output: &mut Output) -> bool {
        if !self.tree.has_pending() {
            return true;
        }
        let (mut count, mut all_calls) = (0, 0);
        self.tree.each_pending(self.base, |_, node| {
            count += records_of(node.calls, node.exclusive);
            all_calls += node.calls;
        });
        if count > 0 {
            if !output.has_room(1 + count) {
                return false;
            }
            let ring = &mut output.ring;
            ring.put_with_room(0, Record::new(Kind::Group, self.first, count as u32));
            let mut place = 1;
            self.tree.each_pending(self.base, |depth, node| {
                let (mut calls, mut ticks) = (node.calls, node.exclusive);
                for _ in 0..records_of(calls, ticks) {
                    let written = CoalescedCalls {
                        region: node.region,
                        depth: depth as u16,
                        calls: calls.min(CoalescedCalls::CALLS_MAX.into()) as u32,
                        exclusive_ticks: ticks.min(CoalescedCalls::TICKS_MAX),
                    };
                    ring.put_with_room(place, Record::coalesced_calls(written));
                    (calls, ticks) = (calls - u64::from(written.calls), ticks - written.exclusive_ticks);
                    place += 1;
                }
            });
            ring.publish(1 + count);
        }
        self.calls += all_calls;
        self.tree.clear_pending();
        self.first = self.last;
        if self.current != self.base {
            self.tree.mark_pending(self.current); // its frame continues
        }
        true
    }

    /// Enters a call path if it is the expected one and ready. Otherwise returns `false`, with nothing changed.
    #[inline(always)]
    pub fn enter_short(&mut self, timestamp: u64, region: u32) -> bool {
        let node = self.tree.expected_child(self.current);
        if self.tree[node].ready != region || timestamp < self.last {
            return false;
        }
        self.tree[self.current].exclusive += timestamp - self.last;
        self.last = timestamp;
        self.tree.expect_after(self.current, node);
        let path = &mut self.tree[node];
        path.calls += 1;
        path.start = timestamp;
        self.current = node;
        true
    }

    /// Leaves the innermost frame if its call path is ready, which also means that its enter is not in the ring. Otherwise
    /// returns `false`, with nothing changed. A long call need not be detected here: the end of the period detects it.
    #[inline(always)]
    pub fn leave_short(&mut self, timestamp: u64, region: u32) -> bool {
        let path = &mut self.tree[self.current];
        if path.ready != region || timestamp < self.last {
            return false;
        }
        path.exclusive += timestamp - self.last;
        self.current = path.parent;
        self.last = timestamp;
        true
    }

    /// Adds the time since the last event to the innermost frame.
    #[inline(always)]
    fn tick(&mut self, timestamp: u64) {
        let path = &mut self.tree[self.current];
        path.exclusive = path.exclusive.saturating_add(timestamp.saturating_sub(self.last));
        self.last = self.last.max(timestamp);
    }

    #[inline(always)]
    fn open(&mut self, node: NodeIndex, timestamp: u64) {
        if self.tree.mark_pending(node) {
            self.first = self.last; // the group begins with this call
        }
        let path = &mut self.tree[node];
        path.calls += 1;
        path.start = timestamp;
        if path.short {
            path.ready = path.region;
        }
        self.current = node;
    }

    #[inline(always)]
    fn close(&mut self, node: NodeIndex, timestamp: u64) {
        let ticks = timestamp.saturating_sub(self.tree[node].start);
        self.current = self.tree[node].parent;
        if !self.tree[node].short || ticks > self.long {
            self.learn(node, ticks);
        }
    }

    #[cold]
    fn learn(&mut self, node: NodeIndex, ticks: u64) {
        self.tree.learn_duration(node, ticks, self.period, self.long);
    }

    /// Returns the number of open frames whose enters are not in the ring. `base` need not be an ancestor of `current`:
    /// an event that was abandoned in the middle may have changed only one of them.
    fn coalesced_frames(&self) -> u64 {
        let (mut at, mut frames) = (self.current, 0);
        while at != self.base && at != ROOT {
            at = self.tree[at].parent;
            frames += 1;
        }
        frames
    }

    /// Whether a coalesced open frame is long and should therefore not be coalesced.
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

    /// Forgets which frames are open.
    fn forget_frames(&mut self) {
        (self.current, self.base) = (ROOT, ROOT);
    }
}

/// Returns the number of records that one call path takes.
fn records_of(calls: u64, ticks: u64) -> u64 {
    let of_calls = calls.div_ceil(CoalescedCalls::CALLS_MAX.into());
    of_calls.max(ticks.div_ceil(CoalescedCalls::TICKS_MAX)).max(1)
}
