//! `ampere attribute` of a long trace against OTF2's C library, which reads the same events and does nothing; both as whole
//! processes. And of traces of two lengths, because its memory must not depend on the length.

use crate::trace::{Shape, Walk, Written};
use crate::{Figure, bare, child, median};
use std::path::Path;
use std::process::Command;

const RANKS: u64 = 8;
const DEVICES: u64 = 2;
/// Of all ranks; the devices' samples come on top.
const EVENTS: u64 = 40_000_000;
const EVENTS_OF_SHORT: u64 = EVENTS / 10;
/// An event of the trace is 12 bytes: a timestamp of 9, and 3.
const BYTES: u64 = EVENTS * 12;
const ROUNDS: usize = 5;
const MEGABYTES_MAX: f64 = 200.0;

pub fn figures() -> Result<Vec<Figure>, String> {
    let directory = child::directory(BYTES);
    let short = write(&directory.path().join("short"), EVENTS_OF_SHORT);
    let long = write(&directory.path().join("long"), EVENTS);
    let peak = |trace: &Written| child::run(&mut child::attribute(&trace.anchor)).peak_megabytes;
    let (peak_of_short, peak_of_long) = (peak(&short), peak(&long));
    let (mut ours, mut merged, mut local) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(child::run(&mut child::attribute(&long.anchor)).seconds);
        merged.push(read_bare(&long, "merged"));
        local.push(read_bare(&long, "local"));
    }
    // Last, because these summaries are large, and this program's peak is a child's least.
    assert_all_read(&short);
    assert_all_read(&long);
    let per_event = |seconds| median(seconds) * 1e9 / (long.calls + long.samples) as f64;
    let (ours, merged, local) = (per_event(ours), per_event(merged), per_event(local));
    Ok(vec![
        Figure {
            what: "attribute: an event of 40 million, 8 ranks, 2 devices",
            value: ours,
            unit: "ns",
            yardstick: "OTF2's C library reads the same, does nothing; to reach: 1.5 x",
            yardstick_value: merged,
        },
        Figure {
            what: "attribute: the same",
            value: ours,
            unit: "ns",
            yardstick: "the C library location by location, in no order",
            yardstick_value: local,
        },
        Figure {
            what: "attribute: most memory resident, 4 million events",
            value: peak_of_short,
            unit: "MB",
            yardstick: "at most",
            yardstick_value: MEGABYTES_MAX,
        },
        Figure {
            what: "attribute: most memory resident, 40 million events",
            value: peak_of_long,
            unit: "MB",
            yardstick: "at most",
            yardstick_value: MEGABYTES_MAX,
        },
    ])
}

fn write(directory: &Path, events: u64) -> Written {
    std::fs::create_dir(directory).expect("a new directory");
    let shape = Shape { ranks: RANKS, regions: Walk::REGIONS, devices: DEVICES };
    shape.write(directory, |rank| Walk::new(rank, events / RANKS)).expect("a trace")
}

/// That a summary has all of its events.
fn assert_all_read(trace: &Written) {
    let ran = child::run(child::attribute(&trace.anchor).arg("--json"));
    let summary: serde_json::Value = serde_json::from_slice(&ran.output).expect("a summary");
    assert_eq!(summary["quality"]["events"].as_u64(), Some(trace.calls));
}

/// Seconds.
fn read_bare(trace: &Written, order: &str) -> f64 {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let ran = child::run(command.args([bare::COMMAND, order]).arg(&trace.anchor));
    let events = trace.calls + trace.samples;
    assert_eq!(String::from_utf8_lossy(&ran.output).trim(), events.to_string());
    ran.seconds
}
