//! A line to the user, on standard error. A program may close that, and what it opens next has its number: its data, or a
//! connection. Nothing is written there.

use crate::quietly;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// Device and inode; None if it was closed.
static AT_FIRST: OnceLock<Option<(u64, u64)>> = OnceLock::new();

/// Looks at standard error, for later: as soon as we are there.
pub fn know_standard_error() {
    AT_FIRST.get_or_init(|| standard_error().map(|found| (found.st_dev, found.st_ino)));
}

/// Writes the line in one go, so that lines of several processes do not mix. That it fails is no failure. May be used in a
/// signal handler.
pub fn tell(line: &[u8]) {
    if is_still_there() {
        // SAFETY: a buffer of that length.
        quietly(|| unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) });
    }
}

fn is_still_there() -> bool {
    let Some(at_first) = AT_FIRST.get() else { return true };
    // A terminal or /dev/null in its place is where the program wants such lines.
    standard_error().is_some_and(|now| {
        *at_first == Some((now.st_dev, now.st_ino)) || now.st_mode & libc::S_IFMT == libc::S_IFCHR
    })
}

fn standard_error() -> Option<libc::stat> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the buffer is ours to fill, and is filled where 0 comes back.
    (unsafe { libc::fstat(libc::STDERR_FILENO, found.as_mut_ptr()) } == 0)
        .then(|| unsafe { found.assume_init() })
}
