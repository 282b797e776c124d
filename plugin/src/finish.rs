//! The end of the measurement: this process leaves the session, and the last one of the node waits for the collector.

use crate::events;
use crate::inert::{is_inert, report_in_this_process};
use crate::process::State;
use crate::start;
use ampere_model::Definition;
use ampere_ring::start::Purpose;
use ampere_ring::{CollectorState, LogReader, Session};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// If the collector is killed, its supervisor (server/src/main/launch.rs) replaces it within this time.
const REPLACED_WITHIN: Duration = Duration::from_millis(500);
/// The last process replaces a killed collector at most this many times.
const REPLACEMENTS_MAX: u32 = 2;
/// A wait that takes longer than this is reported to the user.
const SILENT_WAIT_MAX: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(2);

/// Ends this process's measurement, even when the plugin is inert: a process that has joined must leave, or the others would
/// wait for it. The last process of the node waits until the trace is written, up to a limit.
pub fn finalize() {
    static IS_FINALIZED: AtomicBool = AtomicBool::new(false);
    let Some(state) = State::of_this_process() else { return };
    if IS_FINALIZED.swap(true, Ordering::Relaxed) {
        return;
    }
    events::stop();
    state.define_unrecorded();
    let left_out = state.log().left_out();
    state.define(&Definition::Finished { left_out });
    let others = state.session.leave();
    if is_inert() || state.session.is_waited_for() {
        return; // `ampere run` waits, and replaces a collector that is killed
    }
    // Processes that were killed never leave the session, so the count alone is not enough: this process also waits if the
    // collector is killed and no other process could replace it.
    if others == 0 || collector_is_killed(&state.session) && is_last(state) {
        wait_for_collector(&state.session, state.finalize_timeout);
    }
}

fn collector_is_killed(session: &Session) -> bool {
    let should_run = matches!(session.collector_state(), CollectorState::Starting | CollectorState::Running);
    should_run && !session.collector_is_alive()
}

/// Whether every other process that has joined the session has ended.
fn is_last(state: &State) -> bool {
    let own = format!("{}.defs", state.name);
    let Ok(entries) = std::fs::read_dir(state.session.directory()) else { return false };
    let logs = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().ends_with(b".defs") && *name != *own && name != "sampler.defs"
    });
    let mut logs = logs.map(|entry| LogReader::open(&entry.path()));
    logs.all(|log| !matches!(log, Ok(Some(log)) if log.is_held()))
}

/// Waits for the collector to finish and reports the result, even if this is not the node's first process: no other process
/// reports it. Replaces the collector if it is killed and its supervisor does not replace it.
fn wait_for_collector(session: &Session, limit: Duration) {
    let output = session.output().unwrap_or_default();
    let begun = Instant::now();
    let mut wait_is_reported = false;
    let mut replacement = Replacement::default();
    loop {
        let done = match session.collector_state() {
            CollectorState::Finished => {
                Some(format!("energy summary in {}", output.join("summary.txt").display()))
            }
            CollectorState::Failed => {
                let why = ampere_ring::files::read_text(&session.directory().join("failure"));
                Some(format!("the collector failed: {}", why.trim()))
            }
            // It may have finished between the two checks.
            _ if !session.collector_is_alive() && session.collector_state() != CollectorState::Finished => {
                replacement.handle_dead_collector(session, &output)
            }
            _ => {
                replacement.dead_since = None;
                None
            }
        };
        if let Some(line) = done {
            return report_in_this_process(&line);
        }
        if begun.elapsed() > limit {
            return report_in_this_process(&format!(
                "the collector is still writing to {} after {} s; not waiting any longer",
                output.display(),
                limit.as_secs()
            ));
        }
        if !wait_is_reported && begun.elapsed() > SILENT_WAIT_MAX {
            wait_is_reported = true;
            report_in_this_process(&format!(
                "waiting for the collector to finish, {} s at most",
                limit.as_secs()
            ));
        }
        std::thread::sleep(POLL);
    }
}

/// The progress of this process in replacing a dead collector.
#[derive(Default)]
struct Replacement {
    dead_since: Option<Instant>,
    count: u32,
}

impl Replacement {
    /// Replaces the collector once it has been dead for [`REPLACED_WITHIN`]. Returns a line for the user when nothing more can be
    /// done.
    fn handle_dead_collector(&mut self, session: &Session, output: &Path) -> Option<String> {
        if session.is_removed() {
            // The collector's last step removes the session. It was killed before it could set its state.
            session.set_collector(0, CollectorState::Finished);
            return None;
        }
        let since = *self.dead_since.get_or_insert_with(Instant::now);
        if since.elapsed() <= REPLACED_WITHIN {
            return None;
        }
        if self.count == REPLACEMENTS_MAX {
            return Some(format!(
                "the collector ended early; the results can be completed: ampere recover {}",
                output.display()
            ));
        }
        (self.count, self.dead_since) = (self.count + 1, None);
        let _ = start::ensure_collector(session, Purpose::Everything); // the loop sees the result
        None
    }
}
