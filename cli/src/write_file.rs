//! Writes a report to a file that the user has named.

use ampere_collector::run_directory::files::write_named_with;
use anyhow::Context;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes a file completely or not at all. But anything that is not a regular file, and a file to which a link leads, is written
/// to in place, and is not replaced.
pub fn write_to(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let there = std::fs::symlink_metadata(path).ok();
    if there.is_none_or(|there| there.is_file() || there.is_dir()) {
        return write_named_with(path, |file| write(file)).map_err(anyhow::Error::new);
    }
    let open = |leads_to_descriptor| {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
        Ok((file, leads_to_descriptor))
    };
    let written = leads_to_descriptor(path).and_then(open).and_then(|(file, leads_to_descriptor)| {
        if file.metadata()?.is_file() && !leads_to_descriptor {
            file.set_len(0)?;
        }
        let mut file = BufWriter::with_capacity(1 << 16, file);
        write(&mut file)?;
        file.flush()
    });
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Whether a path leads to a descriptor, as /dev/stdout does: the existing content of its file must not be removed. Links of
/// other users are refused.
fn leads_to_descriptor(path: &Path) -> io::Result<bool> {
    let mut at = path.to_owned();
    for _ in 0..40 {
        // A file in /dev/shm is not a device: every user may put files there.
        if at.starts_with("/proc") || at.starts_with("/dev") && !at.starts_with("/dev/shm") {
            return Ok(true);
        }
        let Some(name) = at.file_name() else { return Ok(false) };
        let above = at.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match ampere_owned::Directory::open(above)?.follow(name)? {
            Some(next) => at = above.join(next),
            None => return Ok(false),
        }
    }
    Ok(true)
}
