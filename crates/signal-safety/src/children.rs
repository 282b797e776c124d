//! Waiting for children. Who ignores SIGCHLD has none to wait for: the kernel reaps them, and with them goes their exit
//! status. It is inherited from whoever started us, and a command that we start is to inherit it, too.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

static WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// From now on children of this process can be waited for.
pub fn keep_children() {
    // SAFETY: the default is valid for this signal; what was there is only compared.
    let before = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    WAS_IGNORED.fetch_or(before == libc::SIG_IGN, Ordering::Relaxed);
}

/// The command takes SIGCHLD as this process did when it was started.
pub fn as_we_were_started(command: &mut Command) {
    if WAS_IGNORED.load(Ordering::Relaxed) {
        let ignore = || {
            // SAFETY: async-signal-safe, in the child, before it becomes the command.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
            Ok(())
        };
        // SAFETY: it does nothing else.
        unsafe { command.pre_exec(ignore) };
    }
}
