//! Determines which location draws from which device, and in which order events reach the engine.
//!
//! ```text
//! attributor.rs      locations, devices and the engine: the same for live runs and traces
//! device.rs          a counter with its views, and how its readings are understood
//! topology.rs        which devices a location draws from, and why: a function of evidence alone
//! linking.rs         links of locations to devices, kept up to date as both become known
//! other_jobs.rs      other jobs that use the processors of a node, too
//! threads.rs         ranks whose other threads run more than their main thread
//! pipeline.rs        events and samples in time order, on their way to the engine
//! sampled.rs         call paths that are sampled, around calls that are recorded
//! credits.rs         which sampled call path is shown between two recorded calls
//! launches.rs        the call paths of launches, with which those of kernels begin
//! counter_traits.rs  what a counter counts, and which others it contains
//! baseline.rs        what a device draws without the job
//! time_device.rs     time, attributed like a counter
//! gaps.rs            times without samples between two collectors
//! curve.rs           a device's energy over the run        power_sensor.rs  a power, integrated
//! lanes.rs           which regions ran on ranks and GPU streams over the run
//! recorder.rs        single calls and intervals, if a caller records them
//! work.rs            units of work that were counted
//! events.rs          events that were counted with stack samples, by call path
//! waiting/           energy that ranks use while they wait for each other in MPI, and who caused the waits
//! standing.rs        devices that repeat another, or contain less than their parts
//! sameness.rs        whether two counters are the same, by their values
//! agreement.rs       counters compared with each other     conflicts.rs     doubtful settings
//! ```
//!
//! Nothing here does input or output, or reads a clock: the same events in the same order give the same figures.
#![forbid(unsafe_code)]

pub mod agreement;
pub mod attributor;
pub mod baseline;
pub mod conflicts;
pub mod counter_traits;
mod credits;
pub mod curve;
mod device;
pub mod events;
pub mod gaps;
pub mod lanes;
mod launches;
#[cfg(test)]
mod launches_tests;
pub mod linking;
mod other_jobs;
pub mod pipeline;
pub mod power_sensor;
pub mod recorder;
mod sameness;
mod sampled;
pub mod standing;
pub mod threads;
pub mod time_device;
pub mod topology;
pub mod waiting;
pub mod work;
