//! `make bench`: compares each figure with its reference value, as medians of alternating runs. The figures are printed as lines
//! on the terminal and written as JSON to `target/bench.json`. Arguments select groups by name ("engine"). A group reports what
//! is missing on this machine; a group that fails makes the exit status 1. With `KEEP=1`, or with `ampere-bench tables`
//! afterwards, the tables in bench/README.md are made from `target/bench.json`.

mod bare;
mod calls;
mod child;
mod collector;
mod cores;
mod engine;
mod events;
mod gpu;
mod hosts;
mod latency;
mod least;
mod load;
mod long;
mod marks;
mod metrics;
mod nodes;
mod offline;
mod results;
mod ring;
/// How the plugin chooses the size of its rings.
#[allow(dead_code)] // the benchmark does not use the part that reads the environment
#[path = "../../plugin/src/ring_size.rs"]
mod ring_size;
mod sampler;
mod sampling;
mod start;
mod switches;
mod trace;
mod waiting;

use anyhow::Context;
use results::Figure;
use serde_json::{Value, json};
use std::fmt::{Display, Formatter};
use std::process::ExitCode;
use std::time::Instant;

/// An error for something that this machine lacks.
#[derive(Debug)]
pub struct Missing(pub String);

impl Display for Missing {
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

enum Bench {
    Figures(fn() -> anyhow::Result<Vec<Figure>>),
    /// Runs of one program in several ways.
    Runs(fn() -> anyhow::Result<Vec<Value>>),
}

const BENCHES: [(&str, Bench); 30] = [
    (hosts::CALLS, Bench::Runs(hosts::calls)),
    (hosts::HPL, Bench::Runs(hosts::hpl)),
    (sampling::LAMMPS, Bench::Runs(sampling::lammps)),
    (sampling::HPL, Bench::Runs(sampling::hpl)),
    (sampling::PYTHON, Bench::Runs(sampling::python)),
    ("start", Bench::Figures(start::process_start)),
    ("disabled", Bench::Figures(start::disabled)),
    ("switches", Bench::Figures(switches::figures)),
    ("ring", Bench::Figures(ring::figures)),
    ("event path", Bench::Figures(events::figures)),
    ("GPU", Bench::Figures(gpu::figures)),
    ("marks", Bench::Figures(marks::figures)),
    ("engine", Bench::Figures(engine::figures)),
    // This one measures the peak memory of children. A child inherits the peak of this process when it is started, so this comes
    // before groups that need much memory.
    ("long trace", Bench::Figures(long::figures)),
    ("cores", Bench::Figures(cores::figures)),
    ("calls", Bench::Figures(calls::figures)),
    ("nodes", Bench::Figures(nodes::figures)),
    ("offline", Bench::Figures(offline::figures)),
    ("waiting", Bench::Figures(waiting::figures)),
    ("collector", Bench::Figures(collector::figures)),
    ("messages", Bench::Figures(collector::messages)),
    ("locations", Bench::Figures(collector::many_locations)),
    ("ranks", Bench::Figures(collector::many_ranks)),
    ("idle", Bench::Figures(collector::idle)),
    ("metrics", Bench::Figures(metrics::figures)),
    ("viewers", Bench::Figures(metrics::viewers)),
    ("sampler", Bench::Figures(sampler::figures)),
    ("latency", Bench::Figures(latency::figures)),
    ("memory", Bench::Figures(collector::memory)),
    ("callpaths", Bench::Figures(collector::callpaths)),
];

const RESULTS: &str = "target/bench.json";

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [sampler::CHILD, library] => sampler::child(library),
        [sampling::CHILD, times, ref words @ ..] if !words.is_empty() => sampling::child(times, words)?,
        [events::CHILD] => events::folded_child(),
        [events::SAMPLED_CHILD] => events::sampled_child(),
        [events::RECORDED_CHILD] => events::recorded_child(),
        [latency::CHILD] => latency::child(),
        [bare::COMMAND, order, trace] => bare::main(order, trace),
        [bare::WRITE_COMMAND, locations, events, calls_per_message, directory] => {
            bare::write_main(locations, events, calls_per_message, directory)
        }
        [collector::LOAD_COMMAND, processes, threads, seconds] => {
            collector::load(processes, threads, seconds)?
        }
        ["tables"] => {
            let text =
                std::fs::read_to_string(RESULTS).with_context(|| format!("{RESULTS}: make bench first"))?;
            results::keep(&serde_json::from_str(&text)?)?;
        }
        _ => return measure(&words),
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(wanted: &[&str]) -> anyhow::Result<ExitCode> {
    if let Some(unknown) = wanted.iter().find(|w| BENCHES.iter().all(|(name, _)| name != *w)) {
        anyhow::bail!("there is no group {unknown:?}; there are {:?}", BENCHES.map(|(name, _)| name));
    }
    let (start, begun) = (results::Start::now(), Instant::now());
    let (mut lines, mut failed) = (Vec::new(), false);
    for (name, bench) in BENCHES.iter().filter(|(name, _)| wanted.is_empty() || wanted.contains(name)) {
        eprintln!("... {name} ({:.0} s)", begun.elapsed().as_secs_f64());
        let (measured, key) = match bench {
            Bench::Figures(bench) => (bench().map(|all| all.iter().map(Figure::json).collect()), "figure"),
            Bench::Runs(bench) => (bench(), "program"),
        };
        let new = measured.unwrap_or_else(|error| {
            let is_missing = error.is::<Missing>();
            failed |= !is_missing;
            let why = if is_missing { error.to_string() } else { format!("FAILED: {error:#}") };
            vec![json!({key: name, "run": "all", "skipped": why})]
        });
        new.iter().for_each(results::print);
        lines.extend(new);
    }
    // The file is written only if all groups ran.
    if wanted.is_empty() {
        let document = results::document(&lines, &start);
        std::fs::write(RESULTS, serde_json::to_string_pretty(&document)? + "\n").context(RESULTS)?;
        if std::env::var_os("KEEP").is_some() && !failed {
            results::keep(&document)?;
        }
    }
    eprintln!("{:.0} s", begun.elapsed().as_secs_f64());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Times several steps in turn, every other round in the opposite order. Returns the medians in nanoseconds per step.
pub fn in_turn<const N: usize>(rounds: usize, steps: u64, mut works: [&mut dyn FnMut(); N]) -> [f64; N] {
    medians(rounds, |which| {
        let begun = Instant::now();
        works[which]();
        Ok(begun.elapsed().as_nanos() as f64 / steps as f64)
    })
    .unwrap_or([f64::NAN; N])
}

/// Measures several quantities in turn, every other round in the opposite order. Returns the medians.
pub fn medians<const N: usize>(
    rounds: usize,
    mut measure: impl FnMut(usize) -> anyhow::Result<f64>,
) -> anyhow::Result<[f64; N]> {
    let mut values = [const { Vec::new() }; N];
    for round in 0..rounds {
        for at in 0..N {
            let which = if round % 2 == 0 { at } else { N - 1 - at };
            values[which].push(measure(which)?);
        }
    }
    Ok(values.map(median))
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
