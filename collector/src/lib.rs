//! The collector: drains the rings, attributes energy, serves metrics, writes the trace and the summary.
//!
//! ```text
//! live.rs        one node's run: processes, rings, lanes, the loop's body and the end
//! process.rs     one process: its definitions log and its locations' rings
//! stream.rs      records -> well-nested events        order.rs      streams -> one order of time
//! attributor.rs  who spends from what                 snapshot.rs   a consistent picture for metrics.rs and http.rs
//! spool.rs       records on disk -> trace.rs (OTF2)   summary.rs    the result, text.rs the same for people
//! sampler.rs     counters -> samples                  clock.rs      which clock, how fast
//! counters_only.rs   samples for Score-P's own trace, and nothing else
//! replay.rs      an existing trace, played into a live run        offline.rs  an existing one at once
//! ```
#![forbid(unsafe_code)]

pub mod attributor;
pub mod clock;
pub mod clock_text;
pub mod config;
pub mod counters_only;
pub mod http;
pub mod live;
pub mod metrics;
mod numbers;
pub mod offline;
pub mod order;
pub mod output;
mod overhead;
mod process;
pub mod regions;
pub mod replay;
pub mod sampler;
pub mod snapshot;
pub mod spool;
pub mod stream;
pub mod summary;
pub mod text;
pub mod trace;
