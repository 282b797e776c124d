//! Memory for work that is in progress when the memory of the program runs out. A failed allocation aborts a Rust process, but we
//! must not end a program that can handle a failed allocation.

use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

const PAGE: usize = 4096;

/// Bytes that are handed out once and never given back. They are zero at first, and start at a page boundary, because they are
/// the first field of an aligned structure.
#[repr(C, align(4096))]
pub struct Reserve<const BYTES: usize> {
    bytes: UnsafeCell<[u8; BYTES]>,
    taken: AtomicUsize,
}

// SAFETY: every byte is handed out once, by the counter.
unsafe impl<const BYTES: usize> Sync for Reserve<BYTES> {}

impl<const BYTES: usize> Reserve<BYTES> {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Reserve<BYTES> {
        Reserve { bytes: UnsafeCell::new([0; BYTES]), taken: AtomicUsize::new(0) }
    }

    /// Whether more than half of the reserve is used, so that no new work should start.
    pub fn is_low(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > BYTES / 2
    }

    /// Whether a block comes from the reserve.
    pub fn contains(&self, block: *mut u8) -> bool {
        let start = self.bytes.get().addr();
        (start..start + BYTES).contains(&block.addr())
    }

    /// Takes a block. Returns null if the reserve is used up, or if an alignment larger than a page is requested.
    pub fn take(&self, size: usize, align: usize) -> *mut u8 {
        if align > PAGE {
            return null_mut();
        }
        let mut place = 0;
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            place = taken.next_multiple_of(align);
            place.checked_add(size).filter(|end| *end <= BYTES)
        });
        // SAFETY: `size` bytes from this position on are within the reserve.
        taken.map_or(null_mut(), |_| unsafe { self.bytes.get().cast::<u8>().add(place) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_disjoint_until_the_reserve_is_used_up() {
        const BYTES: usize = 64 << 10;
        let reserve = Reserve::<BYTES>::new();
        let (mut end, mut bytes) = (0, 0);
        for (size, align) in [(1, 1), (100, 8), (1, PAGE), (4000, 64)].into_iter().cycle() {
            let block = reserve.take(size, align);
            if block.is_null() {
                break;
            }
            assert!(reserve.contains(block) && block.addr().is_multiple_of(align) && block.addr() >= end);
            (end, bytes) = (block.addr() + size, bytes + size);
            assert_eq!(reserve.is_low(), end - reserve.bytes.get().addr() > BYTES / 2);
        }
        assert!(bytes > BYTES / 4 && bytes <= BYTES);
        assert!(!reserve.contains(std::ptr::without_provenance_mut(reserve.bytes.get().addr() + BYTES)));
        assert!(Reserve::<BYTES>::new().take(8, 2 * PAGE).is_null());
    }
}
