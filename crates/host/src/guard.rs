//! Ways to enter the host. An event marks its thread as inside the host. Rare work is guarded: errno is preserved, the thread
//! is not cancelled during it, and no panic leaves it. Work that needs much stack runs on a stack of our own.

use crate::preloaded::slot;
use crate::state::{self, State, state};
use crate::thread::{FREE, MISSED_WITHOUT_LOCATION, OWN_STACK, Slot};
use crate::{plugin, signal, stack};
use ampere_signal_safety::{is_on_alternate_stack, preserving_thread_state, stack_address};
use scorep_abi::Location;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// Runs host code that is not on the event path: errno is preserved, the thread is not cancelled here, and a panic does not leave
/// this function; after a panic nothing more is recorded.
pub fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    or_inert(otherwise, preserving_thread_state(|| catch_unwind(AssertUnwindSafe(body))))
}

fn or_inert<T>(otherwise: T, done: std::thread::Result<T>) -> T {
    done.unwrap_or_else(|_| {
        state::set(State::Inert);
        otherwise
    })
}

/// Like [`guarded`], but on our own stack, because the stack of the program may be too small.
pub fn on_own_stack<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    // SAFETY: the slot belongs to this thread and lives as long as the thread.
    let slot = unsafe { &*slot() };
    let before = slot.busy.load(Ordering::Relaxed);
    slot.busy.store(OWN_STACK, Ordering::Relaxed);
    let done = preserving_thread_state(|| stack::on_own(|| catch_unwind(AssertUnwindSafe(body))));
    slot.busy.store(before, Ordering::Release);
    or_inert(otherwise, done)
}

/// Like [`on_own_stack`], but with signals blocked.
pub fn on_own_stack_uninterrupted<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    signal::blocked(|| on_own_stack(otherwise, body))
}

/// Runs `body` with this thread marked as inside the host. Returns `otherwise` if it is inside already.
#[inline(always)]
pub fn inside<T>(otherwise: T, body: impl FnOnce(&Slot) -> T) -> T {
    inside_or(|_| otherwise, body)
}

/// Like [`inside`], but for a call of the program: if this thread is already inside, `missed` counts the call.
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

/// Handles an event while this thread is marked as inside already: the new event interrupts another one, or the other one
/// was abandoned by a `longjmp` out of a signal handler. The stack grows down: an interrupting handler is below the
/// interrupted event, or on another stack.
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

/// Reports an abandoned event to the plugin. This must be called on the thread's own stack.
pub fn event_was_abandoned(slot: &Slot) {
    // SAFETY: the state belongs to this thread.
    if let Some(thread) = unsafe { slot.thread.get().as_ref() } {
        plugin::event_was_abandoned(thread.location);
    }
}

/// Counts a call of the program that is not recorded, to be reported later.
#[cold]
pub fn count_missed(slot: &Slot) {
    if state() != State::Running || slot.busy.load(Ordering::Relaxed) == OWN_STACK {
        return;
    }
    let counter = if slot.thread.get().is_null() { &MISSED_WITHOUT_LOCATION } else { &slot.missed };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Reports calls that were not recorded. The caller is inside the host; it is the location's thread, or `drain` has
/// returned.
pub fn report_missed(missed: &AtomicU64, location: *mut Location) {
    let calls = missed.swap(0, Ordering::Relaxed);
    if calls > 0 {
        plugin::missed_calls(location, calls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_does_not_leave_a_guard_and_ends_the_recording() {
        type Guard = fn(i32, fn() -> i32) -> i32;
        for guard in [guarded as Guard, on_own_stack] {
            state::set(State::New);
            assert_eq!((guard(7, || 8), state()), (8, State::New));
            assert_eq!((guard(7, || panic!("as asked")), state()), (7, State::Inert));
        }
    }
}
