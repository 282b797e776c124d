//! Lets a process of our own end properly when a signal asks it to.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Returns a flag that SIGTERM and SIGINT set from now on; they no longer end the process. Neither does SIGXFSZ: a write beyond
/// `ulimit -f` fails as on a full disk.
pub fn asked_to_end() -> &'static AtomicBool {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGXFSZ] {
        // SAFETY: the signals exist, and the handler has their signature and is async-signal-safe.
        unsafe { libc::signal(signal, handle as *const () as libc::sighandler_t) };
    }
    &IS_ASKED
}

extern "C" fn handle(signal: libc::c_int) {
    if signal != libc::SIGXFSZ {
        IS_ASKED.store(true, Ordering::Relaxed);
    }
}
