//! Measures programs with and without a measurement system, and with and without a plugin: HPL with every function instrumented,
//! and a loop that calls an empty function. The measurement systems are the embedded host and, if it is on the PATH, a real
//! Score-P.

use crate::results::{Quality, Run};
use crate::{Missing, child, least, median};
use anyhow::Context;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const CALLS: &str = "a call of an empty function";
pub const HPL: &str = "HPL N=4000, every function, 2 ranks";
const ROUNDS: usize = 5;
/// The library that `ampere run` preloads, relative to the folder of this program.
pub const PRELOADED: &str = "ampere-preload/x86_64/libampere_preload.so";

/// The memory in which Score-P keeps each process' part of a trace. When this memory is full, Score-P writes to disk while the
/// program runs.
const SCOREP_MEMORY: &str = "1500M";
/// Free space that Score-P's trace of HPL needs.
const SCOREP_TRACE_BYTES: u64 = 8 << 30;

pub fn need(program: &str) -> anyhow::Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|directory| directory.join(program).is_file()) {
        return Ok(());
    }
    Err(Missing(format!("no {program} on the PATH")).into())
}

const SCOREP: &str = "Score-P";
/// Variables for MPI programs: one thread for each rank, and permission for Open MPI to run as root.
pub const MPI_VARIABLES: [(&str, &str); 3] =
    [("OPENBLAS_NUM_THREADS", "1"), ("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")];

/// The name of a way, or of a group of ways, that cannot be measured on this machine, and the reason.
type Missed = Option<(&'static str, anyhow::Error)>;

/// One way to run a program.
struct Way {
    name: &'static str,
    program: PathBuf,
    variables: Vec<(&'static str, String)>,
    /// The argument of `ampere run --recorder`, if the program is run under ampere.
    ampere: Option<&'static str>,
}

/// Returns all ways to run a program, and the reason if those under Score-P are missing. `build` makes the program: its arguments
/// are a name, a command to put in front of the compiler, and options.
fn ways(
    build: impl Fn(&str, &[&str], &[&str]) -> anyhow::Result<PathBuf>,
) -> anyhow::Result<(Vec<Way>, Missed)> {
    let least = least::build_plugin()?.to_string_lossy().into_owned();
    let lossless = least::build_lossless()?.to_string_lossy().into_owned();
    let nothing = least::build_nothing()?.to_string_lossy().into_owned();
    let preloaded = child::sibling(PRELOADED).to_string_lossy().into_owned();
    let (plain, hooks) = (build("plain", &[], &[])?, build("hooks", &[], &["-finstrument-functions"])?);
    let way = |name, program: &Path, variables: &[(&'static str, &str)], ampere| Way {
        name,
        program: program.to_owned(),
        variables: variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        ampere,
    };
    let mut ways = vec![
        way("plain", &plain, &[], None),
        way("instrumented, no host", &hooks, &[], None),
        way(
            "embedded host, no plugin",
            &hooks,
            &[("LD_PRELOAD", &preloaded), ("AMPERE_HOST_PLUGIN", &nothing)],
            None,
        ),
        way(
            "embedded host, minimal C plugin",
            &hooks,
            &[("LD_PRELOAD", &preloaded), ("AMPERE_HOST_PLUGIN", &least)],
            None,
        ),
        way(
            "embedded host, lossless C plugin",
            &hooks,
            &[("LD_PRELOAD", &preloaded), ("AMPERE_HOST_PLUGIN", &lossless)],
            None,
        ),
        way("embedded host, ampere", &hooks, &[], Some("embedded")),
    ];
    if let Err(missing) = need("scorep") {
        return Ok((ways, Some((SCOREP, missing))));
    }
    let scorep = build("scorep", &["scorep"], &[])?;
    let libraries = least::directory().to_string_lossy().into_owned();
    let quiet = [("SCOREP_ENABLE_PROFILING", "false"), ("SCOREP_ENABLE_TRACING", "false")];
    let with =
        |plugin| [quiet[0], quiet[1], ("SCOREP_SUBSTRATE_PLUGINS", plugin), ("LD_LIBRARY_PATH", &*libraries)];
    let tracing = [quiet[0], ("SCOREP_ENABLE_TRACING", "true"), ("SCOREP_TOTAL_MEMORY", SCOREP_MEMORY)];
    ways.extend([
        way("Score-P, no plugin", &scorep, &quiet, None),
        way("Score-P, minimal C plugin", &scorep, &with("least"), None),
        way("Score-P, lossless C plugin", &scorep, &with("lossless"), None),
        way("Score-P, ampere", &scorep, &quiet, Some("scorep")),
        way("Score-P's tracing", &scorep, &tracing, None),
    ]);
    Ok((ways, None))
}

/// Wall-clock time, CPU time and, for an instrumented run with ampere, the quality.
pub type Measured = (f64, f64, Option<Quality>);

/// Returns a line for each way, with the medians of its runs. The ways alternate, and every other round is in the opposite order.
/// One more line names a way that could not be measured.
pub fn lines(
    (program, unit): (&'static str, &'static str),
    rounds: usize,
    ways: &[&'static str],
    missing: Missed,
    run: impl Fn(usize) -> anyhow::Result<Measured>,
) -> anyhow::Result<Vec<Value>> {
    let mut measured: Vec<Vec<Measured>> = ways.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..ways.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            measured[at].push(run(at).with_context(|| format!("{program}: {}", ways[at]))?);
        }
    }
    let line = |(how, all): (&&'static str, &Vec<Measured>)| {
        let of = |part: fn(&Measured) -> f64| median(all.iter().map(part).collect());
        let quality = all[0].2.map(|_| Quality {
            coalesced_percent: of(|m| m.2.map_or(0.0, |quality| quality.coalesced_percent)),
            suppressed_calls: all.iter().filter_map(|m| Some(m.2?.suppressed_calls)).sum(),
        });
        Run { program, how, unit, wall: of(|m| m.0), cpu: of(|m| m.1), quality }.json()
    };
    let missing =
        missing.map(|(how, why)| json!({"program": program, "run": how, "skipped": why.to_string()}));
    Ok(ways.iter().zip(&measured).map(line).chain(missing).collect())
}

fn names(ways: &[Way]) -> Vec<&'static str> {
    ways.iter().map(|way| way.name).collect()
}

/// Runs a command in one of the ways to its end.
fn run(way: &Way, words: &[&str], directory: &Path) -> anyhow::Result<(child::Ran, Option<Quality>)> {
    let place = tempfile::tempdir()?;
    let mut command = match way.ampere {
        None => Command::new(words[0]),
        Some(host) => {
            let mut command = Command::new(child::sibling("ampere"));
            command.args(["run", "--recorder", host, "--listen", "127.0.0.1:0", "-o"]);
            command.arg(place.path().join("out")).arg("--").arg(words[0]);
            command
        }
    };
    command.args(&words[1..]).current_dir(directory);
    command.env("SCOREP_EXPERIMENT_DIRECTORY", place.path().join("scorep"));
    command.envs(MPI_VARIABLES).envs(way.variables.iter().map(|(name, value)| (name, value)));
    let ran = child::run(&mut command)?;
    let quality = way.ampere.map(|_| quality(&place.path().join("out/summary.json"))).transpose()?;
    Ok((ran, quality))
}

fn quality(summary: &Path) -> anyhow::Result<Quality> {
    let summary: Value = serde_json::from_slice(&std::fs::read(summary).context("no summary")?)?;
    let regions = summary["devices"][0]["views"][0]["regions"].as_array().context("no regions")?;
    let calls: f64 = regions.iter().filter_map(|region| region["calls"].as_f64()).sum();
    let of = |name: &str| summary["quality"][name].as_f64().with_context(|| format!("no {name}"));
    Ok(Quality {
        coalesced_percent: 100.0 * of("coalesced_calls")? / calls,
        suppressed_calls: of("suppressed_calls")?,
    })
}

/// Measures the wall-clock and the CPU nanoseconds per call. The CPU time is that of the program itself, without the collector's.
pub fn calls() -> anyhow::Result<Vec<Value>> {
    let place = tempfile::tempdir()?;
    let build = |name: &str, before: &[&str], options: &[&str]| {
        let program = place.path().join(name);
        let words: Vec<&str> = before.iter().chain(&["gcc", "-O2"]).chain(options).copied().collect();
        let mut compile = Command::new(words[0]);
        compile
            .args(&words[1..])
            .arg("-o")
            .arg(&program)
            .arg(least::source("leaf.c"))
            .current_dir(place.path());
        child::run(&mut compile)?;
        Ok(program)
    };
    let (ways, missing) = ways(build)?;
    lines((CALLS, "ns"), ROUNDS, &names(&ways), missing, |at| {
        let way = &ways[at];
        let (ran, quality) = run(way, &[&way.program.to_string_lossy()], place.path())?;
        let text = String::from_utf8_lossy(&ran.output).into_owned();
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [wall, cpu] => Ok((wall, cpu, quality)),
            _ => anyhow::bail!("the program printed {text:?}"),
        }
    })
}

/// Builds `xhpl` with these compiler options, and with the command `before` in front of the compiler. Returns its directory.
pub fn build_hpl(name: &str, before: &[&str], options: &[&str]) -> anyhow::Result<PathBuf> {
    ["mpicc", "mpirun"].iter().try_for_each(|program| need(program))?;
    let place = child::sibling("bench-hpl");
    let script = || {
        let mut script = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/bench-hpl"));
        script.arg(&place);
        script
    };
    // The source is downloaded from Debian's archive, if that can be reached.
    child::run(&mut script()).map_err(|error| Missing(format!("{error:#}")))?;
    if !Path::new("/usr/include/x86_64-linux-gnu/cblas.h").exists() {
        return Err(Missing("no OpenBLAS".to_owned()).into());
    }
    child::run(script().arg(name).args(before).arg("mpicc").args(options))?;
    Ok(place.join(name))
}

/// Returns the content of `hpccinf.txt` for two ranks and a matrix with this number of rows.
pub fn hpl_input(rows: u32) -> String {
    format!(
        "HPL\nbench\nHPL.out\n6\n1\n{rows}\n1\n80\n0\n1\n1\n2\n16.0\n1\n2\n1\n4\n1\n2\n1\n1\n1\n1\n1\n0\n2\n64\n0\n0\n1\n8\n"
    )
}

/// Measures the wall-clock seconds of the whole command, and the CPU seconds of all its processes, including the collector.
pub fn hpl() -> anyhow::Result<Vec<Value>> {
    let build = |name: &str, before: &[&str], options: &[&str]| {
        let program = build_hpl(name, before, options)?;
        std::fs::write(program.join("hpccinf.txt"), hpl_input(4000))?;
        Ok(program)
    };
    let (mut ways, mut missing) = ways(build)?;
    let tracing = ways.iter().position(|way| way.name == "Score-P's tracing");
    if let Some(at) = tracing.filter(|_| child::free_bytes(&std::env::temp_dir()) < SCOREP_TRACE_BYTES) {
        ways.remove(at);
        let why = Missing("no room for its trace in the temporary directory".to_owned());
        missing = Some(("Score-P's tracing", why.into()));
    }
    lines((HPL, "s"), ROUNDS, &names(&ways), missing, |at| {
        let way = &ways[at];
        let words = ["mpirun", "--oversubscribe", "-n", "2", "./xhpl"];
        let _ = std::fs::remove_file(way.program.join("hpccoutf.txt"));
        let (ran, quality) = run(way, &words, &way.program)?;
        Ok((ran.seconds, ran.used.cpu_seconds, quality))
    })
}
