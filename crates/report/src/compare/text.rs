//! A comparison as tables, below its verdict. Each group has a column with its mean, and all except the first have one with the
//! change. If that leaves too little room for the names, all groups except the first have only the change. If this is too wide as
//! well, the groups are divided among several tables.

use super::figures::By;
use super::statistics::CONFIDENCE;
use super::{
    AT_LEAST, About, Comparison, RANGE_CHARS_MAX, Row, UNBOUNDED, WHY_UNBOUNDED, line, names, programs,
    verdict,
};
use ampere_model::text::{printable, wrapped};
use std::fmt::Write;
use std::ops::Range;

/// Widths in characters.
const COLUMN: usize = 11;
const CHANGE: usize = 9;
const RANGE: usize = RANGE_CHARS_MAX + 1;
const INDENT: usize = 5;
/// The blanks between the last column and the name.
const GAP: usize = 2;
/// Names have at least this room, which is enough for the names of a run's own figures.
const NAME_ROOM_MIN: usize = 24;
/// The maximum number of a table's rows that differ, and of its rows of each other kind, which have no clear difference.
const ROWS_MAX: usize = 15;
const UNCLEAR_MAX: usize = 5;

pub fn render(comparison: &Comparison, width: usize) -> String {
    let (mut out, mut below) = (String::new(), String::new());
    // Writing to a String cannot fail.
    if comparison.groups.len() > 2 && comparison.groups.iter().all(|runs| runs.len() == 1) {
        let words = "To compare groups of runs: ampere compare A1 A2 ... -- B1 B2 ...";
        let _ = paragraph("", words, width, &mut out).and_then(|()| writeln!(out));
    }
    for layout in Layout::all(comparison, width) {
        let _ = columns(comparison, &layout, &mut below);
        let _ = tables(comparison, &layout, &mut below);
    }
    let _ = head(comparison, (&below, width), &mut out);
    out += &below;
    out
}

/// The columns of a table.
struct Layout {
    /// The indices of the groups that are shown after the first group.
    groups: Range<usize>,
    /// Whether only the change of these groups is shown, without their means.
    is_narrow: bool,
    /// The room for names.
    room: usize,
}

impl Layout {
    /// Returns the layouts of the tables that show all groups in this width.
    fn all(comparison: &Comparison, width: usize) -> Vec<Layout> {
        let count = comparison.groups.len();
        let narrow = CHANGE + if comparison.has_samples() { RANGE } else { 0 };
        let left = width.saturating_sub(COLUMN + GAP);
        let is_narrow = (count - 1) * (COLUMN + narrow) + NAME_ROOM_MIN > left;
        let each = if is_narrow { narrow } else { COLUMN + narrow };
        let fitting = (left.saturating_sub(NAME_ROOM_MIN) / each).max(1);
        let in_a_table = (count - 1).div_ceil((count - 1).div_ceil(fitting));
        let layout = |from: usize| {
            let groups = from..count.min(from + in_a_table);
            let room = left.saturating_sub(groups.len() * each).max(NAME_ROOM_MIN);
            Layout { groups, is_narrow, room }
        };
        (1..count).step_by(in_a_table).map(layout).collect()
    }
}

/// Writes a text in lines of at most `width` characters; those after the first begin with `INDENT` blanks.
fn paragraph(begin: &str, text: &str, width: usize, out: &mut String) -> std::fmt::Result {
    let begins = std::iter::once(begin.to_owned()).chain(std::iter::repeat(" ".repeat(INDENT)));
    let lines = wrapped(text, width.saturating_sub(INDENT));
    begins.zip(lines).try_for_each(|(begin, line)| writeln!(out, "{begin}{line}"))
}

/// Explains the printed intervals. `shown` is the text that contains them.
pub fn method(shown: &str) -> String {
    let is_unbounded = [UNBOUNDED, AT_LEAST].iter().any(|words| shown.contains(words));
    let why = if is_unbounded { format!(", without an end if {WHY_UNBOUNDED}") } else { String::new() };
    format!(
        "{}: that of the ratio of the means (Fieller){why}. Of the rows that differ (Welch), at most {:.0} % are expected to do so by chance (Benjamini and Hochberg)",
        range_head(),
        100.0 * (1.0 - CONFIDENCE)
    )
}

/// Returns the head of a column of intervals.
pub fn range_head() -> String {
    format!("{:.0} % range", 100.0 * CONFIDENCE)
}

/// Returns the runs of a group, grouped by their description: their names, and the description.
pub fn described(runs: &[About]) -> Vec<(Vec<String>, String)> {
    let mut all: Vec<(Vec<String>, String)> = Vec::new();
    for run in runs {
        let line = line(run);
        match all.iter_mut().find(|(_, known)| *known == line) {
            Some((names, _)) => names.push(printable(&run.name)),
            None => all.push((vec![printable(&run.name)], line)),
        }
    }
    all
}

/// Writes the part of the text above the tables. `below` is the text of the tables.
fn head(comparison: &Comparison, (below, width): (&str, usize), out: &mut String) -> std::fmt::Result {
    let verdicts = verdict::verdicts(comparison);
    for (number, verdict) in (2..).zip(&verdicts) {
        let label = if verdicts.len() > 1 { format!("{number}: ") } else { String::new() };
        paragraph(&label, verdict, width, out)?;
    }
    writeln!(out)?;
    for (number, runs) in (1..).zip(&comparison.groups) {
        for (at, (names, line)) in described(runs).into_iter().enumerate() {
            let number = if at == 0 { format!("{number}") } else { String::new() };
            paragraph(&format!("{number:>3}  "), &format!("{}: {line}", names.join(", ")), width, out)?;
        }
    }
    let indent = " ".repeat(INDENT);
    let notes = comparison.notes.iter().filter(|note| programs::is_needed(note, below));
    notes.into_iter().try_for_each(|note| paragraph(&indent, note, width, out))?;
    comparison.not_compared().iter().try_for_each(|words| paragraph(&indent, words, width, out))?;
    if comparison.per != super::Per::Run {
        let per = comparison.per.name();
        paragraph(
            &indent,
            &format!("joules, watts, calls and a function's seconds are per {per}"),
            width,
            out,
        )?;
    }
    if comparison.has_samples() {
        method(below)
            .split_inclusive(". ")
            .try_for_each(|of| paragraph(&indent, of.trim_end(), width, out))?;
    }
    if comparison.rows.iter().any(|row| !comparison.is_small(row) && comparison.is_within_sampling_error(row))
    {
        let words = "no clear difference: less than twice the standard error of a sampled function";
        paragraph(&indent, words, width, out)?;
    }
    Ok(())
}

fn columns(comparison: &Comparison, layout: &Layout, out: &mut String) -> std::fmt::Result {
    writeln!(out)?;
    if layout.is_narrow {
        writeln!(out, "{:COLUMN$}{:>CHANGE$}", "", "change of")?;
    }
    let mut line = format!("{:>COLUMN$}", 1);
    for group in layout.groups.clone() {
        if layout.is_narrow {
            write!(line, "{:>CHANGE$}", group + 1)?;
        } else {
            write!(line, "{:>COLUMN$}{:>CHANGE$}", group + 1, "change")?;
        }
        if comparison.has_samples() {
            write!(line, "{:>RANGE$}", range_head())?;
        }
    }
    writeln!(out, "{}", line.trim_end())
}

fn tables<'a>(comparison: &'a Comparison, layout: &Layout, out: &mut String) -> std::fmt::Result {
    for by in By::ALL {
        let ranked = comparison.ranked(by);
        let count = ranked.count();
        // A single device has all joules of its run.
        if count == 0 || (by == By::Device && count == 1) {
            continue;
        }
        if by != By::Run {
            writeln!(out, "\n{} by {}", by.head(comparison.kind), by.name())?;
        }
        let unclear_max = if by == By::Run { ROWS_MAX } else { UNCLEAR_MAX };
        let first = |rows: &[&'a Row], most: usize| rows.iter().take(most).copied().collect::<Vec<_>>();
        let parts = [
            first(&ranked.differ, ROWS_MAX),
            first(&ranked.by_chance, unclear_max),
            first(&ranked.unclear, unclear_max),
        ];
        let [chance_at, unclear_at] = [parts[0].len(), parts[0].len() + parts[1].len()];
        let listed = parts.concat();
        let names = names(&listed, layout.room).into_iter();
        let small = ranked.small.as_ref();
        let names = names.chain(small.map(|(count, _)| comparison.name_of_small(*count, layout.room)));
        let all: Vec<&Row> = listed.iter().copied().chain(small.map(|(_, sum)| sum)).collect();
        let more = count - listed.len();
        for (at, ((row, name), cells)) in all.iter().zip(names).zip(comparison.cells(&all)).enumerate() {
            if at == chance_at && at < unclear_at {
                writeln!(out, "  may differ by chance, because many rows are tested:")?;
            }
            if at == unclear_at && at < listed.len() {
                writeln!(out, "  no clear difference:")?;
            }
            if at == listed.len() && more > 0 {
                writeln!(out, "  and {more} more; -f csv and -f json list all")?;
            }
            if at == listed.len() && comparison.has_samples() {
                writeln!(out, "  not tested:")?;
            }
            line_of(comparison, layout, row, (&name, &cells), out)?;
        }
        if ranked.small.is_none() && more > 0 {
            writeln!(out, "  and {more} more; -f csv and -f json list all")?;
        }
    }
    Ok(())
}

fn line_of(
    comparison: &Comparison,
    layout: &Layout,
    row: &Row,
    (name, cells): (&str, &[(String, String)]),
    out: &mut String,
) -> std::fmt::Result {
    let first = &row.groups[0];
    write!(out, "{:>COLUMN$}", figure(first.mean, &cells[0].0))?;
    for group in layout.groups.clone() {
        if !layout.is_narrow {
            write!(out, "{:>COLUMN$}", figure(row.groups[group].mean, &cells[group].0))?;
        }
        write!(out, "{:>CHANGE$}", comparison.change(row, group))?;
        if comparison.has_samples() {
            write!(out, "{:>RANGE$}", comparison.range(row, group))?;
        }
    }
    writeln!(out, "{:GAP$}{name}", "")
}

/// Returns the text of a figure, or a shorter one if that does not fit into its column.
fn figure(value: f64, text: &str) -> String {
    if text.len() < COLUMN { text.to_owned() } else { format!("{value:.3e}") }
}
