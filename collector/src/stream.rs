//! One location's records as a well-nested stream of events. The live attribution and the trace both take this way, so
//! that what is in the trace is what was attributed.

use ampere_model::Timestamp;
use ampere_ring::{Folded, Kind, Record};

/// What comes out. Times of one stream never go back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// With the process' own handle.
    Enter(Timestamp, u32),
    /// As an enter; it stands for so many calls that were folded, 0 if it only goes on. The sum of what is between it and
    /// its leave is right, the single calls' times are not known.
    EnterFolded(Timestamp, u32, u32),
    /// Of the region that is innermost then.
    Leave(Timestamp, u32),
    Sample(Timestamp, u32, u64),
    /// The program's measurement ended.
    ProgramEnd(Timestamp),
}

/// Input that should not be, counted and survived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Leaves of a region that was not open: left out.
    pub unmatched_leaves: u64,
    /// Frames whose leave was missing: closed with an enclosing frame.
    pub missing_leaves: u64,
    /// Timestamps that went back: taken as the one before.
    pub backward: u64,
    /// Records of no known kind, or half of a pair.
    pub damaged: u64,
}

#[derive(Debug, Default)]
pub struct Stream {
    stack: Vec<u32>,
    last: Timestamp,
    unfinished: Unfinished,
    pub suppressed_calls: u64,
    pub coalesced_calls: u64,
    pub repairs: Repairs,
}

/// What takes several records, of which some have come.
#[derive(Clone, Copy, Debug, Default)]
enum Unfinished {
    #[default]
    Nothing,
    /// The first half of a sample.
    Sample(Timestamp, u32),
    Group(Group),
}

/// A lane hands over what is before its watermark: later than this nothing would ever come out.
const LATEST: Timestamp = Timestamp::MAX - 1;

/// A group of folded calls that is being read. Its call paths are laid out one after the other from when it began: each
/// with the time that it had, its own first and then that of those below it.
#[derive(Clone, Copy, Debug)]
struct Group {
    left: u32,
    /// Frames that were open before.
    base: usize,
}

impl Stream {
    pub fn last_time(&self) -> Timestamp {
        self.last
    }

    /// How many frames are open.
    pub fn depth(&self) -> usize {
        self.stack.len()
    }

    pub fn is_open(&self) -> bool {
        !self.stack.is_empty()
    }

    /// What nearly all records are: an enter, or the leave of what was entered last. Of any other nothing has been taken.
    #[inline(always)]
    pub fn take_usual(&mut self, record: Record) -> Option<Event> {
        if !matches!(self.unfinished, Unfinished::Nothing) {
            return None;
        }
        match record.kind() {
            Some(Kind::Enter) => {
                let time = self.forward(record.word0);
                self.stack.push(record.argument());
                Some(Event::Enter(time, record.argument()))
            }
            Some(Kind::Leave) if self.stack.last() == Some(&record.argument()) => {
                let time = self.forward(record.word0);
                self.stack.pop();
                Some(Event::Leave(time, record.argument()))
            }
            _ => None,
        }
    }

    #[inline]
    pub fn take(&mut self, record: Record, out: &mut impl FnMut(Event)) {
        if let Some(event) = self.take_usual(record) {
            return out(event);
        }
        self.take_unusual(record, out);
    }

    /// Any record.
    pub fn take_unusual(&mut self, record: Record, out: &mut impl FnMut(Event)) {
        let Some(kind) = record.kind() else {
            self.repairs.damaged += 1;
            return;
        };
        if !matches!(self.unfinished, Unfinished::Nothing) {
            self.expect_more(kind, out);
        }
        match kind {
            Kind::Enter => {
                let time = self.forward(record.word0);
                self.stack.push(record.argument());
                out(Event::Enter(time, record.argument()));
            }
            Kind::Leave => {
                let time = self.forward(record.word0);
                self.leave(time, record.argument(), out);
            }
            _ => self.take_rare(kind, record, out),
        }
    }

    /// Something was begun. It is no more than begun if this is not its next record.
    fn expect_more(&mut self, kind: Kind, out: &mut impl FnMut(Event)) {
        match self.unfinished {
            Unfinished::Sample(..) if kind != Kind::Value => {
                self.repairs.damaged += 1;
                self.unfinished = Unfinished::Nothing;
            }
            Unfinished::Group(group) if kind != Kind::Folded => {
                self.repairs.damaged += 1;
                self.end_group(group.base, out);
            }
            _ => {}
        }
    }

    fn take_rare(&mut self, kind: Kind, record: Record, out: &mut impl FnMut(Event)) {
        match kind {
            Kind::Enter | Kind::Leave => {}
            Kind::Resume => {
                let time = self.forward(record.word0);
                self.stack.push(record.argument());
                out(Event::EnterFolded(time, record.argument(), 0));
            }
            Kind::Fold => {
                self.forward(record.word0);
                let left = record.argument();
                if left > 0 {
                    self.unfinished = Unfinished::Group(Group { left, base: self.stack.len() });
                }
            }
            Kind::Folded => match self.unfinished {
                Unfinished::Group(group) => self.take_folded(group, record.as_folded(), out),
                _ => self.repairs.damaged += 1,
            },
            Kind::ProgramBegin => {
                self.forward(record.word0);
            }
            Kind::ProgramEnd => {
                let time = self.forward(record.word0);
                self.close(time, out);
                out(Event::ProgramEnd(time));
            }
            Kind::LocationEnd => {
                let time = self.forward(record.word0);
                self.close(time, out);
            }
            Kind::Sample => self.unfinished = Unfinished::Sample(record.word0, record.argument()),
            Kind::Value => match std::mem::take(&mut self.unfinished) {
                Unfinished::Sample(time, device) => {
                    let time = self.forward(time);
                    out(Event::Sample(time, device, record.word0));
                }
                _ => self.repairs.damaged += 1,
            },
            Kind::Suppressed => {
                self.suppressed_calls = self.suppressed_calls.saturating_add(record.word0);
            }
        }
    }

    fn take_folded(&mut self, group: Group, folded: Folded, out: &mut impl FnMut(Event)) {
        let time = self.last;
        let depth = group.base + usize::from(folded.depth);
        while self.stack.len() > depth {
            let region = self.stack.pop().unwrap_or_default();
            out(Event::Leave(time, region));
        }
        self.stack.push(folded.region);
        self.coalesced_calls += u64::from(folded.calls);
        out(Event::EnterFolded(time, folded.region, folded.calls));
        self.last = time.saturating_add(folded.exclusive_ticks).min(LATEST);
        if group.left > 1 {
            self.unfinished = Unfinished::Group(Group { left: group.left - 1, ..group });
        } else {
            self.end_group(group.base, out);
        }
    }

    /// `base`: how many frames were open before it.
    fn end_group(&mut self, base: usize, out: &mut impl FnMut(Event)) {
        self.unfinished = Unfinished::Nothing;
        while self.stack.len() > base {
            let region = self.stack.pop().unwrap_or_default();
            out(Event::Leave(self.last, region));
        }
    }

    /// Ends every open frame.
    pub fn close(&mut self, time: Timestamp, out: &mut impl FnMut(Event)) {
        let time = time.max(self.last).min(LATEST);
        while let Some(region) = self.stack.pop() {
            self.last = time;
            out(Event::Leave(time, region));
        }
    }

    #[inline]
    fn leave(&mut self, time: Timestamp, region: u32, out: &mut impl FnMut(Event)) {
        if self.stack.last() == Some(&region) {
            self.stack.pop();
            return out(Event::Leave(time, region));
        }
        self.leave_with_others(time, region, out);
    }

    fn leave_with_others(&mut self, time: Timestamp, region: u32, out: &mut impl FnMut(Event)) {
        // Recording was switched off or on inside a region. What lies above the region that is left is over too.
        let Some(at) = self.stack.iter().rposition(|open| *open == region) else {
            self.repairs.unmatched_leaves += 1;
            return;
        };
        self.repairs.missing_leaves += (self.stack.len() - at - 1) as u64;
        for open in self.stack.drain(at..).rev() {
            out(Event::Leave(time, open));
        }
    }

    #[inline]
    fn forward(&mut self, time: Timestamp) -> Timestamp {
        let time = time.min(LATEST);
        if time < self.last {
            self.repairs.backward += 1;
        } else {
            self.last = time;
        }
        self.last
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod folding_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(records: &[Record]) -> (Vec<Event>, Repairs) {
        let (mut stream, mut events) = (Stream::default(), Vec::new());
        for record in records {
            stream.take(*record, &mut |event| events.push(event));
        }
        stream.close(100, &mut |event| events.push(event));
        (events, stream.repairs)
    }

    #[test]
    fn program_end_closes_what_is_open() {
        let (events, repairs) = run(&[
            Record::new(Kind::Enter, 1, 7),
            Record::new(Kind::Enter, 2, 8),
            Record::new(Kind::ProgramEnd, 5, 0),
        ]);
        use Event::{Enter, Leave, ProgramEnd};
        assert_eq!(events, [Enter(1, 7), Enter(2, 8), Leave(5, 8), Leave(5, 7), ProgramEnd(5)]);
        assert_eq!(repairs, Repairs::default());
    }

    #[test]
    fn what_does_not_nest_is_mended_and_counted() {
        let (events, repairs) = run(&[
            Record::new(Kind::Leave, 1, 9),
            Record::new(Kind::Enter, 2, 7),
            Record::new(Kind::Enter, 3, 8),
            Record::new(Kind::Leave, 4, 7),
            Record::new(Kind::Enter, 3, 6),
            Record::from_words([5, 99 << 32]),
            Record::new(Kind::Value, 6, 0),
        ]);
        use Event::{Enter, Leave};
        assert_eq!(events, [Enter(2, 7), Enter(3, 8), Leave(4, 8), Leave(4, 7), Enter(4, 6), Leave(100, 6)]);
        assert_eq!(repairs, Repairs { unmatched_leaves: 1, missing_leaves: 1, backward: 1, damaged: 2 });
    }

    #[test]
    fn a_sample_is_two_records() {
        let (events, repairs) = run(&[
            Record::new(Kind::Sample, 5, 1),
            Record::new(Kind::Value, 123, 1),
            Record::new(Kind::Sample, 6, 1),
            Record::new(Kind::Enter, 7, 1),
        ]);
        assert_eq!(events, [Event::Sample(5, 1, 123), Event::Enter(7, 1), Event::Leave(100, 1)]);
        assert_eq!(repairs.damaged, 1);
    }
}
