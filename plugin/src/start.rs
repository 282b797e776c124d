//! Starting the node's collector: one process of the node does it.

use crate::error::Error;
use ampere_ring::{CollectorState, Session};
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the first process of a node waits for its collector to be ready, which takes some 10 ms. Default of
/// `AMPERE_START_TIMEOUT`.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How much longer the other processes wait for the first one.
const LOCK_MARGIN: Duration = Duration::from_secs(2);

/// What a collector is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Measure a run.
    Everything,
    /// Sample the counters for the metric plugin.
    CountersOnly,
}

/// Makes sure that a collector runs: starts the first one, or another one in place of one that was killed.
pub fn ensure_collector(session: &Session, purpose: Purpose) -> Result<(), Error> {
    let limit = seconds_from("AMPERE_START_TIMEOUT").unwrap_or(START_LIMIT);
    let _lock = session.lock_start(limit.saturating_add(LOCK_MARGIN))?;
    if session.collector_is_alive() {
        return if session.is_finishing() { Err(Error::CollectorIsFinishing) } else { Ok(()) };
    }
    match session.collector_state() {
        CollectorState::Failed => return Err(failure(session)),
        CollectorState::Finished => return Err(Error::CollectorHasFinished),
        _ => {}
    }
    // The next collector locks the session before it sets its state: until then a killed one's must not be taken for its.
    session.set_collector(0, CollectorState::Starting);
    let started = find_collector().and_then(|collector| start(session, &collector, purpose, limit));
    if let Err(why) = &started
        && session.collector_state() != CollectorState::Failed
    {
        // So that the node's other processes do not try, and wait, one after the other.
        let _ = ampere_ring::files::write_private(&session.directory().join("failure"), &why.to_string());
        session.set_collector(std::process::id(), CollectorState::Failed);
    }
    started
}

fn start(session: &Session, collector: &Path, purpose: Purpose, limit: Duration) -> Result<(), Error> {
    let mut command = Command::new(collector);
    // With --detach it starts the collector proper and returns, so that the program gets no child that it did not make.
    command.arg("--detach").arg("--session").arg(session.directory());
    if purpose == Purpose::CountersOnly {
        command.arg("--counters-only");
    }
    command.arg("--").args(own_command());
    let mut child = command
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| Error::CannotStart { collector: collector.to_owned(), source })?;
    let begun = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.to_string(),
            // The application may ignore SIGCHLD: then the kernel has reaped it.
            Err(e) => break e.to_string(),
            Ok(None) if begun.elapsed() > limit => {
                let _ = child.kill();
                let _ = child.wait();
                break format!("it was not ready after {} s", limit.as_secs());
            }
            Ok(None) => std::thread::sleep(Duration::from_micros(500)),
        }
    };
    // It returns when the collector proper is ready or has failed.
    match session.collector_state() {
        CollectorState::Running if session.collector_is_alive() => Ok(()),
        CollectorState::Finished => Ok(()),
        CollectorState::Failed => Err(failure(session)),
        _ => Err(Error::DidNotStart { collector: collector.to_owned(), ended }),
    }
}

/// This program's command line, for the summary.
fn own_command() -> Vec<OsString> {
    let mut line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    line.pop(); // the NUL at the end
    line.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_owned()).collect()
}

/// A limit in seconds from the environment.
pub fn seconds_from(variable: &str) -> Option<Duration> {
    std::env::var(variable).ok().and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs)
}

/// The reason that the collector left when it gave up.
fn failure(session: &Session) -> Error {
    let why = ampere_ring::files::read_text(&session.directory().join("failure"));
    let said = "energy is not measured";
    Error::CollectorFailed(match why.trim() {
        "" => format!("{said}: the collector failed"),
        why if why.contains(said) => why.to_owned(),
        why => format!("{said}: {why}"),
    })
}

/// Beside this library (a build), or in `../bin` (an installation), or where `AMPERE_COLLECTOR` says.
fn find_collector() -> Result<PathBuf, Error> {
    if let Some(path) = std::env::var_os("AMPERE_COLLECTOR").filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(path));
    }
    let library = own_path().ok_or(Error::OwnPathUnknown)?;
    let here = library.parent().unwrap_or(Path::new("."));
    let candidates = [here.join("ampere-collector"), here.join("../bin/ampere-collector")];
    let found = candidates.iter().find(|path| path.is_file()).cloned();
    found.ok_or_else(|| Error::NoCollector([here.to_owned(), here.join("../bin")]))
}

/// The file that this code was loaded from.
fn own_path() -> Option<PathBuf> {
    // SAFETY: an all-zero Dl_info is valid: four pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is this function's, and `info` is ours to fill.
    if unsafe { libc::dladdr(own_path as *const libc::c_void, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gives a NUL-terminated string that lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    Some(std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()))
}
