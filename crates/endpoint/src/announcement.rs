//! The file `collector.json` contains the address of a run's collector. It is in the output directory while the run is in
//! progress.
//!
//! The directory may belong to any user and contain anything. So only a short, regular file is read, and the result shows whether
//! this user wrote it. A secret is used only at an address from a file that this user wrote.

use rustix::fs::{FileType, Mode, OFlags, fstat, open, openat};
use rustix::process::geteuid;
use serde::Deserialize;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

pub const FILE: &str = "collector.json";
/// The maximum size of the file. Collectors write less.
const BYTES_MAX: u64 = 16 << 10;

/// The content of `collector.json`, as far as it is read.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Announcement {
    /// The address: `http://127.0.0.1:9977` or `unix:/path`.
    pub url: String,
    #[serde(default)]
    pub node: String,
    /// The id of the collector's run.
    #[serde(default)]
    pub run: String,
    /// The addresses of the collector's node, if the collector listens on all of them.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Whether the file and the directory belong to this user.
    #[serde(skip)]
    pub is_own: bool,
}

impl Announcement {
    /// Reads the announcement in a directory. Returns `None` if there is none, as before and after the run.
    pub fn read(directory: &Path) -> Option<Announcement> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let place = open(directory, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
        // Opening a pipe must not wait for its writer.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = openat(&place, FILE, flags, Mode::empty()).ok()?;
        let (about, of_place) = (fstat(&file).ok()?, fstat(&place).ok()?);
        let is_plain = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
        if !is_plain || about.st_size as u64 > BYTES_MAX {
            return None;
        }
        let mut text = Vec::new();
        std::fs::File::from(file).take(BYTES_MAX).read_to_end(&mut text).ok()?;
        let announcement: Announcement = serde_json::from_slice(&text).ok()?;
        let own = geteuid().as_raw();
        Some(Announcement { is_own: about.st_uid == own && of_place.st_uid == own, ..announcement })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_short_file_is_read() {
        let place = tempfile::tempdir().unwrap();
        let (real, file) = (place.path().join("real"), place.path().join(FILE));
        let read = || Announcement::read(place.path()).map(|found| (found.url, found.is_own));
        assert_eq!(read(), None);
        std::fs::write(&file, r#"{"url":"http://127.0.0.1:1","pid":7,"addresses":["10.0.0.1"]}"#).unwrap();
        assert_eq!(read(), Some(("http://127.0.0.1:1".to_owned(), true)));
        std::fs::rename(&file, &real).unwrap();
        std::os::unix::fs::symlink(&real, &file).unwrap();
        assert_eq!(read(), None, "a link is not followed");
        std::fs::remove_file(&file).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &file, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert_eq!(read(), None, "a pipe is not waited for");
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        assert_eq!(read(), None, "an endless file");
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, format!(r#"{{"url":"{}"}}"#, "x".repeat(BYTES_MAX as usize))).unwrap();
        assert_eq!(read(), None, "a long file");
    }
}
