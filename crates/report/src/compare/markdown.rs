//! A comparison as Markdown with GitHub's tables, for a comment on a change: the checks and the verdict, the figures of the runs,
//! and the rows that differ most.

use super::check::Finding;
use super::figures::By;
use super::{Comparison, Row, line, programs, shown, text, verdict};
use ampere_model::text::printable;
use std::fmt::Write;

/// The maximum number of rows of a table, except the table of the runs.
const ROWS_MAX: usize = 10;

pub fn render(comparison: &Comparison) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = head(comparison, &mut out);
    let of_runs: Vec<&Row> =
        comparison.rows.iter().filter(|row| row.by == By::Run && !row.is_zero()).collect();
    let _ = table(comparison, &of_runs, "the runs", &mut out);
    for by in By::ALL.into_iter().filter(|by| !matches!(by, By::Run | By::CallPath)) {
        let mut rows = comparison.ranked(by).differ;
        // A single device has all joules of its run.
        if rows.is_empty() || (by == By::Device && comparison.ranked(by).count() == 1) {
            continue;
        }
        rows.truncate(ROWS_MAX);
        let title = format!("{} by {}", by.head(comparison.kind), by.name());
        let _ = table(comparison, &rows, &title, &mut out);
    }
    let _ = foot(comparison, &mut out);
    out
}

fn head(comparison: &Comparison, out: &mut String) -> std::fmt::Result {
    for check in &comparison.checks {
        let mark = match check.finding {
            Finding::Exceeded => "❌",
            Finding::Unknown => "❔",
            Finding::Allowed => "✅",
        };
        writeln!(out, "{mark} **{}**\n", plain(&check.words))?;
    }
    let verdicts = verdict::verdicts(comparison);
    for (number, verdict) in (2..).zip(&verdicts) {
        let of = if verdicts.len() > 1 { format!("{number}: ") } else { String::new() };
        writeln!(out, "{of}{}\n", plain(verdict))?;
    }
    Ok(())
}

fn table(comparison: &Comparison, rows: &[&Row], title: &str, out: &mut String) -> std::fmt::Result {
    write!(out, "| {title} | 1 |")?;
    let others = 1..comparison.groups.len();
    others.clone().try_for_each(|group| write!(out, " {} | change |", group + 1))?;
    writeln!(out, "\n| --- | --: |{}", " --: | --: |".repeat(others.len()))?;
    for (row, cells) in rows.iter().zip(comparison.cells(rows)) {
        let name = if row.by == By::Run { shown(row) } else { code(&shown(row)) };
        write!(out, "| {name} | {} |", plain(&cells[0].0))?;
        for group in others.clone() {
            let range = Some(comparison.range(row, group));
            let range = range.filter(|range| comparison.has_samples() && !range.is_empty());
            let range = range.map_or_else(String::new, |range| format!(" ({range})"));
            let change = comparison.change(row, group) + &range;
            write!(out, " {} | {} |", plain(&cells[group].0), plain(&change))?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

fn foot(comparison: &Comparison, out: &mut String) -> std::fmt::Result {
    for (number, runs) in (1..).zip(&comparison.groups) {
        for run in runs {
            writeln!(out, "- {number}: {} {}", code(&printable(&run.name)), plain(&line(run)))?;
        }
    }
    let notes = comparison.notes.iter().filter(|note| programs::is_needed(note, out)).cloned();
    let method = comparison.has_samples().then(|| text::method(out));
    let notes: Vec<String> = notes.chain(comparison.not_compared()).chain(method).collect();
    notes.into_iter().try_for_each(|note| writeln!(out, "- {}", plain(&printable(&note))))
}

/// Escapes a printable text, so that none of it is markup.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if "\\`*_[]<>|#~&@!".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// Makes a code span of a name, with one backtick more around it than its longest sequence of backticks has.
fn code(name: &str) -> String {
    let longest = name.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest + 1);
    let pad = if name.starts_with('`') || name.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{}{pad}{fence}", name.replace('|', "\\|"))
}
