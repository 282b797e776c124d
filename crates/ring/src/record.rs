//! The 16 bytes that an event takes.

/// What a record says. Numbers are the format's: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A region was entered; argument: region handle.
    Enter = 1,
    /// A region was left; argument: region handle. It leaves the innermost open frame, whatever its region.
    Leave = 2,
    /// The program's measurement began.
    ProgramBegin = 3,
    /// The program's measurement ended: every frame still open ends here.
    ProgramEnd = 4,
    /// The location ended: every frame still open on it ends here.
    LocationEnd = 5,
    /// An energy counter's value follows in the next record; argument: device index.
    Sample = 6,
    /// Second half of a sample: nanojoules in word 0.
    Value = 7,
    /// Calls that found no room; word 0: how many, argument: 0.
    Suppressed = 8,
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
            _ => return None,
        })
    }
}

/// One slot of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Record {
    /// Timestamp in ticks, or the value of a `Value` or `Suppressed`.
    pub word0: u64,
    word1: u64,
}

impl Record {
    #[inline]
    pub const fn new(kind: Kind, word0: u64, argument: u32) -> Record {
        Record { word0, word1: argument as u64 | (kind as u64) << 32 }
    }

    /// `None` for what this version does not know, or bits that must be zero and are not.
    #[inline]
    pub fn kind(&self) -> Option<Kind> {
        if self.word1 >> 40 != 0 {
            return None;
        }
        Kind::from_u8((self.word1 >> 32) as u8)
    }

    #[inline]
    pub const fn argument(&self) -> u32 {
        self.word1 as u32
    }

    #[inline]
    pub const fn words(&self) -> [u64; 2] {
        [self.word0, self.word1]
    }

    #[inline]
    pub const fn from_words(words: [u64; 2]) -> Record {
        Record { word0: words[0], word1: words[1] }
    }

    /// As it lies in a file.
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.word0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.word1.to_le_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8; 16]) -> Record {
        let word = |at: usize| {
            let mut part = [0; 8];
            part.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(part)
        };
        Record { word0: word(0), word1: word(8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_goes_in_comes_out(kind in 1u8..=8, word0: u64, argument: u32) {
            let kind = Kind::from_u8(kind).unwrap();
            let record = Record::new(kind, word0, argument);
            prop_assert_eq!((record.kind(), record.word0, record.argument()), (Some(kind), word0, argument));
            prop_assert_eq!(Record::from_bytes(&record.to_bytes()), record);
            prop_assert_eq!(Record::from_words(record.words()), record);
        }

        #[test]
        fn any_bytes_are_survived(bytes: [u8; 16]) {
            let record = Record::from_bytes(&bytes);
            let known = (1..=8).contains(&bytes[12]) && bytes[13..] == [0, 0, 0];
            prop_assert_eq!(record.kind().is_some(), known);
        }
    }
}
