//! Measures the cost of marking the start and end of a region for a tool, and whether regions are lost at a million regions a
//! second.

use crate::start::nanoseconds;
use crate::{Figure, child, least, medians};
use anyhow::Context;
use serde_json::Value;
use std::process::Command;

const ROUNDS: usize = 5;
/// The arguments of marks.c: the number of regions, and the marks in a second, two for each region. The regions take two seconds.
const STEADY: [&str; 2] = ["2000000", "2000000"];

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    let place = tempfile::tempdir()?;
    let program = place.path().join("marks");
    let source = least::source("marks.c");
    child::run(Command::new("cc").arg("-O2").arg("-o").arg(&program).arg(source).arg("-ldl"))?;
    let [with, without] = medians(ROUNDS, |which| match which {
        0 => nanoseconds(&mut child::ampere_run(place.path(), &program)),
        _ => nanoseconds(Command::new(&program).env_remove("KOKKOS_TOOLS_LIBS")),
    })?;
    nanoseconds(child::ampere_run(place.path(), &program).args(STEADY))?;
    let summary: Value = serde_json::from_slice(&std::fs::read(place.path().join("out/summary.json"))?)?;
    let lost = ["suppressed_calls", "dropped_records", "unrecorded_calls"]
        .iter()
        .map(|count| summary["quality"][count].as_f64().with_context(|| format!("no {count}")))
        .sum::<anyhow::Result<f64>>()?;
    let figure = |what, value, limit| Figure::new(what, value, "ns", "at most", limit);
    Ok(vec![
        figure("marks: the start or end of a region of Kokkos", with, 60.0),
        figure("marks: the same without ampere", without, 2.0),
        Figure::new("marks: regions lost at a million per second", lost, "", "at most", 0.0),
    ])
}
