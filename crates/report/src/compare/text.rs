//! A comparison as tables. Single runs have a column each; two groups are shown by their means and what is known of the
//! difference.

use super::figures::By;
use super::statistics::CONFIDENCE;
use super::{Comparison, Row, change, interval, left_out, line, shown, title};
use ampere_model::text::joules;
use std::fmt::Write;

const COLUMN: usize = 14;
const DEVIATION: usize = 11;
const CHANGE: usize = 9;
const INTERVAL: usize = 22;
const VERDICT: usize = 14;
/// The maximum number of rows of a table.
const ROWS_MAX: usize = 25;

pub fn render(comparison: &Comparison) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = head(comparison, &mut out);
    let _ = tables(comparison, &mut out);
    out
}

/// Explains what the printed intervals mean.
pub fn method() -> String {
    format!(
        "differences are of the means, with their {:.0} % intervals by Welch's t-test; \"within noise\": no difference is one of the \
         likely ones. Of 100 rows without a difference some {:.0} are beyond the noise by chance",
        100.0 * CONFIDENCE,
        100.0 * (1.0 - CONFIDENCE)
    )
}

fn head(comparison: &Comparison, out: &mut String) -> std::fmt::Result {
    for (number, runs) in comparison.groups.iter().enumerate() {
        for (at, run) in runs.iter().enumerate() {
            let number = if at == 0 { (number + 1).to_string() } else { String::new() };
            writeln!(out, "{number:>3}  {}", line(run))?;
        }
    }
    comparison.notes.iter().try_for_each(|note| writeln!(out, "     {note}"))?;
    if comparison.per != super::Per::Run {
        let per = comparison.per.name();
        writeln!(out, "     joules, watts, calls and a function's seconds are per {per}")?;
    }
    if comparison.has_samples() {
        writeln!(out, "     {}", method())?;
    }
    writeln!(out)?;
    let mut columns = Vec::new();
    for number in 1..=comparison.groups.len() {
        columns.push(format!("{number:>COLUMN$}"));
        if comparison.has_samples() {
            columns.push(format!("{:>DEVIATION$}", "deviation"));
        }
        if number > 1 {
            columns.push(format!("{:>CHANGE$}", "change"));
            if comparison.has_samples() {
                columns.push(format!("{:>INTERVAL$}{:>VERDICT$}", "interval", ""));
            }
        }
    }
    writeln!(out, "{}", columns.concat().trim_end())
}

fn tables(comparison: &Comparison, out: &mut String) -> std::fmt::Result {
    for row in comparison.rows.iter().filter(|row| row.by == By::Run) {
        if !row.is_nothing() {
            line_of(comparison, row, out)?;
        }
    }
    for by in [By::Device, By::Function, By::Kernel, By::CallPath] {
        let (rows, nothing) = comparison.sorted(by);
        if rows.len() + nothing == 0 {
            continue;
        }
        writeln!(out, "\n{}", title(by, comparison.has_dynamic))?;
        rows.iter().take(ROWS_MAX).try_for_each(|row| line_of(comparison, row, out))?;
        if let Some(words) = left_out(rows.len().saturating_sub(ROWS_MAX), nothing) {
            writeln!(out, "  ... {words}")?;
        }
    }
    Ok(())
}

fn line_of(comparison: &Comparison, row: &Row, out: &mut String) -> std::fmt::Result {
    let has_samples = comparison.has_samples();
    let first = &row.groups[0];
    for (at, group) in row.groups.iter().enumerate() {
        write!(out, "{:>COLUMN$}", joules(group.mean))?;
        if has_samples {
            let deviation = group.deviation.map_or_else(|| "?".to_owned(), joules);
            write!(out, "{:>DEVIATION$}", format!("± {deviation}"))?;
        }
        let Some(difference) = at.checked_sub(1).map(|at| &row.differences[at]) else { continue };
        write!(out, "{:>CHANGE$}", change(first.mean, group.mean))?;
        if has_samples {
            let verdict = if difference.is_within_noise() == Some(true) { "within noise" } else { "" };
            write!(out, "{:>INTERVAL$}{verdict:>VERDICT$}", interval(first, difference))?;
        }
    }
    writeln!(out, "  {}", shown(row))
}
