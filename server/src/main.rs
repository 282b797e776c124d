//! `ampere-collector`: one process per node, started by `ampere run` or by the plugin. It is not meant to be started by hand.
//!
//! With `--detach` it starts a supervisor and returns when the collector is ready; with `--supervise` it starts the collector
//! and replaces it if it is killed; with neither, it collects.

#[path = "main/collect.rs"]
mod collect;
#[path = "main/launch.rs"]
mod launch;
#[path = "main/rounds.rs"]
mod rounds;

use ampere_ring::{CollectorState, HeldLock, Session};
use clap::Parser;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(about = "Collects, attributes and serves; started by ampere run or by the plugin", version)]
struct Arguments {
    /// The session's directory in shared memory.
    #[arg(long)]
    session: PathBuf,
    /// Start a supervisor and return when the collector is ready.
    #[arg(long)]
    detach: bool,
    /// Start the collector, and another one whenever it is killed.
    #[arg(long)]
    supervise: bool,
    /// The directory of the results; by default AMPERE_OUTPUT.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// The settings file; by default AMPERE_CONFIG.
    #[arg(long)]
    config: Option<PathBuf>,
    /// The address to listen on; by default AMPERE_LISTEN.
    #[arg(long)]
    listen: Option<String>,
    /// Collect until standard input is closed, whichever processes start and end. `ampere run` closes it when the command ends.
    #[arg(long)]
    until_input_closes: bool,
    /// The file that describes the trace that `ampere replay` plays (the session's replay.json).
    #[arg(long)]
    replay: Option<PathBuf>,
    /// For how many seconds the final figures are served, whether or not somebody has asked for them before.
    #[arg(long, default_value = "0")]
    hold: f64,
    /// Only sample the counters, for a metric plugin.
    #[arg(long)]
    counters_only: bool,
    /// The measured command, for the summary. Its arguments may be arbitrary bytes.
    command: Vec<OsString>,
}

/// The time limit for getting the lock of a collector that is just ending.
const TAKE_OVER_LIMIT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    // SAFETY: nothing has been opened, and no thread has been started.
    unsafe { ampere_signal_safety::close_inherited_fds_and_reset_signals() };
    let arguments = Arguments::parse();
    if arguments.detach {
        return launch::detach(&arguments.session);
    }
    let session = match Session::open(&arguments.session) {
        Ok(session) => session,
        Err(error) => {
            log(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    if arguments.supervise {
        return launch::supervise(&session);
    }
    // Only the process with this lock writes to the session's page.
    let _lock = match lock_collector(&session) {
        Ok(Some(lock)) => lock,
        Ok(None) => return ExitCode::SUCCESS, // another collector was faster
        Err(error) => {
            log(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    let directory = session.directory().to_owned();
    match collect::collect(session, arguments) {
        Ok(served) => {
            // The results are written. This socket is kept until the process exits: its end shows the next collector that the
            // address is free.
            let _successor = served.and_then(collect::Served::linger);
            ExitCode::SUCCESS
        }
        Err(error) => {
            let why = error.to_string();
            report_failure(&directory, &why);
            log(&why);
            ExitCode::FAILURE
        }
    }
}

/// Writes a line to the log. A failure is ignored, because the log may be in shared memory that is full.
fn log(line: &str) {
    let _ = writeln!(std::io::stderr(), "ampere-collector: {line}");
}

/// Writes the reason into the session, where the processes that wait for the collector find it.
fn report_failure(directory: &Path, why: &str) {
    let session = Session::open(directory);
    if session.as_ref().is_ok_and(Session::is_given_up) {
        return; // the process that gave up has reported why
    }
    let _ = ampere_ring::files::write_private(&directory.join("failure"), why);
    if let Ok(session) = session {
        session.set_collector(std::process::id(), CollectorState::Failed);
    }
}

/// Takes the collector's lock until this process ends. Returns `None` if another process holds it and does not release it.
fn lock_collector(session: &Session) -> Result<Option<HeldLock>, ampere_ring::Error> {
    let begun = Instant::now();
    loop {
        match session.lock_collector() {
            Ok(None) if begun.elapsed() < TAKE_OVER_LIMIT => std::thread::sleep(Duration::from_millis(5)),
            outcome => return outcome,
        }
    }
}
