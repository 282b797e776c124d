//! The start and the end of this process's measurement.

use crate::definitions::{self, INVALID};
use crate::guard::{guarded, inside, on_own_stack_uninterrupted};
use crate::messages::report;
use crate::mpi::pcontrol;
use crate::state::{self, State, state};
use crate::thread::Slot;
use crate::{alloc, callbacks, clock, filter, gpu, plugin, ranks, signal, symbols, threads};
use ampere_gpu::is_scorep_linked;
use ampere_signal_safety::is_on_alternate_stack;
use scorep_abi::{paradigm, region_type};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Whether the first event was a call of an instrumented function.
static STARTED_BY_FUNCTION: AtomicBool = AtomicBool::new(false);
static PROGRAM_REGION: AtomicU32 = AtomicU32::new(INVALID);

/// Whether the program's own functions are recorded. Then the collector leaves out the program's stack samples.
pub fn started_by_function() -> bool {
    STARTED_BY_FUNCTION.load(Ordering::Relaxed)
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
    /// The program uses a GPU.
    Gpu,
}

/// Starts the measurement if it has not started. Returns whether it is running. The caller is inside the host.
#[cold]
pub fn start(slot: &Slot, by: StartedBy) -> bool {
    if is_on_alternate_stack() {
        return false;
    }
    on_own_stack_uninterrupted(false, || {
        if signal::inside_handler() {
            return false;
        }
        if !state::change(State::New, State::Starting) {
            return state() == State::Running;
        }
        let next = try_start(slot, by);
        state::set(next);
        if next == State::Running && by != StartedBy::Mpi && !ranks::will_be_known() {
            ranks::set(0, 1);
        }
        next == State::Running
    })
}

fn try_start(slot: &Slot, by: StartedBy) -> State {
    STARTED_BY_FUNCTION.store(by == StartedBy::Function, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|panic| {
        report(format_args!("stopped measuring: an internal error (please report it): {panic}"))
    }));
    // Score-P may have been loaded after this library.
    if is_scorep_linked() || ampere_model::is_switched_off() {
        return State::Inert;
    }
    // SAFETY: the function has the required type, and lives as long as the process: this library is never closed.
    if !threads::prepare() || unsafe { libc::pthread_atfork(None, None, Some(forked)) } != 0 {
        report(format_args!("not measuring: no thread key left in this process"));
        return State::Inert;
    }
    clock::choose();
    filter::load();
    if !plugin::load(&callbacks::TABLE) {
        return State::Inert;
    }
    let program = symbols::program();
    let path = program.to_string_lossy();
    let short = program.file_name().unwrap_or_default().to_string_lossy();
    let region = definitions::region(&short, &path, "", 0, region_type::ARTIFICIAL, paradigm::MEASUREMENT);
    PROGRAM_REGION.store(region, Ordering::Relaxed);
    plugin::assign_id(0);
    let Some(location) = signal::blocked(|| threads::attach(slot)) else { return State::Inert };
    plugin::program_begin(location, clock::now(), region);
    if by != StartedBy::Function {
        // The program itself is not instrumented: this frame stands for everything outside of MPI calls and ranges. It is still
        // open at program_end, as `main` is in an instrumented program.
        plugin::enter(location, clock::now(), region);
    }
    if by != StartedBy::Mpi {
        at_exit();
    }
    State::Running
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

/// Called in a forked child, which shares the parent's rings and must not write into them.
extern "C" fn forked() {
    alloc::MEMORY.forked();
    if state() != State::New {
        state::set(State::Inert);
    }
}

/// Ends the measurement, once, in Score-P's order.
pub fn end(status: Option<i64>) {
    if state() != State::Running {
        return;
    }
    if is_on_alternate_stack() || on_own_stack_uninterrupted(true, signal::inside_handler) {
        return end_at_once(status);
    }
    gpu::flush();
    inside((), |slot| guarded((), || try_end(slot, status)));
}

/// Ends the measurement in a signal handler that ends the program. The interrupted code may hold any lock, so nothing is done
/// that could need one, and nothing is waited for. To the collector, the process looks like one that was killed, but the
/// time of its end is known.
#[cold]
pub fn end_at_once(status: Option<i64>) {
    if !state::change(State::Running, State::Ended) {
        return;
    }
    pcontrol::switch_on();
    // The end is recorded unless the handler interrupted an event or runs in another thread than the master location's.
    inside((), |slot| {
        let master = threads::master();
        // SAFETY: this thread's own state, which nothing else uses while the slot is busy.
        if unsafe { slot.thread.get().as_ref() }.is_some_and(|thread| thread.location == master) {
            plugin::program_end(master, clock::now(), status, PROGRAM_REGION.load(Ordering::Relaxed));
        }
    });
}

fn try_end(slot: &Slot, status: Option<i64>) {
    if !state::change(State::Running, State::Ending) {
        return;
    }
    pcontrol::switch_on();
    threads::drain(slot);
    threads::report_all_missed();
    let streams = gpu::end();
    let master = threads::master();
    let region = PROGRAM_REGION.load(Ordering::Relaxed);
    if !ranks::are_known() {
        ranks::set(0, 1);
    }
    plugin::program_end(master, clock::now(), status, region);
    for location in streams.into_iter().chain(threads::deactivate_all()) {
        plugin::delete_location(location);
    }
    plugin::finalize();
    state::set(State::Ended);
}

/// Ends the measurement of this process when the application calls MPI_Abort, without waiting for other processes.
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code))]
pub fn abort(slot: &Slot, status: i64) {
    if !state::change(State::Running, State::Ending) {
        return;
    }
    pcontrol::switch_on();
    threads::drain(slot);
    threads::report_all_missed();
    plugin::program_end(
        threads::master(),
        clock::now(),
        Some(status),
        PROGRAM_REGION.load(Ordering::Relaxed),
    );
    // Deleting the locations of GPU streams, and deactivating those of threads, writes the pending groups of coalesced calls.
    for stream in gpu::end() {
        plugin::delete_location(stream);
    }
    threads::deactivate_all();
    state::set(State::Ended);
}
