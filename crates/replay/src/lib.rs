//! Plays an existing OTF2 trace into a live collector: `ampere replay`.
//!
//! ```text
//! ampere replay          conductor.rs   the samples, and the time: how far everybody may play, and when
//!   └─ ampere replay-rank  player.rs    one process of the trace: its threads, and its GPU streams in late batches
//!                          host.rs      a Score-P for the real plugin: its C interface, from the caller's side
//! ```
//!
//! One host process for each process of the trace, because the plugin's state is a process'. The conductor says "until t"
//! to all of them; each hands over what it has before t and answers; the conductor writes the samples before t, tells the
//! session that it is t, and lets as much time pass as the speed wants. Timestamps are the trace's own ticks, and samples
//! its raw values, so that what comes out equals `ampere attribute` of the same trace. A replay is nobody's job: it waits
//! for room in the rings, and nothing is suppressed.
//!
//! **Invariant**: unsafe code is in `host` only, where the C interface is.

#[forbid(unsafe_code)]
mod conductor;
pub mod host;
#[forbid(unsafe_code)]
mod player;

pub use conductor::{Conductor, Speed};
pub use host::loads;
pub use player::play;

/// What the conductor says to a host at the end. No event is so late.
const END: u64 = u64::MAX;
/// How long to sleep where a ring has no room.
const NO_ROOM: std::time::Duration = std::time::Duration::from_micros(200);
