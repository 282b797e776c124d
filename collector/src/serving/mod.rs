//! The live figures: snapshots, Prometheus metrics, and the HTTP server and its access control.
//!
//! ```text
//! snapshot.rs   the figures of one moment          publishing.rs  when a snapshot is made, and its contents
//! metrics.rs    the table of metrics, as text      reference.rs   the same table as a page of the documentation
//! http.rs       the HTTP server                    client.rs      the HTTP client of `ampere run` and `ampere top`
//! listen.rs     address or socket                  access.rs      which requests are answered
//! proof.rs      a token that is known is not sent  peer.rs        whose process asks, on this node
//! announcement.rs  the address in collector.json
//! linger.rs     serves on after the run, until Prometheus has the final figures
//! power.rs      the current power of each device   targets.rs     the file by which Prometheus finds a run
//! history.rs    that power since the run began     page.rs        the data of the live page
//! events.rs     how it is sent, once a second      job/           all nodes of a run
//! text_format.rs  metrics as a scrape asks for them
//! ```

pub mod access;
pub mod announcement;
pub mod client;
pub(crate) mod events;
pub(crate) mod find;
pub mod gather;
pub(crate) mod history;
pub mod http;
pub mod linger;
pub mod listen;
pub mod metrics;
pub mod page;
pub(crate) mod peer;
pub(crate) mod power;
pub(crate) mod proof;
pub(crate) mod publishing;
pub mod reference;
pub mod targets;
pub(crate) mod text_format;
