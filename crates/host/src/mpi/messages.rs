//! Events of messages and collectives for the trace, which are read from the arguments of a wrapped call.
//!
//! A send and the start of a collective are recorded before the real function is called, a received message and the end of a
//! collective after it. This covers blocking calls from C and C++, in a communicator with one group; other calls are recorded as
//! frames only. Bytes are counted as Score-P counts them.

use super::library::{Library, Membership};
use crate::guard::on_own_stack;
use crate::plugin::{self, CollectiveEnd, Message};
use crate::thread::Thread;
use scorep_abi::{AnyHandle, collective, root};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The events that are recorded for a function in addition to its frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Send,
    Receive,
    SendReceive,
    SendReceiveReplace,
    CommunicatorFree,
    /// A collective, by its value of Score-P's enum `SCOREP_CollectiveType`.
    Collective(c_int),
}

/// Returns the kind of the function with this name; `None` if only its frame is recorded.
pub fn kind(name: &str) -> Option<Kind> {
    Some(match name {
        "MPI_Send" | "MPI_Bsend" | "MPI_Ssend" | "MPI_Rsend" => Kind::Send,
        "MPI_Recv" => Kind::Receive,
        "MPI_Sendrecv" => Kind::SendReceive,
        "MPI_Sendrecv_replace" => Kind::SendReceiveReplace,
        "MPI_Comm_free" | "MPI_Comm_disconnect" => Kind::CommunicatorFree,
        "MPI_Barrier" => Kind::Collective(collective::BARRIER),
        "MPI_Bcast" => Kind::Collective(collective::BROADCAST),
        "MPI_Gather" => Kind::Collective(collective::GATHER),
        "MPI_Gatherv" => Kind::Collective(collective::GATHERV),
        "MPI_Scatter" => Kind::Collective(collective::SCATTER),
        "MPI_Scatterv" => Kind::Collective(collective::SCATTERV),
        "MPI_Allgather" => Kind::Collective(collective::ALLGATHER),
        "MPI_Allgatherv" => Kind::Collective(collective::ALLGATHERV),
        "MPI_Alltoall" => Kind::Collective(collective::ALLTOALL),
        "MPI_Alltoallv" => Kind::Collective(collective::ALLTOALLV),
        "MPI_Alltoallw" => Kind::Collective(collective::ALLTOALLW),
        "MPI_Allreduce" => Kind::Collective(collective::ALLREDUCE),
        "MPI_Reduce" => Kind::Collective(collective::REDUCE),
        "MPI_Reduce_scatter" => Kind::Collective(collective::REDUCE_SCATTER),
        "MPI_Reduce_scatter_block" => Kind::Collective(collective::REDUCE_SCATTER_BLOCK),
        "MPI_Scan" => Kind::Collective(collective::SCAN),
        "MPI_Exscan" => Kind::Collective(collective::EXSCAN),
        _ => return None,
    })
}

/// The stack frame in which the wrapper's body keeps the arguments of a wrapped call and its result.
#[derive(Clone, Copy)]
pub struct Frame(*mut usize);

impl Frame {
    /// # Safety
    /// `address` is that of the frame of a wrapper's body that has called us.
    pub unsafe fn new(address: usize) -> Frame {
        Frame(address as *mut usize)
    }

    /// Returns the place of an argument, counted from 0: saved registers are below the frame's address, arguments on
    /// the stack above.
    fn place(self, at: usize) -> *mut usize {
        let words = if at < 6 { -1 - at as isize } else { at as isize - 4 };
        // SAFETY: the place is within the body's frame, or among the caller's arguments, which belong to the called function.
        unsafe { self.0.offset(words) }
    }

    fn word(self, at: usize) -> usize {
        // SAFETY: as above; both have been written.
        unsafe { *self.place(at) }
    }

    fn int(self, at: usize) -> c_int {
        self.word(at) as c_int
    }

    fn has_succeeded(self) -> bool {
        // SAFETY: the body keeps the result there, once there is one.
        unsafe { *self.0.offset(-9) as c_int == 0 }
    }
}

#[derive(Clone, Copy)]
struct Communicator {
    handle: AnyHandle,
    size: u32,
    rank: u32,
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
/// The handle of an entry that another thread is filling in.
const UNKNOWN: AnyHandle = 0;
static NEXT_HANDLE: AtomicU32 = AtomicU32::new(1);

/// Returns the communicator in an argument. Defines it if it is not defined yet.
fn communicator(library: &Library, argument: usize) -> Option<Communicator> {
    let mpi_handle = library.handle(argument);
    let has_handle = |entry: &&Entry| entry.mpi_handle.load(Ordering::Acquire) == mpi_handle;
    let Some(entry) = COMMUNICATORS.iter().find(has_handle) else {
        return on_own_stack(None, || define(library, mpi_handle));
    };
    // Acquire pairs with the Release below.
    let handle = entry.handle.load(Ordering::Acquire);
    let (size, rank) = (entry.size.load(Ordering::Relaxed), entry.rank.load(Ordering::Relaxed));
    (handle != UNKNOWN).then_some(Communicator { handle, size, rank })
}

/// Returns the handle of the communicator in an argument. The trace leaves out and counts events of unknown
/// communicators.
fn handle_of(library: &Library, argument: usize) -> AnyHandle {
    communicator(library, argument).map_or(UNKNOWN, |communicator| communicator.handle)
}

#[cold]
fn define(library: &Library, mpi_handle: usize) -> Option<Communicator> {
    let Membership { size, rank, ranks } = library.membership(mpi_handle)?;
    let take = |entry: &&Entry| {
        let (expected, new) = (NO_COMMUNICATOR, mpi_handle);
        entry.mpi_handle.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let entry = COMMUNICATORS.iter().find(take)?;
    let handle = NEXT_HANDLE.fetch_add(1, Ordering::Relaxed);
    plugin::define_communicator(handle, ranks.as_deref());
    entry.size.store(size, Ordering::Relaxed);
    entry.rank.store(rank, Ordering::Relaxed);
    entry.handle.store(handle, Ordering::Release);
    Some(Communicator { handle, size, rank })
}

fn forget(mpi_handle: usize) {
    let has_handle = |entry: &&Entry| entry.mpi_handle.load(Ordering::Acquire) == mpi_handle;
    for entry in COMMUNICATORS.iter().filter(has_handle) {
        entry.handle.store(UNKNOWN, Ordering::Release);
        entry.mpi_handle.store(NO_COMMUNICATOR, Ordering::Release);
    }
}

/// Called before the real function. It may change the call's arguments: if the program passes no status, we pass one of ours.
///
/// # Safety
/// The call is from C, of a function of this kind, and this is its frame.
pub unsafe fn before(kind: Kind, frame: Frame, thread: &mut Thread) {
    let Some(library) = Library::get() else { return };
    let location = thread.location;
    let send = |destination: usize, tag: usize, communicator: usize| {
        // MPI_PROC_NULL is negative, and nothing is sent to it.
        if let Ok(rank) = u32::try_from(frame.int(destination)) {
            let communicator = handle_of(library, frame.word(communicator));
            let bytes = library.bytes(frame.int(1), frame.word(2));
            let tag = frame.int(tag) as u32;
            plugin::message(location, &Message { is_sent: true, rank, communicator, tag, bytes });
        }
    };
    match kind {
        Kind::Send => send(3, 4, 5),
        Kind::SendReceive => send(3, 4, 10),
        Kind::SendReceiveReplace => send(3, 4, 7),
        Kind::Collective(_) => plugin::collective_begin(location),
        // SAFETY: the function's argument is the address of a communicator.
        Kind::CommunicatorFree => forget(unsafe { library.handle_in(frame.word(0), 0) }),
        Kind::Receive => {}
    }
    if let Some((_, status)) = received_by(kind)
        && library.is_ignored(frame.word(status))
    {
        // SAFETY: the place is an argument of this call.
        unsafe { *frame.place(status) = thread.status.as_mut_ptr() as usize };
    }
}

/// Returns the positions of the communicator and the status among the arguments of a function that receives.
fn received_by(kind: Kind) -> Option<(usize, usize)> {
    match kind {
        Kind::Receive => Some((5, 6)),
        Kind::SendReceive => Some((10, 11)),
        Kind::SendReceiveReplace => Some((7, 8)),
        _ => None,
    }
}

/// Called after the real function has returned.
///
/// # Safety
/// As for [`before`], which has been called for this call.
pub unsafe fn after(kind: Kind, frame: Frame, thread: &Thread) {
    let Some(library) = Library::get() else { return };
    if let Kind::Collective(of) = kind {
        // The end is recorded even if the collective failed, because its start was.
        return collective_end(library, of, frame, thread);
    }
    let Some((communicator, status)) = received_by(kind).filter(|_| frame.has_succeeded()) else { return };
    // SAFETY: MPI has filled in the status.
    let received = unsafe { library.received(frame.word(status)) };
    if let Ok(rank) = u32::try_from(received.source) {
        let communicator = handle_of(library, frame.word(communicator));
        let (tag, bytes) = (received.tag as u32, received.bytes);
        plugin::message(thread.location, &Message { is_sent: false, rank, communicator, tag, bytes });
    }
}

/// Returns the positions of the communicator and the root among the arguments of a collective.
fn arguments(of: c_int) -> (usize, Option<usize>) {
    match of {
        collective::BARRIER => (0, None),
        collective::BROADCAST => (4, Some(3)),
        collective::GATHER | collective::SCATTER => (7, Some(6)),
        collective::GATHERV | collective::SCATTERV => (8, Some(7)),
        collective::ALLGATHER | collective::ALLTOALL => (6, None),
        collective::ALLGATHERV => (7, None),
        collective::ALLTOALLV | collective::ALLTOALLW => (8, None),
        collective::REDUCE => (6, Some(5)),
        _ => (5, None),
    }
}

fn collective_end(library: &Library, of: c_int, frame: Frame, thread: &Thread) {
    let (communicator_at, root_at) = arguments(of);
    let root = root_at.map_or(root::NONE, |at| frame.int(at));
    let (handle, (sent, received)) = match communicator(library, frame.word(communicator_at)) {
        Some(found) if frame.has_succeeded() => {
            (found.handle, bytes_of(library, of, frame, found, root == found.rank as c_int))
        }
        Some(found) => (found.handle, (0, 0)),
        None => (UNKNOWN, (0, 0)),
    };
    let end = CollectiveEnd { communicator: handle, root, operation: of, sent, received };
    plugin::collective_end(thread.location, &end);
}

/// Bytes sent and received, as Score-P counts them. Arguments that MPI ignores are not read, because they may be anything.
fn bytes_of(
    library: &Library,
    of: c_int,
    frame: Frame,
    communicator: Communicator,
    is_root: bool,
) -> (u64, u64) {
    let own = communicator.rank as usize;
    let buffer = match of {
        collective::SCATTER => 3,
        collective::SCATTERV => 4,
        _ => 0,
    };
    let is_in_place = library.is_in_place(frame.word(buffer));
    // Data that stays in place is not counted.
    let all = u64::from(communicator.size) - u64::from(is_in_place);
    let at_root = |bytes: &dyn Fn() -> u64| if is_root { bytes() } else { 0 };
    let one = |count: usize, datatype: usize| library.bytes(frame.int(count), frame.word(datatype));
    let unless_in_place = |count, datatype| if is_in_place { 0 } else { one(count, datatype) };
    // SAFETY: the arrays have an element for each rank of the communicator.
    let element = |array: usize, at: usize| unsafe { *(frame.word(array) as *const c_int).add(at) };
    let ranks = || (0..communicator.size as usize).filter(|rank| !is_in_place || *rank != own);
    let sum = |counts: usize, datatype: usize| -> u64 {
        ranks().map(|rank| library.bytes(element(counts, rank), frame.word(datatype))).sum()
    };
    let each = |counts: usize, types: usize| -> u64 {
        // SAFETY: as above, for arrays of datatypes.
        let datatype = |rank| unsafe { library.handle_in(frame.word(types), rank) };
        ranks().map(|rank| library.bytes(element(counts, rank), datatype(rank))).sum()
    };
    let given = |ours: u64, theirs: &dyn Fn() -> u64| if is_in_place { ours } else { theirs() };
    match of {
        collective::BROADCAST => {
            let bytes = one(1, 2);
            (at_root(&|| all * bytes), bytes)
        }
        collective::GATHER => (unless_in_place(1, 2), at_root(&|| all * one(4, 5))),
        collective::GATHERV => (unless_in_place(1, 2), at_root(&|| sum(4, 6))),
        collective::SCATTER => (at_root(&|| all * one(1, 2)), unless_in_place(4, 5)),
        collective::SCATTERV => (at_root(&|| sum(1, 3)), unless_in_place(5, 6)),
        collective::ALLGATHER | collective::ALLTOALL => {
            let received = all * one(4, 5);
            (given(received, &|| all * one(1, 2)), received)
        }
        collective::ALLGATHERV => {
            let ours = all * library.bytes(element(4, own), frame.word(6));
            (given(ours, &|| all * one(1, 2)), sum(4, 6))
        }
        collective::ALLTOALLV => (given(sum(5, 7), &|| sum(1, 3)), sum(5, 7)),
        collective::ALLTOALLW => (given(each(5, 7), &|| each(1, 3)), each(5, 7)),
        collective::REDUCE => (unless_in_place(2, 3), at_root(&|| all * one(2, 3))),
        collective::ALLREDUCE | collective::REDUCE_SCATTER_BLOCK => (all * one(2, 3), all * one(2, 3)),
        collective::REDUCE_SCATTER => (sum(2, 3), all * library.bytes(element(2, own), frame.word(3))),
        collective::SCAN => {
            let (sent, received) = (all - own as u64, own as u64 + 1 - u64::from(is_in_place));
            (sent * one(2, 3), received * one(2, 3))
        }
        collective::EXSCAN => {
            ((u64::from(communicator.size) - 1 - own as u64) * one(2, 3), own as u64 * one(2, 3))
        }
        _ => (0, 0),
    }
}
