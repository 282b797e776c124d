//! Raw bindings to the OTF2 C library.
