//! Result files that are there whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that could not be written; in one line.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {why}", .path.display())]
pub struct WriteError {
    path: PathBuf,
    why: io::Error,
}

impl WriteError {
    /// `path` could not be written.
    pub fn new(path: &Path, why: io::Error) -> WriteError {
        WriteError { path: path.to_owned(), why }
    }
}

/// The mode of files for this user alone.
pub const PRIVATE_FILE_MODE: u32 = 0o600;
/// Of results, which others may be meant to read: the umask leaves less of it.
pub const RESULT_MODE: u32 = 0o666;

/// Writes a result into a run's directory, whole or not at all, with the mode that the umask leaves.
pub fn write_result(path: &Path, content: impl AsRef<[u8]>) -> Result<(), WriteError> {
    write_result_with(path, |file| file.write_all(content.as_ref()))
}

/// The same with content that is written as it is made.
pub fn write_result_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), WriteError> {
    ampere_owned::replace(path, RESULT_MODE, write).map_err(|why| WriteError::new(path, why))
}

/// Writes a file for this user alone into a run's directory, whole or not at all.
pub fn write_own_result(path: &Path, text: &str) -> Result<(), WriteError> {
    ampere_owned::replace(path, PRIVATE_FILE_MODE, |file| file.write_all(text.as_bytes()))
        .map_err(|why| WriteError::new(path, why))
}

/// Writes a file whose name the user has given, in any directory.
pub fn write_whole_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), WriteError> {
    ampere_owned::replace_named(path, RESULT_MODE, write).map_err(|why| WriteError::new(path, why))
}
