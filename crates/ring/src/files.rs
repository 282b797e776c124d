//! Small files that are this user's alone: what a session's processes leave for each other beside rings and logs.

use crate::mapping;
use ampere_signal_safety::without_write_signals;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// What is read of such a file.
const MOST_BYTES: u64 = 64 << 10;

/// A new file, mode 0600, in the place of one that is there. Nothing that lies there is followed or written to.
pub fn create_private(path: &Path) -> io::Result<File> {
    create(path, Mode::RUSR | Mode::WUSR)
}

/// The same with the mode that the user's umask leaves: for results, which others may be meant to read.
pub fn create_shared(path: &Path) -> io::Result<File> {
    create(path, Mode::from_raw_mode(0o666))
}

/// One that is there is gone on with, if it is ours: a log that several processes write to, one after the other.
pub fn append_private(path: &Path) -> io::Result<File> {
    match mapping::open_ours(path, OFlags::WRONLY | OFlags::APPEND) {
        Ok((file, _)) => Ok(file.into()),
        Err(_) => create_private(path),
    }
}

fn create(path: &Path, mode: Mode) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, mode)?.into())
}

pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = create_private(path)?;
    without_write_signals(|| file.write_all(text.as_bytes()))
}

/// The same, whole or not at all.
pub fn replace_private(path: &Path, text: &str) -> io::Result<()> {
    let making = path.with_extension("part");
    write_private(&making, text)?;
    std::fs::rename(&making, path)
}

/// The beginning of a text that was left so, fit to print: empty where there is none.
pub fn read_text(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok((file, _)) = mapping::open_ours(path, OFlags::RDONLY) {
        let _ = File::from(file).take(MOST_BYTES).read_to_end(&mut bytes);
    }
    let fit = |c: char| if c.is_control() && c != '\n' { '\u{fffd}' } else { c };
    String::from_utf8_lossy(&bytes).chars().map(fit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn nothing_is_followed_and_nothing_is_open_to_others() {
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
        assert_eq!(read_text(&pipe), "", "nobody is waited for");
        create_shared(&path).unwrap();
        assert_eq!(read_text(&path), "");
    }
}
