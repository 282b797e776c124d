//! The command's end, which `ampere run` records in the session's directory for the collector.

use crate::run_directory::files::write_result_privately;
use ampere_figures::summary::SignalNumber;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How the command of `ampere run` ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandEnd {
    /// The pid of the command's process.
    pub pid: u32,
    /// The command's exit status, as a shell shows it.
    pub status: i32,
    /// The signal that killed the command, if any.
    pub signal: Option<i32>,
    /// The CPU time that the command used, including the children that it waited for.
    #[serde(default)]
    pub cpu_ns: u64,
    /// Notes about its output for the summary, one line each.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl CommandEnd {
    const FILE_NAME: &str = "command.end";
    const BYTES_MAX: u64 = 4096;

    /// Saves it in the session's directory. A failure is ignored: the summary does not name the signal then.
    pub fn save(&self, session: &Path) {
        let _ = write_result_privately(
            &session.join(CommandEnd::FILE_NAME),
            &serde_json::to_string(self).unwrap_or_default(),
        );
    }

    /// Returns what was saved, if anything.
    pub fn load(session: &Path) -> Option<CommandEnd> {
        let text = ampere_owned::read(&session.join(CommandEnd::FILE_NAME), CommandEnd::BYTES_MAX);
        serde_json::from_slice(&text.ok()?).ok()
    }

    /// Returns the signal that killed the command, if one did.
    pub fn signal(&self) -> Option<SignalNumber> {
        self.signal.map(SignalNumber)
    }
}
