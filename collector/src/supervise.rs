//! Who restarts a collector that was killed.
//!
//! One that ends by itself has said why, and would say it again. One that a signal has killed (out of memory, an
//! administrator, a mistake of ours) is replaced: nothing is lost by that, but the samples of a few milliseconds.

use ampere_ring::{CollectorState, Session};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// What kills a collector so often will kill the next one, too.
pub const MOST_RESTARTS: u32 = 5;

#[derive(Debug, Default)]
pub struct Restarts(u32);

impl Restarts {
    /// Whether another collector is to take the place of one that ended so. Counts it.
    pub fn is_another_due(&mut self, status: ExitStatus, session: &Session) -> bool {
        let killed = status.signal().is_some();
        let over = matches!(session.collector_state(), CollectorState::Finished | CollectorState::Failed);
        let due = killed && !over && !session.is_removed() && self.0 < MOST_RESTARTS;
        self.0 += u32::from(due);
        due
    }
}
