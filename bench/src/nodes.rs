//! Measures `ampere report` on a run of many nodes with eight ranks each: its time, its memory, and its calls to the file system.

use crate::trace::{Event, Shape};
use crate::{Figure, child};
use anyhow::Context;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const RANKS: u64 = 8;
const DEVICES: u64 = 2;
/// Number of call paths of a rank.
const PATHS: u32 = 40;
const NODES: [usize; 3] = [10, 100, 1000];
/// Room for 1,000 nodes: a node's summary takes less than 300 kB.
const BYTES: u64 = 1000 * 300_000;
const FORMS: [(&str, &[&str]); 3] = [("table", &[]), ("page", &["-f", "html"]), ("summary", &["-f", "json"])];

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    // `NODES="3000 9000"` adds larger runs, which take minutes to create.
    let more = std::env::var("NODES").unwrap_or_default();
    let more: Vec<usize> = more.split_whitespace().filter_map(|nodes| nodes.parse().ok()).collect();
    let directory = child::directory(BYTES * (1 + more.iter().sum::<usize>() as u64 / 1000))?;
    let one = one_node(directory.path())?;
    let mut figures = Vec::new();
    for nodes in NODES.into_iter().chain(more) {
        let run = directory.path().join(format!("of-{nodes}"));
        let megabytes = write(&run, &one, nodes)? as f64 / 1e6;
        for (form, arguments) in FORMS {
            let report = || {
                let mut command = Command::new(child::sibling("ampere"));
                command.arg("report").arg(&run).args(arguments);
                command
            };
            let ran = child::run(&mut report())?;
            let mut add = |what: &str, unit, value, yardstick, yardstick_value| {
                let what = format!("report: the {form} of {nodes} nodes x {RANKS} ranks, {what}");
                figures.push(Figure { what: what.leak(), value, unit, yardstick, yardstick_value });
            };
            let reading = read(&run)?;
            add("wall", "s", ran.seconds, "serde_json reads the summaries", reading);
            add("CPU", "s", ran.used.cpu_seconds, "serde_json reads the summaries", reading);
            add("peak resident memory", "MB", ran.used.peak_megabytes, "the summaries", megabytes);
            if nodes <= NODES[2]
                && let Some((opened, others)) = file_operations(&report())?
            {
                add("files opened", "", opened, "nodes", nodes as f64);
                add("other calls with a path", "", others, "nodes", nodes as f64);
            }
        }
        std::fs::remove_dir_all(run)?;
    }
    Ok(figures)
}

/// Returns the summary of a node.
fn one_node(directory: &Path) -> anyhow::Result<Value> {
    let trace = directory.join("one");
    std::fs::create_dir(&trace)?;
    let shape = Shape { ranks: RANKS, regions: PATHS, devices: DEVICES, nodes: 1 };
    let written = shape.write(&trace, |rank| {
        (0..50 * PATHS).flat_map(move |call| {
            let (time, region) = (u64::from(call) * 20_000 + rank, call % PATHS);
            [Event::Enter(time, region), Event::Leave(time + 15_000, region)]
        })
    })?;
    let ran = child::run(child::attribute(&written.anchor).arg("--json"))?;
    Ok(serde_json::from_slice(&ran.output)?)
}

/// Writes a run directory whose nodes' summaries have not been joined yet. Returns the bytes of the summaries.
fn write(run: &Path, one: &Value, nodes: usize) -> anyhow::Result<usize> {
    let mut bytes = 0;
    for node in 0..nodes {
        let mut summary = one.clone();
        let name = format!("node{node:05}");
        summary["run"]["id"] = "many".into();
        summary["run"]["nodes"] = vec![name.clone()].into();
        for part in ["devices", "topology"] {
            let rows = summary[part].as_array_mut().context("a list")?;
            rows.iter_mut().for_each(|row| row["node"] = name.clone().into());
        }
        for text in summary["names"].as_array_mut().context("a list")? {
            let rank = text.as_str().and_then(|name| name.strip_prefix("MPI Rank ")?.parse::<usize>().ok());
            if let Some(rank) = rank {
                *text = format!("MPI Rank {}", node * RANKS as usize + rank).into();
            }
        }
        let directory = if node == 0 { run.to_owned() } else { run.join(name) };
        std::fs::create_dir_all(&directory)?;
        let text = serde_json::to_vec(&summary)?;
        bytes += text.len();
        std::fs::write(directory.join("summary.json"), text)?;
    }
    Ok(bytes)
}

/// Returns the seconds that it takes to read all summaries as JSON.
fn read(run: &Path) -> anyhow::Result<f64> {
    let begun = Instant::now();
    for entry in std::fs::read_dir(run)? {
        let path = entry?.path();
        let path = if path.is_dir() { path.join("summary.json") } else { path };
        std::hint::black_box(serde_json::from_slice::<Value>(&std::fs::read(path)?)?);
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Returns the number of files that a command opens, and that of its other calls with a path; `None` without strace.
fn file_operations(command: &Command) -> anyhow::Result<Option<(f64, f64)>> {
    let counts = tempfile::NamedTempFile::new()?;
    let mut traced = Command::new("strace");
    traced.args(["-f", "-c", "-U", "calls,name", "-e", "trace=%file", "-o"]).arg(counts.path());
    traced.arg(command.get_program()).args(command.get_args());
    if child::run(&mut traced).is_err() {
        return Ok(None);
    }
    let (mut opened, mut others) = (0.0, 0.0);
    for line in std::fs::read_to_string(counts.path())?.lines() {
        let mut words = line.split_whitespace();
        let (Some(count), Some(name)) = (words.next().and_then(|n| n.parse::<f64>().ok()), words.next())
        else {
            continue;
        };
        match name {
            "total" => {}
            "open" | "openat" => opened += count,
            _ => others += count,
        }
    }
    Ok(Some((opened, others)))
}
