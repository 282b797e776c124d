//! Files that are there whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

pub fn write_whole(path: &Path, text: &str) -> Result<(), String> {
    write_whole_bytes(path, text.as_bytes())
}

pub fn write_whole_bytes(path: &Path, bytes: &[u8]) -> Result<(), String> {
    write_whole_with(path, |file| file.write_all(bytes))
}

/// What a file is called until it is whole: nobody else's file is called so.
fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".ampere-{name}.part"))
}

/// A file that is there whole or not at all.
pub fn write_whole_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), String> {
    let making = unfinished(path);
    let written = ampere_ring::files::create_shared(&making).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.flush()
    });
    written.and_then(|()| std::fs::rename(&making, path)).map_err(|e| {
        let _ = std::fs::remove_file(&making);
        format!("cannot write {}: {e}", path.display())
    })
}
