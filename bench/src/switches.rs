//! Measures the cost of the kernel's records of context switches: in a program whose threads are switched often, in the
//! collector that reads the records, and in the trace.

use crate::{Figure, child, least, median, medians};
use anyhow::Context;
use otf2::Trace;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const REPETITIONS: usize = 13;
/// The CPU time of a round of the program. A round has two context switches, which makes 10,000 of them per second of CPU time.
const SECONDS_PER_ROUND: f64 = 2e-4;
const ROUNDS_OF_PROGRAM: u32 = 5000;
/// The amount of work that is timed first, to find the amount that takes `SECONDS_PER_ROUND`.
const TRIED_WORK: f64 = 50_000.0;
/// The duration of a short and of a long run of processes that sleep. The difference of the two excludes the start and the end of
/// a run.
const SLEEPERS_SECONDS: [u32; 2] = [5, 20];

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    let place = tempfile::tempdir()?;
    let program = place.path().join("switches");
    let mut compile = Command::new("cc");
    child::run(compile.args(["-O2", "-pthread", "-o"]).arg(&program).arg(least::source("switches.c")))?;
    let cpu_seconds = |command: &mut Command, work: f64| {
        let rounds = ROUNDS_OF_PROGRAM.to_string();
        let said = child::run(command.args(["pair", &rounds, &format!("{work:.0}")]))?.output;
        String::from_utf8_lossy(&said).trim().parse::<f64>().context("no CPU time")
    };
    let tried = cpu_seconds(&mut Command::new(&program), TRIED_WORK)? / f64::from(ROUNDS_OF_PROGRAM);
    let work = TRIED_WORK * SECONDS_PER_ROUND / tried;
    let [without, with] = medians(REPETITIONS, |which| match which {
        0 => cpu_seconds(&mut Command::new(&program), work),
        _ => cpu_seconds(ampere(place.path(), &["--sample", "off"]).arg(&program), work),
    })?;
    cpu_seconds(ampere(place.path(), &[]).arg(&program), work)?;
    let merged_per_switch = events_per_switch(place.path())?;
    let mut of_a_core = Vec::new();
    for _ in 0..3 {
        let [short, long] = SLEEPERS_SECONDS;
        let (short_cpu, short) = collector(place.path(), &program, short)?;
        let (long_cpu, long) = collector(place.path(), &program, long)?;
        of_a_core.push(100.0 * (long_cpu - short_cpu) / (long - short));
    }
    let per_switch = events_per_switch(place.path())?;
    let limit = "limit";
    Ok(vec![
        Figure::new(
            "context switches: CPU time added to a program with 10,000 of them per second of CPU time",
            100.0 * (with / without - 1.0),
            "%",
            limit,
            1.0,
        ),
        Figure::new(
            "context switches: collector's share of a core, for 8 processes with 1,000 of them per second each",
            median(of_a_core),
            "%",
            limit,
            1.0,
        ),
        Figure::new(
            "context switches: events in the trace of these processes, per switch",
            per_switch,
            "",
            limit,
            2.0,
        ),
        Figure::new(
            "context switches: events in the trace of the program with 10,000 of them, per switch",
            merged_per_switch,
            "",
            "limit if records of CPU time are not merged",
            2.0,
        ),
    ])
}

/// Returns `ampere run` with options, to which the caller adds the program. Removes the results of the previous run.
fn ampere(place: &Path, options: &[&str]) -> Command {
    let _ = std::fs::remove_dir_all(place.join("out"));
    let mut command = Command::new(child::sibling("ampere"));
    command.args(["run", "--listen", "127.0.0.1:0", "-o"]).arg(place.join("out")).args(options).arg("--");
    command.env("AMPERE_COUNTERS", "estimate").env("AMPERE_POLICY", "active");
    command
}

/// Returns the collector's CPU time and the duration of a run of this many seconds.
fn collector(place: &Path, program: &Path, seconds: u32) -> anyhow::Result<(f64, f64)> {
    child::run(ampere(place, &[]).arg(program).args(["sleepers", "8", &seconds.to_string()]))?;
    let summary = summary(place)?;
    Ok((number(&summary["overhead"]["collector_cpu_seconds"])?, number(&summary["run"]["seconds"])?))
}

/// Returns the events in the trace of the last run, per switch.
fn events_per_switch(place: &Path) -> anyhow::Result<f64> {
    let switches = number(&summary(place)?["overhead"]["stacks"]["switches"])?;
    Ok(Trace::open(&place.join("out/traces.otf2"))?.events_expected() as f64 / switches)
}

/// Returns the summary of the last run.
fn summary(place: &Path) -> anyhow::Result<Value> {
    Ok(serde_json::from_slice(&std::fs::read(place.join("out/summary.json"))?)?)
}

fn number(value: &Value) -> anyhow::Result<f64> {
    value.as_f64().context("a figure is missing in the summary")
}
