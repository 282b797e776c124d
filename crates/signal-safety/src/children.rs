//! Signals that are ignored. That setting is inherited from the process that started us, and a command that we start must have it,
//! whatever we do with these signals ourselves: `nohup` and a shell's background ignore those of a terminal.
//!
//! SIGCHLD must not be ignored by us: the kernel would reap children and discard their exit status.

use libc::c_int;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Signals that were ignored when this process began: bit n is signal n.
static IGNORED: AtomicU32 = AtomicU32::new(0);

/// Takes note of the signals that are ignored, and restores the default for SIGCHLD: from now on children of this process can be
/// waited for. To be called first.
pub fn remember_ignored_signals() {
    // Rust's own start ignores SIGPIPE, and its children have the default again.
    let ignored = (1..32).filter(|signal| *signal != libc::SIGPIPE && is_ignored(*signal));
    IGNORED.store(ignored.fold(0, |all, signal| all | 1 << signal), Ordering::Relaxed);
    // SAFETY: the default is valid for this signal.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: zeros are a valid value, which is only written to.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is changed.
    let is_known = unsafe { libc::sigaction(signal, std::ptr::null(), &mut now) } == 0;
    is_known && now.sa_sigaction == libc::SIG_IGN
}

/// The command ignores what this process was started to ignore.
pub fn restore_ignored_signals_in(command: &mut Command) {
    let ignored = IGNORED.load(Ordering::Relaxed);
    if ignored != 0 {
        let ignore = move || {
            for signal in (1..32).filter(|signal| ignored & 1 << signal != 0) {
                // SAFETY: a valid signal and disposition.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
            Ok(())
        };
        // SAFETY: the closure is async-signal-safe.
        unsafe { command.pre_exec(ignore) };
    }
}
