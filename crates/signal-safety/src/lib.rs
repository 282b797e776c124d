//! Work of ours in somebody's program that the program does not notice.
//!
//! ```text
//! calls.rs      errno stays, and no thread is unwound through frames of ours: `unnoticed`
//! writing.rs    nobody is killed for what we write: `quietly`
//! stack.rs      where on which stack a thread is
//! telling.rs    a line to the user does not end up in a file of the program's: `tell`
//! children.rs   children can be waited for, whatever whoever started us thinks of his: `keep_children`
//! inherited.rs  a process of ours has nothing of the program's that started it
//! ```

mod calls;
mod children;
pub mod inherited;
mod stack;
mod telling;
mod writing;

pub use calls::{sleep, unnoticed};
pub use children::{as_we_were_started, keep_children};
pub use stack::{is_on_alternate_stack, stack_address};
pub use telling::{know_standard_error, tell};
pub use writing::quietly;
