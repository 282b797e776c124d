//! What can go wrong with shared memory, each as one line: what, where, what to do.

use std::path::{Path, PathBuf};
use std::{fmt, io};

#[derive(Debug)]
pub enum Error {
    /// The operating system refused.
    Io { what: &'static str, path: PathBuf, source: io::Error },
    /// tmpfs has no room.
    NoSpace { path: PathBuf, bytes: u64 },
    /// The file is not what its name says.
    Malformed { path: PathBuf, why: String },
    /// Something that somebody else owns or may write to, or that is not what it should be.
    NotOurs { path: PathBuf, why: &'static str },
    /// Another live process holds this end of the ring.
    Held { path: PathBuf, by_pid: u32 },
}

impl Error {
    pub(crate) fn io(what: &'static str, path: &Path, source: impl Into<io::Error>) -> Error {
        Error::Io { what, path: path.to_owned(), source: source.into() }
    }

    pub(crate) fn malformed(path: &Path, why: impl Into<String>) -> Error {
        Error::Malformed { path: path.to_owned(), why: why.into() }
    }
}

impl Error {
    /// It is this process that has no more descriptors or memory: others may have.
    pub fn is_a_limit(&self) -> bool {
        let limits =
            [rustix::io::Errno::MFILE, rustix::io::Errno::NOMEM].map(rustix::io::Errno::raw_os_error);
        matches!(self, Error::Io { source, .. } if source.raw_os_error().is_some_and(|code| limits.contains(&code)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { what, path, source } => write!(f, "cannot {what} {}: {source}", path.display()),
            Error::NoSpace { path, bytes } => write!(
                f,
                "no room for {bytes} bytes at {}: free some of that file system, give the job more memory, raise ulimit -f, or set AMPERE_RING_BYTES lower",
                path.display()
            ),
            Error::Malformed { path, why } => {
                write!(f, "{} is no file of this ampere: {why}", path.display())
            }
            Error::NotOurs { path, why } => {
                write!(f, "{} {why}: remove it, or set AMPERE_SHM to a directory of your own", path.display())
            }
            Error::Held { path, by_pid } => write!(f, "{} is in use by process {by_pid}", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
