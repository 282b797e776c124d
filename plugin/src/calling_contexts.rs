//! Score-P's events with unwinding or sampling, which carry the whole stack as a calling context.

use crate::events::{count_unrecorded, with_data};
use crate::location_data::{Inner, NO_CONTEXT};
use scorep_abi::{AnyHandle, Callbacks, Location};
use std::sync::atomic::{AtomicPtr, Ordering};

type HandleToHandle = unsafe extern "C" fn(AnyHandle) -> u32;

/// If many calling contexts are entered, they are collected in batches of this size.
const CONTEXTS_AT_ONCE: usize = 256;

static CONTEXT_REGION: AtomicPtr<()> = AtomicPtr::new(no_handle as *mut ());
static CONTEXT_PARENT: AtomicPtr<()> = AtomicPtr::new(no_handle as *mut ());

extern "C" fn no_handle(_handle: AnyHandle) -> u32 {
    0
}

/// Stores Score-P's functions for calling contexts.
pub fn set_callbacks(callbacks: &Callbacks) {
    if let (Some(region), Some(parent)) =
        (callbacks.calling_context_handle_get_region, callbacks.calling_context_handle_get_parent)
    {
        CONTEXT_REGION.store(region as *mut (), Ordering::Relaxed);
        CONTEXT_PARENT.store(parent as *mut (), Ordering::Relaxed);
    }
}

/// With unwinding enabled, Score-P passes the whole stack as a calling context instead of the region.
pub unsafe extern "C" fn context_enter(
    location: *mut Location,
    timestamp: u64,
    context: AnyHandle,
    _previous: AnyHandle,
    unwind_distance: u32,
    _metrics: *mut u64,
) {
    // SAFETY: ONE WRITER, LOCATION LIFE.
    if !unsafe { with_data(location, |inner| move_to(inner, timestamp, context, unwind_distance)) } {
        count_unrecorded(location, 1);
    }
}

pub unsafe extern "C" fn context_leave(
    location: *mut Location,
    timestamp: u64,
    context: AnyHandle,
    _previous: AnyHandle,
    _unwind_distance: u32,
    _metrics: *mut u64,
) {
    // SAFETY: ONE WRITER, LOCATION LIFE.
    unsafe { with_data(location, |inner| move_to(inner, timestamp, parent_of(context), 1)) };
}

/// Score-P calls this in a signal handler. The context is `NO_CONTEXT` when measurement of the thread stops.
pub unsafe extern "C" fn sample(
    location: *mut Location,
    timestamp: u64,
    context: AnyHandle,
    _previous: AnyHandle,
    unwind_distance: u32,
    _interrupt_generator: AnyHandle,
    _metrics: *mut u64,
) {
    // SAFETY: ONE WRITER, LOCATION LIFE.
    unsafe { with_data(location, |inner| move_to(inner, timestamp, context, unwind_distance)) };
}

fn region_of(context: AnyHandle) -> u32 {
    // SAFETY: CONTEXT_REGION only holds functions of this type; OWN HANDLES.
    unsafe { std::mem::transmute::<*mut (), HandleToHandle>(CONTEXT_REGION.load(Ordering::Relaxed))(context) }
}

fn parent_of(context: AnyHandle) -> AnyHandle {
    if context == NO_CONTEXT {
        return NO_CONTEXT;
    }
    // SAFETY: as above.
    unsafe { std::mem::transmute::<*mut (), HandleToHandle>(CONTEXT_PARENT.load(Ordering::Relaxed))(context) }
}

/// Writes the leaves and enters that lead from the previous calling context to `target`, as Score-P's own profile does.
///
/// A calling context is a region, a place in it, and the context that called it. The `distance - 1` innermost contexts of
/// `target` are new. The context outside of these was open before, perhaps at another place in the same region. Its frame stays
/// open, and the frames inside it have ended.
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
        // This is the first context, or recording was switched off in the meantime: the enclosing frames have to be entered as
        // well.
        new = depth_of(target);
    }
    // Enters from the outermost new context to the target, some at a time: nothing may be allocated here.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ring::TestRing;

    /// A context's number is that of its parent times 10, plus its own digit; the number 0 means no context. Its region is that
    /// digit; 6 to 9 are other places in the regions 1 to 4.
    extern "C" fn parent(context: AnyHandle) -> u32 {
        context / 10
    }

    extern "C" fn region(context: AnyHandle) -> u32 {
        let digit = context % 10;
        if digit > 5 { digit - 5 } else { digit }
    }

    /// Contexts from this number on are a chain in region 1: the parent of each is the number before it, and the first context
    /// has none.
    const DEEP: AnyHandle = 1_000_000_000;

    extern "C" fn parent_or_deep(context: AnyHandle) -> u32 {
        match context {
            DEEP => NO_CONTEXT,
            _ if context > DEEP => context - 1,
            _ => parent(context),
        }
    }

    extern "C" fn region_or_deep(context: AnyHandle) -> u32 {
        if context >= DEEP { 1 } else { region(context) }
    }

    #[test]
    fn moving_between_contexts_leaves_and_enters_the_frames_in_which_they_differ() {
        set_callbacks(&Callbacks {
            calling_context_handle_get_parent: Some(parent_or_deep),
            calling_context_handle_get_region: Some(region_or_deep),
            ..Callbacks::EMPTY
        });
        let mut ring = TestRing::new();
        let mut moves = |target, distance| {
            assert!(ring.data.begin());
            // SAFETY: this thread is the only writer, between `begin` and `end`.
            move_to(unsafe { ring.data.inner() }, 1, target, distance);
            ring.data.end();
            ring.events()
        };
        assert_eq!(moves(123, 1), ["+1", "+2", "+3"], "the first context enters all frames");
        assert_eq!(moves(1234, 2), ["+4"]);
        assert_eq!(moves(125, 2), ["-4", "-3", "+5"]);
        assert_eq!(moves(17, 1), ["-5"], "another place in the same region is the same frame");
        assert_eq!(moves(17, 1), Vec::<String>::new());
        assert_eq!(moves(1, 1), ["-2"]);
        assert_eq!(moves(NO_CONTEXT, 1), ["-1"]);
        assert_eq!(moves(3, 1), ["+3"], "after recording was switched off");
        let depth = 2 * CONTEXTS_AT_ONCE + 10;
        let events = moves(DEEP + depth as u32 - 1, depth as u32 + 1);
        assert_eq!((&events[0][..], events.len()), ("-3", 1 + depth));
        assert_eq!(moves(NO_CONTEXT, 1).len(), depth);
    }
}
