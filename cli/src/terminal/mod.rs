//! What people see on standard error while a command runs.
//!
//! ```text
//! live_table.rs  the live table                          progress.rs  how far a trace has been read
//! screen.rs    lines that stay at the bottom             words.rs     printing, and paths of the command line
//! interrupt.rs   Ctrl-C while a file is written
//! ```

#[macro_use]
pub mod words;
pub mod interrupt;
pub mod live_table;
pub mod progress;
pub mod screen;
