//! Checks the space on the disk that the results go to, which the job's own output may share. A trace must not fill it: recording
//! for the trace ends while there is still space to write it, and figures are still collected. Limits that cannot be seen in
//! advance (a quota) are covered by a reserve that is kept for the summary.

use crate::run_directory::files::PRIVATE_FILE_MODE;
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The size of the reserve for the summary.
const RESERVE_BYTES: u64 = 2 << 20;
const RESERVE: &str = "reserve";
/// The space that is left to others, but at most a twentieth of the file system.
const LEFT_TO_OTHERS_BYTES: u64 = 64 << 20;

/// The size of a file system and its free space.
#[derive(Clone, Copy)]
pub struct Room {
    /// Free bytes of the file system.
    pub left: u64,
    /// Total bytes of the file system.
    pub all: u64,
}

impl Room {
    /// Returns the bytes that are left to others.
    pub fn left_to_others(self) -> u64 {
        LEFT_TO_OTHERS_BYTES.min(self.all / 20)
    }
}

/// Returns the space of the file system that a directory is in; `None` if it is unknown or unlimited.
pub fn room_in(directory: &Path) -> Option<Room> {
    let system = rustix::fs::statvfs(directory).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(system.f_frsize);
    let room = Room { left: bytes(system.f_bavail), all: bytes(system.f_blocks) };
    (room.all > 0).then_some(room) // a tmpfs without a size limit has none
}

pub struct DiskSpace {
    spool: PathBuf,
    /// The output directory, kept open so that its inode number is not used again.
    output: Option<File>,
    /// Bytes of records at the last check.
    recorded_bytes: Option<u64>,
}

/// Returns the device and inode that identify a file.
fn identity(found: std::io::Result<std::fs::Metadata>) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    found.ok().map(|found| (found.dev(), found.ino()))
}

impl DiskSpace {
    /// Reserves space in the spool. There is no reserve on a file system without enough space or without `fallocate`.
    pub fn reserve(spool: &Path) -> DiskSpace {
        let reserve = spool.join(RESERVE);
        let kept = ampere_owned::create(&reserve, PRIVATE_FILE_MODE).is_ok_and(|file| {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES).is_ok()
        });
        if !kept {
            let _ = ampere_owned::remove_file(&reserve);
        }
        let output = spool.parent().and_then(|output| File::open(output).ok());
        DiskSpace { spool: spool.to_owned(), output, recorded_bytes: None }
    }

    /// Returns the free bytes if they are too few for a trace of this many bytes of records, and `None` otherwise. A trace is
    /// not larger than its records. Until the next check there may be as many new records as since the last one, and each takes
    /// space in the trace and, if the records are in the output directory, in the spool.
    pub fn shortage(&mut self, recorded_bytes: u64, is_spool_here: bool) -> Option<u64> {
        let before = self.recorded_bytes.replace(recorded_bytes).unwrap_or(recorded_bytes);
        let more = recorded_bytes.saturating_sub(before);
        let needed = recorded_bytes.saturating_add(more.saturating_mul(1 + u64::from(is_spool_here)));
        // If the directory is gone, its free space is unknown; open files in it can still be written.
        let room = room_in(&self.spool)?;
        (room.left < needed.saturating_add(room.left_to_others())).then_some(room.left)
    }

    /// Whether the output directory is the same as at the start of the run.
    pub fn is_of(&self, output: &Path) -> bool {
        let before = self.output.as_ref().map(File::metadata);
        before.is_none_or(|before| identity(before) == identity(std::fs::metadata(output)))
    }

    /// Frees the reserve so that the summary can be written.
    pub fn release(&self) {
        release_reserve(&self.spool);
    }
}

/// Frees the reserve in a spool, which a killed collector may have left.
pub fn release_reserve(spool: &Path) {
    let _ = ampere_owned::remove_file(&spool.join(RESERVE));
}
