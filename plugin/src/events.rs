//! The event path. Score-P calls these for every enter and leave: a look at the location, one record, done.
//!
//! Each location's writer hangs on Score-P's own location object, and only one thread at a time writes events of one
//! location (Score-P's promise), so nothing is shared and nothing is locked.
//!
//! A signal handler runs in the thread that it interrupts, and may have events of its own: an instrumented function of the
//! program's, or a sample. One that comes while an event is being written is left out and counted; Score-P keeps its own
//! samples back then, but nobody has to.

use ampere_ring::EventWriter;
use ampere_signal_safety::{is_on_alternate_stack, stack_address};
use crossbeam_utils::CachePadded;
use scorep_abi::{AnyHandle, Callbacks, EventFunction, Location, event, mode};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, compiler_fence};

type GetData = unsafe extern "C" fn(*const Location, usize) -> *mut c_void;
type HandleToHandle = unsafe extern "C" fn(AnyHandle) -> u32;

/// What hangs on a location.
pub struct LocationData {
    /// [`FREE`], or where on its stack the thread that writes an event is; and [`INTERRUPTED`].
    busy: AtomicUsize,
    /// Events that came meanwhile, in a signal handler.
    lost: AtomicU64,
    inner: UnsafeCell<Inner>,
}

/// What events are written with: never by two at once.
struct Inner {
    writer: EventWriter,
    /// Innermost calling context, with `SCOREP_ENABLE_UNWINDING`.
    calling_context: AnyHandle,
}

const FREE: usize = 0;
/// The kernel puts more than this on the stack between what is interrupted and the handler.
const SIGNAL_FRAME: usize = 512;
/// Busy, and a signal handler's events were lost.
const INTERRUPTED: usize = 1;

impl LocationData {
    pub fn new(writer: EventWriter) -> LocationData {
        let inner = UnsafeCell::new(Inner { writer, calling_context: NO_CONTEXT });
        LocationData { busy: AtomicUsize::new(FREE), lost: AtomicU64::new(0), inner }
    }

    /// An event that comes while another one is being written, at `here` on the stack. Whether it may be written: not a
    /// handler's that interrupted the other one. All of its events are lost then, enters and leaves, so that what is written
    /// still nests. But who has left such a handler by `siglongjmp` is about where the other one was, which is not gone on with.
    #[cold]
    fn comes_between(&self, here: usize) -> bool {
        self.lost.fetch_add(1, Ordering::Relaxed);
        let other = self.busy.load(Ordering::Relaxed) & !INTERRUPTED;
        if here + SIGNAL_FRAME > other && !is_on_alternate_stack() {
            return true; // the other one counts as lost
        }
        self.busy.fetch_or(INTERRUPTED, Ordering::Relaxed);
        false
    }

    /// After an event that was left for good, by the thread whose events they are.
    #[cold]
    fn goes_on(&self, state: usize) {
        self.busy.store(state, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: this thread alone writes these events, and what interrupts it sees that it is busy.
        unsafe { &mut *self.inner.get() }.writer.event_was_abandoned();
    }

    #[cold]
    fn tell_losses(&self, inner: &mut Inner) {
        inner.writer.count_dropped_events(self.lost.swap(0, Ordering::Relaxed));
    }

    /// Events that are lost, told of by whomever: with the event that is being written, if there is one.
    fn lose(&self, events: u64) -> bool {
        self.lost.fetch_add(events, Ordering::Relaxed);
        self.busy
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |busy| {
                (busy != FREE).then_some(busy | INTERRUPTED)
            })
            .is_ok()
    }
}

/// Score-P's `SCOREP_INVALID_CALLING_CONTEXT`.
const NO_CONTEXT: AnyHandle = 0;
/// Of calling contexts that are entered in one go, so many are kept at a time.
const CONTEXTS_AT_ONCE: usize = 256;

static PLUGIN_ID: AtomicUsize = AtomicUsize::new(0);
/// `SCOREP_Location_GetData`, or `no_data` when the plugin is inert: the event path needs no other test.
static GET_DATA: AtomicPtr<()> = AtomicPtr::new(no_data as *mut ());
static CONTEXT_REGION: AtomicPtr<()> = AtomicPtr::new(no_handle as *mut ());
static CONTEXT_PARENT: AtomicPtr<()> = AtomicPtr::new(no_handle as *mut ());

extern "C" fn no_data(_location: *const Location, _plugin_id: usize) -> *mut c_void {
    null_mut()
}

extern "C" fn no_handle(_handle: AnyHandle) -> u32 {
    0
}

pub fn set_plugin_id(plugin_id: usize) {
    PLUGIN_ID.store(plugin_id, Ordering::Relaxed);
}

pub fn plugin_id() -> usize {
    PLUGIN_ID.load(Ordering::Relaxed)
}

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

fn is_stopped() -> bool {
    std::ptr::eq(GET_DATA.load(Ordering::Relaxed), no_data as *mut ())
}

/// From now on no event finds its writer.
pub fn stop() {
    GET_DATA.store(no_data as *mut (), Ordering::Relaxed);
}

/// Runs `body` with what hangs on a location, unless this thread is at it already. `false`: nothing hangs there.
///
/// # Safety
/// `location` is Score-P's, and this thread is the one that writes its events now.
#[inline(always)]
unsafe fn with_data(location: *const Location, body: impl FnOnce(&mut Inner)) -> bool {
    let Some(data) = data_of(location) else { return false };
    let here = stack_address() & !INTERRUPTED;
    let mut state = here;
    if data.busy.load(Ordering::Relaxed) != FREE {
        if !data.comes_between(here) {
            return true;
        }
        state |= INTERRUPTED;
        data.goes_on(state);
    }
    data.busy.store(state, Ordering::Relaxed);
    // Only a handler in this thread can come in between: the compiler has to keep the order, the processor does.
    compiler_fence(Ordering::SeqCst);
    // SAFETY: this thread alone writes these events, and what interrupts it sees that it is busy.
    let inner = unsafe { &mut *data.inner.get() };
    body(inner);
    compiler_fence(Ordering::SeqCst);
    if data.busy.load(Ordering::Relaxed) & INTERRUPTED != 0 {
        data.tell_losses(inner);
    }
    // Pairs with the acquire in `between_events`.
    data.busy.store(FREE, Ordering::Release);
    true
}

/// Calls that have no location to be recorded on. In shards: they may be very many, and of many threads.
static UNRECORDED: [CachePadded<AtomicU64>; SHARDS] = [const { CachePadded::new(AtomicU64::new(0)) }; SHARDS];
const SHARDS: usize = 64;

#[cold]
fn count_unrecorded(location: *const Location, calls: u64) {
    if !is_stopped() {
        UNRECORDED[(location.addr() >> 6) % SHARDS].fetch_add(calls, Ordering::Relaxed);
    }
}

/// How many have come so far.
pub fn unrecorded_calls() -> u64 {
    UNRECORDED.iter().map(|shard| shard.load(Ordering::Relaxed)).sum()
}

/// What process::new_location hung there.
#[inline(always)]
fn data_of<'a>(location: *const Location) -> Option<&'a LocationData> {
    // SAFETY: GET_DATA only ever holds functions of this type; what hangs there is never freed, or NULL.
    unsafe {
        let get_data: GetData = std::mem::transmute(GET_DATA.load(Ordering::Relaxed));
        get_data(location, PLUGIN_ID.load(Ordering::Relaxed)).cast::<LocationData>().as_ref()
    }
}

/// Calls that the embedded host could not tell of as events.
///
/// # Safety
/// `location` is NULL, or one of the host's whose events this thread writes, or nobody does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ampere_missed_calls(location: *const Location, calls: u64) {
    let data = if location.is_null() { None } else { data_of(location) };
    match data {
        None => count_unrecorded(location, calls),
        // This call may be made on another stack than its events, from which nothing is to be concluded.
        Some(data) if data.lose(calls) => {}
        // SAFETY: by this function's contract.
        Some(data) => _ = unsafe { with_data(location, |inner| data.tell_losses(inner)) },
    }
}

/// This thread was in the middle of an event of the location, and has left it for good.
///
/// # Safety
/// `location` is one of the host's whose events this thread writes, and this is called on its own stack.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ampere_event_was_left(location: *const Location) {
    // SAFETY: by this function's contract.
    unsafe { with_data(location, |inner| inner.writer.event_was_abandoned()) };
}

/// As [`with_data`], for who may not be the thread that writes the events: not while one is under way.
unsafe fn between_events(location: *const Location, body: impl FnOnce(&mut Inner)) {
    if data_of(location).is_some_and(|data| data.busy.load(Ordering::Acquire) == FREE) {
        // SAFETY: as of `with_data`: Score-P says this to the thread that writes the location's events, or when that is gone.
        unsafe { with_data(location, body) };
    }
}

/// A thread takes it, which is in none of its events: what it says otherwise was left by another one that is over.
pub fn location_is_taken(location: *const Location) {
    if let Some(data) = data_of(location) {
        data.busy.store(FREE, Ordering::Relaxed);
        if data.lost.load(Ordering::Relaxed) > 0 {
            // SAFETY: this thread writes its events from now on.
            unsafe { with_data(location, |inner| data.tell_losses(inner)) };
        }
    }
}

/// Its thread leaves it, for now.
pub fn location_is_quiet(location: *const Location) {
    // SAFETY: as above.
    unsafe { between_events(location, |inner| inner.writer.flush()) };
}

/// No event will follow.
pub fn location_is_over(location: *const Location) {
    // SAFETY: as above.
    unsafe { between_events(location, |inner| inner.writer.flush_last()) };
}

unsafe extern "C" fn enter(location: *mut Location, timestamp: u64, region: AnyHandle, _metrics: *mut u64) {
    // SAFETY: Score-P's promise for event callbacks.
    if !unsafe { with_data(location, |inner| inner.writer.enter(timestamp, region)) } {
        count_unrecorded(location, 1);
    }
}

unsafe extern "C" fn leave(location: *mut Location, timestamp: u64, region: AnyHandle, _metrics: *mut u64) {
    // SAFETY: Score-P's promise for event callbacks.
    unsafe { with_data(location, |inner| inner.writer.leave(timestamp, region)) };
}

unsafe extern "C" fn program_begin(
    location: *mut Location,
    timestamp: u64,
    _program_name: AnyHandle,
    _number_of_arguments: u32,
    _arguments: *const AnyHandle,
    _program_region: AnyHandle,
    _process_id: u64,
    _thread_id: u64,
) {
    // SAFETY: Score-P's promise for event callbacks.
    unsafe { with_data(location, |inner| inner.writer.program_begin(timestamp)) };
}

unsafe extern "C" fn program_end(location: *mut Location, timestamp: u64, _status: i64, _region: AnyHandle) {
    // SAFETY: Score-P's promise for event callbacks.
    unsafe {
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
    // SAFETY: passed on.
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
    // SAFETY: passed on.
    unsafe { leave(location, timestamp, region, metrics) };
}

/// With unwinding, Score-P names the whole stack, as a calling context, instead of the region.
unsafe extern "C" fn context_enter(
    location: *mut Location,
    timestamp: u64,
    context: AnyHandle,
    _previous: AnyHandle,
    unwind_distance: u32,
    _metrics: *mut u64,
) {
    // SAFETY: Score-P's promise for event callbacks.
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
    // SAFETY: Score-P's promise for event callbacks.
    unsafe { with_data(location, |inner| move_to(inner, timestamp, parent_of(context), 1)) };
}

/// In a signal handler. The context is `NO_CONTEXT` when the thread stops being measured.
unsafe extern "C" fn sample(
    location: *mut Location,
    timestamp: u64,
    context: AnyHandle,
    _previous: AnyHandle,
    unwind_distance: u32,
    _interrupt_generator: AnyHandle,
    _metrics: *mut u64,
) {
    // SAFETY: Score-P's promise for event callbacks.
    unsafe { with_data(location, |inner| move_to(inner, timestamp, context, unwind_distance)) };
}

fn region_of(context: AnyHandle) -> u32 {
    // SAFETY: CONTEXT_REGION only ever holds functions of this type; the context is Score-P's own.
    unsafe { std::mem::transmute::<*mut (), HandleToHandle>(CONTEXT_REGION.load(Ordering::Relaxed))(context) }
}

fn parent_of(context: AnyHandle) -> AnyHandle {
    if context == NO_CONTEXT {
        return NO_CONTEXT;
    }
    // SAFETY: as above.
    unsafe { std::mem::transmute::<*mut (), HandleToHandle>(CONTEXT_PARENT.load(Ordering::Relaxed))(context) }
}

/// Goes from the calling context of before to `target`, as Score-P's own profile does.
///
/// A calling context is a region, a place in it, and the context that called it. Of `target`, the `distance - 1` innermost
/// contexts are new. The next one was open before, perhaps at another place in the same region: its frame stays open, and
/// those below it are over.
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
        // At first, or where recording was switched off meanwhile, the frames around it have to be entered, too.
        new = depth_of(target);
    }
    // From the outermost new one to the target; there is no memory for more of them at a time.
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

/// Score-P's array is ours up to the last event that we take; a shorter one is fine.
const TAKEN: usize = event::PROGRAM_END + 1;

macro_rules! entry {
    ($function:ident : $type:ident) => {
        // SAFETY: Score-P casts the entry back to the type of its event, which is this one.
        Some(unsafe { std::mem::transmute::<scorep_abi::$type, unsafe extern "C" fn()>($function) })
    };
}

static RECORDING: [EventFunction; TAKEN] = {
    let mut table: [EventFunction; TAKEN] = [None; TAKEN];
    // While recording is switched off the thread that did so is in a region of Score-P's own.
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
};

/// While recording is switched off only the end counts.
static NOT_RECORDING: [EventFunction; TAKEN] = {
    let mut table: [EventFunction; TAKEN] = [None; TAKEN];
    table[event::PROGRAM_END] = entry!(program_end: ProgramEndEvent);
    table
};

pub fn table(recording_mode: i32) -> &'static [EventFunction] {
    if crate::inert::is_inert() {
        return &[];
    }
    if recording_mode == mode::RECORDING_ENABLED { &RECORDING } else { &NOT_RECORDING }
}
