//! Events that take several records: messages, collectives, requests, teams of threads, and recording switched on or off.
//!
//! ```text
//! Communication   word 0  timestamp                    argument: the first number of the event
//!                 word 1  bits 40..47: which event (the number below); bit 47: it is short
//! Payload         word 0  a number of 64 bits          argument: one of 32 bits
//! ```
//!
//! All records of an event are published together. In a short event, the first two payloads share a record, because their numbers
//! are small: nearly every message and collective takes two records instead of three.
//!
//! ```text
//! Communication   word 1  bits 48..64, which no other event uses: the first payload's argument
//! Payload         word 0  bits 0..32: the first payload's number, 32..64: the second's
//!                         argument: the second payload's
//! ```
//!
//! The names are those of OTF2.

use crate::record::{Kind, Record, SHORT_EVENT, payloads_of};

/// A message: `peer` is the other side's rank in the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Message {
    pub peer: u32,
    /// The handle that this process uses for the communicator.
    pub communicator: u32,
    pub tag: u32,
    pub bytes: u64,
}

/// The end of a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Collective {
    /// A value of `SCOREP_CollectiveType`.
    pub operation: u32,
    /// The handle that this process uses for the communicator.
    pub communicator: u32,
    /// A rank, or one of Score-P's negative numbers.
    pub root: i32,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// An event that takes several records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Communication {
    MpiSend(Message),
    MpiRecv(Message),
    /// In this variant and those below, a `u64` is the ID of a request.
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
    /// The handle that this process uses for the communicator.
    CommCreate(u32),
    /// The handle that this process uses for the communicator.
    CommDestroy(u32),
    /// A value of `SCOREP_ParadigmType`, and the number of threads that were requested.
    ThreadFork(u32, u32),
    /// A value of `SCOREP_ParadigmType`.
    ThreadJoin(u32),
    /// Whether the thread records from here on.
    MeasurementOnOff(bool),
}

/// The maximum number of records of an event.
pub const RECORDS_MAX: usize = 4;
const PAYLOADS_MAX: usize = RECORDS_MAX - 1;

/// The numbers of an event as they are in its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    event: u8,
    first: u32,
    payloads: [(u64, u32); PAYLOADS_MAX],
}

impl Communication {
    fn numbers(self) -> Numbers {
        let message = |event, m: Message, request: u64| Numbers {
            event,
            first: m.communicator,
            // The rank is in the second payload, whose other number is the request, or 0 in a blocking message.
            payloads: [(m.bytes, m.tag), (request, m.peer), (0, 0)],
        };
        let collective = |event, c: Collective, request: u64| Numbers {
            event,
            first: c.communicator,
            payloads: [(c.bytes_sent, c.operation), (c.bytes_received, c.root as u32), (request, 0)],
        };
        let bare = |event, first: u32| Numbers { event, first, ..Numbers::default() };
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
            Communication::MpiCollectiveBegin => bare(9, 0),
            Communication::MpiCollectiveEnd(c) => collective(10, c, 0),
            Communication::NonBlockingCollectiveRequest(number) => request(11, number),
            Communication::NonBlockingCollectiveComplete(c, number) => collective(12, c, number),
            Communication::CommCreate(handle) => bare(13, handle),
            Communication::CommDestroy(handle) => bare(14, handle),
            Communication::ThreadFork(paradigm, threads) => {
                Numbers { payloads: [(threads.into(), 0), (0, 0), (0, 0)], ..bare(15, paradigm) }
            }
            Communication::ThreadJoin(paradigm) => bare(16, paradigm),
            Communication::MeasurementOnOff(true) => bare(17, 0),
            Communication::MeasurementOnOff(false) => bare(18, 0),
        }
    }

    #[inline]
    fn of_numbers(numbers: Numbers) -> Option<Communication> {
        let Numbers { event, first, payloads: [one, two, three] } = numbers;
        let message = Message { peer: two.1, communicator: first, tag: one.1, bytes: one.0 };
        let collective = Collective {
            operation: one.1,
            communicator: first,
            root: two.1 as i32,
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

    /// Returns the records of an event that happened at `time`.
    #[inline]
    pub fn records(self, time: u64) -> impl ExactSizeIterator<Item = Record> {
        let (head, numbers) = self.numbers().shortened();
        let payloads = payloads_of(numbers.event).unwrap_or(0);
        (0..1 + payloads).map(move |at| match at.checked_sub(1) {
            None => Record::communication(time, numbers.event, head, numbers.first),
            Some(at) => Record::new(Kind::Payload, numbers.payloads[at].0, numbers.payloads[at].1),
        })
    }
}

impl Numbers {
    /// Returns the numbers of a short event with the same content, and the bits of its first record. If the numbers are too
    /// large for that, returns them unchanged, with no bits.
    fn shortened(self) -> (u16, Numbers) {
        let [(one, first), (two, second), third] = self.payloads;
        let short = self.event | SHORT_EVENT;
        let small = (u16::try_from(first), u32::try_from(one), u32::try_from(two));
        match small {
            (Ok(first), Ok(one), Ok(two)) if payloads_of(short).is_some() => {
                let both = (u64::from(two) << 32 | u64::from(one), second);
                (first, Numbers { event: short, payloads: [both, third, (0, 0)], ..self })
            }
            _ => (0, self),
        }
    }

    /// Returns the numbers of the event that has these records.
    #[inline]
    fn of_records(head: Record, payloads: [(u64, u32); PAYLOADS_MAX]) -> Numbers {
        let (event, first) = (head.communication_event(), head.argument());
        if event & SHORT_EVENT == 0 {
            return Numbers { event, first, payloads };
        }
        let [(both, second), third, _] = payloads;
        let one = (both & u64::from(u32::MAX), head.communication_bits().into());
        Numbers { event: event & !SHORT_EVENT, first, payloads: [one, (both >> 32, second), third] }
    }
}

/// Returns the number of records of the event that these records begin with. `None` if they begin with another record,
/// or if the event is incomplete.
#[inline]
pub(crate) fn records_of(records: &[Record]) -> Option<usize> {
    let head = records.first().filter(|record| record.is_communication())?;
    let count = 1 + head.payloads_after()?;
    records.get(1..count)?.iter().all(Record::is_payload).then_some(count)
}

/// Decodes the event that these records begin with, which must be complete.
#[inline]
pub(crate) fn decode_whole(records: &[Record]) -> Option<Communication> {
    if let Some(message) = short_message(records) {
        return Some(message);
    }
    let payload = |at: usize| {
        let record = records.get(at).filter(|record| record.is_payload());
        record.map_or((0, 0), |record| (record.word0, record.argument()))
    };
    let payloads = [payload(1), payload(2), payload(3)];
    Communication::of_numbers(Numbers::of_records(*records.first()?, payloads))
}

/// Decodes the event that these records begin with, if it is a short message, as most events are.
#[inline]
fn short_message(records: &[Record]) -> Option<Communication> {
    let [head, payload, ..] = records else { return None };
    let peer = payload.argument();
    let communicator = head.argument();
    let tag = head.communication_bits().into();
    let message = Message { peer, communicator, tag, bytes: payload.word0 & u64::from(u32::MAX) };
    let request = payload.word0 >> 32;
    Some(match head.communication_event() ^ SHORT_EVENT {
        1 => Communication::MpiSend(message),
        2 => Communication::MpiRecv(message),
        3 => Communication::MpiIsend(message, request),
        6 => Communication::MpiIrecv(message, request),
        _ => return None,
    })
}

/// An event whose records have been read only in part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partial {
    head: Record,
    payloads: [(u64, u32); PAYLOADS_MAX],
    received: usize,
}

impl Partial {
    /// `head` is the first record, of kind `Communication`.
    pub fn new(head: Record) -> Partial {
        Partial { head, payloads: Default::default(), received: 0 }
    }

    /// Returns the time of the event.
    pub fn time(&self) -> u64 {
        self.head.word0
    }

    /// Adds the next record of the event after its first.
    pub fn add(&mut self, payload: Record) {
        if let Some(place) = self.payloads.get_mut(self.received) {
            *place = (payload.word0, payload.argument());
        }
        self.received += 1;
    }

    /// Returns the event, if all of its records have been read.
    pub fn complete(&self) -> Option<Communication> {
        let is_whole = payloads_of(self.head.communication_event())? <= self.received;
        is_whole.then(|| Communication::of_numbers(Numbers::of_records(self.head, self.payloads)))?
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn any_communication() -> impl Strategy<Value = Communication> {
        let number = |limit: u64| prop_oneof![0..=limit, Just(limit), limit..=limit + 1, any::<u64>()];
        let payload = (number(u32::MAX.into()), number(u16::MAX.into()).prop_map(|number| number as u32));
        let payloads = [payload.clone(), payload.clone(), payload];
        (1u8..=18, any::<u32>(), payloads).prop_map(|(event, first, payloads)| {
            Communication::of_numbers(Numbers { event, first, payloads }).unwrap()
        })
    }

    proptest! {
        #[test]
        fn events_are_encoded_and_decoded(event in any_communication(), time: u64) {
            let mut records = event.records(time);
            prop_assert!(records.len() <= RECORDS_MAX);
            let head = records.next().unwrap();
            prop_assert_eq!(head.kind(), Some(Kind::Communication));
            let mut partial = Partial::new(head);
            for payload in records {
                prop_assert_eq!((partial.complete(), payload.kind()), (None, Some(Kind::Payload)));
                partial.add(payload);
            }
            prop_assert_eq!((partial.time(), partial.complete()), (time, Some(event)));
        }
    }

    #[test]
    fn only_large_numbers_take_a_third_record() {
        let message = Message { peer: u32::MAX, communicator: u32::MAX, tag: 0xffff, bytes: u32::MAX.into() };
        let request = u64::from(u32::MAX);
        let collective =
            Collective { operation: 7, communicator: 1, root: -2, bytes_sent: 8, bytes_received: 8 };
        let records = |event: Communication| event.records(0).len();
        assert_eq!(records(Communication::MpiIsend(message, request)), 2);
        assert_eq!(records(Communication::MpiIsend(message, request + 1)), 3);
        assert_eq!(records(Communication::MpiSend(Message { tag: 0x10000, ..message })), 3);
        assert_eq!(records(Communication::MpiRecv(Message { bytes: 1 << 32, ..message })), 3);
        assert_eq!(records(Communication::MpiCollectiveEnd(collective)), 2);
        assert_eq!(records(Communication::NonBlockingCollectiveComplete(collective, u64::MAX)), 3);
    }

    #[test]
    fn every_event_has_a_number_of_its_own() {
        let known: Vec<u8> = (0..SHORT_EVENT).filter(|event| payloads_of(*event).is_some()).collect();
        assert_eq!(known, (1..=18).collect::<Vec<u8>>());
        for event in known {
            let numbers = Numbers { event, ..Numbers::default() };
            assert_eq!(Communication::of_numbers(numbers).unwrap().numbers().event, event);
        }
    }
}
