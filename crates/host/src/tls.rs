//! One small record per thread, reached in two instructions.
//!
//! The library is preloaded, so its thread-local storage lies at a fixed distance from the thread pointer (the
//! "initial executable" model). Rust gives a shared library the general model, a function call per access; the event
//! path cannot afford that, so on x86-64 the record is a symbol of our own.

use crate::thread::Thread;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// What a thread has from the start: all zero.
#[repr(C)]
pub struct Slot {
    /// [`FREE`], or this thread is inside the host or the plugin, and this is where on its stack: events that arrive
    /// now (a signal handler, an instrumented allocator) are not recorded. It is also what the end of measurement waits
    /// for.
    pub busy: AtomicUsize,
    /// Calls that were not recorded, as far as the plugin has not been told.
    pub missed: AtomicU64,
    /// The thread's state once it has had an event.
    pub thread: Cell<*mut Thread>,
    /// This thread has been taken down; what runs in later destructors is not recorded.
    pub finished: AtomicBool,
    /// It has been about to be taken down, and destructors of the program's go before.
    pub put_off: AtomicBool,
}

/// Nobody is inside.
pub const FREE: usize = 0;
/// Inside, on a stack of our own: whatever calls now is our own doing and no call of the program's, but for handlers while
/// measurement ends, when signals are not held back.
pub const APART: usize = usize::MAX;

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .tbss.ampere_host_slot, \"awT\", @nobits",
    ".p2align 4",
    ".globl ampere_host_slot",
    ".hidden ampere_host_slot",
    ".type ampere_host_slot, @object",
    ".size ampere_host_slot, 32",
    "ampere_host_slot:",
    ".zero 32",
    ".popsection",
);

const _: () = assert!(size_of::<Slot>() == 32);

/// The calling thread's record. Valid as long as the thread lives.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn slot() -> *const Slot {
    let address: *const Slot;
    // SAFETY: reads the offset of our own thread-local symbol and the thread pointer, which the x86-64 ABI keeps at
    // fs:0. No memory of Rust's is touched, and both values are the same throughout a thread's life.
    unsafe {
        std::arch::asm!(
            "mov {address}, qword ptr [rip + ampere_host_slot@GOTTPOFF]",
            "add {address}, qword ptr fs:[0]",
            address = out(reg) address,
            options(nostack, pure, readonly),
        );
    }
    address
}

/// The calling thread's record. Valid as long as the thread lives.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn slot() -> *const Slot {
    thread_local! {
        static SLOT: Slot = const {
            Slot {
                busy: AtomicUsize::new(FREE),
                missed: AtomicU64::new(0),
                thread: Cell::new(std::ptr::null_mut()),
                finished: AtomicBool::new(false),
                put_off: AtomicBool::new(false),
            }
        };
    }
    SLOT.with(|slot| &raw const *slot)
}
