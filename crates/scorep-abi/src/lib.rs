//! Score-P 8.4's substrate plugin interface as Rust types.
