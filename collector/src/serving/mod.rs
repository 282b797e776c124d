//! The live figures: snapshots of them, Prometheus metrics, HTTP, and who may read them.

pub mod access;
pub mod client;
pub mod http;
pub mod linger;
pub mod listen;
pub mod metrics;
pub(crate) mod power;
pub(crate) mod publishing;
pub mod reference;
pub mod snapshot;
