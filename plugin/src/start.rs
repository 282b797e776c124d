//! Starts the node's collector, and finds its program.

use crate::error::Error;
use ampere_ring::Session;
use ampere_ring::start::{self, Purpose};
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes sure that a collector is running: starts the first one, or replaces one that was killed.
pub fn ensure_collector(session: &Session, purpose: Purpose) -> Result<(), Error> {
    start::ensure_collector(session, purpose, &own_command(), || find_collector().map(Command::new))
}

/// This program's command line, for the summary.
fn own_command() -> Vec<OsString> {
    let mut line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    line.pop(); // the NUL at the end
    line.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_owned()).collect()
}

/// Returns the collector's program: the one that `AMPERE_COLLECTOR` names, or the one next to this library (in a build)
/// or in `../../bin` (in an installation).
fn find_collector() -> Result<PathBuf, Error> {
    if let Some(path) = std::env::var_os("AMPERE_COLLECTOR").filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(path));
    }
    let library = own_path().ok_or(Error::OwnPathUnknown)?;
    let here = library.parent().unwrap_or(Path::new("."));
    let candidates = [here.join("ampere-collector"), here.join("../../bin/ampere-collector")];
    let found = candidates.iter().find(|path| path.is_file()).cloned();
    found.ok_or_else(|| Error::NoCollector([here.to_owned(), here.join("../../bin")]))
}

/// Returns the file that this code was loaded from.
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
