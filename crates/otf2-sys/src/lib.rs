//! Raw bindings to the OTF2 C library, generated at build time from the headers of the installed version.
//!
//! Everything named `OTF2_*` is here, except for snapshots, thumbnails and markers, and `vsnprintf` beside it, because
//! OTF2 hands its messages to an error callback as a format and a `va_list`. Names are C's. Sizes and offsets of the
//! structures are asserted at compile time. The crate `otf2` is the safe way to all of it.
//!
//! To build: the library with its headers (Debian: `libopen-trace-format2-dev`, Fedora: `otf2-devel`, or an install of
//! your own whose `otf2-config` is in PATH), and libclang for bindgen (Debian: `libclang-dev`).
//!
//! To run with a library outside the system's directories, say so to the loader (`LD_LIBRARY_PATH`), or give the
//! binary an rpath: dependents find the directory in `DEP_OTF2_LIBDIR` in their build script.
#![allow(non_upper_case_globals, non_camel_case_types, non_snake_case)]
// Generated code: it has no comments to give reasons in.
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, rustdoc::broken_intra_doc_links)]

include!(concat!(env!("OUT_DIR"), "/otf2.rs"));

const _: () = assert!(
    OTF2_VERSION_MAJOR >= 3,
    "OTF2 3.0 or newer is needed: its definition records have other arguments before"
);
