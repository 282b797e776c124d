//! `make soak`: what takes too long for `make test`. Hundreds of short MPI runs, killed and robbed at random moments, and a
//! day's events through one collector. One table of what was counted in this run, and below it what is on record of the fuzz
//! targets, which are not run here; the same as JSON in `target/soak.json`. The exit status is 1 if anything that was counted was not
//! as it has to be.
//!
//! With arguments: only the rows of these names (`kills`, `takeover`, `faults`, `fuzz`, `day`).
//!
//! | variable | meaning |
//! | --- | --- |
//! | `SOAK_ROUNDS` | rounds of each kind; default 500 |
//! | `SOAK_SEED` | what is random comes from this; default: from the clock, and printed. The seed of a round that fails is printed with it, and `SOAK_ROUNDS=1 SOAK_SEED=...` repeats that round |
//! | `SOAK_DAY_SECONDS` | how long the day is, in simulated seconds; default 86400 |
//! | `SOAK_DAY_RATE` | events per simulated second; default 20000 |
#![forbid(unsafe_code)]

mod day;
mod faults;
mod fuzz;
mod kills;
mod random;
mod run;
mod takeover;

use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// One line of the table.
pub struct Row {
    pub what: String,
    pub found: String,
    pub good: bool,
    pub details: Value,
}

pub struct Settings {
    pub rounds: u64,
    pub seed: u64,
    pub day_seconds: u64,
    pub day_rate: u64,
}

/// What all rounds have counted together.
#[derive(Default)]
pub struct Tally {
    /// Calls that had come back before the kill and are not in the results.
    pub missing: u64,
    /// Runs whose application was slowed, blocked or failed by what was not its own.
    pub disturbed: u64,
}

fn number<T: std::str::FromStr>(name: &str, default: T) -> T {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| {
            eprintln!("{name}={text:?} is no number");
            std::process::exit(2)
        }),
        Err(_) => default,
    }
}

/// Where the JSON goes.
fn target() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    // target/release/ampere-soak
    program.ancestors().nth(2).map_or_else(|| "target".into(), PathBuf::from)
}

fn main() -> ExitCode {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let settings = Settings {
        rounds: number("SOAK_ROUNDS", 500),
        seed: number("SOAK_SEED", clock.as_nanos() as u64),
        day_seconds: number("SOAK_DAY_SECONDS", 86_400),
        day_rate: number("SOAK_DAY_RATE", 20_000),
    };
    println!("SOAK_SEED={} SOAK_ROUNDS={}", settings.seed, settings.rounds);
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    let mut tally = Tally::default();
    let mut rows = Vec::new();
    let mut has_runs = false;
    type Rounds = fn(&Settings, &mut Tally) -> Result<Row, String>;
    let kinds: [(&str, Rounds); 3] =
        [("kills", kills::rounds), ("takeover", takeover::rounds), ("faults", faults::rounds)];
    for (name, rounds) in kinds.into_iter().filter(|(name, _)| is_wanted(name)) {
        match rounds(&settings, &mut tally) {
            Ok(row) => {
                has_runs = true;
                rows.push(row);
            }
            Err(why) => rows.push(skipped(name, &why)),
        }
    }
    if has_runs {
        let count = |what: &str, count: u64| Row {
            what: what.to_owned(),
            found: count.to_string(),
            good: count == 0,
            details: json!({ "count": count }),
        };
        rows.push(count("events published before the kill that are missing afterwards", tally.missing));
        rows.push(count("application slowed, blocked or failed by any fault above", tally.disturbed));
    }
    if is_wanted("day") {
        rows.push(day::row(&settings).unwrap_or_else(|why| failed("day", &why)));
    }
    print(&rows);
    let record = is_wanted("fuzz").then(fuzz::record);
    if let Some(record) = &record {
        println!("\non record, not run now: {}", record.sentence);
    }
    let rows_json: Vec<Value> = rows
        .iter()
        .map(|row| json!({"what": row.what, "found": row.found, "good": row.good, "details": row.details}))
        .collect();
    let text = json!({"seed": settings.seed, "rounds": settings.rounds, "rows": rows_json,
                      "record": record.map(|record| record.details)});
    let path = target().join("soak.json");
    match std::fs::write(&path, format!("{text:#}\n")) {
        Ok(()) => println!("\n{}", path.display()),
        Err(why) => eprintln!("cannot write {}: {why}", path.display()),
    }
    if rows.iter().all(|row| row.good) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn skipped(name: &str, why: &str) -> Row {
    let what = name.to_owned();
    Row { what, found: format!("skipped: {why}"), good: true, details: json!({ "skipped": why }) }
}

fn failed(name: &str, why: &str) -> Row {
    Row {
        what: name.to_owned(),
        found: format!("failed: {why}"),
        good: false,
        details: json!({ "failed": why }),
    }
}

fn print(rows: &[Row]) {
    let width = rows.iter().map(|row| row.what.len()).max().unwrap_or(0);
    println!("\ncounted in this run:");
    for row in rows {
        let mark = if row.good { "ok    " } else { "FAILED" };
        println!("| {mark} | {:<width$} | {} |", row.what, row.found);
    }
}
