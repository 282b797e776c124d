//! Output on standard error and standard output, and paths of the command line.

use anyhow::Context;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::{Path, PathBuf};

/// As `eprintln!`, which panics where standard error is closed or full: that must not take the command with it. The line is written
/// at once: the command's lines do not come in between.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = std::io::stderr().write_all(format!("{}\n", format_args!($($words)*)).as_bytes());
    }};
}

/// A path of the command line or the environment. An empty one, as from `AMPERE_OUTPUT=$UNSET`, counts as none: see [`given`].
pub fn path_parser() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// The path, unless it is empty.
pub fn given(path: &Option<PathBuf>) -> Option<&Path> {
    path.as_deref().filter(|path| !path.as_os_str().is_empty())
}

/// Whether a write failed because the reader has closed the pipe: it has seen enough, which is no failure.
pub fn is_closed_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Writes to standard output, whose own buffer is flushed at every line end: a summary may have a million lines. `what` is
/// for the error's message.
pub fn print(
    what: &str,
    write: impl FnOnce(&mut BufWriter<StdoutLock>) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if !is_closed_pipe(&error) => Err(error).context(format!("cannot print {what}")),
        _ => Ok(()),
    }
}
