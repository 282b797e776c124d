//! The boundary: nothing unwinds into Score-P.

use crate::inert;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body` unless the plugin is inert. A panic makes it inert and gives `otherwise`.
pub fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    if inert::is_inert() {
        return otherwise;
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(_) => {
            inert::become_inert(
                "an internal error (please report it); the job goes on without energy figures",
            );
            otherwise
        }
    }
}
