//! A comparison for other programs: all figures of all groups.

use super::statistics::{CONFIDENCE, Difference, Sample, ratio};
use super::{Comparison, Row};
use serde_json::{Value, json};

/// The value of the key `schema`.
const SCHEMA: &str = "ampere-comparison/1";

const COLUMNS: [&str; 16] = [
    "by",
    "name",
    "figure",
    "group",
    "runs",
    "mean",
    "deviation",
    "difference",
    "low",
    "high",
    "within_noise",
    "p",
    "adjusted_p",
    "significant",
    "ratio_low",
    "ratio_high",
];

pub fn csv(comparison: &Comparison) -> Vec<u8> {
    let mut out = ::csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = out.write_record(COLUMNS);
    for row in &comparison.rows {
        for (at, group) in row.groups.iter().enumerate() {
            let _ = out.write_record(record(row, at, group));
        }
    }
    out.into_inner().unwrap_or_default()
}

fn record(row: &Row, at: usize, group: &Sample) -> [String; COLUMNS.len()] {
    let difference = at.checked_sub(1).map(|at| &row.differences[at]);
    let interval = difference.and_then(|difference| difference.interval);
    let ratio = at.checked_sub(1).and_then(|_| ratio(&row.groups[0], group));
    let word = |is: Option<bool>| is.map_or_else(String::new, |is| is.to_string());
    let number = |figure: Option<f64>| figure.map_or_else(String::new, |figure| figure.to_string());
    [
        row.by.name().to_owned(),
        row.name.clone(),
        row.figure().to_owned(),
        (at + 1).to_string(),
        group.values.len().to_string(),
        group.mean.to_string(),
        number(group.deviation),
        number(difference.map(|difference| difference.of_means)),
        number(interval.map(|interval| interval.0)),
        number(interval.map(|interval| interval.1)),
        word(difference.and_then(Difference::is_within_noise)),
        number(difference.and_then(|difference| difference.p)),
        number(difference.and_then(|difference| difference.adjusted_p)),
        word(difference.and_then(Difference::is_significant)),
        number(ratio.map(|ratio| ratio.0)),
        number(ratio.map(|ratio| ratio.1)),
    ]
}

pub fn json(comparison: &Comparison) -> Vec<u8> {
    let runs = |runs: &Vec<super::About>| -> Value {
        let run = |about: &super::About| {
            let run = &about.run;
            json!({
                "name": about.name, "id": run.id, "command": run.command, "ranks": run.ranks, "nodes": run.nodes,
                "energy": run.energy, "complete": run.complete,
            })
        };
        runs.iter().map(run).collect()
    };
    let row = |row: &Row| {
        let group = |group: &Sample| json!({"values": group.values, "mean": group.mean, "deviation": group.deviation});
        let difference = |(difference, group): (&Difference, &Sample)| {
            // An infinite end is null.
            let (ratio_low, ratio_high) = ratio(&row.groups[0], group).unzip();
            json!({
                "difference": difference.of_means, "low": difference.interval.map(|interval| interval.0),
                "high": difference.interval.map(|interval| interval.1), "within_noise": difference.is_within_noise(),
                "p": difference.p, "adjusted_p": difference.adjusted_p, "significant": difference.is_significant(),
                "ratio_low": ratio_low, "ratio_high": ratio_high,
            })
        };
        json!({
            "by": row.by.name(), "name": row.name, "figure": row.figure(),
            "groups": row.groups.iter().map(group).collect::<Vec<_>>(),
            "differences": row.differences.iter().zip(&row.groups[1..]).map(difference).collect::<Vec<_>>(),
        })
    };
    let check = |check: &super::Checked| {
        json!({
            "figure": check.figure, "allowed_percent": check.allowed_percent, "finding": check.finding.name(),
            "words": check.words,
        })
    };
    let head = json!({
        "schema": SCHEMA, "per": comparison.per.name(), "method": "Welch's t", "confidence": CONFIDENCE,
        "correction": "Benjamini-Hochberg", "verdict": super::verdict::verdicts(comparison),
        "groups": comparison.groups.iter().map(runs).collect::<Vec<_>>(), "notes": comparison.notes,
        "checks": comparison.checks.iter().map(check).collect::<Vec<_>>(),
    });
    // Rows are made one at a time, because with a million call paths they need more memory than the figures.
    let mut text = head.to_string();
    text.truncate(text.len() - 1);
    text.push_str(",\"rows\":[");
    for (at, of) in comparison.rows.iter().enumerate() {
        text.push_str(if at > 0 { ",\n" } else { "\n" });
        text.push_str(&row(of).to_string());
    }
    text.push_str("]}\n");
    text.into_bytes()
}
