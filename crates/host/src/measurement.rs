//! The life of one process's measurement.
//!
//! ```text
//!   NEW ──start──► STARTING ──► RUNNING ──end──► ENDING ──► ENDED
//!                      │            └──fork, in the child──► INERT
//!                      └── no plugin, or Score-P is here ──► INERT
//! ```
//!
//! An end in a signal handler goes from RUNNING to ENDED at once. Only RUNNING records. MPI_Init or the first hook starts the
//! measurement; a process with neither stays NEW.

use crate::definitions::{self, INVALID};
use crate::messages::say;
use crate::thread::{LocationData, Thread};
use crate::tls::{FREE, OWN_STACK, Slot, slot};
use crate::{alloc, clock, filter, mpi, plugin, signal, stack, thread};
use ampere_signal_safety::{is_on_alternate_stack, preserving_thread_state, stack_address};
use scorep_abi::{AnyHandle, Location, location_type, paradigm, region_type};
use std::ffi::{CString, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// The states: see the diagram at the top.
pub const NEW: u8 = 0;
pub const STARTING: u8 = 1;
pub const RUNNING: u8 = 2;
pub const ENDING: u8 = 3;
pub const ENDED: u8 = 4;
pub const INERT: u8 = 5;

/// Threads that can have a location at the same time. Each location has a ring in shared memory.
const LOCATIONS_MAX: usize = 4096;

/// How long the end waits for other threads to leave the host.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

static STATE: AtomicU8 = AtomicU8::new(NEW);
/// Calls without a location (of threads without one, or with too deep frames) that have not been reported.
pub static MISSED_WITHOUT_LOCATION: AtomicU64 = AtomicU64::new(0);
static MPP_KNOWN: AtomicBool = AtomicBool::new(false);
/// The first event was a call of an instrumented function.
static BEGAN_WITH_FUNCTION: AtomicBool = AtomicBool::new(false);
static MASTER: AtomicPtr<Location> = AtomicPtr::new(null_mut());
static PROGRAM_REGION: AtomicU32 = AtomicU32::new(INVALID);
static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
static THREADS: Mutex<Threads> =
    Mutex::new(Threads { live: Vec::new(), locations: Vec::new(), free: Vec::new(), has_refused: false });

struct Threads {
    live: Vec<*mut Thread>,
    locations: Vec<*mut Location>,
    /// Locations of threads that have ended, which new threads take, as with Score-P. Has capacity for all locations.
    free: Vec<*mut Location>,
    has_refused: bool,
}

// SAFETY: the pointers are dereferenced under the mutex, or by their own thread.
unsafe impl Send for Threads {}

/// The state. Acquire pairs with the Release of RUNNING: with it, the plugin's functions are visible.
#[inline(always)]
pub fn state() -> u8 {
    STATE.load(Ordering::Acquire)
}

/// Whether the program's own functions are recorded: its samples are left out then.
pub fn began_with_function() -> bool {
    BEGAN_WITH_FUNCTION.load(Ordering::Relaxed)
}

/// Whether rank and size are known.
pub fn mpp_is_known() -> bool {
    MPP_KNOWN.load(Ordering::Acquire)
}

/// Runs host code that is not on the event path: errno stays, the thread is not cancelled here, and no panic leaves; after a
/// panic nothing more is recorded.
pub fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    or_inert(otherwise, preserving_thread_state(|| catch_unwind(AssertUnwindSafe(body))))
}

fn or_inert<T>(otherwise: T, done: std::thread::Result<T>) -> T {
    done.unwrap_or_else(|_| {
        STATE.store(INERT, Ordering::Release);
        otherwise
    })
}

/// As [`guarded`], on a stack of our own: the program's may be too small.
pub fn on_own_stack<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    // SAFETY: the slot is this thread's own and lives as long as it.
    let slot = unsafe { &*slot() };
    let before = slot.busy.load(Ordering::Relaxed);
    slot.busy.store(OWN_STACK, Ordering::Relaxed);
    let done = preserving_thread_state(|| stack::on_own(|| catch_unwind(AssertUnwindSafe(body))));
    slot.busy.store(before, Ordering::Release);
    or_inert(otherwise, done)
}

/// As [`on_own_stack`], with signals blocked: for starting a thread or entering a function.
pub fn on_own_stack_uninterrupted<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    signal::blocked(|| on_own_stack(otherwise, body))
}

/// Runs `body` with this thread marked as inside the host. `otherwise`: it already is inside.
#[inline(always)]
pub fn inside<T>(otherwise: T, body: impl FnOnce(&Slot) -> T) -> T {
    inside_or(|_| otherwise, body)
}

/// As [`inside`], for a call of the program: if this thread is already inside, `missed` counts it.
#[inline(always)]
pub fn inside_or<T>(missed: impl FnOnce(&Slot) -> T, body: impl FnOnce(&Slot) -> T) -> T {
    // SAFETY: the slot is this thread's own and lives as long as it.
    let slot = unsafe { &*slot() };
    let here = stack_address();
    if slot.busy.load(Ordering::Relaxed) != FREE {
        inside_again(slot, here, missed, body)
    } else {
        marked(slot, here, body)
    }
}

#[inline(always)]
fn marked<T>(slot: &Slot, here: usize, body: impl FnOnce(&Slot) -> T) -> T {
    slot.busy.store(here, Ordering::Relaxed);
    // Pairs with the membarrier in `drain`, which replaces a full fence here.
    compiler_fence(Ordering::SeqCst);
    let result = body(slot);
    compiler_fence(Ordering::SeqCst);
    // Release: what was done inside comes before; pairs with the Acquire in `drain`.
    slot.busy.store(FREE, Ordering::Release);
    result
}

/// This thread is already inside: an event interrupts another one, or the other one was abandoned by a `longjmp` out of a signal
/// handler. The stack grows down: a handler that interrupts is below the interrupted event, or on another stack.
#[cold]
#[inline(never)]
fn inside_again<T>(
    slot: &Slot,
    here: usize,
    missed: impl FnOnce(&Slot) -> T,
    body: impl FnOnce(&Slot) -> T,
) -> T {
    let there = slot.busy.load(Ordering::Relaxed);
    let was_abandoned = there != OWN_STACK
        && here >= there
        && !is_on_alternate_stack()
        && !signal::blocked(|| preserving_thread_state(|| stack::on_own(signal::inside_handler)));
    if !was_abandoned {
        return missed(slot);
    }
    marked(slot, here, |slot| {
        event_was_abandoned(slot);
        body(slot)
    })
}

/// Tells the plugin. To be called on the thread's own stack.
fn event_was_abandoned(slot: &Slot) {
    // SAFETY: the thread's own state.
    if let Some(thread) = unsafe { slot.thread.get().as_ref() } {
        plugin::event_was_abandoned(thread.location);
    }
}

/// Counts a call of the program that is not recorded, to be reported later.
#[cold]
pub fn count_missed(slot: &Slot) {
    if state() != RUNNING || slot.busy.load(Ordering::Relaxed) == OWN_STACK {
        return;
    }
    let counter = if slot.thread.get().is_null() { &MISSED_WITHOUT_LOCATION } else { &slot.missed };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Reports calls that were not recorded. The caller is inside the host, in the location's thread, or after `drain`.
pub fn report_missed(missed: &AtomicU64, location: *mut Location) {
    let calls = missed.swap(0, Ordering::Relaxed);
    if calls > 0 {
        plugin::missed_calls(location, calls);
    }
}

/// With what a measurement begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// MPI_Init.
    Mpi,
    /// The first call of an instrumented function.
    Function,
    /// The first range that the program marks.
    Range,
}

/// Starts measuring, if it has not been started. The caller is inside the host. Returns whether it runs.
#[cold]
pub fn start(slot: &Slot, with: Beginning) -> bool {
    if is_on_alternate_stack() {
        return false;
    }
    on_own_stack_uninterrupted(false, || {
        if signal::inside_handler() {
            return false;
        }
        if STATE.compare_exchange(NEW, STARTING, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return state() == RUNNING;
        }
        let next = try_start(slot, with);
        STATE.store(next, Ordering::Release);
        if next == RUNNING && with != Beginning::Mpi && !mpi::library_is_loaded() {
            init_mpp(0, 1);
        }
        next == RUNNING
    })
}

fn try_start(slot: &Slot, with: Beginning) -> u8 {
    BEGAN_WITH_FUNCTION.store(with == Beginning::Function, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|panic| {
        say(format_args!("stopped measuring: an error of our own: {panic}"))
    }));
    // It may have been opened after us.
    if scorep_is_here() || ampere_model::is_switched_off() {
        return INERT;
    }
    ampere_signal_safety::remember_standard_error();
    let mut key = 0;
    // SAFETY: the functions have the required types, and live as long as the process: this library is never closed.
    unsafe {
        if libc::pthread_key_create(&mut key, Some(thread_ends)) != 0
            || libc::pthread_atfork(None, None, Some(forked)) != 0
        {
            say(format_args!("not measuring: no thread key left in this process"));
            return INERT;
        }
    }
    let _ = KEY.set(key);
    clock::choose();
    filter::load();
    register_barrier();
    if !plugin::load() {
        return INERT;
    }
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let path = program.to_string_lossy();
    let short = program.file_name().unwrap_or_default().to_string_lossy();
    let region = definitions::region(&short, &path, "", 0, region_type::ARTIFICIAL, paradigm::MEASUREMENT);
    PROGRAM_REGION.store(region, Ordering::Relaxed);
    plugin::assign_id(0);
    let Some(location) = signal::blocked(|| attach(slot)) else { return INERT };
    plugin::program_begin(location, clock::now(), region);
    if with != Beginning::Function {
        // The program itself is not instrumented: this frame stands for what it does between MPI calls and around ranges. It is
        // still open at program_end, as `main` is in an instrumented program.
        plugin::enter(location, clock::now(), region);
    }
    if with != Beginning::Mpi {
        at_exit();
    }
    RUNNING
}

/// Whether the real Score-P is linked into this process.
pub fn scorep_is_here() -> bool {
    [c"SCOREP_InitMeasurement", c"SCOREP_Location_GetId"].iter().any(|name| {
        // SAFETY: a lookup by name; nothing is called.
        unsafe { !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() }
    })
}

/// Registers the end at exit. Handlers run in reverse order: after MPI_Init it is registered again, so that the end comes before
/// the MPI library's own handlers.
pub fn at_exit() {
    extern "C" fn exiting() {
        end(None);
    }
    // SAFETY: the function has the required type and lives as long as the process.
    unsafe { libc::atexit(exiting) };
}

/// Runs after all exit handlers, in case `at_exit` was too early or failed.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_UNLOAD: extern "C" fn() = {
    extern "C" fn unloading() {
        end(None);
    }
    unloading
};

/// A forked child shares the parent's rings and must not write into them.
extern "C" fn forked() {
    crate::MEMORY.forked();
    if state() != NEW {
        STATE.store(INERT, Ordering::Release);
    }
}

fn threads() -> MutexGuard<'static, Threads> {
    THREADS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Gives the calling thread a location. The caller is inside the host, not in a signal handler, with signals blocked. `None`: the
/// thread is not recorded.
#[cold]
pub fn attach(slot: &Slot) -> Option<*mut Location> {
    if slot.finished.load(Ordering::Relaxed) {
        return None;
    }
    if alloc::is_low() {
        slot.finished.store(true, Ordering::Relaxed);
        return None;
    }
    let mut threads = threads();
    if !matches!(state(), STARTING | RUNNING) {
        return None;
    }
    if threads.free.is_empty() && threads.locations.len() == LOCATIONS_MAX {
        if !std::mem::replace(&mut threads.has_refused, true) {
            say(format_args!("more than {LOCATIONS_MAX} threads at a time: the others are not recorded"));
        }
        slot.finished.store(true, Ordering::Relaxed);
        return None;
    }
    let Some(mut thread) = Thread::new(slot) else {
        slot.finished.store(true, Ordering::Relaxed);
        return None;
    };
    let parent = MASTER.load(Ordering::Relaxed);
    let location = threads.free.pop().unwrap_or_else(|| {
        let location = new_location(threads.locations.len());
        if parent.is_null() {
            MASTER.store(location, Ordering::Relaxed);
        }
        plugin::create_location(location, parent);
        threads.locations.push(location);
        let room = threads.locations.len();
        threads.free.reserve(room);
        location
    });
    location_data(location).active.store(true, Ordering::Release);
    plugin::activate_location(location, parent);
    thread.location = location;
    let thread = Box::into_raw(thread);
    threads.live.push(thread);
    drop(threads);
    slot.thread.set(thread);
    if let Some(&key) = KEY.get() {
        // SAFETY: a key of ours; the value is what `thread_ends` expects.
        unsafe { libc::pthread_setspecific(key, thread.cast()) };
    }
    Some(location)
}

/// A new location, never freed: the plugin keeps it.
fn new_location(id: usize) -> *mut Location {
    let name = if id == 0 { "Master thread".into() } else { format!("Pthread thread {id}") };
    let data = Box::new(LocationData {
        id: id as u32,
        name: CString::new(name).unwrap_or_default(),
        location_type: location_type::CPU_THREAD,
        active: AtomicBool::new(false),
        data: [const { AtomicPtr::new(null_mut()) }; thread::PLUGINS_MAX],
    });
    Box::into_raw(data).cast()
}

fn location_data(location: *mut Location) -> &'static LocationData {
    // SAFETY: locations are leaked `LocationData`.
    unsafe { &*location.cast::<LocationData>() }
}

/// The destructor of the thread key: closes the thread's frames and its location.
unsafe extern "C" fn thread_ends(thread: *mut c_void) {
    let thread: *mut Thread = thread.cast();
    if state() == INERT {
        // In a forked child, the list's lock may be held by a thread that does not exist here.
        return;
    }
    // SAFETY: as in `inside`.
    let slot = unsafe { &*slot() };
    // Destructors of the program's keys may have events: the next round comes after one round of all of theirs.
    // SAFETY: the key is ours, and the value was the key's until now.
    let again =
        || KEY.get().is_some_and(|&key| unsafe { libc::pthread_setspecific(key, thread.cast()) } == 0);
    if !slot.is_postponed.swap(true, Ordering::Relaxed) && again() {
        return;
    }
    // A thread that ends is not inside: an event that still counts as such was abandoned.
    let was_abandoned = slot.busy.swap(FREE, Ordering::Relaxed) != FREE;
    inside((), |slot| {
        if was_abandoned && state() == RUNNING {
            event_was_abandoned(slot);
        }
        slot.finished.store(true, Ordering::Relaxed);
        slot.thread.set(null_mut());
        on_own_stack_uninterrupted((), || {
            // SAFETY: made by Box::into_raw in `attach`, and the slot no longer points to it. The end of measurement reads
            // only fields that do not change.
            let location = unsafe { (*thread).location };
            // The main thread may call pthread_exit: its location stays active for PROGRAM_END. And once measurement ends,
            // the locations belong to the end.
            let is_running = state() == RUNNING;
            if is_running {
                report_missed(&slot.missed, location);
            }
            let leaves = location != MASTER.load(Ordering::Relaxed) && is_running;
            if leaves {
                // SAFETY: as above. The thread is still in the list and busy: the end waits for it.
                unsafe { &mut *thread }.close_all();
                deactivate(location);
            }
            let mut threads = threads();
            // In any state: the end reads the slots of the listed threads, and this thread's slot is about to vanish.
            threads.live.retain(|&live| live != thread);
            if leaves {
                threads.free.push(location);
            }
            drop(threads);
            // SAFETY: as above, and now in no list.
            drop(unsafe { Box::from_raw(thread) });
        });
    });
}

/// Deactivates a location, once.
fn deactivate(location: *mut Location) {
    if location_data(location).active.swap(false, Ordering::AcqRel) {
        let master = MASTER.load(Ordering::Relaxed);
        plugin::deactivate_location(location, if location == master { null() } else { master });
    }
}

/// Rank and size are known now.
pub fn init_mpp(rank: c_int, size: c_int) {
    if MPP_KNOWN.load(Ordering::Acquire) {
        return;
    }
    mpi::RANK.store(rank, Ordering::Relaxed);
    mpi::SIZE.store(size, Ordering::Relaxed);
    // Release pairs with the Acquire in `mpp_is_known`.
    MPP_KNOWN.store(true, Ordering::Release);
    plugin::init_mpp();
}

/// Ends the measurement, once, in Score-P's order.
pub fn end(status: Option<i64>) {
    if state() != RUNNING {
        return;
    }
    if is_on_alternate_stack() || on_own_stack_uninterrupted(true, signal::inside_handler) {
        return end_at_once(status);
    }
    inside((), |slot| guarded((), || try_end(slot, status)));
}

/// The program ends in a signal handler. The interrupted code may hold any lock, so nothing is done that could need one, and
/// nothing is waited for: for the collector the process is as killed, but with the time of its end.
#[cold]
pub fn end_at_once(status: Option<i64>) {
    if STATE.compare_exchange(RUNNING, ENDED, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    // Not if it interrupted an event, nor in another thread than the master location's.
    inside((), |slot| {
        let master = MASTER.load(Ordering::Relaxed);
        // SAFETY: this thread's own state, which is not used otherwise while the slot is busy.
        if unsafe { slot.thread.get().as_ref() }.is_some_and(|thread| thread.location == master) {
            plugin::program_end(master, clock::now(), status, PROGRAM_REGION.load(Ordering::Relaxed));
        }
    });
}

fn try_end(slot: &Slot, status: Option<i64>) {
    if STATE.compare_exchange(RUNNING, ENDING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    drain(slot);
    report_all_missed();
    let master = MASTER.load(Ordering::Relaxed);
    let region: AnyHandle = PROGRAM_REGION.load(Ordering::Relaxed);
    if !mpp_is_known() {
        init_mpp(0, 1);
    }
    plugin::program_end(master, clock::now(), status, region);
    let locations = std::mem::take(&mut threads().locations);
    // The master location last: it is the others' parent.
    locations.iter().rev().for_each(|&location| deactivate(location));
    for location in locations {
        plugin::delete_location(location);
    }
    plugin::finalize();
    STATE.store(ENDED, Ordering::Release);
    let (deep, handler) =
        (thread::TOO_DEEP.load(Ordering::Relaxed), thread::IN_HANDLER.load(Ordering::Relaxed));
    if deep > 0 {
        say(format_args!("{deep} calls deeper than {} are not recorded", thread::FRAMES_MAX));
    }
    if handler > 0 {
        say(format_args!(
            "{handler} calls in signal handlers are not recorded: their functions were used there for the first time"
        ));
    }
}

/// Reports the missed calls of all threads, after `drain`.
fn report_all_missed() {
    for &thread in &threads().live {
        // SAFETY: as in `drain`; of other threads' slots only this atomic is used.
        let (location, missed) = unsafe { ((*thread).location, &(*(*thread).slot).missed) };
        report_missed(missed, location);
    }
    report_missed(&MISSED_WITHOUT_LOCATION, null_mut());
}

/// Waits until no other thread is inside the host or the plugin. The state already keeps others out.
fn drain(own: &Slot) {
    barrier();
    // A thread that ended past the C library ran no destructors: it is listed, but its slot is gone with its stack.
    // SAFETY: listed, so the thread's state exists.
    threads().live.retain(|&thread| unsafe { (*thread).is_alive() });
    let started = Instant::now();
    loop {
        let busy = threads().live.iter().any(|&thread| {
            // SAFETY: listed, under the lock: the thread and its state exist; the slot's address does not change.
            let slot = unsafe { (*thread).slot };
            // SAFETY: as above; of another thread's slot only this atomic is read.
            !std::ptr::eq(slot, own) && unsafe { &(*slot).busy }.load(Ordering::Acquire) != FREE
        });
        if !busy || started.elapsed() > DRAIN_TIME_MAX {
            return;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

const MEMBARRIER_PRIVATE_EXPEDITED: c_int = 1 << 3;
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: c_int = 1 << 4;

fn register_barrier() {
    // SAFETY: a system call without pointers. Where it is refused, `barrier` waits instead.
    unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_REGISTER_PRIVATE_EXPEDITED, 0, 0) };
}

/// A full fence on every thread of the process: afterwards a thread that saw the old state is seen as busy, and all others see
/// the new state.
fn barrier() {
    // SAFETY: a system call without pointers.
    let code = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_PRIVATE_EXPEDITED, 0, 0) };
    if code != 0 {
        // Store buffers drain in nanoseconds.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The application aborts: ends the measurement of this process without waiting for others.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub fn abort(slot: &Slot, status: i64) {
    if STATE.compare_exchange(RUNNING, ENDING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    drain(slot);
    report_all_missed();
    plugin::program_end(
        MASTER.load(Ordering::Relaxed),
        clock::now(),
        Some(status),
        PROGRAM_REGION.load(Ordering::Relaxed),
    );
    // Deactivating writes the pending groups of coalesced calls.
    std::mem::take(&mut threads().locations).iter().rev().for_each(|&location| deactivate(location));
    STATE.store(ENDED, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_panic_leaves_and_nothing_more_is_recorded_after_one() {
        type Guard = fn(i32, fn() -> i32) -> i32;
        for guard in [guarded as Guard, on_own_stack] {
            STATE.store(NEW, Ordering::Release);
            assert_eq!((guard(7, || 8), state()), (8, NEW));
            assert_eq!((guard(7, || panic!("as asked")), state()), (7, INERT));
        }
    }
}
