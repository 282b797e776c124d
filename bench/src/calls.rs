//! Measures `ampere attribute --calls`: the rows that a core writes in a second, and the memory that this takes.

use crate::trace::{Shape, Walk};
use crate::{Figure, child, medians};

const RANKS: u64 = 8;
const EVENTS: u64 = 16_000_000;
/// A trace has 12 bytes for each event, and the table about 40 bytes for each row (two events).
const BYTES: u64 = EVENTS * 12 + EVENTS * 20;
const ROUNDS: usize = 3;
const MILLIONS_MIN: f64 = 3.0;
const MEGABYTES_MAX: f64 = 200.0;

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    let directory = child::directory(BYTES)?;
    let shape = Shape { ranks: RANKS, regions: Walk::REGIONS, devices: 1, nodes: 1 };
    let written = shape.write(directory.path(), |rank| Walk::new(rank, EVENTS / RANKS))?;
    let calls = (written.rank_events / 2) as f64;
    let mut megabytes = 0f64;
    let table = directory.path().join("calls.parquet");
    let [with, without] = medians(ROUNDS, |which| {
        let mut command = child::attribute(&written.anchor);
        if which == 0 {
            command.arg("--calls").arg(&table);
        }
        let used = child::run(&mut command)?.used;
        if which == 0 {
            megabytes = megabytes.max(used.peak_megabytes);
        }
        Ok(used.cpu_seconds)
    })?;
    let figure = |what, unit, value, yardstick, yardstick_value| Figure {
        what,
        value,
        unit,
        yardstick,
        yardstick_value,
    };
    let millions_per_second = |seconds: f64| calls / 1e6 / seconds;
    Ok(vec![
        figure(
            "attribute --calls: rows per second of additional CPU time",
            "million",
            millions_per_second(with - without),
            "at least",
            MILLIONS_MIN,
        ),
        figure(
            "attribute --calls: rows per second of all CPU time",
            "million",
            millions_per_second(with),
            "the same calls without a table",
            millions_per_second(without),
        ),
        figure("attribute --calls: peak resident memory", "MB", megabytes, "at most", MEGABYTES_MAX),
    ])
}
