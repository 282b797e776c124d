//! Which location draws from which device, and in which order events reach the engine.
//!
//! ```text
//! attributor.rs   devices, locations and the engine: what live runs and traces fill in alike
//! topology.rs     which devices a location draws from, and why: a function of evidence alone
//! linking.rs      the same, kept up to date as locations and devices become known
//! order.rs        events of several locations in the order of time
//! nature.rs       which device contains which
//! time_device.rs  time, attributed like a counter
//! curve.rs        a device's energy over the run        power_sensor.rs  a power, integrated
//! agreement.rs    counters against each other           conflicts.rs     settings that a run shows to be odd
//! ```
//!
//! Nothing here does input or output, or reads a clock: the same events in the same order give the same figures.
#![forbid(unsafe_code)]

pub mod agreement;
pub mod attributor;
pub mod conflicts;
pub mod curve;
pub mod linking;
pub mod nature;
pub mod order;
pub mod power_sensor;
pub mod time_device;
pub mod topology;
