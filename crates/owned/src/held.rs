//! Holds directories, so that they stay the same during a run. An action at or below the path of a held directory is done in the
//! directory that was held, even if another one has been put in its place since.

use rustix::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of held directories. A process without any, such as a measured program, takes no lock.
static HELD: AtomicUsize = AtomicUsize::new(0);
static ALL: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

struct Entry {
    path: PathBuf,
    directory: OwnedFd,
    number: usize,
}

/// A directory is held while this exists.
#[derive(Debug)]
pub struct Held {
    number: usize,
}

impl Held {
    pub(crate) fn new(path: &Path, directory: OwnedFd) -> Held {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let mut all = all();
        all.push(Entry { path: path.to_owned(), directory, number });
        HELD.store(all.len(), Ordering::Release);
        Held { number }
    }
}

/// Ends the redirection of this path to the directory that is held for it. The directory itself remains held.
pub(crate) fn detach(path: &Path) {
    all().iter_mut().filter(|entry| entry.path == path).for_each(|entry| entry.path = PathBuf::new());
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut all = all();
        all.retain(|entry| entry.number != self.number);
        HELD.store(all.len(), Ordering::Release);
    }
}

/// Returns the nearest held directory above a path, and the rest of the path. A directory that was removed is no longer
/// held.
pub(crate) fn covering(path: &Path) -> Option<(OwnedFd, PathBuf)> {
    if HELD.load(Ordering::Acquire) == 0 {
        return None;
    }
    let all = all();
    let is_held = |entry: &&Entry| !entry.path.as_os_str().is_empty();
    let above =
        all.iter().filter(is_held).filter_map(|entry| Some((entry, path.strip_prefix(&entry.path).ok()?)));
    let (entry, rest) = above.min_by_key(|(_, rest)| rest.components().count())?;
    rustix::fs::fstat(&entry.directory).ok().filter(|found| found.st_nlink > 0)?;
    let again = rustix::io::fcntl_dupfd_cloexec(&entry.directory, 3).ok()?;
    Some((again, rest.to_owned()))
}

fn all() -> MutexGuard<'static, Vec<Entry>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}
