//! `tests/programs/counting.c`: a program that counts its calls in a file that survives it, and then ends or fails in one of the
//! ways in which programs do. Also checks what must hold for every run of it, however it
//! ends.

use crate::jobs::{Done, Place, have, run, until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const SOURCE: &str = include_str!("../programs/counting.c");
/// The relative error of a total that rounding may cause.
pub const CONSERVED: f64 = 1e-9;

/// Compiles the program without MPI.
pub fn build_serial(place: &Place) -> PathBuf {
    place.compile("cc", "serial", SOURCE, &["-finstrument-functions", "-pthread", "-ldl"])
}

/// Compiles the program with Open MPI.
pub fn build_mpi(place: &Place) -> PathBuf {
    let options = ["-DWITH_MPI", "-finstrument-functions", "-pthread", "-ldl"];
    place.compile("mpicc.openmpi", "ranks", SOURCE, &options)
}

/// Whether Open MPI is installed.
pub fn have_mpi() -> bool {
    have(&["mpirun.openmpi", "mpicc.openmpi"])
}

/// Returns the command `mpirun -n RANKS PROGRAM ARGUMENTS`.
pub fn mpirun(ranks: u32, program: &Path, arguments: &[&str]) -> Vec<OsString> {
    let count = ranks.to_string();
    let mut words: Vec<OsString> =
        ["mpirun.openmpi", "--oversubscribe", "-n", &count].map(OsString::from).into();
    words.push(program.into());
    words.extend(arguments.iter().map(OsString::from));
    words
}

/// Returns the number of calls of `step` that had returned when the process ended, as the process itself has counted them.
pub fn counted(place: &Place, name: &str) -> u64 {
    let bytes = std::fs::read(place.path(format!("calls.{name}"))).unwrap_or_default();
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Waits until a process has made this number of calls.
#[track_caller]
pub fn until_counted(place: &Place, name: &str, least: u64) {
    until("the program is under way", || counted(place, name) >= least);
}

/// Waits until rank 0 of the program pauses. A file `go` lets it continue.
#[track_caller]
pub fn until_paused(place: &Place) {
    until("the program pauses", || place.path("waits").exists());
}

/// Runs the command without ampere in the same place.
pub fn without_ampere(place: &Place, words: &[OsString]) -> Done {
    let done = run(place.command(&words[0]).args(&words[1..]));
    forget_counts(place);
    done
}

/// Removes the files with the counts.
pub fn forget_counts(place: &Place) {
    for entry in std::fs::read_dir(place.path("")).expect("the place").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("calls.") || ["own", "mine", "waits", "go"].contains(&name.as_str()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Returns the processes of this program, in no particular order.
pub fn ranks(place: &Place, program: &Path) -> Vec<u32> {
    let name = program.to_str().expect("UTF-8");
    let all = place.processes().into_iter();
    all.filter(|(_, command)| command.starts_with(name)).map(|(pid, _)| pid).collect()
}

/// Returns the number of calls of a region by location group, over all call paths that end in it.
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

/// Returns the number of calls of a region in all processes.
pub fn total_calls(summary: &Value, region: &str) -> u64 {
    calls(summary, region).values().sum()
}

/// Checks that a device's joules are the sum of those attributed, idle and lost, in every view.
#[track_caller]
pub fn assert_conserved(summary: &Value) {
    let devices = summary["devices"].as_array().expect("devices");
    assert!(!devices.is_empty(), "{}", summary["run"]);
    for device in devices {
        let total = device["total_joules"].as_f64().expect("joules");
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

/// Checks that the results of a run are consistent: the summary can be read, its joules are conserved, and the trace has the same
/// figures. Returns the summary.
#[track_caller]
pub fn assert_whole_results(place: &Place, output: &str) -> Value {
    let summary = place.summary(output);
    assert_conserved(&summary);
    let traced = assert_trace_readable(place, output);
    assert_conserved(&traced);
    assert_eq!(summary["run"]["complete"], traced["run"]["complete"], "as in the trace: {}", traced["run"]);
    assert_eq!(calls(&summary, "step"), calls(&traced, "step"));
    let (live, traced) = (&summary["devices"][0]["total_joules"], &traced["devices"][0]["total_joules"]);
    assert_eq!(live, traced, "the counter's increase");
    summary
}

/// Like [`assert_whole_results`], for a run in which energy was measured; checks whether it is complete.
#[track_caller]
pub fn check(place: &Place, output: &str, complete: bool) -> Value {
    let summary = assert_whole_results(place, output);
    assert_eq!(summary["run"]["complete"], complete, "{}", summary["run"]);
    for device in summary["devices"].as_array().expect("devices") {
        assert!(device["total_joules"].as_f64() > Some(0.0), "{device}");
    }
    summary
}

/// Attributes the trace with `ampere attribute`, and checks that OTF2's own tool can read it as well.
#[track_caller]
pub fn assert_trace_readable(place: &Place, output: &str) -> Value {
    let trace = place.path(output).join("traces.otf2");
    if have(&["otf2-print"]) {
        let printed = run(place.command("otf2-print").arg("--silent").arg(&trace));
        assert_eq!(printed.code, 0, "{printed:#?}");
    }
    let again = run(place.ampere(["attribute", "--json"]).arg(&trace));
    assert_eq!(again.code, 0, "{again:#?}");
    crate::runs::parse(&again.stdout).expect("JSON")
}

/// Checks that every call that a rank has counted is in its figures. There may be one more: a call that had not returned.
#[track_caller]
pub fn assert_every_call_recorded(place: &Place, summary: &Value, ranks: u32) {
    let calls = calls(summary, "step");
    for rank in 0..ranks {
        let name = format!("MPI Rank {rank}");
        let (recorded, made) = (calls.get(&name).copied().unwrap_or(0), counted(place, &rank.to_string()));
        assert!(
            (made..=made + 1).contains(&recorded),
            "{name} made {made} calls, {recorded} are recorded: {calls:?}"
        );
    }
}
