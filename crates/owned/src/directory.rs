//! An opened directory.

use crate::{Refusal, held, own_user};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// The kernel follows no more links than this either.
const LINKS_MAX: u32 = 40;
const TO_WALK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory that is open, so that it is the same one for as long as this exists.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    /// For messages.
    path: PathBuf,
}

impl Directory {
    /// Opens a directory of any user. The path may lead through links of this user and of root.
    ///
    /// # Errors
    /// [`Refusal::LinkOfAnother`], or why it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Directory> {
        let whole = path;
        let (fd, rest) = match held::covering(path) {
            Some((fd, rest)) => (fd, rest),
            None => (start_of(path)?, path.to_owned()),
        };
        let fd = if rest.as_os_str().is_empty() { fd } else { below(fd, &rest, whole)? };
        Ok(Directory { fd, path: path.to_owned() })
    }

    /// The directory that is held by this very path.
    pub(crate) fn held(path: &Path) -> Option<Directory> {
        let (fd, _) = held::covering(path).filter(|(_, rest)| rest.as_os_str().is_empty())?;
        Some(Directory { fd, path: path.to_owned() })
    }

    /// Opens a directory that must be this user's.
    ///
    /// # Errors
    /// A [`Refusal`], or why it cannot be opened.
    pub fn own(path: &Path) -> io::Result<Directory> {
        let directory = Directory::open(path)?;
        let found = directory.stat()?;
        match found.st_uid {
            owner if owner == own_user() => Ok(directory),
            owner => Err(Refusal::OfAnother { path: path.to_owned(), owner }.into()),
        }
    }

    /// Opens a directory that must be this user's, and into which no other one can write: what is in it was put there by this
    /// user.
    ///
    /// # Errors
    /// A [`Refusal`], or why it cannot be opened.
    pub fn own_alone(path: &Path) -> io::Result<Directory> {
        let directory = Directory::own(path)?;
        let mode = directory.stat()?.st_mode & 0o7777;
        match mode & 0o022 {
            0 => Ok(directory),
            _ => Err(Refusal::OpenToOthers { path: path.to_owned(), mode }.into()),
        }
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its owner, mode and number.
    ///
    /// # Errors
    /// The file system's.
    pub fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(&self.fd)?)
    }

    /// Whether others can rename what is in it: its owner can, and without the sticky bit all who may write.
    ///
    /// # Errors
    /// The file system's.
    pub fn others_may_rename(&self) -> io::Result<bool> {
        let found = self.stat()?;
        let is_anothers = ![0, own_user()].contains(&found.st_uid);
        Ok(is_anothers || (found.st_mode & 0o022 != 0 && found.st_mode & 0o1000 == 0))
    }

    /// Where a link in it leads; `None`: there is no link of this name. Only this user's and root's are followed.
    ///
    /// # Errors
    /// [`Refusal::LinkOfAnother`], or the file system's.
    pub fn follow(&self, name: &OsStr) -> io::Result<Option<PathBuf>> {
        match self.look(name) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Ok(found) if FileType::from_raw_mode(found.st_mode) != FileType::Symlink => Ok(None),
            _ => link_in(&self.fd, name, &self.path.join(name), Errno::NOTDIR).map(Some),
        }
    }

    /// A path by which libraries that know only paths reach this very directory for as long as it is open. Where /proc is
    /// missing it is the directory's own.
    pub fn through_proc(&self) -> PathBuf {
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()));
        let is_it = |found: Stat| self.stat().is_ok_and(|own| same(&own, &found));
        if rustix::fs::stat(&path).is_ok_and(is_it) { path } else { self.path.clone() }
    }

    /// What a name in it is. A link is not followed.
    ///
    /// # Errors
    /// It is not there.
    pub fn look(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Makes a file that must not exist.
    ///
    /// # Errors
    /// The file system's.
    pub fn create(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Removes a file or a link.
    ///
    /// # Errors
    /// The file system's.
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// The names in it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        // Opened anew, as it may be open for its path alone.
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

    /// Opens a directory in it, which must be this user's and no link.
    pub(crate) fn own_below(&self, name: &OsStr) -> io::Result<Directory> {
        let path = self.path.join(name);
        let fd = rustix::fs::openat(&self.fd, name, TO_WALK, Mode::empty())?;
        let directory = Directory { fd, path };
        match directory.stat()?.st_uid {
            owner if owner == own_user() => Ok(directory),
            owner => Err(Refusal::OfAnother { path: directory.path, owner }.into()),
        }
    }

    /// Removes what is in it: files, links themselves, and directories of this user with what is in them. Goes on after an error,
    /// and returns the first.
    ///
    /// # Errors
    /// The file system's, or a [`Refusal`] for a directory of another user.
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

    /// Removes a directory in it with what is in that.
    pub(crate) fn remove_tree(&self, name: &OsStr) -> io::Result<()> {
        let below = self.own_below(name)?;
        let emptied = below.remove_contents();
        emptied.and(self.remove_emptied(name, &below))
    }

    /// Removes a directory that was emptied through its descriptor, if its name still leads there.
    pub(crate) fn remove_emptied(&self, name: &OsStr, emptied: &Directory) -> io::Result<()> {
        if !same(&self.look(name)?, &emptied.stat()?) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(crate) fn same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Linux says EISDIR, POSIX allows EPERM.
fn is_of_a_directory(why: &io::Error) -> bool {
    [Errno::ISDIR, Errno::PERM].iter().any(|of| why.raw_os_error() == Some(of.raw_os_error()))
}

fn start_of(path: &Path) -> io::Result<OwnedFd> {
    let start = if path.is_absolute() { c"/" } else { c"." };
    Ok(rustix::fs::openat(CWD, start, TO_WALK, Mode::empty())?)
}

/// The directory at a path below an open one. In one call where there is no link on the way and the kernel has openat2; else step
/// by step.
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

/// Where a link leads, if it is this user's or root's.
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

/// The last comes first.
fn parts(path: &Path) -> Vec<OsString> {
    let mut parts: Vec<OsString> = path.components().map(|part| part.as_os_str().to_owned()).collect();
    parts.reverse();
    parts
}
