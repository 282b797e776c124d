//! The embedded measurement host: a small Score-P in a library.
//!
//! The preloaded library (`crates/preload`) opens it in a program that calls MPI, was compiled with `-finstrument-functions`, or marks
//! ranges, and puts its wrappers in front of these functions. It loads the same substrate plugin that Score-P would, and calls it through the same
//! interface in the same order. The modules:
//!
//! - [`attach`]: what the preloaded library asks for;
//! - [`mpi`]: the wrappers of MPI, the real functions behind them, init and finalize;
//! - [`functions`]: the hooks of instrumented functions; [`symbols`]: address to name and line; [`filter`]: functions that are
//!   not recorded; [`ranges`]: ranges that programs mark by NVTX or roctx; [`known`]: which of these have a region;
//! - [`thread`]: a thread's location and its open frames; [`tls`]: how it is found; [`signal`]: the program's handlers;
//!   [`stack`]: a stack of our own;
//! - [`definitions`]: regions and their handles; [`callbacks`]: what the plugin can ask;
//! - [`plugin`]: finding, loading and calling it; [`measurement`]: the life of one process's measurement;
//! - [`clock`], [`alloc`], [`messages`]: time, memory, and messages to the user.
//!
//! Environment, all optional:
//!
//! | variable | meaning |
//! | --- | --- |
//! | `AMPERE_HOST_PLUGIN` | the plugin's path; otherwise `libscorep_substrate_ampere.so` beside this library or in `../lib` |
//! | `SCOREP_FILTERING_FILE` | functions that are not recorded, as with Score-P; see [`filter`] |
//! | `SCOREP_TIMER` | `tsc`, `clock_gettime` or `gettimeofday`, as with Score-P; see [`clock`] |
//!
//! Limits: calls into a statically linked MPI library are not seen, nor MPI sessions without MPI_Init; the number of threads
//! recorded at a time is bounded ([`measurement`]), each on the location of one that has ended if there is one; a process
//! that ends by `_exit`, `exec` or a signal does not run the end.
//!
//! Invariants: no panic, lock or failure of ours affects the application; in a process that calls neither MPI_Init nor an
//! instrumented function the library does nothing; a forked child records nothing; the event path neither allocates nor locks
//! nor calls the C library.
#![allow(rustdoc::private_intra_doc_links)]

mod alloc;
mod attach;
mod callbacks;
mod clock;
mod definitions;
mod filter;
mod functions;
mod known;
mod measurement;
mod messages;
mod mpi;
mod plugin;
mod ranges;
mod signal;
mod stack;
mod symbols;
mod thread;
mod tls;

#[global_allocator]
static MEMORY: alloc::Pages = alloc::Pages::new();
