//! A program as a process of its own: how long it takes, and how much memory.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

pub struct Ran {
    pub seconds: f64,
    /// The most memory that was resident at once. Files that are read count only where they are mapped: of `ampere` and the
    /// C library's reader that is their code. The kernel begins to count before the program is executed, so that it is
    /// never less than this program's own peak.
    pub peak_megabytes: f64,
    pub output: Vec<u8>,
}

/// Runs it to its end, which must be a good one.
#[expect(clippy::zombie_processes, reason = "wait4 waits for it, and says what it used")]
pub fn run(command: &mut Command) -> Ran {
    let begun = Instant::now();
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut output = Vec::new();
    child.stdout.take().expect("a pipe").read_to_end(&mut output).expect("its output");
    let mut status = 0;
    // SAFETY: all bits zero are a good rusage; both outlive the call. The child has not been waited for, and Child does
    // not wait for it when it is dropped.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let waited = libc::wait4(child.id() as libc::pid_t, &mut status, 0, &mut usage);
        assert_eq!(waited, child.id() as libc::pid_t);
        usage
    };
    let seconds = begun.elapsed().as_secs_f64();
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{command:?} fails");
    // Linux gives it in units of 1024 bytes.
    Ran { seconds, peak_megabytes: usage.ru_maxrss as f64 * 1024.0 / 1e6, output }
}

/// A program or library that was built with this one.
pub fn beside(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.parent().unwrap_or(Path::new(".")).join(name)
}

/// `ampere attribute`, with no configuration but the default.
pub fn attribute(trace: &Path) -> Command {
    let mut command = Command::new(beside("ampere"));
    command.arg("attribute").arg(trace).env_remove("AMPERE_CONFIG");
    command
}

/// A directory in memory if there is room, on disk otherwise.
pub fn directory(bytes: u64) -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    let place = if free > 2 * bytes { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::tempdir_in(place).expect("a directory")
}
