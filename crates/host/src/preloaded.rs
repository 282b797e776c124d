//! The interface from the preloaded library to the host: a slot for each thread, and the function that treats the objects that
//! the program has opened. To treat an object is to write wrappers into its tables of functions.
//!
//! A thread's slot is reached in two instructions. It is in the thread-local storage of the preloaded library
//! (`crates/preload`), at a fixed distance from the thread pointer. The host is opened later: thread-local storage of its own
//! would cost a function call per access, which the event path cannot afford, or use up the small reserve of static storage
//! that the loader keeps for libraries that are opened later.

use crate::thread::Slot;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicIsize, Ordering};

/// The data that the preloaded library passes to the host.
#[repr(C)]
pub struct Offer {
    /// The distance of a thread's slot from the thread pointer.
    slot_offset: isize,
    /// Treats the objects that the program has opened since the last call.
    treat_new_objects: extern "C" fn(),
}

static TREAT_NEW_OBJECTS: OnceLock<extern "C" fn()> = OnceLock::new();

/// The distance of a thread's slot from the thread pointer. It is set before anything is recorded.
static OFFSET: AtomicIsize = AtomicIsize::new(0);

/// Stores the data from the preloaded library. This is called once.
pub fn take(offer: &Offer) {
    OFFSET.store(offer.slot_offset, Ordering::Relaxed);
    let _ = TREAT_NEW_OBJECTS.set(offer.treat_new_objects);
}

/// Whether the preloaded library has offered a slot in the memory of each thread.
pub fn is_taken() -> bool {
    OFFSET.load(Ordering::Relaxed) != 0
}

/// Treats the objects that the program has opened since the last call. Takes the loader's lock for a moment.
pub fn treat_new_objects() {
    if let Some(treat) = TREAT_NEW_OBJECTS.get() {
        treat();
    }
}

/// Returns the calling thread's slot. Valid as long as the thread lives.
#[cfg(all(target_arch = "x86_64", not(test)))]
#[inline(always)]
pub fn slot() -> *const Slot {
    let address: *const Slot;
    // SAFETY: reads the slot's distance and the thread pointer, which the x86-64 ABI keeps at fs:0. Both values are the same
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

/// Returns the calling thread's slot. Valid as long as the thread lives.
#[cfg(all(target_arch = "aarch64", not(test)))]
#[inline(always)]
pub fn slot() -> *const Slot {
    let thread: *const u8;
    // SAFETY: reads the thread pointer, which is the same throughout a thread's life.
    unsafe {
        std::arch::asm!(
            "mrs {}, tpidr_el0",
            out(reg) thread,
            options(nostack, pure, nomem, preserves_flags),
        );
    }
    thread.wrapping_offset(OFFSET.load(Ordering::Relaxed)).cast()
}

/// Returns the calling thread's slot. Valid as long as the thread lives.
#[cfg(any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[inline(always)]
pub fn slot() -> *const Slot {
    use crate::thread::FREE;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
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
