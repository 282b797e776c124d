//! What is on disk for a run: its output directory, the manifest, what killed runs leave, and how they are finished.

pub mod command_end;
pub(crate) mod disk_space;
pub mod files;
pub mod leftover;
pub mod manifest;
pub(crate) mod neighbours;
pub mod nodes;
pub mod output;
pub mod recover;
pub mod stale;
