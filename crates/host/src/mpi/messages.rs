//! Reads the trace's events of messages, requests and collectives from the arguments of a wrapped call.
//!
//! A send and the start of a collective are recorded before the real function is called, a received message and the end of a
//! collective after it. Bytes are counted as Score-P counts them. The arguments are those of the call from C: MPI
//! libraries' Fortran functions convert their arguments and call the C functions.

use super::collectives::{arguments, described};
use super::communicators::{Peers, UNKNOWN, communicator, forget, handle_of_window, peers_in};
use super::completions;
use super::epochs::{self, Side};
use super::frame::Frame;
use super::kinds::{Kind, Recorded};
use super::library::{Library, Received};
use super::neighbours;
use super::requests::{self, Inserted, Operation, Place, Request, Stage};
use crate::communication::{self, Collective, Message, RequestEvent};
use crate::thread::Thread;
use scorep_abi::{AnyHandle, Location, collective, root};

/// The positions of the arguments of a message.
#[derive(Clone, Copy)]
struct Positions {
    rank: usize,
    tag: usize,
    communicator: usize,
}

/// The positions in MPI_Send, MPI_Recv and all functions whose first arguments are the same.
const PLAIN: Positions = Positions { rank: 3, tag: 4, communicator: 5 };

/// Called before the real function. It may change the call's arguments: if the program passes no status, we pass one of ours.
///
/// # Safety
/// The call was made from C, to a function of this kind, and `frame` is its frame.
pub unsafe fn before(recorded: Recorded, frame: Frame, thread: &mut Thread) {
    let Some(library) = Library::get() else { return };
    let location = thread.location;
    let send = |communicator: usize| {
        if let Some(message) = sent(library, frame, Positions { communicator, ..PLAIN }) {
            communication::message(location, &message);
        }
    };
    match recorded.kind {
        Kind::Send => send(5),
        Kind::SendReceive => send(10),
        Kind::SendReceiveReplace => send(7),
        Kind::Collective(of) => begin(thread, peers_in(library, frame.word(arguments(of).0)).communicator),
        Kind::Neighbours(form, of) => neighbours::before(library, (form, of), frame, thread),
        Kind::Fence => begin(thread, handle_of_window(library, frame.word(1))),
        Kind::BeginEpoch(Side::Exposure) => epochs::begin(library, Side::Exposure, frame, thread),
        Kind::EndEpoch(Side::Access) => epochs::end(library, Side::Access, frame, thread),
        Kind::StartSend => start_send(library, frame, thread, 5),
        Kind::StartSendReceive => start_send(library, frame, thread, 10),
        Kind::StartSendReceiveReplace => start_send(library, frame, thread, 7),
        // SAFETY: the argument is the address of a communicator or a window.
        Kind::FreeCommunicator => forget(unsafe { library.handle_in(frame.word(0), 0) }),
        // SAFETY: the argument is the address of a request, or of a found message.
        Kind::Start => start(location, requests::find(unsafe { library.handle_in(frame.word(0), 0) })),
        Kind::StartAll => {
            for at in 0..usize::try_from(frame.int(0)).unwrap_or(0) {
                // SAFETY: the array has more than `at` requests.
                start(location, requests::find(unsafe { library.handle_in(frame.word(1), at) }));
            }
        }
        Kind::FreeRequest => {
            // SAFETY: as above.
            let handle = unsafe { library.handle_in(frame.word(0), 0) };
            thread.call.place = requests::find(handle);
        }
        Kind::ReceiveFound | Kind::StartReceiveFound => {
            // SAFETY: as above.
            thread.call.place = requests::find(unsafe { library.handle_in(frame.word(3), 0) });
        }
        // SAFETY: by this function's contract.
        Kind::Complete(how) => unsafe { completions::before(library, how, frame, thread) },
        Kind::Finalize => begin_finalize(library, thread),
        Kind::Connect => library.connects(),
        _ => {}
    }
    if let Some((_, status)) = received_by(recorded.kind)
        && library.is_ignored(frame.word(status))
    {
        frame.set(status, thread.call.status.as_mut_ptr() as usize);
    }
}

/// Returns the message that a call sends; `None` if it sends none, because the receiver is MPI_PROC_NULL.
fn sent(library: &Library, frame: Frame, at: Positions) -> Option<Message> {
    // MPI_PROC_NULL is negative.
    let rank = u32::try_from(frame.int(at.rank)).ok()?;
    let Peers { communicator, first } = peers_in(library, frame.word(at.communicator));
    let bytes = library.bytes(frame.count(1), frame.word(2));
    Some(Message { is_sent: true, rank: first + rank, communicator, tag: frame.int(at.tag) as u32, bytes })
}

/// Records the start of a send. Its request is known only after the function has returned.
fn start_send(library: &Library, frame: Frame, thread: &mut Thread, communicator: usize) {
    thread.call.send = 0;
    let Some(message) = sent(library, frame, Positions { communicator, ..PLAIN }) else { return };
    if message.communicator == UNKNOWN {
        completions::not_recorded(thread.location);
    } else {
        thread.call.send = requests::next_id();
        communication::message_of_request(thread.location, &message, thread.call.send);
    }
}

/// Records the start of a collective. In an unknown communicator, it is only counted as left out.
fn begin(thread: &mut Thread, communicator: AnyHandle) {
    thread.call.communicator = communicator;
    if communicator == UNKNOWN {
        completions::not_recorded(thread.location);
    } else {
        communication::collective_begin(thread.location);
    }
}

/// Records the start of MPI_Finalize as that of a collective, because it waits for all ranks.
fn begin_finalize(library: &Library, thread: &mut Thread) {
    thread.call.communicator = UNKNOWN;
    if let Some(world) = communicator(library, library.world).filter(|world| world.size > 1) {
        begin(thread, world.handle);
    }
}

/// Records the start of a persistent request.
fn start(location: *mut Location, place: Place) {
    let Some(request) = requests::get(place).filter(|request| request.stage == Stage::Inactive) else {
        return;
    };
    if request.communicator == UNKNOWN {
        return completions::not_recorded(location);
    }
    if let Operation::Group(_) = request.operation {
        requests::set(place, Request { stage: Stage::Started, ..request });
        return requests::parts(&request).for_each(|part| start_part(location, part));
    }
    let id = requests::next_id();
    requests::set(place, Request { stage: Stage::Started, id, ..request });
    match request.operation {
        Operation::Send => {
            let Request { rank, communicator, tag, sent, .. } = request;
            let message = Message { is_sent: true, rank: rank as u32, communicator, tag, bytes: sent };
            communication::message_of_request(location, &message, id);
        }
        Operation::Collective(_) => communication::request(location, RequestEvent::CollectiveStarted, id),
        _ => communication::request(location, RequestEvent::ReceiveStarted, id),
    }
}

/// Records the start of one message of a group. No call waits for such a send, so it is completed at once.
fn start_part(location: *mut Location, part: Place) {
    start(location, part);
    if requests::get(part).is_some_and(|part| part.operation == Operation::Send) {
        completions::complete(location, part, &Received::default(), false);
    }
}

/// Returns the positions of the communicator, if it is an argument, and of the status among the arguments of a
/// function that receives.
fn received_by(kind: Kind) -> Option<(Option<usize>, usize)> {
    match kind {
        Kind::Receive => Some((Some(5), 6)),
        Kind::SendReceive => Some((Some(10), 11)),
        Kind::SendReceiveReplace => Some((Some(7), 8)),
        Kind::ReceiveFound => Some((None, 4)),
        _ => None,
    }
}

/// Called after the real function has returned.
///
/// # Safety
/// As for [`before`], which has been called for this call.
pub unsafe fn after(recorded: Recorded, frame: Frame, thread: &mut Thread) {
    let Some(library) = Library::get() else { return };
    let location = thread.location;
    match recorded.kind {
        Kind::Collective(_) if thread.call.communicator == UNKNOWN => return,
        // The end is recorded even if the collective failed, because its start was.
        Kind::Collective(of) => {
            return communication::collective_end(
                location,
                &described(library, of, frame, frame.has_succeeded()),
            );
        }
        Kind::Fence => return end(thread, collective::BARRIER),
        Kind::Finalize => return end(thread, collective::DESTROY_HANDLE),
        // SAFETY: by this function's contract.
        Kind::Complete(how) => return unsafe { completions::after(library, how, frame, thread) },
        _ if !frame.has_succeeded() => return,
        Kind::Neighbours(form, of) => return neighbours::after(library, (form, of), frame, thread),
        Kind::BeginEpoch(Side::Access) => return epochs::begin(library, Side::Access, frame, thread),
        Kind::EndEpoch(Side::Exposure) => return epochs::end(library, Side::Exposure, frame, thread),
        // SAFETY: the function has the address of a number, which it has set.
        Kind::TestEpoch if unsafe { frame.int_behind(1) } != 0 => {
            return epochs::end(library, Side::Exposure, frame, thread);
        }
        Kind::FreeRequest => return completions::freed(location, thread.call.place),
        _ => {}
    }
    if let Some((communicator, status)) = received_by(recorded.kind) {
        let peers = match communicator {
            Some(at) => peers_in(library, frame.word(at)),
            None => take_found_message(thread.call.place),
        };
        // SAFETY: MPI has filled in the status.
        let received = unsafe { library.received(frame.word(status)) };
        return completions::received(location, peers, &received);
    }
    // SAFETY: by this function's contract.
    unsafe { keep_new(library, recorded.kind, frame, thread) };
}

/// Removes a found message from the table, because it is now received. Returns the possible senders.
fn take_found_message(place: Place) -> Peers {
    let found = requests::get(place).filter(|found| found.operation == Operation::FoundMessage);
    requests::remove(place);
    let Request { communicator, rank, .. } =
        found.unwrap_or(Request { communicator: UNKNOWN, ..Request::NEW });
    Peers { communicator, first: rank as u32 }
}

/// Keeps the request that a function has made, or the message that it has found.
///
/// # Safety
/// As for [`after`]; the function was successful.
unsafe fn keep_new(library: &Library, kind: Kind, frame: Frame, thread: &mut Thread) {
    // SAFETY: the function's argument is the address of a request, or of a found message.
    let handle = |at: usize| unsafe { library.handle_in(frame.word(at), 0) };
    let new = Request::NEW;
    match kind {
        Kind::StartSend => {
            keep_send(library, thread, handle(6), Request { operation: Operation::Send, ..new })
        }
        Kind::StartSendReceive | Kind::StartSendReceiveReplace => {
            let (source, request) = if kind == Kind::StartSendReceive { (8, 11) } else { (5, 8) };
            keep_send(library, thread, handle(request), Request { operation: Operation::Send, ..new });
            // MPICH fills in no status, so nothing is known about the message.
            if !library.is_proc_null(frame.int(source)) {
                completions::not_recorded(thread.location);
            }
        }
        Kind::StartReceive if !library.is_proc_null(frame.int(3)) => {
            keep_receive(thread.location, handle(6), peers_in(library, frame.word(5)));
        }
        Kind::StartReceiveFound if thread.call.place != requests::NOWHERE => {
            keep_receive(thread.location, handle(4), take_found_message(thread.call.place));
        }
        Kind::Find { tests } => {
            // SAFETY: a function that tests for a message has the address of a number.
            let is_found = !tests || unsafe { frame.int_behind(3) } != 0;
            if is_found && !library.is_proc_null(frame.int(0)) {
                keep_found_message(library, frame.word(2), handle(if tests { 4 } else { 3 }));
            }
        }
        Kind::InitSend | Kind::InitReceive | Kind::InitPartitionedSend | Kind::InitPartitionedReceive => {
            keep_persistent(library, thread.location, kind, frame, &handle);
        }
        Kind::StartCollective(of) => {
            keep_collective(library, frame, thread.location, (of, Stage::Once), handle(arguments(of).0 + 1));
        }
        Kind::StartDuplicate { request } => {
            let of = (collective::CREATE_HANDLE, Stage::Once);
            keep_collective(library, frame, thread.location, of, handle(request));
        }
        // An MPI_Info comes before the request.
        Kind::InitCollective(of) => {
            let request = handle(arguments(of).0 + 2);
            keep_collective(library, frame, thread.location, (of, Stage::Inactive), request);
        }
        _ => {}
    }
}

/// Keeps a message that was found, and that will be received.
pub fn keep_found_message(library: &Library, communicator: usize, handle: usize) {
    let (operation, Peers { communicator, first }) =
        (Operation::FoundMessage, peers_in(library, communicator));
    let rank = first as i32;
    let request = Request { operation, id: requests::next_id(), communicator, rank, ..Request::NEW };
    requests::insert(handle, request);
}

/// Keeps the request of a send. The send was recorded before, unless it is to MPI_PROC_NULL.
fn keep_send(library: &Library, thread: &Thread, handle: usize, request: Request) {
    let id = thread.call.send;
    if id != 0 {
        let is_complete = library.is_complete(handle)
            || requests::insert(handle, Request { id, ..request }) == Inserted::IsComplete;
        if is_complete {
            communication::request(thread.location, RequestEvent::SendCompleted, id);
        }
    }
}

fn keep_receive(location: *mut Location, handle: usize, Peers { communicator, first }: Peers) {
    let id = requests::next_id();
    let request = Request { id, communicator, rank: first as i32, ..Request::NEW };
    if communicator != UNKNOWN && requests::insert(handle, request) == Inserted::Yes {
        communication::request(location, RequestEvent::ReceiveStarted, id);
    } else {
        completions::not_recorded(location);
    }
}

/// Keeps the request of a collective that was started, or a persistent request of one.
fn keep_collective(
    library: &Library,
    frame: Frame,
    location: *mut Location,
    (of, stage): (i32, Stage),
    handle: usize,
) {
    let Collective { communicator, root, sent, received, .. } = described(library, of, frame, true);
    let id = requests::next_id();
    let operation = Operation::Collective(of);
    let request = Request { operation, stage, id, communicator, rank: root, tag: 0, sent, received };
    if communicator == UNKNOWN || requests::insert(handle, request) != Inserted::Yes {
        completions::not_recorded(location);
    } else if stage == Stage::Once {
        communication::request(location, RequestEvent::CollectiveStarted, id);
    }
}

/// Keeps a persistent request of a message. Those to and from MPI_PROC_NULL are not recorded. If there is no room, none of its
/// messages is recorded, and one is counted as missing.
fn keep_persistent(
    library: &Library,
    location: *mut Location,
    kind: Kind,
    frame: Frame,
    handle: &dyn Fn(usize) -> usize,
) {
    let is_partitioned = matches!(kind, Kind::InitPartitionedSend | Kind::InitPartitionedReceive);
    // The number of partitions comes before the count.
    let more = usize::from(is_partitioned);
    let rank = frame.int(3 + more);
    if library.is_proc_null(rank) {
        return;
    }
    let bytes = match is_partitioned {
        // The number of elements of a partition always has 64 bits.
        true => {
            (frame.int(1).max(0) as u64).saturating_mul(library.bytes(frame.word(2) as i64, frame.word(3)))
        }
        false => library.bytes(frame.count(1), frame.word(2)),
    };
    let operation = match kind {
        Kind::InitSend | Kind::InitPartitionedSend => Operation::Send,
        Kind::InitReceive => Operation::Receive,
        _ => Operation::KnownReceive,
    };
    let Peers { communicator, first } = peers_in(library, frame.word(5 + more));
    let request = Request {
        operation,
        stage: Stage::Inactive,
        id: requests::next_id(),
        communicator,
        rank: first as i32 + if operation == Operation::Receive { 0 } else { rank },
        tag: frame.int(4 + more) as u32,
        sent: bytes,
        received: bytes,
    };
    if requests::insert(handle(6 + 2 * more), request) == Inserted::No {
        completions::not_recorded(location);
    }
}

/// Records the end of a collective that has neither a root nor data.
fn end(thread: &Thread, operation: i32) {
    let communicator = thread.call.communicator;
    if communicator != UNKNOWN {
        let end = Collective { communicator, root: root::NONE, operation, sent: 0, received: 0 };
        communication::collective_end(thread.location, &end);
    }
}
