//! Events for the trace and for the energy of waiting in MPI: messages, collectives, requests and teams of threads.
//!
//! An event names its communicator by a handle. The first event of a communicator writes the communicator's members into the
//! definitions log: when Score-P announces the handle, it does not know them yet.

use crate::events::{EVENT_ARRAY_LENGTH, communicate, enter, entry, leave};
use crate::process;
use ampere_model::{Communicator, Members};
use ampere_ring::communication::{Collective, Communication, Message};
use scorep_abi::{AnyHandle, EventFunction, GetPayload, Location, event};
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Whether the run has a trace: the environment does not switch it off.
pub fn is_wanted() -> bool {
    let off = |value: String| matches!(value.trim(), "off" | "0" | "false");
    !std::env::var("AMPERE_TRACE").is_ok_and(off)
}

/// Handles of the communicators that are defined. The trace leaves out events of further communicators.
static KNOWN: [AtomicU32; KNOWN_MAX] = [const { AtomicU32::new(NO_COMMUNICATOR) }; KNOWN_MAX];
const KNOWN_MAX: usize = 4096;
/// Score-P's `SCOREP_INVALID_INTERIM_COMMUNICATOR`.
const NO_COMMUNICATOR: AnyHandle = 0;

/// Notes that a communicator has an event. Returns whether this is its first one; `false` if there is no room in [`KNOWN`].
fn is_first_of(communicator: AnyHandle) -> bool {
    let start = (communicator.wrapping_mul(0x9e37_79b1) >> 20) as usize;
    for step in 0..KNOWN_MAX {
        let place = &KNOWN[(start + step) % KNOWN_MAX];
        let mut known = place.load(Ordering::Relaxed);
        if known == NO_COMMUNICATOR && communicator != NO_COMMUNICATOR {
            let taken = place.compare_exchange(known, communicator, Ordering::Relaxed, Ordering::Relaxed);
            match taken {
                Ok(_) => return true,
                Err(other) => known = other,
            }
        }
        if known == communicator {
            return false;
        }
    }
    false
}

#[inline]
fn defined(communicator: AnyHandle) -> AnyHandle {
    if is_first_of(communicator) {
        crate::guard::guarded((), || define(communicator));
    }
    communicator
}

#[cold]
fn define(handle: AnyHandle) {
    static GET: OnceLock<usize> = OnceLock::new();
    let name = c"SCOREP_InterimCommunicatorHandle_GetPayload";
    // SAFETY: a constant, NUL-terminated name.
    let symbol = *GET.get_or_init(|| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.addr());
    if symbol == 0 {
        return; // the embedded host defines communicators itself
    }
    // SAFETY: Score-P exports this name with this type; OWN HANDLES. An MPI event has an MPI communicator, which Score-P has
    // filled in before.
    let payload = unsafe {
        let get = std::mem::transmute::<*const c_void, GetPayload>(symbol as *const c_void);
        get(handle).as_ref()
    };
    // An inter-communicator, which has a remote size, has two groups of members and is not defined.
    if let Some(&scorep_abi::MpiCommunicator { size, rank, remote_size: 0, root, id }) = payload {
        let members = Members::Shared { root, id, size, rank };
        process::new_communicator(Communicator { handle, members });
    }
}

/// The embedded host defines a communicator by its members' ranks in MPI_COMM_WORLD; NULL means MPI_COMM_WORLD itself.
///
/// # Safety
/// `ranks` is NULL or points to `count` ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ampere_define_communicator(handle: AnyHandle, ranks: *const u32, count: usize) {
    // SAFETY: by this function's contract.
    let ranks = (!ranks.is_null()).then(|| unsafe { std::slice::from_raw_parts(ranks, count) });
    let members = ranks.map_or(Members::World, |ranks| Members::Ranks(ranks.to_vec()));
    crate::guard::guarded((), || process::new_communicator(Communicator { handle, members }));
}

macro_rules! message_events {
    ($($function:ident $event:ident $($request:ident)?;)*) => { $(
        unsafe extern "C" fn $function(
            location: *mut Location,
            timestamp: u64,
            rank: c_int,
            communicator: AnyHandle,
            tag: u32,
            bytes: u64,
            $($request: u64,)?
        ) {
            let communicator = defined(communicator);
            let message = Message { peer: rank as u32, communicator, tag, bytes };
            // SAFETY: ONE WRITER, LOCATION LIFE.
            unsafe { communicate(location, timestamp, Communication::$event(message $(, $request)?)) };
        }
    )* };
}

message_events! {
    mpi_send MpiSend;
    mpi_recv MpiRecv;
    mpi_isend MpiIsend request;
    mpi_irecv MpiIrecv request;
}

macro_rules! request_events {
    ($($function:ident $event:ident;)*) => { $(
        unsafe extern "C" fn $function(location: *mut Location, timestamp: u64, request: u64) {
            // SAFETY: ONE WRITER, LOCATION LIFE.
            unsafe { communicate(location, timestamp, Communication::$event(request)) };
        }
    )* };
}

request_events! {
    mpi_isend_complete MpiIsendComplete;
    mpi_irecv_request MpiIrecvRequest;
    mpi_request_tested MpiRequestTest;
    mpi_request_cancelled MpiRequestCancelled;
    mpi_collective_request NonBlockingCollectiveRequest;
}

unsafe extern "C" fn mpi_collective_begin(location: *mut Location, timestamp: u64) {
    // SAFETY: ONE WRITER, LOCATION LIFE.
    unsafe { communicate(location, timestamp, Communication::MpiCollectiveBegin) };
}

macro_rules! collective_events {
    ($($function:ident $event:ident $($request:ident)?;)*) => { $(
        #[allow(clippy::too_many_arguments)]
        unsafe extern "C" fn $function(
            location: *mut Location,
            timestamp: u64,
            communicator: AnyHandle,
            root: c_int,
            collective_type: c_int,
            bytes_sent: u64,
            bytes_received: u64,
            $($request: u64,)?
        ) {
            let (operation, communicator) = (collective_type as u32, defined(communicator));
            let collective = Collective { operation, communicator, root, bytes_sent, bytes_received };
            // SAFETY: ONE WRITER, LOCATION LIFE.
            unsafe { communicate(location, timestamp, Communication::$event(collective $(, $request)?)) };
        }
    )* };
}

collective_events! {
    mpi_collective_end MpiCollectiveEnd;
    mpi_collective_complete NonBlockingCollectiveComplete request;
}

unsafe extern "C" fn comm_create(location: *mut Location, timestamp: u64, communicator: AnyHandle) {
    // SAFETY: ONE WRITER, LOCATION LIFE.
    unsafe { communicate(location, timestamp, Communication::CommCreate(defined(communicator))) };
}

unsafe extern "C" fn comm_destroy(location: *mut Location, timestamp: u64, communicator: AnyHandle) {
    // SAFETY: ONE WRITER, LOCATION LIFE.
    unsafe { communicate(location, timestamp, Communication::CommDestroy(defined(communicator))) };
}

unsafe extern "C" fn thread_fork(
    location: *mut Location,
    timestamp: u64,
    paradigm: c_int,
    threads: u32,
    _fork_sequence_count: u32,
) {
    // SAFETY: ONE WRITER, LOCATION LIFE.
    unsafe { communicate(location, timestamp, Communication::ThreadFork(paradigm as u32, threads)) };
}

unsafe extern "C" fn thread_join(location: *mut Location, timestamp: u64, paradigm: c_int) {
    // SAFETY: ONE WRITER, LOCATION LIFE.
    unsafe { communicate(location, timestamp, Communication::ThreadJoin(paradigm as u32)) };
}

/// Called when a thread switches recording off. The thread is in a region of Score-P's until recording is on again.
unsafe extern "C" fn recording_off(
    location: *mut Location,
    timestamp: u64,
    region: AnyHandle,
    metrics: *mut u64,
) {
    // SAFETY: ONE WRITER, LOCATION LIFE.
    unsafe {
        enter(location, timestamp, region, metrics);
        communicate(location, timestamp, Communication::MeasurementOnOff(false));
    }
}

unsafe extern "C" fn recording_on(
    location: *mut Location,
    timestamp: u64,
    region: AnyHandle,
    metrics: *mut u64,
) {
    // SAFETY: ONE WRITER, LOCATION LIFE.
    unsafe {
        communicate(location, timestamp, Communication::MeasurementOnOff(true));
        leave(location, timestamp, region, metrics);
    }
}

/// Adds these events to a table.
pub const fn add_to(mut table: [EventFunction; EVENT_ARRAY_LENGTH]) -> [EventFunction; EVENT_ARRAY_LENGTH] {
    table[event::DISABLE_RECORDING] = entry!(recording_off: RegionEvent);
    table[event::ENABLE_RECORDING] = entry!(recording_on: RegionEvent);
    table[event::MPI_SEND] = entry!(mpi_send: MpiMessageEvent);
    table[event::MPI_RECV] = entry!(mpi_recv: MpiMessageEvent);
    table[event::MPI_COLLECTIVE_BEGIN] = entry!(mpi_collective_begin: MpiCollectiveBeginEvent);
    table[event::MPI_COLLECTIVE_END] = entry!(mpi_collective_end: MpiCollectiveEndEvent);
    table[event::MPI_ISEND_COMPLETE] = entry!(mpi_isend_complete: MpiRequestEvent);
    table[event::MPI_IRECV_REQUEST] = entry!(mpi_irecv_request: MpiRequestEvent);
    table[event::MPI_REQUEST_TESTED] = entry!(mpi_request_tested: MpiRequestEvent);
    table[event::MPI_REQUEST_CANCELLED] = entry!(mpi_request_cancelled: MpiRequestEvent);
    table[event::MPI_ISEND] = entry!(mpi_isend: MpiMessageRequestEvent);
    table[event::MPI_IRECV] = entry!(mpi_irecv: MpiMessageRequestEvent);
    table[event::THREAD_FORK_JOIN_FORK] = entry!(thread_fork: ThreadForkEvent);
    table[event::THREAD_FORK_JOIN_JOIN] = entry!(thread_join: ThreadJoinEvent);
    table[event::MPI_NON_BLOCKING_COLLECTIVE_REQUEST] = entry!(mpi_collective_request: MpiRequestEvent);
    table[event::MPI_NON_BLOCKING_COLLECTIVE_COMPLETE] =
        entry!(mpi_collective_complete: MpiCollectiveCompleteEvent);
    table[event::COMM_CREATE] = entry!(comm_create: CommEvent);
    table[event::COMM_DESTROY] = entry!(comm_destroy: CommEvent);
    table
}
