//! The ring of one location as its writer uses it: room is kept for the leaves of open frames, and calls and records that find no
//! room are counted.

use crate::record::{Kind, Record};
use crate::ring::RingProducer;

/// The number of slots that are kept free in addition to those for leaves, for `Suppressed`, `ProgramEnd` and `LocationEnd`.
pub(crate) const RESERVE: u64 = 3;

/// The number of records for an enter with a correlation id and its leave together.
pub(crate) const CORRELATED_RECORDS: u64 = 3;

pub(crate) struct Output {
    pub ring: RingProducer,
    /// Frames whose enter is in the ring and whose leave is not.
    pub open: u64,
    pub suppressed_calls: u64,
    /// The number of suppressed calls that `Suppressed` records have reported.
    reported_calls: u64,
    dropped_records: u64,
}

impl Output {
    pub fn new(ring: RingProducer) -> Output {
        Output { ring, open: 0, suppressed_calls: 0, reported_calls: 0, dropped_records: 0 }
    }

    /// Whether there is room for this number of records in addition to the leaves of all open frames.
    pub fn has_room(&mut self, records: u64) -> bool {
        self.ring.has_room(self.open + records + RESERVE)
    }

    /// Writes an enter. There must be room for it and its leave.
    #[inline(always)]
    pub fn enter(&mut self, timestamp: u64, region: u32) {
        self.open += 1;
        self.ring.push_with_room(Record::new(Kind::Enter, timestamp, region));
    }

    /// Writes an enter that has a correlation id. There must be room for two records and the leave.
    pub fn enter_correlated(&mut self, timestamp: u64, region: u32, id: u64) {
        self.open += 1;
        let head = Record::new(Kind::Correlation, id, 0);
        self.ring.push_pair_with_room(head, Record::new(Kind::Enter, timestamp, region));
    }

    /// Writes a leave. A frame must be open.
    #[inline(always)]
    pub fn leave(&mut self, timestamp: u64, region: u32) {
        self.open -= 1;
        self.ring.push_with_room(Record::new(Kind::Leave, timestamp, region));
    }

    pub fn count_suppressed(&mut self, calls: u64) {
        self.suppressed_calls += calls;
        self.ring.set_suppressed_calls(self.suppressed_calls);
    }

    pub fn count_dropped(&mut self, records: u64) {
        self.dropped_records = self.dropped_records.saturating_add(records);
        self.ring.set_dropped_records(self.dropped_records);
    }

    /// Ends all open frames, after reporting the suppressed calls.
    pub fn end(&mut self, kind: Kind, timestamp: u64) {
        if self.suppressed_calls > self.reported_calls && self.ring.has_room(2) {
            let more = self.suppressed_calls - self.reported_calls;
            self.ring.push_with_room(Record::new(Kind::Suppressed, more, 0));
            self.reported_calls = self.suppressed_calls;
        }
        if self.ring.has_room(1) {
            self.ring.push_with_room(Record::new(kind, timestamp, 0));
        } else {
            self.count_dropped(1);
        }
        self.open = 0;
    }
}
