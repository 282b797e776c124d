//! Measures `ampere attribute` on a long trace, compared with OTF2's C library, which reads the same events and does nothing.
//! Both run as whole processes. Two lengths of the trace show that the memory does not depend on the length.

use crate::trace::{Event, ManyPaths, Shape, Walk, Written};
use crate::{Figure, bare, child, median, medians};
use std::path::Path;
use std::process::Command;

const RANKS: u64 = 8;
const DEVICES: u64 = 2;
/// Enters and leaves of all ranks. The devices' samples come in addition.
const EVENTS: u64 = 40_000_000;
const SHORT_EVENTS: u64 = EVENTS / 10;
const PATHS_EVENTS: u64 = EVENTS / 4;
/// Size of the long trace: an event takes 12 bytes, 9 for its timestamp and 3 for the rest. [`child::directory`] uses memory only
/// if twice as much is free, which is enough for the other two traces as well.
const BYTES: u64 = EVENTS * 12;
const ROUNDS: usize = 5;
const MEGABYTES_MAX: f64 = 200.0;

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    let directory = child::directory(BYTES)?;
    let short = write(&directory.path().join("short"), SHORT_EVENTS)?;
    let long = write(&directory.path().join("long"), EVENTS)?;
    let peak = |trace: &Written| -> anyhow::Result<f64> {
        Ok(child::run(&mut child::attribute(&trace.anchor))?.used.peak_megabytes)
    };
    let (peak_short, peak_long) = (peak(&short)?, peak(&long)?);
    let peak_paths = peak(&write_many_paths(&directory.path().join("paths"))?)?;
    std::fs::remove_dir_all(directory.path().join("paths"))?;
    let mut cpu = [const { Vec::new() }; 3];
    let per_event = 1e9 / (long.rank_events + long.samples) as f64;
    let [ours, merged, local] = medians(ROUNDS, |which| {
        let ran = match which {
            0 => child::run(&mut child::attribute(&long.anchor))?,
            1 => read_bare(&long, "merged")?,
            _ => read_bare(&long, "local")?,
        };
        cpu[which].push(ran.used.cpu_seconds * per_event);
        Ok(ran.seconds * per_event)
    })?;
    let [ours_cpu, merged_cpu, local_cpu] = cpu.map(median);
    // This check comes last: it reads large summaries into this process, and a child inherits the peak memory of this process.
    assert_all_read(&short)?;
    assert_all_read(&long)?;
    let figure = |what, unit, value, yardstick, yardstick_value| Figure {
        what,
        value,
        unit,
        yardstick,
        yardstick_value,
    };
    const MERGED: &str = "OTF2's C library reads the same in order and does nothing";
    const LOCAL: &str = "OTF2's C library reads one location after the other";
    Ok(vec![
        figure(
            "attribute: mean time per event (40 million events, 8 ranks, 2 devices), wall",
            "ns",
            ours,
            MERGED,
            merged,
        ),
        figure("attribute: the same, wall", "ns", ours, LOCAL, local),
        figure("attribute: the same, CPU", "ns", ours_cpu, MERGED, merged_cpu),
        figure("attribute: the same, CPU", "ns", ours_cpu, LOCAL, local_cpu),
        figure(
            "attribute: peak resident memory, 4 million events",
            "MB",
            peak_short,
            "at most",
            MEGABYTES_MAX,
        ),
        figure(
            "attribute: peak resident memory, 40 million events",
            "MB",
            peak_long,
            "at most",
            MEGABYTES_MAX,
        ),
        figure(
            "attribute: peak resident memory, 10 million events, 100,000 call paths",
            "MB",
            peak_paths,
            "at most",
            MEGABYTES_MAX,
        ),
    ])
}

fn write(directory: &Path, events: u64) -> anyhow::Result<Written> {
    write_shape(directory, Walk::REGIONS, |rank| Walk::new(rank, events / RANKS))
}

fn write_many_paths(directory: &Path) -> anyhow::Result<Written> {
    write_shape(directory, ManyPaths::REGIONS, |rank| ManyPaths::new(rank, PATHS_EVENTS / RANKS))
}

fn write_shape<I: Iterator<Item = Event>>(
    directory: &Path,
    regions: u32,
    events_of: impl Fn(u64) -> I,
) -> anyhow::Result<Written> {
    std::fs::create_dir(directory)?;
    let shape = Shape { ranks: RANKS, regions, devices: DEVICES, nodes: 1 };
    Ok(shape.write(directory, events_of)?)
}

/// Checks that a summary has all events.
fn assert_all_read(trace: &Written) -> anyhow::Result<()> {
    let ran = child::run(child::attribute(&trace.anchor).arg("--json"))?;
    let summary: serde_json::Value = serde_json::from_slice(&ran.output)?;
    assert_eq!(summary["quality"]["events"].as_u64(), Some(trace.rank_events));
    Ok(())
}

fn read_bare(trace: &Written, order: &str) -> anyhow::Result<child::Ran> {
    let mut command = Command::new(std::env::current_exe()?);
    let ran = child::run(command.args([bare::COMMAND, order]).arg(&trace.anchor))?;
    let events = trace.rank_events + trace.samples;
    assert_eq!(String::from_utf8_lossy(&ran.output).trim(), events.to_string());
    Ok(ran)
}
