//! Keeps our work inside another program from changing what that program sees: errno, the signal mask, the cancellation state,
//! and the descriptors and signal dispositions that our own processes inherit.
//!
//! ```text
//! thread_state.rs    errno and the cancellation state stay as they were: `preserving_thread_state`
//! write_signals.rs   a failed write raises no SIGPIPE and no SIGXFSZ: `without_write_signals`
//! stack.rs           a thread's stack address, and whether it is on an alternate stack
//! standard_error.rs  a line to the user does not end up in a file of the program: `write_line`
//! children.rs        a command that we start ignores the signals that we were started to ignore, and can be waited for
//! cpu_time.rs        the CPU time that such commands have used
//! reserve.rs         memory for work that is under way when the program's memory runs out: `Reserve`
//! inherited.rs       our own process drops what it inherited from the program that started it
//! ```

mod children;
mod cpu_time;
mod inherited;
mod reserve;
mod stack;
mod standard_error;
mod thread_state;
mod write_signals;

pub use children::{remember_ignored_signals, restore_ignored_signals_in};
pub use cpu_time::cpu_time_of_ended_children;
pub use inherited::close_inherited_fds_and_reset_signals;
pub use reserve::Reserve;
pub use stack::{is_on_alternate_stack, stack_address};
pub use standard_error::{remember_standard_error, write_line};
pub use thread_state::{preserving_thread_state, sleep};
pub use write_signals::without_write_signals;
