//! How the command ended: what `ampere run` leaves for the collector, in the session's directory.

use ampere_report::summary::SignalNumber;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandEnd {
    pub pid: u32,
    /// As a shell says it.
    pub status: i32,
    /// That killed it.
    pub signal: Option<i32>,
}

impl CommandEnd {
    const FILE_NAME: &str = "command.end";

    pub fn save(&self, session: &Path) {
        // Without it the signal is not named; nothing else depends on it.
        let _ = ampere_ring::files::replace_private(
            &session.join(CommandEnd::FILE_NAME),
            &serde_json::to_string(self).unwrap_or_default(),
        );
    }

    pub fn load(session: &Path) -> Option<CommandEnd> {
        serde_json::from_slice(&std::fs::read(session.join(CommandEnd::FILE_NAME)).ok()?).ok()
    }

    pub fn signal(&self) -> Option<SignalNumber> {
        self.signal.map(SignalNumber)
    }
}
