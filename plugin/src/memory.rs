//! The plugin's allocator: the program's own, and a reserve for when that fails. Code that is about to keep more memory, as for a
//! new location, checks [`is_left`] first.

use ampere_signal_safety::Reserve;
use std::alloc::{GlobalAlloc, Layout, System};

/// A generous estimate of the memory that a new location needs, and of the additional memory for each byte of its name, which
/// is copied, encoded and put into a growing buffer.
const PROBE_BYTES: usize = 64 << 10;
const PROBE_BYTES_PER_NAME_BYTE: usize = 8;

static RESERVE: Reserve<{ 256 << 10 }> = Reserve::new();

/// The system's allocator with the reserve behind it.
pub struct WithReserve;

/// Whether there is memory for a new location with a name of `name_bytes` bytes.
pub fn is_left(name_bytes: usize) -> bool {
    if RESERVE.is_low() {
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

// SAFETY: the system's allocator has the same contract. Blocks of the reserve lie inside the reserve, are aligned because the
// reserve is aligned to 4096 bytes, do not overlap, and are used only once.
unsafe impl GlobalAlloc for WithReserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let block = unsafe { System.alloc(layout) };
        if block.is_null() { RESERVE.take(layout.size(), layout.align()) } else { block }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let block = unsafe { System.alloc_zeroed(layout) };
        // Blocks of the reserve are used only once, and are zero at first.
        if block.is_null() { RESERVE.take(layout.size(), layout.align()) } else { block }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !RESERVE.contains(block) {
            // SAFETY: the caller's contract, and the block is the system allocator's.
            unsafe { System.dealloc(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if !RESERVE.contains(block) {
            // SAFETY: the caller's contract, and the block is the system allocator's.
            let moved = unsafe { System.realloc(block, layout, bytes) };
            if !moved.is_null() {
                return moved;
            }
        }
        let moved = RESERVE.take(bytes, layout.align());
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
