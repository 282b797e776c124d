//! Output on standard error and standard output, and paths of the command line.

use ampere_model::text::printable_lines;
use ampere_report::first::screen::{Screen, Style, WIDTH, labelled};
use anyhow::Context;
use clap::builder::{OsStringValueParser, TypedValueParser};
use rustix::termios::tcgetwinsize;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Like `eprintln!`, but does not panic if standard error is closed or full, which must not end the command. Characters of names
/// and paths that cannot be printed are replaced. The line is written by one call, so that lines of the command do not break it.
macro_rules! say {
    ($($words:tt)*) => { $crate::terminal::words::eprint_line(&format!($($words)*)) };
}

/// Prints a warning about a trace. On a terminal it takes at most two lines, because a warning may name many metrics; the
/// notes of the summary have the whole text.
pub fn eprint_warning(line: &str) {
    const LINES_MAX: usize = 2;
    const CUT: &str = " …";
    let stderr = io::stderr();
    if !stderr.is_terminal() {
        return say!("ampere: {line}");
    }
    let screen = screen_of(&stderr);
    let lines = labelled(
        "ampere:",
        line,
        Style::Plain,
        Screen { width: screen.width - CUT.chars().count(), ..screen },
    );
    let cut = if lines.len() > LINES_MAX { CUT } else { "" };
    let shown: Vec<String> = lines.into_iter().take(LINES_MAX).map(|line| line.text).collect();
    say!("{}{cut}", shown.join("\n"));
}

/// Prints a line for the macro [`say`].
pub fn eprint_line(line: &str) {
    let _ = io::stderr().write_all(format!("{}\n", printable_lines(line)).as_bytes());
}

/// Returns the size of a stream's terminal, and whether it shows colours. If the stream is not a terminal, the width is that of
/// the variable `COLUMNS`, or else [`WIDTH`].
pub fn screen_of(stream: &(impl AsFd + IsTerminal)) -> Screen {
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    let size = tcgetwinsize(stream).ok();
    let of_terminal = size.as_ref().map(|size| usize::from(size.ws_col));
    let width = of_terminal.filter(|width| *width > 0).or_else(columns).unwrap_or(WIDTH);
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    let screen = Screen::new(width, stream.is_terminal() && !is_set("NO_COLOR") && !is_dumb);
    let rows = size.map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0);
    rows.map_or(screen, |rows| screen.with_rows(rows))
}

/// Prints lines, which must be printable, to standard error in one call, with the colours in them.
pub fn eprint_in_colour(lines: &str) {
    let _ = io::stderr().write_all(lines.as_bytes());
}

/// Parses a path of the command line or the environment. An empty one, as with `AMPERE_OUTPUT=$UNSET`, counts as none: see
/// [`given`].
pub fn path_parser() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Returns the path, unless it is empty.
pub fn given(path: &Option<PathBuf>) -> Option<&Path> {
    path.as_deref().filter(|path| !path.as_os_str().is_empty())
}

/// Whether a write failed because the reader has closed the pipe. That is not a failure, because the reader does not need more.
pub fn is_closed_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Standard output. Only printable text is written to a terminal, because names come from the application or from the author of a
/// summary.
pub enum Output {
    /// The text is written unchanged.
    Plain(StdoutLock<'static>),
    /// A terminal, and the first bytes of a character that is not complete yet.
    Terminal(StdoutLock<'static>, Vec<u8>),
}

impl Output {
    pub fn standard() -> BufWriter<Output> {
        let out = io::stdout();
        let output = match out.is_terminal() {
            true => Output::Terminal(out.lock(), Vec::new()),
            false => Output::Plain(out.lock()),
        };
        BufWriter::with_capacity(1 << 16, output)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Plain(out) => out.write(bytes),
            Output::Terminal(out, rest) => {
                rest.extend_from_slice(bytes);
                let whole = match std::str::from_utf8(rest) {
                    Err(why) if why.error_len().is_none() => why.valid_up_to(),
                    _ => rest.len(),
                };
                let text = printable_lines(&String::from_utf8_lossy(&rest[..whole]));
                rest.drain(..whole);
                out.write_all(text.as_bytes()).map(|()| bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Plain(out) | Output::Terminal(out, _) => out.flush(),
        }
    }
}

/// Writes to standard output through a buffer, because Rust's own buffer is flushed at every end of a line, and a summary may
/// have a million lines. `what` is named in the error.
pub fn print(what: &str, write: impl FnOnce(&mut BufWriter<Output>) -> io::Result<()>) -> anyhow::Result<()> {
    print_to(Output::standard(), what, write)
}

/// Like [`print`], for text that contains colours for a terminal. The caller must have made all names in it printable.
pub fn print_in_colour(
    what: &str,
    write: impl FnOnce(&mut BufWriter<Output>) -> io::Result<()>,
) -> anyhow::Result<()> {
    print_to(BufWriter::with_capacity(1 << 16, Output::Plain(io::stdout().lock())), what, write)
}

fn print_to(
    mut out: BufWriter<Output>,
    what: &str,
    write: impl FnOnce(&mut BufWriter<Output>) -> io::Result<()>,
) -> anyhow::Result<()> {
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if !is_closed_pipe(&error) => Err(error).context(format!("cannot print {what}")),
        _ => Ok(()),
    }
}
