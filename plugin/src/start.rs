//! Starting the node's collector, once.

use ampere_ring::{CollectorState, Session};
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the first process of a node waits for its collector to be ready. It takes some 10 ms.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Makes sure that a collector runs. The error is one line: why, and what to do.
pub fn ensure_collector(session: &Session) -> Result<(), String> {
    let _lock = session.lock_start().map_err(|e| e.to_string())?;
    if session.collector_is_alive() {
        return Ok(());
    }
    match session.collector_state() {
        CollectorState::Failed => return Err(failure(session)),
        CollectorState::Finished => return Err("this job's collector has already finished".to_owned()),
        _ => {}
    }
    let collector = find_collector()?;
    // With --detach it starts the collector proper and returns, so that the job gets no child that it did not make.
    let status = Command::new(&collector)
        .arg("--detach")
        .arg("--session")
        .arg(session.directory())
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|e| format!("cannot start {}: {e}; energy is not measured", collector.display()))?;
    let begun = Instant::now();
    while begun.elapsed() < START_LIMIT {
        match session.collector_state() {
            CollectorState::Running => return Ok(()),
            CollectorState::Failed => return Err(failure(session)),
            _ if !status.success() => break,
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(format!("{} did not start ({status}); energy is not measured", collector.display()))
}

/// What the collector left behind when it gave up.
fn failure(session: &Session) -> String {
    let why = std::fs::read_to_string(session.directory().join("failure"));
    why.map_or_else(
        |_| "the collector failed; energy is not measured".to_owned(),
        |why| why.trim().to_owned(),
    )
}

/// Beside this library (a build), or in `../bin` (an installation), or where `AMPERE_COLLECTOR` says.
fn find_collector() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("AMPERE_COLLECTOR") {
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
