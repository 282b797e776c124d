//! The boundary to Score-P: nothing unwinds into it, errno is preserved, and no thread is cancelled in the middle of our work.
//! The event path needs none of this, because it cannot panic, change errno or reach a cancellation point.

use crate::{inert, process};
use ampere_signal_safety::preserving_thread_state;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body` unless the plugin is inert. After a panic the plugin is inert and this returns `otherwise`.
pub fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    if inert::is_inert() {
        return otherwise;
    }
    guarded_also_inert(otherwise, body)
}

/// Like [`guarded`], but runs `body` even if the plugin is inert.
pub fn guarded_also_inert<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    preserving_thread_state(|| {
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
            process::give_up(
                "an internal error (please report it); the job continues without energy figures",
            );
            otherwise
        })
    })
}
