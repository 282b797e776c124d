//! Files in tmpfs, mapped. The one place that makes and opens them.

use crate::error::Error;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Makes a file (it must not exist) of `bytes`, really allocated, mode 0600.
pub(crate) fn create(path: &Path, bytes: u64) -> Result<MmapRaw, Error> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd =
        rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|e| Error::io("create", path, e))?;
    let given = rustix::fs::ftruncate(&fd, bytes)
        .and_then(|()| rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, bytes));
    if let Err(errno) = given {
        let _ = rustix::fs::unlink(path);
        return Err(match errno {
            rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT => {
                Error::NoSpace { path: path.to_owned(), bytes }
            }
            other => Error::io("allocate", path, other),
        });
    }
    map(fd, path, bytes)
}

/// Opens an existing file and maps all of it. `least` is the smallest size that makes sense.
pub(crate) fn open(path: &Path, least: u64) -> Result<MmapRaw, Error> {
    let (fd, bytes) = open_ours(path, OFlags::RDWR)?;
    if bytes < least {
        return Err(Error::malformed(path, format!("{bytes} bytes, at least {least} expected")));
    }
    map(fd, path, bytes)
}

/// Opens an existing file of this user's, and says how long it is. Nothing else is followed, waited for or believed: no link,
/// no pipe, nothing that somebody else put there.
pub(crate) fn open_ours(path: &Path, access: OFlags) -> Result<(OwnedFd, u64), Error> {
    let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| Error::io("open", path, e))?;
    let found = rustix::fs::fstat(&fd).map_err(|e| Error::io("look at", path, e))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(Error::NotOurs { path: path.to_owned(), why: "is no regular file" });
    }
    if found.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Error::NotOurs { path: path.to_owned(), why: "belongs to somebody else" });
    }
    Ok((fd, found.st_size as u64))
}

fn map(fd: OwnedFd, path: &Path, bytes: u64) -> Result<MmapRaw, Error> {
    let length =
        usize::try_from(bytes).map_err(|_| Error::malformed(path, "larger than the address space"))?;
    MmapOptions::new().len(length).map_raw(&File::from(fd)).map_err(|e| Error::io("map", path, e))
}
