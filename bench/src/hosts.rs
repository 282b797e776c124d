//! Programs under their measurement system, with and without the plugin: HPL with every function instrumented, and a loop of
//! calls of an empty function. The embedded host; and a real Score-P where there is one on the PATH.

use crate::{Figure, child, median};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const ROUNDS: usize = 3;
const HPL_ROUNDS: usize = 5;
/// Of an empty function.
const CALLS: u64 = 20_000_000;

const LEAF: &str = r#"
#include <stdio.h>
#include <time.h>
volatile long sink;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
__attribute__((noinline)) void leaf(long i) { sink += i; }
__attribute__((noinline)) void loop(long n) { for (long i = 0; i < n; i++) leaf(i); }
int main(void) { double begun = now(); loop(20000000); printf("%.9f\n", now() - begun); return 0; }
"#;

const HPL_INPUT: &str = "HPL\nbench\nHPL.out\n6\n1\n4000\n1\n80\n0\n1\n1\n2\n16.0\n1\n2\n1\n4\n1\n2\n1\n1\n1\n1\n1\n0\n2\n64\n0\n0\n1\n8\n";

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        let last = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "{command:?} ended with {}: {}",
            output.status,
            last.trim().lines().last().unwrap_or("")
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a program is run with: variables.
type With<'a> = &'a [(&'a str, &'a str)];

const PLAIN: With = &[("SCOREP_ENABLE_PROFILING", "false"), ("SCOREP_ENABLE_TRACING", "false")];

/// The plugin's directory, for Score-P's loader.
fn libraries() -> String {
    child::beside("").to_string_lossy().into_owned()
}

pub fn score_p() -> Result<Vec<Figure>, String> {
    if !is_there("scorep") {
        return Err("no scorep on the PATH".to_owned());
    }
    let place = tempfile::tempdir().map_err(|e| e.to_string())?;
    let source = place.path().join("leaf.c");
    std::fs::write(&source, LEAF).map_err(|e| e.to_string())?;
    let build = |compiler: &[&str], name: &str| -> Result<PathBuf, String> {
        let program = place.path().join(name);
        output_of(
            Command::new(compiler[0]).args(&compiler[1..]).args(["-O2", "-o"]).arg(&program).arg(&source),
        )?;
        Ok(program)
    };
    let program = build(&["scorep", "gcc"], "leaf")?;
    let libraries = libraries();
    let run = |with: With| -> Result<f64, String> {
        let own = tempfile::tempdir().map_err(|e| e.to_string())?;
        let mut command = Command::new(&program);
        command.current_dir(own.path()).env("SCOREP_EXPERIMENT_DIRECTORY", own.path().join("scorep"));
        command.env("LD_LIBRARY_PATH", &libraries).env("AMPERE_OUTPUT", own.path().join("out"));
        command
            .env("SCOREP_TOTAL_MEMORY", "1500M")
            .env("AMPERE_LISTEN", "127.0.0.1:0")
            .envs(with.iter().copied());
        let seconds: f64 = output_of(&mut command)?.trim().parse().map_err(|e| format!("{e}"))?;
        if with.iter().any(|(_, value)| *value == "ampere") {
            suppressed(&own.path().join("out"))?;
        }
        Ok(seconds * 1e9 / (2 * CALLS) as f64)
    };
    let tracing: With = &[("SCOREP_ENABLE_PROFILING", "false"), ("SCOREP_ENABLE_TRACING", "true")];
    let ours: With = &[
        ("SCOREP_ENABLE_PROFILING", "false"),
        ("SCOREP_ENABLE_TRACING", "false"),
        ("SCOREP_SUBSTRATE_PLUGINS", "ampere"),
    ];
    let (mut nothing, mut traced, mut measured) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        nothing.push(run(PLAIN)?);
        traced.push(run(tracing)?);
        measured.push(run(ours)?);
    }
    let (nothing, traced, measured) = (median(nothing), median(traced), median(measured));
    let mut figures = vec![Figure {
        what: "Score-P: what the plugin adds to an event, 20 million calls",
        value: measured - nothing,
        unit: "ns",
        yardstick: "to reach: an eighth of what Score-P's tracing adds",
        yardstick_value: (traced - nothing) / 8.0,
    }];
    figures.extend(hpl_under_score_p()?);
    Ok(figures)
}

fn hpl(name: &str, compiler: &[&str]) -> Result<PathBuf, String> {
    for program in ["mpicc", "mpirun"] {
        if !is_there(program) {
            return Err(format!("no {program} on the PATH"));
        }
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/bench-hpl");
    let place = child::beside("bench-hpl");
    output_of(Command::new(script).arg(&place).arg(name).args(compiler))?;
    std::fs::write(place.join(name).join("hpccinf.txt"), HPL_INPUT).map_err(|e| e.to_string())?;
    Ok(place.join(name))
}

/// Wall seconds of two ranks, start and end of everything included.
fn run_hpl(directory: &Path, launcher: &[&str], with: With) -> Result<f64, String> {
    let mut words = launcher.iter().copied().chain(["mpirun", "--oversubscribe", "-n", "2", "./xhpl"]);
    let mut command = Command::new(words.next().unwrap_or("mpirun"));
    command.args(words).current_dir(directory).env("OPENBLAS_NUM_THREADS", "1");
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .envs(with.iter().copied());
    let _ = std::fs::remove_file(directory.join("hpccoutf.txt"));
    let begun = Instant::now();
    output_of(&mut command)?;
    Ok(begun.elapsed().as_secs_f64())
}

/// The error: it was not measured.
fn suppressed(output: &Path) -> Result<f64, String> {
    let summary = std::fs::read(output.join("summary.json")).map_err(|e| format!("no summary: {e}"))?;
    let summary: serde_json::Value = serde_json::from_slice(&summary).map_err(|e| e.to_string())?;
    summary["quality"]["suppressed_calls"].as_f64().ok_or_else(|| "a summary without quality".to_owned())
}

pub fn hpl_embedded() -> Result<Vec<Figure>, String> {
    let directory = hpl("hooks", &["mpicc", "-finstrument-functions"])?;
    let (ampere, host) = (child::beside("ampere"), child::beside("libampere_host.so"));
    let (ampere, host) = (ampere.to_string_lossy().into_owned(), host.to_string_lossy().into_owned());
    let (mut ours, mut theirs, mut left_out) = (Vec::new(), Vec::new(), 0.0);
    for _ in 0..HPL_ROUNDS {
        theirs.push(run_hpl(&directory, &[], &[("LD_PRELOAD", &host), ("AMPERE_DISABLE", "1")])?);
        let place = tempfile::tempdir().map_err(|e| e.to_string())?;
        let output = place.path().join("out");
        let path = output.to_string_lossy().into_owned();
        let launcher =
            [ampere.as_str(), "run", "--host", "embedded", "--listen", "127.0.0.1:0", "-o", &path, "--"];
        ours.push(run_hpl(&directory, &launcher, &[])?);
        left_out += suppressed(&output)?;
    }
    Ok(hpl_figures(
        ["HPL N=4000, all functions, 2 ranks: wall, embedded host", "HPL: calls suppressed in these runs"],
        (median(ours), median(theirs), left_out),
    ))
}

fn hpl_under_score_p() -> Result<Vec<Figure>, String> {
    let directory = hpl("scorep", &["scorep", "mpicc"])?;
    let libraries = libraries();
    let (mut ours, mut theirs, mut left_out) = (Vec::new(), Vec::new(), 0.0);
    for _ in 0..ROUNDS {
        let place = tempfile::tempdir().map_err(|e| e.to_string())?;
        let (output, scorep) = (place.path().join("out"), place.path().join("scorep"));
        let (path, scorep) = (output.to_string_lossy().into_owned(), scorep.to_string_lossy().into_owned());
        let mut with = PLAIN.to_vec();
        with.push(("SCOREP_EXPERIMENT_DIRECTORY", &scorep));
        theirs.push(run_hpl(&directory, &[], &with)?);
        with.extend([("SCOREP_SUBSTRATE_PLUGINS", "ampere"), ("LD_LIBRARY_PATH", libraries.as_str())]);
        with.extend([("AMPERE_OUTPUT", path.as_str()), ("AMPERE_LISTEN", "127.0.0.1:0")]);
        ours.push(run_hpl(&directory, &[], &with)?);
        left_out += suppressed(&output)?;
    }
    Ok(hpl_figures(
        [
            "HPL N=4000, all functions, 2 ranks: wall, Score-P",
            "HPL under Score-P: calls suppressed in these runs",
        ],
        (median(ours), median(theirs), left_out),
    ))
}

fn hpl_figures(what: [&'static str; 2], (ours, theirs, left_out): (f64, f64, f64)) -> Vec<Figure> {
    vec![
        Figure {
            what: what[0],
            value: ours,
            unit: "s",
            yardstick: "that host without the plugin; to reach: 1.15 x",
            yardstick_value: theirs,
        },
        Figure { what: what[1], value: left_out, unit: "calls", yardstick: "at most", yardstick_value: 0.0 },
    ]
}
