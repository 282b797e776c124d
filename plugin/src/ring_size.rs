//! The size of a location's ring: by the number of ranks on the node, or `AMPERE_RING_BYTES`.

use ampere_model::launcher::local_rank_and_size;
use ampere_ring::RING_RECORDS_MIN;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of all rings of a node together, however many ranks it has.
const NODE_BYTES: u64 = 256 << 20;
/// At most, for a main thread, which is the busiest, or a GPU stream, whose events come in large batches.
const MAIN_BYTES: u64 = 8 << 20;
/// At most, for other locations of a process with at most [`FEW`]: room for 5 ms of 13 million events per second, should the
/// collector be away that long.
const OTHER_BYTES: u64 = 1 << 20;
const FEW: u32 = 64;
/// For locations beyond [`FEW`]. With Score-P a thread that has ended keeps its location, and so its ring, until the process
/// ends; and shared memory counts as the job's.
const LATER_BYTES: u64 = 1 << 16;
const RECORD_BYTES: u64 = 16;
const SMALLEST_BYTES: u64 = RING_RECORDS_MIN * RECORD_BYTES;
/// The largest ring that a writer supports.
const LARGEST_BYTES: u64 = (1 << 32) * RECORD_BYTES;

/// How large this process makes its rings. The environment is read at the start, and not again: the program may be changing it.
pub struct RingSizes {
    /// The setting.
    fixed: Option<u64>,
    /// What is left of the process' share of the node's memory for rings.
    left: AtomicU64,
}

impl RingSizes {
    /// The setting, and what is wrong with it. `in_session`: of a process whose launcher does not say how many ranks the node
    /// has: how many other processes run in its session, and the bytes of their rings.
    pub fn from_environment(in_session: impl FnOnce() -> (u64, u64)) -> (RingSizes, Option<String>) {
        let variable = |name: &str| std::env::var(name).ok();
        let (fixed, complaint) = wanted(variable("AMPERE_RING_BYTES").as_deref());
        let sizes = match local_rank_and_size(variable) {
            Some((_, ranks)) => RingSizes::of_ranks(ranks),
            None => {
                let (others, bytes) = in_session();
                RingSizes::of_share(NODE_BYTES.saturating_sub(bytes) / (2 * (others + 1)))
            }
        };
        (RingSizes { fixed, ..sizes }, complaint)
    }

    /// Of each of so many ranks on a node.
    pub fn of_ranks(ranks: u32) -> RingSizes {
        RingSizes::of_share(NODE_BYTES / u64::from(ranks.max(1)))
    }

    fn of_share(bytes: u64) -> RingSizes {
        RingSizes { fixed: None, left: AtomicU64::new(bytes) }
    }

    /// Bytes for a new location: a power of two of at most half of what is left, so that others get some, too.
    pub fn next(&self, id: u32, is_gpu: bool) -> u64 {
        let most = match id {
            0 => MAIN_BYTES,
            _ if is_gpu => MAIN_BYTES,
            1..FEW => OTHER_BYTES,
            _ => LATER_BYTES,
        };
        let size = |left: u64| (1 << (left / 2).max(1).ilog2()).clamp(SMALLEST_BYTES, most);
        let rest = |left: u64| Some(left.saturating_sub(size(left)));
        let (Ok(left) | Err(left)) = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        self.fixed.unwrap_or_else(|| size(left))
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
    fn rings_of_any_number_of_ranks_fit_into_the_share_of_the_node() {
        for ranks in [1, 2, 16, 64, 128, 1024, 4096] {
            let sizes = RingSizes::of_ranks(ranks);
            let threads = (NODE_BYTES / u64::from(ranks) / SMALLEST_BYTES / 4).clamp(1, 64) as u32;
            let all: u64 = (0..threads).map(|id| sizes.next(id, false)).sum();
            // What the smallest ring takes is given to every location.
            assert!(
                all * u64::from(ranks) <= NODE_BYTES + u64::from(ranks * threads) * SMALLEST_BYTES,
                "{ranks} ranks with {threads} threads: {all} bytes each"
            );
        }
        let main = |ranks| RingSizes::of_ranks(ranks).next(0, false) >> 10;
        assert_eq!([1, 16, 32, 100, 128, 4096, 9999].map(main), [8192, 8192, 4096, 1024, 1024, 64, 64]);
    }

    #[test]
    fn processes_without_a_launcher_leave_room_for_more_of_them() {
        let mut bytes = 0;
        for others in 0..500 {
            let sizes = RingSizes::of_share(NODE_BYTES.saturating_sub(bytes) / (2 * (others + 1)));
            bytes += (0..4).map(|id| sizes.next(id, false)).sum::<u64>();
            if others == 0 {
                assert_eq!(bytes, MAIN_BYTES + 3 * OTHER_BYTES);
            }
        }
        assert!(bytes <= NODE_BYTES + 500 * 4 * SMALLEST_BYTES, "{bytes}");
    }

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
