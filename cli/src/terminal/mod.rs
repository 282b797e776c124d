//! What people see on standard error while a command runs.

#[macro_use]
pub mod words;
pub mod live;
pub mod progress;
pub mod screen;
