//! The plugin's allocator: the program's own, and a reserve for when that fails. A failed allocation aborts a Rust process, but a
//! program that survives a lack of memory must not be ended by us.
//!
//! The reserve is for work that is under way when memory runs out; its blocks are not given back. New work checks [`is_left`]
//! first.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

const RESERVE_BYTES: usize = 256 << 10;
/// Generous estimate of the memory that a new location needs: without its name, and per byte of its name (which is copied,
/// encoded and put into a growing buffer).
const PROBE_BYTES: usize = 64 << 10;
const PROBE_BYTES_PER_NAME_BYTE: usize = 8;

#[repr(align(4096))]
struct Reserve(UnsafeCell<[u8; RESERVE_BYTES]>);

// SAFETY: every byte is handed out once, by the counter below.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve(UnsafeCell::new([0; RESERVE_BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with the reserve behind it.
pub struct WithReserve;

/// Whether there is memory for a new location with a name of `name_bytes` bytes.
pub fn is_left(name_bytes: usize) -> bool {
    if USED.load(Ordering::Relaxed) > RESERVE_BYTES / 2 {
        return false;
    }
    let bytes = name_bytes.saturating_mul(PROBE_BYTES_PER_NAME_BYTE).saturating_add(PROBE_BYTES);
    // SAFETY: freed at once. Without `black_box` the compiler would remove the allocation.
    unsafe {
        let probe = std::hint::black_box(libc::malloc(bytes));
        libc::free(probe);
        !probe.is_null()
    }
}

fn is_in_reserve(block: *mut u8) -> bool {
    let start = RESERVE.0.get() as usize;
    (start..start + RESERVE_BYTES).contains(&(block as usize))
}

fn take_from_reserve(layout: Layout) -> *mut u8 {
    if layout.align() > 4096 {
        return null_mut();
    }
    let mut place = 0;
    let taken = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        place = used.next_multiple_of(layout.align());
        place.checked_add(layout.size()).filter(|end| *end <= RESERVE_BYTES)
    });
    // SAFETY: `layout.size()` bytes from this place on are within the reserve.
    taken.map_or(null_mut(), |_| unsafe { RESERVE.0.get().cast::<u8>().add(place) })
}

// SAFETY: the system's allocator has the same contract; blocks of the reserve are inside it, aligned (as it is aligned to 4096),
// disjoint, and never used again.
unsafe impl GlobalAlloc for WithReserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let block = unsafe { System.alloc(layout) };
        if block.is_null() { take_from_reserve(layout) } else { block }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let block = unsafe { System.alloc_zeroed(layout) };
        // Blocks of the reserve are used only once, and are zero at first.
        if block.is_null() { take_from_reserve(layout) } else { block }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_in_reserve(block) {
            // SAFETY: the caller's contract, and it is the system's.
            unsafe { System.dealloc(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if !is_in_reserve(block) {
            // SAFETY: the caller's contract, and it is the system's.
            let moved = unsafe { System.realloc(block, layout, bytes) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller's contract: a size that is valid with this alignment.
        let moved = take_from_reserve(unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) });
        if !moved.is_null() {
            // SAFETY: both blocks have at least that size, and they are disjoint.
            unsafe {
                std::ptr::copy_nonoverlapping(block, moved, layout.size().min(bytes));
                self.dealloc(block, layout);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_the_reserve_are_aligned_and_disjoint_until_it_is_used_up() {
        assert!(is_left(100) && !is_left(usize::MAX));
        let (mut end, mut bytes) = (0, 0);
        for (size, align) in [(1, 1), (100, 8), (1, 4096), (4000, 64)].into_iter().cycle() {
            let layout = Layout::from_size_align(size, align).unwrap();
            let block = take_from_reserve(layout);
            if block.is_null() {
                break;
            }
            assert!(is_in_reserve(block) && block.addr() % align == 0 && block.addr() >= end);
            (end, bytes) = (block.addr() + size, bytes + size);
            // SAFETY: blocks of the reserve are never given back: this does nothing.
            unsafe { WithReserve.dealloc(block, layout) };
        }
        assert!(bytes > RESERVE_BYTES / 4 && bytes <= RESERVE_BYTES && !is_left(100));
        assert!(take_from_reserve(Layout::from_size_align(8, 8192).unwrap()).is_null());
    }
}
