//! The collector: one process on each node that drains the rings, attributes energy, serves metrics and leaves trace and summary.
//!
//! ```text
//! live.rs         one node's run: the loop's body
//! ingest/         processes, their logs and rings; what comes out of the rings
//! sampling/       when counters are read, gauges, the clock that times are of
//! serving/        snapshots of the figures, metrics, HTTP and its access control
//! run_directory/  what is on disk for a run: output, manifest, leftovers, recovery
//! finish/         the end of a run
//! cpus.rs         where the collector runs      overhead.rs  what it costs
//! signals.rs      signals that ask it to end    supervise.rs  restarting a killed collector
//! ```
#![forbid(unsafe_code)]

pub mod cpus;
pub mod finish;
pub mod ingest;
pub mod live;
mod node_watch;
mod notes;
mod options;
mod overhead;
pub mod run_directory;
pub mod sampling;
pub mod serving;
pub mod signals;
pub mod supervise;
mod timeline;
