//! The live figures of a run, for the server.
//!
//! ```text
//! latest.rs   the mailbox between loop and server    publishing.rs  when a snapshot is made, and its contents
//! power.rs    the current power of each device       history.rs     that power since the run began
//! page.rs     the data of the live page
//! ```

pub(crate) mod history;
pub mod latest;
pub mod page;
pub(crate) mod power;
pub(crate) mod publishing;
