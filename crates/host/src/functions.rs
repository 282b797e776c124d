//! The hooks of `-finstrument-functions`, and the regions of functions by their addresses.

use crate::definitions::{self, FILTERED, INVALID};
use crate::guard::{count_missed, inside, inside_or, on_own_stack_uninterrupted, report_missed};
use crate::measurement::{self, StartedBy};
use crate::regions_by_key::RegionsByKey;
use crate::state::{State, state};
use crate::thread::Slot;
use crate::{alloc, filter, signal, symbols, threads};
use ampere_signal_safety::is_on_alternate_stack;
use scorep_abi::{AnyHandle, paradigm, region_type};
use std::ffi::c_void;
use std::sync::atomic::Ordering;

static FUNCTIONS: RegionsByKey = RegionsByKey::new();

/// Called on entry to every instrumented function, as `__cyg_profile_func_enter`.
pub extern "C" fn on_enter(function: *mut c_void, _site: *mut c_void) {
    inside_or(count_missed, |slot| {
        if state() == State::Running && !slot.thread.get().is_null() {
            let region = FUNCTIONS.get(function as usize);
            if region != INVALID {
                // SAFETY: this thread's own state, which nothing else uses while the slot is busy.
                unsafe { &mut *slot.thread.get() }.enter(function as usize, region);
                return;
            }
        }
        enter_first(slot, function);
    });
}

/// Called on exit from every instrumented function, as `__cyg_profile_func_exit`.
pub extern "C" fn on_exit(function: *mut c_void, _site: *mut c_void) {
    inside((), |slot| {
        if state() == State::Running && !slot.thread.get().is_null() {
            // SAFETY: as above.
            unsafe { &mut *slot.thread.get() }.leave(function as usize);
        }
    });
}

/// Handles the first call of the process, of the thread, or of the function.
#[cold]
fn enter_first(slot: &Slot, function: *mut c_void) {
    let is_running = match state() {
        State::New => measurement::start(slot, StartedBy::Function),
        state => state == State::Running,
    };
    if is_running {
        enter_new(slot, function as usize, || define(function as usize));
    }
}

/// Enters a function or a range that may be new, on a thread that may be new. `define` returns the region of the function or
/// range. If no region can be defined, the call is counted as missed.
#[cold]
pub fn enter_new(slot: &Slot, key: usize, define: impl FnOnce() -> AnyHandle) {
    let is_refused = slot.thread.get().is_null() && slot.finished.load(Ordering::Relaxed);
    let region = if is_refused || alloc::is_low() || definitions::is_full() {
        INVALID
    } else {
        make_known(slot, define)
    };
    if region == INVALID {
        count_missed(slot);
    }
    // SAFETY: this thread's own state, which nothing else uses while the slot is busy.
    if let Some(thread) = unsafe { slot.thread.get().as_mut() } {
        thread.enter(key, region);
    }
}

/// Gives the thread a location, unless it has one, and returns the region. Returns INVALID if the thread gets no location, and in
/// a signal handler, where neither a location nor a region may be defined.
#[cold]
fn make_known(slot: &Slot, define: impl FnOnce() -> AnyHandle) -> AnyHandle {
    // The plugin's work for a new location or definition is not async-signal-safe.
    if is_on_alternate_stack() {
        return INVALID;
    }
    on_own_stack_uninterrupted(INVALID, || {
        if signal::inside_handler() {
            return INVALID;
        }
        if slot.thread.get().is_null() && threads::attach(slot).is_none() {
            return INVALID;
        }
        // SAFETY: as in `enter_new`; `attach` has set the pointer.
        if let Some(thread) = unsafe { slot.thread.get().as_ref() } {
            report_missed(&slot.missed, thread.location);
        }
        define()
    })
}

/// Returns the region of a function. Defines it if there is none.
fn define(address: usize) -> AnyHandle {
    if FUNCTIONS.get(address) != INVALID {
        return FUNCTIONS.get(address);
    }
    // `locate` takes the loader's lock, so it is called before `get_or_define` takes its lock: another thread may wait for
    // the latter while it holds the loader's.
    let place = symbols::locate(address);
    FUNCTIONS.get_or_define(address, |_| {
        let symbol = symbols::resolve(place);
        if filter::excludes(&symbol) {
            return FILTERED;
        }
        definitions::region(
            &symbol.name,
            &symbol.canonical_name,
            &symbol.file,
            symbol.line,
            region_type::FUNCTION,
            paradigm::COMPILER,
        )
    })
}
