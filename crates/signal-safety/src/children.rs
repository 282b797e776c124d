//! Handles ignored signals. A process inherits them from the one that started it: `nohup` and a shell's background jobs ignore
//! the signals of a terminal. A command that we start must ignore the same signals, even if this process handles them.
//!
//! We must not ignore SIGCHLD: the kernel would reap our children and discard their exit status.

use libc::c_int;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The signals that were ignored when this process started: bit n is signal n.
static IGNORED: AtomicU32 = AtomicU32::new(0);

/// Remembers which signals are ignored, and restores the default for SIGCHLD, so that this process can wait for its children.
/// This must be called first.
pub fn remember_ignored_signals() {
    // Rust's start-up code ignores SIGPIPE in this process, and `Command` restores the default in children.
    let ignored = (1..32).filter(|signal| *signal != libc::SIGPIPE && is_ignored(*signal));
    IGNORED.store(ignored.fold(0, |all, signal| all | 1 << signal), Ordering::Relaxed);
    // SAFETY: the default is valid for this signal.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: zeros are a valid value, which is only written to.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the call only reads the disposition.
    let is_known = unsafe { libc::sigaction(signal, std::ptr::null(), &mut now) } == 0;
    is_known && now.sa_sigaction == libc::SIG_IGN
}

/// Makes the command ignore the signals that this process was started to ignore.
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
