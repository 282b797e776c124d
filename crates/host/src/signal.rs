//! Whether this thread is inside a signal handler.

use std::ffi::{c_int, c_void};

/// A handler deeper in calls than this, at the first use of a function, is not noticed.
const FRAMES_MAX: usize = 40;

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

/// Walks up the stack until a frame that was interrupted. For rare paths only: microseconds.
pub fn inside_handler() -> bool {
    let mut walk = Walk { frames: 0, signal: false };
    // SAFETY: the unwinder calls `step` with the state given here and returns before `walk` goes.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk.signal
}
