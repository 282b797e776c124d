//! A table of calls with a row for each, and the table of the call paths that they refer to.
//!
//! ```text
//! mod.rs      a row's columns                paths.rs       the table of call paths
//! parquet.rs  rows as a Parquet file
//! ```

#[cfg(feature = "parquet")]
mod parquet;
mod paths;

#[cfg(feature = "parquet")]
pub use parquet::{CallsFile, write_paths};
#[cfg(feature = "parquet")]
pub(crate) use parquet::{field, properties, put};
pub use paths::{NameNumber, Names, Path, PathNumber, Paths};

/// A call. Its names are numbers in the [`Names`] that are passed to the writer.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct CallRow {
    pub place: Place,
    pub device: DeviceView,
    pub path: PathNumber,
    /// Nanoseconds since the start of the trace.
    pub start: i64,
    pub end: i64,
    pub exclusive_joules: f64,
    pub inclusive_joules: f64,
    pub resolved_joules: f64,
    /// The dynamic part of the exclusive and of the inclusive joules, if it is known.
    pub dynamic_joules: Option<[f64; 2]>,
    /// The number of calls that the row stands for; `None` if it is not known, because stacks were sampled.
    pub calls: Option<u32>,
}

/// The node, the rank and the thread of a call.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Place {
    pub node: NameNumber,
    /// For a GPU stream, the rank of the process that it belongs to.
    pub rank: NameNumber,
    pub thread: NameNumber,
}

/// The device and the view of a call's joules; two empty names if the call draws from no device.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct DeviceView {
    pub device: NameNumber,
    pub view: NameNumber,
}
