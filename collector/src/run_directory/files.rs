//! The names of a run's files, and how they are written: completely or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that could not be written, as a message of one line.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {why}", .path.display())]
pub struct WriteError {
    path: PathBuf,
    why: io::Error,
}

impl WriteError {
    /// Makes an error: `path` could not be written.
    pub fn new(path: &Path, why: io::Error) -> WriteError {
        WriteError { path: path.to_owned(), why }
    }

    /// Whether another process writes the same file at this moment.
    pub fn is_busy(&self) -> bool {
        self.why.kind() == io::ErrorKind::ResourceBusy
    }
}

/// The name of a run's [`Manifest`](crate::run_directory::manifest::Manifest) in its spool.
pub const MANIFEST: &str = "run.json";
/// The mode of files that only this user may read.
pub const PRIVATE_FILE_MODE: u32 = 0o600;
/// The mode of results, which others may be meant to read. The umask removes some of it.
pub const RESULT_MODE: u32 = 0o666;

/// Writes a result into a run's directory, completely or not at all, with the mode that the umask leaves.
pub fn write_result(path: &Path, content: impl AsRef<[u8]>) -> Result<(), WriteError> {
    write_result_with(path, |file| file.write_all(content.as_ref()))
}

/// Like [`write_result`], for content that is written while it is made.
pub fn write_result_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), WriteError> {
    ampere_owned::replace(path, RESULT_MODE, write).map_err(|why| WriteError::new(path, why))
}

/// Writes a file that only this user may read into a run's directory, completely or not at all.
pub fn write_result_privately(path: &Path, text: &str) -> Result<(), WriteError> {
    ampere_owned::replace(path, PRIVATE_FILE_MODE, |file| file.write_all(text.as_bytes()))
        .map_err(|why| WriteError::new(path, why))
}

/// Writes a file whose name the user has given, in any directory, completely or not at all.
pub fn write_named_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), WriteError> {
    ampere_owned::replace_named(path, RESULT_MODE, write).map_err(|why| WriteError::new(path, why))
}

/// Makes a file name of the name of a node or run: other characters than letters, digits and `._-` are replaced.
pub fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = name.chars().map(plain).collect();
    let name = name.trim_start_matches('.');
    if name.is_empty() { "node".to_owned() } else { name.to_owned() }
}
