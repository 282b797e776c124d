//! Work of ours in somebody's program that the program does not notice.
//!
//! ```text
//! calls.rs      errno stays, and no thread is unwound through frames of ours: `unnoticed`
//! writing.rs    nobody is killed for what we write: `quietly`
//! stack.rs      where on which stack a thread is
//! inherited.rs  a process of ours has nothing of the program's that started it
//! ```

mod calls;
pub mod inherited;
mod stack;
mod writing;

pub use calls::{sleep, unnoticed};
pub use stack::{is_on_alternate_stack, stack_address};
pub use writing::quietly;
