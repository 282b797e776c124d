//! Reads files of any user.

use crate::{Refusal, held};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

/// Reads a regular file of at most `bytes_max` bytes, whoever owns it. A pipe or a device is not opened, because opening can
/// block, or rewind a tape.
///
/// # Errors
/// [`Refusal::NoRegularFile`], [`Refusal::TooLarge`], or the file system's error.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let (file, size) = open(path)?;
    let too_large = || Err(Refusal::TooLarge { path: path.to_owned(), bytes_max }.into());
    if size > bytes_max {
        return too_large();
    }
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { too_large() } else { Ok(bytes) }
}

/// Reads the first bytes of a regular file of any user, at most `bytes_max`.
///
/// # Errors
/// [`Refusal::NoRegularFile`], or the file system's error.
pub fn read_beginning(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.0.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let check = |found: &Stat| match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(io::Error::from(Refusal::NoRegularFile(path.to_owned()))),
    };
    // If a directory above the path is held, the file is read from there, because it would be written there, too.
    let held = held::covering(path);
    let (directory, path) = match &held {
        Some((directory, rest)) => (directory.as_fd(), rest.as_path()),
        None => (CWD, path),
    };
    check(&rustix::fs::statat(directory, path, AtFlags::empty())?)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(directory, path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&file)?;
    check(&found)?;
    Ok((file.into(), found.st_size as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal;

    #[test]
    fn only_regular_files_up_to_a_limit_are_read() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        assert_eq!(read(&at("file"), 4).unwrap(), b"text");
        assert_eq!(read_beginning(&at("file"), 2).unwrap(), b"te");
        assert!(matches!(refusal(&read(&at("file"), 3).unwrap_err()), Some(Refusal::TooLarge { .. })));
        File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
        assert!(read(&at("huge"), 1 << 20).is_err());
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, mode, 0).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("endless")).unwrap();
        for name in ["pipe", "endless", "."] {
            let why = read(&at(name), 10).unwrap_err();
            assert!(matches!(refusal(&why), Some(Refusal::NoRegularFile(_))), "{name}: {why}");
        }
    }
}
