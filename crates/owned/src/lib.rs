//! Acts on the files of runs. ampere makes, replaces, moves and removes them only in directories that it has opened, that are
//! real directories, and that belong to the user who runs it. Each call opens the directory that contains the file, checks its
//! owner, and then names the file relative to that descriptor, without following a link: so other users who may rename entries in
//! or above the directory cannot redirect the call to another file.
//!
//! Everything else is only read ([`read`]): regular files, up to a limit of bytes.
//!
//! ```text
//! directory.rs  an open directory, and the actions in it
//! held.rs       directories that stay the same during a run
//! files.rs      actions by path
//! read.rs       reads files of any user
//! ```
//!
//! A path may lead through links of this user and of root. A link of another user is refused for actions, and followed for
//! reading.

#![forbid(unsafe_code)]

mod directory;
mod files;
mod held;
mod read;

pub use directory::{Directory, hold, hold_anew};
pub use files::{
    create, is_without_rename, limit_mode, make, make_all, make_private, move_new, open_or_create, open_own,
    put, remove_directory, remove_file, remove_flat, remove_left, remove_tree, rename, replace,
    replace_named, symlink,
};
pub use held::Held;
pub use read::{read, read_beginning};

use std::io;
use std::path::{Path, PathBuf};

/// The mode of directories for results.
pub const DIRECTORY_MODE: u32 = 0o755;
/// The mode of directories for results that the group may write to.
pub const GROUP_DIRECTORY_MODE: u32 = 0o775;
/// The mode of files and directories for this user alone.
pub const PRIVATE_MODE: u32 = 0o700;

/// The reason why an action is refused. It is inside an [`io::Error`] ([`refusal`]).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The directory belongs to another user.
    #[error("{} belongs to another user ({owner})", path.display())]
    OfAnother { path: PathBuf, owner: u32 },
    /// The path leads through a link that another user may change at any moment.
    #[error("{} leads through a link of another user ({owner}): name the directory itself", path.display())]
    LinkOfAnother { path: PathBuf, owner: u32 },
    /// Others may write into a directory that is for this user alone.
    #[error("{} may be written to by others (mode {mode:o})", path.display())]
    OpenToOthers { path: PathBuf, mode: u32 },
    /// The file is a pipe, a device, a directory or a socket.
    #[error("{} is not a regular file", .0.display())]
    NoRegularFile(PathBuf),
    /// The file is larger than the limit.
    #[error("{} has more than {bytes_max} bytes", path.display())]
    TooLarge { path: PathBuf, bytes_max: u64 },
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, refusal)
    }
}

/// Returns the refusal in an error, if it is one.
pub fn refusal(error: &io::Error) -> Option<&Refusal> {
    error.get_ref()?.downcast_ref()
}

/// Returns the owner of a directory of another user; `None` if it belongs to this user or cannot be read.
pub fn other_owner(directory: &Path) -> Option<u32> {
    let found = rustix::fs::stat(directory).ok()?;
    (found.st_uid != own_user()).then_some(found.st_uid)
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}
