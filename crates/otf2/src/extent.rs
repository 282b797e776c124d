//! Counts the events that a file really contains.
//!
//! OTF2 reads its files in chunks of a fixed size and treats a short read as a success. In a truncated file it then continues
//! with the remains of an earlier chunk in memory, delivers old events again, or searches for a next chunk until the stack
//! overflows.
//! Therefore the end is found here, before OTF2 reads anything. OTF2 then reads exactly the events that exist, and definitions
//! are read only if they are complete.
//!
//! The part of the format that is needed here: A file is a sequence of chunks, whose size is in the anchor file; only the last
//! may be shorter. A chunk begins with a header of 18 bytes:
//!
//! ```text
//! 0   1           2                         10
//! 03  endianness  number of first event u64  number of last event u64   (numbers begin at 1)
//! ```
//!
//! which is followed by records:
//!
//! ```text
//! 00                      end of this chunk      02                      end of the file
//! 05  time u64            time of what follows   06  length  ...         attributes of what follows
//! type >= 10  length ...  an event               type in COMPRESSED  size  size bytes   an event of one number
//! ```
//!
//! Definition files have the same format, except that types begin at 5, all records have a length, and the header does not count
//! them.
//!
//! A length is one byte, or ff followed by a u64. A size is one byte from 0 to 8, or ff for a number whose bits are all ones and
//! which has no bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const CHUNK_HEADER: u8 = 3;
const HEADER_BYTES: usize = 18;
const LITTLE_ENDIAN: u8 = 0x42;
const BIG_ENDIAN: u8 = 0x23;
const END_OF_FILE: u8 = 2;
const TIMESTAMP: u8 = 5;
const ATTRIBUTE_LIST: u8 = 6;
const FIRST_EVENT_TYPE: u8 = 10;
const FIRST_DEFINITION_TYPE: u8 = 5;

/// The types of events that are a single number without a length: Enter, Leave, MpiIsendComplete, MpiIrecvRequest,
/// MpiRequestTest, MpiRequestCancelled, OmpFork, OmpTaskCreate, OmpTaskSwitch, OmpTaskComplete.
const COMPRESSED: [u8; 10] = [12, 13, 16, 17, 20, 21, 24, 28, 29, 30];

/// The kind of records in a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Events,
    Definitions,
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// For an event file, the number of complete events, all of which can be read, if it is known.
    pub events: Option<u64>,
    /// The reason if the file is truncated.
    pub truncated: Option<String>,
}

/// Examines the last chunk of a file, and at most the headers of all others. `chunk_bytes` is not zero.
pub(crate) fn of_file(path: &Path, kind: Content, chunk_bytes: u64) -> io::Result<Extent> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let chunks = bytes.div_ceil(chunk_bytes);
    let mut truncated = None;
    for chunk in (0..chunks).rev() {
        let start = chunk * chunk_bytes;
        let held = (bytes - start).min(chunk_bytes) as usize;
        let is_last = chunk + 1 == chunks;
        // The header of a complete chunk has the number of its last event.
        let mut content = vec![0; if is_last { held } else { HEADER_BYTES.min(held) }];
        file.read_exact_at(&mut content, start)?;
        let Some(header) = Header::of(&content) else {
            truncated.get_or_insert_with(|| format!("cut short or damaged at byte {start} of {bytes}"));
            continue;
        };
        if !is_last {
            return Ok(Extent { events: Some(header.last), truncated });
        }
        let (events, end) = records(&content, kind, header.big_endian);
        let truncated = match end {
            End::Complete => None,
            End::At(at) => Some(format!("cut short or damaged at byte {} of {bytes}", start + at as u64)),
        };
        return Ok(Extent { events: Some((header.first - 1).saturating_add(events)), truncated });
    }
    Ok(Extent { events: Some(0), truncated: truncated.or_else(|| Some("empty".into())) })
}

struct Header {
    big_endian: bool,
    first: u64,
    last: u64,
}

impl Header {
    fn of(content: &[u8]) -> Option<Header> {
        let header: &[u8; HEADER_BYTES] = content.first_chunk()?;
        let big_endian = match header[1] {
            LITTLE_ENDIAN => false,
            BIG_ENDIAN => true,
            _ => return None,
        };
        let first = number(&header[2..], big_endian)?;
        let last = number(&header[10..], big_endian)?;
        (header[0] == CHUNK_HEADER && first > 0).then_some(Header { big_endian, first, last })
    }
}

enum End {
    Complete,
    /// The offset of the first record that is incomplete or invalid.
    At(usize),
}

/// Counts the events of a chunk and finds its end; definitions are not counted.
fn records(content: &[u8], of: Content, big_endian: bool) -> (u64, End) {
    let mut at = HEADER_BYTES;
    let mut events = 0;
    loop {
        let Some(&kind) = content.get(at) else { return (events, End::At(at)) };
        let length = match kind {
            END_OF_FILE => return (events, End::Complete),
            _ if of == Content::Definitions && kind >= FIRST_DEFINITION_TYPE => {
                with_length(&content[at + 1..], big_endian)
            }
            TIMESTAMP => Some(8),
            ATTRIBUTE_LIST => with_length(&content[at + 1..], big_endian),
            kind if COMPRESSED.contains(&kind) => content.get(at + 1).and_then(|&size| match size {
                0xff => Some(1),
                size if size <= 8 => Some(1 + usize::from(size)),
                _ => None,
            }),
            kind if kind >= FIRST_EVENT_TYPE => with_length(&content[at + 1..], big_endian),
            // This includes the mark for the end of a chunk (0): another chunk would have to follow, but this one is the last.
            _ => None,
        };
        let next = length.and_then(|length| at.checked_add(1)?.checked_add(length));
        match next {
            Some(next) if next <= content.len() => {
                events += u64::from(kind >= FIRST_EVENT_TYPE);
                at = next;
            }
            _ => return (events, End::At(at)),
        }
    }
}

/// Returns the number of bytes of a record that begins with its length, including the length itself.
fn with_length(content: &[u8], big_endian: bool) -> Option<usize> {
    match *content.first()? {
        0xff => usize::try_from(number(&content[1..], big_endian)?).ok()?.checked_add(9),
        length => Some(1 + usize::from(length)),
    }
}

fn number(bytes: &[u8], big_endian: bool) -> Option<u64> {
    let bytes = *bytes.first_chunk()?;
    Some(if big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 64;

    fn header(first: u64, last: u64) -> Vec<u8> {
        [&[CHUNK_HEADER, LITTLE_ENDIAN], &first.to_le_bytes()[..], &last.to_le_bytes()].concat()
    }

    /// Two events in a full chunk, followed by one with attributes and a long one.
    fn whole() -> Vec<u8> {
        let mut bytes = header(1, 2);
        bytes.extend([TIMESTAMP, 9, 0, 0, 0, 0, 0, 0, 0, 12, 1, 7, 13, 0xff]);
        bytes.resize(CHUNK as usize, 0);
        bytes.extend(header(3, 4));
        bytes.extend([ATTRIBUTE_LIST, 2, 0, 0, 12, 0]);
        bytes.extend([31, 0xff, 3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
        bytes.extend([END_OF_FILE, 1]);
        bytes
    }

    fn of(bytes: &[u8]) -> Extent {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        of_file(file.path(), Content::Events, CHUNK).unwrap()
    }

    #[test]
    fn all_events_of_a_complete_file_are_counted() {
        assert_eq!(of(&whole()), Extent { events: Some(4), truncated: None });
    }

    #[test]
    fn complete_events_are_counted_wherever_a_file_is_cut() {
        let whole = whole();
        let second = CHUNK as usize + HEADER_BYTES;
        for length in 0..whole.len() - 2 {
            let extent = of(&whole[..length]);
            assert!(extent.truncated.is_some(), "{length}");
            let expected = match length {
                0..30 => 0,
                30..32 => 1,
                // If the file is cut here or later, the first chunk is complete. The header counts its events.
                _ if length < second + 6 => 2,
                _ if length < second + 19 => 3,
                _ => 4,
            };
            assert_eq!(extent.events, Some(expected), "{length}");
        }
    }

    #[test]
    fn nonsense_contains_no_events() {
        assert_eq!(of(b"").events, Some(0));
        assert_eq!(of(&[0xaa; 500]).events, Some(0));
        assert!(of(&[0; 500]).truncated.is_some());
    }
}
