//! Measures the cost of starting a program under ampere, and the cost of ampere while it is disabled.

use crate::hosts::{PRELOADED, need};
use crate::{Figure, child, least, medians};
use std::process::Command;

/// Returns the milliseconds from the start of a command to its end.
fn milliseconds(command: &mut Command) -> anyhow::Result<f64> {
    Ok(child::run(command)?.seconds * 1e3)
}

/// Measures what ampere adds to a program that does nothing.
pub fn process_start() -> anyhow::Result<Vec<Figure>> {
    let place = tempfile::tempdir()?;
    let plain = || Command::new("true");
    let [preloaded, without] = medians(301, |which| {
        let mut command = plain();
        if which == 0 {
            command
                .env("LD_PRELOAD", child::sibling(PRELOADED))
                .env("AMPERE_OUTPUT", place.path().join("out"));
        }
        milliseconds(&mut command)
    })?;
    let mut number = 0;
    let [run, alone] = medians(31, |which| {
        let mut command = plain();
        if which == 0 {
            number += 1;
            command = Command::new(child::sibling("ampere"));
            command.args(["run", "-o"]).arg(place.path().join(number.to_string())).args(["--", "true"]);
        }
        milliseconds(&mut command)
    })?;
    Ok(vec![
        Figure::new(
            "start: time that the preloaded library adds to `true`",
            preloaded - without,
            "ms",
            "at most",
            0.5,
        ),
        Figure::new("start: time that `ampere run` adds to `true`", run - alone, "ms", "at most", 100.0),
    ])
}

/// Measures MPI_Comm_rank, the cheapest MPI call, while ampere is disabled.
pub fn disabled() -> anyhow::Result<Vec<Figure>> {
    need("mpicc")?;
    let place = tempfile::tempdir()?;
    let program = place.path().join("mpi_calls");
    child::run(Command::new("mpicc").arg("-O2").arg("-o").arg(&program).arg(least::source("mpi_calls.c")))?;
    let [run, preloaded, without] = medians(5, |which| {
        let mut command = Command::new(&program);
        match which {
            0 => {
                command = Command::new(child::sibling("ampere"));
                command.args(["run", "-o"]).arg(place.path().join("out")).arg("--").arg(&program);
            }
            1 => drop(command.env("LD_PRELOAD", child::sibling(PRELOADED))),
            _ => {}
        }
        nanoseconds(command.env("AMPERE_DISABLE", "1").current_dir(place.path()))
    })?;
    let figure = |what, value| Figure::new(what, value, "ns", "without ampere", without);
    Ok(vec![
        figure("start: an MPI call under ampere run with AMPERE_DISABLE=1", run),
        figure("start: an MPI call with the preloaded library and AMPERE_DISABLE=1", preloaded),
    ])
}

/// Runs a program that prints the nanoseconds of a call as its first word. Returns that number.
pub fn nanoseconds(command: &mut Command) -> anyhow::Result<f64> {
    let output = String::from_utf8(child::run(command)?.output)?;
    let first = output.split_whitespace().next().and_then(|word| word.parse().ok());
    first.ok_or_else(|| anyhow::anyhow!("the program printed {output:?}"))
}
