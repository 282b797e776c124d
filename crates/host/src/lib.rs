//! The embedded measurement host: a small Score-P in a library.
//!
//! The preloaded library (`crates/preload`) opens it in a program that calls MPI, was compiled with `-finstrument-functions`, or
//! marks ranges, and puts its wrappers in front of these functions. The host loads the same substrate plugin that Score-P would,
//! and calls it through the same interface in the same order. The modules:
//!
//! - [`attach`]: the functions that the preloaded library calls;
//! - [`mpi`]: the wrappers of MPI, the real functions behind them, init and finalize;
//! - [`functions`]: the hooks of instrumented functions; [`symbols`]: the name and line of an address; [`filter`]: functions
//!   that are not recorded; [`ranges`]: ranges that programs mark for tools; [`interface`]: ampere's own interface;
//!   [`gpu`]: kernels and calls of GPU runtimes;
//!   [`regions_by_key`]: tables that find the regions of functions, ranges and kernels;
//! - [`measurement`]: its start and end; [`state`]: the states in between; [`guard`]: entering the host; [`ranks`]: rank and
//!   size;
//! - [`thread`]: a thread's record and its open frames; [`threads`]: the threads that are recorded; [`location`]: their
//!   locations; [`preloaded`]: how a thread's record is found; [`signal`]: the program's handlers; [`stack`]: a stack of our own;
//! - [`definitions`]: regions and their handles; [`callbacks`]: the functions that the plugin can call;
//! - [`plugin`]: finding, loading and calling the plugin; [`communication`]: its events of messages and collectives;
//! - [`counts`]: units of work and ranges in the run's table;
//! - [`clock`], [`alloc`], [`messages`]: time, memory, and messages to the user.
//!
//! Environment variables, all optional:
//!
//! | variable | meaning |
//! | --- | --- |
//! | `AMPERE_HOST_PLUGIN` | the plugin's path; by default `libscorep_substrate_ampere.so` next to this library or in `ampere-plugin` there |
//! | `SCOREP_FILTERING_FILE` | functions that are not recorded, as in Score-P; see [`filter`] |
//! | `SCOREP_TIMER` | `tsc`, `clock_gettime` or `gettimeofday`, as in Score-P; see [`clock`] |
//!
//! Limits: calls into a statically linked MPI library are not recorded, nor MPI sessions without MPI_Init; the number of threads
//! that are recorded at a time is limited ([`threads`]), and a new thread takes the location of one that has ended if there
//! is one; a process that ends by `_exit`, `exec` or a signal does not end its measurement.
//!
//! Invariants: no panic, lock or failure of ours affects the application; in a process without an event that starts a measurement
//! ([`measurement::StartedBy`]) the library does nothing; a forked child records nothing; the event path neither allocates nor
//! locks nor calls the C library.
#![allow(rustdoc::private_intra_doc_links)]

mod alloc;
mod attach;
mod callbacks;
mod clock;
mod communication;
mod counts;
mod definitions;
mod filter;
mod functions;
mod gpu;
mod guard;
mod interface;
mod location;
mod measurement;
mod messages;
mod mpi;
mod plugin;
mod preloaded;
mod ranges;
mod ranks;
mod regions_by_key;
mod signal;
mod stack;
mod state;
mod symbols;
mod thread;
mod threads;
