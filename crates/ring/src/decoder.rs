//! Decodes one location's records into a well-nested stream of events. The live attribution and the trace writer both use
//! it, so the trace contains exactly the events that were attributed.

use crate::communication::{self, Communication, Partial};
use crate::{CoalescedCalls, Kind, Record};
use ampere_model::Timestamp;

/// A decoded event. Regions are the process' own handles; the timestamps of one decoder's events never go back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// Timestamp, region.
    Enter(Timestamp, u32),
    /// Timestamp, region, calls: an enter that stands for that many coalesced calls, 0 for a frame that only continues.
    /// The time up to its leave is exact in sum; when the single calls began is not known.
    EnterCoalesced(Timestamp, u32, u32),
    /// Timestamp, region. The region is always the innermost open one.
    Leave(Timestamp, u32),
    /// Timestamp, device index, nanojoules.
    Sample(Timestamp, u32, u64),
    /// The program's measurement began.
    ProgramBegin(Timestamp),
    /// The program's measurement ended.
    ProgramEnd(Timestamp),
    /// A message, a collective, a request or a team of threads.
    Communication(Timestamp, Communication),
}

/// What was wrong with the records, by what was done about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Leaves of a region that was not open: left out.
    pub unmatched_leaves: u64,
    /// Frames without a leave: closed together with an enclosing frame.
    pub missing_leaves: u64,
    /// Timestamps before their predecessor's: replaced by it.
    pub backward: u64,
    /// Records of an unknown kind, and incomplete samples, groups and communications: left out.
    pub damaged: u64,
}

/// The state of one location's stream.
#[derive(Debug, Default)]
pub struct Decoder {
    open_regions: Vec<u32>,
    last_time: Timestamp,
    incomplete: Incomplete,
    /// Calls that the writer left out for want of room.
    pub suppressed_calls: u64,
    /// Calls that came in groups.
    pub coalesced_calls: u64,
    /// What was wrong so far.
    pub repairs: Repairs,
}

/// Something that takes several records, of which some have come.
#[derive(Clone, Copy, Debug, Default)]
enum Incomplete {
    #[default]
    Nothing,
    /// A sample's timestamp and device; its value is missing.
    Sample(Timestamp, u32),
    Group(Group),
    Communication(Partial),
}

/// The latest timestamp of an event. Watermarks are exclusive, so an event at `Timestamp::MAX` would never be processed.
const LATEST: Timestamp = Timestamp::MAX - 1;

/// A group of coalesced calls. Its call paths are laid out one after the other from the group's begin, each for its exclusive
/// time, children after their parent.
#[derive(Clone, Copy, Debug)]
struct Group {
    records_left: u32,
    /// Frames that were open before the group.
    base_depth: usize,
}

impl Decoder {
    /// The timestamp of the last event.
    pub fn last_time(&self) -> Timestamp {
        self.last_time
    }

    /// The number of open frames.
    pub fn depth(&self) -> usize {
        self.open_regions.len()
    }

    /// Whether any frame is open.
    pub fn is_open(&self) -> bool {
        !self.open_regions.is_empty()
    }

    /// Decodes the records that nearly all are: an enter, or the leave of the innermost frame. `None`: another one, of which
    /// nothing has been taken; it goes to [`Decoder::decode_any`].
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

    /// Decodes records, as if one by one.
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

    /// What these records begin with. Returns how many it took. Apart, so that `out` is specialized for what is common.
    #[inline(never)]
    fn decode_others(&mut self, records: &[Record], out: &mut impl FnMut(Event)) -> usize {
        if let Some((event, count)) = self.decode_communication(records) {
            out(event);
            return count;
        }
        records.first().iter().for_each(|record| self.decode_any(**record, out));
        1
    }

    /// Decodes a communication that these records begin with. Returns how many it took. `None`: they begin with another record, or
    /// do not have all of it; nothing has been taken.
    #[inline]
    pub fn decode_communication(&mut self, records: &[Record]) -> Option<(Event, usize)> {
        let count = self.skip_communication(records)?;
        let communication = communication::whole_of(records)?;
        Some((Event::Communication(self.last_time, communication), count))
    }

    /// As [`Decoder::decode_communication`], for those who do not ask what it says.
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

    /// As [`Decoder::decode`], without the short cut for common records.
    pub fn decode_any(&mut self, record: Record, out: &mut impl FnMut(Event)) {
        let Some(kind) = record.kind() else {
            self.repairs.damaged += 1;
            return;
        };
        self.discard_incomplete_unless_continued_by(kind, out);
        match kind {
            Kind::Enter => {
                let time = self.advance(record.word0);
                self.open_regions.push(record.argument());
                out(Event::Enter(time, record.argument()));
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
            Incomplete::Sample(..) if kind != Kind::Value => {
                self.repairs.damaged += 1;
                self.incomplete = Incomplete::Nothing;
            }
            Incomplete::Communication(_) if kind != Kind::Payload => {
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
            Kind::Value => match std::mem::take(&mut self.incomplete) {
                Incomplete::Sample(time, device) => {
                    let time = self.advance(time);
                    out(Event::Sample(time, device, record.word0));
                }
                _ => self.repairs.damaged += 1,
            },
            Kind::Communication => self.go_on(Partial::new(record), out),
            Kind::Payload => match self.incomplete {
                Incomplete::Communication(mut partial) => {
                    partial.add(record);
                    self.go_on(partial, out);
                }
                _ => self.repairs.damaged += 1,
            },
            Kind::Suppressed => {
                self.suppressed_calls = self.suppressed_calls.saturating_add(record.word0);
            }
        }
    }

    /// Some records of a communication have come, or all.
    fn go_on(&mut self, partial: Partial, out: &mut impl FnMut(Event)) {
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
        self.last_time = time.saturating_add(calls.exclusive_ticks).min(LATEST);
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

    /// Ends every open frame.
    pub fn close(&mut self, time: Timestamp, out: &mut impl FnMut(Event)) {
        if self.is_open() {
            self.last_time = time.max(self.last_time).min(LATEST);
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

    /// Recording was switched off or on inside a region: the frames above the one that is left are over as well.
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

    /// The timestamp to use for a record's: never before the last event's.
    #[inline]
    fn advance(&mut self, time: Timestamp) -> Timestamp {
        let time = time.min(LATEST);
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
