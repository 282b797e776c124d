//! The plugin's events of messages, requests and collectives.

use crate::clock;
use crate::mpi::pcontrol;
use scorep_abi::{
    AnyHandle, EventFunction, Location, MpiCollectiveBeginEvent, MpiCollectiveCompleteEvent,
    MpiCollectiveEndEvent, MpiMessageEvent, MpiMessageRequestEvent, MpiRequestEvent, event,
};
use std::ffi::c_void;
use std::ptr::null;
use std::sync::OnceLock;

/// An addition to Score-P's interface: defines a communicator by its members' ranks in MPI_COMM_WORLD; NULL means MPI_COMM_WORLD.
type DefineCommunicator = unsafe extern "C" fn(handle: AnyHandle, ranks: *const u32, count: usize);

/// The plugin's functions. A plugin that makes no trace has none.
struct Functions {
    send: MpiMessageEvent,
    receive: MpiMessageEvent,
    start_send: MpiMessageRequestEvent,
    complete_receive: MpiMessageRequestEvent,
    /// The functions for requests, indexed by [`RequestEvent`].
    requests: [MpiRequestEvent; 4],
    collective_begin: MpiCollectiveBeginEvent,
    collective_end: MpiCollectiveEndEvent,
    collective_complete: MpiCollectiveCompleteEvent,
    define_communicator: DefineCommunicator,
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// Takes the plugin's functions from an open library and its table of events, if it has all of them.
pub fn take(library: *mut c_void, function: impl Fn(usize) -> EventFunction) {
    // SAFETY: `library` is open.
    let define = unsafe { libc::dlsym(library, c"ampere_define_communicator".as_ptr()) };
    type Entry = unsafe extern "C" fn();
    // SAFETY: the entries of these indices have these types, by Score-P's interface, and so has the symbol of this name.
    let taken = || unsafe {
        let request = |index| Some(std::mem::transmute::<Entry, MpiRequestEvent>(function(index)?));
        Some(Functions {
            send: std::mem::transmute::<Entry, MpiMessageEvent>(function(event::MPI_SEND)?),
            receive: std::mem::transmute::<Entry, MpiMessageEvent>(function(event::MPI_RECV)?),
            start_send: std::mem::transmute::<Entry, MpiMessageRequestEvent>(function(event::MPI_ISEND)?),
            complete_receive: std::mem::transmute::<Entry, MpiMessageRequestEvent>(function(
                event::MPI_IRECV,
            )?),
            requests: [
                request(event::MPI_ISEND_COMPLETE)?,
                request(event::MPI_IRECV_REQUEST)?,
                request(event::MPI_REQUEST_CANCELLED)?,
                request(event::MPI_NON_BLOCKING_COLLECTIVE_REQUEST)?,
            ],
            collective_begin: std::mem::transmute::<Entry, MpiCollectiveBeginEvent>(function(
                event::MPI_COLLECTIVE_BEGIN,
            )?),
            collective_end: std::mem::transmute::<Entry, MpiCollectiveEndEvent>(function(
                event::MPI_COLLECTIVE_END,
            )?),
            collective_complete: std::mem::transmute::<Entry, MpiCollectiveCompleteEvent>(function(
                event::MPI_NON_BLOCKING_COLLECTIVE_COMPLETE,
            )?),
            define_communicator: std::mem::transmute::<*mut c_void, Option<DefineCommunicator>>(define)?,
        })
    };
    if let Some(functions) = taken() {
        let _ = FUNCTIONS.set(functions);
    }
}

/// Whether the plugin takes messages and collectives.
pub fn is_wanted() -> bool {
    FUNCTIONS.get().is_some()
}

/// Returns the functions, unless the program has switched recording off. Requests and communicators are tracked all the same.
#[inline(always)]
fn functions_if_on() -> Option<&'static Functions> {
    FUNCTIONS.get().filter(|_| !pcontrol::is_off())
}

/// A message that was sent or received.
pub struct Message {
    /// Whether this process sent the message; otherwise it received it.
    pub is_sent: bool,
    /// The rank of the other side.
    pub rank: u32,
    /// A handle that [`define_communicator`] has defined.
    pub communicator: AnyHandle,
    pub tag: u32,
    pub bytes: u64,
}

/// Passes the plugin a message with the present time, as MPI_SEND or MPI_RECV.
pub fn message(location: *mut Location, message: &Message) {
    let &Message { is_sent, rank, communicator, tag, bytes } = message;
    if let Some(functions) = functions_if_on() {
        let function = if is_sent { functions.send } else { functions.receive };
        // SAFETY: the plugin's own function; in Score-P's interface a rank is a signed number.
        unsafe { function(location, clock::now(), rank as i32, communicator, tag, bytes) };
    }
}

/// Passes the plugin the start of a send, or the end of a receive, as MPI_ISEND or MPI_IRECV.
pub fn message_of_request(location: *mut Location, message: &Message, id: u64) {
    let &Message { is_sent, rank, communicator, tag, bytes } = message;
    if let Some(functions) = functions_if_on() {
        let function = if is_sent { functions.start_send } else { functions.complete_receive };
        // SAFETY: as in `message`.
        unsafe { function(location, clock::now(), rank as i32, communicator, tag, bytes, id) };
    }
}

/// What happened to a request.
#[derive(Clone, Copy)]
pub enum RequestEvent {
    SendCompleted = 0,
    ReceiveStarted = 1,
    Cancelled = 2,
    CollectiveStarted = 3,
}

/// Passes the plugin an event of a request with the present time.
pub fn request(location: *mut Location, event: RequestEvent, id: u64) {
    if let Some(functions) = functions_if_on() {
        // SAFETY: the plugin's own function.
        unsafe { functions.requests[event as usize](location, clock::now(), id) };
    }
}

/// Passes the plugin the start of a collective with the present time, as MPI_COLLECTIVE_BEGIN.
pub fn collective_begin(location: *mut Location) {
    if let Some(functions) = functions_if_on() {
        // SAFETY: the plugin's own function.
        unsafe { (functions.collective_begin)(location, clock::now()) };
    }
}

/// A collective that has ended.
#[derive(Clone, Copy)]
pub struct Collective {
    /// A handle that [`define_communicator`] has defined.
    pub communicator: AnyHandle,
    /// The root's rank, or a value of [`scorep_abi::root`].
    pub root: i32,
    /// A value of [`scorep_abi::collective`].
    pub operation: i32,
    /// The bytes that this process sent.
    pub sent: u64,
    /// The bytes that this process received.
    pub received: u64,
}

/// Passes the plugin the end of a collective with the present time, as MPI_COLLECTIVE_END.
pub fn collective_end(location: *mut Location, end: &Collective) {
    let &Collective { communicator, root, operation, sent, received } = end;
    if let Some(functions) = functions_if_on() {
        // SAFETY: the plugin's own function.
        unsafe {
            (functions.collective_end)(location, clock::now(), communicator, root, operation, sent, received)
        };
    }
}

/// Passes the plugin the completion of a collective's request, as MPI_NON_BLOCKING_COLLECTIVE_COMPLETE.
pub fn collective_complete(location: *mut Location, end: &Collective, id: u64) {
    let &Collective { communicator, root, operation, sent, received } = end;
    if let Some(Functions { collective_complete, .. }) = functions_if_on() {
        // SAFETY: the plugin's own function.
        unsafe {
            collective_complete(location, clock::now(), communicator, root, operation, sent, received, id)
        };
    }
}

/// Defines a communicator by its members' ranks in MPI_COMM_WORLD; `None` means MPI_COMM_WORLD itself.
pub fn define_communicator(handle: AnyHandle, ranks: Option<&[u32]>) {
    if let Some(functions) = FUNCTIONS.get() {
        let (ranks, count) = ranks.map_or((null(), 0), |ranks| (ranks.as_ptr(), ranks.len()));
        // SAFETY: the plugin's own function; it copies the ranks.
        unsafe { (functions.define_communicator)(handle, ranks, count) };
    }
}
