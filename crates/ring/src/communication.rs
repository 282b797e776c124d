//! Messages, collectives, requests, teams of threads and whether they record: events that take several records.
//!
//! ```text
//! Communication   word 0  timestamp                    argument: the first number of the event
//!                 word 1  bits 40..48: which event (the number below)
//! Payload         word 0  a number of 64 bits          argument: one of 32 bits
//! ```
//!
//! As many payloads follow as the event has; all its records are published together. Names are OTF2's.

use crate::record::{Kind, Record};

/// A message: the other side's rank in the communicator, and what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Message {
    pub peer: u32,
    /// The process' handle.
    pub communicator: u32,
    pub tag: u32,
    pub bytes: u64,
}

/// A collective operation, where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Collective {
    /// `SCOREP_CollectiveType`.
    pub operation: u32,
    /// The process' handle.
    pub communicator: u32,
    /// A rank, or one of Score-P's negative numbers.
    pub root: i32,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Communication {
    MpiSend(Message),
    MpiRecv(Message),
    /// With the number of its request, as the following.
    MpiIsend(Message, u64),
    MpiIsendComplete(u64),
    MpiIrecvRequest(u64),
    MpiIrecv(Message, u64),
    MpiRequestTest(u64),
    MpiRequestCancelled(u64),
    MpiCollectiveBegin,
    MpiCollectiveEnd(Collective),
    NonBlockingCollectiveRequest(u64),
    NonBlockingCollectiveComplete(Collective, u64),
    CommCreate(u32),
    CommDestroy(u32),
    /// `SCOREP_ParadigmType`, and the number of threads that were asked for.
    ThreadFork(u32, u32),
    ThreadJoin(u32),
    /// Whether the thread records from here on.
    MeasurementOnOff(bool),
}

/// The most records of an event.
pub const MOST_RECORDS: usize = 4;
const MOST_PAYLOADS: usize = MOST_RECORDS - 1;

/// The numbers of an event, as its records have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    event: u8,
    first: u32,
    payloads: [(u64, u32); MOST_PAYLOADS],
}

/// The number of payloads of an event; `None`: there is no such event.
pub(crate) fn payloads_of(event: u8) -> Option<usize> {
    Some(match event {
        9 | 13..=14 | 16..=18 => 0,
        4..=5 | 7..=8 | 11 | 15 => 1,
        1..=2 | 3 | 6 | 10 => 2,
        12 => 3,
        _ => return None,
    })
}

impl Communication {
    fn numbers(self) -> Numbers {
        let message = |event, m: Message, request: u64| Numbers {
            event,
            first: m.communicator,
            // The rank takes the place of what a blocking message does not have.
            payloads: [(m.bytes, m.tag), (request, m.peer), (0, 0)],
        };
        let collective = |event, c: Collective, request: u64| Numbers {
            event,
            first: c.communicator,
            payloads: [(c.bytes_sent, c.root as u32), (c.bytes_received, c.operation), (request, 0)],
        };
        let short = |event, first: u32| Numbers { event, first, ..Numbers::default() };
        let request =
            |event, request: u64| Numbers { event, first: 0, payloads: [(request, 0), (0, 0), (0, 0)] };
        match self {
            Communication::MpiSend(m) => message(1, m, 0),
            Communication::MpiRecv(m) => message(2, m, 0),
            Communication::MpiIsend(m, number) => message(3, m, number),
            Communication::MpiIsendComplete(number) => request(4, number),
            Communication::MpiIrecvRequest(number) => request(5, number),
            Communication::MpiIrecv(m, number) => message(6, m, number),
            Communication::MpiRequestTest(number) => request(7, number),
            Communication::MpiRequestCancelled(number) => request(8, number),
            Communication::MpiCollectiveBegin => short(9, 0),
            Communication::MpiCollectiveEnd(c) => collective(10, c, 0),
            Communication::NonBlockingCollectiveRequest(number) => request(11, number),
            Communication::NonBlockingCollectiveComplete(c, number) => collective(12, c, number),
            Communication::CommCreate(handle) => short(13, handle),
            Communication::CommDestroy(handle) => short(14, handle),
            Communication::ThreadFork(paradigm, threads) => {
                Numbers { payloads: [(threads.into(), 0), (0, 0), (0, 0)], ..short(15, paradigm) }
            }
            Communication::ThreadJoin(paradigm) => short(16, paradigm),
            Communication::MeasurementOnOff(true) => short(17, 0),
            Communication::MeasurementOnOff(false) => short(18, 0),
        }
    }

    fn of_numbers(numbers: Numbers) -> Option<Communication> {
        let Numbers { event, first, payloads: [one, two, three] } = numbers;
        let message = Message { peer: two.1, communicator: first, tag: one.1, bytes: one.0 };
        let collective = Collective {
            operation: two.1,
            communicator: first,
            root: one.1 as i32,
            bytes_sent: one.0,
            bytes_received: two.0,
        };
        Some(match event {
            1 => Communication::MpiSend(message),
            2 => Communication::MpiRecv(message),
            3 => Communication::MpiIsend(message, two.0),
            4 => Communication::MpiIsendComplete(one.0),
            5 => Communication::MpiIrecvRequest(one.0),
            6 => Communication::MpiIrecv(message, two.0),
            7 => Communication::MpiRequestTest(one.0),
            8 => Communication::MpiRequestCancelled(one.0),
            9 => Communication::MpiCollectiveBegin,
            10 => Communication::MpiCollectiveEnd(collective),
            11 => Communication::NonBlockingCollectiveRequest(one.0),
            12 => Communication::NonBlockingCollectiveComplete(collective, three.0),
            13 => Communication::CommCreate(first),
            14 => Communication::CommDestroy(first),
            15 => Communication::ThreadFork(first, one.0 as u32),
            16 => Communication::ThreadJoin(first),
            17 => Communication::MeasurementOnOff(true),
            18 => Communication::MeasurementOnOff(false),
            _ => return None,
        })
    }

    /// The records of the event, which was at `time`.
    pub fn records(self, time: u64) -> impl ExactSizeIterator<Item = Record> {
        let numbers = self.numbers();
        let payloads = payloads_of(numbers.event).unwrap_or(0);
        (0..1 + payloads).map(move |at| match at.checked_sub(1) {
            None => Record::communication(time, numbers.event, numbers.first),
            Some(at) => Record::new(Kind::Payload, numbers.payloads[at].0, numbers.payloads[at].1),
        })
    }
}

/// How many records the event has that these begin with. `None`: they begin with another record, or have only a part of it.
#[inline]
pub(crate) fn records_of(records: &[Record]) -> Option<usize> {
    let head = records.first().filter(|record| record.is_communication())?;
    let count = 1 + payloads_of(head.communication_event())?;
    records.get(1..count)?.iter().all(Record::is_payload).then_some(count)
}

/// The event that these records begin with, and have all of.
#[inline]
pub(crate) fn whole_of(records: &[Record]) -> Option<Communication> {
    let payload = |at: usize| {
        let record = records.get(at).filter(|record| record.is_payload());
        record.map_or((0, 0), |record| (record.word0, record.argument()))
    };
    let head = records.first()?;
    let payloads = [payload(1), payload(2), payload(3)];
    Communication::of_numbers(Numbers { event: head.communication_event(), first: head.argument(), payloads })
}

/// An event of which some records have come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partial {
    pub time: u64,
    numbers: Numbers,
    come: usize,
}

impl Partial {
    /// It begins with a record of kind `Communication`.
    pub fn new(head: Record) -> Partial {
        let numbers =
            Numbers { event: head.communication_event(), first: head.argument(), ..Numbers::default() };
        Partial { time: head.word0, numbers, come: 0 }
    }

    /// The next payload.
    pub fn add(&mut self, payload: Record) {
        if let Some(place) = self.numbers.payloads.get_mut(self.come) {
            *place = (payload.word0, payload.argument());
        }
        self.come += 1;
    }

    /// The event, if all of its records have come.
    pub fn complete(&self) -> Option<Communication> {
        (payloads_of(self.numbers.event)? <= self.come).then(|| Communication::of_numbers(self.numbers))?
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any event.
    pub fn any_communication() -> impl Strategy<Value = Communication> {
        (1u8..=18, any::<u32>(), any::<[(u64, u32); MOST_PAYLOADS]>()).prop_map(|(event, first, payloads)| {
            Communication::of_numbers(Numbers { event, first, payloads }).unwrap()
        })
    }

    proptest! {
        #[test]
        fn events_are_encoded_and_decoded(event in any_communication(), time: u64) {
            let mut records = event.records(time);
            prop_assert!(records.len() <= MOST_RECORDS);
            let head = records.next().unwrap();
            prop_assert_eq!(head.kind(), Some(Kind::Communication));
            let mut partial = Partial::new(head);
            for payload in records {
                prop_assert_eq!((partial.complete(), payload.kind()), (None, Some(Kind::Payload)));
                partial.add(payload);
            }
            prop_assert_eq!((partial.time, partial.complete()), (time, Some(event)));
        }
    }

    #[test]
    fn every_event_has_a_number_of_its_own() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|event| payloads_of(*event).is_some()).collect();
        assert_eq!(known, (1..=18).collect::<Vec<u8>>());
        for event in known {
            let numbers = Numbers { event, ..Numbers::default() };
            assert_eq!(Communication::of_numbers(numbers).unwrap().numbers().event, event);
        }
    }
}
