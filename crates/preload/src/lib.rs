//! The library that `ampere run` preloads: a freestanding library of a few kilobytes, in C. Building this crate compiles it; the
//! Rust part contains only its paths.
//!
//! ```text
//! start.c     the start of the library                   host.c      treats new objects, loads the host
//! patch.c     replaces entries of objects' tables        objects.c   loaded objects, and which of them defines a function
//! calls.c     dlopen and dlsym                           programs.c  exec and posix_spawn
//! limits.c    whether the process has room; notes        stub.h      declarations that these share
//! rocm.c      the function for rocprofiler-register      twin.s      an empty library for 32-bit programs
//! ```
//!
//! There is a directory with the library for each value of the loader's `$PLATFORM`: 64-bit programs find the library, 32-bit
//! programs its empty twin, and programs of another C library than glibc find nothing. `docs/src/decisions/preload.md` explains
//! why.
#![warn(missing_docs)]

/// The directory in which the build put the library.
pub const BUILT: &str = env!("PRELOAD_BUILT_IN");
/// The name of the directory next to the host. It contains one directory for each platform.
pub const DIRECTORY: &str = "ampere-preload";
/// The library's name in its platform's directory.
pub const FILE: &str = "libampere_preload.so";
/// The name of the platform's directory with the library for programs of this program's architecture.
pub const NATIVE: &str = std::env::consts::ARCH;
/// The text that the loader replaces by the platform's name.
pub const PLATFORM: &str = "$PLATFORM";
