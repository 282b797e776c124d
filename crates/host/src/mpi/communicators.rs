//! The communicators that are defined in the trace, by MPI's handles: those of the program, and one for the ranks of each window.

use super::library::{Library, Membership, Neighbours, RemoteGroup};
use crate::communication;
use crate::guard::{on_own_stack, on_own_stack_uninterrupted};
use crate::signal;
use scorep_abi::AnyHandle;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A communicator. The plugin knows the members of both groups of an inter-communicator as those of one communicator.
#[derive(Clone, Copy)]
pub struct Communicator {
    /// The handle that the plugin knows.
    pub handle: AnyHandle,
    /// The number of ranks in this process's group.
    pub size: u32,
    /// This process's rank in that group.
    pub rank: u32,
    pub remote: Option<RemoteGroup>,
}

/// The ranks to which a process sends in a communicator, and from which it receives.
#[derive(Clone, Copy)]
pub struct Peers {
    /// The handle that the plugin knows.
    pub communicator: AnyHandle,
    /// The number, in the plugin's communicator, of rank 0 of the group to which MPI's calls refer.
    pub first: u32,
}

impl Communicator {
    pub fn peers(&self) -> Peers {
        Peers { communicator: self.handle, first: self.remote.map_or(0, |remote| remote.first) }
    }

    /// Returns this process's number in the plugin's communicator.
    pub fn own_number(&self) -> u32 {
        self.rank + self.remote.filter(|remote| remote.first == 0).map_or(0, |remote| remote.size)
    }
}

/// An entry of the table of communicators, by MPI's handle, which may mean another communicator after MPI_Comm_free.
struct Entry {
    mpi_handle: AtomicUsize,
    handle: AtomicU32,
    size: AtomicU32,
    rank: AtomicU32,
    /// The size of the remote group; 0 if there is none.
    remote_size: AtomicU32,
    first_remote: AtomicU32,
    /// This process's neighbours, once a collective has asked for them.
    neighbours: Mutex<Option<Arc<Neighbours>>>,
}

impl Entry {
    const fn free() -> Entry {
        Entry {
            mpi_handle: AtomicUsize::new(NO_COMMUNICATOR),
            handle: AtomicU32::new(UNKNOWN),
            size: AtomicU32::new(0),
            rank: AtomicU32::new(0),
            remote_size: AtomicU32::new(0),
            first_remote: AtomicU32::new(0),
            neighbours: Mutex::new(None),
        }
    }

    /// Returns the communicator, once it is defined.
    #[inline]
    fn communicator(&self) -> Option<Communicator> {
        // Acquire pairs with the Release in `define`.
        let handle = self.handle.load(Ordering::Acquire);
        let number = |number: &AtomicU32| number.load(Ordering::Relaxed);
        let remote = RemoteGroup { size: number(&self.remote_size), first: number(&self.first_remote) };
        let remote = Some(remote).filter(|remote| remote.size > 0);
        let communicator =
            Communicator { handle, size: number(&self.size), rank: number(&self.rank), remote };
        (handle != UNKNOWN).then_some(communicator)
    }
}

/// The largest number of communicators and windows at a time. Messages in further communicators are not recorded.
const COMMUNICATORS_MAX: usize = 1024;
static COMMUNICATORS: [Entry; COMMUNICATORS_MAX] = [const { Entry::free() }; COMMUNICATORS_MAX];
const NO_COMMUNICATOR: usize = 0;
/// The handle of an unknown communicator, of an entry that another thread is filling in, and of one whose members cannot be
/// found. The trace leaves out and counts events of unknown communicators.
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
    match entries_of(mpi_handle).next() {
        Some(entry) => entry.communicator(),
        None => define_if_free(library, mpi_handle, find),
    }
}

/// Defines a communicator if there is a free entry. If there is none, this function is called for each of the
/// communicator's messages, so it does nothing else.
#[cold]
fn define_if_free(library: &Library, mpi_handle: usize, find: FindMembers) -> Option<Communicator> {
    entries_of(NO_COMMUNICATOR).next()?;
    on_own_stack_uninterrupted(None, || define(library, mpi_handle, find))
}

/// Returns the entries with MPI's handle.
#[inline]
fn entries_of(mpi_handle: usize) -> impl Iterator<Item = &'static Entry> {
    COMMUNICATORS.iter().filter(move |entry| entry.mpi_handle.load(Ordering::Acquire) == mpi_handle)
}

/// Returns the handle of the communicator in an argument, and this process's neighbours there. `None` if the communicator is
/// unknown or has no topology.
pub fn neighbours_in(library: &Library, argument: usize) -> Option<(AnyHandle, Arc<Neighbours>)> {
    let handle = communicator(library, argument)?.handle;
    let mpi_handle = library.handle(argument);
    let entry = entries_of(mpi_handle).next()?;
    // A handler could leave this by `longjmp` with the lock held.
    let neighbours = signal::blocked(|| {
        let mut known = entry.neighbours.lock().ok()?;
        if known.is_none() {
            *known = on_own_stack(None, || library.neighbours(mpi_handle).map(Arc::new));
        }
        known.clone()
    });
    Some((handle, neighbours?))
}

/// Returns the ranks with which this process exchanges messages in the communicator in an argument.
pub fn peers_in(library: &Library, argument: usize) -> Peers {
    communicator(library, argument).map_or(Peers { communicator: UNKNOWN, first: 0 }, |found| found.peers())
}

/// Defines a communicator. If its members cannot be found, its entry stays without a handle: they are not looked for again.
fn define(library: &Library, mpi_handle: usize, find: FindMembers) -> Option<Communicator> {
    // Finding the members can take a while, so another thread may have defined the communicator in the meantime.
    let found = find(library, mpi_handle);
    if let Some(entry) = entries_of(mpi_handle).next() {
        return entry.communicator();
    }
    let take = |entry: &&Entry| {
        entry
            .mpi_handle
            .compare_exchange(NO_COMMUNICATOR, mpi_handle, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    let entry = COMMUNICATORS.iter().find(take)?;
    let Membership { size, rank, ranks, remote } = found?;
    let handle = NEXT_HANDLE.fetch_add(1, Ordering::Relaxed);
    communication::define_communicator(handle, ranks.as_deref());
    entry.size.store(size, Ordering::Relaxed);
    entry.rank.store(rank, Ordering::Relaxed);
    entry.remote_size.store(remote.map_or(0, |remote| remote.size), Ordering::Relaxed);
    entry.first_remote.store(remote.map_or(0, |remote| remote.first), Ordering::Relaxed);
    entry.handle.store(handle, Ordering::Release);
    entry.communicator()
}

/// Called when a communicator or a window is freed.
pub fn forget(mpi_handle: usize) {
    for entry in entries_of(mpi_handle) {
        signal::blocked(|| {
            if let Ok(mut neighbours) = entry.neighbours.lock() {
                *neighbours = None;
            }
        });
        entry.handle.store(UNKNOWN, Ordering::Release);
        entry.mpi_handle.store(NO_COMMUNICATOR, Ordering::Release);
    }
}
