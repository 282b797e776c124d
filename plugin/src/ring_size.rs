//! How large a location's ring is to be: `AMPERE_RING_BYTES`.

use ampere_ring::SMALLEST_RING_RECORDS;

/// Of a main thread, which is busiest, or a GPU stream, whose events come in large batches.
const MAIN_BYTES: u64 = 8 << 20;
/// Of any other location of a process that has no more than so many. 65,536 records: what 5 ms of 13 million events a second
/// need, were the collector away for so long.
const OTHER_BYTES: u64 = 1 << 20;
const FEW: u32 = 64;
/// Of those that come after them. With Score-P a thread that has ended keeps its location, and so its ring, until the process
/// ends; and shared memory counts as the job's.
const LATER_BYTES: u64 = 1 << 16;
const RECORD_BYTES: u64 = 16;
const SMALLEST_BYTES: u64 = SMALLEST_RING_RECORDS * RECORD_BYTES;
/// What a writer can count within a ring.
const LARGEST_BYTES: u64 = (1 << 32) * RECORD_BYTES;

/// As the environment said when the measurement began. It is not asked again: the program may be changing it.
#[derive(Clone, Copy)]
pub struct RingSize(Option<u64>);

impl RingSize {
    /// And what is odd about the setting.
    pub fn from_environment() -> (RingSize, Option<String>) {
        let (bytes, complaint) = wanted(std::env::var("AMPERE_RING_BYTES").ok().as_deref());
        (RingSize(bytes), complaint)
    }

    /// Of the location of this number; `is_busy`: it is a GPU stream.
    pub fn bytes(self, id: u32, is_busy: bool) -> u64 {
        self.0.unwrap_or(match id {
            0 => MAIN_BYTES,
            _ if is_busy => MAIN_BYTES,
            1..FEW => OTHER_BYTES,
            _ => LATER_BYTES,
        })
    }
}

fn wanted(text: Option<&str>) -> (Option<u64>, Option<String>) {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return (None, None) };
    let Ok(bytes) = text.parse::<u64>() else {
        let why = format!(
            "AMPERE_RING_BYTES={text:?} is no number of bytes: going on with {MAIN_BYTES} for a main thread"
        );
        return (None, Some(why));
    };
    let possible = bytes.clamp(SMALLEST_BYTES, LARGEST_BYTES);
    let why = (possible != bytes).then(|| {
        format!("AMPERE_RING_BYTES={bytes}: rings are {SMALLEST_BYTES} to {LARGEST_BYTES} bytes; going on with {possible}")
    });
    (Some(possible), why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_taken_or_told_why_not() {
        assert_eq!(wanted(None), (None, None));
        assert_eq!(wanted(Some(" ")), (None, None));
        assert_eq!(wanted(Some("1048576")), (Some(1 << 20), None));
        for (text, bytes) in [("1", SMALLEST_BYTES), ("0", SMALLEST_BYTES), ("9999999999999", LARGEST_BYTES)]
        {
            let (possible, why) = wanted(Some(text));
            assert_eq!(possible, Some(bytes));
            assert!(why.unwrap().contains(&bytes.to_string()), "{text}");
        }
        let (possible, why) = wanted(Some("8M"));
        assert!(possible.is_none() && why.unwrap().contains("no number of bytes"));
    }
}
