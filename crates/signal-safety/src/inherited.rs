//! Drops inherited state that our own process must not keep from the program that started it.
//!
//! Descriptors: a pipe ends, a port is free and a file is unlocked only when the last process has closed them, and our collector
//! outlives the program. Signals: a blocked one would not reach us, and with SIGCHLD ignored no child can be waited for.

use crate::write_signals::set_of;
use libc::{c_int, c_uint, rlimit};

/// The first descriptor after standard input, output and error.
const FIRST: c_uint = 3;
/// The limit on kernels before 5.9, where descriptors are closed one at a time.
const DESCRIPTORS_MAX: libc::rlim_t = 1 << 20;

/// Closes every descriptor from 3 on, unblocks all signals and restores the default for SIGCHLD. This must be called first.
///
/// # Safety
/// No other thread runs, and no descriptor from 3 on is owned by anything in this process.
pub unsafe fn close_inherited_fds_and_reset_signals() {
    // SAFETY: the caller guarantees the conditions above.
    unsafe { close_all() };
    // SAFETY: an empty set and the default are valid; this is the only thread.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &set_of(&[]), std::ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
}

/// # Safety
/// As for [`close_inherited_fds_and_reset_signals`].
unsafe fn close_all() {
    // Older C libraries lack the function close_range.
    // SAFETY: the system call takes numbers only.
    if unsafe { libc::syscall(libc::SYS_close_range, FIRST, c_uint::MAX, 0) } == 0 {
        return;
    }
    let mut limit = rlimit { rlim_cur: DESCRIPTORS_MAX, rlim_max: DESCRIPTORS_MAX };
    // SAFETY: the limit is written to a local; closing a descriptor that is not open only fails.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        (FIRST as c_int..limit.rlim_cur.min(DESCRIPTORS_MAX) as c_int).for_each(|fd| _ = libc::close(fd));
    }
}
