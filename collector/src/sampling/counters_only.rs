//! A collector that only samples, for a job that wants the counters in Score-P's own trace and nothing else
//! (`SCOREP_METRIC_PLUGINS=ampere_plugin` without the substrate plugin). It does no attribution, opens no port, and writes only
//! to the session's directory. The sampler's ring is not drained; the series that the plugin reads have all samples. If the
//! collector is killed, another one continues the series, and the joules of the gap are in the next sample.

use crate::cpus;
use crate::ingest::process::{Process, State};
use crate::run_directory::leftover;
use crate::sampling::clock::{CALIBRATION, SessionClock, Timer, best_reading};
use crate::sampling::devices_in;
use crate::sampling::predecessor::Predecessor;
use crate::sampling::sampler::{self, Sampler, SamplerError, SamplerOptions};
use ampere_counters::{RunCpu, SharedRunCpu};
use ampere_ring::{CollectorState, Session};
use ampere_settings::Config;
use ampere_trace::spool::SpoolDirectory;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two searches for processes. The sampler has a thread of its own.
const ROUND: Duration = Duration::from_millis(50);
/// The number of rounds without a living process after which the run has ended: a process may be about to join.
const QUIET_ROUNDS: u32 = 3;

/// Why nothing is sampled, as a message of one line.
#[derive(Debug, thiserror::Error)]
pub enum CountersOnlyError {
    /// The sampler cannot be started.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// The plugin no longer waits for the collector.
    #[error("the collector was ready too late")]
    TooLate,
}

/// Samples until all processes that have joined have ended, or until `is_ended`. `join_limit` is the longest wait for the first
/// process.
pub fn serve(
    session: &Session,
    config: &Config,
    join_limit: Duration,
    is_ended: impl Fn() -> bool,
) -> Result<(), CountersOnlyError> {
    let notes: Vec<String> = config.left_out.iter().map(|why| format!("{why}; it is ignored")).collect();
    let settings = config.sources.clone();
    // The plugin prints these notes, because there is no summary.
    let _ = ampere_ring::files::write_private(&session.directory().join("settings.notes"), &notes.join("\n"));
    let run_cpu: SharedRunCpu = Arc::new(Mutex::new(RunCpu::new(&settings, cpus::count())));
    let options = SamplerOptions {
        period: config.sampler.period,
        gauges: None, // they would not be shown anywhere
        settings,
        predecessor: predecessor(session),
        run_cpu: Some(run_cpu.clone()),
        other_jobs: false,
        by_cpu_time: false,
    };
    let mut sampler = Sampler::start(session.directory(), Timer::usual(), options)?;
    if session.is_given_up() {
        return Err(CountersOnlyError::TooLate);
    }
    session.set_collector(std::process::id(), CollectorState::Running);
    let begun = Instant::now();
    let mut processes = HashMap::new();
    let (mut generation, mut quiet) = (u64::MAX, 0);
    while !is_ended() {
        session.beat();
        if let Some(found) = sampler.found() {
            found?;
        }
        if session.generation() != generation {
            generation = session.generation();
            find_processes(session, &mut processes);
            let mut run_cpu = run_cpu.lock().unwrap_or_else(PoisonError::into_inner);
            processes.values().for_each(|process| run_cpu.add(process.info.pid, process.info.start_time));
        }
        let has_ended = |process: &Process| process.life.state != State::Running || !process.is_alive();
        let has_joined = !processes.is_empty();
        quiet = if has_joined && processes.values().all(has_ended) { quiet + 1 } else { 0 };
        if quiet >= QUIET_ROUNDS || (!has_joined && begun.elapsed() > join_limit) {
            break;
        }
        std::thread::sleep(ROUND);
    }
    let _ = sampler.stop(); // a thread that hangs is ended with this process
    Ok(())
}

/// Returns the sampler of a killed collector, if there was one: its devices are already defined as metrics in Score-P.
fn predecessor(session: &Session) -> Option<Predecessor> {
    let directory = session.directory();
    // If there is no ring, the collector was killed before its counters were open.
    let devices = devices_in(&directory.join(sampler::LOG_NAME));
    if devices.is_empty() || !directory.join(sampler::RING_NAME).exists() {
        return None;
    }
    let start = best_reading();
    std::thread::sleep(CALIBRATION);
    let ticks_per_second = SessionClock::calibrated(Timer::usual(), &start).ticks_per_second;
    Some(Predecessor { devices, ticks_per_second })
}

/// Finds new processes, and reads the others' logs.
fn find_processes(session: &Session, processes: &mut HashMap<PathBuf, Process>) {
    let nowhere = SpoolDirectory::unused(session.directory());
    for path in leftover::logs_in(session.directory()) {
        match processes.get_mut(&path) {
            Some(process) => process.read_log(&nowhere),
            None => {
                if let Ok(Some(process)) = Process::open(&path, &nowhere, None) {
                    processes.insert(path, process);
                }
            }
        }
    }
}
