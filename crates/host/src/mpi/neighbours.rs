//! Collectives among neighbours, recorded as messages, because OTF2 has no operation for them: a send to each rank that
//! gets data from this rank, and a receive from each rank for which this rank waits. The sends count as complete at once.
//! The request of a non-blocking or persistent collective is kept as a group of requests, with one for each message.

use super::collectives::arguments;
use super::communicators::neighbours_in;
use super::completions;
use super::frame::Frame;
use super::library::{Library, Neighbours};
use super::requests::{self, Inserted, Operation, Request, Stage};
use crate::communication::{self, Message, RequestEvent};
use crate::thread::Thread;
use scorep_abi::{AnyHandle, Location, collective};
use std::ffi::c_int;
use std::sync::Arc;

/// How a collective among neighbours is called. MPI only matches calls of the same form, so the messages of each form have
/// their own tag, which is the value here. No program can use these tags, because they are negative. `epochs.rs` uses the
/// two values between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Form {
    Blocking = c_int::MIN,
    NonBlocking = c_int::MIN + 3,
    Persistent = c_int::MIN + 4,
}

/// Records the messages that a call sends, before the real function is called. `of` is the collective with the same arguments.
pub fn before(library: &Library, (form, of): (Form, c_int), frame: Frame, thread: &Thread) {
    if form != Form::Persistent
        && let Some(exchange) = Exchange::find(library, (form, of), frame)
    {
        exchange.sent().for_each(|message| send_at_once(thread, &message));
    }
}

/// Records the messages that a call has received, or keeps its request. The real function was successful.
pub fn after(library: &Library, (form, of): (Form, c_int), frame: Frame, thread: &Thread) {
    let location = thread.location;
    let Some(exchange) = Exchange::find(library, (form, of), frame) else {
        return completions::not_recorded(location);
    };
    let received = exchange.received();
    match form {
        Form::Blocking => received.for_each(|message| communication::message(location, &message)),
        Form::NonBlocking => exchange.keep(location, Stage::Once, 1, received),
        Form::Persistent => {
            exchange.keep(location, Stage::Inactive, 2, exchange.sent().chain(received));
        }
    }
}

/// Records the start and the end of a send for which the call does not wait.
pub fn send_at_once(thread: &Thread, message: &Message) {
    let id = requests::next_id();
    communication::message_of_request(thread.location, message, id);
    communication::request(thread.location, RequestEvent::SendCompleted, id);
}

/// A call in a communicator that is known, and whose neighbours are known.
struct Exchange<'a> {
    library: &'a Library,
    form: Form,
    of: c_int,
    frame: Frame,
    communicator: AnyHandle,
    neighbours: Arc<Neighbours>,
}

/// The position of the argument with the number of elements: one number for all neighbours, or an array with one for each.
#[derive(Clone, Copy)]
enum Counts {
    One(usize),
    Each(usize),
}

impl Exchange<'_> {
    fn find(library: &Library, (form, of): (Form, c_int), frame: Frame) -> Option<Exchange<'_>> {
        let (communicator, neighbours) = neighbours_in(library, frame.word(arguments(of).0))?;
        Some(Exchange { library, form, of, frame, communicator, neighbours })
    }

    /// Returns the messages to the neighbours.
    fn sent(&self) -> impl Iterator<Item = Message> {
        let counts = match self.of {
            collective::ALLTOALLV | collective::ALLTOALLW => Counts::Each(1),
            _ => Counts::One(1),
        };
        let messages = self.messages(self.neighbours.receivers(), counts);
        messages.map(|message| Message { is_sent: true, ..message })
    }

    /// Returns the messages from the neighbours.
    fn received(&self) -> impl Iterator<Item = Message> {
        let counts = match self.of {
            collective::ALLTOALLV | collective::ALLTOALLW => Counts::Each(5),
            collective::ALLGATHERV => Counts::Each(4),
            _ => Counts::One(4),
        };
        self.messages(self.neighbours.senders(), counts)
    }

    fn messages(&self, ranks: &[c_int], counts: Counts) -> impl Iterator<Item = Message> {
        let &Exchange { library, form, of, frame, communicator, .. } = self;
        ranks.iter().enumerate().filter_map(move |(at, rank)| {
            // MPI_PROC_NULL is negative.
            let rank = u32::try_from(*rank).ok()?;
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
            Some(Message { is_sent: false, rank, communicator, tag: form as u32, bytes })
        })
    }

    /// Keeps the request of this call, and one for each of its messages. `at` is the position of the request among the
    /// arguments, counted from that of the communicator.
    fn keep(
        &self,
        location: *mut Location,
        stage: Stage,
        at: usize,
        messages: impl Iterator<Item = Message>,
    ) {
        let sends_max = if stage == Stage::Once { 0 } else { self.neighbours.receivers().len() };
        let messages_max = sends_max + self.neighbours.senders().len();
        let id = requests::next_ids(1 + messages_max as u64);
        let operation = Operation::Group(messages_max as u32);
        let group = Request { operation, stage, id, communicator: self.communicator, ..Request::NEW };
        // SAFETY: the argument is the address of a request, which the real function has made.
        let handle = unsafe { self.library.handle_in(self.frame.word(arguments(self.of).0 + at), 0) };
        if requests::insert(handle, group) != Inserted::Yes {
            return completions::not_recorded(location);
        }
        for (id, Message { is_sent, rank, communicator, tag, bytes }) in (id + 1..).zip(messages) {
            let operation = if is_sent { Operation::Send } else { Operation::KnownReceive };
            let part = Request {
                operation,
                stage,
                id,
                communicator,
                rank: rank as i32,
                tag,
                sent: bytes,
                received: bytes,
            };
            if !requests::insert_part(part) {
                // The messages of a collective are recorded all or not at all.
                requests::remove(requests::find(handle));
                return completions::not_recorded(location);
            }
        }
        if stage == Stage::Once {
            let kept = requests::parts(&group).filter_map(requests::get);
            kept.for_each(|part| communication::request(location, RequestEvent::ReceiveStarted, part.id));
        }
    }
}
