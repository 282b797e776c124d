//! What is on disk for a run: its output, the manifest, what killed runs have left, and how they are finished.

pub mod command_end;
pub mod files;
pub mod leftover;
pub mod manifest;
pub(crate) mod neighbours;
pub mod nodes;
pub mod output;
pub mod recover;
pub mod room;
pub mod stale;
