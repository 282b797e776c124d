//! The figures of several nodes as one: their summaries, and their reports while the run continues.
//!
//! ```text
//! report.rs     a node's report, once a second
//! gathered.rs   the last reports of all nodes
//! job.rs        all nodes as programs and the page see them
//! summaries.rs  the summaries of nodes as one
//! ```

pub mod gathered;
pub mod job;
pub mod report;
pub mod summaries;
