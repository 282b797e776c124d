//! Starts the collector in the background, and again if it is killed.

use crate::log;
use ampere_collector::supervise::{Restarts, start_patiently};
use ampere_ring::{CollectorState, Session};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The time limit for the collector to be ready. The plugin waits longer, so that it learns of a failure.
const READY_LIMIT: Duration = Duration::from_secs(8);

/// Returns this program's arguments without one option.
fn arguments_without(option: &str) -> impl Iterator<Item = OsString> {
    let mut options: Vec<OsString> = std::env::args_os().skip(1).collect();
    let end = options.iter().position(|argument| argument == "--").unwrap_or(options.len());
    let command = options.split_off(end);
    let option = option.to_owned();
    options.into_iter().filter(move |argument| *argument != *option).chain(command)
}

/// Starts the collector, waits for it, and starts another one if it was killed. This process does nothing else: such a small
/// process is unlikely to be killed when memory is short.
pub fn supervise(session: &Session) -> ExitCode {
    let _ = rustix::process::setsid();
    let mut restarts = Restarts::default();
    loop {
        let started = start_patiently(|| {
            let program = std::env::current_exe()?;
            Command::new(program).args(arguments_without("--supervise")).stdin(Stdio::null()).spawn()
        });
        let status = match started.and_then(|mut collector| collector.wait()) {
            Ok(status) => status,
            Err(error) => {
                log(&format!("cannot start the collector: {error}"));
                return ExitCode::FAILURE;
            }
        };
        if !restarts.is_another_due(status, session) {
            return if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        log(&format!("the collector ended with {status}; another one takes over"));
    }
}

/// Starts a supervisor and waits until the collector is ready. The plugin starts this process and waits for it, so that the
/// collector is not a child of the application, which may wait for all of its children.
pub fn detach(session_directory: &Path) -> ExitCode {
    let Ok(session) = Session::open(session_directory) else { return ExitCode::FAILURE };
    let log = ampere_ring::files::append_private(&session_directory.join("collector.log"));
    let started = std::env::current_exe().and_then(|program| {
        Command::new(program)
            .arg("--supervise")
            .args(arguments_without("--detach"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.map_or_else(|_| Stdio::null(), Stdio::from))
            .spawn()
    });
    let Ok(mut supervisor) = started else { return ExitCode::FAILURE };
    let begun = Instant::now();
    while begun.elapsed() < READY_LIMIT {
        match session.collector_state() {
            // A dead collector may have left the state, so this checks that the collector is alive.
            CollectorState::Running if session.collector_is_alive() => return ExitCode::SUCCESS,
            CollectorState::Finished => return ExitCode::SUCCESS,
            CollectorState::Failed => return ExitCode::FAILURE,
            _ => {}
        }
        if matches!(supervisor.try_wait(), Ok(Some(_))) {
            return ExitCode::FAILURE;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(&session, supervisor);
    ExitCode::FAILURE
}

/// Ends a collector that is not ready in time: the application runs without it. Any process of the user may have written the pid
/// into the session's page, so only a child of the supervisor is killed.
fn kill(session: &Session, mut supervisor: Child) {
    let pid = session.collector_pid();
    let is_ours = ampere_ring::process::parent(pid) == Some(supervisor.id());
    let _ = supervisor.kill();
    let collector = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(collector) = collector.filter(|_| is_ours) {
        let _ = rustix::process::kill_process(collector, rustix::process::Signal::KILL);
    }
}
