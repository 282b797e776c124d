//! Messages and collectives, for the trace: what the arguments of a wrapped call say about them.
//!
//! A send and the begin of a collective come before the real function is called, what was received and the end of the collective
//! after it. That is: blocking calls from C and C++, in a communicator with one group. Others are frames only. Bytes are counted
//! as Score-P counts them.

use super::library::Library;
use crate::measurement::on_own_stack;
use crate::plugin::{self, Message};
use crate::thread::Thread;
use scorep_abi::{AnyHandle, collective, root};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// What is recorded of a function beside its frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Send,
    Receive,
    SendReceive,
    SendReceiveReplace,
    FreesCommunicator,
    /// Of `SCOREP_CollectiveType`.
    Collective(c_int),
}

/// The kind of a function.
pub fn kind(name: &str) -> Option<Kind> {
    Some(match name {
        "MPI_Send" | "MPI_Bsend" | "MPI_Ssend" | "MPI_Rsend" => Kind::Send,
        "MPI_Recv" => Kind::Receive,
        "MPI_Sendrecv" => Kind::SendReceive,
        "MPI_Sendrecv_replace" => Kind::SendReceiveReplace,
        "MPI_Comm_free" | "MPI_Comm_disconnect" => Kind::FreesCommunicator,
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

/// The arguments of a wrapped call, and its result, where the wrapper's body keeps them.
#[derive(Clone, Copy)]
pub struct Frame(*mut usize);

impl Frame {
    /// # Safety
    /// The address of the frame of a wrapper's body, which waits for the caller.
    pub unsafe fn new(address: usize) -> Frame {
        Frame(address as *mut usize)
    }

    /// Where an argument is, counted from 0: registers are saved below the frame's address, what was on the stack is above.
    fn place(self, at: usize) -> *mut usize {
        let words = if at < 6 { -1 - at as isize } else { at as isize - 4 };
        // SAFETY: within the body's frame, or among the caller's arguments, which belong to the function that is called.
        unsafe { self.0.offset(words) }
    }

    fn word(self, at: usize) -> usize {
        // SAFETY: as above; both are written.
        unsafe { *self.place(at) }
    }

    fn int(self, at: usize) -> c_int {
        self.word(at) as c_int
    }

    fn has_succeeded(self) -> bool {
        // SAFETY: where the body keeps the result, once there is one.
        unsafe { *self.0.offset(-9) as c_int == 0 }
    }
}

/// A communicator.
#[derive(Clone, Copy)]
struct Known {
    handle: AnyHandle,
    size: u32,
    rank: u32,
}

/// A communicator by MPI's own handle, which may be another's after MPI_Comm_free.
struct Place {
    communicator: AtomicUsize,
    handle: AtomicU32,
    size: AtomicU32,
    rank: AtomicU32,
}

impl Place {
    const fn free() -> Place {
        Place {
            communicator: AtomicUsize::new(NO_COMMUNICATOR),
            handle: AtomicU32::new(UNKNOWN),
            size: AtomicU32::new(0),
            rank: AtomicU32::new(0),
        }
    }
}

/// So many communicators are known at a time. Messages in others are not recorded.
static KNOWN: [Place; 256] = [const { Place::free() }; 256];
const NO_COMMUNICATOR: usize = 0;
/// Being filled in by another thread.
const UNKNOWN: AnyHandle = 0;
static NEXT_HANDLE: AtomicU32 = AtomicU32::new(1);

fn known(library: &Library, argument: usize) -> Option<Known> {
    let communicator = library.handle(argument);
    let is_it = |place: &&Place| place.communicator.load(Ordering::Acquire) == communicator;
    let Some(place) = KNOWN.iter().find(is_it) else {
        return on_own_stack(None, || get_to_know(library, communicator));
    };
    // Acquire pairs with the Release below.
    let handle = place.handle.load(Ordering::Acquire);
    let (size, rank) = (place.size.load(Ordering::Relaxed), place.rank.load(Ordering::Relaxed));
    (handle != UNKNOWN).then_some(Known { handle, size, rank })
}

/// The trace leaves out, and counts, what is in an unknown one.
fn handle_of(library: &Library, communicator: usize) -> AnyHandle {
    known(library, communicator).map_or(UNKNOWN, |known| known.handle)
}

#[cold]
fn get_to_know(library: &Library, communicator: usize) -> Option<Known> {
    let (size, rank, ranks) = library.members(communicator)?;
    let take = |place: &&Place| {
        let (expected, new) = (NO_COMMUNICATOR, communicator);
        let taken = place.communicator.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    };
    let place = KNOWN.iter().find(take)?;
    let handle = NEXT_HANDLE.fetch_add(1, Ordering::Relaxed);
    plugin::define_communicator(handle, (communicator != library.world).then_some(&ranks[..]));
    place.size.store(size, Ordering::Relaxed);
    place.rank.store(rank, Ordering::Relaxed);
    place.handle.store(handle, Ordering::Release);
    Some(Known { handle, size, rank })
}

fn forget(communicator: usize) {
    let is_it = |place: &&Place| place.communicator.load(Ordering::Acquire) == communicator;
    for place in KNOWN.iter().filter(is_it) {
        place.handle.store(UNKNOWN, Ordering::Release);
        place.communicator.store(NO_COMMUNICATOR, Ordering::Release);
    }
}

/// Before the real function is called. The call's arguments may be changed: who does not want to know what was received is not
/// told, but we are.
///
/// # Safety
/// The call is one of C's, by a function of this kind, in this frame.
pub unsafe fn before(kind: Kind, frame: Frame, thread: &mut Thread) {
    let Some(library) = Library::get() else { return };
    let location = thread.location;
    let send = |destination: usize, tag: usize, communicator: usize| {
        // Not for MPI_PROC_NULL.
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
        // SAFETY: its argument is the address of a communicator.
        Kind::FreesCommunicator => forget(unsafe { library.handle_in(frame.word(0), 0) }),
        Kind::Receive => {}
    }
    if let Some((_, status)) = received_by(kind)
        && library.is_ignored(frame.word(status))
    {
        // SAFETY: an argument of this call.
        unsafe { *frame.place(status) = thread.status.as_mut_ptr() as usize };
    }
}

/// Where a function that receives has its communicator and its status.
fn received_by(kind: Kind) -> Option<(usize, usize)> {
    match kind {
        Kind::Receive => Some((5, 6)),
        Kind::SendReceive => Some((10, 11)),
        Kind::SendReceiveReplace => Some((7, 8)),
        _ => None,
    }
}

/// After the real function has returned.
///
/// # Safety
/// As for [`before`], which was called first.
pub unsafe fn after(kind: Kind, frame: Frame, thread: &Thread) {
    let Some(library) = Library::get() else { return };
    if let Kind::Collective(of) = kind {
        // Also where it failed: it has begun.
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

/// Where a collective has its communicator and its root.
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
    let (communicator, root_at) = arguments(of);
    let root = root_at.map_or(root::NONE, |at| frame.int(at));
    let (handle, bytes) = match known(library, frame.word(communicator)) {
        Some(known) if frame.has_succeeded() => {
            (known.handle, bytes_of(library, of, frame, known, root == known.rank as c_int))
        }
        Some(known) => (known.handle, (0, 0)),
        None => (UNKNOWN, (0, 0)),
    };
    plugin::collective_end(thread.location, handle, root, of, bytes);
}

/// Bytes sent and received, as Score-P counts them. Arguments that MPI ignores are not looked at: they may be anything.
fn bytes_of(library: &Library, of: c_int, frame: Frame, known: Known, is_root: bool) -> (u64, u64) {
    let own = known.rank as usize;
    let buffer = match of {
        collective::SCATTER => 3,
        collective::SCATTERV => 4,
        _ => 0,
    };
    let is_in_place = library.is_in_place(frame.word(buffer));
    // What a process leaves in its place is not counted.
    let all = u64::from(known.size) - u64::from(is_in_place);
    let at_root = |bytes: &dyn Fn() -> u64| if is_root { bytes() } else { 0 };
    let one = |count: usize, datatype: usize| library.bytes(frame.int(count), frame.word(datatype));
    let unless_in_place = |count, datatype| if is_in_place { 0 } else { one(count, datatype) };
    // SAFETY: arrays with an element for each rank of the communicator.
    let element = |array: usize, at: usize| unsafe { *(frame.word(array) as *const c_int).add(at) };
    let ranks = || (0..known.size as usize).filter(|rank| !is_in_place || *rank != own);
    let sum = |counts: usize, datatype: usize| -> u64 {
        ranks().map(|rank| library.bytes(element(counts, rank), frame.word(datatype))).sum()
    };
    let each = |counts: usize, types: usize| -> u64 {
        // SAFETY: as above; of datatypes.
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
        collective::EXSCAN => ((u64::from(known.size) - 1 - own as u64) * one(2, 3), own as u64 * one(2, 3)),
        _ => (0, 0),
    }
}
