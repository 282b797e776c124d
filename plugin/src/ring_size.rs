//! The size of a location's ring: it depends on the number of ranks on the node, or is set by `AMPERE_RING_BYTES`.

use ampere_model::launcher::local_rank_and_size;
use ampere_ring::RING_RECORDS_MIN;
use std::sync::atomic::{AtomicU64, Ordering};

/// The limit on all rings of a node together. It is exceeded only if the user has set a size, or if the smallest rings need more.
const NODE_BYTES: u64 = 256 << 20;
/// The largest ring of a main thread, which is the busiest, or of a GPU stream, whose events come in large batches.
const MAIN_BYTES_MAX: u64 = 8 << 20;
/// The largest ring of any other location with a number below [`FEW`]. At 13 million events per second it has space for 5 ms,
/// in case the collector does not read for that long.
const OTHER_BYTES_MAX: u64 = 1 << 20;
const FEW: u32 = 64;
/// The largest ring of locations from number [`FEW`] on. With Score-P a thread that has ended keeps its location, and so its
/// ring, until the process ends, and shared memory counts as the job's.
const LATER_BYTES_MAX: u64 = 1 << 16;
const RECORD_BYTES: u64 = ampere_ring::RECORD_BYTES as u64;
const RING_BYTES_MIN: u64 = RING_RECORDS_MIN * RECORD_BYTES;
/// The largest ring that a writer supports.
const RING_BYTES_MAX: u64 = (1 << 32) * RECORD_BYTES;

/// The sizes of the rings of this process. The environment is only read at the start, because the program may change it later.
pub struct RingSizes {
    /// The size that the user has set, in bytes.
    fixed: Option<u64>,
    /// The bytes that remain of this process's share of the node's memory for rings.
    left: AtomicU64,
}

/// The other processes in this one's session.
#[derive(Clone, Copy, Default)]
pub struct OtherProcesses {
    pub count: u64,
    /// The bytes of all their rings together.
    pub ring_bytes: u64,
}

impl RingSizes {
    /// Returns the sizes that this process's environment requests, and a message if the user's setting is invalid. `others` is
    /// called only if no launcher has set the number of ranks on the node.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
        others: impl FnOnce() -> OtherProcesses,
    ) -> (RingSizes, Option<String>) {
        let (fixed, complaint) = setting(variable("AMPERE_RING_BYTES").as_deref());
        let sizes = match local_rank_and_size(variable) {
            Some((_, ranks)) => RingSizes::for_ranks(ranks),
            None => RingSizes::next_to(others()),
        };
        (RingSizes { fixed, ..sizes }, complaint)
    }

    /// Returns the sizes of each rank's rings on a node with this number of ranks.
    pub fn for_ranks(ranks: u32) -> RingSizes {
        RingSizes::of_share(NODE_BYTES / u64::from(ranks.max(1)))
    }

    /// Returns the sizes of a process that does not know the number of ranks on its node. Half of the memory for rings that the
    /// other processes have not used is kept for later processes. The other half is divided by `others.count` + 1, and this
    /// process takes one of these shares.
    fn next_to(others: OtherProcesses) -> RingSizes {
        RingSizes::of_share(NODE_BYTES.saturating_sub(others.ring_bytes) / (2 * (others.count + 1)))
    }

    fn of_share(bytes: u64) -> RingSizes {
        RingSizes { fixed: None, left: AtomicU64::new(bytes) }
    }

    /// Returns the size of a new location's ring in bytes. It is the size that the user has set, or else the largest power of two
    /// that is at most half of the remaining bytes, so that later locations get some, too. That power is clamped to the limits
    /// for a location of this kind.
    pub fn next(&self, id: u32, is_gpu: bool) -> u64 {
        let bytes_max = match id {
            0 => MAIN_BYTES_MAX,
            _ if is_gpu => MAIN_BYTES_MAX,
            1..FEW => OTHER_BYTES_MAX,
            _ => LATER_BYTES_MAX,
        };
        let size = |left: u64| (1 << (left / 2).max(1).ilog2()).clamp(RING_BYTES_MIN, bytes_max);
        let rest = |left: u64| Some(left.saturating_sub(size(left)));
        let (Ok(left) | Err(left)) = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        self.fixed.unwrap_or_else(|| size(left))
    }
}

/// Returns the size that the user has set, and a message if the setting is invalid.
fn setting(text: Option<&str>) -> (Option<u64>, Option<String>) {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return (None, None) };
    let Ok(bytes) = text.parse::<u64>() else {
        let why = format!(
            "AMPERE_RING_BYTES={text:?} is not a number of bytes: continuing with the default, {MAIN_BYTES_MAX} for a main thread"
        );
        return (None, Some(why));
    };
    let possible = bytes.clamp(RING_BYTES_MIN, RING_BYTES_MAX);
    let why = (possible != bytes).then(|| {
        format!(
            "AMPERE_RING_BYTES={bytes}: rings have {RING_BYTES_MIN} to {RING_BYTES_MAX} bytes; continuing with {possible}"
        )
    });
    (Some(possible), why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_any_number_of_ranks_fit_into_the_share_of_the_node() {
        for ranks in [1, 2, 16, 64, 128, 1024, 4096] {
            let sizes = RingSizes::for_ranks(ranks);
            let threads = (NODE_BYTES / u64::from(ranks) / RING_BYTES_MIN / 4).clamp(1, 64) as u32;
            let all: u64 = (0..threads).map(|id| sizes.next(id, false)).sum();
            // Every location gets at least the smallest ring.
            assert!(
                all * u64::from(ranks) <= NODE_BYTES + u64::from(ranks * threads) * RING_BYTES_MIN,
                "{ranks} ranks with {threads} threads: {all} bytes each"
            );
        }
        let main = |ranks| RingSizes::for_ranks(ranks).next(0, false) >> 10;
        assert_eq!([1, 16, 32, 100, 128, 4096, 9999].map(main), [8192, 8192, 4096, 1024, 1024, 64, 64]);
    }

    #[test]
    fn processes_without_a_launcher_leave_room_for_more_of_them() {
        let mut ring_bytes = 0;
        for count in 0..500 {
            let sizes = RingSizes::next_to(OtherProcesses { count, ring_bytes });
            ring_bytes += (0..4).map(|id| sizes.next(id, false)).sum::<u64>();
            if count == 0 {
                assert_eq!(ring_bytes, MAIN_BYTES_MAX + 3 * OTHER_BYTES_MAX);
            }
        }
        assert!(ring_bytes <= NODE_BYTES + 500 * 4 * RING_BYTES_MIN, "{ring_bytes}");
    }

    #[test]
    fn the_size_comes_from_the_user_else_the_launcher_else_the_other_processes() {
        let sizes = |set: &[(&str, &str)], others: OtherProcesses| {
            let variable =
                |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
            let (sizes, complaint) = RingSizes::from_environment(variable, || others);
            assert_eq!(complaint, None);
            [(0, false), (1, false), (1, true), (FEW, false)].map(|(id, is_gpu)| sizes.next(id, is_gpu) >> 10)
        };
        let crowd = OtherProcesses { count: 63, ring_bytes: NODE_BYTES / 2 };
        assert_eq!(sizes(&[], OtherProcesses::default()), [8192, 1024, 8192, 64]);
        assert_eq!(sizes(&[], crowd), [512, 256, 128, 64]);
        let ranks = [("OMPI_COMM_WORLD_LOCAL_RANK", "0"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "128")];
        assert_eq!(sizes(&ranks, crowd), [1024, 512, 256, 64]);
        assert_eq!(sizes(&[("AMPERE_RING_BYTES", "131072"), ranks[0], ranks[1]], crowd), [128; 4]);
    }

    #[test]
    fn a_size_out_of_range_is_clamped_and_reported() {
        assert_eq!(setting(None), (None, None));
        assert_eq!(setting(Some(" ")), (None, None));
        assert_eq!(setting(Some("1048576")), (Some(1 << 20), None));
        for (text, bytes) in [("1", RING_BYTES_MIN), ("0", RING_BYTES_MIN), ("9999999999999", RING_BYTES_MAX)]
        {
            let (possible, why) = setting(Some(text));
            assert_eq!(possible, Some(bytes));
            assert!(why.unwrap().contains(&bytes.to_string()), "{text}");
        }
        let (possible, why) = setting(Some("8M"));
        assert!(possible.is_none() && why.unwrap().contains("not a number of bytes"));
    }
}
