//! The event path: Score-P calls these functions for every enter and leave. Each writes one record.
//!
//! A location's writer is attached to Score-P's location object, and found by its address ([`known_locations`]). One thread at a
//! time writes its events, so nothing is shared and nothing is locked. Names in capitals in SAFETY comments are promises of
//! Score-P ([`scorep_abi::guarantees`]).
//!
//! A signal handler runs in the thread that it interrupts and may have events of its own: an instrumented function, or a
//! sample. Such an event that arrives while another one is being written is dropped and counted.

use crate::{communication, known_locations};
use ampere_ring::EventWriter;
use ampere_ring::communication::Communication;
use ampere_signal_safety::{is_on_alternate_stack, stack_address};
use crossbeam_utils::CachePadded;
use scorep_abi::{AnyHandle, Callbacks, EventFunction, Location, event, mode};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, compiler_fence};

type GetData = unsafe extern "C" fn(*const Location, usize) -> *mut c_void;
type HandleToHandle = unsafe extern "C" fn(AnyHandle) -> u32;

/// The plugin's data of a location, which is attached to Score-P's object.
pub struct LocationData {
    /// [`FREE`], or the stack address of the thread that is writing an event, with the flag [`INTERRUPTED`].
    busy: AtomicUsize,
    /// The number of dropped events that have not been reported.
    dropped: AtomicU64,
    inner: UnsafeCell<Inner>,
}

/// The data that one event at a time uses.
struct Inner {
    writer: EventWriter,
    /// The innermost calling context, with `SCOREP_ENABLE_UNWINDING`.
    calling_context: AnyHandle,
}

const FREE: usize = 0;
/// Bytes on the stack that tell a signal handler from the interrupted function: the kernel puts more between their frames, and
/// the functions in which we read stack addresses are closer to each other.
const SIGNAL_FRAME: usize = 512;
/// Flag in `busy`, where stack addresses are even: a signal handler's events were dropped.
const INTERRUPTED: usize = 1;

impl LocationData {
    pub fn new(writer: EventWriter) -> LocationData {
        let inner = UnsafeCell::new(Inner { writer, calling_context: NO_CONTEXT });
        LocationData { busy: AtomicUsize::new(FREE), dropped: AtomicU64::new(0), inner }
    }

    /// An event arrives, at `here` on the stack, while another one is being written. Usually a signal handler has interrupted the
    /// other one: then all events of the handler are dropped, enters and leaves, so that the stream still nests, and this returns
    /// `false`. But if a handler was left by `siglongjmp`, the thread's stack is about as deep as before, and the other event was
    /// abandoned: then this repairs the writer and returns `true`. Called by the thread that writes the location's events.
    #[cold]
    fn take_over(&self, here: usize) -> bool {
        // One of the two events is dropped in either case.
        self.dropped.fetch_add(1, Ordering::Relaxed);
        let other = self.busy.load(Ordering::Relaxed) & !INTERRUPTED;
        if here + SIGNAL_FRAME <= other || is_on_alternate_stack() {
            self.busy.fetch_or(INTERRUPTED, Ordering::Relaxed);
            return false;
        }
        self.busy.store(here | INTERRUPTED, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: ONE WRITER is this thread; a handler that interrupts it sees `busy`.
        unsafe { self.inner() }.writer.event_was_abandoned();
        true
    }

    /// Begins an event. Returns `false` if another one is being written.
    #[inline(always)]
    fn begin(&self) -> bool {
        let is_free = self.busy.load(Ordering::Relaxed) == FREE;
        if is_free {
            self.busy.store(stack_address(), Ordering::Relaxed);
            // Only a handler in this thread can interrupt: the compiler must keep the order, the processor does.
            compiler_fence(Ordering::SeqCst);
        }
        is_free
    }

    /// Ends what [`LocationData::begin`] or [`LocationData::take_over`] has begun.
    #[inline(always)]
    fn end(&self) {
        compiler_fence(Ordering::SeqCst);
        if self.busy.load(Ordering::Relaxed) & INTERRUPTED != 0 {
            return self.end_interrupted();
        }
        // Pairs with the acquire in `between_events`.
        self.busy.store(FREE, Ordering::Release);
    }

    /// The functions for rare cases of the event path have C's calling convention and do not unwind, like the functions that
    /// Score-P calls: so those can jump to them and need not save registers.
    #[cold]
    #[inline(never)]
    extern "C" fn end_interrupted(&self) {
        // SAFETY: ONE WRITER is this thread; a handler that interrupts it sees `busy`.
        self.report_dropped(unsafe { self.inner() });
        self.busy.store(FREE, Ordering::Release);
    }

    /// # Safety
    /// ONE WRITER is this thread, between `begin` and `end`: a handler that interrupts it sees `busy`.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    unsafe fn inner(&self) -> &mut Inner {
        // SAFETY: by this function's contract.
        unsafe { &mut *self.inner.get() }
    }

    #[cold]
    fn report_dropped(&self, inner: &mut Inner) {
        inner.writer.count_dropped_events(self.dropped.swap(0, Ordering::Relaxed));
    }

    /// Counts dropped events, from any thread. Returns `true` if an event is being written, which will report them.
    fn add_dropped(&self, events: u64) -> bool {
        self.dropped.fetch_add(events, Ordering::Relaxed);
        self.busy
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |busy| {
                (busy != FREE).then_some(busy | INTERRUPTED)
            })
            .is_ok()
    }
}

/// No calling context, Score-P's `SCOREP_INVALID_CALLING_CONTEXT`.
const NO_CONTEXT: AnyHandle = 0;
/// The number of calling contexts that are collected at a time when many are entered.
const CONTEXTS_AT_ONCE: usize = 256;

static PLUGIN_ID: AtomicUsize = AtomicUsize::new(0);
/// `SCOREP_Location_GetData`, or `no_data` when the plugin is inert, so that the event path needs no other test.
static GET_DATA: AtomicPtr<()> = AtomicPtr::new(no_data as *mut ());
static CONTEXT_REGION: AtomicPtr<()> = AtomicPtr::new(no_handle as *mut ());
static CONTEXT_PARENT: AtomicPtr<()> = AtomicPtr::new(no_handle as *mut ());

extern "C" fn no_data(_location: *const Location, _plugin_id: usize) -> *mut c_void {
    null_mut()
}

extern "C" fn no_handle(_handle: AnyHandle) -> u32 {
    0
}

/// Stores Score-P's number for this plugin.
pub fn set_plugin_id(plugin_id: usize) {
    PLUGIN_ID.store(plugin_id, Ordering::Relaxed);
}

/// Score-P's number for this plugin.
pub fn plugin_id() -> usize {
    PLUGIN_ID.load(Ordering::Relaxed)
}

/// Stores those of Score-P's functions that the event path calls.
pub fn set_callbacks(callbacks: &Callbacks) {
    if let Some(get_data) = callbacks.location_get_data {
        GET_DATA.store(get_data as *mut (), Ordering::Relaxed);
    }
    if let (Some(region), Some(parent)) =
        (callbacks.calling_context_handle_get_region, callbacks.calling_context_handle_get_parent)
    {
        CONTEXT_REGION.store(region as *mut (), Ordering::Relaxed);
        CONTEXT_PARENT.store(parent as *mut (), Ordering::Relaxed);
    }
}

/// Whether events are ignored, because [`stop`] was called.
fn is_stopped() -> bool {
    std::ptr::eq(GET_DATA.load(Ordering::Relaxed), no_data as *mut ())
}

/// From now on events are ignored.
pub fn stop() {
    GET_DATA.store(no_data as *mut (), Ordering::Relaxed);
    known_locations::forget_all();
}

/// Runs `body` with the location's data, unless that interrupts an event. Returns `false` if the location has none.
///
/// # Safety
/// LOCATION LIFE, and this thread is the location's ONE WRITER.
#[inline(always)]
unsafe fn with_data(location: *const Location, body: impl FnOnce(&mut Inner)) -> bool {
    let Some(data) = data_of(location) else { return false };
    if data.begin() || data.take_over(stack_address()) {
        // SAFETY: ONE WRITER is this thread, between `begin` and `end`.
        body(unsafe { data.inner() });
        data.end();
    }
    true
}

/// The number of calls without a location to record them on, in shards because many threads may count.
static UNRECORDED: [CachePadded<AtomicU64>; SHARDS] = [const { CachePadded::new(AtomicU64::new(0)) }; SHARDS];
const SHARDS: usize = 64;

#[cold]
fn count_unrecorded(location: *const Location, calls: u64) {
    if !is_stopped() {
        UNRECORDED[(location.addr() >> 6) % SHARDS].fetch_add(calls, Ordering::Relaxed);
    }
}

/// The number of calls so far that had no location to record them on.
pub fn unrecorded_calls() -> u64 {
    UNRECORDED.iter().map(|shard| shard.load(Ordering::Relaxed)).sum()
}

/// The data that `process::new_location` attached to the location.
#[inline(always)]
fn data_of<'a>(location: *const Location) -> Option<&'a LocationData> {
    known_locations::find(location).or_else(|| ask_for_data(location))
}

fn ask_for_data<'a>(location: *const Location) -> Option<&'a LocationData> {
    // SAFETY: GET_DATA only holds functions of this type; LOCATION DATA is NULL or a `LocationData`, which is never freed.
    unsafe {
        let get_data: GetData = std::mem::transmute(GET_DATA.load(Ordering::Relaxed));
        get_data(location, PLUGIN_ID.load(Ordering::Relaxed)).cast::<LocationData>().as_ref()
    }
}

/// The embedded host reports calls that it could not pass on as events.
///
/// # Safety
/// `location` is NULL or one of the host's, and no thread but this one is its ONE WRITER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ampere_missed_calls(location: *const Location, calls: u64) {
    let data = if location.is_null() { None } else { data_of(location) };
    match data {
        None => count_unrecorded(location, calls),
        // This comes first: the function may be called on another stack than events are, and their addresses cannot be compared.
        Some(data) if data.add_dropped(calls) => {}
        // SAFETY: by this function's contract.
        Some(data) => _ = unsafe { with_data(location, |inner| data.report_dropped(inner)) },
    }
}

/// The embedded host reports that this thread has abandoned an unfinished event of the location.
///
/// # Safety
/// `location` is one of the host's of which this thread is the ONE WRITER, and this is called on the thread's own stack.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ampere_event_was_abandoned(location: *const Location) {
    // SAFETY: by this function's contract.
    unsafe { with_data(location, |inner| inner.writer.event_was_abandoned()) };
}

/// Does as [`with_data`] does, but nothing while an event is being written.
///
/// # Safety
/// `location` is a QUIET LOCATION.
unsafe fn between_events(location: *const Location, body: impl FnOnce(&mut Inner)) {
    if data_of(location).is_some_and(|data| data.busy.load(Ordering::Acquire) == FREE) {
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
unsafe fn report_last_dropped(location: *const Location) {
    let is_needed = |data: &&LocationData| {
        data.busy.load(Ordering::Acquire) == FREE && data.dropped.load(Ordering::Relaxed) > 0
    };
    if let Some(data) = data_of(location).filter(is_needed) {
        // SAFETY: by this function's contract.
        unsafe { with_data(location, |inner| data.report_dropped(inner)) };
    }
}

/// A thread starts to write events of the location. If an event still counts as being written, a thread that has ended abandoned
/// it.
pub fn activate_location(location: *const Location) {
    if let Some(data) = data_of(location) {
        data.busy.store(FREE, Ordering::Relaxed);
        // SAFETY: this thread is the ONE WRITER from now on.
        unsafe { report_last_dropped(location) };
    }
}

/// The location's thread stops writing events, perhaps for some time only.
pub fn deactivate_location(location: *const Location) {
    // SAFETY: Score-P's QUIET LOCATION.
    unsafe { between_events(location, |inner| inner.writer.flush()) };
}

/// The location will have no further events.
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

unsafe extern "C" fn program_begin(
    location: *mut Location,
    timestamp: u64,
    name: AnyHandle,
    number_of_arguments: u32,
    arguments: *const AnyHandle,
    _program_region: AnyHandle,
    _process_id: u64,
    _thread_id: u64,
) {
    if communication::is_wanted() {
        let count = if arguments.is_null() { 0 } else { number_of_arguments as usize };
        let arguments = std::ptr::NonNull::new(arguments.cast_mut()).unwrap_or(std::ptr::NonNull::dangling());
        // SAFETY: the event has `number_of_arguments` arguments; the slice is empty if there is no pointer.
        let arguments = unsafe { std::slice::from_raw_parts(arguments.as_ptr(), count) };
        crate::guard::guarded((), || crate::process::new_program(name, arguments));
    }
    // SAFETY: ONE WRITER, LOCATION LIFE.
    unsafe { with_data(location, |inner| inner.writer.program_begin(timestamp)) };
}

unsafe extern "C" fn program_end(location: *mut Location, timestamp: u64, _status: i64, _region: AnyHandle) {
    // SAFETY: ONE WRITER, LOCATION LIFE.
    unsafe {
        report_last_dropped(location);
        with_data(location, |inner| {
            inner.writer.program_end(timestamp);
            inner.calling_context = NO_CONTEXT;
        })
    };
}

unsafe extern "C" fn task_begin(
    location: *mut Location,
    timestamp: u64,
    region: AnyHandle,
    metrics: *mut u64,
    _paradigm: i32,
    _thread_team: AnyHandle,
    _thread_id: u32,
    _generation_number: u32,
    _task: AnyHandle,
) {
    // SAFETY: this event's promises are those of the event that it is passed on as.
    unsafe { enter(location, timestamp, region, metrics) };
}

unsafe extern "C" fn task_end(
    location: *mut Location,
    timestamp: u64,
    region: AnyHandle,
    metrics: *mut u64,
    _paradigm: i32,
    _thread_team: AnyHandle,
    _thread_id: u32,
    _generation_number: u32,
    _task: AnyHandle,
) {
    // SAFETY: this event's promises are those of the event that it is passed on as.
    unsafe { leave(location, timestamp, region, metrics) };
}

/// With unwinding enabled, Score-P passes the whole stack as a calling context instead of the region.
unsafe extern "C" fn context_enter(
    location: *mut Location,
    timestamp: u64,
    context: AnyHandle,
    _previous: AnyHandle,
    unwind_distance: u32,
    _metrics: *mut u64,
) {
    // SAFETY: ONE WRITER, LOCATION LIFE.
    if !unsafe { with_data(location, |inner| move_to(inner, timestamp, context, unwind_distance)) } {
        count_unrecorded(location, 1);
    }
}

unsafe extern "C" fn context_leave(
    location: *mut Location,
    timestamp: u64,
    context: AnyHandle,
    _previous: AnyHandle,
    _unwind_distance: u32,
    _metrics: *mut u64,
) {
    // SAFETY: ONE WRITER, LOCATION LIFE.
    unsafe { with_data(location, |inner| move_to(inner, timestamp, parent_of(context), 1)) };
}

/// Score-P calls this in a signal handler. The context is `NO_CONTEXT` when measurement of the thread stops.
unsafe extern "C" fn sample(
    location: *mut Location,
    timestamp: u64,
    context: AnyHandle,
    _previous: AnyHandle,
    unwind_distance: u32,
    _interrupt_generator: AnyHandle,
    _metrics: *mut u64,
) {
    // SAFETY: ONE WRITER, LOCATION LIFE.
    unsafe { with_data(location, |inner| move_to(inner, timestamp, context, unwind_distance)) };
}

fn region_of(context: AnyHandle) -> u32 {
    // SAFETY: CONTEXT_REGION only holds functions of this type; OWN HANDLES.
    unsafe { std::mem::transmute::<*mut (), HandleToHandle>(CONTEXT_REGION.load(Ordering::Relaxed))(context) }
}

fn parent_of(context: AnyHandle) -> AnyHandle {
    if context == NO_CONTEXT {
        return NO_CONTEXT;
    }
    // SAFETY: as above.
    unsafe { std::mem::transmute::<*mut (), HandleToHandle>(CONTEXT_PARENT.load(Ordering::Relaxed))(context) }
}

/// Writes the leaves and enters that lead from the previous calling context to `target`, as Score-P's own profile does.
///
/// A calling context is a region, a place in it, and the context that called it. The `distance - 1` innermost contexts of
/// `target` are new. The next one was open before, perhaps at another place in the same region: its frame stays open, and
/// the frames inside it have ended.
fn move_to(data: &mut Inner, timestamp: u64, target: AnyHandle, distance: u32) {
    let (mut stays, mut new) = (target, 0);
    while new + 1 < distance as usize && stays != NO_CONTEXT {
        (stays, new) = (parent_of(stays), new + 1);
    }
    let mut open = data.calling_context;
    while open != NO_CONTEXT && !is_same_frame(open, stays) {
        data.writer.leave(timestamp, region_of(open));
        open = parent_of(open);
    }
    if open == NO_CONTEXT {
        // This is the first context, or recording was switched off meanwhile: the enclosing frames have to be entered as well.
        new = depth_of(target);
    }
    // Enters from the outermost new context to the target, some at a time: nothing may be allocated here.
    let mut at_once = [NO_CONTEXT; CONTEXTS_AT_ONCE];
    while new > 0 {
        let first = new - new.min(CONTEXTS_AT_ONCE);
        let mut context = target;
        for at in 0..new {
            if at >= first {
                at_once[at - first] = context;
            }
            context = parent_of(context);
        }
        for context in at_once[..new - first].iter().rev() {
            data.writer.enter(timestamp, region_of(*context));
        }
        new = first;
    }
    data.calling_context = target;
}

fn is_same_frame(one: AnyHandle, other: AnyHandle) -> bool {
    one == other
        || other != NO_CONTEXT && parent_of(one) == parent_of(other) && region_of(one) == region_of(other)
}

fn depth_of(mut context: AnyHandle) -> usize {
    let mut depth = 0;
    while context != NO_CONTEXT {
        depth += 1;
        context = parent_of(context);
    }
    depth
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
pub const TAKEN: usize = event::COMM_DESTROY + 1;

macro_rules! entry {
    ($function:path : $type:ident) => {
        // SAFETY: EVENT TYPES: the entry is called with the arguments of its event, which are these.
        Some(unsafe { std::mem::transmute::<scorep_abi::$type, unsafe extern "C" fn()>($function) })
    };
}

pub(crate) use entry;

/// The events that the energy figures need.
static RECORDING: [EventFunction; TAKEN] = recording();
/// The events that the figures and the trace need.
static RECORDING_ALL: [EventFunction; TAKEN] = communication::add_to(recording());

const fn recording() -> [EventFunction; TAKEN] {
    let mut table: [EventFunction; TAKEN] = [None; TAKEN];
    // A thread that switches recording off is in a region of Score-P's until recording is on again.
    table[event::DISABLE_RECORDING] = entry!(enter: RegionEvent);
    table[event::ENABLE_RECORDING] = entry!(leave: RegionEvent);
    table[event::ENTER_REGION] = entry!(enter: RegionEvent);
    table[event::EXIT_REGION] = entry!(leave: RegionEvent);
    table[event::SAMPLE] = entry!(sample: SampleEvent);
    table[event::CALLING_CONTEXT_ENTER] = entry!(context_enter: CallingContextEvent);
    table[event::CALLING_CONTEXT_EXIT] = entry!(context_leave: CallingContextEvent);
    table[event::THREAD_FORK_JOIN_TASK_BEGIN] = entry!(task_begin: TaskRegionEvent);
    table[event::THREAD_FORK_JOIN_TASK_END] = entry!(task_end: TaskRegionEvent);
    table[event::PROGRAM_BEGIN] = entry!(program_begin: ProgramBeginEvent);
    table[event::PROGRAM_END] = entry!(program_end: ProgramEndEvent);
    table
}

/// While recording is switched off, only the program's end is needed.
static NOT_RECORDING: [EventFunction; TAKEN] = {
    let mut table: [EventFunction; TAKEN] = [None; TAKEN];
    table[event::PROGRAM_END] = entry!(program_end: ProgramEndEvent);
    table
};

/// The event functions for a [`mode`]; there are none when the plugin is inert.
pub fn table(recording_mode: i32) -> &'static [EventFunction] {
    if crate::inert::is_inert() {
        return &[];
    }
    match recording_mode {
        mode::RECORDING_ENABLED if communication::is_wanted() => &RECORDING_ALL,
        mode::RECORDING_ENABLED => &RECORDING,
        _ => &NOT_RECORDING,
    }
}
