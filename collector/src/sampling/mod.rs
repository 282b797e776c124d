//! When counters and gauges are read, and the clock that times are of.

pub mod clock;
pub mod counters_only;
pub(crate) mod gaps;
pub mod gauges;
pub mod pace;
pub mod sampler;
