//! An open directory, and the operations on its entries.

use crate::held::{self, Held};
use crate::{Refusal, own_user};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// The maximum number of links that are followed, as in the kernel.
const LINKS_MAX: u32 = 40;
const TO_WALK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open directory. Its path may later lead to another directory; this value always refers to the one that was opened.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    /// The path by which it was opened, for messages.
    path: PathBuf,
}

impl Directory {
    /// Opens a directory of any user. The path may lead through links of this user and of root.
    ///
    /// # Errors
    /// [`Refusal::LinkOfAnother`], or the file system's error.
    pub fn open(path: &Path) -> io::Result<Directory> {
        let whole = path;
        let (fd, rest) = match held::covering(path) {
            Some((fd, rest)) => (fd, rest),
            None => (start_of(path)?, path.to_owned()),
        };
        let fd = if rest.as_os_str().is_empty() { fd } else { below(fd, &rest, whole)? };
        Ok(Directory { fd, path: path.to_owned() })
    }

    /// Returns the directory that is held under exactly this path.
    pub(crate) fn held(path: &Path) -> Option<Directory> {
        let (fd, _) = held::covering(path).filter(|(_, rest)| rest.as_os_str().is_empty())?;
        Some(Directory { fd, path: path.to_owned() })
    }

    /// Opens a directory that must belong to this user.
    ///
    /// # Errors
    /// A [`Refusal`], or the file system's error.
    pub fn own(path: &Path) -> io::Result<Directory> {
        let directory = Directory::open(path)?;
        let found = directory.stat()?;
        match found.st_uid {
            owner if owner == own_user() => Ok(directory),
            owner => Err(Refusal::OfAnother { path: path.to_owned(), owner }.into()),
        }
    }

    /// Opens a directory that must belong to this user and must not be writable for others, so that only this user can have put
    /// anything there.
    ///
    /// # Errors
    /// A [`Refusal`], or the file system's error.
    pub fn own_alone(path: &Path) -> io::Result<Directory> {
        let directory = Directory::own(path)?;
        let mode = directory.stat()?.st_mode & 0o7777;
        match mode & 0o022 {
            0 => Ok(directory),
            _ => Err(Refusal::OpenToOthers { path: path.to_owned(), mode }.into()),
        }
    }

    /// Returns the path by which the directory was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory's owner, mode and inode.
    ///
    /// # Errors
    /// The file system's error.
    pub fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(&self.fd)?)
    }

    /// Whether other users can rename entries of the directory: its owner can, and without the sticky bit all users who may
    /// write to it.
    ///
    /// # Errors
    /// The file system's error.
    pub fn others_may_rename(&self) -> io::Result<bool> {
        let found = self.stat()?;
        let is_anothers = ![0, own_user()].contains(&found.st_uid);
        Ok(is_anothers || (found.st_mode & 0o022 != 0 && found.st_mode & 0o1000 == 0))
    }

    /// Returns the target of a link in the directory; `None` if there is no link with this name. The link must belong to this
    /// user or to root.
    ///
    /// # Errors
    /// [`Refusal::LinkOfAnother`], or the file system's error.
    pub fn follow(&self, name: &OsStr) -> io::Result<Option<PathBuf>> {
        match self.look(name) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Ok(found) if FileType::from_raw_mode(found.st_mode) != FileType::Symlink => Ok(None),
            _ => link_in(&self.fd, name, &self.path.join(name), Errno::NOTDIR).map(Some),
        }
    }

    /// Returns a path by which libraries that accept only paths reach exactly this directory while it is open. Without
    /// /proc, it is the directory's own path.
    pub fn through_proc(&self) -> PathBuf {
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()));
        let is_it = |found: Stat| self.stat().is_ok_and(|own| same(&own, &found));
        if rustix::fs::stat(&path).is_ok_and(is_it) { path } else { self.path.clone() }
    }

    /// Returns the status of a name in the directory. A link is not followed.
    ///
    /// # Errors
    /// The name does not exist.
    pub fn look(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Makes a file that must not exist.
    ///
    /// # Errors
    /// The file system's error.
    pub fn create(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Removes a file or a link.
    ///
    /// # Errors
    /// The file system's error.
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Returns the names in the directory.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        // The directory is opened again, because its descriptor may have been opened with O_PATH.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let readable = rustix::fs::openat(&self.fd, c".", flags, Mode::empty())?;
        for entry in rustix::fs::Dir::new(readable)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// Opens a subdirectory, which must belong to this user and must not be a link.
    pub(crate) fn own_below(&self, name: &OsStr) -> io::Result<Directory> {
        let path = self.path.join(name);
        let fd = rustix::fs::openat(&self.fd, name, TO_WALK, Mode::empty())?;
        let directory = Directory { fd, path };
        match directory.stat()?.st_uid {
            owner if owner == own_user() => Ok(directory),
            owner => Err(Refusal::OfAnother { path: directory.path, owner }.into()),
        }
    }

    /// Removes the contents of the directory: files, links themselves, and directories of this user with their contents.
    /// Continues after an error, and returns the first.
    ///
    /// # Errors
    /// The file system's error, or a [`Refusal`] for a directory of another user.
    pub fn remove_contents(&self) -> io::Result<()> {
        let mut first = Ok(());
        for name in self.names()? {
            let removed = match self.remove_file(&name) {
                Err(why) if is_of_a_directory(&why) => self.remove_tree(&name),
                removed => removed,
            };
            if first.is_ok() && !removed.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::NotFound) {
                first = removed;
            }
        }
        first
    }

    /// Removes a subdirectory with its contents.
    pub(crate) fn remove_tree(&self, name: &OsStr) -> io::Result<()> {
        let below = self.own_below(name)?;
        let emptied = below.remove_contents();
        emptied.and(self.remove_emptied(name, &below))
    }

    /// Removes a directory that was emptied through its descriptor, if its name still leads to it.
    pub(crate) fn remove_emptied(&self, name: &OsStr, emptied: &Directory) -> io::Result<()> {
        if !same(&self.look(name)?, &emptied.stat()?) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }
}

/// Holds a directory of this user. Returns its path without links, under which it is held.
///
/// # Errors
/// Those of [`Directory::own`]; or an error if another directory is being put in its place.
pub fn hold(path: &Path) -> io::Result<(PathBuf, Held)> {
    let directory = Directory::own(path)?;
    let real = std::fs::canonicalize(path)?;
    if !rustix::fs::stat(&real).is_ok_and(|found| directory.stat().is_ok_and(|own| same(&own, &found))) {
        return Err(io::Error::other(format!("{} is being replaced", path.display())));
    }
    let held = Held::new(&real, directory.fd);
    Ok((real, held))
}

/// Holds the directory that is now at a path, in place of one that was held under that path and is no longer there.
///
/// # Errors
/// Those of [`Directory::own`].
pub fn hold_anew(path: &Path) -> io::Result<Held> {
    held::detach(path);
    Ok(hold(path)?.1)
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether both are the same file.
pub(crate) fn same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Whether unlinking failed because the name is a directory. Linux reports EISDIR, POSIX also allows EPERM.
fn is_of_a_directory(why: &io::Error) -> bool {
    [Errno::ISDIR, Errno::PERM].iter().any(|of| why.raw_os_error() == Some(of.raw_os_error()))
}

fn start_of(path: &Path) -> io::Result<OwnedFd> {
    let start = if path.is_absolute() { c"/" } else { c"." };
    Ok(rustix::fs::openat(CWD, start, TO_WALK, Mode::empty())?)
}

/// Opens the directory at a path below an open one. It takes one call if there is no link on the way and the kernel has openat2;
/// otherwise the path is followed step by step.
fn below(start: OwnedFd, path: &Path, whole: &Path) -> io::Result<OwnedFd> {
    let relative: PathBuf = path.components().filter(|part| *part != Component::RootDir).collect();
    if relative.as_os_str().is_empty() {
        return Ok(start);
    }
    let no_links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(&start, &relative, TO_WALK, Mode::empty(), no_links)
        .or_else(|_| walk(start, &relative, whole))
}

fn walk(start: OwnedFd, path: &Path, whole: &Path) -> io::Result<OwnedFd> {
    let mut at = start;
    let mut links = 0;
    let mut to_go: Vec<OsString> = parts(path);
    while let Some(part) = to_go.pop() {
        if part == "/" {
            at = rustix::fs::openat(CWD, c"/", TO_WALK, Mode::empty())?;
            continue;
        }
        at = match rustix::fs::openat(&at, &part, TO_WALK, Mode::empty()) {
            Ok(next) => next,
            Err(why @ (Errno::NOTDIR | Errno::LOOP)) => {
                to_go.extend(parts(&link_in(&at, &part, whole, why)?));
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                at
            }
            Err(why) => return Err(why.into()),
        };
    }
    Ok(at)
}

/// Returns the target of a link, which must belong to this user or to root.
fn link_in(at: &OwnedFd, name: &OsStr, whole: &Path, why: Errno) -> io::Result<PathBuf> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = rustix::fs::openat(at, name, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&link)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
        return Err(why.into());
    }
    if ![0, own_user()].contains(&found.st_uid) {
        return Err(Refusal::LinkOfAnother { path: whole.to_owned(), owner: found.st_uid }.into());
    }
    let target = rustix::fs::readlinkat(&link, c"", Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
}

/// Returns the parts of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let mut parts: Vec<OsString> = path.components().map(|part| part.as_os_str().to_owned()).collect();
    parts.reverse();
    parts
}
