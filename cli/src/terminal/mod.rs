//! The output that people see on a terminal.
//!
//! ```text
//! live_table.rs    the live table of `ampere run`          progress.rs   the progress of a command
//! screen.rs        lines that stay at the bottom           words.rs      printing, and paths of the command line
//! interrupt.rs     Ctrl-C while a file is written
//! ```
//!
//! `ampere top` has the whole terminal, and shares its rows with the live table:
//!
//! ```text
//! figures.rs       the latest figures, as tables            tree.rs       call paths that open and close
//! table.rs         rows in columns                          header.rs     the lines above the rows
//! viewer.rs        views, and the actions of keys           keys.rs       recognises keys by their bytes
//! full_screen.rs   using and restoring the terminal         paint.rs      a picture as escape sequences
//! ```

#[macro_use]
pub mod words;
pub mod figures;
pub mod full_screen;
pub mod header;
pub mod interrupt;
pub mod keys;
pub mod live_table;
pub mod paint;
pub mod progress;
pub mod screen;
pub mod table;
pub mod tree;
pub mod viewer;
