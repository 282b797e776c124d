//! A thread's location and its open frames.
//!
//! The host keeps its own stack of open frames. Exits are matched against it, so that the plugin's events always nest, whatever a
//! `longjmp` or an exception has skipped, and so that the open frames of an ending thread can be closed.

use crate::definitions::is_recorded;
use crate::tls::Slot;
use crate::{alloc, clock, measurement, plugin};
use scorep_abi::{AnyHandle, Location};
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// Deeper frames are not recorded but counted. 16 bytes each, committed only when used.
pub const FRAMES_MAX: usize = 1 << 16;

/// Plugins that can attach data to a location. There is one.
pub const PLUGINS_MAX: usize = 1;

/// What a `SCOREP_Location*` points to.
pub struct LocationData {
    /// Sequence number in this process.
    pub id: u32,
    /// "Master thread", "Pthread thread 1", ...
    pub name: CString,
    /// `SCOREP_LocationType`.
    pub location_type: i32,
    /// Activated and not yet deactivated.
    pub active: AtomicBool,
    /// The plugins' data, by plugin id.
    pub data: [AtomicPtr<c_void>; PLUGINS_MAX],
}

/// An open frame.
#[derive(Clone, Copy)]
#[repr(C)]
struct Frame {
    /// A function's address, or what is below any: an MPI function's index, or that of a domain of ranges.
    key: usize,
    /// The region, or what is none for a frame that is not recorded.
    region: AnyHandle,
}

/// What the event path needs of a thread. Used by its own thread while the slot is busy, and by the end of measurement
/// afterwards.
pub struct Thread {
    frames: *mut Frame,
    depth: usize,
    /// Open frames beyond FRAMES_MAX.
    beyond: usize,
    /// Ranges that were closed with a frame around them, before the program ended them.
    ended_ranges: u32,
    /// The location of its events; null until there is one.
    pub location: *mut Location,
    /// The stack address of the recorded outermost MPI call; 0 outside of MPI.
    pub mpi_stack: usize,
    /// Where MPI says what was received, if the program does not want to know.
    pub status: [usize; crate::mpi::STATUS_WORDS],
    /// The slot that points here; valid while the thread lives.
    pub slot: *const Slot,
    /// The kernel's thread id.
    id: libc::pid_t,
}

/// Calls that are not recorded because their frames are too deep.
pub static TOO_DEEP: AtomicU64 = AtomicU64::new(0);
/// Calls that are not recorded because they are the first of their function or thread, in a signal handler.
pub static IN_HANDLER: AtomicU64 = AtomicU64::new(0);

impl Thread {
    /// The calling thread, without frames. `None`: there is no memory.
    pub fn new(slot: *const Slot) -> Option<Box<Thread>> {
        let frames: *mut Frame = alloc::map(FRAMES_MAX * size_of::<Frame>()).cast();
        (!frames.is_null()).then(|| {
            // SAFETY: a system call without arguments.
            let id = unsafe { libc::gettid() };
            let status = [0; crate::mpi::STATUS_WORDS];
            Box::new(Thread {
                frames,
                depth: 0,
                beyond: 0,
                ended_ranges: 0,
                location: null_mut(),
                mpi_stack: 0,
                status,
                slot,
                id,
            })
        })
    }

    /// Whether the thread still runs.
    pub fn is_alive(&self) -> bool {
        // SAFETY: signal 0 only checks.
        let gone = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.id, 0) } != 0;
        !(gone && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH))
    }

    /// Opens a frame now; with `INVALID` or `FILTERED` one that is not recorded.
    #[inline(always)]
    pub fn enter(&mut self, key: usize, region: AnyHandle) {
        if self.depth >= FRAMES_MAX {
            return self.enter_beyond();
        }
        // SAFETY: `frames` has room for FRAMES_MAX, and depth is below it.
        unsafe { self.frames.add(self.depth).write(Frame { key, region }) };
        self.depth += 1;
        if is_recorded(region) {
            plugin::enter(self.location, clock::now(), region);
        }
    }

    #[cold]
    fn enter_beyond(&mut self) {
        self.beyond += 1;
        measurement::MISSED_WITHOUT_LOCATION.fetch_add(1, Ordering::Relaxed);
        TOO_DEEP.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes the frame with this key now.
    #[inline(always)]
    pub fn leave(&mut self, key: usize) {
        if self.depth > 0 && self.beyond == 0 {
            // SAFETY: below depth, frames are written.
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
        // SAFETY: below depth, frames are written.
        let is_top = self.depth > 0 && unsafe { (*self.frames.add(self.depth - 1)).key } == key;
        self.leave(key);
        if !is_top {
            // It has been counted with those above it.
            self.ended_ranges = self.ended_ranges.saturating_sub(1);
        }
    }

    /// An exit of another frame than the innermost.
    #[cold]
    fn leave_enclosing(&mut self, key: usize, time: u64) {
        if self.beyond > 0 {
            self.beyond -= 1;
            return;
        }
        let mut level = self.depth;
        while level > 0 {
            level -= 1;
            // SAFETY: level is below depth.
            if unsafe { (*self.frames.add(level)).key } == key {
                // The frames above were left without an exit: by longjmp, or by an exception.
                return self.close_down_to(level, time);
            }
        }
        // Otherwise it was entered before the measurement began, or while this thread was not recorded.
    }

    /// Closes the frames from the innermost down to and including this level.
    fn close_down_to(&mut self, level: usize, time: u64) {
        while self.depth > level {
            self.depth -= 1;
            // SAFETY: below the old depth.
            let frame = unsafe { *self.frames.add(self.depth) };
            if frame.key < crate::mpi::KEYS_END {
                self.mpi_stack = 0;
            } else if frame.key < crate::ranges::KEYS_END {
                self.ended_ranges += 1;
            }
            if is_recorded(frame.region) {
                plugin::exit(self.location, time, frame.region);
            }
        }
    }

    /// Closes all frames, when the thread ends.
    pub fn close_all(&mut self) {
        self.beyond = 0;
        self.close_down_to(0, clock::now());
    }

    /// Closes the innermost MPI frame and those above it: the call was left by an exception or a longjmp.
    #[cold]
    pub fn close_mpi(&mut self) {
        self.mpi_stack = 0;
        let mut level = self.depth;
        while level > 0 {
            level -= 1;
            // SAFETY: level is below depth.
            if unsafe { (*self.frames.add(level)).key } < crate::mpi::KEYS_END {
                return self.close_down_to(level, clock::now());
            }
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size, and used by this thread only.
        unsafe { alloc::unmap(self.frames.cast(), FRAMES_MAX * size_of::<Frame>()) };
    }
}
