//! Lines on standard error, and what is in them.

use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::{Path, PathBuf};

/// As `eprintln!`, which panics where standard error is closed or full: that must not take the command with it.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

/// The error with its causes, on one line. A cause that its error has named already is left out.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let words = cause.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ");
        if !line.contains(&words) {
            let separator = if line.is_empty() { "" } else { ": " };
            line = format!("{line}{separator}{words}");
        }
    }
    line
}

/// A path of the command line or the environment. An empty one, as from `AMPERE_OUTPUT=$UNSET`, is none: see [`given`].
pub fn path_parser() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

pub fn given(path: &Option<PathBuf>) -> Option<&Path> {
    path.as_deref().filter(|path| !path.as_os_str().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn causes_are_named_once() {
        let inner: Result<(), _> = Err(std::io::Error::other("no room"));
        let error = inner.context("cannot write /x: no room").context("cannot go on").unwrap_err();
        assert_eq!(one_line(&error), "cannot go on: cannot write /x: no room");
        assert_eq!(one_line(&anyhow::anyhow!("two\n  lines")), "two lines");
    }
}
