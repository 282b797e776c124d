//! The attribution engine: pure, no clock, no IO, cannot fail.
