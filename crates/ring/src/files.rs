//! Small files through which the processes of a session exchange information, readable by their user alone.

use crate::mapping;
use ampere_signal_safety::without_write_signals;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The maximum number of bytes that are read from such a file.
const READ_BYTES_MAX: u64 = 64 << 10;

/// Makes a file with mode 0600 and replaces an existing one. Links are not followed.
pub fn create_private(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Opens a file of this user for appending, or makes it: a log that several processes write to, one after the other.
pub fn append_private(path: &Path) -> io::Result<File> {
    match mapping::open_ours(path, OFlags::WRONLY | OFlags::APPEND) {
        Ok((file, _)) => Ok(file.into()),
        Err(_) => create_private(path),
    }
}

/// Writes a file as [`create_private`] makes it.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = create_private(path)?;
    without_write_signals(|| file.write_all(text.as_bytes()))
}

/// Returns the path under which [`ampere_owned::replace`] writes a file before it renames it. Files of users do not have such
/// names.
pub fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".ampere-{name}.part"))
}

/// Like [`write_private`], but the file is never incomplete.
pub fn replace_private(path: &Path, text: &str) -> io::Result<()> {
    without_write_signals(|| ampere_owned::replace(path, 0o600, |file| file.write_all(text.as_bytes())))
}

/// Reads the start of such a file and makes it safe to print. Empty if the file does not exist.
pub fn read_text(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok((file, _)) = mapping::open_ours(path, OFlags::RDONLY) {
        let _ = File::from(file).take(READ_BYTES_MAX).read_to_end(&mut bytes);
    }
    let printable = |c: char| if c.is_control() && c != '\n' { '\u{fffd}' } else { c };
    String::from_utf8_lossy(&bytes).chars().map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn links_are_not_followed_and_files_are_not_open_to_others() {
        let place = tempfile::tempdir().unwrap();
        let (path, precious) = (place.path().join("failure"), place.path().join("precious"));
        std::fs::write(&precious, "mine").unwrap();
        symlink(&precious, &path).unwrap();
        assert_eq!(read_text(&path), "", "a link is not read");
        write_private(&path, "a\x1b[2Jb\nc").unwrap();
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine");
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read_text(&path), "a\u{fffd}[2Jb\nc");
        let pipe = place.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        assert_eq!(read_text(&pipe), "", "a pipe is not waited for");
        replace_private(&path, "new").unwrap();
        assert_eq!(read_text(&path), "new");
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
