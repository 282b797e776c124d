//! The collector: one process on each node that drains the rings, attributes energy, publishes the figures, and writes trace
//! and summary.
//!
//! ```text
//! live/             one node's run: what one round of the loop does
//! ingest/           reads the processes' logs and rings
//! live_timeline.rs  the run's pipeline (`crates/timeline`): the watermark, and how long GPU streams are waited for
//! live_waits.rs     what ranks wait for in MPI while they run
//! sampling/         reads counters and gauges; the clock of the timestamps
//! stacks/           sampled stacks as enters and leaves
//! serving/          when snapshots of the figures are made, the data of the live page, the mailbox for `server`
//! run_directory/    the files of a run on disk: output, manifest, free space, leftovers, recovery
//! finish/           the end of a run
//! options.rs        the settings of a run         notes.rs      messages about a run, for the summary
//! cpus.rs           the collector's CPUs          overhead.rs   its own costs
//! supervise.rs      starts the collector again when it was killed
//! node_watch.rs     CPU time of other programs on the node, and other runs
//! ```
#![forbid(unsafe_code)]

pub mod cpus;
pub mod finish;
pub mod ingest;
pub mod live;
mod live_timeline;
mod live_waits;
mod node_watch;
mod notes;
mod options;
mod overhead;
pub mod run_directory;
pub mod sampling;
pub mod serving;
mod stacks;
pub mod supervise;

pub use ampere_stacks::files_max;
