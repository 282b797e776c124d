//! The threads that are recorded, and their locations.

use crate::guard::{event_was_abandoned, inside, on_own_stack_uninterrupted, report_missed};
use crate::messages::report;
use crate::preloaded::slot;
use crate::state::{State, state};
use crate::thread::{FREE, MISSED_WITHOUT_LOCATION, Slot, Thread};
use crate::{alloc, location, plugin};
use scorep_abi::Location;
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// The largest number of threads that have a location at the same time. Each location has a ring in shared memory.
const LOCATIONS_MAX: usize = 4096;

/// The time for which the end of measurement waits for other threads to leave the host.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

/// The location of the thread that started the measurement; the parent of the others.
static MASTER: AtomicPtr<Location> = AtomicPtr::new(null_mut());
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

/// Makes the key whose destructor runs when a thread ends. Returns `false` if the process has no thread key left.
pub fn prepare() -> bool {
    let mut key = 0;
    // SAFETY: the function has the required type, and lives as long as the process: this library is never closed.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } != 0 {
        return false;
    }
    let _ = KEY.set(key);
    // SAFETY: a system call without pointers. Where it is refused, `barrier` waits instead.
    unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_REGISTER_PRIVATE_EXPEDITED, 0, 0) };
    true
}

/// Returns the location of the thread that started the measurement.
pub fn master() -> *mut Location {
    MASTER.load(Ordering::Relaxed)
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
    if !matches!(state(), State::Starting | State::Running) {
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
    let master = threads.free.iter().position(|free| *free == parent);
    let free = master.map(|at| threads.free.swap_remove(at)).or_else(|| threads.free.pop());
    let location = free.unwrap_or_else(|| {
        let location = location::of_thread(threads.locations.len());
        if parent.is_null() {
            MASTER.store(location, Ordering::Relaxed);
        }
        plugin::create_location(location, parent);
        threads.locations.push(location);
        let room = threads.locations.len();
        threads.free.reserve(room);
        location
    });
    // A free location is inactive, except the master location, which stays active after its thread has ended.
    deactivate(location);
    location::data(location).active.store(true, Ordering::Release);
    plugin::activate_location(location, if location == parent { null() } else { parent });
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

/// The destructor of the thread key. It closes the thread's frames and gives up its location.
unsafe extern "C" fn thread_ends(thread: *mut c_void) {
    let thread: *mut Thread = thread.cast();
    if state() == State::Inert {
        // In a forked child, the list's lock may be held by a thread that does not exist here.
        return;
    }
    // SAFETY: as in `inside`.
    let slot = unsafe { &*slot() };
    // Destructors of the program's keys may cause events. So this destructor asks to be called again, after all have run once.
    // SAFETY: the key is ours, and the value was the key's until now.
    let postpone =
        || KEY.get().is_some_and(|&key| unsafe { libc::pthread_setspecific(key, thread.cast()) } == 0);
    if !slot.is_postponed.swap(true, Ordering::Relaxed) && postpone() {
        return;
    }
    // A thread that ends is not inside the host: if it still counts as inside, it abandoned an event.
    let was_abandoned = slot.busy.swap(FREE, Ordering::Relaxed) != FREE;
    inside((), |slot| {
        if was_abandoned && state() == State::Running {
            event_was_abandoned(slot);
        }
        slot.finished.store(true, Ordering::Relaxed);
        slot.thread.set(null_mut());
        on_own_stack_uninterrupted((), || {
            // SAFETY: the pointer comes from Box::into_raw in `attach`, and the slot no longer holds it. The end of measurement
            // reads only fields that do not change.
            let location = unsafe { (*thread).location };
            // If the measurement is ending, that end deactivates all locations.
            let is_running = state() == State::Running;
            if is_running {
                report_missed(&slot.missed, location);
            }
            // The master location stays active for PROGRAM_END. If the main thread has it and ends by pthread_exit, its
            // frames stay open. If another thread has it, the next new thread takes it, because the rank still runs and its
            // joules are divided among this location's frames.
            let is_master = location == MASTER.load(Ordering::Relaxed);
            // SAFETY: as above.
            let leaves = is_running && !(is_master && unsafe { (*thread).is_main() });
            if leaves {
                // SAFETY: as above. The thread is still in the list and busy, so the end of measurement waits for it.
                unsafe { &mut *thread }.close_all();
                if !is_master {
                    deactivate(location);
                }
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

/// Deactivates a location if it is active.
fn deactivate(location: *mut Location) {
    if location::data(location).active.swap(false, Ordering::AcqRel) {
        let master = MASTER.load(Ordering::Relaxed);
        plugin::deactivate_location(location, if location == master { null() } else { master });
    }
}

/// Deactivates all locations, and returns them. The master location comes last: it is the others' parent.
pub fn deactivate_all() -> Vec<*mut Location> {
    let locations = std::mem::take(&mut threads().locations);
    locations.iter().rev().for_each(|&location| deactivate(location));
    locations
}

/// Reports the missed calls of all threads, after `drain`.
pub fn report_all_missed() {
    for &thread in &threads().live {
        // SAFETY: as in `drain`; only this atomic of other threads' slots is used.
        let (location, missed) = unsafe { ((*thread).location, &(*(*thread).slot).missed) };
        report_missed(missed, location);
    }
    report_missed(&MISSED_WITHOUT_LOCATION, null_mut());
}

/// Waits until no other thread is inside the host or the plugin. The state has changed before, so that no further thread enters.
pub fn drain(own: &Slot) {
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

/// Makes every thread of the process execute a full fence. Afterwards, each thread either is seen as busy or sees the new state.
fn barrier() {
    // SAFETY: a system call without pointers.
    let code = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_PRIVATE_EXPEDITED, 0, 0) };
    if code != 0 {
        // Without the system call, this wait is long enough: a store becomes visible within nanoseconds.
        std::thread::sleep(Duration::from_millis(1));
    }
}
