//! Records the requests that a call completes.

use super::communicators::{Peers, UNKNOWN};
use super::frame::Frame;
use super::kinds::Completion;
use super::library::{Library, Received};
use super::requests::{self, NOWHERE, Operation, Place, Request, Stage};
use super::state::CallState;
use crate::communication::{self, Collective, Message, RequestEvent};
use crate::thread::Thread;
use scorep_abi::Location;

/// The positions of the arguments of a function that completes requests.
struct Positions {
    flag: Option<usize>,
    /// The index of the complete request, or the array of the indices of complete requests. The argument before the array is
    /// their number.
    index: Option<usize>,
    status: usize,
}

fn positions(how: Completion) -> Positions {
    let (flag, index, status) = match how {
        Completion::Wait => (None, None, 1),
        Completion::Test | Completion::GetStatus => (Some(1), None, 2),
        Completion::WaitAny => (None, Some(2), 3),
        Completion::TestAny => (Some(3), Some(2), 4),
        Completion::WaitAll => (None, None, 2),
        Completion::TestAll => (Some(2), None, 3),
        Completion::Some => (None, Some(3), 4),
    };
    Positions { flag, index, status }
}

/// Whether the function has one request, and not an array.
fn has_one(how: Completion) -> bool {
    matches!(how, Completion::Wait | Completion::Test | Completion::GetStatus)
}

/// Whether the function has an array of statuses.
fn has_statuses(how: Completion) -> bool {
    matches!(how, Completion::WaitAll | Completion::TestAll | Completion::Some)
}

/// The maximum length of an array whose requests are all looked up before the call, although few of them may be complete after
/// it. A lookup takes 20 ns.
const LOOKED_UP_BEFORE_MAX: usize = 64;

/// Whether only the requests that are complete after the call are looked up, by the handles that they had before the call.
fn is_looked_up_later(how: Completion, count: usize) -> bool {
    how != Completion::WaitAll && count > LOOKED_UP_BEFORE_MAX
}

/// Returns the place of an element of the call's array of requests.
fn place_at(call: &mut CallState, how: Completion, at: usize) -> Place {
    if is_looked_up_later(how, call.places.len()) {
        let handle = call.places.handles().get(at).copied();
        handle.map_or(NOWHERE, |handle| requests::find_below(handle, call.next_id))
    } else {
        call.places.all().get(at).copied().unwrap_or(NOWHERE)
    }
}

/// Finds the requests before the real function replaces their handles by MPI_REQUEST_NULL. If the program passes no statuses,
/// ours are passed.
///
/// # Safety
/// As for [`messages::before`](super::messages::before).
pub unsafe fn before(library: &Library, how: Completion, frame: Frame, thread: &mut Thread) {
    let call = &mut thread.call;
    let status = positions(how).status;
    let ignores = library.is_ignored(frame.word(status));
    if has_one(how) {
        call.place = requests::find(match how {
            Completion::GetStatus => library.handle(frame.word(0)),
            // SAFETY: the argument is the address of a request.
            _ => unsafe { library.handle_in(frame.word(0), 0) },
        });
        if ignores && call.place != NOWHERE {
            frame.set(status, call.status.as_mut_ptr() as usize);
        }
        return;
    }
    let count = usize::try_from(frame.int(0)).unwrap_or(0);
    call.place = NOWHERE;
    if !call.places.resize(count) {
        // The requests stay open in the table, and their messages are not recorded.
        return not_recorded(thread.location);
    }
    // SAFETY: the array has more than `at` requests.
    let handle = |at: usize| unsafe { library.handle_in(frame.word(1), at) };
    // For an array, `place` shows only whether any of the requests may be known.
    if is_looked_up_later(how, count) {
        call.next_id = requests::coming_id();
        call.places.handles().iter_mut().enumerate().for_each(|(at, saved)| *saved = handle(at));
        call.place = 1;
    } else {
        for (at, place) in call.places.all().iter_mut().enumerate() {
            *place = requests::find(handle(at));
            call.place |= *place;
        }
    }
    if ignores && call.place != NOWHERE {
        let ours = match has_statuses(how) {
            true => call.places.statuses(),
            false => call.status.as_mut_ptr() as usize,
        };
        frame.set(status, ours);
    }
}

/// Records the requests that are complete.
///
/// # Safety
/// As for [`messages::after`](super::messages::after).
pub unsafe fn after(library: &Library, how: Completion, frame: Frame, thread: &mut Thread) {
    let Positions { flag, index, status } = positions(how);
    let location = thread.location;
    if thread.call.place == NOWHERE {
        return; // none of the requests is known
    }
    if !frame.has_succeeded() {
        // SAFETY: by this function's contract.
        return unsafe { forget_ended(library, how, frame, thread) };
    }
    // SAFETY: the function's argument is the address of a number.
    if flag.is_some_and(|at| unsafe { frame.int_behind(at) } == 0) {
        return;
    }
    let status_of = |at: usize| {
        // SAFETY: MPI has filled in this status.
        unsafe { library.received(frame.word(status) + at * library.status_bytes()) }
    };
    if has_one(how) {
        return complete(location, thread.call.place, &status_of(0), how == Completion::GetStatus);
    }
    let call = &mut thread.call;
    match (how, index) {
        (Completion::WaitAny | Completion::TestAny, Some(index)) => {
            // SAFETY: as for the flag. The index is negative if there was no request.
            let at = usize::try_from(unsafe { frame.int_behind(index) }).ok();
            if let Some(at) = at {
                complete(location, place_at(call, how, at), &status_of(0), false);
            }
        }
        (_, Some(indices)) => {
            // SAFETY: as for the flag. The number is negative if there was no request.
            let count = usize::try_from(unsafe { frame.int_behind(indices - 1) }).unwrap_or(0);
            for nth in 0..count {
                // SAFETY: the array has an index for each complete request.
                let at = unsafe { *(frame.word(indices) as *const i32).add(nth) };
                if let Ok(at) = usize::try_from(at) {
                    complete(location, place_at(call, how, at), &status_of(nth), false);
                }
            }
        }
        _ => {
            for at in 0..call.places.len() {
                let place = place_at(call, how, at);
                if place != NOWHERE {
                    complete(location, place, &status_of(at), false);
                }
            }
        }
    }
}

/// Removes from the table the requests that a failed call has ended. Whether they were completed is unknown.
///
/// # Safety
/// As for [`after`].
unsafe fn forget_ended(library: &Library, how: Completion, frame: Frame, thread: &mut Thread) {
    if how == Completion::GetStatus {
        return;
    }
    let call = &mut thread.call;
    let (count, array) = if has_one(how) { (1, 0) } else { (call.places.len(), 1) };
    for at in 0..count {
        let place = if has_one(how) { call.place } else { place_at(call, how, at) };
        // SAFETY: the array has more than `at` requests.
        let handle = unsafe { library.handle_in(frame.word(array), at) };
        if place != NOWHERE && requests::find(handle) != place {
            requests::remove(place);
            not_recorded(thread.location);
        }
    }
}

/// Records that a request is complete. `is_kept`: the request stays valid, and the program completes it once more.
pub fn complete(location: *mut Location, place: Place, status: &Received, is_kept: bool) {
    let Some(request) = requests::get(place) else { return };
    // The status of a group contains nothing about its messages.
    requests::parts(&request).for_each(|part| complete(location, part, &Received::default(), false));
    match (request.stage, is_kept) {
        (Stage::Inactive, _) | (Stage::Completed, true) => return,
        (Stage::Completed, false) => return requests::remove(place),
        (Stage::Once, false) => requests::remove(place),
        (Stage::Once, true) => requests::set(place, Request { stage: Stage::Completed, ..request }),
        (Stage::Started, _) => requests::set(place, Request { stage: Stage::Inactive, ..request }),
    }
    let Request { id, communicator, rank, sent, received, .. } = request;
    match request.operation {
        Operation::FoundMessage | Operation::Group(_) => {}
        Operation::Collective(operation) => {
            let end = Collective { communicator, root: rank, operation, sent, received };
            communication::collective_complete(location, &end, id);
        }
        _ if status.is_cancelled => communication::request(location, RequestEvent::Cancelled, id),
        Operation::Send => communication::request(location, RequestEvent::SendCompleted, id),
        Operation::Receive => {
            let peers = Peers { communicator, first: rank as u32 };
            if let Some(message) = message_of(peers, status) {
                communication::message_of_request(location, &message, id);
            }
        }
        Operation::KnownReceive => {
            let rank = rank as u32;
            let message = Message { is_sent: false, rank, communicator, tag: request.tag, bytes: received };
            communication::message_of_request(location, &message, id);
        }
    }
}

/// Returns the received message; `None` if it is from MPI_PROC_NULL.
fn message_of(Peers { communicator, first }: Peers, received: &Received) -> Option<Message> {
    let rank = first + u32::try_from(received.source).ok()?;
    Some(Message { is_sent: false, rank, communicator, tag: received.tag as u32, bytes: received.bytes })
}

/// Records a message that a blocking call has received.
pub fn received(location: *mut Location, peers: Peers, received: &Received) {
    if let Some(message) = message_of(peers, received) {
        communication::message(location, &message);
    }
}

/// Records that the program has freed a request. The library completes its operation, but the program does not see that.
pub fn freed(location: *mut Location, place: Place) {
    let Some(request) = requests::get(place) else { return };
    requests::remove(place);
    let is_open = matches!(request.stage, Stage::Once | Stage::Started);
    let receives =
        matches!(request.operation, Operation::Receive | Operation::KnownReceive | Operation::Group(_));
    if is_open && receives {
        not_recorded(location);
    }
}

/// Counts a message or a collective that is not recorded: as one in an unknown communicator, which the trace leaves out and
/// counts.
#[cold]
pub fn not_recorded(location: *mut Location) {
    let message = Message { is_sent: false, rank: 0, communicator: UNKNOWN, tag: 0, bytes: 0 };
    communication::message(location, &message);
}
