//! The address on which a collector listens, the requests that it answers, and the client that sends them. Nothing here needs an
//! async runtime.
//!
//! ```text
//! listen.rs        address or socket
//! announcement.rs  the address in collector.json
//! access.rs        which requests are answered
//! token.rs         the token that requests carry
//! proof.rs         proves that a client knows a token
//! client.rs        the client of `ampere run` and `ampere top`
//! peer.rs          the user of a client on this node
//! connect.rs       connections that do not wait
//! linger.rs        continues to serve after the run, until Prometheus has the final figures
//! ```
#![forbid(unsafe_code)]

pub mod access;
pub mod announcement;
pub mod client;
pub mod connect;
pub mod linger;
pub mod listen;
pub mod peer;
pub mod proof;
pub mod token;
