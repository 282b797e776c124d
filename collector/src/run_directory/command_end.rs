//! The command's end, which `ampere run` records in the session's directory for the collector.

use crate::run_directory::files::write_result_privately;
use ampere_figures::summary::SignalNumber;
use ampere_model::digits::significant;
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
    /// The first signal that `ampere run` received and that asks a program to end.
    #[serde(default)]
    pub order: Option<i32>,
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

    /// Describes the signal that ended the run after this time in seconds, if one did. The order is named if the program then
    /// exited by itself, or died of the same signal or of SIGKILL: a batch system kills a program that does not follow its order.
    /// If the program died of another signal, that signal is named.
    pub fn interruption(&self, seconds: f64) -> Option<String> {
        let kill = rustix::process::Signal::KILL.as_raw();
        let order =
            self.order.filter(|order| self.signal.is_none_or(|signal| [*order, kill].contains(&signal)));
        let what = match (order, self.signal) {
            (Some(order), _) if order == rustix::process::Signal::INT.as_raw() => {
                "interrupted by SIGINT (Ctrl-C)".to_owned()
            }
            (Some(order), _) => format!("interrupted by {}", SignalNumber(order).name()),
            (None, Some(signal)) => format!("the program was killed by {}", SignalNumber(signal).name()),
            (None, None) => return None,
        };
        Some(format!("{what} after {} s: figures are up to then", significant(seconds, 3)))
    }

    /// Returns the signal that killed the command, if one did.
    pub fn signal(&self) -> Option<SignalNumber> {
        self.signal.map(SignalNumber)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_that_ended_a_run_is_named() {
        let ended = |order: Option<i32>, signal: Option<i32>| {
            let end = CommandEnd { pid: 1, status: 1, signal, order, cpu_ns: 0, notes: Vec::new() };
            end.interruption(71.23).unwrap_or_default()
        };
        let [up_to, after] = ["figures are up to then", "after 71.2 s"];
        // mpirun ends with a status of its own.
        assert_eq!(ended(Some(2), None), format!("interrupted by SIGINT (Ctrl-C) {after}: {up_to}"));
        assert_eq!(ended(Some(15), Some(9)), format!("interrupted by SIGTERM {after}: {up_to}"));
        assert_eq!(ended(None, Some(9)), format!("the program was killed by SIGKILL {after}: {up_to}"));
        assert_eq!(ended(Some(2), Some(11)), format!("the program was killed by SIGSEGV {after}: {up_to}"));
        assert_eq!(ended(None, None), "");
    }
}
