//! A small record for each thread, which is reached in two instructions.
//!
//! The record is in the thread-local storage of the preloaded library (`crates/preload`), which lies at a fixed distance from the
//! thread pointer. The host is opened later: storage of its own would cost a function call per access, which the event path
//! cannot afford, or take from the little room that the loader keeps for other libraries.

use crate::thread::Thread;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};

/// The record of a thread; all zero at first.
#[repr(C)]
pub struct Slot {
    /// [`FREE`], or the stack address at which this thread entered the host or the plugin: events that arrive meanwhile (from a
    /// signal handler, an instrumented allocator) are not recorded. The end of measurement waits for it to be free.
    pub busy: AtomicUsize,
    /// The number of calls that were not recorded and have not been reported to the plugin.
    pub missed: AtomicU64,
    /// The thread's frames and location, once it has had an event.
    pub thread: Cell<*mut Thread>,
    /// Whether the thread is not recorded any more: it is ending, or got no location.
    pub finished: AtomicBool,
    /// Whether the end of the thread has been postponed once, so that the program's own destructors run before.
    pub is_postponed: AtomicBool,
}

/// The thread is outside of the host and the plugin.
pub const FREE: usize = 0;
/// The thread is inside, on a stack of our own: calls that arrive are our own and not the program's (except in handlers while the
/// measurement is ending, when signals are not blocked).
pub const OWN_STACK: usize = usize::MAX;

/// The distance of the record from the thread pointer. It is set before anything is recorded.
static OFFSET: AtomicIsize = AtomicIsize::new(0);

/// Sets the distance, which the preloaded library gives. Called once.
pub fn set_offset(offset: isize) {
    OFFSET.store(offset, Ordering::Relaxed);
}

/// Whether the distance is set, and so threads have records.
pub fn has_offset() -> bool {
    OFFSET.load(Ordering::Relaxed) != 0
}

const _: () = assert!(size_of::<Slot>() == 32);

/// The calling thread's record. Valid as long as the thread lives.
#[cfg(all(target_arch = "x86_64", not(test)))]
#[inline(always)]
pub fn slot() -> *const Slot {
    let address: *const Slot;
    // SAFETY: reads the record's distance and the thread pointer, which the x86-64 ABI keeps at fs:0. Both values are the same
    // throughout a thread's life.
    unsafe {
        std::arch::asm!(
            "mov {address}, qword ptr [rip + {offset}]",
            "add {address}, qword ptr fs:[0]",
            address = out(reg) address,
            offset = sym OFFSET,
            options(nostack, pure, readonly),
        );
    }
    address
}

/// The calling thread's record. Valid as long as the thread lives.
#[cfg(not(all(target_arch = "x86_64", not(test))))]
#[inline(always)]
pub fn slot() -> *const Slot {
    thread_local! {
        static SLOT: Slot = const {
            Slot {
                busy: AtomicUsize::new(FREE),
                missed: AtomicU64::new(0),
                thread: Cell::new(std::ptr::null_mut()),
                finished: AtomicBool::new(false),
                is_postponed: AtomicBool::new(false),
            }
        };
    }
    SLOT.with(|slot| &raw const *slot)
}
