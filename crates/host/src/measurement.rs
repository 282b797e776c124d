//! The measurement of this process, from its start to its end.
//!
//! ```text
//!   NEW ──start──► STARTING ──► RUNNING ──end──► ENDING ──► ENDED
//!                      │            └──fork, in the child──► INERT
//!                      └── no plugin, or Score-P measures ──► INERT
//! ```
//!
//! If the process ends in a signal handler, RUNNING is followed by ENDED at once. Events are recorded only while RUNNING.
//! MPI_Init or the first hook or range starts the measurement; a process without any of them stays NEW.

use crate::definitions::{self, INVALID};
use crate::messages::report;
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

/// The states, as in the diagram at the top of this file.
pub const NEW: u8 = 0;
pub const STARTING: u8 = 1;
pub const RUNNING: u8 = 2;
pub const ENDING: u8 = 3;
pub const ENDED: u8 = 4;
pub const INERT: u8 = 5;

/// The largest number of threads that have a location at the same time. Each location has a ring in shared memory.
const LOCATIONS_MAX: usize = 4096;

/// How long the end of measurement waits for other threads to leave the host.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

static STATE: AtomicU8 = AtomicU8::new(NEW);
/// The number of calls without a location that have not been reported: of threads without one, or in frames that are too deep.
pub static MISSED_WITHOUT_LOCATION: AtomicU64 = AtomicU64::new(0);
static MPP_KNOWN: AtomicBool = AtomicBool::new(false);
/// Whether the first event was a call of an instrumented function.
static STARTED_BY_FUNCTION: AtomicBool = AtomicBool::new(false);
static MASTER: AtomicPtr<Location> = AtomicPtr::new(null_mut());
static PROGRAM_REGION: AtomicU32 = AtomicU32::new(INVALID);
static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
static THREADS: Mutex<Threads> =
    Mutex::new(Threads { live: Vec::new(), locations: Vec::new(), free: Vec::new(), has_refused: false });

struct Threads {
    live: Vec<*mut Thread>,
    locations: Vec<*mut Location>,
    /// Locations of threads that have ended, which new threads take, as in Score-P. The list has capacity for all locations.
    free: Vec<*mut Location>,
    has_refused: bool,
}

// SAFETY: the pointers are dereferenced under the mutex, or by their own thread.
unsafe impl Send for Threads {}

/// The state. Acquire pairs with the Release of RUNNING: a thread that sees RUNNING sees the plugin's functions.
#[inline(always)]
pub fn state() -> u8 {
    STATE.load(Ordering::Acquire)
}

/// Whether the program's own functions are recorded. Then the collector leaves out the program's stack samples.
pub fn started_by_function() -> bool {
    STARTED_BY_FUNCTION.load(Ordering::Relaxed)
}

/// Whether rank and size are known.
pub fn mpp_is_known() -> bool {
    MPP_KNOWN.load(Ordering::Acquire)
}

/// Runs host code that is not on the event path: errno is preserved, the thread is not cancelled here, and a panic does not leave
/// this function; after a panic nothing more is recorded.
pub fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    or_inert(otherwise, preserving_thread_state(|| catch_unwind(AssertUnwindSafe(body))))
}

fn or_inert<T>(otherwise: T, done: std::thread::Result<T>) -> T {
    done.unwrap_or_else(|_| {
        STATE.store(INERT, Ordering::Release);
        otherwise
    })
}

/// Does as [`guarded`] does, on a stack of our own: the program's may be too small.
pub fn on_own_stack<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    // SAFETY: the slot belongs to this thread and lives as long as the thread.
    let slot = unsafe { &*slot() };
    let before = slot.busy.load(Ordering::Relaxed);
    slot.busy.store(OWN_STACK, Ordering::Relaxed);
    let done = preserving_thread_state(|| stack::on_own(|| catch_unwind(AssertUnwindSafe(body))));
    slot.busy.store(before, Ordering::Release);
    or_inert(otherwise, done)
}

/// Does as [`on_own_stack`] does, with signals blocked.
pub fn on_own_stack_uninterrupted<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    signal::blocked(|| on_own_stack(otherwise, body))
}

/// Runs `body` with this thread marked as inside the host. Returns `otherwise` if it is inside already.
#[inline(always)]
pub fn inside<T>(otherwise: T, body: impl FnOnce(&Slot) -> T) -> T {
    inside_or(|_| otherwise, body)
}

/// Does as [`inside`] does, for a call of the program: if this thread is inside already, `missed` counts the call.
#[inline(always)]
pub fn inside_or<T>(missed: impl FnOnce(&Slot) -> T, body: impl FnOnce(&Slot) -> T) -> T {
    // SAFETY: the slot belongs to this thread and lives as long as the thread.
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
    // Release: everything done inside comes before. It pairs with the Acquire in `drain`.
    slot.busy.store(FREE, Ordering::Release);
    result
}

/// Handles an event while this thread is inside already: it interrupts another event, or the other one was abandoned by a
/// `longjmp` out of a signal handler. The stack grows down: an interrupting handler is below the interrupted event, or on another
/// stack.
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

/// Reports an abandoned event to the plugin. To be called on the thread's own stack.
fn event_was_abandoned(slot: &Slot) {
    // SAFETY: the state belongs to this thread.
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

/// Reports calls that were not recorded. The caller is inside the host, and is the location's thread or comes after `drain`.
pub fn report_missed(missed: &AtomicU64, location: *mut Location) {
    let calls = missed.swap(0, Ordering::Relaxed);
    if calls > 0 {
        plugin::missed_calls(location, calls);
    }
}

/// The first event, which starts a measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StartedBy {
    /// The program calls MPI_Init.
    Mpi,
    /// The program calls an instrumented function.
    Function,
    /// The program marks a range.
    Range,
}

/// Starts the measurement, unless it has been started. Returns whether it is running. The caller is inside the host.
#[cold]
pub fn start(slot: &Slot, by: StartedBy) -> bool {
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
        let next = try_start(slot, by);
        STATE.store(next, Ordering::Release);
        if next == RUNNING && by != StartedBy::Mpi && !mpi::library_is_loaded() {
            init_mpp(0, 1);
        }
        next == RUNNING
    })
}

fn try_start(slot: &Slot, by: StartedBy) -> u8 {
    STARTED_BY_FUNCTION.store(by == StartedBy::Function, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|panic| {
        report(format_args!("stopped measuring: an internal error (please report it): {panic}"))
    }));
    // Score-P may have been loaded after this library.
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
            report(format_args!("not measuring: no thread key left in this process"));
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
    if by != StartedBy::Function {
        // The program itself is not instrumented: this frame stands for everything outside of MPI calls and ranges. It is still
        // open at program_end, as `main` is in an instrumented program.
        plugin::enter(location, clock::now(), region);
    }
    if by != StartedBy::Mpi {
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

/// Registers an exit handler that ends the measurement. Handlers run in reverse order: it is registered again after MPI_Init, so
/// that it runs before the MPI library's own handlers.
pub fn at_exit() {
    extern "C" fn exiting() {
        end(None);
    }
    // SAFETY: the function has the required type and lives as long as the process.
    unsafe { libc::atexit(exiting) };
}

/// Runs after all exit handlers, in case `at_exit` was called too early or failed.
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

/// Gives the calling thread a location. The caller is inside the host, not in a signal handler, and has blocked signals. `None`
/// means that the thread is not recorded.
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
            report(format_args!("more than {LOCATIONS_MAX} threads at a time: the others are not recorded"));
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
        // SAFETY: the key is ours, and the value is what `thread_ends` expects.
        unsafe { libc::pthread_setspecific(key, thread.cast()) };
    }
    Some(location)
}

/// Makes a new location, which is never freed because the plugin keeps it.
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

/// The destructor of the thread key. It closes the thread's frames and gives up its location.
unsafe extern "C" fn thread_ends(thread: *mut c_void) {
    let thread: *mut Thread = thread.cast();
    if state() == INERT {
        // In a forked child, the list's lock may be held by a thread that does not exist here.
        return;
    }
    // SAFETY: as in `inside`.
    let slot = unsafe { &*slot() };
    // Destructors of the program's keys may have events: this one asks to be called again after one round of all of them.
    // SAFETY: the key is ours, and the value was the key's until now.
    let postpone =
        || KEY.get().is_some_and(|&key| unsafe { libc::pthread_setspecific(key, thread.cast()) } == 0);
    if !slot.is_postponed.swap(true, Ordering::Relaxed) && postpone() {
        return;
    }
    // A thread that ends is not inside the host: if it still counts as inside, it abandoned an event.
    let was_abandoned = slot.busy.swap(FREE, Ordering::Relaxed) != FREE;
    inside((), |slot| {
        if was_abandoned && state() == RUNNING {
            event_was_abandoned(slot);
        }
        slot.finished.store(true, Ordering::Relaxed);
        slot.thread.set(null_mut());
        on_own_stack_uninterrupted((), || {
            // SAFETY: the pointer comes from Box::into_raw in `attach`, and the slot no longer holds it. The end of measurement
            // reads only fields that do not change.
            let location = unsafe { (*thread).location };
            // The main thread may call pthread_exit: its location stays active for PROGRAM_END. Once the measurement is ending,
            // the locations are deactivated there.
            let is_running = state() == RUNNING;
            if is_running {
                report_missed(&slot.missed, location);
            }
            let leaves = location != MASTER.load(Ordering::Relaxed) && is_running;
            if leaves {
                // SAFETY: as above. The thread is still in the list and busy, so the end of measurement waits for it.
                unsafe { &mut *thread }.close_all();
                deactivate(location);
            }
            let mut threads = threads();
            // This is done in any state: the end of measurement reads the slots of listed threads, and this slot is about to
            // vanish.
            threads.live.retain(|&live| live != thread);
            if leaves {
                threads.free.push(location);
            }
            drop(threads);
            // SAFETY: as above, and the thread is in no list any more.
            drop(unsafe { Box::from_raw(thread) });
        });
    });
}

/// Deactivates a location, unless that has been done.
fn deactivate(location: *mut Location) {
    if location_data(location).active.swap(false, Ordering::AcqRel) {
        let master = MASTER.load(Ordering::Relaxed);
        plugin::deactivate_location(location, if location == master { null() } else { master });
    }
}

/// Sets rank and size and passes them to the plugin, the first time that it is called.
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

/// Ends the measurement in a signal handler that ends the program. The interrupted code may hold any lock, so nothing is done
/// that could need one, and nothing is waited for. To the collector the process looks as if it was killed, with a known end.
#[cold]
pub fn end_at_once(status: Option<i64>) {
    if STATE.compare_exchange(RUNNING, ENDED, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    // The end is recorded unless the handler interrupted an event or runs in another thread than the master location's.
    inside((), |slot| {
        let master = MASTER.load(Ordering::Relaxed);
        // SAFETY: this thread's own state, which nothing else uses while the slot is busy.
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
    // The master location comes last: it is the others' parent.
    locations.iter().rev().for_each(|&location| deactivate(location));
    for location in locations {
        plugin::delete_location(location);
    }
    plugin::finalize();
    STATE.store(ENDED, Ordering::Release);
    let (deep, handler) =
        (thread::TOO_DEEP.load(Ordering::Relaxed), thread::IN_HANDLER.load(Ordering::Relaxed));
    if deep > 0 {
        report(format_args!("{deep} calls deeper than {} are not recorded", thread::FRAMES_MAX));
    }
    if handler > 0 {
        report(format_args!(
            "{handler} calls in signal handlers are not recorded: their functions were used there for the first time"
        ));
    }
}

/// Reports the missed calls of all threads, after `drain`.
fn report_all_missed() {
    for &thread in &threads().live {
        // SAFETY: as in `drain`; only this atomic of other threads' slots is used.
        let (location, missed) = unsafe { ((*thread).location, &(*(*thread).slot).missed) };
        report_missed(missed, location);
    }
    report_missed(&MISSED_WITHOUT_LOCATION, null_mut());
}

/// Waits until no other thread is inside the host or the plugin. The state already keeps further threads out.
fn drain(own: &Slot) {
    barrier();
    // A thread that ended without the C library ran no destructors: it is listed, but its slot is gone with its stack.
    // SAFETY: the thread is listed, so its state exists.
    threads().live.retain(|&thread| unsafe { (*thread).is_alive() });
    let started = Instant::now();
    loop {
        let busy = threads().live.iter().any(|&thread| {
            // SAFETY: the thread is listed and the lock held: the thread and its state exist; the slot's address does not change.
            let slot = unsafe { (*thread).slot };
            // SAFETY: as above; only this atomic of another thread's slot is read.
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

/// A full fence on every thread of the process: afterwards each thread either is seen as busy or sees the new state.
fn barrier() {
    // SAFETY: a system call without pointers.
    let code = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_PRIVATE_EXPEDITED, 0, 0) };
    if code != 0 {
        // Store buffers drain in nanoseconds.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends the measurement of this process when the application calls MPI_Abort, without waiting for other processes.
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
