//! Writes lines to the user on standard error. A program may close standard error. The next file that it opens, data or a
//! connection, then gets the same descriptor, and we must not write to it.

use crate::without_write_signals;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// Device and inode of standard error at the start; `None` if it was closed.
static AT_START: OnceLock<Option<(u64, u64)>> = OnceLock::new();

/// Remembers which file standard error is. This must be called as early as possible.
pub fn remember_standard_error() {
    AT_START.get_or_init(|| standard_error().map(|found| (found.st_dev, found.st_ino)));
}

/// Writes a line with one call, so that lines of several processes do not mix, unless standard error is another file by now. A
/// failed write is ignored. Async-signal-safe.
pub fn write_line(line: &[u8]) {
    if is_unchanged() {
        // SAFETY: a buffer of that length.
        without_write_signals(|| unsafe {
            libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len())
        });
    }
}

fn is_unchanged() -> bool {
    let Some(at_start) = AT_START.get() else { return true };
    // A program that replaces standard error by a terminal or /dev/null wants these lines to go there.
    standard_error().is_some_and(|now| {
        *at_start == Some((now.st_dev, now.st_ino)) || now.st_mode & libc::S_IFMT == libc::S_IFCHR
    })
}

fn standard_error() -> Option<libc::stat> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the structure is filled if 0 is returned.
    (unsafe { libc::fstat(libc::STDERR_FILENO, found.as_mut_ptr()) } == 0)
        .then(|| unsafe { found.assume_init() })
}
