//! A thread's location and its open frames.
//!
//! The host has its own stack of open frames. Exits are matched against it, so that the plugin's events always nest, whatever
//! exits a `longjmp` or an exception has skipped, and so that the open frames of an ending thread can be closed.

use crate::definitions::is_recorded;
use crate::tls::Slot;
use crate::{alloc, clock, measurement, plugin};
use scorep_abi::{AnyHandle, Location};
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// The largest number of open frames. Deeper frames are not recorded but counted. A frame has 16 bytes, committed only when used.
pub const FRAMES_MAX: usize = 1 << 16;

/// The number of plugins that can attach data to a location: there is one.
pub const PLUGINS_MAX: usize = 1;

/// The host's data of a location. A `SCOREP_Location*` points to it.
pub struct LocationData {
    /// The sequence number in this process.
    pub id: u32,
    /// The name: "Master thread", "Pthread thread 1" and so on.
    pub name: CString,
    /// A value of Score-P's enum `SCOREP_LocationType`.
    pub location_type: i32,
    /// Whether the location is activated and not yet deactivated.
    pub active: AtomicBool,
    /// The data that plugins have attached, by plugin id.
    pub data: [AtomicPtr<c_void>; PLUGINS_MAX],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Frame {
    /// A function's address, or a number below all addresses: the index of an MPI function or of a domain of ranges.
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
    /// The MPI_Status for calls in which the program passes none.
    pub status: [usize; crate::mpi::STATUS_WORDS],
    /// The slot that points here, valid while the thread lives.
    pub slot: *const Slot,
    /// The thread's id in the kernel.
    id: libc::pid_t,
}

/// The number of calls that are not recorded because their frames are too deep.
pub static TOO_DEEP: AtomicU64 = AtomicU64::new(0);
/// The number of calls that are not recorded because the first call of their function or thread is in a signal handler.
pub static IN_HANDLER: AtomicU64 = AtomicU64::new(0);

impl Thread {
    /// The calling thread, without frames. `None` if there is no memory.
    pub fn new(slot: *const Slot) -> Option<Box<Thread>> {
        let frames: *mut Frame = alloc::map(FRAMES_MAX * size_of::<Frame>()).cast();
        (!frames.is_null()).then(|| {
            // SAFETY: a system call without arguments.
            let id = unsafe { libc::gettid() };
            let status = [0; crate::mpi::STATUS_WORDS];
            Box::new(Thread {
                frames,
                depth: 0,
                unrecorded_depth: 0,
                ended_ranges: 0,
                location: null_mut(),
                mpi_stack: 0,
                status,
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

    /// Opens a frame at the present time. With `INVALID` or `FILTERED` it is not recorded.
    #[inline(always)]
    pub fn enter(&mut self, key: usize, region: AnyHandle) {
        if self.depth >= FRAMES_MAX {
            return self.enter_unrecorded();
        }
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
        measurement::MISSED_WITHOUT_LOCATION.fetch_add(1, Ordering::Relaxed);
        TOO_DEEP.fetch_add(1, Ordering::Relaxed);
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

    /// Handles the exit of another frame than the innermost.
    #[cold]
    fn leave_enclosing(&mut self, key: usize, time: u64) {
        if self.unrecorded_depth > 0 {
            self.unrecorded_depth -= 1;
            return;
        }
        let mut level = self.depth;
        while level > 0 {
            level -= 1;
            // SAFETY: `level` is below `depth`.
            if unsafe { (*self.frames.add(level)).key } == key {
                // The frames above were left without an exit, by longjmp or an exception.
                return self.close_down_to(level, time);
            }
        }
        // Otherwise the frame was entered before the measurement started, or while this thread was not recorded.
    }

    /// Closes the frames from the innermost down to and including this level.
    fn close_down_to(&mut self, level: usize, time: u64) {
        while self.depth > level {
            self.depth -= 1;
            // SAFETY: this frame is below the old `depth`.
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
        self.unrecorded_depth = 0;
        self.close_down_to(0, clock::now());
    }

    /// Closes the innermost MPI frame and the frames above it, after the call was left by an exception or a longjmp.
    #[cold]
    pub fn close_mpi(&mut self) {
        self.mpi_stack = 0;
        let mut level = self.depth;
        while level > 0 {
            level -= 1;
            // SAFETY: `level` is below `depth`.
            if unsafe { (*self.frames.add(level)).key } < crate::mpi::KEYS_END {
                return self.close_down_to(level, clock::now());
            }
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: `new` mapped the frames with this size, and only this thread uses them.
        unsafe { alloc::unmap(self.frames.cast(), FRAMES_MAX * size_of::<Frame>()) };
    }
}
