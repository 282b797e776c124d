//! The errors of shared memory. Each text is one line: the problem, the place, and the solution.

use std::io;
use std::path::{Path, PathBuf};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused a request.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    /// The file system or the job has no room for this many bytes.
    #[error(
        "no room for {bytes} bytes at {}: free some of that file system, give the job more memory, raise ulimit -f, or set AMPERE_RING_BYTES lower",
        .path.display()
    )]
    NoSpace { path: PathBuf, bytes: u64 },
    /// The file does not have the format that its name implies.
    #[error("{} is not a file of this version of ampere: {why}", .path.display())]
    Malformed { path: PathBuf, why: String },
    /// Another user owns the file or may write to it, or it is not of the expected kind.
    #[error("{} {why}: remove it, or set AMPERE_SHM to a directory of your own", .path.display())]
    NotOurs { path: PathBuf, why: &'static str },
    /// Another user can replace what is in the root of shared memory.
    #[error("{} {why}: set AMPERE_SHM to a directory of your own", .path.display())]
    UnsafeRoot { path: PathBuf, why: &'static str },
    /// Another live process holds this end of the ring.
    #[error("{} is in use by process {by_pid}", .path.display())]
    Held { path: PathBuf, by_pid: u32 },
}

impl Error {
    pub(crate) fn io(what: &'static str, path: &Path, source: impl Into<io::Error>) -> Error {
        Error::Io { what, path: path.to_owned(), source: source.into() }
    }

    pub(crate) fn malformed(path: &Path, why: impl Into<String>) -> Error {
        Error::Malformed { path: path.to_owned(), why: why.into() }
    }

    /// Whether this process has no descriptors or no memory left, while other processes may have.
    pub fn is_a_limit(&self) -> bool {
        let limits =
            [rustix::io::Errno::MFILE, rustix::io::Errno::NOMEM].map(rustix::io::Errno::raw_os_error);
        matches!(self, Error::Io { source, .. } if source.raw_os_error().is_some_and(|code| limits.contains(&code)))
    }
}
