//! The event path: Score-P calls these functions for every enter and leave. Each writes one record.
//!
//! A location's writer is attached to Score-P's location object, and found by its address ([`known_locations`]). One thread at a
//! time writes its events, so nothing is shared and nothing is locked. Names in capitals in SAFETY comments are promises of
//! Score-P ([`scorep_abi::guarantees`]).

use crate::known_locations;
use crate::location_data::{Inner, LocationData};
use ampere_ring::communication::Communication;
use ampere_signal_safety::stack_address;
use crossbeam_utils::CachePadded;
use scorep_abi::{AnyHandle, Callbacks, Location, event};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

type GetData = unsafe extern "C" fn(*const Location, usize) -> *mut c_void;

static PLUGIN_ID: AtomicUsize = AtomicUsize::new(0);
/// `SCOREP_Location_GetData`, or `no_data` when the plugin is inert, so that the event path needs no other test.
static GET_DATA: AtomicPtr<()> = AtomicPtr::new(no_data as *mut ());

extern "C" fn no_data(_location: *const Location, _plugin_id: usize) -> *mut c_void {
    null_mut()
}

/// Stores Score-P's ID of this plugin.
pub fn set_plugin_id(plugin_id: usize) {
    PLUGIN_ID.store(plugin_id, Ordering::Relaxed);
}

/// Score-P's ID of this plugin.
pub fn plugin_id() -> usize {
    PLUGIN_ID.load(Ordering::Relaxed)
}

/// Stores the Score-P function that the event path calls.
pub fn set_callbacks(callbacks: &Callbacks) {
    if let Some(get_data) = callbacks.location_get_data {
        GET_DATA.store(get_data as *mut (), Ordering::Relaxed);
    }
}

/// Whether events are ignored, because [`stop`] was called.
fn is_stopped() -> bool {
    std::ptr::eq(GET_DATA.load(Ordering::Relaxed), no_data as *mut ())
}

/// Makes the plugin ignore all later events.
pub fn stop() {
    GET_DATA.store(no_data as *mut (), Ordering::Relaxed);
    known_locations::forget_all();
}

/// Runs `body` with the location's data, unless this call interrupts an event being written. Returns `false` only if the location
/// has no data.
///
/// # Safety
/// LOCATION LIFE, and this thread is the location's ONE WRITER.
#[inline(always)]
pub unsafe fn with_data(location: *const Location, body: impl FnOnce(&mut Inner)) -> bool {
    let Some(data) = data_of(location) else { return false };
    if data.begin() || data.take_over(stack_address()) {
        // SAFETY: ONE WRITER is this thread, between `begin` and `end`.
        body(unsafe { data.inner() });
        data.end();
    }
    true
}

/// The number of calls without a location to record them on, in shards because many threads may count at the same time.
static UNRECORDED: [CachePadded<AtomicU64>; SHARDS] = [const { CachePadded::new(AtomicU64::new(0)) }; SHARDS];
const SHARDS: usize = 64;

/// Counts calls of a location without data.
#[cold]
pub fn count_unrecorded(location: *const Location, calls: u64) {
    if !is_stopped() {
        UNRECORDED[(location.addr() >> 6) % SHARDS].fetch_add(calls, Ordering::Relaxed);
    }
}

/// The number of calls so far that had no location to record them on.
pub fn unrecorded_calls() -> u64 {
    UNRECORDED.iter().map(|shard| shard.load(Ordering::Relaxed)).sum()
}

/// Returns the data that `process::new_location` attached to the location.
#[inline(always)]
pub fn data_of<'a>(location: *const Location) -> Option<&'a LocationData> {
    known_locations::find(location).or_else(|| ask_for_data(location))
}

fn ask_for_data<'a>(location: *const Location) -> Option<&'a LocationData> {
    // SAFETY: GET_DATA only holds functions of this type; LOCATION DATA is NULL or a `LocationData`, which is never freed.
    unsafe {
        let get_data: GetData = std::mem::transmute(GET_DATA.load(Ordering::Relaxed));
        get_data(location, PLUGIN_ID.load(Ordering::Relaxed)).cast::<LocationData>().as_ref()
    }
}

/// Called by the embedded host to report calls that it could not pass on as events.
///
/// # Safety
/// `location` is NULL or one of the host's, and no other thread is its ONE WRITER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ampere_missed_calls(location: *const Location, calls: u64) {
    let data = if location.is_null() { None } else { data_of(location) };
    match data {
        None => count_unrecorded(location, calls),
        // This comes first: the function may run on a different stack from the events, and addresses on different stacks cannot
        // be compared.
        Some(data) if data.add_dropped(calls) => {}
        // SAFETY: by this function's contract.
        Some(data) => _ = unsafe { with_data(location, |inner| data.report_dropped(inner)) },
    }
}

/// Called by the embedded host to report that this thread has abandoned an unfinished event of the location.
///
/// # Safety
/// `location` belongs to the host, this thread is its ONE WRITER, and the call is on the thread's own stack.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ampere_event_was_abandoned(location: *const Location) {
    // SAFETY: by this function's contract.
    unsafe { with_data(location, |inner| inner.writer.event_was_abandoned()) };
}

/// Sets the correlation id of the next enter on this location: a launch, or, on a GPU's location, a launched kernel or copy. Ids
/// are unique in the process; 0 means none.
///
/// # Safety
/// `location` belongs to the host, and this thread is its ONE WRITER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ampere_plugin_correlation(location: *const Location, id: u64) {
    // SAFETY: by this function's contract.
    unsafe { with_data(location, |inner| inner.writer.correlate_next(id)) };
}

/// Records that all events of this location before `time` have been recorded.
///
/// # Safety
/// `location` belongs to the host, and this thread is its ONE WRITER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ampere_plugin_quiet_until(location: *const Location, time: u64) {
    // SAFETY: by this function's contract.
    unsafe { with_data(location, |inner| inner.writer.quiet_until(time)) };
}

/// Like [`with_data`], but does nothing while an event is being written.
///
/// # Safety
/// `location` is a QUIET LOCATION.
unsafe fn between_events(location: *const Location, body: impl FnOnce(&mut Inner)) {
    if data_of(location).is_some_and(LocationData::is_free) {
        // SAFETY: by this function's contract.
        unsafe {
            report_last_dropped(location);
            with_data(location, body);
        }
    }
}

/// Reports events that were dropped just as another one ended, after [`LocationData::end`] had checked.
///
/// # Safety
/// As for [`with_data`].
pub unsafe fn report_last_dropped(location: *const Location) {
    if let Some(data) = data_of(location).filter(|data| data.has_unreported()) {
        // SAFETY: by this function's contract.
        unsafe { with_data(location, |inner| data.report_dropped(inner)) };
    }
}

/// Called when a thread starts to write events of the location. An event still marked as being written was abandoned by a thread
/// that has since ended.
pub fn activate_location(location: *const Location) {
    if let Some(data) = data_of(location) {
        data.free();
        // SAFETY: this thread is the ONE WRITER from now on.
        unsafe { report_last_dropped(location) };
    }
}

/// Called when the location's thread stops writing events, perhaps for some time only.
pub fn deactivate_location(location: *const Location) {
    // SAFETY: Score-P's QUIET LOCATION.
    unsafe { between_events(location, |inner| inner.writer.flush()) };
}

/// Called when the location will have no further events.
pub fn delete_location(location: *const Location) {
    // SAFETY: Score-P's QUIET LOCATION.
    unsafe { between_events(location, |inner| inner.writer.flush_last()) };
    known_locations::forget(location);
}

pub unsafe extern "C" fn enter(
    location: *mut Location,
    timestamp: u64,
    region: AnyHandle,
    _metrics: *mut u64,
) {
    // The frequent case calls no function, so that no registers are saved; every other case is one call at the end.
    let data = match known_locations::find(location) {
        Some(data) if data.begin() => data,
        // SAFETY: ONE WRITER, LOCATION LIFE.
        _ => return unsafe { enter_with_lookup(location, timestamp, region) },
    };
    // SAFETY: ONE WRITER is this thread, between `begin` and `end`.
    let writer = unsafe { &mut data.inner().writer };
    if !writer.enter_at_once(timestamp, region) {
        // SAFETY: as above.
        return unsafe { enter_slowly(data, timestamp, region) };
    }
    data.end();
}

/// # Safety
/// ONE WRITER, LOCATION LIFE.
#[inline(never)]
unsafe extern "C" fn enter_with_lookup(location: *const Location, timestamp: u64, region: AnyHandle) {
    // SAFETY: by this function's contract.
    if !unsafe { with_data(location, |inner| inner.writer.enter(timestamp, region)) } {
        count_unrecorded(location, 1);
    }
}

/// # Safety
/// ONE WRITER is this thread, after `begin`. This ends the event.
#[inline(never)]
unsafe extern "C" fn enter_slowly(data: &LocationData, timestamp: u64, region: AnyHandle) {
    // SAFETY: by this function's contract.
    unsafe { data.inner() }.writer.enter(timestamp, region);
    data.end();
}

pub unsafe extern "C" fn leave(
    location: *mut Location,
    timestamp: u64,
    region: AnyHandle,
    _metrics: *mut u64,
) {
    let data = match known_locations::find(location) {
        Some(data) if data.begin() => data,
        // SAFETY: ONE WRITER, LOCATION LIFE.
        _ => return unsafe { leave_with_lookup(location, timestamp, region) },
    };
    // SAFETY: ONE WRITER is this thread, between `begin` and `end`.
    let writer = unsafe { &mut data.inner().writer };
    if !writer.leave_at_once(timestamp, region) {
        // SAFETY: as above.
        return unsafe { leave_slowly(data, timestamp, region) };
    }
    data.end();
}

/// # Safety
/// ONE WRITER, LOCATION LIFE.
#[inline(never)]
unsafe extern "C" fn leave_with_lookup(location: *const Location, timestamp: u64, region: AnyHandle) {
    // SAFETY: by this function's contract.
    unsafe { with_data(location, |inner| inner.writer.leave(timestamp, region)) };
}

/// # Safety
/// ONE WRITER is this thread, after `begin`. This ends the event.
#[inline(never)]
unsafe extern "C" fn leave_slowly(data: &LocationData, timestamp: u64, region: AnyHandle) {
    // SAFETY: by this function's contract.
    unsafe { data.inner() }.writer.leave(timestamp, region);
    data.end();
}

/// Records an event of a message, a collective, a request or a team of threads.
///
/// # Safety
/// ONE WRITER, LOCATION LIFE.
pub unsafe fn communicate(location: *const Location, timestamp: u64, event: Communication) {
    // SAFETY: by this function's contract.
    unsafe { with_data(location, |inner| inner.writer.communication(timestamp, event)) };
}

/// The length of our event arrays, which reach to the last event that we handle. Score-P accepts shorter arrays than its own.
pub const EVENT_ARRAY_LENGTH: usize = event::COMM_DESTROY + 1;

macro_rules! entry {
    ($function:path : $type:ident) => {
        // SAFETY: EVENT TYPES: the entry is called with the arguments of its event, which are these.
        Some(unsafe { std::mem::transmute::<scorep_abi::$type, unsafe extern "C" fn()>($function) })
    };
}

pub(crate) use entry;
