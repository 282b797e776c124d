//! The plugin's data of a location, and the protocol by which one event at a time uses it.
//!
//! A signal handler runs in the thread that it interrupts and may have events of its own: an instrumented function, or a
//! sample. Such an event that arrives while another one is being written is dropped and counted.
//!
//! Names in capitals in SAFETY comments are promises of Score-P ([`scorep_abi::guarantees`]).

use ampere_model::LocalLocation;
use ampere_ring::EventWriter;
use ampere_signal_safety::{is_on_alternate_stack, stack_address};
use scorep_abi::AnyHandle;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};

/// No calling context, Score-P's `SCOREP_INVALID_CALLING_CONTEXT`.
pub const NO_CONTEXT: AnyHandle = 0;

/// The plugin's data of a location, which is attached to Score-P's object.
pub struct LocationData {
    /// [`FREE`], or the stack address of the thread that is writing an event, to which the flag [`INTERRUPTED`] may be added.
    busy: AtomicUsize,
    /// The number of dropped events that have not been reported.
    dropped: AtomicU64,
    /// The location's number in its process.
    pub id: LocalLocation,
    /// The kernel's ID (TID) of the thread that uses the location.
    pub thread: AtomicU32,
    inner: UnsafeCell<Inner>,
}

/// The data that one event at a time uses.
pub struct Inner {
    /// Writes the location's events to its ring.
    pub writer: EventWriter,
    /// The innermost calling context, with `SCOREP_ENABLE_UNWINDING`.
    pub calling_context: AnyHandle,
}

const FREE: usize = 0;
/// The distance on the stack by which a signal handler is distinguished from the function that it interrupted. The kernel puts
/// more bytes between their frames, and our functions that read stack addresses are closer to each other.
const SIGNAL_FRAME: usize = 512;
/// Flag in `busy`, where stack addresses are even: a signal handler's events were dropped.
const INTERRUPTED: usize = 1;

impl LocationData {
    pub fn new(writer: EventWriter, id: LocalLocation, thread: u32) -> LocationData {
        LocationData {
            busy: AtomicUsize::new(FREE),
            dropped: AtomicU64::new(0),
            id,
            thread: AtomicU32::new(thread),
            inner: UnsafeCell::new(Inner { writer, calling_context: NO_CONTEXT }),
        }
    }

    /// Handles an event that arrives, at `here` on the stack, while another one is being written. Usually a signal handler has
    /// interrupted the other one. Then all events of the handler, enters and leaves, are dropped, so that the others still nest,
    /// and this returns `false`. But if a handler was left by `siglongjmp`, the stack is about as deep as when the other event
    /// began, and that event was abandoned. Then this repairs the writer and returns `true`. On an alternate signal stack, depths
    /// cannot be compared, so there the other event always counts as interrupted. This must be called by the thread that writes
    /// the location's events.
    #[cold]
    pub fn take_over(&self, here: usize) -> bool {
        // One of the two events is dropped in either case.
        self.dropped.fetch_add(1, Ordering::Relaxed);
        let other = self.busy.load(Ordering::Relaxed) & !INTERRUPTED;
        if here + SIGNAL_FRAME <= other || is_on_alternate_stack() {
            self.busy.fetch_or(INTERRUPTED, Ordering::Relaxed);
            return false;
        }
        self.busy.store(here | INTERRUPTED, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: this thread is the location's only writer (ONE WRITER); a handler that interrupts it finds `busy` set.
        unsafe { self.inner() }.writer.event_was_abandoned();
        true
    }

    /// Begins an event. Returns `false` if another one is being written.
    #[inline(always)]
    pub fn begin(&self) -> bool {
        let is_free = self.busy.load(Ordering::Relaxed) == FREE;
        if is_free {
            self.busy.store(stack_address(), Ordering::Relaxed);
            // Only a signal handler in this thread can interrupt, so it is enough that the compiler keeps the order.
            compiler_fence(Ordering::SeqCst);
        }
        is_free
    }

    /// Ends the event that [`LocationData::begin`] or [`LocationData::take_over`] has begun.
    #[inline(always)]
    pub fn end(&self) {
        compiler_fence(Ordering::SeqCst);
        if self.busy.load(Ordering::Relaxed) & INTERRUPTED != 0 {
            return self.end_interrupted();
        }
        // Pairs with the acquire in `is_free`.
        self.busy.store(FREE, Ordering::Release);
    }

    /// Ends an event during which others were dropped, and reports those. Like the functions that Score-P calls, this one is
    /// `extern "C"` and does not unwind. So the compiler can turn the call at their end into a jump, and their usual path need
    /// not save registers for it.
    #[cold]
    #[inline(never)]
    extern "C" fn end_interrupted(&self) {
        // SAFETY: this thread is the location's only writer (ONE WRITER); a handler that interrupts it finds `busy` set.
        self.report_dropped(unsafe { self.inner() });
        self.busy.store(FREE, Ordering::Release);
    }

    /// Returns the data of the event that is being written.
    ///
    /// # Safety
    /// This thread is the location's only writer (ONE WRITER), and is between `begin` and `end`: a handler that interrupts it
    /// finds `busy` set.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    pub unsafe fn inner(&self) -> &mut Inner {
        // SAFETY: by this function's contract.
        unsafe { &mut *self.inner.get() }
    }

    /// Reports the dropped events in the stream.
    #[cold]
    pub fn report_dropped(&self, inner: &mut Inner) {
        inner.writer.count_dropped_events(self.dropped.swap(0, Ordering::Relaxed));
    }

    /// Counts dropped events, from any thread. Returns `true` if an event is being written, which will report them.
    pub fn add_dropped(&self, events: u64) -> bool {
        self.dropped.fetch_add(events, Ordering::Relaxed);
        self.busy
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |busy| {
                (busy != FREE).then_some(busy | INTERRUPTED)
            })
            .is_ok()
    }

    /// Whether no event is being written.
    pub fn is_free(&self) -> bool {
        // Pairs with the release in `end`.
        self.busy.load(Ordering::Acquire) == FREE
    }

    /// Whether events were dropped just as another one ended, after [`LocationData::end`] had checked.
    pub fn has_unreported(&self) -> bool {
        self.is_free() && self.dropped.load(Ordering::Relaxed) > 0
    }

    /// Discards the mark of an event that is still being written: it was abandoned. Only the location's new writer may call this
    /// (ONE WRITER).
    pub fn free(&self) {
        self.busy.store(FREE, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ring::TestRing;

    /// Writes one event as the event path does. Returns whether it was written.
    fn event(data: &LocationData, here: usize, write: impl FnOnce(&mut EventWriter)) -> bool {
        let is_written = data.begin() || data.take_over(here);
        if is_written {
            // SAFETY: this thread is the only writer, between `begin` and `end`.
            write(&mut unsafe { data.inner() }.writer);
            data.end();
        }
        is_written
    }

    #[test]
    fn events_of_a_handler_that_interrupts_an_event_are_dropped_and_reported_with_it() {
        let mut ring = TestRing::new();
        assert!(ring.data.begin());
        let handlers = stack_address() - 2 * SIGNAL_FRAME;
        assert!(!event(&ring.data, handlers, |writer| writer.enter(1, 7)));
        assert!(!event(&ring.data, handlers, |writer| writer.leave(2, 7)));
        assert!(!ring.data.is_free() && ring.dropped() == 0);
        ring.data.end();
        assert!(ring.data.is_free() && ring.dropped() == 2 && !ring.data.has_unreported());
        assert!(event(&ring.data, 0, |writer| writer.enter(3, 8)));
        assert_eq!(ring.events(), ["+8"]);
    }

    #[test]
    fn after_a_handler_abandons_an_event_by_a_jump_the_next_one_is_written() {
        let mut ring = TestRing::new();
        assert!(ring.data.begin());
        assert!(event(&ring.data, stack_address(), |writer| writer.enter(1, 7)));
        assert!(ring.data.is_free() && ring.dropped() == 1);
        assert!(event(&ring.data, 0, |writer| writer.leave(2, 7)));
        assert_eq!(ring.events(), ["+7", "-7"]);
    }

    #[test]
    fn events_that_other_threads_drop_are_reported_by_the_event_that_is_being_written() {
        let ring = TestRing::new();
        assert!(!ring.data.add_dropped(2) && ring.data.has_unreported());
        assert!(ring.data.begin());
        assert!(ring.data.add_dropped(3));
        ring.data.end();
        assert_eq!((ring.dropped(), ring.data.has_unreported()), (5, false));
    }
}
