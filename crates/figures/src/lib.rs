//! A run's figures, of which /metrics, the page, `ampere top`, a node's report and summary.json are serialisations.
//!
//! ```text
//! summary.rs     all figures of a run: summary.json
//! build.rs       a summary of an attributor's figures
//! callpaths.rs   its call paths, in columns
//! assignment.rs  which consumer draws from which device
//! snapshot.rs    the figures of one moment
//! gauges.rs      figures of devices other than their energy
//! losses.rs      counts of losses: a new count is added only here
//! totals.rs      sums over devices
//! shares.rs      the joules to which shares refer
//! nodes/         the figures of several nodes as one
//! missing.rs     ranks that are missing in the figures
//! site.rs        the energy of the facility, the carbon dioxide and the price
//! batch_job.rs   the batch system's job
//! lanes.rs       the regions that ran, over time
//! events.rs      events that were counted with samples, such as instructions
//! waits.rs       energy that ranks used while they waited for each other in MPI
//! clock_text.rs  wall-clock time as text
//! ```
#![forbid(unsafe_code)]

pub mod assignment;
pub mod batch_job;
pub mod build;
pub mod callpaths;
pub mod clock_text;
pub mod events;
pub mod gauges;
pub mod lanes;
pub mod losses;
pub mod missing;
pub mod nodes;
pub mod shares;
pub mod site;
pub mod snapshot;
pub mod summary;
pub mod totals;
pub mod waits;
