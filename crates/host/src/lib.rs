//! The embedded measurement host: a small Score-P in a library for `LD_PRELOAD`.
//!
//! It takes an unmodified program's MPI calls (through the profiling interface) and the hooks of
//! `-finstrument-functions`, loads the same substrate plugin that Score-P would, and calls it through the same
//! interface in the same order. The map:
//!
//! - [`mpi`]: the exported `MPI_*` symbols, the real functions behind them, init and finalize;
//! - [`functions`]: the exported `__cyg_profile_func_*` hooks, address to region; [`symbols`]: address to name and line;
//! - [`thread`]: a thread's location and its open frames; [`tls`]: how it is found; [`signal`]: when to keep out;
//!   [`stack`]: where there is room to work;
//! - [`definitions`]: regions and their handles; [`callbacks`]: what the plugin can ask;
//! - [`plugin`]: finding, loading and calling it; [`measurement`]: the life of one process's measurement;
//! - [`clock`], [`alloc`], [`report`]: time, memory, and words to the user.
//!
//! Environment, all optional:
//!
//! | variable | meaning |
//! | --- | --- |
//! | `AMPERE_HOST_PLUGIN` | the plugin's path; otherwise `libscorep_substrate_ampere.so` beside this library or in `../lib` |
//! | `SCOREP_TIMER` | `tsc`, `clock_gettime` or `gettimeofday`, as with Score-P; see [`clock`] |
//!
//! Limits: functions of an MPI library that is linked statically are not seen, nor sessions without MPI_Init; so many
//! threads at a time are recorded ([`measurement`] has the cap), each on the location of one that has ended if there is
//! one; a process that ends by `_exit`, `exec` or a signal does not run the end.
//!
//! Invariants: the application comes first, so no panic, lock held by others, or failure of ours reaches it; a process that
//! calls neither MPI_Init nor an instrumented function never gets further than being mapped; a forked child records
//! nothing; the event path neither allocates nor locks nor calls the C library.
#![allow(rustdoc::private_intra_doc_links)]

mod alloc;
mod callbacks;
mod clock;
mod definitions;
mod functions;
mod measurement;
mod mpi;
mod plugin;
mod report;
mod signal;
mod stack;
mod symbols;
mod thread;
mod tls;

#[global_allocator]
static MEMORY: alloc::Pages = alloc::Pages::new();
