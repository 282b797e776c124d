//! The host's allocator: never the application's heap.
//!
//! The application may bring its own allocator, compiled with `-finstrument-functions`: a hook would then allocate
//! inside `malloc`, with its lock held. An event may also come from a signal handler that interrupted `malloc`. So the host
//! allocates from its own pages, and the application's heap is left unchanged, too.
//!
//! Blocks up to 32 KiB come from free lists by powers of two, cut from 256 KiB pieces that are never given back;
//! larger ones are mapped and unmapped one by one. The blocks are for definitions and symbol tables, so the allocator need not
//! be fast.
//!
//! When no more can be mapped, blocks come from a reserve. New work checks [`is_low`] first, and work that needs much memory
//! checks [`has_room`].

use ampere_signal_safety::Reserve;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK_BYTES_MIN: usize = 16;
const BLOCK_BYTES_MAX: usize = 32 * 1024;
const CLASSES: usize = 12;
const PIECE_BYTES: usize = 256 * 1024;
/// The smallest size of a page on any system.
const PAGE: usize = 4096;

/// An allocator that takes its memory from mapped pages.
pub struct Pages {
    locked: AtomicBool,
    lists: UnsafeCell<Lists>,
}

struct Lists {
    free: [*mut u8; CLASSES],
    piece: *mut u8,
    piece_left: usize,
}

// SAFETY: `lists` is touched only between `lock` and `unlock`.
unsafe impl Sync for Pages {}

impl Pages {
    /// Returns an allocator that has no pages yet.
    pub const fn new() -> Pages {
        Pages { locked: AtomicBool::new(false), lists: UnsafeCell::new(Lists::EMPTY) }
    }

    /// Called in a forked child. Another thread that held the lock does not exist in the child, so the lists start empty. The
    /// blocks in them are lost.
    pub fn forked(&self) {
        if self.locked.load(Ordering::Relaxed) {
            // SAFETY: a child has one thread. If a signal handler forked while it interrupted this thread's use of the lists,
            // the interrupted code still returns its block later.
            unsafe { *self.lists.get() = Lists::EMPTY };
            self.unlock();
        }
    }

    fn lock(&self) {
        // Acquire pairs with the Release in `unlock`.
        while self.locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
    }

    fn unlock(&self) {
        // Release pairs with the Acquire in `lock`.
        self.locked.store(false, Ordering::Release);
    }
}

/// The allocator of this library.
#[global_allocator]
pub static MEMORY: Pages = Pages::new();

static RESERVE: Reserve<{ 1 << 20 }> = Reserve::new();

/// Whether more than half of the reserve is used.
pub fn is_low() -> bool {
    RESERVE.is_low()
}

/// Whether this many bytes can be mapped. They are not committed, even after `mlockall`.
pub fn has_room(bytes: usize) -> bool {
    let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a mapping at an address of the kernel's choice touches nothing that exists, and this one is removed.
    unsafe {
        let probe = libc::mmap(null_mut(), bytes, libc::PROT_NONE, how, -1, 0);
        if probe == libc::MAP_FAILED {
            return false;
        }
        libc::munlock(probe, bytes);
        let may_write = libc::mprotect(probe, bytes, libc::PROT_READ | libc::PROT_WRITE) == 0;
        libc::munmap(probe, bytes);
        may_write
    }
}

/// Returns the index of the free list for this layout, or `None` if the block is mapped separately, as are all blocks whose
/// alignment is larger than a page.
fn class(layout: Layout) -> Option<usize> {
    if layout.align() > PAGE {
        return None;
    }
    let size = layout.size().max(layout.align()).max(BLOCK_BYTES_MIN).next_power_of_two();
    (size <= BLOCK_BYTES_MAX).then(|| (size / BLOCK_BYTES_MIN).trailing_zeros() as usize)
}

/// Maps fresh zeroed pages. Returns null if that fails.
pub fn map(size: usize) -> *mut u8 {
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches nothing that exists.
    let address = unsafe {
        libc::mmap(
            null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED { null_mut() } else { address.cast() }
}

/// Maps fresh zeroed pages that are aligned to this power of two. Returns null if that fails.
fn map_aligned(size: usize, align: usize) -> *mut u8 {
    if align <= PAGE {
        return map(size);
    }
    // SAFETY: a call without pointers.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(PAGE);
    let Some(whole) = size.checked_next_multiple_of(page) else { return null_mut() };
    let Some(mapped) = whole.checked_add(align.saturating_sub(page)) else { return null_mut() };
    let start = map(mapped);
    if start.is_null() {
        return start;
    }
    let skip = start.align_offset(align);
    let block = start.wrapping_add(skip);
    // SAFETY: both ends are parts of the new mapping, which nothing uses yet; an end of no bytes is not unmapped.
    unsafe {
        if skip > 0 {
            unmap(start, skip);
        }
        if mapped > skip + whole {
            unmap(block.wrapping_add(whole), mapped - skip - whole);
        }
    }
    block
}

/// Unmaps pages.
///
/// # Safety
/// `address` and `size` describe what `map` returned, or a part of it, and it is no longer used.
pub unsafe fn unmap(address: *mut u8, size: usize) {
    // SAFETY: the caller gives a mapping of its own.
    unsafe { libc::munmap(address.cast(), size) };
}

// SAFETY: a block is handed out once until it is freed. Its size and its alignment are at least the layout's: small blocks are
// powers of two that `cut` aligns to their size, up to a page; large blocks, and those whose alignment is larger than a page,
// come from `map_aligned`.
unsafe impl GlobalAlloc for Pages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = class(layout) else {
            let block = map_aligned(layout.size(), layout.align());
            let align = layout.align().max(PAGE);
            return if block.is_null() { RESERVE.take(layout.size(), align) } else { block };
        };
        self.lock();
        // SAFETY: between lock and unlock no other thread uses the lists.
        let lists = unsafe { &mut *self.lists.get() };
        let head = lists.free[class];
        let block = if head.is_null() {
            lists.cut(BLOCK_BYTES_MIN << class)
        } else {
            // SAFETY: a block in a free list holds the address of the next one in its first word.
            lists.free[class] = unsafe { head.cast::<*mut u8>().read() };
            head
        };
        self.unlock();
        if block.is_null() {
            RESERVE.take(BLOCK_BYTES_MIN << class, (BLOCK_BYTES_MIN << class).min(PAGE))
        } else {
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if RESERVE.contains(block) {
            return;
        }
        let Some(class) = class(layout) else {
            // SAFETY: the block is a mapping of that size, made in `alloc`.
            return unsafe { unmap(block, layout.size()) };
        };
        self.lock();
        // SAFETY: between lock and unlock no other thread uses the lists.
        let lists = unsafe { &mut *self.lists.get() };
        // SAFETY: the block is at least a word in size, aligned to one, and no longer used.
        unsafe { block.cast::<*mut u8>().write(lists.free[class]) };
        lists.free[class] = block;
        self.unlock();
    }
}

impl Lists {
    const EMPTY: Lists = Lists { free: [null_mut(); CLASSES], piece: null_mut(), piece_left: 0 };

    /// Returns a new block out of the current piece. Blocks are aligned to their size, up to a page.
    fn cut(&mut self, size: usize) -> *mut u8 {
        let skip = self.piece.align_offset(size.min(PAGE));
        if self.piece.is_null() || self.piece_left < skip.saturating_add(size) {
            self.piece = map(PIECE_BYTES);
            if self.piece.is_null() {
                self.piece_left = 0;
                return null_mut();
            }
            self.piece_left = PIECE_BYTES;
            return self.cut(size);
        }
        let block = self.piece.wrapping_add(skip);
        self.piece = block.wrapping_add(size);
        self.piece_left -= skip + size;
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_does_not_wait_for_the_lock_of_another_thread() {
        let pages = Pages::new();
        let layout = Layout::from_size_align(100, 8).unwrap();
        // SAFETY: the size is not zero, and each block has 100 bytes.
        unsafe {
            let before = pages.alloc(layout);
            before.write_bytes(1, 100);
            pages.lock();
            pages.forked();
            let after = pages.alloc(layout);
            after.write_bytes(2, 100);
            assert_eq!((*before, *before.add(99), *after), (1, 1, 2));
            pages.dealloc(before, layout);
            assert_eq!(pages.alloc(layout), before);
            // If the lock is free, the lists are kept.
            pages.dealloc(after, layout);
            pages.forked();
            assert_eq!(pages.alloc(layout), after);
        }
    }

    #[test]
    fn blocks_are_aligned_and_do_not_overlap() {
        let pages = Pages::new();
        let mut held = Vec::new();
        for round in 0..2000usize {
            let size = 1 + round * 37 % 70_000;
            let align = 1 << (round % 18);
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: the size is not zero.
            let block = unsafe { pages.alloc(layout) };
            assert!(!block.is_null() && (block as usize).is_multiple_of(align));
            // SAFETY: the block has `size` bytes.
            unsafe { block.write_bytes(round as u8, size) };
            held.push((block, layout, round as u8));
            if round % 3 == 0 {
                let (block, layout, byte) = held.swap_remove(round / 3 % held.len());
                // SAFETY: the block has not been freed, so its bytes have not changed.
                unsafe {
                    assert_eq!((*block, *block.add(layout.size() - 1)), (byte, byte));
                    pages.dealloc(block, layout);
                }
            }
        }
        for (block, layout, byte) in held {
            // SAFETY: as above.
            unsafe {
                assert_eq!((*block, *block.add(layout.size() - 1)), (byte, byte));
                pages.dealloc(block, layout);
            }
        }
    }
}
