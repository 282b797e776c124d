//! Plays an existing OTF2 trace into a live collector: `ampere replay`.
//!
//! ```text
//! ampere replay          conductor.rs   the samples, and the pace: up to which time all processes play, and when
//!   └─ ampere replay-rank  player.rs    one process of the trace: its threads, and its GPU streams in late batches
//!                          host.rs      a stand-in for Score-P: the plugin's C interface from the caller's side
//! ```
//!
//! Each process of the trace has a host process, because the plugin's state is one per process. The conductor sends a time t to
//! all of them; each plays its events before t and answers; the conductor writes the samples before t, sets the session's replay
//! time to t, and waits as the speed requires. Timestamps are the trace's own ticks and samples its raw values, so that the
//! results equal those of `ampere attribute` of the same trace. A replay can wait for room in the rings: nothing is suppressed.
//!
//! **Invariant**: unsafe code is in `host` only, where the C interface is.

#[forbid(unsafe_code)]
mod conductor;
pub mod host;
#[forbid(unsafe_code)]
mod player;

pub use conductor::{Conductor, InvalidSpeed, Speed};
pub use host::{CannotLoad, loads};
pub use player::play;

/// The last time that the conductor sends. No event is so late.
const END: u64 = u64::MAX;
/// How long to sleep where a ring has no room.
const NO_ROOM: std::time::Duration = std::time::Duration::from_micros(200);
