//! The state of this process's measurement.
//!
//! ```text
//!   New ──start──► Starting ──► Running ──end──► Ending ──► Ended
//!                      │            └──fork, in the child──► Inert
//!                      └── no plugin, or Score-P measures ──► Inert
//! ```
//!
//! If the process ends in a signal handler, Running is followed by Ended at once. In a forked child, every state except New
//! becomes Inert, and after a panic in the host, any state. Events are recorded only while Running. MPI_Init, or the first
//! instrumented function, range or use of a GPU, starts the measurement; a process without any of them stays New.

use std::sync::atomic::{AtomicU8, Ordering};

/// The states, as in the diagram at the top of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    New,
    Starting,
    Running,
    Ending,
    Ended,
    /// Nothing is recorded in this process.
    Inert,
}

/// Contains only values of [`State`].
static STATE: AtomicU8 = AtomicU8::new(State::New as u8);

/// Returns the state. Acquire pairs with the Release of `Running`: a thread that sees `Running` sees the plugin's
/// functions.
#[inline(always)]
pub fn state() -> State {
    // SAFETY: only `set` and `change` store, and they store states.
    unsafe { std::mem::transmute::<u8, State>(STATE.load(Ordering::Acquire)) }
}

pub fn set(state: State) {
    STATE.store(state as u8, Ordering::Release);
}

/// Changes the state from `from` to `to`. Returns `false` if the state was not `from`.
pub fn change(from: State, to: State) -> bool {
    STATE.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
}
