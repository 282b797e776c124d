//! What `ampere run` preloads: a freestanding library of a few kilobytes, in C. Building this crate makes it; the crate itself only
//! says where it is.
//!
//! ```text
//! stub.c      its start, and when it loads the host          objects.c   loaded objects, and which of them defines a function
//! patch.c     entries of objects' tables are replaced        calls.c     dlopen and dlsym
//! programs.c  exec and posix_spawn                           limits.c    whether the process has room for the host; notes
//! stub.h      what these share                               twin.s      for programs of 32 bits: nothing
//! ```
//!
//! The library lies in one directory for each value of the loader's `$PLATFORM`: programs of 64 bits find the library,
//! programs of 32 bits its twin, and programs of another C library than glibc find nothing. `docs/src/decisions/preload.md` says why.
#![warn(missing_docs)]

/// The directory that the build made.
pub const BUILT: &str = env!("PRELOAD_BUILT_IN");
/// The name of the directory beside the host, of which each platform has a directory.
pub const DIRECTORY: &str = "ampere-preload";
/// The library's name in its platform's directory.
pub const FILE: &str = "libampere_preload.so";
/// What the loader replaces by the platform's name.
pub const PLATFORM: &str = "$PLATFORM";
