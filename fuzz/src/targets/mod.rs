pub mod config;
pub mod engine;
pub mod http;
pub mod log;
pub mod names;
pub mod nodes;
pub mod otf2;
pub mod page;
pub mod ring;
pub mod samples;
pub mod session;
pub mod spool;
pub mod stacks;
pub mod writer;

/// The processes whose files the targets make. A log whose content names another process is not read.
pub const PROCESSES: [u32; 2] = [10001, 10002];
