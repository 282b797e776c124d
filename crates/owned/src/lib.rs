//! What ampere does to the files of runs: it makes, replaces, moves and removes them only in directories that it has opened, that
//! are real directories, and that belong to its own user. Each call opens the directory that the file is in, looks at its owner,
//! and then names the file relative to that descriptor, without following a link: whoever may rename things above or in the
//! directory cannot lead the call to another file.
//!
//! Everything else is only read ([`read`]): regular files, up to a limit of bytes.
//!
//! ```text
//! directory.rs   opening a directory, and what is done in it     held.rs   directories that stay the same while a run lasts
//! files.rs       the same by path                                 read.rs   reading what anybody may have written
//! ```
//!
//! A path may lead through links of the own user and of root. A link of anybody else is refused where something is to be done,
//! and followed where something is only read.

#![forbid(unsafe_code)]

mod directory;
mod files;
mod held;
mod read;

pub use directory::Directory;
pub use files::{
    create, limit_mode, make, make_all, make_private, move_new, open_or_create, open_own, put,
    remove_directory, remove_file, remove_flat, remove_left, remove_tree, rename, replace, replace_named,
    symlink,
};
pub use held::{Held, hold, hold_anew};
pub use read::{read, read_beginning};

use std::io;
use std::path::{Path, PathBuf};

/// The mode of directories for results.
pub const DIRECTORY_MODE: u32 = 0o755;
/// The same where the group may write, too.
pub const GROUP_DIRECTORY_MODE: u32 = 0o775;
/// The mode of files and directories for this user alone.
pub const PRIVATE_MODE: u32 = 0o700;

/// Why nothing is done in a place; it is in the [`io::Error`] ([`refusal`]).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The directory is another user's.
    #[error("{} belongs to another user ({owner})", path.display())]
    OfAnother {
        /// The directory.
        path: PathBuf,
        /// Its owner's number.
        owner: u32,
    },
    /// The path leads through a link that another user may change at any moment.
    #[error("{} leads through a link of another user ({owner}): name the directory itself", path.display())]
    LinkOfAnother {
        /// The whole path.
        path: PathBuf,
        /// The link's owner's number.
        owner: u32,
    },
    /// Others may write into a directory that is for this user alone.
    #[error("{} may be written to by others (mode {mode:o})", path.display())]
    OpenToOthers {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is a pipe, a device, a directory or a socket.
    #[error("{} is no regular file", .0.display())]
    NoRegularFile(PathBuf),
    /// It has more bytes than such a file can have.
    #[error("{} has more than {most} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        most: u64,
    },
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, refusal)
    }
}

/// The refusal in an error, if it is one.
pub fn refusal(error: &io::Error) -> Option<&Refusal> {
    error.get_ref()?.downcast_ref()
}

/// The owner of a directory of another user; `None` if it is this user's or cannot be looked at.
pub fn other_owner(directory: &Path) -> Option<u32> {
    let found = rustix::fs::stat(directory).ok()?;
    (found.st_uid != own_user()).then_some(found.st_uid)
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}
