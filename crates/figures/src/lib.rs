//! A run's figures, of which /metrics, the page, `ampere top`, a node's report and summary.json are serialisations.
//!
//! ```text
//! losses.rs   counts of what is missing from the figures: the one place that a new count is added to
//! ```
#![forbid(unsafe_code)]

pub mod losses;
