//! A thread for the regular work of an adapter.

use crate::guarded;
use std::ptr::null_mut;
use std::time::Duration;

/// The time between two calls. It is short, so that joules of kernels are shown within a second.
const PERIOD: Duration = Duration::from_millis(100);

/// Starts a thread with this name that calls a function regularly, until it returns `false`. The thread handles no signal of the
/// program. If it cannot be started, the function is never called.
pub fn regularly(name: &str, body: fn() -> bool) {
    let run = move || {
        while guarded(false, body) {
            std::thread::sleep(PERIOD);
        }
    };
    // SAFETY: `all` and `before` are places for sets of signals; the mask of this thread is restored.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let _ = std::thread::Builder::new().name(name.to_owned()).stack_size(256 * 1024).spawn(run);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
    }
}
