//! Parses the records that the kernel writes.

use crate::counts::GroupRead;
use crate::machine;

/// The header of a record.
pub(crate) struct Header {
    kind: u32,
    flags: u16,
    pub(crate) bytes: u16,
}

const MAP: u32 = 1;
const LOST: u32 = 2;
const NAME: u32 = 3;
const EXIT: u32 = 4;
const THROTTLE: u32 = 5;
const UNTHROTTLE: u32 = 6;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MAP2: u32 = 10;
const SWITCH: u32 = 14;
const SWITCHED_OUT: u16 = 1 << 13;
/// The thread was preempted and is still runnable.
const PREEMPTED: u16 = 1 << 14;
const NAMED_AT_EXEC: u16 = 1 << 13;
/// The record has the file's build id instead of its device and inode.
const HAS_BUILD_ID: u16 = 1 << 14;
/// The value of `PERF_SAMPLE_REGS_ABI_64`.
const ABI_64: u64 = 2;

impl Header {
    /// Returns the header in this word; `None` if it is not valid.
    pub(crate) fn of_word(word: u64) -> Option<Header> {
        let [k0, k1, k2, k3, f0, f1, b0, b1] = word.to_ne_bytes();
        let bytes = u16::from_ne_bytes([b0, b1]);
        let kind = u32::from_ne_bytes([k0, k1, k2, k3]);
        (bytes >= 24 && bytes % 8 == 0).then_some(Header { kind, flags: u16::from_ne_bytes([f0, f1]), bytes })
    }

    /// Returns the offset of the time in the record.
    pub(crate) fn time_at(&self) -> u64 {
        if self.kind == SAMPLE { 16 } else { u64::from(self.bytes) - 8 }
    }
}

/// An executable mapping of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mapped<'a> {
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) offset: u64,
    /// The file's device and inode, as the kernel numbers them; zeros if its build id is known.
    pub(crate) identity: [u64; 2],
    /// The build id of the mapped file; empty if it has none or the kernel has not recorded it.
    pub(crate) build_id: &'a [u8],
    pub(crate) path: &'a [u8],
}

/// The state of a thread after a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchedTo {
    /// The thread runs on a CPU.
    Running,
    /// The thread waits for a CPU, because another thread runs there.
    Runnable,
    /// The thread waits for something other than a CPU.
    Waiting,
}

/// The part of a record that is used here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Sample {
        process: u32,
        thread: u32,
        /// The registers in the order of `machine::RECORDED`; `None` for a 32-bit program.
        registers: Option<[u64; machine::RECORDED.len()]>,
        stack: &'a [u8],
        /// The values of the events that are counted in the thread, if any are.
        counts: Option<GroupRead<'a>>,
    },
    Mapped {
        process: u32,
        mapped: Mapped<'a>,
    },
    Exec {
        process: u32,
        thread: u32,
        name: &'a [u8],
    },
    Forked {
        process: u32,
        parent: u32,
        thread: u32,
    },
    Ended {
        process: u32,
        thread: u32,
    },
    /// A thread starts or stops running on a CPU.
    Switched {
        process: u32,
        thread: u32,
        to: SwitchedTo,
    },
    Lost(u64),
    /// The kernel has stopped the samples of a thread's event, because there were too many, or has resumed them.
    Throttled {
        event: u64,
        is_stopped: bool,
    },
    Other,
}

/// Reads one number after another.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (these, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(these)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(8)?.try_into().ok()?))
    }

    /// Returns the text up to a zero, or up to the end.
    fn text(&self) -> &'a [u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

impl<'a> Record<'a> {
    /// Parses a record. Samples have counts if `has_counts` is set. Returns `None` if the record is damaged.
    pub(crate) fn parse(bytes: &'a [u8], has_counts: bool) -> Option<Record<'a>> {
        let header = Header::of_word(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?))?;
        let body = bytes.get(8..header.bytes.into())?;
        if header.kind == SAMPLE {
            return sample(Reader(body), has_counts);
        }
        // All other records end with their thread and time.
        let (body, id) = body.split_at_checked(body.len().checked_sub(16)?)?;
        let mut reader = Reader(body);
        Some(match header.kind {
            MAP => mapped(reader, None)?,
            MAP2 => mapped(reader, Some(header.flags & HAS_BUILD_ID != 0))?,
            NAME if header.flags & NAMED_AT_EXEC != 0 => {
                Record::Exec { process: reader.u32()?, thread: reader.u32()?, name: reader.text() }
            }
            FORK | EXIT => {
                let [process, parent, thread] = [reader.u32()?, reader.u32()?, reader.u32()?];
                match header.kind {
                    FORK => Record::Forked { process, parent, thread },
                    _ => Record::Ended { process, thread },
                }
            }
            SWITCH => {
                let to = match header.flags & (SWITCHED_OUT | PREEMPTED) {
                    SWITCHED_OUT => SwitchedTo::Waiting,
                    0 => SwitchedTo::Running,
                    _ => SwitchedTo::Runnable,
                };
                let mut id = Reader(id);
                Record::Switched { process: id.u32()?, thread: id.u32()?, to }
            }
            LOST => {
                reader.u64()?;
                Record::Lost(reader.u64()?)
            }
            THROTTLE | UNTHROTTLE => {
                reader.bytes(16)?;
                Record::Throttled { event: reader.u64()?, is_stopped: header.kind == THROTTLE }
            }
            _ => Record::Other,
        })
    }
}

fn sample(mut reader: Reader, has_counts: bool) -> Option<Record> {
    let (process, thread) = (reader.u32()?, reader.u32()?);
    reader.u64()?;
    let mut counts = None;
    if has_counts {
        counts = Some(GroupRead::parse(reader.bytes(GroupRead::length(reader.0)?)?)?);
    }
    let abi = reader.u64()?;
    let mut registers = [0; machine::RECORDED.len()];
    if abi != 0 {
        for register in &mut registers {
            *register = reader.u64()?;
        }
    }
    let size = usize::try_from(reader.u64()?).ok()?;
    let mut stack = reader.bytes(size)?;
    if size > 0 {
        stack = stack.get(..usize::try_from(reader.u64()?).ok()?)?;
    }
    Some(Record::Sample { process, thread, registers: (abi == ABI_64).then_some(registers), stack, counts })
}

/// Parses a mapping. `has_build_id`: whether a record of the second form has a build id; `None` for the first form.
fn mapped(mut reader: Reader, has_build_id: Option<bool>) -> Option<Record> {
    let process = reader.u32()?;
    reader.u32()?;
    let start = reader.u64()?;
    let length = reader.u64()?;
    let offset = reader.u64()?;
    let (mut identity, mut build_id) = ([0; 2], &[][..]);
    if let Some(has_build_id) = has_build_id {
        let mut of_file = Reader(reader.bytes(24)?);
        if has_build_id {
            let length = of_file.bytes(4)?[0];
            build_id = of_file.bytes(length.into())?;
        } else {
            // The generation of the inode follows, which is ignored.
            let device = u64::from(of_file.u32()?) << 32 | u64::from(of_file.u32()?);
            identity = [device, of_file.u64()?];
        }
        // The permissions and flags are ignored.
        reader.bytes(8)?;
    }
    let mapped = Mapped { start, length, offset, identity, build_id, path: reader.text() };
    Some(Record::Mapped { process, mapped })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, flags: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(flags.to_ne_bytes());
        bytes.extend((8 + body.len() as u16).to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Returns a process and a thread as one word.
    fn pair(process: u32, thread: u32) -> u64 {
        u64::from_ne_bytes([process.to_ne_bytes(), thread.to_ne_bytes()].concat().try_into().unwrap())
    }

    fn a_sample() -> Vec<u8> {
        let mut body = vec![pair(7, 8), 1234, ABI_64];
        body.extend(1..=machine::RECORDED.len() as u64);
        body.extend([16, 0xaa, 0xbb, 8]);
        record(SAMPLE, 0, &words(&body))
    }

    #[test]
    fn records_are_understood() {
        let sample = a_sample();
        let Some(Record::Sample { process: 7, thread: 8, registers: Some(registers), stack, counts: None }) =
            Record::parse(&sample, false)
        else {
            panic!("{:?}", Record::parse(&sample, false));
        };
        assert_eq!((registers[0], registers[registers.len() - 1]), (1, registers.len() as u64));
        assert_eq!(stack, 0xaa_u64.to_ne_bytes());
        let mut body = words(&[pair(7, 8), 0x1000, 0x2000, 0x3000, pair(8, 1), 77, 0, 0]);
        body.extend(b"/a/file\0");
        body.extend(words(&[pair(7, 8), 1234]));
        let mapped = Mapped {
            start: 0x1000,
            length: 0x2000,
            offset: 0x3000,
            identity: [8 << 32 | 1, 77],
            build_id: &[],
            path: b"/a/file",
        };
        assert_eq!(
            Record::parse(&record(MAP2, 0, &body), false),
            Some(Record::Mapped { process: 7, mapped })
        );
        let id = [3, 0, 0, 0, 0xa, 0xb, 0xc];
        body[32..39].copy_from_slice(&id);
        let of_build_id = record(MAP2, HAS_BUILD_ID, &body);
        let Some(Record::Mapped { mapped, .. }) = Record::parse(&of_build_id, false) else {
            panic!("no mapping")
        };
        assert_eq!((mapped.identity, mapped.build_id, mapped.path), ([0, 0], &id[4..], &b"/a/file"[..]));
        let fork = record(FORK, 0, &words(&[pair(7, 6), pair(8, 6), 1234, pair(7, 8), 1234]));
        assert_eq!(Record::parse(&fork, false), Some(Record::Forked { process: 7, parent: 6, thread: 8 }));
        for (flags, to) in [
            (0, SwitchedTo::Running),
            (SWITCHED_OUT, SwitchedTo::Waiting),
            (SWITCHED_OUT | PREEMPTED, SwitchedTo::Runnable),
        ] {
            let switch = record(SWITCH, flags, &words(&[pair(7, 8), 1234]));
            assert_eq!(Record::parse(&switch, false), Some(Record::Switched { process: 7, thread: 8, to }));
        }
        let lost = record(LOST, 0, &words(&[1, 99, pair(7, 8), 1234]));
        assert_eq!(Record::parse(&lost, false), Some(Record::Lost(99)));
        let throttled = record(THROTTLE, 0, &words(&[1234, 5, 6, pair(7, 8), 1234]));
        assert_eq!(Record::parse(&throttled, false), Some(Record::Throttled { event: 6, is_stopped: true }));
    }

    #[test]
    fn counts_come_before_the_registers() {
        let mut body = vec![pair(7, 8), 1234, 2, 1000, 900, 5, 77, 42, 78, ABI_64];
        body.extend(1..=machine::RECORDED.len() as u64);
        body.extend([16, 0xaa, 0xbb, 8]);
        let bytes = record(SAMPLE, 0, &words(&body));
        let Some(Record::Sample { counts, stack, .. }) = Record::parse(&bytes, true) else {
            panic!("no sample")
        };
        assert_eq!((counts, stack), (GroupRead::parse(&words(&body[2..9])), &0xaa_u64.to_ne_bytes()[..]));
        for cut in 0..bytes.len() {
            assert_eq!(Record::parse(&bytes[..cut], true), None, "{cut} bytes");
        }
    }

    #[test]
    fn damaged_records_are_refused_or_parsed_as_other_records() {
        let part_of = |random: u64| random & 1 == 1;
        let sample = a_sample();
        for cut in 0..sample.len() {
            assert_eq!(Record::parse(&sample[..cut], false), None, "{cut} bytes");
        }
        let mut random = 88172645463325252_u64;
        for _ in 0..200_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let mut bytes = sample.clone();
            bytes[0] = (random >> 40) as u8 % 12;
            for part in 0..3 {
                let at = (random >> (part * 8)) as usize % bytes.len();
                bytes[at] = (random >> (24 + part * 8)) as u8;
            }
            if let Some(Record::Sample { stack, .. }) = Record::parse(&bytes, part_of(random)) {
                assert!(stack.len() < bytes.len());
            }
        }
    }
}
