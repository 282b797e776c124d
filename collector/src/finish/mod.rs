//! The end of a run.

mod ending;

pub use ending::{knows_more, write_results};
