//! Measures the cost of stack sampling for programs that are not instrumented, compared with Linux's perf at the same period.

use crate::hosts::{self, build_hpl, hpl_input, lines, need};
use crate::{child, least};
use anyhow::Context;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

pub const LAMMPS: &str = "LAMMPS, 2 ranks";
pub const HPL: &str = "HPL N=6000, 2 ranks";
pub const PYTHON: &str = "a Python program";
/// The option with which this program runs a rank's command and writes its times.
pub const CHILD: &str = "--timed";
const ROUNDS: usize = 13;

/// LAMMPS' own benchmark of a Lennard-Jones liquid.
const LAMMPS_INPUT: &str = "units lj\natom_style atomic\nlattice fcc 0.8442\nregion box block 0 20 0 20 0 20\n\
    create_box 1 box\ncreate_atoms 1 box\nmass 1 1.0\nvelocity all create 1.44 87287 loop geom\n\
    pair_style lj/cut 2.5\npair_coeff 1 1 1.0 1.0 2.5\nneighbor 0.3 bin\nneigh_modify delay 0 every 20 check no\n\
    fix 1 all nve\nrun 300\n";

/// The command in front of a program. `OUT` is replaced by a new directory. perf gets the period of 983 microseconds, because
/// ampere uses that one when a millisecond is requested.
const WAYS: [(&str, &str); 6] = [
    ("plain", ""),
    ("ampere run --sample off", "AMPERE run --sample off --listen 127.0.0.1:0 -o OUT --"),
    ("ampere run --sample auto", "AMPERE run --sample auto --listen 127.0.0.1:0 -o OUT --"),
    ("ampere run --sample 1ms", "AMPERE run --sample 1ms --listen 127.0.0.1:0 -o OUT --"),
    ("perf record, no stacks", "perf record -q -e cpu-clock -c 983000 -o OUT --"),
    ("perf record --call-graph dwarf", "perf record -q -e cpu-clock -c 983000 --call-graph dwarf -o OUT --"),
];

pub fn lammps() -> anyhow::Result<Vec<Value>> {
    ["lmp", "mpirun"].iter().try_for_each(|program| need(program))?;
    let place = tempfile::tempdir()?;
    std::fs::write(place.path().join("in.lj"), LAMMPS_INPUT)?;
    measure(LAMMPS, 2, &["lmp", "-in", "in.lj"], place.path())
}

pub fn hpl() -> anyhow::Result<Vec<Value>> {
    let program = build_hpl("plain", &[], &[])?.join("xhpl");
    let place = tempfile::tempdir()?;
    std::fs::write(place.path().join("hpccinf.txt"), hpl_input(6000))?;
    measure(HPL, 2, &[&program.to_string_lossy()], place.path())
}

pub fn python() -> anyhow::Result<Vec<Value>> {
    need("python3")?;
    let place = tempfile::tempdir()?;
    measure(PYTHON, 1, &["python3", &least::source("work.py").to_string_lossy()], place.path())
}

/// Measures the time of the slowest rank, and the CPU time of all ranks, without the launcher, the collector or perf.
fn measure(name: &'static str, ranks: u32, words: &[&str], place: &Path) -> anyhow::Result<Vec<Value>> {
    let missing = need("perf").err().map(|why| ("perf record", why));
    // The last two need perf.
    let ways = if missing.is_some() { &WAYS[..4] } else { &WAYS[..] };
    let names: Vec<&'static str> = ways.iter().map(|(name, _)| *name).collect();
    lines((name, "s"), ROUNDS, &names, missing, |at| {
        let run = tempfile::tempdir()?;
        let (out, times) = (run.path().join("out"), run.path().join("times"));
        std::fs::create_dir(&times)?;
        let mut all: Vec<String> = ways[at].1.split_whitespace().map(str::to_owned).collect();
        for word in &mut all {
            match &**word {
                "AMPERE" => *word = child::sibling("ampere").to_string_lossy().into_owned(),
                "OUT" => *word = out.to_string_lossy().into_owned(),
                _ => {}
            }
        }
        if ranks > 1 {
            all.extend(["mpirun", "--oversubscribe", "-n"].map(str::to_owned));
            all.push(ranks.to_string());
        }
        all.push(std::env::current_exe()?.to_string_lossy().into_owned());
        all.push(CHILD.to_owned());
        all.push(times.to_string_lossy().into_owned());
        all.extend(words.iter().map(|word| (*word).to_owned()));
        child::run(Command::new(&all[0]).args(&all[1..]).envs(hosts::MPI_VARIABLES).current_dir(place))?;
        let (mut wall, mut cpu) = (0.0, 0.0);
        for entry in std::fs::read_dir(&times)? {
            let text = std::fs::read_to_string(entry?.path())?;
            let (seconds, used) = text.split_once(' ').context("no times")?;
            wall = f64::max(wall, seconds.parse()?);
            cpu += used.parse::<f64>()?;
        }
        Ok((wall, cpu, None))
    })
}

/// Runs a rank's command, and writes its wall time and CPU time into the directory `times`.
pub fn child(times: &str, words: &[&str]) -> anyhow::Result<()> {
    let begun = Instant::now();
    let process = Command::new(words[0]).args(&words[1..]).stdout(std::process::Stdio::null()).spawn()?;
    let file = Path::new(times).join(process.id().to_string());
    let used = child::wait(process)?;
    Ok(std::fs::write(file, format!("{} {}", begun.elapsed().as_secs_f64(), used.cpu_seconds))?)
}
