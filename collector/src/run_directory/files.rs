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

/// Writes a file, whole or not at all, with the mode that the umask leaves.
pub fn write_whole(path: &Path, content: impl AsRef<[u8]>) -> Result<(), WriteError> {
    write_whole_with(path, |file| file.write_all(content.as_ref()))
}

/// The same with content that is written as it is made.
pub fn write_whole_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), WriteError> {
    ampere_ring::files::replace(path, ampere_ring::files::create_shared, write)
        .map_err(|why| WriteError::new(path, why))
}
