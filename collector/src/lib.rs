//! The collector: drains the rings, attributes energy, serves metrics, writes the trace and the summary.
//!
//! ```text
//! live.rs        one node's run: processes, rings, lanes, the loop's body; live/ending.rs: the end
//! process.rs     one process: its definitions log and its locations' rings
//! order.rs      streams -> one order of time
//! attributor.rs  devices, locations, the engine       snapshot.rs   a consistent picture for metrics.rs and http.rs
//! topology.rs    who spends from what, and why        linking.rs    the same, as it becomes known
//! evidence.rs    what a trace says about it           conflicts.rs  settings that say odd things about it
//! spool.rs       records on disk -> trace.rs (OTF2)   summary.rs    the result, text.rs the same for people
//! report/        the result as table, page, picture, rows    highlights.rs  what is said first
//! room.rs        when the disk is nearly full
//! sampler.rs     counters -> samples                  pace.rs       when a counter is looked at next
//! nature.rs      what contains what                   clock.rs      which clock, how fast
//! live/takeover.rs  a dead collector's place     gaps.rs        what was not sampled meanwhile
//! facts.rs       what a run is finished with      leftover.rs, recover.rs, stale.rs  runs that nobody collects
//! supervise.rs   who restarts a collector
//! listen.rs      where metrics are served             access.rs      to whom          client.rs  who asks
//! growth.rs      how much of anything there may be   signals.rs     being asked to end
//! agreement.rs   counters against each other
//! counters_only.rs   samples for Score-P's own trace, and nothing else
//! replay.rs      an existing trace, played into a live run        offline.rs  an existing one at once
//! trace_index.rs what a trace's definitions say   trace_devices.rs  its metrics as devices   recorders.rs  who recorded them
//! ```
#![forbid(unsafe_code)]

pub mod access;
pub mod agreement;
pub mod attributor;
pub mod client;
pub mod clock;
pub mod clock_text;
pub mod config;
pub mod conflicts;
pub mod counters_only;
pub mod cpus;
mod curve;
pub mod evidence;
pub mod facts;
mod gaps;
pub mod gauges;
mod growth;
pub mod highlights;
pub mod http;
pub mod job;
pub mod leftover;
pub mod linger;
pub mod linking;
pub mod listen;
pub mod live;
pub mod metrics;
mod missing;
pub mod nature;
mod neighbours;
pub mod nodes;
mod numbers;
pub mod offline;
pub mod order;
pub mod output;
mod overhead;
pub mod pace;
mod power;
mod process;
mod recorders;
pub mod recover;
pub mod regions;
pub mod replay;
pub mod report;
pub mod room;
pub mod sampler;
pub mod signals;
pub mod snapshot;
pub mod spool;
pub mod stale;
pub mod summary;
pub mod supervise;
pub mod text;
pub mod time_device;
pub mod topology;
pub mod trace;
mod trace_devices;
pub mod trace_index;
mod trace_sensors;
