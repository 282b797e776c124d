//! Writes `summary.json`, with each field of an object on a line of its own, and each list of numbers or texts on one line.

use ampere_figures::summary::Summary;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Read, Seek, SeekFrom, Write};

/// The start of the part that stays the same while nothing more is attributed.
const TABLES: &[u8] = b"\n  \"topology\": ";
/// The maximum size of the description of the run, which is in front of that part.
const HEAD_MAX: u64 = 16 << 20;

/// Writes a summary without holding its text in memory.
///
/// # Errors
/// The error of `out`.
pub fn write(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    summary.serialize(&mut Serializer::with_formatter(&mut *out, Lines::default()))?;
    out.write_all(b"\n")
}

/// Writes a summary whose tables are copied from an earlier one of the same run, because they take 90 MB with a million call
/// paths.
///
/// # Errors
/// An error of reading or writing, or `InvalidData` if there are no tables.
pub fn write_with_tables_of(
    earlier: &mut (impl Read + Seek),
    out: &mut dyn Write,
    summary: &Summary,
) -> io::Result<()> {
    let (run, quality) = (summary.run.clone(), summary.quality);
    let (schema, overhead) = (summary.schema.clone(), summary.overhead.clone());
    let (topology, names, paths, devices, lanes, events) = Default::default();
    let head =
        text(&Summary { schema, run, quality, overhead, topology, names, paths, devices, lanes, events });
    let mut before = Vec::new();
    earlier.by_ref().take(HEAD_MAX).read_to_end(&mut before)?;
    let tables = |text: &[u8]| text.windows(TABLES.len()).position(|part| part == TABLES);
    let (Some(end), Some(begin)) = (tables(&head), tables(&before)) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    out.write_all(&head[..end])?;
    earlier.seek(SeekFrom::Start(begin as u64))?;
    io::copy(earlier, out).map(|_| ())
}

pub fn text(summary: &Summary) -> Vec<u8> {
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = write(&mut text, summary);
    text
}

#[derive(Default)]
struct Lines {
    depth: usize,
    is_empty: bool,
}

impl Lines {
    fn line<W: ?Sized + Write>(&self, out: &mut W) -> io::Result<()> {
        out.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| out.write_all(b"  "))
    }
}

impl Formatter for Lines {
    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        (self.depth, self.is_empty) = (self.depth + 1, true);
        out.write_all(b"{")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.is_empty = false;
        if !first {
            out.write_all(b",")?;
        }
        self.line(out)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if !std::mem::take(&mut self.is_empty) {
            self.line(out)?;
        }
        out.write_all(b"}")
    }
}
