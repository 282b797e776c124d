//! The event path: what the plugin does at an enter and at a leave. It must stay short.

use crate::coalescing::{Coalescing, OverloadPolicy};
use crate::communication::Communication;
use crate::record::{Kind, Record};
use crate::ring::RingProducer;

/// Writes one location's enter and leave events such that the stream is always well nested.
///
/// An enter is admitted only if room remains for its leave and for the leave of every open frame, so that a leave always
/// finds room. What happens to an enter that is not admitted depends on the [`OverloadPolicy`]:
/// - the writer waits for room (`Wait`);
/// - the call is *coalesced* (see [`crate::coalescing`]): calls are counted and timed here, and written in groups;
/// - the call is *suppressed*, together with everything below it: its leave writes nothing either, and its time and energy
///   go to the enclosing frame. Suppressed calls are counted when they end. Once there is ample room again, the next enter
///   also writes enters for the suppressed frames that are still open, with its own timestamp: a short shortage of room
///   does not hide a function that runs for hours.
pub struct EventWriter {
    pub(crate) ring: RingProducer,
    /// Frames whose enter is in the ring and whose leave is not.
    pub(crate) open: u64,
    /// An enter is admitted without further checks while position + open frames is below this.
    pub(crate) limit: u64,
    /// Neither coalescing nor suppressing: a leave belongs to the innermost frame in the ring.
    pub(crate) recording: bool,
    pub(crate) coalescing: Option<Coalescing>,
    /// Until this time short calls are coalesced without further checks; 0 while no calls are coalesced.
    coalesced_until: u64,
    pub(crate) policy: OverloadPolicy,
    /// The position and the time since which the rate of records is measured.
    measured_from: (u64, u64),
    /// The number of suppressed open frames.
    pub(crate) suppressed_depth: usize,
    /// The regions of the outermost suppressed frames.
    suppressed: [u32; SUPPRESSED_REMEMBERED],
    suppressed_calls: u64,
    dropped_records: u64,
    /// The number of suppressed calls that `Suppressed` records have reported.
    reported_calls: u64,
}

/// The number of slots that are kept free in addition to those for leaves, for `Suppressed`, `ProgramEnd` and `LocationEnd`.
pub(crate) const RESERVE: u64 = 3;
/// With [`OverloadPolicy::Coalesce`], the number of events after which coalescing is tried again.
const COALESCING_RETRY: u64 = 64;
/// Above this rate a location's calls are coalesced, whether or not the collector could follow: recording and keeping each
/// of them costs more than it is worth.
pub const RECORDS_PER_SECOND: u64 = 10_000_000;
/// The rate of records is measured over at least this many records.
const MEASURED_RECORDS: u64 = 1 << 15;
/// Suppressed frames beyond this number are written again only when the stack is not deeper than that.
const SUPPRESSED_REMEMBERED: usize = 64;

impl EventWriter {
    /// A writer that suppresses what finds no room.
    pub fn new(ring: RingProducer) -> EventWriter {
        EventWriter {
            ring,
            open: 0,
            limit: 0,
            recording: true,
            coalescing: None,
            coalesced_until: 0,
            policy: OverloadPolicy::Suppress,
            measured_from: (0, 0),
            suppressed_depth: 0,
            suppressed: [0; SUPPRESSED_REMEMBERED],
            suppressed_calls: 0,
            dropped_records: 0,
            reported_calls: 0,
        }
    }

    /// Records that a region is entered. `timestamp` is in ticks of the process' event clock.
    #[inline(always)]
    pub fn enter(&mut self, timestamp: u64, region: u32) {
        if !self.enter_at_once(timestamp, region) {
            self.enter_not_recorded(timestamp, region);
        }
    }

    /// Handles the frequent cases of [`EventWriter::enter`]. Returns `false`, with nothing changed, in all other cases.
    #[inline(always)]
    pub fn enter_at_once(&mut self, timestamp: u64, region: u32) -> bool {
        if self.coalesce_short_enter(timestamp, region) {
            return true;
        }
        let is_admitted = self.ring.position() + self.open < self.limit;
        if is_admitted {
            self.open += 1;
            self.ring.push_with_room(Record::new(Kind::Enter, timestamp, region));
        }
        is_admitted
    }

    /// Records that a region is left.
    #[inline(always)]
    pub fn leave(&mut self, timestamp: u64, region: u32) {
        if !self.leave_at_once(timestamp, region) {
            self.leave_not_recorded(timestamp, region);
        }
    }

    /// Handles the frequent cases of [`EventWriter::leave`]. Returns `false`, with nothing changed, in all other cases.
    #[inline(always)]
    pub fn leave_at_once(&mut self, timestamp: u64, region: u32) -> bool {
        if self.coalesce_short_leave(timestamp, region) {
            return true;
        }
        let is_innermost = self.recording && self.open > 0;
        if is_innermost {
            self.open -= 1;
            self.ring.push_with_room(Record::new(Kind::Leave, timestamp, region));
        }
        is_innermost
    }

    /// Handles the most frequent case while calls are coalesced. Returns `false`, with nothing changed, in all other cases.
    #[inline(always)]
    fn coalesce_short_enter(&mut self, timestamp: u64, region: u32) -> bool {
        timestamp < self.coalesced_until
            && self.coalescing.as_mut().is_some_and(|coalescing| coalescing.enter_short(timestamp, region))
    }

    #[inline(always)]
    fn coalesce_short_leave(&mut self, timestamp: u64, region: u32) -> bool {
        timestamp < self.coalesced_until
            && self.coalescing.as_mut().is_some_and(|coalescing| coalescing.leave_short(timestamp, region))
    }

    /// Must be called after anything that may begin or end coalescing, or its period.
    fn update_coalesced_until(&mut self) {
        let coalescing = self.coalescing.as_ref().filter(|_| !self.recording && self.suppressed_depth == 0);
        self.coalesced_until = coalescing.map_or(0, |coalescing| coalescing.short_until());
    }

    #[inline(never)]
    fn enter_not_recorded(&mut self, timestamp: u64, region: u32) {
        if !self.recording && self.suppressed_depth == 0 {
            self.coalesce_enter(timestamp, region);
        } else {
            self.enter_at_the_limit(timestamp, region);
        }
        self.update_coalesced_until();
    }

    #[cold]
    fn enter_at_the_limit(&mut self, timestamp: u64, region: u32) {
        if self.suppressed_depth > 0 {
            self.suppress(timestamp, region);
        } else if self.is_to_coalesce(timestamp) && self.begin_coalescing(timestamp) {
            self.coalesce_enter(timestamp, region);
        } else if self.update_limit() {
            self.open += 1;
            self.ring.push_with_room(Record::new(Kind::Enter, timestamp, region));
        } else if self.begin_coalescing(timestamp) {
            self.coalesce_enter(timestamp, region);
        } else {
            self.suppress(timestamp, region);
        }
    }

    /// Whether calls are to be coalesced although there may be room for them.
    fn is_to_coalesce(&mut self, timestamp: u64) -> bool {
        match self.policy {
            OverloadPolicy::Coalesce => true,
            OverloadPolicy::CoalesceUnderPressure => self.is_too_fast(timestamp),
            OverloadPolicy::Suppress | OverloadPolicy::Wait => false,
        }
    }

    /// Whether more than [`RECORDS_PER_SECOND`] were written since the rate was last measured. A collector could follow for a while,
    /// but on a core that the program needs.
    fn is_too_fast(&mut self, timestamp: u64) -> bool {
        let (position, time) = self.measured_from;
        let records = self.ring.position() - position;
        if time > 0 && records < MEASURED_RECORDS {
            return false;
        }
        self.measured_from = (self.ring.position(), timestamp);
        let Some(coalescing) = self.coalescing.as_ref().filter(|_| time > 0) else { return false };
        let second = (coalescing.probes.ticks_per_second)(timestamp);
        let ticks = u128::from(timestamp.saturating_sub(time));
        u128::from(records) * u128::from(second) > u128::from(RECORDS_PER_SECOND) * ticks
    }

    #[inline(never)]
    fn leave_not_recorded(&mut self, timestamp: u64, region: u32) {
        if !self.recording && self.suppressed_depth == 0 {
            self.coalesce_leave(timestamp, region);
        } else {
            self.leave_suppressed();
        }
        self.update_coalesced_until();
    }

    #[cold]
    fn leave_suppressed(&mut self) {
        if self.suppressed_depth > 0 {
            self.suppressed_depth -= 1;
            self.count_suppressed(1);
            if self.suppressed_depth == 0
                && self.coalescing.as_ref().is_none_or(|coalescing| !coalescing.active)
            {
                self.recording = true;
            }
        } else {
            // A host that began to measure inside a region reports a leave without an enter.
            self.count_dropped();
        }
    }

    /// Sets the limit from the consumer's actual position. Returns whether one more enter is admitted.
    fn update_limit(&mut self) -> bool {
        loop {
            let free = self.ring.free();
            // Coalescing begins while there is room for its groups.
            let kept = if self.policy.coalesces() { self.ring.capacity_records() / 2 } else { 0 };
            let used = self.ring.position() + self.open;
            let looked_again_after = match self.policy {
                // The clock is not known yet.
                OverloadPolicy::Coalesce => COALESCING_RETRY,
                OverloadPolicy::CoalesceUnderPressure => MEASURED_RECORDS,
                OverloadPolicy::Suppress | OverloadPolicy::Wait => u64::MAX,
            };
            self.limit = (self.ring.position() + free)
                .saturating_sub(kept + 1 + RESERVE)
                .min(used.saturating_add(looked_again_after));
            let admitted = used < self.limit;
            if admitted || !self.wait_for_room(1) {
                return admitted;
            }
        }
    }

    #[cold]
    pub(crate) fn suppress(&mut self, timestamp: u64, region: u32) {
        self.recording = false;
        self.limit = 0;
        if let Some(place) = self.suppressed.get_mut(self.suppressed_depth) {
            *place = region;
        }
        self.suppressed_depth += 1;
        let frames = self.suppressed_depth as u64;
        // With less than half of the ring free it would be full again at once.
        let ample = self.open + 2 * frames + RESERVE + self.ring.capacity_records() / 2;
        if self.suppressed_depth <= SUPPRESSED_REMEMBERED
            && self.ring.free() >= ample
            && self.end_coalescing()
        {
            // The coalesced frames and their group have taken some of the room.
            self.recording = self.ring.has_room(self.open + 2 * frames + RESERVE);
        }
        if self.recording {
            for at in 0..self.suppressed_depth {
                self.ring.push_with_room(Record::new(Kind::Enter, timestamp, self.suppressed[at]));
            }
            self.open += frames;
            self.suppressed_depth = 0;
        }
    }

    pub(crate) fn count_suppressed(&mut self, calls: u64) {
        self.suppressed_calls += calls;
        self.ring.set_suppressed_calls(self.suppressed_calls);
    }

    pub(crate) fn count_dropped(&mut self) {
        self.dropped_records += 1;
        self.ring.set_dropped_records(self.dropped_records);
    }

    /// Counts events that could not be written because they interrupted the writing of another one.
    pub fn count_dropped_events(&mut self, events: u64) {
        self.dropped_records = self.dropped_records.saturating_add(events);
        self.ring.set_dropped_records(self.dropped_records);
    }

    /// Must be called when the writing of an event was abandoned in the middle (`longjmp` out of a signal handler). Its enter may
    /// not have been counted while its leave will come: room is kept for that leave as long as open frames take less than a quarter
    /// of the ring. The decoder ignores a surplus leave.
    #[cold]
    pub fn event_was_abandoned(&mut self) {
        let has_room =
            self.open < self.ring.capacity_records() / 4 && self.ring.has_room(self.open + 1 + RESERVE);
        self.open += u64::from(has_room);
        self.repair_call_tree();
    }

    /// Records a message, a collective, a request or what a team of threads does. It is written as a whole. Without room for it, or
    /// inside suppressed calls, it is counted as dropped. Enters are written first for the frames around it that are being coalesced,
    /// so that it lies in them at its own time.
    #[inline(never)]
    pub fn communication(&mut self, timestamp: u64, event: Communication) {
        if self.suppressed_depth > 0 || !self.recording && !self.enter_coalesced_frames(timestamp) {
            return self.count_dropped();
        }
        let records = event.records(timestamp);
        let count = records.len() as u64;
        while !self.ring.has_room(self.open + count + RESERVE) {
            if !self.wait_for_room(count) {
                return self.count_dropped();
            }
        }
        for (place, record) in records.enumerate() {
            self.ring.put_with_room(place as u64, record);
        }
        self.ring.publish(count);
    }

    /// Records that the program's measurement begins.
    pub fn program_begin(&mut self, timestamp: u64) {
        if self.ring.has_room(self.open + 1 + RESERVE) {
            self.ring.push_with_room(Record::new(Kind::ProgramBegin, timestamp, 0));
        }
    }

    /// Ends the program's measurement, and with it every open frame, with a single record.
    pub fn program_end(&mut self, timestamp: u64) {
        self.end(Kind::ProgramEnd, timestamp);
    }

    /// Like [`EventWriter::program_end`], for a location that ends before its program.
    pub fn location_end(&mut self, timestamp: u64) {
        self.end(Kind::LocationEnd, timestamp);
    }

    fn end(&mut self, kind: Kind, timestamp: u64) {
        self.count_suppressed(self.suppressed_depth as u64);
        self.stop_coalescing(timestamp);
        if self.suppressed_calls > self.reported_calls && self.ring.has_room(2) {
            let more = self.suppressed_calls - self.reported_calls;
            self.ring.push_with_room(Record::new(Kind::Suppressed, more, 0));
            self.reported_calls = self.suppressed_calls;
        }
        if self.ring.has_room(1) {
            self.ring.push_with_room(Record::new(kind, timestamp, 0));
        } else {
            self.count_dropped();
        }
        (self.open, self.limit, self.suppressed_depth) = (0, 0, 0);
        self.recording = true;
        self.update_coalesced_until();
    }

    /// Whether an enter with its leave, or a sample, finds room.
    pub fn has_room(&mut self) -> bool {
        self.ring.has_room(self.open + 2 + RESERVE)
    }

    /// Whether everything in the ring has been read.
    pub fn is_drained(&mut self) -> bool {
        self.ring.free() == self.ring.capacity_records()
    }

    /// Writes an energy sample in cumulative nanojoules. If the ring is full, the sample is dropped and counted.
    pub fn sample(&mut self, timestamp: u64, device: u32, nanojoules: u64) {
        if self.ring.has_room(2 + RESERVE) {
            let head = Record::new(Kind::Sample, timestamp, device);
            self.ring.push_pair_with_room(head, Record::new(Kind::Value, nanojoules, device));
        } else {
            self.count_dropped();
        }
    }

    /// Writes the pending group of coalesced calls if there is room. Called for a thread that pauses.
    pub fn flush(&mut self) {
        self.write_group();
    }

    /// Like [`EventWriter::flush`], when no event will follow: without room, the pending calls are counted as suppressed.
    pub fn flush_last(&mut self) {
        self.write_group_or_suppress();
    }

    /// Closes the ring: no record will follow.
    pub fn close(&mut self) {
        self.ring.close();
    }

    /// The number of frames that are open in the ring.
    pub fn open_frames(&self) -> u64 {
        self.open
    }

    /// The number of calls suppressed so far.
    pub fn suppressed_calls(&self) -> u64 {
        self.suppressed_calls
    }
}
