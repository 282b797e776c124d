//! The communicators that are defined in the trace, by MPI's handles: those of the program, and one for the ranks of each window.

use super::library::{Library, Membership};
use crate::communication;
use crate::guard::on_own_stack;
use scorep_abi::AnyHandle;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A communicator with one group.
#[derive(Clone, Copy)]
pub struct Communicator {
    /// The handle that the plugin knows.
    pub handle: AnyHandle,
    pub size: u32,
    /// This process's rank in it.
    pub rank: u32,
}

/// An entry of the table of communicators, by MPI's handle, which may mean another communicator after MPI_Comm_free.
struct Entry {
    mpi_handle: AtomicUsize,
    handle: AtomicU32,
    size: AtomicU32,
    rank: AtomicU32,
}

impl Entry {
    const fn free() -> Entry {
        Entry {
            mpi_handle: AtomicUsize::new(NO_COMMUNICATOR),
            handle: AtomicU32::new(UNKNOWN),
            size: AtomicU32::new(0),
            rank: AtomicU32::new(0),
        }
    }
}

/// The communicators that are defined. Messages in further ones are not recorded.
static COMMUNICATORS: [Entry; 256] = [const { Entry::free() }; 256];
const NO_COMMUNICATOR: usize = 0;
/// The handle of an unknown communicator, and of an entry that another thread is filling in. The trace leaves out and
/// counts events of unknown communicators.
pub const UNKNOWN: AnyHandle = 0;
static NEXT_HANDLE: AtomicU32 = AtomicU32::new(1);

/// Returns the communicator in an argument. Defines it if it is not defined yet.
pub fn communicator(library: &Library, argument: usize) -> Option<Communicator> {
    known(library, argument, Library::membership)
}

/// Returns the handle of a communicator of the processes that have the window in an argument.
pub fn handle_of_window(library: &Library, argument: usize) -> AnyHandle {
    known(library, argument, Library::membership_of_window).map_or(UNKNOWN, |found| found.handle)
}

/// Finds the members of an MPI handle.
type FindMembers = fn(&Library, usize) -> Option<Membership>;

#[inline]
fn known(library: &Library, argument: usize, find: FindMembers) -> Option<Communicator> {
    let mpi_handle = library.handle(argument);
    let has_handle = |entry: &&Entry| entry.mpi_handle.load(Ordering::Acquire) == mpi_handle;
    let Some(entry) = COMMUNICATORS.iter().find(has_handle) else {
        return on_own_stack(None, || define(library, mpi_handle, find));
    };
    // Acquire pairs with the Release below.
    let handle = entry.handle.load(Ordering::Acquire);
    let (size, rank) = (entry.size.load(Ordering::Relaxed), entry.rank.load(Ordering::Relaxed));
    (handle != UNKNOWN).then_some(Communicator { handle, size, rank })
}

/// Returns the handle of the communicator in an argument.
pub fn handle_of(library: &Library, argument: usize) -> AnyHandle {
    communicator(library, argument).map_or(UNKNOWN, |communicator| communicator.handle)
}

#[cold]
fn define(library: &Library, mpi_handle: usize, find: FindMembers) -> Option<Communicator> {
    let Membership { size, rank, ranks } = find(library, mpi_handle)?;
    let take = |entry: &&Entry| {
        let (expected, new) = (NO_COMMUNICATOR, mpi_handle);
        entry.mpi_handle.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let entry = COMMUNICATORS.iter().find(take)?;
    let handle = NEXT_HANDLE.fetch_add(1, Ordering::Relaxed);
    communication::define_communicator(handle, ranks.as_deref());
    entry.size.store(size, Ordering::Relaxed);
    entry.rank.store(rank, Ordering::Relaxed);
    entry.handle.store(handle, Ordering::Release);
    Some(Communicator { handle, size, rank })
}

/// Called when a communicator or a window is freed.
pub fn forget(mpi_handle: usize) {
    let has_handle = |entry: &&Entry| entry.mpi_handle.load(Ordering::Acquire) == mpi_handle;
    for entry in COMMUNICATORS.iter().filter(has_handle) {
        entry.handle.store(UNKNOWN, Ordering::Release);
        entry.mpi_handle.store(NO_COMMUNICATOR, Ordering::Release);
    }
}
