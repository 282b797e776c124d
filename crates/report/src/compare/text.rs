//! A comparison as tables, below its verdict. Each group has a column with its mean, and all except the first have one with the
//! change.

use super::figures::By;
use super::statistics::CONFIDENCE;
use super::{About, Comparison, Row, change, line, shown, uncertainty, verdict};
use ampere_model::text::{joules, printable};
use std::fmt::Write;

const COLUMN: usize = 11;
const CHANGE: usize = 9;
const UNCERTAINTY: usize = 10;
/// The maximum number of rows of a table, and of rows within noise among them.
const ROWS_MAX: usize = 15;
const WITHIN_NOISE_MAX: usize = 5;

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

fn head(comparison: &Comparison, out: &mut String) -> std::fmt::Result {
    let verdicts = verdict::verdicts(comparison);
    for (number, verdict) in (2..).zip(&verdicts) {
        let of = if verdicts.len() > 1 { format!("{number}: ") } else { String::new() };
        writeln!(out, "{of}{verdict}")?;
    }
    writeln!(out)?;
    for (number, runs) in (1..).zip(&comparison.groups) {
        for (at, (names, line)) in described(runs).into_iter().enumerate() {
            let number = if at == 0 { format!("{number}") } else { String::new() };
            writeln!(out, "{number:>3}  {}: {line}", names.join(", "))?;
        }
    }
    comparison.notes.iter().try_for_each(|note| writeln!(out, "     {note}"))?;
    if comparison.per != super::Per::Run {
        let per = comparison.per.name();
        writeln!(out, "     joules, watts, calls and a function's seconds are per {per}")?;
    }
    if comparison.has_samples() {
        writeln!(out, "     {}", method().replace(". ", ".\n     "))?;
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

fn tables(comparison: &Comparison, out: &mut String) -> std::fmt::Result {
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
        differ.clone().try_for_each(|row| line_of(comparison, row, out))?;
        let within_noise_max = if by == By::Run { ROWS_MAX } else { WITHIN_NOISE_MAX };
        let within_noise = ranked.within_noise.iter().take(within_noise_max);
        if within_noise.len() > 0 {
            writeln!(out, "  within noise:")?;
        }
        within_noise.clone().try_for_each(|row| line_of(comparison, row, out))?;
        let more = count - differ.len() - within_noise.len();
        if more > 0 {
            writeln!(out, "  and {more} more: -f csv and -f json have all")?;
        }
        if let Some(sum) = &ranked.small {
            line_of(comparison, sum, out)?;
        }
    }
    Ok(())
}

fn line_of(comparison: &Comparison, row: &Row, out: &mut String) -> std::fmt::Result {
    let first = &row.groups[0];
    for (at, group) in row.groups.iter().enumerate() {
        write!(out, "{:>COLUMN$}", joules(group.mean))?;
        let Some(difference) = at.checked_sub(1).map(|at| &row.differences[at]) else { continue };
        write!(out, "{:>CHANGE$}", change(first.mean, group.mean))?;
        if comparison.has_samples() {
            write!(out, "{:>UNCERTAINTY$}", uncertainty(first, difference))?;
        }
    }
    writeln!(out, "  {}", shown(row))
}
