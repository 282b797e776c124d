//! Mapped files: the only place that makes, opens and maps them.
//!
//! Space is allocated when a file is made, so that a full tmpfs causes an error and not a SIGBUS later; the size is checked when
//! a file is opened. If a user truncates a file of their own while it is mapped, the process is killed by SIGBUS (SECURITY.md).

use crate::cgroup;
use crate::error::Error;
use ampere_signal_safety::without_write_signals;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A file, mapped as a whole.
pub(crate) struct Mapping(MmapRaw);

impl Mapping {
    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    #[inline(always)]
    pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Removes the pages from byte `from` onwards, rounded up to a page, from this process' memory. They stay in the file, and
    /// come back when touched.
    pub(crate) fn release_pages(&self, from: usize) {
        let (start, bytes) = (self.0.as_mut_ptr(), self.0.len());
        // The call takes whole pages, which are larger than a header on some AArch64 systems.
        let from = from.next_multiple_of(rustix::param::page_size());
        if from < bytes {
            // SAFETY: within the mapping, which is shared with a file, so that no written byte is lost. Failure costs memory
            // only.
            let _ = unsafe {
                rustix::mm::madvise(start.add(from).cast(), bytes - from, rustix::mm::Advice::LinuxDontNeed)
            };
        }
    }
}

/// Returns the number of free bytes in the file system of a directory; `u64::MAX` if it is not known.
pub(crate) fn free_bytes(directory: &Path) -> u64 {
    rustix::fs::statvfs(directory).map_or(u64::MAX, |system| free(&system))
}

/// Returns the free bytes of a file system. A tmpfs without a limit reports no blocks.
fn free(system: &rustix::fs::StatVfs) -> u64 {
    if system.f_blocks == 0 { u64::MAX } else { system.f_bavail.saturating_mul(system.f_frsize) }
}

/// The number of bytes that must stay free when a file is made.
#[derive(Clone, Copy, Debug)]
pub struct Headroom {
    /// The bytes that stay free in the file system.
    pub file_system: u64,
    /// The bytes that stay free of the memory that the job may use.
    pub job: u64,
}

impl Headroom {
    /// A file may take all the space.
    pub const NONE: Headroom = Headroom { file_system: 0, job: 0 };
}

/// Makes a file of `bytes` allocated bytes, mode 0600. It must not exist.
pub(crate) fn create(path: &Path, bytes: u64, headroom: Headroom) -> Result<Mapping, Error> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd =
        rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|e| Error::io("create", path, e))?;
    // An allocation that fails in the end would leave other programs without memory for a moment.
    let room = rustix::fs::fstatvfs(&fd).map_or(u64::MAX, |system| free(&system));
    let job_room = if headroom.job > 0 { cgroup::bytes_left() } else { u64::MAX };
    let is_room =
        room >= bytes.saturating_add(headroom.file_system) && job_room >= bytes.saturating_add(headroom.job);
    let room = if is_room { Ok(()) } else { Err(rustix::io::Errno::NOSPC) };
    let given = room.and_then(|()| without_write_signals(|| allocate(&fd, bytes)));
    let given = given.map_err(|errno| match errno {
        rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT | rustix::io::Errno::FBIG => {
            Error::NoSpace { path: path.to_owned(), bytes }
        }
        other => Error::io("allocate", path, other),
    });
    let mapped = given.and_then(|()| map(fd, path, bytes));
    if mapped.is_err() {
        let _ = rustix::fs::unlink(path);
    }
    mapped
}

/// Allocates in pieces, because many kernels undo a call that a signal interrupts, and a timer's signals may come faster than
/// a large file can be allocated.
fn allocate(fd: &OwnedFd, bytes: u64) -> Result<(), rustix::io::Errno> {
    const PIECE: u64 = 256 << 10;
    const PAGE: u64 = 4096;
    rustix::fs::ftruncate(fd, bytes)?;
    let (mut at, mut piece) = (0, PIECE);
    while at < bytes {
        match rustix::fs::fallocate(fd, FallocateFlags::empty(), at, piece.min(bytes - at)) {
            Ok(()) => at += piece,
            // A single page can be allocated between two signals.
            Err(rustix::io::Errno::INTR) => piece = (piece / 2).max(PAGE),
            // A spool, in which a session is made to recover a killed run, may be on a file system without fallocate (such as NFS
            // before 4.2).
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                return write_zeros(fd, at, bytes);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Allocates space by writing zeros.
fn write_zeros(fd: &OwnedFd, from: u64, end: u64) -> Result<(), rustix::io::Errno> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut at = from;
    while at < end {
        let piece = &ZEROS[..(ZEROS.len() as u64).min(end - at) as usize];
        match rustix::io::retry_on_intr(|| rustix::io::pwrite(fd, piece, at))? {
            0 => return Err(rustix::io::Errno::NOSPC),
            written => at += written as u64,
        }
    }
    Ok(())
}

/// Opens and maps an existing file of at least `least` bytes.
pub(crate) fn open(path: &Path, least: u64) -> Result<Mapping, Error> {
    let (fd, bytes) = open_ours(path, OFlags::RDWR)?;
    if bytes < least {
        return Err(Error::malformed(path, format!("{bytes} bytes, at least {least} expected")));
    }
    map(fd, path, bytes)
}

/// Maps memory of this process alone; the path is used in messages only.
pub(crate) fn anonymous(path: &Path, bytes: u64) -> Result<Mapping, Error> {
    let length =
        usize::try_from(bytes).map_err(|_| Error::malformed(path, "larger than the address space"))?;
    let map = MmapOptions::new().len(length).map_anon().map_err(|e| Error::io("map", path, e))?;
    Ok(Mapping(MmapRaw::from(map)))
}

/// Opens an existing file of this user and returns its size in bytes. Refuses links, pipes and files of other users.
pub(crate) fn open_ours(path: &Path, access: OFlags) -> Result<(OwnedFd, u64), Error> {
    let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| Error::io("open", path, e))?;
    let found = rustix::fs::fstat(&fd).map_err(|e| Error::io("look at", path, e))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(Error::NotOurs { path: path.to_owned(), why: "is not a regular file" });
    }
    if found.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Error::NotOurs { path: path.to_owned(), why: "belongs to another user" });
    }
    Ok((fd, found.st_size as u64))
}

fn map(fd: OwnedFd, path: &Path, bytes: u64) -> Result<Mapping, Error> {
    let length =
        usize::try_from(bytes).map_err(|_| Error::malformed(path, "larger than the address space"))?;
    let map =
        MmapOptions::new().len(length).map_raw(&File::from(fd)).map_err(|e| Error::io("map", path, e))?;
    Ok(Mapping(map))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_fallocate_every_byte_is_written() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let bytes = 3 * 4096 + 17;
        let from = 5;
        std::fs::write(&path, vec![1; bytes]).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        write_zeros(&file.into(), from as u64, bytes as u64).unwrap();
        let found = std::fs::read(&path).unwrap();
        assert!(
            found.len() == bytes && found[..from] == [1; 5] && found[from..].iter().all(|byte| *byte == 0)
        );
    }
}
