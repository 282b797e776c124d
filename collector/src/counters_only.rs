//! A collector that only samples: for a job that wants the counters in Score-P's own trace and nothing else of ampere's
//! (`SCOREP_METRIC_PLUGINS=ampere_plugin` without the substrate plugin). No attribution, no port, no files but those in the
//! session's directory. Nobody empties the sampler's ring: what it has no room for is in the series that the plugin reads.

use crate::clock::Timer;
use crate::config::Config;
use crate::leftover;
use crate::process::{Process, State};
use crate::sampler::{self, Sampler};
use crate::spool::Place;
use ampere_ring::{CollectorState, Session};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Nothing happens here in a hurry: the sampler has a thread of its own.
const ROUND: Duration = Duration::from_millis(50);
/// Rounds without any process before it is believed that they are over: one may just be joining.
const QUIET_ROUNDS: u32 = 3;

/// Samples until all processes that have come are over, or until `ends` says so. `nobody`: how long to wait for a first one.
pub fn serve(
    session: &Session,
    config: &Config,
    nobody: Duration,
    ends: impl Fn() -> bool,
) -> Result<(), String> {
    let mut notes = Vec::new();
    let settings = sampler::settings(config, &mut notes);
    // The plugin says it: there is no summary that could.
    let _ = ampere_ring::files::write_private(&session.directory().join("settings.notes"), &notes.join("\n"));
    // Nobody would see what else the devices say.
    let mut sampler =
        Sampler::start(session.directory(), Timer::usual(), (config.sample_period, None), settings, None)?;
    session.set_collector(std::process::id(), CollectorState::Running);
    let begun = Instant::now();
    let mut processes = HashMap::new();
    let (mut generation, mut quiet) = (u64::MAX, 0);
    while !ends() {
        session.beat();
        if let Some(found) = sampler.found() {
            found?;
        }
        if session.generation() != generation {
            generation = session.generation();
            find(session, &mut processes);
        }
        let over = |process: &Process| process.state != State::Running || !process.is_alive();
        let has_come = !processes.is_empty();
        quiet = if has_come && processes.values().all(over) { quiet + 1 } else { 0 };
        if quiet >= QUIET_ROUNDS || (!has_come && begun.elapsed() > nobody) {
            break;
        }
        std::thread::sleep(ROUND);
    }
    sampler.stop();
    Ok(())
}

/// Looks for processes that are new, and at what the others say.
fn find(session: &Session, processes: &mut HashMap<PathBuf, Process>) {
    let nowhere = Place::nowhere(session.directory());
    for path in leftover::logs_in(session.directory()) {
        match processes.get_mut(&path) {
            Some(process) => process.read_log(&nowhere),
            None => {
                if let Ok(Some(process)) = Process::open(&path, &nowhere) {
                    processes.insert(path, process);
                }
            }
        }
    }
}
