//! A run's files on disk, the files that killed runs leave, and how such runs are finished.
//!
//! ```text
//! output.rs       the output directory, and its owner
//! files.rs        names of files, and how they are written
//! manifest.rs     what is needed to finish a run, except its records
//! spool_place.rs  the directory for the records, on a disk of the node's own
//! nodes.rs        one directory for each node of a run
//! other_runs.rs   other runs on the same node
//! disk_space.rs   when the disk is too full for a trace
//! command_end.rs  how the command ended
//! leftover.rs     what killed collectors have left
//! recover.rs      `ampere recover`
//! stale.rs        removes sessions in shared memory that are no longer needed
//! ```

pub mod command_end;
pub(crate) mod disk_space;
pub mod files;
pub mod leftover;
pub mod manifest;
pub mod nodes;
pub(crate) mod other_runs;
pub mod output;
pub mod recover;
pub mod spool_place;
pub mod stale;
