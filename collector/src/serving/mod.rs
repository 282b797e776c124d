//! The live figures: snapshots, Prometheus metrics, and the HTTP server and its access control.

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
