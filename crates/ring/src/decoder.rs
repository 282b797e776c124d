//! Decodes one location's records into a well-nested stream of events. The live attribution and the trace writer both use
//! it, so the trace contains exactly the events that were attributed.

use crate::communication::{self, Communication, Partial};
use crate::{CoalescedCalls, Kind, Record};
use ampere_model::Timestamp;

/// A decoded event. Regions are the process' own handles; the timestamps of one decoder's events never decrease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// The timestamp and the region.
    Enter(Timestamp, u32),
    /// The timestamp, the region and the number of coalesced calls that this enter represents; 0 for a frame that only continues.
    /// The time up to its leave is the exact sum of the calls' times; the start times of the single calls are not known.
    EnterCoalesced(Timestamp, u32, u32),
    /// The timestamp, the region, and the correlation id that a launch has in common with the work that it launches.
    EnterCorrelated(Timestamp, u32, u64),
    /// The timestamp and the region, which is always the innermost open one.
    Leave(Timestamp, u32),
    /// The timestamp, the device index and the nanojoules.
    Sample(Timestamp, u32, u64),
    /// The CPU time of the location: the timestamp; the number of ticks before it during which the CPU time rose, or 0 if it rose
    /// since the previous event of this kind; and the total nanoseconds.
    CpuTime(Timestamp, u32, u64),
    /// A count of events since the thread's last stack sample, attributed to the innermost frame: the timestamp, the
    /// number of the event, and the count.
    Counts(Timestamp, u32, u64),
    /// The program's measurement began at this time.
    ProgramBegin(Timestamp),
    /// The program's measurement ended at this time.
    ProgramEnd(Timestamp),
    /// A message, a collective, a request or a team of threads.
    Communication(Timestamp, Communication),
}

impl Event {
    /// Whether a frame begins or ends.
    #[inline(always)]
    pub fn is_of_frame(&self) -> bool {
        use Event::{Enter, EnterCoalesced, EnterCorrelated, Leave};
        matches!(self, Enter(..) | EnterCoalesced(..) | EnterCorrelated(..) | Leave(..))
    }
}

/// The faults in the records that were found and repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Leaves of a region that was not open; they are left out.
    pub unmatched_leaves: u64,
    /// Frames without a leave; they are closed together with an enclosing frame.
    pub missing_leaves: u64,
    /// Timestamps before the previous one; they are replaced by it.
    pub backward: u64,
    /// Records of an unknown kind, and incomplete samples, CPU times, counts, groups and communications,
    /// and ids without their enter; they are left out.
    pub damaged: u64,
}

/// The state of one location's stream.
#[derive(Debug, Default)]
pub struct Decoder {
    open_regions: Vec<u32>,
    last_time: Timestamp,
    incomplete: Incomplete,
    /// The number of calls that the writer left out because there was no room.
    pub suppressed_calls: u64,
    /// The number of calls that were recorded in groups.
    pub coalesced_calls: u64,
    /// The faults that were found so far.
    pub repairs: Repairs,
}

/// An event or group of several records that have been read only in part.
#[derive(Clone, Copy, Debug, Default)]
enum Incomplete {
    #[default]
    Nothing,
    /// The timestamp and the device of a sample whose value is missing.
    Sample(Timestamp, u32),
    /// The timestamp and the argument of a CPU time whose value is missing.
    CpuTime(Timestamp, u32),
    /// The timestamp and the event, by number, of a count whose value is missing.
    Counts(Timestamp, u32),
    Group(Group),
    Communication(Partial),
    /// The id of an enter that is missing.
    Correlation(u64),
}

/// The largest timestamp of an event. Watermarks are exclusive, so an event at `Timestamp::MAX` would never be processed.
const TIME_MAX: Timestamp = Timestamp::MAX - 1;

/// A group of coalesced calls. Its call paths follow one another from the group's start, each for its exclusive time, children
/// after their parent.
#[derive(Clone, Copy, Debug)]
struct Group {
    records_left: u32,
    /// The number of frames that were open before the group.
    base_depth: usize,
}

impl Decoder {
    /// Returns the timestamp of the last event.
    pub fn last_time(&self) -> Timestamp {
        self.last_time
    }

    /// Returns the number of open frames.
    pub fn depth(&self) -> usize {
        self.open_regions.len()
    }

    /// Whether any frame is open.
    pub fn is_open(&self) -> bool {
        !self.open_regions.is_empty()
    }

    /// Decodes a common record: an enter, or the leave of the innermost frame. `None` for any other record, which leaves the
    /// decoder unchanged and must be passed to [`Decoder::decode_any`].
    #[inline(always)]
    pub fn decode_common(&mut self, record: Record) -> Option<Event> {
        if !matches!(self.incomplete, Incomplete::Nothing) {
            return None;
        }
        match record.common_kind() {
            Some(Kind::Enter) => {
                let time = self.advance(record.word0);
                self.open_regions.push(record.argument());
                Some(Event::Enter(time, record.argument()))
            }
            Some(Kind::Leave) if self.open_regions.last() == Some(&record.argument()) => {
                let time = self.advance(record.word0);
                self.open_regions.pop();
                Some(Event::Leave(time, record.argument()))
            }
            _ => None,
        }
    }

    /// Decodes a record; `out` receives its events.
    #[inline]
    pub fn decode(&mut self, record: Record, out: &mut impl FnMut(Event)) {
        if let Some(event) = self.decode_common(record) {
            return out(event);
        }
        self.decode_any(record, out);
    }

    /// Decodes several records, with the same result as decoding them one by one.
    #[inline]
    pub fn decode_all(&mut self, records: &[Record], out: &mut impl FnMut(Event)) {
        let mut at = 0;
        while let Some(record) = records.get(at) {
            match self.decode_common(*record) {
                Some(event) => {
                    out(event);
                    at += 1;
                }
                None => at += self.decode_others(&records[at..], out),
            }
        }
    }

    /// Decodes the first event of these records and returns the number of records used. It is not inlined, so that the compiler
    /// can specialize the caller's `out` for common records.
    #[inline(never)]
    fn decode_others(&mut self, records: &[Record], out: &mut impl FnMut(Event)) -> usize {
        if let Some((event, count)) = self.decode_communication(records) {
            out(event);
            return count;
        }
        records.first().iter().for_each(|record| self.decode_any(**record, out));
        1
    }

    /// Decodes a communication that these records begin with and returns the number of records used. `None`, with nothing
    /// changed, if they begin with another record or the communication is incomplete.
    #[inline]
    pub fn decode_communication(&mut self, records: &[Record]) -> Option<(Event, usize)> {
        let count = self.skip_communication(records)?;
        let communication = communication::decode_whole(records)?;
        Some((Event::Communication(self.last_time, communication), count))
    }

    /// Like [`Decoder::decode_communication`], for callers that do not need the content.
    #[inline]
    pub fn skip_communication(&mut self, records: &[Record]) -> Option<usize> {
        let head = records.first().filter(|record| record.is_communication())?;
        if !matches!(self.incomplete, Incomplete::Nothing) {
            return None;
        }
        let count = communication::records_of(records)?;
        self.advance(head.word0);
        Some(count)
    }

    /// Like [`Decoder::decode`], without the shortcut for common records.
    pub fn decode_any(&mut self, record: Record, out: &mut impl FnMut(Event)) {
        let Some(kind) = record.kind() else {
            self.repairs.damaged += 1;
            return;
        };
        self.discard_incomplete_unless_continued_by(kind, out);
        match kind {
            Kind::Enter => {
                let (time, region) = (self.advance(record.word0), record.argument());
                self.open_regions.push(region);
                out(match std::mem::take(&mut self.incomplete) {
                    Incomplete::Correlation(id) => Event::EnterCorrelated(time, region, id),
                    _ => Event::Enter(time, region),
                });
            }
            Kind::Leave => {
                let time = self.advance(record.word0);
                self.leave(time, record.argument(), out);
            }
            _ => self.decode_rare(kind, record, out),
        }
    }

    fn discard_incomplete_unless_continued_by(&mut self, kind: Kind, out: &mut impl FnMut(Event)) {
        match self.incomplete {
            Incomplete::Sample(..) | Incomplete::CpuTime(..) | Incomplete::Counts(..)
                if kind != Kind::Value =>
            {
                self.repairs.damaged += 1;
                self.incomplete = Incomplete::Nothing;
            }
            Incomplete::Communication(_) if kind != Kind::Payload => {
                self.repairs.damaged += 1;
                self.incomplete = Incomplete::Nothing;
            }
            Incomplete::Correlation(_) if kind != Kind::Enter => {
                self.repairs.damaged += 1;
                self.incomplete = Incomplete::Nothing;
            }
            Incomplete::Group(group) if kind != Kind::CoalescedCalls => {
                self.repairs.damaged += 1;
                self.end_group(group.base_depth, out);
            }
            _ => {}
        }
    }

    fn decode_rare(&mut self, kind: Kind, record: Record, out: &mut impl FnMut(Event)) {
        match kind {
            Kind::Enter | Kind::Leave => {}
            Kind::Resume => {
                let time = self.advance(record.word0);
                self.open_regions.push(record.argument());
                out(Event::EnterCoalesced(time, record.argument(), 0));
            }
            Kind::Group => {
                self.advance(record.word0);
                let records_left = record.argument();
                if records_left > 0 {
                    self.incomplete = Incomplete::Group(Group { records_left, base_depth: self.depth() });
                }
            }
            Kind::CoalescedCalls => match self.incomplete {
                Incomplete::Group(group) => self.decode_coalesced(group, record.as_coalesced_calls(), out),
                _ => self.repairs.damaged += 1,
            },
            Kind::ProgramBegin => {
                let time = self.advance(record.word0);
                out(Event::ProgramBegin(time));
            }
            Kind::ProgramEnd => {
                let time = self.advance(record.word0);
                self.close(time, out);
                out(Event::ProgramEnd(time));
            }
            Kind::LocationEnd => {
                let time = self.advance(record.word0);
                self.close(time, out);
            }
            Kind::Sample => self.incomplete = Incomplete::Sample(record.word0, record.argument()),
            Kind::CpuTime => self.incomplete = Incomplete::CpuTime(record.word0, record.argument()),
            Kind::Counts => self.incomplete = Incomplete::Counts(record.word0, record.argument()),
            Kind::Correlation => self.incomplete = Incomplete::Correlation(record.word0),
            Kind::Value => match std::mem::take(&mut self.incomplete) {
                Incomplete::Sample(time, device) => {
                    let time = self.advance(time);
                    out(Event::Sample(time, device, record.word0));
                }
                Incomplete::CpuTime(time, rose) => {
                    let time = self.advance(time);
                    out(Event::CpuTime(time, rose, record.word0));
                }
                Incomplete::Counts(time, event) => {
                    let time = self.advance(time);
                    out(Event::Counts(time, event, record.word0));
                }
                _ => self.repairs.damaged += 1,
            },
            Kind::Communication => self.accept_partial(Partial::new(record), out),
            Kind::Payload => match self.incomplete {
                Incomplete::Communication(mut partial) => {
                    partial.add(record);
                    self.accept_partial(partial, out);
                }
                _ => self.repairs.damaged += 1,
            },
            Kind::Suppressed => {
                self.suppressed_calls = self.suppressed_calls.saturating_add(record.word0);
            }
        }
    }

    /// Keeps a communication until all of its records have been read.
    fn accept_partial(&mut self, partial: Partial, out: &mut impl FnMut(Event)) {
        self.incomplete = Incomplete::Communication(partial);
        if let Some(communication) = partial.complete() {
            self.incomplete = Incomplete::Nothing;
            let time = self.advance(partial.time());
            out(Event::Communication(time, communication));
        }
    }

    fn decode_coalesced(&mut self, group: Group, calls: CoalescedCalls, out: &mut impl FnMut(Event)) {
        let time = self.last_time;
        self.close_down_to(group.base_depth + usize::from(calls.depth), out);
        self.open_regions.push(calls.region);
        self.coalesced_calls += u64::from(calls.calls);
        out(Event::EnterCoalesced(time, calls.region, calls.calls));
        self.last_time = time.saturating_add(calls.exclusive_ticks).min(TIME_MAX);
        if group.records_left > 1 {
            let records_left = group.records_left - 1;
            self.incomplete = Incomplete::Group(Group { records_left, ..group });
        } else {
            self.end_group(group.base_depth, out);
        }
    }

    fn end_group(&mut self, base_depth: usize, out: &mut impl FnMut(Event)) {
        self.incomplete = Incomplete::Nothing;
        self.close_down_to(base_depth, out);
    }

    /// Ends the frames beyond a depth at the last event's time.
    fn close_down_to(&mut self, depth: usize, out: &mut impl FnMut(Event)) {
        while self.open_regions.len() > depth {
            let region = self.open_regions.pop().unwrap_or_default();
            out(Event::Leave(self.last_time, region));
        }
    }

    /// Ends all open frames at this time.
    pub fn close(&mut self, time: Timestamp, out: &mut impl FnMut(Event)) {
        if self.is_open() {
            self.last_time = time.max(self.last_time).min(TIME_MAX);
            self.close_down_to(0, out);
        }
    }

    #[inline]
    fn leave(&mut self, time: Timestamp, region: u32, out: &mut impl FnMut(Event)) {
        if self.open_regions.last() == Some(&region) {
            self.open_regions.pop();
            return out(Event::Leave(time, region));
        }
        self.leave_enclosing(time, region, out);
    }

    /// Handles a leave of an outer frame, after recording was switched off or on inside a region: the frames inside it have
    /// ended, too.
    fn leave_enclosing(&mut self, time: Timestamp, region: u32, out: &mut impl FnMut(Event)) {
        let Some(at) = self.open_regions.iter().rposition(|open| *open == region) else {
            self.repairs.unmatched_leaves += 1;
            return;
        };
        self.repairs.missing_leaves += (self.depth() - at - 1) as u64;
        for open in self.open_regions.drain(at..).rev() {
            out(Event::Leave(time, open));
        }
    }

    /// Returns the timestamp to use for a record: never before the last event's.
    #[inline]
    fn advance(&mut self, time: Timestamp) -> Timestamp {
        let time = time.min(TIME_MAX);
        if time < self.last_time {
            self.repairs.backward += 1;
        } else {
            self.last_time = time;
        }
        self.last_time
    }
}

#[cfg(test)]
mod tests;
