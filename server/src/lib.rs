//! Serves the figures of a run over HTTP: to people, to Prometheus, and to the collectors of the run's other nodes.
//!
//! ```text
//! http.rs         the server
//! events.rs       sends the page, once a second
//! metrics.rs      the table of metrics, as text
//! reference.rs    the same table as a page of the documentation
//! gather.rs       asks the run's other nodes
//! find.rs         finds their collectors in the output directory
//! otlp.rs         sends the energy to an OpenTelemetry collector
//! targets.rs      the file with which Prometheus finds a run
//! text_format.rs  metrics in the format that a scrape requests
//! ```
#![forbid(unsafe_code)]

pub(crate) mod events;
pub(crate) mod find;
pub mod gather;
pub mod http;
pub mod metrics;
pub mod otlp;
pub mod reference;
pub mod targets;
pub(crate) mod text_format;
