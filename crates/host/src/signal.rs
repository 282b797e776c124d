//! Signal handlers of the program's: whether this thread is inside one, and keeping them out.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// A handler deeper in calls than this, at the first use of a function, is not noticed.
const FRAMES_MAX: usize = 60;

unsafe extern "C" {
    fn _Unwind_Backtrace(step: extern "C" fn(*mut c_void, *mut c_void) -> c_int, state: *mut c_void)
    -> c_int;
    fn _Unwind_GetIPInfo(context: *mut c_void, before: *mut c_int) -> usize;
}

struct Walk {
    frames: usize,
    signal: bool,
}

extern "C" fn step(context: *mut c_void, state: *mut c_void) -> c_int {
    const NO_REASON: c_int = 0;
    const NORMAL_STOP: c_int = 4;
    // SAFETY: `state` is the `Walk` below, alive and not touched by anybody else during the walk.
    let walk = unsafe { &mut *state.cast::<Walk>() };
    let mut before = 0;
    // SAFETY: the unwinder gave the context for the length of this call.
    unsafe { _Unwind_GetIPInfo(context, &mut before) };
    walk.frames += 1;
    // A frame whose address is "before" its instruction did not make a call: it was interrupted.
    walk.signal |= before != 0;
    if walk.signal || walk.frames == FRAMES_MAX { NORMAL_STOP } else { NO_REASON }
}

/// Walks up the stack until a frame that was interrupted. For rare paths only: microseconds, and kilobytes of stack.
/// Not to be asked on an alternate stack.
pub fn inside_handler() -> bool {
    let mut walk = Walk { frames: 0, signal: false };
    // SAFETY: the unwinder calls `step` with the state given here and returns before `walk` goes.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk.signal
}

/// What the kernel sends for what a thread itself just did. Blocked, it would end the process.
const OWN_DOING: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// Runs `body` without being interrupted: a handler could leave it by a `longjmp`, with locks held, or interrupt what
/// makes a file and has to begin again. What is sent meanwhile comes afterwards.
pub fn held<T>(body: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: sigfillset makes the set valid, sigdelset takes signals out that exist, and `before` is filled on
    // success.
    let failed = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        OWN_DOING.iter().for_each(|&signal| _ = libc::sigdelset(all.as_mut_ptr(), signal));
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr())
    };
    let result = body();
    if failed == 0 {
        // SAFETY: the mask that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut()) };
    }
    result
}
