//! Room on the disk that the results go to. The job's own output goes there too, as like as not: a trace must not be what
//! fills it. So the trace ends while there is still room to write it, and the figures go on. What cannot be seen coming (a
//! quota) is met with some room that is kept for the summary.

use rustix::fs::FallocateFlags;
use std::fs::File;
use std::path::{Path, PathBuf};

/// For the summary, where all else is full.
const RESERVE_BYTES: u64 = 2 << 20;
const RESERVE: &str = "reserve";
/// What is left to others, but no more than a twentieth of the file system.
const LEFT_BYTES: u64 = 64 << 20;

pub struct Room {
    directory: PathBuf,
    /// The directory above it. Open, so that no other gets its inode number.
    output: Option<File>,
    /// Bytes of records when it was last looked at, if it was.
    recorded_bytes: Option<u64>,
}

/// Device and inode.
fn identity(found: std::io::Result<std::fs::Metadata>) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    found.ok().map(|found| (found.dev(), found.ino()))
}

impl Room {
    /// Keeps room in the spool's directory. Where none can be kept, there is none.
    pub fn keep(directory: &Path) -> Room {
        let reserve = directory.join(RESERVE);
        let kept = ampere_ring::files::create_private(&reserve).is_ok_and(|file| {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES).is_ok()
        });
        if !kept {
            let _ = std::fs::remove_file(&reserve);
        }
        let output = directory.parent().and_then(|output| File::open(output).ok());
        Room { directory: directory.to_owned(), output, recorded_bytes: None }
    }

    /// What is left if a trace of that many bytes of records would not find room any more: bytes. Its events take less than
    /// the records do. Until it is looked at again, it may become as many more as since it was last; these take room, and so
    /// will their trace.
    pub fn shortage(&mut self, recorded_bytes: u64) -> Option<u64> {
        let before = self.recorded_bytes.replace(recorded_bytes).unwrap_or(recorded_bytes);
        let more = recorded_bytes.saturating_sub(before);
        let needed = recorded_bytes.saturating_add(more.saturating_mul(2));
        // A directory that is gone has no file system; what is open in it can be written all the same.
        let system = rustix::fs::statvfs(&self.directory).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(system.f_frsize);
        let (left, all) = (bytes(system.f_bavail), bytes(system.f_blocks));
        if all == 0 {
            return None; // a tmpfs without a limit
        }
        (left < needed.saturating_add(LEFT_BYTES.min(all / 20))).then_some(left)
    }

    /// Whether the output directory is the one that it was.
    pub fn is_of(&self, output: &Path) -> bool {
        let before = self.output.as_ref().map(File::metadata);
        before.is_none_or(|before| identity(before) == identity(std::fs::metadata(output)))
    }

    /// The summary is written now.
    pub fn give_back(&self) {
        give_back(&self.directory);
    }
}

/// Takes back what is kept in a spool, also by a collector that was killed.
pub fn give_back(spool: &Path) {
    let _ = std::fs::remove_file(spool.join(RESERVE));
}
