//! Collectives among neighbours, recorded as messages: one to each rank that gets data from this one, which ends at once, and one
//! from each rank that this one waits for. OTF2 has no operation for them.

use super::collectives::arguments;
use super::communicators::handle_of;
use super::completions;
use super::frame::Frame;
use super::library::{Library, Neighbours};
use super::requests;
use crate::communication::{self, Message, RequestEvent};
use crate::guard::on_own_stack;
use crate::thread::Thread;
use scorep_abi::collective;
use std::ffi::c_int;

/// The tag of these messages. No program can use it, because it is negative.
const TAG: u32 = c_int::MIN as u32;

/// Records what a call sends, before the real function is called. `of` is the collective whose arguments are the same.
pub fn send(library: &Library, of: c_int, frame: Frame, thread: &Thread) {
    let with = if matches!(of, collective::ALLTOALLV | collective::ALLTOALLW) {
        Counts::Each(1)
    } else {
        Counts::One(1)
    };
    let is_known = each(library, of, frame, with, Neighbours::receivers, |message| {
        send_at_once(thread, &Message { is_sent: true, ..message });
    });
    if !is_known {
        completions::not_recorded(thread.location);
    }
}

/// Records the start and the end of a send for which the call does not wait.
pub fn send_at_once(thread: &Thread, message: &Message) {
    let id = requests::next_id();
    communication::message_of_request(thread.location, message, id);
    communication::request(thread.location, RequestEvent::SendCompleted, id);
}

/// Records what a call has received.
pub fn receive(library: &Library, of: c_int, frame: Frame, thread: &Thread) {
    let with = match of {
        collective::ALLTOALLV | collective::ALLTOALLW => Counts::Each(5),
        collective::ALLGATHERV => Counts::Each(4),
        _ => Counts::One(4),
    };
    each(library, of, frame, with, Neighbours::senders, |message| {
        communication::message(thread.location, &message);
    });
}

/// The position of the argument that is the number of elements for all neighbours, or of the array of those for each.
#[derive(Clone, Copy)]
enum Counts {
    One(usize),
    Each(usize),
}

/// Passes on the message to or from each neighbour. Returns `false` if the neighbours are unknown.
fn each(
    library: &Library,
    of: c_int,
    frame: Frame,
    counts: Counts,
    ranks: fn(&Neighbours) -> &[c_int],
    pass: impl Fn(Message),
) -> bool {
    let argument = frame.word(arguments(of).0);
    let communicator = handle_of(library, argument);
    let Some(neighbours) = on_own_stack(None, || library.neighbours(library.handle(argument))) else {
        return false;
    };
    for (at, rank) in ranks(&neighbours).iter().enumerate() {
        // MPI_PROC_NULL is negative.
        let Ok(rank) = u32::try_from(*rank) else { continue };
        let bytes = match counts {
            Counts::One(count) => library.bytes(frame.count(count), frame.word(count + 1)),
            // SAFETY: the arrays have an element for each neighbour.
            Counts::Each(count) => unsafe {
                let datatype = match of {
                    collective::ALLTOALLW => library.handle_in(frame.word(count + 2), at),
                    _ => frame.word(count + 2),
                };
                library.bytes(frame.count_in(count, at), datatype)
            },
        };
        pass(Message { is_sent: false, rank, communicator, tag: TAG, bytes });
    }
    true
}
