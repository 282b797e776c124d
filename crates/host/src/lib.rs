//! The embedded measurement host: a small Score-P in an LD_PRELOAD library.
