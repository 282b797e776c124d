//! Finds out whether this thread is inside one of the program's signal handlers, or has left a call without returning, and blocks
//! signals.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// A signal handler that is more than this number of frames away is not recognised.
const FRAMES_MAX: usize = 60;
/// A call that is more than this number of frames away counts as one that was not left.
const FRAMES_TO_CALL_MAX: usize = 500;

unsafe extern "C" {
    fn _Unwind_Backtrace(step: extern "C" fn(*mut c_void, *mut c_void) -> c_int, state: *mut c_void)
    -> c_int;
    fn _Unwind_GetIPInfo(context: *mut c_void, before: *mut c_int) -> usize;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
    fn _Unwind_GetRegionStart(context: *mut c_void) -> usize;
}

const NO_REASON: c_int = 0;
const NORMAL_STOP: c_int = 4;

struct Walk {
    frames: usize,
    signal: bool,
}

extern "C" fn step(context: *mut c_void, state: *mut c_void) -> c_int {
    // SAFETY: `state` is the `Walk` below, which is alive and used by this walk only.
    let walk = unsafe { &mut *state.cast::<Walk>() };
    let mut before = 0;
    // SAFETY: the unwinder gave the context for the length of this call.
    unsafe { _Unwind_GetIPInfo(context, &mut before) };
    walk.frames += 1;
    // `before` is set if the frame was interrupted: its address is that of its next instruction. The address of a frame that made
    // a call follows the call.
    walk.signal |= before != 0;
    if walk.signal || walk.frames == FRAMES_MAX { NORMAL_STOP } else { NO_REASON }
}

/// Whether an interrupted frame is on the stack. This is for rare paths only: it takes microseconds, and kilobytes of stack. This
/// must not be called on an alternate stack.
pub fn inside_handler() -> bool {
    let mut walk = Walk { frames: 0, signal: false };
    // SAFETY: the unwinder calls `step` with the state given here, and returns while `walk` exists.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk.signal
}

struct WalkToCall {
    frames: usize,
    /// The stack addresses from which the later and the earlier call were made.
    later: usize,
    earlier: usize,
    /// The function of the previous frame in the walk.
    callee: usize,
    /// The function of the later call's frame, once it is reached. The first frames may be on a stack of our own, whose addresses
    /// cannot be compared.
    called: Option<usize>,
    was_left: bool,
}

extern "C" fn step_to_call(context: *mut c_void, state: *mut c_void) -> c_int {
    // SAFETY: as in `step`, with the `WalkToCall` below.
    let walk = unsafe { &mut *state.cast::<WalkToCall>() };
    // SAFETY: as in `step`. The address is that from which this frame has called the frame before.
    let (address, function) = unsafe { (_Unwind_GetCFA(context), _Unwind_GetRegionStart(context)) };
    walk.frames += 1;
    let callee = std::mem::replace(&mut walk.callee, function);
    let has_passed = match walk.called {
        None if address == walk.later => {
            walk.called = Some(callee);
            false
        }
        None => false,
        Some(called) => {
            // The earlier call's caller may have called another function from the same address.
            walk.was_left = address > walk.earlier || address == walk.earlier && callee != called;
            address >= walk.earlier
        }
    };
    if has_passed || walk.frames == FRAMES_TO_CALL_MAX { NORMAL_STOP } else { NO_REASON }
}

/// Whether a call was left without returning, by an exception or a longjmp: a later call of the same function is deeper in the
/// stack, but not inside of it. Both are given by the stack addresses from which they were made. If there are frames without
/// unwind information in between, the call counts as one that was not left. For rare paths only, like [`inside_handler`].
pub fn was_left(earlier: usize, later: usize) -> bool {
    let mut walk = WalkToCall { frames: 0, later, earlier, callee: 0, called: None, was_left: false };
    // SAFETY: as in `inside_handler`.
    unsafe { _Unwind_Backtrace(step_to_call, (&raw mut walk).cast()) };
    walk.was_left
}

/// Signals that a thread's own instruction causes. If they were blocked, they would end the process.
const SYNCHRONOUS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// Runs `body` with signals blocked: a handler could leave it by `longjmp` with locks held, or interrupt the allocation of
/// a file again and again. Signals that are sent in the meantime are delivered afterwards.
pub fn blocked<T>(body: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: sigfillset makes the set valid, sigdelset removes signals that exist, and `before` is filled on success.
    let failed = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        SYNCHRONOUS.iter().for_each(|&signal| _ = libc::sigdelset(all.as_mut_ptr(), signal));
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr())
    };
    let result = body();
    if failed == 0 {
        // SAFETY: this is the mask that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut()) };
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_blocked_signal_is_delivered_afterwards() {
        static HANDLED: AtomicU32 = AtomicU32::new(0);
        extern "C" fn handle(_: c_int) {
            HANDLED.fetch_add(1, Ordering::Relaxed);
        }
        let handler: extern "C" fn(c_int) = handle;
        // SAFETY: the handler is async-signal-safe, and the signal is for this thread.
        let raise = || unsafe {
            libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
            libc::raise(libc::SIGUSR1);
            HANDLED.load(Ordering::Relaxed)
        };
        assert_eq!(blocked(raise), 0);
        assert_eq!(HANDLED.load(Ordering::Relaxed), 1);
    }
}
