//! The size of a location's ring: `AMPERE_RING_BYTES`.

use ampere_ring::SMALLEST_RING_RECORDS;

/// For a main thread, which is the busiest, or a GPU stream, whose events come in large batches.
const MAIN_BYTES: u64 = 8 << 20;
/// For other locations of a process with at most [`FEW`]: room for 5 ms of 13 million events per second, should the collector
/// be away that long.
const OTHER_BYTES: u64 = 1 << 20;
const FEW: u32 = 64;
/// For locations beyond [`FEW`]. With Score-P a thread that has ended keeps its location, and so its ring, until the process
/// ends; and shared memory counts as the job's.
const LATER_BYTES: u64 = 1 << 16;
const RECORD_BYTES: u64 = 16;
const SMALLEST_BYTES: u64 = SMALLEST_RING_RECORDS * RECORD_BYTES;
/// The largest ring that a writer supports.
const LARGEST_BYTES: u64 = (1 << 32) * RECORD_BYTES;

/// The setting as of the start. The environment is not read again: the program may be changing it.
#[derive(Clone, Copy)]
pub struct RingSize(Option<u64>);

impl RingSize {
    /// The setting, and what is wrong with it.
    pub fn from_environment() -> (RingSize, Option<String>) {
        let (bytes, complaint) = wanted(std::env::var("AMPERE_RING_BYTES").ok().as_deref());
        (RingSize(bytes), complaint)
    }

    /// Bytes for a location.
    pub fn bytes(self, id: u32, is_gpu: bool) -> u64 {
        self.0.unwrap_or(match id {
            0 => MAIN_BYTES,
            _ if is_gpu => MAIN_BYTES,
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
    fn a_size_out_of_range_is_clamped_and_reported() {
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
