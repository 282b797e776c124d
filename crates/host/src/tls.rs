//! One small record per thread, reached in two instructions.
//!
//! The library is preloaded, so its thread-local storage lies at a fixed distance from the thread pointer (the
//! "initial executable" model). Rust gives a shared library the general model, a function call per access; the event
//! path cannot afford that, so on x86-64 the record is a symbol of our own.

use crate::thread::Thread;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// The state of a thread; all zero at first.
#[repr(C)]
pub struct Slot {
    /// [`FREE`], or the stack address of this thread inside the host or the plugin: events that arrive now (from a signal
    /// handler, an instrumented allocator) are not recorded. The end of measurement waits for it to be free.
    pub busy: AtomicUsize,
    /// Calls that were not recorded and have not been reported to the plugin.
    pub missed: AtomicU64,
    /// The thread's frames and location, once it has had an event.
    pub thread: Cell<*mut Thread>,
    /// This thread has ended for us: calls in later destructors are not recorded.
    pub finished: AtomicBool,
    /// Its end has been postponed once, so that the program's own destructors run before.
    pub is_postponed: AtomicBool,
}

/// The thread is outside of the host and the plugin.
pub const FREE: usize = 0;
/// Inside, on a stack of our own: calls that arrive now are caused by ourselves and not calls of the program (except in handlers
/// while measurement ends, when signals are not blocked).
pub const OWN_STACK: usize = usize::MAX;

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
                is_postponed: AtomicBool::new(false),
            }
        };
    }
    SLOT.with(|slot| &raw const *slot)
}
