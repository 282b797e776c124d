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
    /// The value of [`Thread::closed_early`] when the frame was opened.
    closed_before: u32,
}

/// The number of ranges that were closed early for which the program's own end is awaited; older ones are forgotten.
const AWAITED_MAX: usize = 16;

/// The part of a thread's state that the event path needs. Its own thread uses it while the slot is busy, and the end of
/// measurement afterwards.
pub struct Thread {
    frames: *mut Frame,
    depth: usize,
    /// The number of open frames beyond FRAMES_MAX.
    unrecorded_depth: usize,
    /// The number of ranges so far that were closed together with a frame around them, before the program ended them.
    closed_early: u32,
    /// The keys of the last of these, each at its number modulo [`AWAITED_MAX`]; 0 once the program has ended the range, too.
    awaited: [usize; AWAITED_MAX],
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
                closed_early: 0,
                awaited: [0; AWAITED_MAX],
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
        let frame = Frame { key, region, closed_before: self.closed_early };
        // SAFETY: `frames` has room for FRAMES_MAX frames, and `depth` is below that.
        unsafe { self.frames.add(self.depth).write(frame) };
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

    /// Closes the innermost range with this key. Does nothing if the range that was begun last was closed early.
    pub fn leave_range(&mut self, key: usize) {
        let first = self.closed_early.saturating_sub(AWAITED_MAX as u32);
        let early = (first..self.closed_early).rev().find(|number| *self.awaited(*number) == key);
        if let Some(number) = early
            && self.unrecorded_depth == 0
            && self.innermost(|frame| frame.key == key && frame.closed_before > number).is_none()
        {
            *self.awaited(number) = 0;
            return;
        }
        let before = self.closed_early;
        self.leave(key);
        if self.closed_early != before {
            // `leave` has closed this range after those inside it; its end is not awaited.
            self.closed_early -= 1;
            *self.awaited(self.closed_early) = 0;
        }
    }

    /// Returns the key of a range that was closed early, by its number.
    fn awaited(&mut self, number: u32) -> &mut usize {
        &mut self.awaited[number as usize % AWAITED_MAX]
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
                *self.awaited(self.closed_early) = frame.key;
                self.closed_early = self.closed_early.wrapping_add(1);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definitions::INVALID;
    use std::ptr::null;

    const FUNCTION: usize = 0x40_0000;

    /// A positive key opens a frame, a negative one ends a range or, if it is -FUNCTION, the function. Returns the keys of the
    /// frames that are still open.
    fn open_after(steps: &[isize]) -> Vec<usize> {
        let mut thread = Thread::new(null()).expect("memory");
        for step in steps {
            match step.unsigned_abs() {
                key if *step > 0 => thread.enter(key, INVALID),
                FUNCTION => thread.leave(FUNCTION),
                key => thread.leave_range(key),
            }
        }
        // SAFETY: frames below `depth` have been written.
        (0..thread.depth).map(|level| unsafe { (*thread.frames.add(level)).key }).collect()
    }

    /// Two domains of ranges, and a function.
    #[test]
    fn each_end_belongs_to_the_last_range_of_its_domain_that_has_not_ended() {
        const A: isize = MPI_KEYS_END as isize;
        const B: isize = A + 1;
        const F: isize = FUNCTION as isize;
        let key = |domain: isize| domain.unsigned_abs();
        assert_eq!(open_after(&[A, B, -A, B, -B]), [0; 0], "the later range of B");
        assert_eq!(open_after(&[A, B, -A, B, -B, A, -B]), [key(A)], "the earlier one");
        assert_eq!(open_after(&[A, F, B, -F, -A]), [0; 0], "a range of another domain");
        assert_eq!(open_after(&[A, F, A, -F, F, -A]), [key(A), FUNCTION], "in another function");
        assert_eq!(open_after(&[A, F, F, A, -F, -F, B, A, -A, -A]), [key(A), key(B)], "in an outer function");
        let often = [F, A, -F].repeat(20);
        assert_eq!(open_after(&[&often[..], &[A, -A]].concat()), [0; 0], "ends that never come");
        assert_eq!(
            open_after(&[&often[..], &[A], &[-A; 17], &[B]].concat()),
            [key(B)],
            "ends that come late"
        );
    }
}
