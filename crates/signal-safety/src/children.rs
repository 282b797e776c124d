//! SIGCHLD. Where it is ignored, the kernel reaps children and discards their exit status. That setting is inherited from the
//! process that started us; we must not have it, and a command that we start must.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

static WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Restores the default for SIGCHLD: from now on children of this process can be waited for.
pub fn make_children_waitable() {
    // SAFETY: the default is valid for this signal; what was there is only compared.
    let before = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    WAS_IGNORED.fetch_or(before == libc::SIG_IGN, Ordering::Relaxed);
}

/// Gives the command the setting of SIGCHLD that this process was started with.
pub fn restore_sigchld_in(command: &mut Command) {
    if WAS_IGNORED.load(Ordering::Relaxed) {
        let ignore = || {
            // SAFETY: a valid signal and disposition.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
            Ok(())
        };
        // SAFETY: the closure is async-signal-safe.
        unsafe { command.pre_exec(ignore) };
    }
}
