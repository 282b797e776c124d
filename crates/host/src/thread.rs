//! A thread's record and its open frames.
//!
//! The host has its own stack of open frames. Exits are matched against it, so that the plugin's events nest even if a `longjmp`
//! or an exception has skipped exits, and so that the open frames of an ending thread can be closed.

use crate::definitions::{REGIONS_MAX, WHILE_OFF, is_recorded};
use crate::mpi::pcontrol;
use crate::mpi::state::CallState;
use crate::{alloc, clock, plugin};
use scorep_abi::{AnyHandle, Location};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The largest number of open frames. Deeper frames are not recorded but counted. A frame has 16 bytes, committed only when used.
pub const FRAMES_MAX: usize = 1 << 16;

/// Keys of frames below this are MPI functions.
pub const MPI_KEYS_END: usize = 1024;
/// The largest number of domains, in each of which ranges nest.
pub const DOMAINS_MAX: usize = 1024;
/// The key of the regions that are ended by their names.
pub const NAMED_KEY: usize = MPI_KEYS_END + DOMAINS_MAX;
/// Keys of frames from [`MPI_KEYS_END`] up to this are domains of ranges, and [`NAMED_KEY`].
pub const RANGE_KEYS_END: usize = NAMED_KEY + 1;
/// Keys of frames from [`RANGE_KEYS_END`] up to this are calls of a GPU's runtime, by their regions.
pub const GPU_KEYS_END: usize = RANGE_KEYS_END + REGIONS_MAX;
// Linkers put no code below this address: no key is also the address of a function.
const _: () = assert!(GPU_KEYS_END < 0x40_0000);

/// The record of a thread; all zero at first.
#[repr(C)]
pub struct Slot {
    /// [`FREE`], or the stack address at which this thread entered the host or the plugin: events that arrive in the meantime
    /// (from a signal handler, an instrumented allocator) are not recorded. The end of measurement waits until the slot is
    /// free.
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
/// The thread runs in the host or the plugin, on a stack that is ours. Calls that arrive in the meantime are made by our code
/// and not by the program, except in signal handlers while the measurement is ending, when signals are not blocked.
pub const OWN_STACK: usize = usize::MAX;

const _: () = assert!(size_of::<Slot>() == 32);

#[derive(Clone, Copy)]
#[repr(C)]
struct Frame {
    /// A function's address, or a number below [`GPU_KEYS_END`] for anything else.
    key: usize,
    /// The region. A frame that is not recorded has `INVALID` or `FILTERED`.
    region: AnyHandle,
}

/// The part of a thread's state that the event path needs. Its own thread uses it while the slot is busy, and the end of
/// measurement afterwards.
pub struct Thread {
    frames: *mut Frame,
    depth: usize,
    /// The number of open frames beyond FRAMES_MAX.
    unrecorded_depth: usize,
    /// The number of ranges that were closed together with a frame around them, before the program ended them.
    ended_ranges: u32,
    /// The location of the thread's events; null until there is one.
    pub location: *mut Location,
    /// The stack address of the recorded outermost MPI call; 0 outside of MPI.
    pub mpi_stack: usize,
    /// The state that is kept for that call.
    pub call: CallState,
    /// The slot that points here, valid while the thread lives.
    pub slot: *const Slot,
    /// The thread's id in the kernel.
    id: libc::pid_t,
}

/// The number of calls that no location has reported, because their threads have no location or their frames are too deep.
pub static MISSED_WITHOUT_LOCATION: AtomicU64 = AtomicU64::new(0);

impl Thread {
    /// Returns the calling thread, without frames. `None` if there is no memory.
    pub fn new(slot: *const Slot) -> Option<Box<Thread>> {
        let frames: *mut Frame = alloc::map(FRAMES_MAX * size_of::<Frame>()).cast();
        (!frames.is_null()).then(|| {
            // SAFETY: a system call without arguments. glibc has no function for it before version 2.30.
            let id = unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t;
            Box::new(Thread {
                frames,
                depth: 0,
                unrecorded_depth: 0,
                ended_ranges: 0,
                location: null_mut(),
                mpi_stack: 0,
                call: CallState::new(),
                slot,
                id,
            })
        })
    }

    /// Whether the thread is still running.
    pub fn is_alive(&self) -> bool {
        // SAFETY: signal 0 only checks.
        let gone = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.id, 0) } != 0;
        !(gone && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH))
    }

    /// Whether this is the process' main thread.
    pub fn is_main(&self) -> bool {
        // SAFETY: a system call without pointers.
        self.id == unsafe { libc::getpid() }
    }

    /// Opens a frame at the present time. With `INVALID` or `FILTERED` it is not recorded.
    #[inline(always)]
    pub fn enter(&mut self, key: usize, region: AnyHandle) {
        if self.depth >= FRAMES_MAX {
            return self.enter_unrecorded();
        }
        let region = if pcontrol::is_off() { region | WHILE_OFF } else { region };
        // SAFETY: `frames` has room for FRAMES_MAX frames, and `depth` is below that.
        unsafe { self.frames.add(self.depth).write(Frame { key, region }) };
        self.depth += 1;
        if is_recorded(region) {
            plugin::enter(self.location, clock::now(), region);
        }
    }

    #[cold]
    fn enter_unrecorded(&mut self) {
        self.unrecorded_depth += 1;
        MISSED_WITHOUT_LOCATION.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes the frame with this key at the present time.
    #[inline(always)]
    pub fn leave(&mut self, key: usize) {
        if self.depth > 0 && self.unrecorded_depth == 0 {
            // SAFETY: frames below `depth` have been written.
            let top = unsafe { *self.frames.add(self.depth - 1) };
            if top.key == key {
                self.depth -= 1;
                if is_recorded(top.region) {
                    plugin::exit(self.location, clock::now(), top.region);
                }
                return;
            }
        }
        self.leave_enclosing(key, clock::now());
    }

    /// Closes the innermost range with this key.
    pub fn leave_range(&mut self, key: usize) {
        if self.ended_ranges > 0 {
            self.ended_ranges -= 1;
            return;
        }
        // SAFETY: frames below `depth` have been written.
        let is_top = self.depth > 0 && unsafe { (*self.frames.add(self.depth - 1)).key } == key;
        self.leave(key);
        if !is_top {
            // `leave` has counted this range among the ended ones, with the ranges inside it.
            self.ended_ranges = self.ended_ranges.saturating_sub(1);
        }
    }

    /// Closes the innermost frame of a region that is ended by its name, and the frames inside it. Does nothing if no such
    /// region is open.
    pub fn leave_named(&mut self, region: AnyHandle) {
        if self.unrecorded_depth > 0 {
            self.unrecorded_depth -= 1;
            return;
        }
        let is_named = |frame: &Frame| frame.key == NAMED_KEY && frame.region & !WHILE_OFF == region;
        if let Some(level) = self.innermost(is_named) {
            self.close_down_to(level, clock::now());
        }
    }

    /// Handles the exit of a frame other than the innermost.
    #[cold]
    fn leave_enclosing(&mut self, key: usize, time: u64) {
        if self.unrecorded_depth > 0 {
            self.unrecorded_depth -= 1;
            return;
        }
        // If there is none, the frame was entered before the measurement started, or while this thread was not recorded.
        if let Some(level) = self.innermost(|frame| frame.key == key) {
            // The frames inside this one were left without an exit, by longjmp or an exception.
            self.close_down_to(level, time);
        }
    }

    /// Returns the level of the innermost open frame for which `is_searched` returns `true`.
    fn innermost(&self, is_searched: impl Fn(&Frame) -> bool) -> Option<usize> {
        // SAFETY: frames below `depth` have been written.
        (0..self.depth).rev().find(|level| is_searched(unsafe { &*self.frames.add(*level) }))
    }

    /// Closes the frames from the innermost down to and including this level.
    fn close_down_to(&mut self, level: usize, time: u64) {
        while self.depth > level {
            self.depth -= 1;
            // SAFETY: this frame is below the old `depth`.
            let frame = unsafe { *self.frames.add(self.depth) };
            if frame.key < MPI_KEYS_END {
                self.mpi_stack = 0;
            } else if frame.key < NAMED_KEY {
                self.ended_ranges += 1;
            }
            if is_recorded(frame.region) {
                plugin::exit(self.location, time, frame.region);
            }
        }
    }

    /// Closes all frames, when the thread ends.
    pub fn close_all(&mut self) {
        self.unrecorded_depth = 0;
        self.close_down_to(0, clock::now());
    }

    /// Closes the innermost MPI frame and the frames inside it, after the call was left by an exception or a longjmp.
    #[cold]
    pub fn close_mpi(&mut self) {
        self.mpi_stack = 0;
        if let Some(level) = self.innermost(|frame| frame.key < MPI_KEYS_END) {
            self.close_down_to(level, clock::now());
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: `new` mapped the frames with this size, and only this thread uses them.
        unsafe { alloc::unmap(self.frames.cast(), FRAMES_MAX * size_of::<Frame>()) };
    }
}
