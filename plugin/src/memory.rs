//! The plugin's memory: the program's own allocator, and some that was there from the start for when that has no more. An
//! allocation that fails ends the process in Rust; a program that can live without memory must not be ended by us.
//!
//! What is taken of the reserve is not given back. It is for what is under way when the memory ends: whoever is about to
//! begin something new asks [`is_left`] first.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

const RESERVE_BYTES: usize = 256 << 10;
/// What one thing that is begun may need, generously, without its names; and with them: each is copied, encoded, and in a
/// buffer that grows.
const PROBE_BYTES: usize = 64 << 10;
const PROBE_BYTES_PER_NAME_BYTE: usize = 8;

#[repr(align(4096))]
struct Reserve(UnsafeCell<[u8; RESERVE_BYTES]>);

// SAFETY: every byte is handed out once, by the counter below.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve(UnsafeCell::new([0; RESERVE_BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);

pub struct WithReserve;

/// Whether there is memory for something new whose names are of so many bytes.
pub fn is_left(name_bytes: usize) -> bool {
    if USED.load(Ordering::Relaxed) > RESERVE_BYTES / 2 {
        return false;
    }
    let bytes = name_bytes.saturating_mul(PROBE_BYTES_PER_NAME_BYTE).saturating_add(PROBE_BYTES);
    // SAFETY: given back at once. A block that nobody looks at would be left out by the compiler, which takes it for given.
    unsafe {
        let probe = std::hint::black_box(libc::malloc(bytes));
        libc::free(probe);
        !probe.is_null()
    }
}

fn is_of_reserve(block: *mut u8) -> bool {
    let start = RESERVE.0.get() as usize;
    (start..start + RESERVE_BYTES).contains(&(block as usize))
}

fn of_reserve(layout: Layout) -> *mut u8 {
    if layout.align() > 4096 {
        return null_mut();
    }
    let mut place = 0;
    let taken = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        place = used.next_multiple_of(layout.align());
        place.checked_add(layout.size()).filter(|end| *end <= RESERVE_BYTES)
    });
    // SAFETY: place and what follows it, as long as asked, are within the reserve.
    taken.map_or(null_mut(), |_| unsafe { RESERVE.0.get().cast::<u8>().add(place) })
}

// SAFETY: the system's allocator, whose contract is the same; blocks of the reserve are within it, aligned (it is aligned to
// 4096), apart from each other, and never used again.
unsafe impl GlobalAlloc for WithReserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let block = unsafe { System.alloc(layout) };
        if block.is_null() { of_reserve(layout) } else { block }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let block = unsafe { System.alloc_zeroed(layout) };
        // Of the reserve, nothing has been used before.
        if block.is_null() { of_reserve(layout) } else { block }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_of_reserve(block) {
            // SAFETY: the caller's contract, and it is the system's.
            unsafe { System.dealloc(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if !is_of_reserve(block) {
            // SAFETY: the caller's contract, and it is the system's.
            let moved = unsafe { System.realloc(block, layout, bytes) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller's contract: a size that is valid with this alignment.
        let moved = of_reserve(unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) });
        if !moved.is_null() {
            // SAFETY: both are that long, and apart.
            unsafe {
                std::ptr::copy_nonoverlapping(block, moved, layout.size().min(bytes));
                self.dealloc(block, layout);
            }
        }
        moved
    }
}
