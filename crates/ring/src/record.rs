//! The 16 bytes of a record.

/// The kind of a record. The numbers are part of the format: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A region was entered; argument: region handle.
    Enter = 1,
    /// A region was left; argument: region handle. Frames inside it have ended as well. Ignored if no such frame is open.
    Leave = 2,
    ProgramBegin = 3,
    /// The program's measurement ended, and with it every open frame.
    ProgramEnd = 4,
    /// The location ended, and with it every frame that is open on it.
    LocationEnd = 5,
    /// An energy counter's value follows in the next record; argument: device index.
    Sample = 6,
    /// The second half of a sample, of CPU time or of counts: nanojoules, nanoseconds or events in word 0.
    Value = 7,
    /// Calls for which there was no space; word 0: their number, argument: 0.
    Suppressed = 8,
    /// A group of coalesced calls begins at this time; argument: the number of records of `CoalescedCalls` that follow.
    Group = 9,
    /// The calls of one call path in the group: see [`CoalescedCalls`].
    CoalescedCalls = 10,
    /// Like `Enter`, for a frame that was open before: no call begins here.
    Resume = 11,
    /// A message, a collective, a request or a team of threads; see [`crate::communication`].
    Communication = 12,
    /// The further numbers of a `Communication`.
    Payload = 13,
    /// The total CPU time that the location has used up to this time follows in the next record; argument: the number of
    /// ticks before this time during which it rose, or 0 if it rose during the whole time since the previous record of CPU
    /// time.
    CpuTime = 14,
    /// The correlation id of the `Enter` that follows in the next record, in word 0: a call that launches work on a GPU has the
    /// same id as the kernels, copies or fills that it launched. Argument: 0.
    Correlation = 15,
    /// The number of events that a thread has counted since its last stack sample follows in the next record. It belongs to the
    /// frame that is now the innermost one. Argument: the event, by its number in the process' [`ampere_model::STACK_EVENTS`].
    Counts = 16,
}

/// The coalesced calls of one call path. Those of its descendants follow it in the group, each with its depth.
///
/// ```text
/// word 0   bits 0..40 exclusive ticks    bits 40..64 calls that began
/// word 1   bits 0..32 region handle      bits 32..40 kind    bits 40..48 zero    bits 48..64 depth in the group
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoalescedCalls {
    pub region: u32,
    /// The depth in the group: 0 directly below the innermost frame in the ring.
    pub depth: u16,
    /// Calls that began in the group.
    pub calls: u32,
    /// Ticks without those of the path's descendants.
    pub exclusive_ticks: u64,
}

impl CoalescedCalls {
    /// The largest number of calls in one record: more take several records.
    pub const CALLS_MAX: u32 = (1 << 24) - 1;
    /// The largest number of ticks in one record: more take several records.
    pub const TICKS_MAX: u64 = (1 << 40) - 1;
}

impl Kind {
    fn from_u8(value: u8) -> Option<Kind> {
        Some(match value {
            1 => Kind::Enter,
            2 => Kind::Leave,
            3 => Kind::ProgramBegin,
            4 => Kind::ProgramEnd,
            5 => Kind::LocationEnd,
            6 => Kind::Sample,
            7 => Kind::Value,
            8 => Kind::Suppressed,
            9 => Kind::Group,
            10 => Kind::CoalescedCalls,
            11 => Kind::Resume,
            12 => Kind::Communication,
            13 => Kind::Payload,
            14 => Kind::CpuTime,
            15 => Kind::Correlation,
            16 => Kind::Counts,
            _ => return None,
        })
    }
}

/// One slot of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Record {
    /// The timestamp in ticks, or another value that the kind specifies.
    pub word0: u64,
    word1: u64,
}

impl Record {
    /// Returns a record with a timestamp or other word, and an argument.
    #[inline]
    pub const fn new(kind: Kind, word0: u64, argument: u32) -> Record {
        Record { word0, word1: argument as u64 | (kind as u64) << 32 }
    }

    /// Returns the kind; `None` if this version does not know it, or if bits that must be zero are not.
    #[inline]
    pub fn kind(&self) -> Option<Kind> {
        self.common_kind().or_else(|| self.rare_kind())
    }

    /// Returns the kind, if it is one of the two that nearly all records have.
    #[inline]
    pub(crate) fn common_kind(&self) -> Option<Kind> {
        match self.word1 >> 32 {
            1 => Some(Kind::Enter),
            2 => Some(Kind::Leave),
            _ => None,
        }
    }

    #[inline(never)]
    fn rare_kind(&self) -> Option<Kind> {
        let kind = Kind::from_u8((self.word1 >> 32) as u8)?;
        let is_valid = match kind {
            Kind::CoalescedCalls => self.word1 >> 40 & 0xff == 0,
            Kind::Communication => self.payloads_after().is_some(),
            _ => self.word1 >> 40 == 0,
        };
        is_valid.then_some(kind)
    }

    /// Returns the region handle of a record that begins a frame.
    #[inline]
    pub fn begun_region(&self) -> Option<u32> {
        matches!(self.kind(), Some(Kind::Enter | Kind::Resume | Kind::CoalescedCalls))
            .then_some(self.argument())
    }

    /// Encodes coalesced calls, which must be within [`CoalescedCalls::CALLS_MAX`] and [`CoalescedCalls::TICKS_MAX`].
    #[inline]
    pub const fn coalesced_calls(of: CoalescedCalls) -> Record {
        let word0 = of.exclusive_ticks & CoalescedCalls::TICKS_MAX | (of.calls as u64) << 40;
        let head = Record::new(Kind::CoalescedCalls, word0, of.region);
        Record { word0, word1: head.word1 | (of.depth as u64) << 48 }
    }

    /// Decodes a record of kind `CoalescedCalls`.
    #[inline]
    pub const fn as_coalesced_calls(&self) -> CoalescedCalls {
        CoalescedCalls {
            region: self.argument(),
            depth: (self.word1 >> 48) as u16,
            calls: (self.word0 >> 40) as u32,
            exclusive_ticks: self.word0 & CoalescedCalls::TICKS_MAX,
        }
    }

    /// Returns the first record of a communication event. `event` is the kind of event by its number; `bits` is 0, except in a
    /// short event ([`crate::communication`]).
    pub(crate) const fn communication(time: u64, event: u8, bits: u16, argument: u32) -> Record {
        let head = Record::new(Kind::Communication, time, argument);
        Record { word0: time, word1: head.word1 | (event as u64) << 40 | (bits as u64) << 48 }
    }

    /// Whether the record is of kind `Communication`. The number of the event is not checked. Cheaper than [`Record::kind`].
    #[inline]
    pub(crate) const fn is_communication(&self) -> bool {
        (self.word1 >> 32) as u8 == Kind::Communication as u8
    }

    #[inline]
    pub(crate) const fn is_payload(&self) -> bool {
        self.word1 >> 32 == Kind::Payload as u64
    }

    /// Returns the number that identifies the kind of event, in a record of kind `Communication`.
    pub(crate) const fn communication_event(&self) -> u8 {
        (self.word1 >> 40) as u8
    }

    /// Returns bits 48 to 63 of a record of kind `Communication`: in a short event, they are the first payload's argument.
    pub(crate) const fn communication_bits(&self) -> u16 {
        (self.word1 >> 48) as u16
    }

    /// Returns the number of payloads that follow a record of kind `Communication`. `None` if the event is unknown, or if bits
    /// are set that only a short event uses.
    #[inline]
    pub(crate) fn payloads_after(&self) -> Option<usize> {
        let event = self.communication_event();
        (event & SHORT_EVENT != 0 || self.communication_bits() == 0).then(|| payloads_of(event))?
    }

    /// Returns the region handle, device index or number of records that comes with the kind.
    #[inline]
    pub const fn argument(&self) -> u32 {
        self.word1 as u32
    }

    /// Returns the bytes of records in a file.
    #[cfg(target_endian = "little")]
    pub fn bytes_of(records: &[Record]) -> &[u8] {
        // SAFETY: a record is two words without padding; any byte may be read.
        unsafe { std::slice::from_raw_parts(records.as_ptr().cast(), size_of_val(records)) }
    }

    /// Returns the two words of the format.
    #[inline]
    pub const fn words(&self) -> [u64; 2] {
        [self.word0, self.word1]
    }

    /// Returns the record with these words.
    #[inline]
    pub const fn from_words(words: [u64; 2]) -> Record {
        Record { word0: words[0], word1: words[1] }
    }

    /// Returns the record's bytes in a file.
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.word0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.word1.to_le_bytes());
        bytes
    }

    /// Returns the record with these bytes.
    #[inline]
    pub fn from_bytes(bytes: &[u8; 16]) -> Record {
        let both = u128::from_le_bytes(*bytes);
        Record { word0: both as u64, word1: (both >> 64) as u64 }
    }
}

/// The bit in the number of a communication event that marks it as short ([`crate::communication`]).
pub(crate) const SHORT_EVENT: u8 = 0x80;

/// Returns the number of payloads of a communication event; `None` if the event is unknown.
#[inline]
pub(crate) fn payloads_of(event: u8) -> Option<usize> {
    let payloads = match event & !SHORT_EVENT {
        9 | 13..=14 | 16..=18 => 0,
        4..=5 | 7..=8 | 11 | 15 => 1,
        1..=3 | 6 | 10 => 2,
        12 => 3,
        _ => return None,
    };
    match event & SHORT_EVENT {
        0 => Some(payloads),
        _ if payloads < 2 => None,
        _ => Some(payloads - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_are_encoded_and_decoded(kind in (1u8..=16).prop_filter("has an event", |kind| *kind != 12), word0: u64, argument: u32) {
            let kind = Kind::from_u8(kind).unwrap();
            let record = Record::new(kind, word0, argument);
            prop_assert_eq!((record.kind(), record.word0, record.argument()), (Some(kind), word0, argument));
            prop_assert_eq!(Record::from_bytes(&record.to_bytes()), record);
            prop_assert_eq!(Record::from_words(record.words()), record);
        }

        #[test]
        fn coalesced_calls_are_encoded_and_decoded(region: u32, depth: u16, calls in 0u32..1 << 24, ticks in 0u64..1 << 40) {
            let coalesced = CoalescedCalls { region, depth, calls, exclusive_ticks: ticks };
            let record = Record::coalesced_calls(coalesced);
            prop_assert_eq!((record.kind(), record.as_coalesced_calls()), (Some(Kind::CoalescedCalls), coalesced));
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(bytes: [u8; 16]) {
            let record = Record::from_bytes(&bytes);
            let unused = match bytes[12] {
                10 => &bytes[13..14],
                12 if (1..=18).contains(&bytes[13]) => &bytes[14..],
                12 if matches!(bytes[13], 0x81..=0x83 | 0x86 | 0x8a | 0x8c) => &[],
                12 => &[1][..],
                _ => &bytes[13..],
            };
            let known = (1..=16).contains(&bytes[12]) && unused.iter().all(|byte| *byte == 0);
            prop_assert_eq!(record.kind().is_some(), known);
        }
    }
}
