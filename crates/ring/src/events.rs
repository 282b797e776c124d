//! The event path: what the plugin does with an enter and a leave. This is the page that must stay short.

use crate::record::{Kind, Record};
use crate::ring::RingProducer;

/// Writes one location's enter and leave events so that the stream is well nested whatever happens.
///
/// An enter is admitted only if, after it, room remains for its leave and for the leave of every open frame; so a
/// leave always finds room. An enter that is not admitted is *suppressed* together with everything below it: its
/// leave writes nothing either, and its time and energy go to the enclosing frame. A call that has ended unseen is
/// counted. Once there is ample room again, the next enter brings the suppressed frames that are still open back,
/// as entered then: one bad moment does not hide a function that runs for hours.
pub struct EventWriter {
    ring: RingProducer,
    /// Frames whose enter is in the ring and whose leave is not.
    open: u64,
    /// Frames that are open and not in the ring; 0 when nothing is being suppressed.
    suppressed_depth: usize,
    /// The regions of the outermost of them.
    suppressed: [u32; REMEMBERED],
    suppressed_calls: u64,
    dropped_records: u64,
    reported_calls: u64,
}

/// Slots kept free besides the leaves, for `Suppressed`, `ProgramEnd` and `LocationEnd`.
const RESERVE: u64 = 3;
/// Deeper suppressed frames are brought back when the stack has come down to this.
const REMEMBERED: usize = 64;

impl EventWriter {
    pub fn new(ring: RingProducer) -> EventWriter {
        EventWriter {
            ring,
            open: 0,
            suppressed_depth: 0,
            suppressed: [0; REMEMBERED],
            suppressed_calls: 0,
            dropped_records: 0,
            reported_calls: 0,
        }
    }

    #[inline(always)]
    pub fn enter(&mut self, timestamp: u64, region: u32) {
        if self.suppressed_depth == 0 && self.ring.has_room(self.open + 2 + RESERVE) {
            self.open += 1;
            self.ring.push_with_room(Record::new(Kind::Enter, timestamp, region));
        } else {
            self.suppress(timestamp, region);
        }
    }

    #[inline(always)]
    pub fn leave(&mut self, timestamp: u64, region: u32) {
        if self.suppressed_depth == 0 && self.open > 0 {
            self.open -= 1;
            self.ring.push_with_room(Record::new(Kind::Leave, timestamp, region));
        } else {
            self.unwind();
        }
    }

    #[cold]
    fn suppress(&mut self, timestamp: u64, region: u32) {
        if let Some(place) = self.suppressed.get_mut(self.suppressed_depth) {
            *place = region;
        }
        self.suppressed_depth += 1;
        let frames = self.suppressed_depth as u64;
        // Half of the ring, or it would be full again at once.
        let ample = self.open + 2 * frames + RESERVE + self.ring.capacity_records() / 2;
        if self.suppressed_depth <= REMEMBERED && self.ring.free() >= ample {
            for at in 0..self.suppressed_depth {
                self.ring.push_with_room(Record::new(Kind::Enter, timestamp, self.suppressed[at]));
            }
            self.open += frames;
            self.suppressed_depth = 0;
        }
    }

    #[cold]
    fn unwind(&mut self) {
        if self.suppressed_depth > 0 {
            self.suppressed_depth -= 1;
            self.suppressed_calls += 1;
            self.ring.set_suppressed_calls(self.suppressed_calls);
        } else {
            // A leave without an enter, from a host that began to measure inside a region: nothing to close.
            self.dropped_records += 1;
            self.ring.set_dropped_records(self.dropped_records);
        }
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
        self.suppressed_calls += self.suppressed_depth as u64;
        self.ring.set_suppressed_calls(self.suppressed_calls);
        if self.suppressed_calls > self.reported_calls && self.ring.has_room(2) {
            let more = self.suppressed_calls - self.reported_calls;
            self.ring.push_with_room(Record::new(Kind::Suppressed, more, 0));
            self.reported_calls = self.suppressed_calls;
        }
        if self.ring.has_room(1) {
            self.ring.push_with_room(Record::new(kind, timestamp, 0));
        } else {
            self.dropped_records += 1;
            self.ring.set_dropped_records(self.dropped_records);
        }
        self.open = 0;
        self.suppressed_depth = 0;
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
            self.dropped_records += 1;
            self.ring.set_dropped_records(self.dropped_records);
        }
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
