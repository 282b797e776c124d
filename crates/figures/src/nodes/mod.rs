//! The figures of several nodes as one: their summaries, and their reports while the run continues.
//!
//! ```text
//! report.rs     a node's report while the run continues
//! gathered.rs   the last reports of all nodes
//! job.rs        the figures of all nodes, for programs and the page
//! summaries.rs  joins the summaries of nodes
//! ```

pub mod gathered;
pub mod job;
pub mod report;
pub mod summaries;
