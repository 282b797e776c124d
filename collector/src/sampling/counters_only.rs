//! A collector that only samples: for a job that wants the counters in Score-P's own trace and nothing else of ampere's
//! (`SCOREP_METRIC_PLUGINS=ampere_plugin` without the substrate plugin). No attribution, no port, no files but those in the
//! session's directory. Nobody empties the sampler's ring: what it has no room for is in the series that the plugin reads.
//! One that is killed is replaced as any other: the series goes on, and the joules of the gap are in its next sample.

use crate::cpus;
use crate::ingest::process::{Process, State};
use crate::run_directory::leftover;
use crate::sampling::clock::{CALIBRATION, SessionClock, Timer, best_reading};
use crate::sampling::devices_in;
use crate::sampling::sampler::{self, GoOn, Sampler};
use ampere_counters::{RunCpu, SharedRunCpu};
use ampere_ring::{CollectorState, Session};
use ampere_settings::Config;
use ampere_trace::spool::SpoolDirectory;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
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
    let notes: Vec<String> = config.left_out.iter().map(|why| format!("{why}; it is left out")).collect();
    let settings = config.sources.clone();
    // The plugin prints them: there is no summary.
    let _ = ampere_ring::files::write_private(&session.directory().join("settings.notes"), &notes.join("\n"));
    // Nobody would see what else the devices say.
    let periods = (config.sampler.period, None);
    let go_on = predecessor(session);
    let run_cpu: SharedRunCpu = Arc::new(Mutex::new(RunCpu::new(&settings, cpus::count())));
    let for_run = Some(run_cpu.clone());
    let mut sampler = Sampler::start(session.directory(), Timer::usual(), periods, settings, go_on, for_run)?;
    if session.is_given_up() {
        return Err("it was ready too late".to_owned());
    }
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
            let mut run_cpu = run_cpu.lock().unwrap_or_else(PoisonError::into_inner);
            processes.values().for_each(|process| run_cpu.add(process.info.pid, process.info.start_time));
        }
        let over = |process: &Process| process.life.state != State::Running || !process.is_alive();
        let has_come = !processes.is_empty();
        quiet = if has_come && processes.values().all(over) { quiet + 1 } else { 0 };
        if quiet >= QUIET_ROUNDS || (!has_come && begun.elapsed() > nobody) {
            break;
        }
        std::thread::sleep(ROUND);
    }
    let _ = sampler.stop(); // one that hangs ends with this process
    Ok(())
}

/// What a collector that was killed has left: the metrics that Score-P was told of go on.
fn predecessor(session: &Session) -> Option<GoOn> {
    let directory = session.directory();
    // Without the ring, it was killed before it had opened its counters.
    let devices = devices_in(&directory.join(sampler::LOG_NAME));
    if devices.is_empty() || !directory.join(sampler::RING_NAME).exists() {
        return None;
    }
    let start = best_reading();
    std::thread::sleep(CALIBRATION);
    let ticks_per_second = SessionClock::calibrated(Timer::usual(), &start).ticks_per_second;
    Some(GoOn { devices, ticks_per_second })
}

/// Looks for processes that are new, and at what the others say.
fn find(session: &Session, processes: &mut HashMap<PathBuf, Process>) {
    let nowhere = SpoolDirectory::unused(session.directory());
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
