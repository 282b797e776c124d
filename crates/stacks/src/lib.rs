//! Sampled call paths: the functions that the threads of a command execute, at each millisecond of their CPU time.
//!
//! The times at which each thread is on a CPU are recorded, too, even for processes whose stacks are not sampled.
//!
//! The kernel interrupts each thread and copies its registers and the top of its stack into a ring that this process
//! reads (`perf_event_open`). Nothing is loaded into the application, it receives no signals, and static and JVM programs
//! are sampled like all others. Stacks are unwound here, with the tables of the mapped files (DWARF), or with frame pointers if a
//! file has no tables.
//!
//! ```text
//! sampler.rs     polls the rings and passes the records of all CPUs, in time order, to a `Sink`
//! events.rs      the kernel's events and rings: the only unsafe code
//! options.rs     the settings, and the errors
//! records.rs     parses the kernel's records
//! processes.rs   the mapped files of each process, through forks and execs
//! stack.rs       a copied stack and its registers
//! walker.rs      walks a stack, frame by frame
//! rules.rs       unwinds a frame by DWARF's tables
//! machine.rs     the registers of each architecture
//! prologue/      unwinds a frame by a function's instructions, if there is no table
//! file.rs        files, and the functions in them
//! source.rs      finds and reads a file's bytes
//! image.rs       a file's segments, unwind tables and symbols
//! functions.rs   functions and their names
//! jit.rs         functions that a runtime makes at run time
//! debug_info.rs  debug information: source lines, and functions that were inlined
//! foreign.rs     reads files and memory of the program, with a timeout
//! figures.rs     counts samples, and those that were cut off, by reason
//! counters.rs    which further events are counted in each thread
//! counts.rs      how often they have happened since a thread's last sample
//! task_clock.rs  the CPU time of everything that a process starts
//! cost.rs        measures the cost of a sample for the sampled thread
//! fuzzing.rs     unwinds a sample with a file of arbitrary bytes, for fuzz targets
//! ```
//!
//! # Which frames are shown
//!
//! The outermost frame is `main`, or the function that a thread was started with. Frames outside it are left out: the entry
//! points of the program and of the dynamic loader, `__libc_start_main` and the functions that it calls, `start_thread`, `clone`.
//! If there are no other frames (before and after `main`), the innermost of them is shown. A stack that is cut off at its outer
//! end is shown as far as it is known, and marked. Inside a Python function, the interpreter's loop and calls are not shown.
//!
//! A function that was inlined has a frame of its own if the file has debug information (`-g`).
//!
//! A function without a symbol is named after its file and the start of its unwind table (`libx.so+0x1234`). Code without
//! either is one function of its file, `[unknown]`. Code that is in no file (just-in-time) has the file `//anon`, and the
//! names that its runtime writes for perf, if any.
//!
//! Everything from the application's processes is checked: records, stacks, and files, which may be damaged, replaced or
//! removed. Anything that cannot be read leads to unknown names or to stacks that are cut off, and is counted.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod cost;
mod counters;
mod counts;
mod debug_info;
mod events;
mod figures;
mod file;
pub mod foreign;
mod functions;
#[doc(hidden)]
pub mod fuzzing;
mod image;
mod jit;
mod machine;
mod options;
mod processes;
mod prologue;
mod records;
mod rules;
mod sampler;
mod source;
mod stack;
mod task_clock;
mod walker;

pub use cost::sample_cost;
pub use counters::{NotCounted, countable};
pub use counts::EventTotals;
pub use events::{cpu_of_process, files_max};
pub use figures::{CutOff, CutReason, Figures, Unnamed, UnnamedReason};
pub use functions::{Function, FunctionId};
pub use options::{Options, StacksError};
pub use sampler::{Sampler, Sink};
pub use task_clock::TaskClock;
