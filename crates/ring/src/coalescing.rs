//! Coalesces calls that come faster than they can be recorded.
//!
//! When a program calls tiny functions faster than the collector can follow, the writer counts and times the calls itself and
//! writes the result once a millisecond as a *group*: for each call path the number of calls that began and their exclusive
//! ticks. Calls and times are exact, and so is energy as far as it is linear within that millisecond. Only the start times of
//! the single calls are lost, and the number of these calls is counted (*coalesced* calls).
//!
//! Only short calls are coalesced. A call path whose calls were shorter than a millisecond several times in a row is coalesced
//! from then on, together with everything below it; calls of other paths are still recorded. After a long call, a path needs
//! more short calls in a row before it is coalesced again. A frame that is open at the end of a millisecond is written in
//! slices, so that a group never covers much more than a millisecond.
//!
//! A group lies between two other records and covers what ran between them: it is written before the next record. If the ring
//! has no room for the group, the group is kept and grows; calls are suppressed only if it has more than a thousand call paths.

use crate::calltree::{CallTree, NodeIndex, ROOT};
use crate::event_writer::{EventWriter, RESERVE};
use crate::record::{CoalescedCalls, Kind, Record};

/// What is done with calls when the collector cannot follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverloadPolicy {
    /// The calls are left out and counted.
    Suppress,
    /// The program waits until there is room.
    Wait,
    /// The calls are coalesced while there is no room, or while more of them come than are worth a record each.
    CoalesceUnderPressure,
    /// The calls are coalesced from the start.
    Coalesce,
}

impl OverloadPolicy {
    pub(crate) fn coalesces(self) -> bool {
        matches!(self, OverloadPolicy::CoalesceUnderPressure | OverloadPolicy::Coalesce)
    }
}

/// What coalescing and waiting need to know about the session. The functions are rarely called, but from the event path: they
/// must neither block nor allocate.
#[derive(Clone, Copy)]
pub struct SessionProbes {
    /// Ticks per second of the clock that this timestamp of an event is from; 0 if that is not known.
    pub ticks_per_second: fn(u64) -> u64,
    /// Whether the collector is alive and reads rings.
    pub collector_is_alive: fn() -> bool,
    /// The number of times that the collector has looked at all rings.
    pub collector_rounds: fn() -> u64,
}

/// The state of coalescing on one location.
pub(crate) struct Coalescing {
    tree: CallTree,
    pub probes: SessionProbes,
    /// Whether calls are being coalesced.
    pub active: bool,
    /// The innermost open frame that was entered since coalescing began.
    current: NodeIndex,
    /// The innermost of those frames whose enter has been written to the ring.
    base: NodeIndex,
    /// The timestamp of the last event.
    last: u64,
    /// The time at which the first call of the group began.
    first: u64,
    /// The ticks of a millisecond. Calls that are coalesced are shorter.
    period: u64,
    /// The ticks above which a call is long.
    long: u64,
    period_end: u64,
    /// The number of calls that were coalesced in this period and have been written in groups.
    calls: u64,
    /// The last time at which there were too many calls to record each.
    busy: u64,
    /// In [`EventWriter::wait_for_room`], the ring's limit when waiting was given up.
    pub given_up_at: Option<u64>,
}

/// The number of periods after which a call of a path that was known to be short counts as long. That is well within the time
/// that the collector allows for events to arrive (100 ms), and longer than a thread is usually off its core.
const LONG_PERIODS: u64 = 20;
/// With at most this many calls per period, a million per second, each can be recorded.
const FEW_CALLS: u64 = 1000;
/// The number of periods with few calls after which coalescing ends.
const QUIET_PERIODS: u64 = 1000;

impl EventWriter {
    /// A writer that follows `policy` when there is no room.
    pub fn with_policy(
        ring: crate::RingProducer,
        policy: OverloadPolicy,
        probes: SessionProbes,
    ) -> EventWriter {
        let coalescing = Coalescing {
            tree: CallTree::new(),
            probes,
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
        writer.policy = policy;
        writer.coalescing = Some(coalescing);
        writer
    }

    #[cold]
    pub(crate) fn begin_coalescing(&mut self, timestamp: u64) -> bool {
        let Some(coalescing) = self.coalescing.as_mut().filter(|_| self.policy.coalesces()) else {
            return false;
        };
        coalescing.period = (coalescing.probes.ticks_per_second)(timestamp) / 1000;
        if coalescing.period == 0 {
            return false;
        }
        coalescing.long = LONG_PERIODS * coalescing.period;
        coalescing.active = true;
        (coalescing.current, coalescing.base) = (ROOT, ROOT);
        (coalescing.last, coalescing.busy) = (timestamp, timestamp);
        coalescing.period_end = timestamp.saturating_add(coalescing.period);
        coalescing.calls = 0;
        self.recording = false;
        self.limit = 0;
        true
    }

    #[inline(always)]
    pub(crate) fn coalesce_enter(&mut self, timestamp: u64, region: u32) {
        let Some(coalescing) = self.coalescing.as_mut() else { return self.suppress(timestamp, region) };
        if timestamp >= coalescing.period_end && !self.end_period(timestamp) {
            return self.enter_again(timestamp, region); // coalescing has ended
        }
        let Some(coalescing) = self.coalescing.as_mut() else { return };
        coalescing.tick(timestamp);
        let Some(node) = coalescing.tree.child(coalescing.current, region) else {
            return self.start_over(timestamp, region);
        };
        if coalescing.current != coalescing.base || coalescing.tree[node].short {
            coalescing.open(node, timestamp);
        } else {
            self.record_or_coalesce(timestamp, node);
        }
    }

    #[inline(always)]
    pub(crate) fn coalesce_leave(&mut self, timestamp: u64, region: u32) {
        let Some(coalescing) = self.coalescing.as_mut() else { return };
        if timestamp >= coalescing.period_end && !self.end_period(timestamp) {
            return self.leave_again(timestamp, region);
        }
        let Some(coalescing) = self.coalescing.as_mut() else { return };
        coalescing.tick(timestamp);
        let node = coalescing.current;
        if node == coalescing.base {
            return self.leave_recorded(timestamp, region);
        }
        if coalescing.tree[node].region != region {
            return self.leave_other(timestamp, region);
        }
        coalescing.close(node, timestamp);
    }

    /// Handles a leave of another frame than the innermost: frames were entered or left while recording was switched off. The open
    /// frames are written, and the decoder repairs the nesting.
    #[cold]
    fn leave_other(&mut self, timestamp: u64, region: u32) {
        if self.resume_frames() {
            return self.leave_recorded(timestamp, region);
        }
        let Some(coalescing) = self.coalescing.as_mut() else { return };
        coalescing.close(coalescing.current, timestamp);
    }

    #[cold]
    fn enter_again(&mut self, timestamp: u64, region: u32) {
        self.enter(timestamp, region);
    }

    #[cold]
    fn leave_again(&mut self, timestamp: u64, region: u32) {
        self.leave(timestamp, region);
    }

    /// Records a call of a path that is not known to be short, or coalesces it if there is no room.
    #[cold]
    fn record_or_coalesce(&mut self, timestamp: u64, node: NodeIndex) {
        let written = self.write_group() && self.ring.has_room(self.open + 2 + RESERVE);
        let Some(coalescing) = self.coalescing.as_mut() else { return };
        if !written {
            return coalescing.open(node, timestamp);
        }
        coalescing.tree[node].start = timestamp;
        (coalescing.current, coalescing.base) = (node, node);
        let region = coalescing.tree[node].region;
        self.open += 1;
        self.ring.push_with_room(Record::new(Kind::Enter, timestamp, region));
    }

    /// Leaves the innermost frame, whose enter is in the ring.
    #[cold]
    fn leave_recorded(&mut self, timestamp: u64, region: u32) {
        self.write_group_or_suppress();
        let Some(coalescing) = self.coalescing.as_mut() else { return };
        let node = coalescing.base;
        if node != ROOT {
            let ticks = timestamp.saturating_sub(coalescing.tree[node].start);
            coalescing.learn(node, ticks);
            // If a frame is in the ring, the frames around it are, too.
            coalescing.base = coalescing.tree[node].parent;
            coalescing.current = coalescing.base;
        }
        if self.open > 0 {
            self.open -= 1;
            self.ring.push_with_room(Record::new(Kind::Leave, timestamp, region));
        } else {
            self.count_dropped();
        }
    }

    /// Ends a period: writes its group if there is room. Returns whether coalescing continues.
    #[cold]
    fn end_period(&mut self, timestamp: u64) -> bool {
        self.write_group();
        let Some(coalescing) = self.coalescing.as_mut() else { return false };
        // The time since the last event belongs to the innermost frame alone: it gets a group of its own, at its own time.
        if timestamp.saturating_sub(coalescing.last) > coalescing.period {
            coalescing.tick(timestamp);
            self.write_group();
        }
        let Some(coalescing) = self.coalescing.as_mut() else { return false };
        let periods = 1 + timestamp.saturating_sub(coalescing.period_end) / coalescing.period;
        if coalescing.calls > FEW_CALLS.saturating_mul(periods) {
            coalescing.busy = timestamp;
        }
        coalescing.calls = 0;
        coalescing.period_end = timestamp.saturating_add(coalescing.period);
        let quiet = timestamp.saturating_sub(coalescing.busy) > QUIET_PERIODS * coalescing.period;
        if quiet && self.policy == OverloadPolicy::CoalesceUnderPressure {
            return !self.end_coalescing();
        }
        if coalescing.is_long(timestamp) {
            self.resume_frames();
        }
        true
    }

    /// Called when the tree has no room for another call path: forgets all of them and starts to learn again.
    #[cold]
    fn start_over(&mut self, timestamp: u64, region: u32) {
        if !self.resume_frames() {
            return self.suppress(timestamp, region);
        }
        let Some(coalescing) = self.coalescing.as_mut() else { return };
        coalescing.forget_frames();
        coalescing.tree.clear();
        self.enter_again(timestamp, region);
    }

    /// Writes an enter for each coalesced open frame, because a record that belongs in them comes next. `false` if there is no room.
    #[cold]
    pub(crate) fn enter_coalesced_frames(&mut self, timestamp: u64) -> bool {
        if let Some(coalescing) = &mut self.coalescing {
            coalescing.tick(timestamp);
        }
        self.resume_frames()
    }

    /// Writes an enter for each coalesced open frame, at the time of the last event. `false` if there is no room.
    fn resume_frames(&mut self) -> bool {
        if !self.write_group() {
            return false;
        }
        let Some(coalescing) = self.coalescing.as_mut() else { return true };
        let frames = coalescing.coalesced_frames();
        if !self.ring.has_room(self.open + 2 * frames + RESERVE) {
            return false;
        }
        // From the innermost to the outermost, each in its slot.
        let mut at = coalescing.current;
        for place in (0..frames).rev() {
            let node = &coalescing.tree[at];
            self.ring.put_with_room(place, Record::new(Kind::Resume, coalescing.last, node.region));
            at = node.parent;
        }
        self.ring.publish(frames);
        self.open += frames;
        coalescing.base = coalescing.current;
        coalescing.tree.clear_pending(); // slices of frames that are in the ring now
        true
    }

    /// Makes the call tree consistent after the writing of an event was abandoned in the middle.
    pub(crate) fn repair_call_tree(&mut self) {
        if let Some(coalescing) = self.coalescing.as_mut().filter(|coalescing| coalescing.active) {
            coalescing.tree.repair();
        }
    }

    /// Returns to recording single events, after writing an enter for each coalesced open frame. `false` if there is no room.
    pub(crate) fn end_coalescing(&mut self) -> bool {
        if self.coalescing.as_ref().is_none_or(|coalescing| !coalescing.active) {
            return true;
        }
        if !self.resume_frames() {
            return false;
        }
        if let Some(coalescing) = self.coalescing.as_mut() {
            coalescing.forget_frames();
            coalescing.active = false;
        }
        self.recording = true;
        self.limit = 0;
        true
    }

    /// Writes what is pending, because the location ends.
    #[cold]
    pub(crate) fn stop_coalescing(&mut self, timestamp: u64) {
        let Some(coalescing) = self.coalescing.as_mut().filter(|coalescing| coalescing.active) else {
            return;
        };
        coalescing.tick(timestamp);
        self.write_group_or_suppress();
        if let Some(coalescing) = self.coalescing.as_mut() {
            coalescing.tree.clear_pending(); // slices of frames that have ended
            coalescing.forget_frames();
            coalescing.active = false;
        }
    }

    /// Writes the pending group. If there is no room for it, its calls are suppressed.
    pub(crate) fn write_group_or_suppress(&mut self) {
        if self.write_group() {
            return;
        }
        let Some(coalescing) = self.coalescing.as_mut() else { return };
        let mut calls = 0;
        coalescing.tree.each_pending(coalescing.base, |_, node| calls += node.calls);
        coalescing.tree.clear_pending();
        self.count_suppressed(calls);
    }

    /// Writes what has been coalesced since the last group. `false` if there is no room for it.
    pub(crate) fn write_group(&mut self) -> bool {
        let Some(coalescing) = self.coalescing.as_mut() else { return true };
        if !coalescing.tree.has_pending() {
            return true;
        }
        let (mut count, mut all_calls) = (0, 0);
        coalescing.tree.each_pending(coalescing.base, |_, node| {
            count += records_of(node.calls, node.exclusive);
            all_calls += node.calls;
        });
        if count > 0 {
            if !self.ring.has_room(self.open + 1 + count + RESERVE) {
                return false;
            }
            self.ring.put_with_room(0, Record::new(Kind::Group, coalescing.first, count as u32));
            let mut place = 1;
            coalescing.tree.each_pending(coalescing.base, |depth, node| {
                let (mut calls, mut ticks) = (node.calls, node.exclusive);
                for _ in 0..records_of(calls, ticks) {
                    let written = CoalescedCalls {
                        region: node.region,
                        depth: depth as u16,
                        calls: calls.min(CoalescedCalls::CALLS_MAX.into()) as u32,
                        exclusive_ticks: ticks.min(CoalescedCalls::TICKS_MAX),
                    };
                    self.ring.put_with_room(place, Record::coalesced_calls(written));
                    (calls, ticks) = (calls - u64::from(written.calls), ticks - written.exclusive_ticks);
                    place += 1;
                }
            });
            self.ring.publish(1 + count);
        }
        coalescing.calls += all_calls;
        coalescing.tree.clear_pending();
        coalescing.first = coalescing.last;
        if coalescing.current != coalescing.base {
            coalescing.tree.mark_pending(coalescing.current); // its frame continues
        }
        true
    }
}

/// The number of records that one call path takes.
fn records_of(calls: u64, ticks: u64) -> u64 {
    let of_calls = calls.div_ceil(CoalescedCalls::CALLS_MAX.into());
    of_calls.max(ticks.div_ceil(CoalescedCalls::TICKS_MAX)).max(1)
}

impl Coalescing {
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

    /// Leaves the innermost frame if its call path is ready, which also means that its enter is not in the ring. Otherwise returns
    /// `false`, with nothing changed. A long call need not be detected here: it is at the end of a period.
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

    /// The value for [`EventWriter::coalesced_until`].
    pub fn short_until(&self) -> u64 {
        if self.active { self.period_end } else { 0 }
    }

    /// Gives the time since the last event to the innermost frame.
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

    /// The number of open frames whose enters are not in the ring. `base` need not be an ancestor of `current`: an event that
    /// was abandoned in the middle may have changed only one of them.
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
