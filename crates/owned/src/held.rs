//! Directories that stay the same while a run lasts: whatever is done at or below their paths is done in the directory that was
//! there when it was held, also if somebody has put another one in its place since.

use crate::directory::{Directory, same};
use rustix::fd::OwnedFd;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many are held: a process that holds none, as a measured program, takes no lock.
static HELD: AtomicUsize = AtomicUsize::new(0);
static ALL: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

struct Entry {
    path: PathBuf,
    directory: Directory,
    number: usize,
}

/// A directory is held for as long as this exists.
#[derive(Debug)]
pub struct Held {
    number: usize,
}

/// Holds a directory of this user's. Returns its path without links, by which it is held.
///
/// # Errors
/// As for [`Directory::own`]; or somebody is putting another directory in its place.
pub fn hold(path: &Path) -> io::Result<(PathBuf, Held)> {
    static NUMBERS: AtomicUsize = AtomicUsize::new(0);
    let directory = Directory::own(path)?;
    let real = std::fs::canonicalize(path)?;
    if !rustix::fs::stat(&real).is_ok_and(|found| directory.stat().is_ok_and(|own| same(&own, &found))) {
        return Err(io::Error::other(format!("{} is being exchanged", path.display())));
    }
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let mut all = all();
    all.push(Entry { path: real.clone(), directory, number });
    HELD.store(all.len(), Ordering::Release);
    Ok((real, Held { number }))
}

/// Holds the directory that is at a path now, in the place of one that was held by that path and is gone from there.
///
/// # Errors
/// As for [`Directory::own`].
pub fn hold_anew(path: &Path) -> io::Result<Held> {
    all().iter_mut().filter(|entry| entry.path == path).for_each(|entry| entry.path = PathBuf::new());
    Ok(hold(path)?.1)
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut all = all();
        all.retain(|entry| entry.number != self.number);
        HELD.store(all.len(), Ordering::Release);
    }
}

/// The held directory nearest above a path, and the rest of the path. One that was removed is no longer held.
pub(crate) fn covering(path: &Path) -> Option<(OwnedFd, PathBuf)> {
    if HELD.load(Ordering::Acquire) == 0 {
        return None;
    }
    let all = all();
    let is_held = |entry: &&Entry| !entry.path.as_os_str().is_empty();
    let above =
        all.iter().filter(is_held).filter_map(|entry| Some((entry, path.strip_prefix(&entry.path).ok()?)));
    let (entry, rest) = above.min_by_key(|(_, rest)| rest.components().count())?;
    entry.directory.stat().ok().filter(|found| found.st_nlink > 0)?;
    let again = rustix::io::fcntl_dupfd_cloexec(&entry.directory, 3).ok()?;
    Some((again, rest.to_owned()))
}

fn all() -> MutexGuard<'static, Vec<Entry>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}
