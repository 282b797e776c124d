//! Runs a program as a separate process, and measures its duration, its CPU time and its memory.

use anyhow::{Context, bail};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

pub struct Ran {
    pub seconds: f64,
    pub used: Used,
    pub output: Vec<u8>,
}

/// The resources that a process has used, including those of all children that it has waited for.
pub struct Used {
    pub cpu_seconds: f64,
    /// The peak of resident memory. Pages of files count only if they are mapped; `ampere` and the bare OTF2 reader (`bare.rs`)
    /// map only their code. The kernel starts to count before the program is executed, so this is never less than the peak of
    /// the benchmark process that starts it.
    pub peak_megabytes: f64,
}

/// Runs a command, which must succeed, to its end.
pub fn run(command: &mut Command) -> anyhow::Result<Ran> {
    let mut errors = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors.try_clone()?);
    let begun = Instant::now();
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    let mut output = Vec::new();
    child.stdout.take().context("no pipe")?.read_to_end(&mut output)?;
    let waited = wait(child);
    let seconds = begun.elapsed().as_secs_f64();
    match waited {
        Ok(used) => Ok(Ran { seconds, used, output }),
        Err(error) => {
            let mut message = String::new();
            errors.rewind()?;
            errors.read_to_string(&mut message)?;
            let last = message.trim().lines().last().unwrap_or_default().to_owned();
            Err(error.context(last).context(format!("{command:?}")))
        }
    }
}

pub fn wait(child: Child) -> anyhow::Result<Used> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid, and `status` and `usage` outlive the call. The child has not been waited for, and
    // Child does not wait for it when it is dropped.
    let (waited, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(child.id() as libc::pid_t, &mut status, 0, &mut usage), usage)
    };
    if waited != child.id() as libc::pid_t {
        return Err(std::io::Error::last_os_error().into());
    }
    if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != 0 {
        bail!("it ended with wait status {status:#x}");
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    Ok(Used {
        cpu_seconds: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        // Linux gives the peak in units of 1024 bytes.
        peak_megabytes: usage.ru_maxrss as f64 * 1024.0 / 1e6,
    })
}

/// Returns the path of a program or library that was built with this one.
pub fn sibling(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.parent().unwrap_or(Path::new(".")).join(name)
}

/// Returns the path of the stand-in for librocm_smi64.
pub fn stand_in() -> anyhow::Result<PathBuf> {
    let library = sibling("libstand_in_rocm_smi64.so");
    if !library.exists() {
        bail!("no {}: cargo build --release --workspace", library.display());
    }
    Ok(library)
}

/// Returns the command `ampere attribute` with the default configuration.
pub fn attribute(trace: &Path) -> Command {
    let mut command = Command::new(sibling("ampere"));
    command.arg("attribute").arg(trace).env_remove("AMPERE_CONFIG");
    command
}

/// Returns the free bytes of a directory's file system.
pub fn free_bytes(directory: &Path) -> u64 {
    rustix::fs::statvfs(directory).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize))
}

/// Returns a directory in memory if there is room, on disk otherwise.
pub fn directory(bytes: u64) -> anyhow::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    let place = if free_bytes(memory) > 2 * bytes { memory.to_owned() } else { std::env::temp_dir() };
    Ok(tempfile::tempdir_in(place)?)
}

/// Returns the command that runs a program under `ampere run` in a directory, with the results in `out` there. Removes the
/// previous results.
pub fn ampere_run(place: &Path, program: &Path) -> Command {
    let mut command = Command::new(sibling("ampere"));
    let _ = std::fs::remove_dir_all(place.join("out"));
    command.args(["run", "--listen", "127.0.0.1:0", "-o"]).arg(place.join("out")).arg("--").arg(program);
    command.current_dir(place);
    command
}
