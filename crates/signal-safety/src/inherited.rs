//! What a process of ours has from the program that started it, and must not have.
//!
//! Descriptors first of all: a pipe is at its end, a port is free and a file is unlocked only when the last process that has it
//! open has closed it, and our collector outlives whoever started it. And ways to take signals: one that is blocked would not
//! reach us, and who ignores SIGCHLD cannot wait for his children.

use crate::writing::set_of;
use libc::{c_int, c_uint, rlimit};

/// The first that is not standard input, output or error.
const FIRST: c_uint = 3;
/// Kernels before 5.9 close one at a time.
const MOST: libc::rlim_t = 1 << 20;

/// Lets go of all of it. To be called before this process opens anything.
///
/// # Safety
/// No other thread runs, and nobody uses a descriptor from 3 on that was opened before.
pub unsafe fn let_go() {
    // SAFETY: by this function's contract.
    unsafe { close_all() };
    // SAFETY: an empty set and the default are valid; this is the only thread.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &set_of(&[]), std::ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
}

/// # Safety
/// As of [`let_go`].
unsafe fn close_all() {
    // SAFETY: numbers only. Not the C library's function of that name: older ones have none.
    if unsafe { libc::syscall(libc::SYS_close_range, FIRST, c_uint::MAX, 0) } == 0 {
        return;
    }
    let mut limit = rlimit { rlim_cur: MOST, rlim_max: MOST };
    // SAFETY: a variable for the limit; closing what is not open fails and does nothing else.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        (FIRST as c_int..limit.rlim_cur.min(MOST) as c_int).for_each(|fd| _ = libc::close(fd));
    }
}
