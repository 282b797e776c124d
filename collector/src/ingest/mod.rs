//! Processes of the run, their definition logs and their rings; and what comes out of the rings, on its way to the lanes.

mod draining;
mod finding;
pub(crate) mod growth;
pub(crate) mod process;
mod takeover;

pub use takeover::devices_in;
