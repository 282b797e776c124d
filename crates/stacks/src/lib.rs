//! Sampled call paths: which functions the threads of a command are in, at each millisecond of their CPU time.
//!
//! The kernel interrupts each thread and copies its registers and the top of its stack into a ring that this process
//! reads (`perf_event_open`). Nothing is loaded into the application, no signal reaches it, and static and JVM
//! programs are sampled as all others are. Stacks are unwound here, by the tables of the files that are mapped (DWARF),
//! or by frame pointers where a file has none.
//!
//! ```text
//! sampler.rs     begin and poll: records of all CPUs in the order of time, handed to a `Sink`
//! events.rs      the kernel's events and rings: the only unsafe code
//! records.rs     what is in a record
//! processes.rs   which files a process has mapped where, through forks and execs
//! stack.rs       a copied stack, frame by frame
//! rules.rs       how one frame is unwound: DWARF's tables      machine.rs   the registers of each architecture
//! file.rs        a file's segments, unwind tables and symbols
//! functions.rs   functions and their names      jit.rs   of those that a runtime makes while the program runs
//! lines.rs       debug information: source lines, and functions that were inlined
//! foreign.rs     files of the program that may never answer
//! figures.rs     how many samples there were, and which were cut off, and why
//! fuzzing.rs     a sample and a file of any bytes, for fuzz targets
//! ```
//!
//! # Which frames are shown
//!
//! The outermost frame is `main`, or the function that a thread was started with. Frames outside it are left out: the
//! program's and the dynamic loader's entry point, `__libc_start_main` and what it calls, `start_thread`, `clone`. If
//! there is nothing else (before `main`, after it), the innermost of them is shown. A stack that is cut off at its outer
//! end is shown as far as it is known, and marked. Inside a function of Python's, the interpreter's loop and calls are not shown.
//!
//! A function that was inlined is a frame of its own where the file has debug information, as the compiler writes it with `-g`.
//!
//! A function without a symbol is named by its file and where its unwind table begins (`libx.so+0x1234`). Code without
//! either is one function, `[unknown]`, of its file; code in no file at all (just in time) has `//anon` as its file, and the
//! names that its runtime writes for perf, if it does.
//!
//! All that comes from the application's processes is checked: records, stacks, and files, which may be damaged,
//! replaced, or gone. What cannot be understood gives unknown names or stacks that are cut off, and is counted.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod events;
mod figures;
mod file;
pub mod foreign;
mod functions;
#[doc(hidden)]
pub mod fuzzing;
mod jit;
mod lines;
mod machine;
mod processes;
mod records;
mod rules;
mod sampler;
mod stack;

pub use events::StacksError;
pub use figures::{CutOff, CutReason, Figures};
pub use functions::{Function, FunctionId};
pub use sampler::{Options, Sampler, Sink};
