//! The event path: what the plugin does with an enter and a leave. This is the page that must stay short.

use crate::fold::{Events, Folding};
use crate::record::{Kind, Record};
use crate::ring::RingProducer;

/// Writes one location's enter and leave events so that the stream is well nested whatever happens.
///
/// An enter is admitted only if, after it, room remains for its leave and for the leave of every open frame; so a
/// leave always finds room. What is not admitted is, by [`Events`],
/// - waited for (`All`);
/// - *folded* (`Auto`, `Folded`, see [`crate::fold`]): calls are counted and timed here, and told in groups;
/// - or *suppressed*, together with everything below it: its leave writes nothing either, and its time and energy go to
///   the enclosing frame. A call that has ended unseen is counted. Once there is ample room again, the next enter brings
///   the suppressed frames that are still open back, as entered then: one bad moment does not hide a function that runs
///   for hours.
pub struct EventWriter {
    pub(crate) ring: RingProducer,
    /// Frames whose enter is in the ring and whose leave is not.
    pub(crate) open: u64,
    /// An enter is admitted without a further look while position + open frames is below this.
    pub(crate) limit: u64,
    /// Neither folding nor suppressing: what is left is what was entered last in the ring.
    pub(crate) recording: bool,
    pub(crate) folding: Option<Box<Folding>>,
    pub(crate) events: Events,
    /// Frames that are open and neither in the ring nor folded.
    pub(crate) suppressed_depth: usize,
    /// The regions of the outermost of them.
    suppressed: [u32; REMEMBERED],
    pub(crate) suppressed_calls: u64,
    dropped_records: u64,
    reported_calls: u64,
}

/// Slots kept free besides the leaves, for `Suppressed`, `ProgramEnd` and `LocationEnd`.
pub(crate) const RESERVE: u64 = 3;
/// Events until it is tried again to fold.
const UNTIL_FOLDED: u64 = 64;
/// Deeper suppressed frames are brought back when the stack has come down to this.
const REMEMBERED: usize = 64;

impl EventWriter {
    /// One that suppresses what finds no room.
    pub fn new(ring: RingProducer) -> EventWriter {
        EventWriter {
            ring,
            open: 0,
            limit: 0,
            recording: true,
            folding: None,
            events: Events::Suppress,
            suppressed_depth: 0,
            suppressed: [0; REMEMBERED],
            suppressed_calls: 0,
            dropped_records: 0,
            reported_calls: 0,
        }
    }

    #[inline(always)]
    pub fn enter(&mut self, timestamp: u64, region: u32) {
        if self.ring.position() + self.open < self.limit {
            self.open += 1;
            self.ring.push_with_room(Record::new(Kind::Enter, timestamp, region));
        } else {
            self.enter_aside(timestamp, region);
        }
    }

    #[inline(always)]
    pub fn leave(&mut self, timestamp: u64, region: u32) {
        if self.recording && self.open > 0 {
            self.open -= 1;
            self.ring.push_with_room(Record::new(Kind::Leave, timestamp, region));
        } else {
            self.leave_aside(timestamp, region);
        }
    }

    /// Folding comes first: it is as frequent as recording.
    #[inline(never)]
    fn enter_aside(&mut self, timestamp: u64, region: u32) {
        if !self.recording && self.suppressed_depth == 0 {
            self.fold_enter(timestamp, region);
        } else {
            self.enter_at_the_limit(timestamp, region);
        }
    }

    #[cold]
    fn enter_at_the_limit(&mut self, timestamp: u64, region: u32) {
        if self.suppressed_depth > 0 {
            self.suppress(timestamp, region);
        } else if self.events == Events::Folded && self.begin_folding(timestamp) {
            self.fold_enter(timestamp, region);
        } else if self.look_again() {
            self.open += 1;
            self.ring.push_with_room(Record::new(Kind::Enter, timestamp, region));
        } else if self.begin_folding(timestamp) {
            self.fold_enter(timestamp, region);
        } else {
            self.suppress(timestamp, region);
        }
    }

    #[inline(never)]
    fn leave_aside(&mut self, timestamp: u64, region: u32) {
        if !self.recording && self.suppressed_depth == 0 {
            self.fold_leave(timestamp, region);
        } else {
            self.leave_unseen();
        }
    }

    #[cold]
    fn leave_unseen(&mut self) {
        if self.suppressed_depth > 0 {
            self.suppressed_depth -= 1;
            self.count_suppressed(1);
            if self.suppressed_depth == 0 && self.folding.as_ref().is_none_or(|folding| !folding.active) {
                self.recording = true;
            }
        } else {
            // A leave without an enter, from a host that began to measure inside a region: nothing to close.
            self.count_dropped();
        }
    }

    /// Sets the limit by the reader's true position; whether one more enter is within it.
    fn look_again(&mut self) -> bool {
        loop {
            let free = self.ring.free();
            // Folding begins while there is room for what it needs.
            let kept = if self.events.folds() { self.ring.capacity_records() / 2 } else { 0 };
            self.limit = (self.ring.position() + free).saturating_sub(kept + 1 + RESERVE);
            if self.events == Events::Folded {
                self.limit = self.limit.min(self.ring.position() + self.open + UNTIL_FOLDED); // the clock cannot be told yet
            }
            let admitted = self.ring.position() + self.open < self.limit;
            if admitted || !self.wait_for_room() {
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
        // Half of the ring, or it would be full again at once.
        let ample = self.open + 2 * frames + RESERVE + self.ring.capacity_records() / 2;
        if self.suppressed_depth <= REMEMBERED && self.ring.free() >= ample && self.end_folding() {
            // What was folded has taken its part.
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

    /// Events that could not be handed over, because this was in the middle of another one.
    pub fn count_lost(&mut self, events: u64) {
        self.dropped_records = self.dropped_records.saturating_add(events);
        self.ring.set_dropped_records(self.dropped_records);
    }

    /// An event was left for good, in the middle: its enter may be known to who sends the events and not here, and its leave
    /// will come. One leave too many is nothing to the reader; room is kept for it, within reason.
    #[cold]
    pub fn was_left(&mut self) {
        self.open = self.open.saturating_add(1).min(self.ring.capacity_records() / 4).max(self.open);
        self.repair_folding();
    }

    /// The program's measurement begins.
    pub fn program_begin(&mut self, timestamp: u64) {
        if self.ring.has_room(self.open + 1 + RESERVE) {
            self.ring.push_with_room(Record::new(Kind::ProgramBegin, timestamp, 0));
        }
    }

    /// Ends every open frame at `timestamp`. The reader does the closing: one record says it for all of them.
    pub fn program_end(&mut self, timestamp: u64) {
        self.end(Kind::ProgramEnd, timestamp);
    }

    /// As [`EventWriter::program_end`], for a location that ends before its program.
    pub fn location_end(&mut self, timestamp: u64) {
        self.end(Kind::LocationEnd, timestamp);
    }

    fn end(&mut self, kind: Kind, timestamp: u64) {
        self.count_suppressed(self.suppressed_depth as u64);
        self.stop_folding(timestamp);
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
    }

    /// Whether a sample would find room.
    pub fn has_room_for_sample(&mut self) -> bool {
        self.ring.has_room(2 + RESERVE)
    }

    /// Writes an energy sample; a full ring drops it and counts.
    pub fn sample(&mut self, timestamp: u64, device: u32, nanojoules: u64) {
        if self.ring.has_room(2 + RESERVE) {
            let head = Record::new(Kind::Sample, timestamp, device);
            self.ring.push_pair_with_room(head, Record::new(Kind::Value, nanojoules, device));
        } else {
            self.count_dropped();
        }
    }

    /// No event is near: what has been folded is told.
    pub fn settle(&mut self) {
        self.write_group();
    }

    /// No event will follow.
    pub fn settle_last(&mut self) {
        self.write_group_or_suppress();
    }

    /// No record will follow.
    pub fn close(&mut self) {
        self.ring.close();
    }

    /// Frames that are open in the ring.
    pub fn open_frames(&self) -> u64 {
        self.open
    }

    pub fn suppressed_calls(&self) -> u64 {
        self.suppressed_calls
    }
}
