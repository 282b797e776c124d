//! Runs compared: the joules of each, and where they differ. Changes are relative to the first run.

use crate::highlights::Sums;
use crate::summary::Summary;
use ampere_model::text::{joules, printable, short};
use std::collections::BTreeMap;
use std::fmt::Write;

const COLUMN: usize = 14;
const CHANGE: usize = 9;
const LONGEST_NAME: usize = 56;
/// Rows of each table.
const MOST_ROWS: usize = 25;

/// A run with a name.
pub struct Named {
    /// As it was given on the command line.
    pub name: String,
    /// Its figures.
    pub summary: Summary,
}

/// A table of the runs, one column for each.
pub fn render(runs: &[Named]) -> String {
    let mut out = String::new();
    let leads = |run: &Named| run.summary.devices.iter().any(|device| device.other_ranks_lead);
    let sums_of = if runs.iter().all(leads) { Sums::of } else { Sums::by_settings };
    let sums: Vec<Sums> = runs.iter().map(|run| sums_of(&run.summary)).collect();
    let seconds: Vec<f64> = runs.iter().map(|run| run.summary.run.seconds).collect();
    // Writing to a String cannot fail.
    let _ = head(runs, &mut out);
    let each = |figure: fn(&Sums) -> f64| sums.iter().map(figure).collect::<Vec<f64>>();
    let total = each(|sums| sums.joules);
    let watts = total.iter().zip(&seconds).map(|(joules, s)| if *s > 0.0 { joules / s } else { 0.0 });
    let rows = [
        ("seconds", seconds.clone()),
        ("joules", total.clone()),
        ("watts on average", watts.collect()),
        ("idle joules", each(|sums| sums.idle)),
        ("lost joules", each(|sums| sums.lost)),
        ("joules in MPI functions", each(|sums| sums.mpi().map(|row| row.1).sum())),
        ("joules while GPU kernels ran", each(|sums| sums.kernels.iter().map(|row| row.1).sum())),
    ];
    for (name, figures) in rows {
        if figures.iter().any(|figure| *figure != 0.0) {
            let _ = row(&figures, name, &mut out);
        }
    }
    let _ = table("function", &sums.iter().map(|sums| sums.regions.as_slice()).collect::<Vec<_>>(), &mut out);
    let _ =
        table("GPU kernel", &sums.iter().map(|sums| sums.kernels.as_slice()).collect::<Vec<_>>(), &mut out);
    out
}

fn head(runs: &[Named], out: &mut String) -> std::fmt::Result {
    for (number, run) in runs.iter().enumerate() {
        let of = &run.summary.run;
        let quality = of.state_words();
        writeln!(
            out,
            "{:>3}  {}: {} rank{} on {}, {}{quality}{}",
            number + 1,
            printable(&run.name),
            of.ranks,
            if of.ranks == 1 { "" } else { "s" },
            printable(&of.nodes.join(", ")),
            printable(&of.energy),
            if of.command.is_empty() {
                String::new()
            } else {
                format!(": {}", printable(&of.command.join(" ")))
            }
        )?;
    }
    let qualities = |run: &Named| run.summary.run.energy.clone();
    if runs.iter().any(|run| qualities(run) != qualities(&runs[0])) {
        writeln!(out, "     their joules are not of one kind: differences are of the counters, too")?;
    }
    let shared = |run: &Named| {
        let view = run.summary.devices.iter().flat_map(|device| &device.views).next();
        view.map(|view| (view.policy.clone(), view.sharing.clone()))
    };
    let first = runs.iter().find_map(shared);
    if runs.iter().filter_map(shared).any(|policy| Some(policy) != first) {
        writeln!(
            out,
            "     their joules were not shared alike (policy, sharing): differences are of that, too"
        )?;
    }
    writeln!(out)?;
    for number in 1..=runs.len() {
        write!(out, "{number:>COLUMN$}")?;
        if number > 1 {
            write!(out, "{:>CHANGE$}", "change")?;
        }
    }
    writeln!(out)
}

fn row(figures: &[f64], name: &str, out: &mut String) -> std::fmt::Result {
    for (at, figure) in figures.iter().enumerate() {
        write!(out, "{:>COLUMN$}", joules(*figure))?;
        if at > 0 {
            write!(out, "{:>CHANGE$}", change(figures[0], *figure))?;
        }
    }
    writeln!(out, "  {}", short(name, LONGEST_NAME))
}

fn change(from: f64, to: f64) -> String {
    if from == to {
        return "=".to_owned();
    }
    if from <= 0.0 {
        return "new".to_owned();
    }
    let percent = 100.0 * (to - from) / from;
    if percent.abs() < 1000.0 { format!("{percent:+.1} %") } else { format!("x {:.0}", to / from) }
}

/// Joules by name: those first whose difference is the largest.
fn table(what: &str, tables: &[&[(&str, f64)]], out: &mut String) -> std::fmt::Result {
    let mut rows: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (at, table) in tables.iter().enumerate() {
        for (name, joules) in *table {
            rows.entry(name).or_insert_with(|| vec![0.0; tables.len()])[at] = *joules;
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    let spread = |figures: &[f64]| figures.iter().map(|to| (to - figures[0]).abs()).fold(0.0, f64::max);
    let mut rows: Vec<(&str, Vec<f64>)> = rows.into_iter().collect();
    rows.sort_by(|a, b| spread(&b.1).total_cmp(&spread(&a.1)));
    writeln!(out, "\njoules by {what}, those that differ most first")?;
    for (name, figures) in rows.iter().take(MOST_ROWS) {
        row(figures, name, out)?;
    }
    if rows.len() > MOST_ROWS {
        writeln!(out, "  ... and {} more", rows.len() - MOST_ROWS)?;
    }
    Ok(())
}
