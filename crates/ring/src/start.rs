//! Starts the node's collector. One process of the node does this.

use crate::session::{CollectorState, OUT_OF_REACH, Session};
use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The maximum time for which the first process of a node waits for its collector, which is usually ready after 10 ms. It is the
/// default of `AMPERE_START_TIMEOUT`.
const START_LIMIT: Duration = Duration::from_secs(10);
/// The additional time for which the other processes wait for the first one.
const LOCK_MARGIN: Duration = Duration::from_secs(2);

/// The task of a collector.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Measures a run.
    Everything,
    /// Samples the counters for the metric plugin.
    CountersOnly,
}

/// The reason why there is no collector. The text is the line that the user sees.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}; energy is not measured")]
    SharedMemory(#[from] crate::Error),
    #[error("this job's collector is already writing its results; energy is not measured")]
    CollectorIsFinishing,
    #[error("this job's collector has already finished; energy is not measured")]
    CollectorHasFinished,
    /// The reason is from the collector, or from the process that tried to start it.
    #[error("{0}")]
    CollectorFailed(String),
    #[error("cannot start {}: {source}; energy is not measured", .collector.display())]
    CannotStart { collector: PathBuf, source: std::io::Error },
    #[error(
        "{} did not start ({ended}); energy is not measured: check AMPERE_COLLECTOR, or reinstall ampere",
        .collector.display()
    )]
    DidNotStart { collector: PathBuf, ended: String },
}

impl StartError {
    /// Whether only this process is affected. Otherwise all processes of the node are.
    pub fn is_of_this_process(&self) -> bool {
        match self {
            StartError::SharedMemory(error) => error.is_a_limit(),
            StartError::CollectorFailed(why) => why.contains(OUT_OF_REACH),
            _ => false,
        }
    }
}

/// Makes sure that a collector is running: starts the first one, or replaces one that was killed. `measured` is the measured
/// program's command line, for the summary; `collector` returns the collector's command.
pub fn ensure_collector<E: From<StartError> + Display>(
    session: &Session,
    purpose: Purpose,
    measured: &[OsString],
    collector: impl FnOnce() -> Result<Command, E>,
) -> Result<(), E> {
    let limit = seconds_from("AMPERE_START_TIMEOUT").unwrap_or(START_LIMIT);
    let _lock = session.lock_start(limit.saturating_add(LOCK_MARGIN)).map_err(StartError::from)?;
    if session.collector_is_alive() {
        return if session.is_finishing() { Err(StartError::CollectorIsFinishing.into()) } else { Ok(()) };
    }
    match session.collector_state() {
        CollectorState::Failed => return Err(failure(session).into()),
        CollectorState::Finished => return Err(StartError::CollectorHasFinished.into()),
        _ => {}
    }
    // The next collector locks the session before it sets its state. Until then, the state of a killed collector must not remain.
    session.set_collector(0, CollectorState::Starting);
    let started = collector().and_then(|command| Ok(start(session, command, purpose, measured, limit)?));
    if let Err(why) = &started
        && session.collector_state() != CollectorState::Failed
    {
        // Otherwise each of the node's other processes would try to start a collector and wait for it, one after the other.
        let _ = crate::files::write_private(&session.directory().join("failure"), &why.to_string());
        session.set_collector(std::process::id(), CollectorState::Failed);
    }
    started
}

fn start(
    session: &Session,
    mut command: Command,
    purpose: Purpose,
    measured: &[OsString],
    limit: Duration,
) -> Result<(), StartError> {
    let collector = PathBuf::from(command.get_program());
    // With --detach, the new process starts the actual collector and ends, so that the program gets no child that it did not
    // start itself.
    command.arg("--detach").arg("--session").arg(session.directory());
    if purpose == Purpose::CountersOnly {
        command.arg("--counters-only");
    }
    command.arg("--").args(measured);
    let mut child = command
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| StartError::CannotStart { collector: collector.clone(), source })?;
    let begun = Instant::now();
    let (was_ready, ended) = loop {
        match child.try_wait() {
            Ok(Some(status)) => break (status.success(), status.to_string()),
            // If the application ignores SIGCHLD, the kernel has reaped the child.
            Err(e) => break (false, e.to_string()),
            Ok(None) if begun.elapsed() > limit => {
                let _ = child.kill();
                let _ = child.wait();
                break (false, format!("it was not ready after {} s", limit.as_secs()));
            }
            Ok(None) => std::thread::sleep(Duration::from_micros(500)),
        }
    };
    // The child ends when the actual collector is ready or has failed.
    match session.collector_state() {
        CollectorState::Running if session.collector_is_alive() => Ok(()),
        CollectorState::Finished => Ok(()),
        CollectorState::Failed => Err(failure(session)),
        // The collector was ready and has been killed since then. Its supervisor starts another one.
        _ if was_ready && session.collector_pid() != 0 => Ok(()),
        _ => Err(StartError::DidNotStart { collector, ended }),
    }
}

/// Returns a limit in seconds from the environment.
pub fn seconds_from(variable: &str) -> Option<Duration> {
    std::env::var(variable).ok().and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs)
}

/// Returns the reason that the collector left when it gave up.
fn failure(session: &Session) -> StartError {
    let why = crate::files::read_text(&session.directory().join("failure"));
    let consequence = "energy is not measured";
    StartError::CollectorFailed(match why.trim() {
        "" => format!("{consequence}: the collector failed"),
        why if why.contains(consequence) => why.to_owned(),
        why => format!("{consequence}: {why}"),
    })
}
