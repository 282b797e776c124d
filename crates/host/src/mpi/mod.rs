//! MPI: the functions that have wrappers, and what happens when one is entered and left.
//!
//! Only a thread's outermost MPI call is recorded: in some libraries Fortran's entry points call the C functions, and libraries
//! call their own functions. The region has the C name whatever the language.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]

mod call;
mod library;
mod messages;
mod table;
// There are wrappers on x86-64 only. Elsewhere this library has only the hooks of -finstrument-functions, and every process of an
// MPI program counts as rank 0 of 1.
#[cfg(target_arch = "x86_64")]
mod trampoline;
pub mod wrappers;

use crate::definitions::INVALID;
use crate::guard::{count_missed, guarded, inside, inside_or, on_own_stack_uninterrupted};
use crate::state::{State, state};
use crate::thread::{MPI_KEYS_END, Slot};
use crate::{definitions, measurement, plugin, preloaded, ranks, signal, threads};
use ampere_signal_safety::is_on_alternate_stack;
use call::{Call, VARIANTS};
use messages::Frame;
use scorep_abi::{AnyHandle, paradigm};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use table::{FUNCTIONS, Function};

/// The real functions, by symbol. They are set before their wrappers are called.
static TARGETS: [AtomicPtr<c_void>; MPI_KEYS_END * VARIANTS] =
    [const { AtomicPtr::new(null_mut()) }; MPI_KEYS_END * VARIANTS];
/// The real functions, by symbol, whose calls are no longer recorded: their wrappers jump straight to them. All other entries are
/// null.
static DIRECT: [AtomicPtr<c_void>; MPI_KEYS_END * VARIANTS] =
    [const { AtomicPtr::new(null_mut()) }; MPI_KEYS_END * VARIANTS];
/// The functions' regions, which are defined at the first call.
static REGIONS: [AtomicU32; MPI_KEYS_END] = [const { AtomicU32::new(INVALID) }; MPI_KEYS_END];
/// What is recorded for a function in addition to its frame, once it has a region.
static KINDS: [OnceLock<Option<messages::Kind>>; MPI_KEYS_END] = [const { OnceLock::new() }; MPI_KEYS_END];
/// Whether MPI_Init has returned and MPI_Finalize has not.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// The result of `enter`, for the wrapper.
#[repr(C)]
pub struct Decision {
    target: *mut c_void,
    record: usize,
}

/// Every wrapper calls this first. `stack` is the address of the wrapper's frame.
extern "C" fn enter(call: Call, stack: usize) -> Decision {
    // Acquire pairs with the Release of `wrapper`.
    // SAFETY: a call's symbol is below MPI_KEYS_END * VARIANTS by the layout of `Call`.
    let target = unsafe { TARGETS.get_unchecked(call.symbol()) }.load(Ordering::Acquire);
    let function = call.function();
    let record = match state() {
        State::Running if function == Function::MPI_Abort as usize => enter_abort(call, stack),
        State::Running => enter_running(call, stack),
        State::New if is_init(function) => enter_init(call, stack),
        State::Inert => {
            DIRECT[call.symbol()].store(target, Ordering::Relaxed);
            false
        }
        _ => false,
    };
    Decision { target, record: record.into() }
}

fn enter_running(call: Call, stack: usize) -> bool {
    let missed = |slot: &Slot| {
        count_missed(slot);
        false
    };
    inside_or(missed, |slot| {
        // The state is checked again now that the thread counts as inside: see `threads::drain`.
        if state() != State::Running {
            return false;
        }
        let function = call.function();
        let known = REGIONS[function].load(Ordering::Relaxed);
        if known == INVALID && is_left_to_sampling(function) {
            DIRECT[call.symbol()].store(TARGETS[call.symbol()].load(Ordering::Relaxed), Ordering::Relaxed);
            return false;
        }
        if (slot.thread.get().is_null() || known == INVALID) && !make_known(slot, function) {
            return missed(slot);
        }
        // SAFETY: this thread's own state, which nothing else uses while the slot is busy.
        let thread = unsafe { &mut *slot.thread.get() };
        if thread.mpi_stack != 0 {
            // The stack grows down: a call from inside the recorded one is below it. Otherwise the recorded call was left
            // without returning (by an exception, a longjmp).
            if stack < thread.mpi_stack {
                return false;
            }
            thread.close_mpi();
        }
        thread.mpi_stack = stack;
        thread.enter(function, REGIONS[function].load(Ordering::Relaxed));
        if let Some(kind) = kind_of(call) {
            // SAFETY: the wrapper's body has called us, and its function has this kind.
            unsafe { messages::before(kind, Frame::new(stack), thread) };
        }
        true
    })
}

/// Returns what is recorded in addition to the frame. Nothing is added for calls from Fortran, whose arguments differ.
#[inline]
fn kind_of(call: Call) -> Option<messages::Kind> {
    KINDS[call.function()].get().copied().flatten().filter(|_| call.is_c())
}

/// Gives the thread a location and the function a region, unless they have one. Returns whether both have.
#[cold]
fn make_known(slot: &Slot, function: usize) -> bool {
    let is_refused = slot.thread.get().is_null() && slot.finished.load(Ordering::Relaxed);
    if is_refused || is_on_alternate_stack() {
        return false;
    }
    on_own_stack_uninterrupted(false, || {
        if signal::inside_handler() || slot.thread.get().is_null() && threads::attach(slot).is_none() {
            return false;
        }
        preloaded::treat_new_objects();
        REGIONS[function].load(Ordering::Relaxed) != INVALID || define(function) != INVALID
    })
}

/// The wrapper calls this after the real function, if the call is recorded. `stack` is the address of the wrapper's frame.
extern "C" fn leave(call: Call, stack: usize) {
    let function = call.function();
    if is_init(function) {
        initialized();
    }
    leave_frame(call, stack);
    if function == Function::MPI_Finalize as usize {
        finalized();
    }
}

fn leave_frame(call: Call, stack: usize) {
    inside((), |slot| {
        if state() != State::Running || slot.thread.get().is_null() {
            return;
        }
        // SAFETY: as in `enter_running`.
        let thread = unsafe { &mut *slot.thread.get() };
        if let Some(kind) = kind_of(call).filter(|_| thread.mpi_stack == stack) {
            // SAFETY: as in `enter_running`, which has recorded this call.
            unsafe { messages::after(kind, Frame::new(stack), thread) };
        }
        thread.mpi_stack = 0;
        thread.leave(call.function());
    });
}

/// Whether calls of a function are not recorded because stack samples show where the time went. This holds for functions that
/// only test for completion: waiting programs call them tens of millions of times a second, and timing each call would make it
/// take several times as long.
fn is_left_to_sampling(function: usize) -> bool {
    const TESTING: [&str; 7] = [
        "MPI_Test",
        "MPI_Testall",
        "MPI_Testany",
        "MPI_Testsome",
        "MPI_Iprobe",
        "MPI_Improbe",
        "MPI_Request_get_status",
    ];
    TESTING.contains(&FUNCTIONS[function].name)
        && state() == State::Running
        && !measurement::started_by_function()
        && plugin::stacks_are_sampled()
}

fn is_init(function: usize) -> bool {
    function == Function::MPI_Init as usize || function == Function::MPI_Init_thread as usize
}

#[cold]
fn enter_init(call: Call, stack: usize) -> bool {
    inside(false, |slot| measurement::start(slot, measurement::StartedBy::Mpi)) && enter_running(call, stack)
}

/// Ends the measurement with the error code of MPI_Abort, which does not return, without waiting for other processes.
#[cold]
fn enter_abort(call: Call, stack: usize) -> bool {
    let recorded = enter_running(call, stack);
    guarded((), || {
        // SAFETY: `trampoline::body` has put the second argument there.
        let second = unsafe { *((stack - 16) as *const usize) };
        let code = if call.is_c() {
            second as i32
        } else {
            // SAFETY: in Fortran, the argument is the address of an integer.
            unsafe { (second as *const i32).as_ref() }.copied().unwrap_or(1)
        };
        if recorded {
            inside((), |slot| measurement::abort(slot, code.into()));
        } else {
            // The call comes from a signal handler, or from inside another MPI call.
            measurement::end_at_once(Some(code.into()));
        }
    });
    false
}

/// Called when MPI_Init has returned. If it succeeded, rank and size are known.
#[cold]
fn initialized() {
    inside((), |_| {
        guarded((), || {
            if state() == State::Running
                && !ACTIVE.load(Ordering::Relaxed)
                && let Some((rank, size)) = library::rank_and_size()
            {
                ACTIVE.store(true, Ordering::Relaxed);
                library::prepare_for_messages();
                ranks::set(rank, size);
                measurement::at_exit();
            }
        })
    });
}

/// Called when MPI_Finalize has returned. The measurement ends here, as with Score-P, and not at the end of `main`.
#[cold]
fn finalized() {
    ACTIVE.store(false, Ordering::Relaxed);
    measurement::end(None);
}

#[cold]
fn define(function: usize) -> AnyHandle {
    let row = &FUNCTIONS[function];
    let _ = KINDS[function].set(messages::kind(row.name));
    let region = definitions::region(row.name, row.name, "MPI", 0, row.region_type, paradigm::MPI);
    // Two threads may both define the region; the later handle stays. Release is not needed: `definitions` publishes what is
    // behind a handle itself.
    REGIONS[function].store(region, Ordering::Relaxed);
    region
}
