//! The errors. Each is one line: what, where, and what to do about it if that is known.

use crate::table::LocationRef;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// An error of writing or reading an archive.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The file or directory does not exist.
    NotFound(PathBuf),
    /// The directory has an archive already, or a part of one.
    Exists(PathBuf),
    /// The file is not an OTF2 anchor file.
    #[allow(missing_docs)]
    NotOtf2 { path: PathBuf, reason: String },
    /// A file of the archive is missing, cut short or inconsistent, and nothing can be read without it.
    #[allow(missing_docs)]
    Damaged { path: PathBuf, reason: String },
    /// The operating system refused what was being done to a file.
    #[allow(missing_docs)]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// OTF2 refused what was being done.
    #[allow(missing_docs)]
    Otf2 { doing: String, source: Otf2Error },
    /// The definitions contradict each other or cannot be written, for this reason.
    Definitions(String),
    /// The location has been written already, or is being written.
    LocationTaken(LocationRef),
    /// Reading needs one open file for each location, and that is more than the process may have.
    #[allow(missing_docs)]
    TooManyFiles { locations: usize },
    /// A metric event has more values than OTF2 can record.
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotFound(path) => write!(f, "{}: no such file or directory", path.display()),
            Error::Exists(path) => {
                write!(f, "{}: already exists; remove it or write to another directory", path.display())
            }
            Error::NotOtf2 { path, reason } => {
                write!(f, "{}: not an OTF2 anchor file (traces.otf2): {reason}", path.display())
            }
            Error::Damaged { path, reason } => write!(f, "{}: {reason}", path.display()),
            Error::Io { doing, path, source } => write!(f, "{}: cannot {doing}: {source}", path.display()),
            Error::Otf2 { doing, source } => write!(f, "cannot {doing}: {source}"),
            Error::Definitions(what) => write!(f, "cannot write the definitions: {what}"),
            Error::LocationTaken(location) => {
                write!(f, "location {location} already has an event writer; a location is written once")
            }
            Error::TooManyFiles { locations } => write!(
                f,
                "cannot read {locations} locations at once: too many open files; raise the limit (ulimit -n {})",
                locations + 64
            ),
            Error::TooManyValues(values) => {
                write!(
                    f,
                    "a metric event of {values} values: OTF2 records at most 255, split the metric class"
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::Otf2 { source, .. } => Some(source),
            _ => None,
        }
    }
}
