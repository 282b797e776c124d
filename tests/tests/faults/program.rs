//! The program that things happen to, and what has to be so afterwards.

use ampere_tests::jobs::{Done, Place, have, run, until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

const SOURCE: &str = include_str!("../../programs/faults.c");
/// Of the total: what rounding may leave.
pub const CONSERVED: f64 = 1e-9;

pub fn alone(place: &Place) -> PathBuf {
    place.compile("cc", "alone", SOURCE, &["-finstrument-functions", "-pthread", "-ldl"])
}

pub fn mpi(place: &Place) -> PathBuf {
    place.compile(
        "mpicc.openmpi",
        "ranks",
        SOURCE,
        &["-DWITH_MPI", "-finstrument-functions", "-pthread", "-ldl"],
    )
}

/// `mpirun -n RANKS PROGRAM ARGUMENTS`.
pub fn mpirun(ranks: u32, program: &PathBuf, arguments: &[&str]) -> Vec<OsString> {
    let count = ranks.to_string();
    let mut words: Vec<OsString> =
        ["mpirun.openmpi", "--oversubscribe", "-n", &count].map(OsString::from).into();
    words.push(program.into());
    words.extend(arguments.iter().map(OsString::from));
    words
}

/// Calls of `step` that had come back when the process ended: what it has written down itself.
pub fn counted(place: &Place, name: &str) -> u64 {
    let bytes = std::fs::read(place.path(&format!("calls.{name}"))).unwrap_or_default();
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

pub fn until_counted(place: &Place, name: &str, least: u64) {
    until("the program is under way", || counted(place, name) >= least);
}

/// Without ampere, in the same place.
pub fn plain(place: &Place, words: &[OsString]) -> Done {
    let done = run(place.command(&words[0]).args(&words[1..]));
    forget_counts(place);
    done
}

pub fn forget_counts(place: &Place) {
    for entry in std::fs::read_dir(place.path("")).expect("the place").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("calls.") || ["own", "mine", "waits", "go"].contains(&name.as_str()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Calls of a region by location group, over all call paths that end in it.
pub fn calls(summary: &Value, region: &str) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for row in summary["devices"][0]["views"][0]["callpaths"].as_array().into_iter().flatten() {
        let last = row["path"].as_array().and_then(|path| path.last()).and_then(Value::as_str);
        if last == Some(region) {
            let group = row["location_group"].as_str().unwrap_or_default().to_owned();
            *calls.entry(group).or_insert(0) += row["calls"].as_u64().unwrap_or(0);
        }
    }
    calls
}

/// Every joule of every device is somebody's, idle or lost, in every view.
#[track_caller]
pub fn is_conserved(summary: &Value) {
    let devices = summary["devices"].as_array().expect("devices");
    assert!(!devices.is_empty(), "{}", summary["run"]);
    for device in devices {
        let total = device["total_joules"].as_f64().expect("joules");
        assert!(total > 0.0, "{device}");
        for view in device["views"].as_array().expect("views") {
            let parts = ["attributed_joules", "idle_joules", "lost_joules"];
            let sum: f64 = parts.iter().map(|part| view[part].as_f64().expect("joules")).sum();
            assert!((sum - total).abs() <= CONSERVED * total, "{sum} J of {total} J in {view}");
        }
    }
    let error = summary["quality"]["conservation_error_joules"].as_f64().expect("an error");
    let total = devices[0]["total_joules"].as_f64().expect("joules");
    assert!(error <= CONSERVED * total, "{error} J of {total} J");
}

/// What a run left is whole: it can be read, adds up, and the trace says the same as the summary. Gives the summary.
#[track_caller]
pub fn check(place: &Place, output: &str, complete: bool) -> Value {
    let summary = place.summary(output);
    assert_eq!(summary["run"]["complete"], complete, "{}", summary["run"]);
    is_conserved(&summary);
    let traced = read_trace(place, output);
    is_conserved(&traced);
    assert_eq!(traced["run"]["complete"], complete, "the trace knows: {}", traced["run"]);
    assert_eq!(calls(&summary, "step"), calls(&traced, "step"));
    let (shown, read) = (&summary["devices"][0]["total_joules"], &traced["devices"][0]["total_joules"]);
    assert_eq!(shown, read, "the counter's increase");
    summary
}

/// The trace, read back by OTF2's own tool, and attributed again.
#[track_caller]
pub fn read_trace(place: &Place, output: &str) -> Value {
    let trace = place.path(output).join("traces.otf2");
    if have(&["otf2-print"]) {
        let printed = run(place.command("otf2-print").arg("--silent").arg(&trace));
        assert_eq!(printed.code, 0, "{printed:#?}");
    }
    let again = run(place.ampere(["attribute", "--json"]).arg(&trace));
    assert_eq!(again.code, 0, "{again:#?}");
    serde_json::from_str(&again.stdout).expect("JSON")
}

/// Every call that a process has counted before its end is in its figures, and none too many: one can have been under way.
#[track_caller]
pub fn nothing_is_missing(place: &Place, summary: &Value, ranks: u32) {
    let calls = calls(summary, "step");
    for rank in 0..ranks {
        let name = format!("MPI Rank {rank}");
        let (told, did) = (calls.get(&name).copied().unwrap_or(0), counted(place, &rank.to_string()));
        assert!(
            did > 0 && (did..=did + 1).contains(&told),
            "{name} made {did} calls, {told} are there: {calls:?}"
        );
    }
}
