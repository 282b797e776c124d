//! Starting the node's collector, once.

use ampere_ring::{CollectorState, Session};
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the first process of a node waits for its collector to be ready. It takes some 10 ms.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How long the other processes wait for the first one, on top of that.
const LOCK_MARGIN: Duration = Duration::from_secs(2);

/// What a collector is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Everything,
    /// Sample the counters, for the metric plugin.
    CountersOnly,
}

/// Makes sure that a collector runs: the first, or another one in the place of one that was killed. The error is one line: why, and what to do.
pub fn ensure_collector(session: &Session, purpose: Purpose) -> Result<(), String> {
    let limit = seconds_from("AMPERE_START_TIMEOUT").unwrap_or(START_LIMIT);
    let _lock = session
        .lock_start(limit.saturating_add(LOCK_MARGIN))
        .map_err(|e| format!("{e}; energy is not measured"))?;
    if session.collector_is_alive() {
        let late = "this job's collector is already writing its results; energy is not measured";
        return if session.is_finishing() { Err(late.to_owned()) } else { Ok(()) };
    }
    match session.collector_state() {
        CollectorState::Failed => return Err(failure(session)),
        CollectorState::Finished => {
            return Err("this job's collector has already finished; energy is not measured".to_owned());
        }
        _ => {}
    }
    // What a killed one has left there would be taken for the next one's word, which locks the session before it says anything.
    session.set_collector(0, CollectorState::Starting);
    let started = find_collector().and_then(|collector| start(session, &collector, purpose, limit));
    if let Err(why) = &started
        && session.collector_state() != CollectorState::Failed
    {
        // The node's other processes are not to try, and wait, one after the other.
        let _ = ampere_ring::files::write_private(&session.directory().join("failure"), why);
        session.set_collector(std::process::id(), CollectorState::Failed);
    }
    started
}

fn start(session: &Session, collector: &Path, purpose: Purpose, limit: Duration) -> Result<(), String> {
    let mut command = Command::new(collector);
    // With --detach it starts the collector proper and returns, so that the job gets no child that it did not make.
    command.arg("--detach").arg("--session").arg(session.directory());
    if purpose == Purpose::CountersOnly {
        command.arg("--counters-only");
    }
    let mut child = command
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("cannot start {}: {e}; energy is not measured", collector.display()))?;
    let begun = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.to_string(),
            // The application may have said that it wants to know nothing of its children: they are reaped then.
            Err(e) => break e.to_string(),
            Ok(None) if begun.elapsed() > limit => {
                let _ = child.kill();
                let _ = child.wait();
                break format!("it was not ready after {} s", limit.as_secs());
            }
            Ok(None) => std::thread::sleep(Duration::from_micros(500)),
        }
    };
    // It returns when the collector proper is ready, or is not going to be.
    match session.collector_state() {
        CollectorState::Running if session.collector_is_alive() => Ok(()),
        CollectorState::Finished => Ok(()),
        CollectorState::Failed => Err(failure(session)),
        _ => Err(format!(
            "{} did not start ({ended}); energy is not measured: look at AMPERE_COLLECTOR, or reinstall ampere",
            collector.display()
        )),
    }
}

/// A limit in seconds from the environment.
pub fn seconds_from(variable: &str) -> Option<Duration> {
    std::env::var(variable).ok().and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs)
}

/// What the collector left behind when it gave up.
fn failure(session: &Session) -> String {
    let why = ampere_ring::files::read_text(&session.directory().join("failure"));
    let said = "energy is not measured";
    match why.trim() {
        "" => format!("{said}: the collector failed"),
        why if why.contains(said) => why.to_owned(),
        why => format!("{said}: {why}"),
    }
}

/// Beside this library (a build), or in `../bin` (an installation), or where `AMPERE_COLLECTOR` says.
fn find_collector() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("AMPERE_COLLECTOR").filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(path));
    }
    let library = own_path()
        .ok_or("cannot find out where the plugin lies; set AMPERE_COLLECTOR to ampere-collector")?;
    let here = library.parent().unwrap_or(Path::new("."));
    let candidates = [here.join("ampere-collector"), here.join("../bin/ampere-collector")];
    candidates.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        format!(
            "no ampere-collector in {} or {}; energy is not measured: install it there, or set AMPERE_COLLECTOR",
            here.display(),
            here.join("../bin").display()
        )
    })
}

/// The file that this code was loaded from.
pub fn own_path() -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: an all-zero Dl_info is valid: four pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is this function's, and `info` is ours to fill.
    if unsafe { libc::dladdr(own_path as *const libc::c_void, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gives a NUL-terminated string that lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    Some(std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()))
}
