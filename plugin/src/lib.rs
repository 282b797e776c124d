//! The Score-P substrate plugin.
