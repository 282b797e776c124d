//! The collector: drains the rings, attributes energy, serves metrics, writes the trace and the summary.
#![forbid(unsafe_code)]

pub mod attributor;
pub mod clock;
pub mod clock_text;
pub mod config;
pub mod offline;
pub mod order;
pub mod regions;
pub mod stream;
pub mod summary;
