//! Keeps our work inside another program from changing what that program sees: errno, the signal mask, the cancellation state,
//! and the descriptors and signal dispositions that our collector inherits.
//!
//! ```text
//! thread_state.rs    preserves errno and the cancellation state: `preserving_thread_state`
//! write_signals.rs   a failed write raises no SIGPIPE and no SIGXFSZ: `without_write_signals`
//! stack.rs           a thread's stack address, and whether it is on an alternate stack
//! standard_error.rs  writes a line to the user, but never into a file of the program: `write_line`
//! cpu_time.rs        the CPU time of ended children
//! reserve.rs         memory for work in progress when the program's memory runs out: `Reserve`
//! inherited.rs       drops descriptors and signal settings that our own process has inherited
//! termination.rs     lets our own process end properly when a signal asks it to
//! ```

mod cpu_time;
mod inherited;
mod reserve;
mod stack;
mod standard_error;
mod termination;
mod thread_state;
mod write_signals;

pub use cpu_time::cpu_time_of_ended_children;
pub use inherited::close_inherited_fds_and_reset_signals;
pub use reserve::Reserve;
pub use stack::{is_on_alternate_stack, stack_address};
pub use standard_error::{remember_standard_error, write_line};
pub use termination::asked_to_end;
pub use thread_state::{preserving_thread_state, sleep};
pub use write_signals::without_write_signals;
