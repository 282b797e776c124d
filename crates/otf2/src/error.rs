//! The errors. The text of each is one line: the problem, the place, and the solution if it is known.

use crate::table::LocationRef;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// An error of writing or reading an archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // fields: the failed action, the file, and the reason
pub enum Error {
    /// The file or directory does not exist.
    #[error("{}: no such file or directory", .0.display())]
    NotFound(PathBuf),
    /// The directory has an archive already, or a part of one.
    #[error("{}: already exists; remove it or write to another directory", .0.display())]
    Exists(PathBuf),
    /// The file is not an OTF2 anchor file.
    #[error("{}: not an OTF2 anchor file (traces.otf2): {reason}", path.display())]
    NotOtf2 { path: PathBuf, reason: String },
    /// A file of the archive is missing, cut short or inconsistent, and nothing can be read without it.
    #[error("{}: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
    /// The operating system refused an action on a file.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// OTF2 refused an action.
    #[error("cannot {doing}: {source}")]
    Otf2 { doing: String, source: Otf2Error },
    /// The definitions contradict each other or cannot be written, for this reason.
    #[error("cannot write the definitions: {0}")]
    Definitions(String),
    /// The location has been written already, or is being written.
    #[error("location {0} already has an event writer; a location is written once")]
    LocationTaken(LocationRef),
    /// Reading needs one open file for each location, and that is more than the process may have.
    #[error(
        "cannot read {locations} locations at once: too many open files; raise the limit (ulimit -n {})",
        locations + 64
    )]
    TooManyFiles { locations: usize },
    /// A metric event has more values than OTF2 can record.
    #[error("a metric event of {0} values: OTF2 records at most 255, split the metric class")]
    TooManyValues(usize),
}

/// An error of OTF2, with the first message of the failing call, which is the innermost and most precise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otf2Error {
    pub(crate) code: i32,
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Otf2Error {
    /// OTF2's name for the error, such as `INVALID_ARGUMENT`. For an error of the operating system it is a name such as `ENOSPC`
    /// or, with some builds of the library, a number.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether OTF2 refused an argument before it changed anything.
    pub(crate) fn is_refusal(&self) -> bool {
        self.code == otf2_sys::OTF2_ERROR_INVALID_ARGUMENT
    }
}

impl fmt::Display for Otf2Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.parse::<i32>() {
            Ok(number) => write!(f, "{} (os error {number})", self.text),
            Err(_) => write!(f, "{} (OTF2 {})", self.text, self.name),
        }
    }
}

impl std::error::Error for Otf2Error {}
