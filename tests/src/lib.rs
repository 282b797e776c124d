//! Tests of whole processes and of the built libraries.
