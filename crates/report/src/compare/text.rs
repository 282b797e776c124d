//! A comparison as tables, below its verdict. Each group has a column with its mean, and all except the first have one with the
//! change.

use super::figures::By;
use super::statistics::CONFIDENCE;
use super::{About, Comparison, Row, change, line, names, uncertainty, verdict};
use ampere_model::text::{printable, wrapped};
use std::fmt::Write;

const COLUMN: usize = 11;
const CHANGE: usize = 9;
const UNCERTAINTY: usize = 10;
const INDENT: usize = 5;
const NAME_ROOM_MIN: usize = 16;
/// The maximum number of rows of a table, and of rows within noise among them.
const ROWS_MAX: usize = 15;
const WITHIN_NOISE_MAX: usize = 5;

pub fn render(comparison: &Comparison, width: usize) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = head(comparison, width, &mut out);
    let _ = tables(comparison, width, &mut out);
    out
}

/// Writes a text in lines of at most `width` characters; those after the first begin with `INDENT` blanks.
fn paragraph(begin: &str, text: &str, width: usize, out: &mut String) -> std::fmt::Result {
    let begins = std::iter::once(begin.to_owned()).chain(std::iter::repeat(" ".repeat(INDENT)));
    let lines = wrapped(text, width.saturating_sub(INDENT));
    begins.zip(lines).try_for_each(|(begin, line)| writeln!(out, "{begin}{line}"))
}

/// Explains what the printed intervals mean.
pub fn method() -> String {
    format!(
        "±: the {:.0} % interval of a change (Welch). Of the rows that differ, at most {:.0} % do so by chance (Benjamini and Hochberg)",
        100.0 * CONFIDENCE,
        100.0 * (1.0 - CONFIDENCE)
    )
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

fn head(comparison: &Comparison, width: usize, out: &mut String) -> std::fmt::Result {
    let verdicts = verdict::verdicts(comparison);
    for (number, verdict) in (2..).zip(&verdicts) {
        let of = if verdicts.len() > 1 { format!("{number}: ") } else { String::new() };
        paragraph(&of, verdict, width, out)?;
    }
    writeln!(out)?;
    for (number, runs) in (1..).zip(&comparison.groups) {
        for (at, (names, line)) in described(runs).into_iter().enumerate() {
            let number = if at == 0 { format!("{number}") } else { String::new() };
            paragraph(&format!("{number:>3}  "), &format!("{}: {line}", names.join(", ")), width, out)?;
        }
    }
    let indent = " ".repeat(INDENT);
    comparison.notes.iter().try_for_each(|note| paragraph(&indent, note, width, out))?;
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
        method().split_inclusive(". ").try_for_each(|of| paragraph(&indent, of.trim_end(), width, out))?;
    }
    writeln!(out)?;
    let mut columns = Vec::new();
    for number in 1..=comparison.groups.len() {
        columns.push(format!("{number:>COLUMN$}"));
        if number > 1 {
            columns.push(format!("{:>CHANGE$}", "change"));
            if comparison.has_samples() {
                columns.push(" ".repeat(UNCERTAINTY));
            }
        }
    }
    writeln!(out, "{}", columns.concat().trim_end())
}

fn tables(comparison: &Comparison, width: usize, out: &mut String) -> std::fmt::Result {
    let others = comparison.groups.len() - 1;
    let each = COLUMN + CHANGE + if comparison.has_samples() { UNCERTAINTY } else { 0 };
    let room = width.saturating_sub(COLUMN + others * each + 2).max(NAME_ROOM_MIN);
    for by in [By::Run, By::Device, By::Function, By::Kernel, By::CallPath] {
        let ranked = comparison.ranked(by);
        let count = ranked.differ.len() + ranked.within_noise.len();
        // A single device has all joules of its run.
        if count == 0 || (by == By::Device && count == 1) {
            continue;
        }
        if by != By::Run {
            let dynamic = if by.shown(comparison.has_dynamic) > 0 { "dynamic " } else { "" };
            writeln!(out, "\n{dynamic}joules by {}", by.name())?;
        }
        let differ = ranked.differ.iter().take(ROWS_MAX);
        let within_noise_max = if by == By::Run { ROWS_MAX } else { WITHIN_NOISE_MAX };
        let listed: Vec<&Row> =
            differ.clone().chain(ranked.within_noise.iter().take(within_noise_max)).copied().collect();
        let names = names(&listed, room).into_iter().chain(ranked.small.iter().map(|sum| sum.name.clone()));
        let all: Vec<&Row> = listed.iter().copied().chain(&ranked.small).collect();
        let more = count - listed.len();
        for (at, ((row, name), cells)) in all.iter().zip(names).zip(comparison.cells(&all)).enumerate() {
            if at == differ.len() && at < listed.len() {
                writeln!(out, "  within noise:")?;
            }
            if at == listed.len() && more > 0 {
                writeln!(out, "  and {more} more: -f csv and -f json have all")?;
            }
            line_of(comparison, row, (&name, &cells), out)?;
        }
        if ranked.small.is_none() && more > 0 {
            writeln!(out, "  and {more} more: -f csv and -f json have all")?;
        }
    }
    Ok(())
}

fn line_of(
    comparison: &Comparison,
    row: &Row,
    (name, cells): (&str, &[(String, String)]),
    out: &mut String,
) -> std::fmt::Result {
    let first = &row.groups[0];
    for (at, (group, (mean, _))) in row.groups.iter().zip(cells).enumerate() {
        write!(out, "{mean:>COLUMN$}")?;
        let Some(difference) = at.checked_sub(1).map(|at| &row.differences[at]) else { continue };
        write!(out, "{:>CHANGE$}", change(first.mean, group.mean))?;
        if comparison.has_samples() {
            write!(out, "{:>UNCERTAINTY$}", uncertainty(first, difference))?;
        }
    }
    writeln!(out, "  {name}")
}
