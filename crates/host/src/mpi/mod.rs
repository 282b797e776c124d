//! MPI: the functions that have wrappers, and what happens when such a function is entered and left.
//!
//! Only a thread's outermost MPI call is recorded: in some libraries Fortran's entry points call the C functions, and libraries
//! call their own functions. The region has the C name whatever the language.
//!
//! ```text
//! table.rs          the functions                          call.rs         a function and the name by which it was called
//! trampoline/       the wrappers, by processor             wrappers.rs     finding a wrapper by its name
//! library.rs        the library behind them                frame.rs        the arguments of a call
//! kinds.rs          what is recorded for a function        messages.rs     messages, and requests that a call makes
//! collectives.rs    arguments and bytes of collectives     completions.rs  requests that a call completes
//! communicators.rs  communicators that are defined         requests.rs     requests that are open
//! state.rs          the state during a call                watched.rs      functions that test for completion
//! neighbours.rs     collectives among neighbours           epochs.rs       one-sided communication between some ranks
//! pcontrol.rs       MPI_Pcontrol
//! ```
#![cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code, unused_imports))]

mod call;
mod collectives;
mod communicators;
mod completions;
mod epochs;
mod frame;
mod kinds;
mod library;
mod messages;
mod neighbours;
pub mod pcontrol;
mod requests;
pub mod state;
mod table;
// There are wrappers on x86-64 and AArch64. Elsewhere this library has only the hooks of -finstrument-functions, and every
// process of an MPI program counts as rank 0 of 1.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod trampoline;
mod watched;
pub mod wrappers;

use crate::definitions::INVALID;
use crate::guard::{count_missed, guarded, inside, inside_or, on_own_stack_uninterrupted};
use crate::state::{State, state};
use crate::thread::{MPI_KEYS_END, Slot, Thread};
use crate::{communication, definitions, measurement, plugin, preloaded, ranks, signal, threads};
use ampere_signal_safety::is_on_alternate_stack;
use call::{Call, VARIANTS};
use frame::Frame;
use kinds::Recorded;
use scorep_abi::{AnyHandle, paradigm};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use table::{FUNCTIONS, Function};

/// The real MPI functions, by symbol. They are set before their wrappers are called.
static TARGETS: [AtomicPtr<c_void>; MPI_KEYS_END * VARIANTS] =
    [const { AtomicPtr::new(null_mut()) }; MPI_KEYS_END * VARIANTS];
/// The functions, by symbol, to which the wrappers jump because calls are no longer recorded: the real ones, or those of
/// [`watched`]. An entry is null as long as the calls are recorded.
static DIRECT: [AtomicPtr<c_void>; MPI_KEYS_END * VARIANTS] =
    [const { AtomicPtr::new(null_mut()) }; MPI_KEYS_END * VARIANTS];
/// The functions' regions, which are defined at the first call.
static REGIONS: [AtomicU32; MPI_KEYS_END] = [const { AtomicU32::new(INVALID) }; MPI_KEYS_END];
/// What is recorded for a function in addition to its frame, once it has a region.
static KINDS: [OnceLock<Option<Recorded>>; MPI_KEYS_END] = [const { OnceLock::new() }; MPI_KEYS_END];
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
    // This call, too, must go to the function that watches its requests.
    let direct = if record { null_mut() } else { DIRECT[call.symbol()].load(Ordering::Relaxed) };
    Decision { target: if direct.is_null() { target } else { direct }, record: record.into() }
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
            DIRECT[call.symbol()].store(unrecorded(call), Ordering::Relaxed);
            return false;
        }
        if (slot.thread.get().is_null() || known == INVALID) && !make_known(slot, function) {
            return missed(slot);
        }
        // SAFETY: this thread's own state, which nothing else uses while the slot is busy.
        let thread = unsafe { &mut *slot.thread.get() };
        if thread.mpi_stack != 0 {
            // The stack grows down: a call from inside the recorded call is below it. Otherwise the recorded call was left
            // without returning (by an exception, a longjmp).
            if stack < thread.mpi_stack && is_inner(call, stack, thread) {
                return enter_inner(call, stack, thread);
            }
            thread.close_mpi();
        }
        thread.mpi_stack = stack;
        thread.enter(function, REGIONS[function].load(Ordering::Relaxed));
        (thread.call.inside, thread.call.inner_stack) = (0, 0);
        thread.call.expected = (!call.is_c()).then_some(function as u16);
        if call.is_c()
            && let Some(recorded) = KINDS[function].get().copied().flatten()
        {
            // SAFETY: the wrapper's body has called us, and this is recorded for its function.
            unsafe { messages::before(recorded, Frame::new(stack, recorded.has_large_counts), thread) };
        }
        true
    })
}

/// Whether a call that is deeper in the stack than the recorded one comes from inside it. Fortran's functions call C's, and
/// libraries and tools call the profiling interface: a walk of the stack for each of these would cost too much. For other calls,
/// the stack is walked, unless an earlier call that was no deeper was found to be inside.
#[inline]
fn is_inner(call: Call, stack: usize, thread: &mut Thread) -> bool {
    let Thread { mpi_stack, call: outer, .. } = thread;
    if call.is_c() && (call.is_profiling() || outer.expected == Some(call.function() as u16)) {
        return true;
    }
    if stack <= outer.inside {
        return true;
    }
    let is_inside = !was_left(*mpi_stack, stack);
    if is_inside {
        outer.inside = stack;
    }
    is_inside
}

/// Whether the recorded call was left without returning before the present call was made. `outer` and `inner` are the
/// addresses of their wrappers' frames.
#[cold]
fn was_left(outer: usize, inner: usize) -> bool {
    // At the address of a wrapper's frame are two words, the caller's frame address and the return address. The caller's
    // own stack begins above them.
    const ABOVE: usize = 16;
    !is_on_alternate_stack()
        && on_own_stack_uninterrupted(false, || signal::was_left(outer + ABOVE, inner + ABOVE))
}

/// Handles a call from inside the recorded call, and returns whether its arguments are recorded. A library's Fortran
/// functions convert their arguments and call C's functions of the same names, so the arguments are read there.
#[inline]
fn enter_inner(call: Call, stack: usize, thread: &mut Thread) -> bool {
    let function = call.function();
    if thread.call.expected != Some(function as u16) || !call.is_c() {
        return false;
    }
    thread.call.expected = None;
    let Some(recorded) = KINDS[function].get().copied().flatten() else { return false };
    thread.call.inner_stack = stack;
    // SAFETY: as in `enter_running`.
    unsafe { messages::before(recorded, Frame::new(stack, recorded.has_large_counts), thread) };
    true
}

/// Returns the function to which the wrapper jumps from now on, because calls of this function are left to sampling. If
/// messages are recorded, it is a function that watches the requests; otherwise it is the real one. Fortran's functions call
/// C's, which watch.
#[cold]
fn unrecorded(call: Call) -> *mut c_void {
    let real = TARGETS[call.symbol()].load(Ordering::Relaxed);
    watched::function_for(call).filter(|_| communication::is_wanted()).unwrap_or(real)
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

/// Gives the thread a location. Returns whether it has one.
#[cold]
fn attach(slot: &Slot) -> bool {
    let is_refused = slot.finished.load(Ordering::Relaxed) || is_on_alternate_stack();
    !is_refused
        && on_own_stack_uninterrupted(false, || !signal::inside_handler() && threads::attach(slot).is_some())
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
        let is_inner = thread.call.inner_stack == stack;
        if (is_inner || thread.mpi_stack == stack && call.is_c())
            && let Some(recorded) = KINDS[call.function()].get().copied().flatten()
        {
            // SAFETY: as in `enter_running`, which has recorded this call.
            unsafe { messages::after(recorded, Frame::new(stack, recorded.has_large_counts), thread) };
        }
        thread.call.inner_stack = 0;
        if is_inner {
            return;
        }
        thread.mpi_stack = 0;
        thread.leave(call.function());
    });
}

/// Whether calls of a function are not recorded because stack samples show where the time went. This holds for functions that
/// test for completion: waiting programs call them tens of millions of times a second, and timing each call would make it take
/// several times as long.
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
                let before = library::ranks_before(size);
                library::prepare_for_messages(before as u32);
                ranks::set_by_mpi(before + rank, before + size);
                measurement::at_exit();
            }
        })
    });
}

/// Called when MPI_Finalize has returned. The measurement ends here, as in Score-P, and not at the end of `main`.
#[cold]
fn finalized() {
    ACTIVE.store(false, Ordering::Relaxed);
    measurement::end(None);
}

#[cold]
fn define(function: usize) -> AnyHandle {
    let row = &FUNCTIONS[function];
    let _ = KINDS[function].set(kinds::recorded(row.lower));
    let region = definitions::region(row.name, row.name, "MPI", 0, row.region_type, paradigm::MPI);
    // Two threads may both define the region; the later handle stays. Release is not needed, because `definitions` publishes the
    // region itself.
    REGIONS[function].store(region, Ordering::Relaxed);
    region
}
