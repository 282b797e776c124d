//! Collectors that are killed, alone or with the program: nothing that was recorded is lost, and `ampere recover` finishes the
//! runs that were cut off.

mod cut_off;
mod killed_together;
mod leftovers;
mod replaced;

use ampere_tests::collector::{announced, events};
use ampere_tests::counting_program::have_mpi;
use ampere_tests::jobs::{Done, Place, Running, WAITS, built, files_below, kill, run, start, until};
use ampere_tests::runs::{attribute, list, may_mount, may_sample, number, relative};
use ampere_tests::skip_unless;
use ampere_tests::stand_ins::with_rocm_smi;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Two devices of constant power with absolute counters, so that the joules are known for every process that reads them.
const GPUS: &str = "watts=300,90; epoch=0";
const WATTS: [f64; 2] = [300.0, 90.0];

/// A program that makes a known number of steps. Each has a known number of calls, and takes half a millisecond. After the number
/// of steps in its third argument, it waits until there is a file `go`.
pub const STEPS: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    __attribute__((noinline)) void tiny(void) { __asm__ volatile(""); }
    __attribute__((noinline)) void step(int calls) { for (int i = 0; i < calls; i++) tiny(); usleep(500); }
    int main(int argc, char **argv) {
        int steps = atoi(argv[1]), calls = atoi(argv[2]), pause = argc > 3 ? atoi(argv[3]) : -1;
        for (int i = 0; i < steps; i++) {
            while (i == pause && access("go", F_OK)) usleep(1000);
            step(calls);
        }
        printf("%d steps\n", steps);
        return 7;
    }
"#;

fn program(place: &Place, source: &str) -> PathBuf {
    let name = if source == STEPS { "steps" } else { "waits" };
    place.compile("cc", name, source, &["-finstrument-functions"])
}

/// Sets the counters whose joules are known.
fn with_gpus(command: &mut Command) -> &mut Command {
    with_rocm_smi(command, GPUS)
}

fn with_estimate(command: &mut Command) -> &mut Command {
    command.env("AMPERE_COUNTERS", "estimate")
}

/// Waits until all killed processes are dead. A process that is dying no longer has an environment by which it could be found,
/// but still holds its lock for a moment.
fn until_all_are_dead(place: &Place) {
    place.no_process_left();
    until("no lock is held", || {
        let pages = files_below(&place.path("shm")).into_iter();
        let mut sessions = pages.filter(|path| path.ends_with("session")).filter_map(|path| {
            let directory = path.parent()?;
            ampere_ring::Session::open(directory).ok()
        });
        sessions.all(|session| session.locks() == ampere_ring::Locks::default())
    });
}

/// Waits until the collector has read at least this number of events.
#[track_caller]
fn until_events(place: &Place, output: &str, least: u64) {
    until("the collector reads events", || events(&place.path(output)) >= least);
}

fn session_page(place: &Place) -> PathBuf {
    let page = files_below(&place.path("shm")).into_iter().find(|path| path.ends_with("session"));
    page.expect("a session")
}

/// Returns the run's session directory in shared memory.
fn session_directory(place: &Place) -> PathBuf {
    session_page(place).parent().expect("its directory").to_owned()
}

/// Kills the collector and then `ampere run`, which has no time to start another collector.
fn kill_with_ampere_run(place: &Place, running: &Running, collector: u32) {
    let session = ampere_ring::Session::open(&session_directory(place)).expect("a session");
    running.signal(Signal::STOP);
    kill(collector);
    until("the collector is dead", || place.collectors().is_empty() && !session.collector_is_alive());
    running.signal(Signal::KILL);
    // As long as `ampere run` holds its lock, the program's last process leaves the end of the run to it.
    until("`ampere run` is dead", || !session.is_waited_for());
}

fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Returns the processes of a place whose command line has this word.
fn processes_with(place: &Place, word: &str) -> Vec<u32> {
    place.processes().into_iter().filter(|(_, command)| command.contains(word)).map(|(pid, _)| pid).collect()
}

/// Returns the process ID of the running collector that the output directory announces, other than those in `not`.
fn collector(place: &Place, output: &str, not: &[u32]) -> u32 {
    let mut found = 0;
    until("a collector runs", || {
        found =
            announced(&place.path(output)).map_or(0, |collector| collector.pid.as_raw_nonzero().get() as u32);
        found != 0 && !not.contains(&found) && Path::new(&format!("/proc/{found}")).exists()
    });
    found
}

/// Number of calls by region, over all processes.
fn calls(summary: &Value) -> BTreeMap<String, u64> {
    let regions = list(&summary["devices"][0]["views"][0], "regions");
    let name = |row: &Value| row["region"].as_str().unwrap_or_default().to_owned();
    regions.iter().map(|row| (name(row), number(row, "calls") as u64)).collect()
}

/// Checks that no joule is missing or counted twice.
#[track_caller]
fn check_conserved(summary: &Value, with_gpus: bool) {
    let mut errors = Vec::new();
    for (at, device) in list(summary, "devices").iter().enumerate() {
        let total = number(device, "total_joules");
        for view in list(device, "views") {
            let parts = ["attributed_joules", "idle_joules", "lost_joules"].map(|key| number(view, key));
            assert!(relative(parts.iter().sum(), total) < 1e-9, "{device:#}");
        }
        if with_gpus {
            errors.push((total / WATTS[at] - number(device, "sampled_seconds")).abs());
        }
    }
    if with_gpus {
        // The first tolerance, in seconds, is a step of the counter, and the time that a reading may take between the counter and
        // its timestamp. A collector does not repeat its first reading of a device, so an interruption makes one device less
        // exact. If joules are lost or counted twice, both devices are off.
        errors.sort_by(f64::total_cmp);
        assert!(errors[0] < 0.01 && errors[1] < 0.1, "off by {errors:?} s: {:#}", summary["devices"]);
    }
    assert_eq!(summary["quality"]["counter_resets"], 0);
    if with_gpus {
        let gaps = summary["run"]["gaps"].as_array().into_iter().flatten();
        // The seconds by which the joules of each gap are off, beyond a twentieth of the gap.
        let of_gap = |gap: &Value| {
            let (joules, seconds) = (gap["joules"].as_f64()?, number(gap, "seconds"));
            Some((joules / WATTS.iter().sum::<f64>() - seconds).abs() - 0.05 * seconds)
        };
        let mut off: Vec<f64> = gaps.filter_map(of_gap).collect();
        off.sort_by(f64::total_cmp);
        // The first reading after a gap is not repeated, either: if it was interrupted, that gap is less exact.
        let worst = off.pop().unwrap_or(0.0);
        assert!(
            worst < 0.1 && off.iter().all(|seconds| *seconds < 0.005),
            "{worst} s, {off:?}: {}",
            summary["run"]
        );
    }
}

/// Checks that the trace has the same calls and joules as the summary.
#[track_caller]
fn check_trace(place: &Place, output: &str) {
    let (live, again) = (place.summary(output), attribute(&place.path(output).join("traces.otf2"), &[]));
    assert_eq!(calls(&live), calls(&again));
    for (live, again) in list(&live, "devices").iter().zip(list(&again, "devices")) {
        assert!(relative(number(live, "total_joules"), number(again, "total_joules")) < 1e-9);
        let regions = |device: &Value| list(&device["views"][0], "regions").clone();
        for row in regions(live) {
            let same = regions(again).into_iter().find(|other| other["region"] == row["region"]);
            let same = same.unwrap_or_else(|| panic!("no {} in the trace", row["region"]));
            for key in ["exclusive_joules", "inclusive_joules", "exclusive_seconds"] {
                let (a, b) = (number(&row, key), number(&same, key));
                assert!(
                    relative(a, b) < 1e-6 || (a - b).abs() < 1e-6,
                    "{key} of {}: {a} and {b}",
                    row["region"]
                );
            }
        }
    }
}

/// Checks that the command did what it does without ampere, and that all its calls are in the results.
#[track_caller]
fn check_steps(place: &Place, output: &str, done: &Done, steps: u64, per_step: u64) {
    assert_eq!((done.code, done.stdout.as_str()), (7, format!("{steps} steps\n").as_str()), "{done:#?}");
    done.no_panic();
    assert!(place.path(output).join("summary.json").exists(), "no summary: {done:#?}");
    let summary = place.summary(output);
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    for key in ["suppressed_calls", "dropped_records", "repaired_events", "damaged_records"] {
        assert_eq!(summary["quality"][key], 0, "{key}");
    }
    let calls = calls(&summary);
    let seen = (calls["main"], calls["step"], calls["tiny"]);
    let (run, quality) = (&summary["run"], &summary["quality"]);
    assert_eq!(seen, (1, steps, steps * per_step), "calls of main, step and tiny: {run} {quality}");
    check_trace(place, output);
    assert!(!place.path(output).join("collector.json").exists());
    let left = files_below(&place.path(output));
    assert!(left.iter().all(|path| path.extension().is_none_or(|e| e != "records")), "{left:?}");
    place.assert_clean();
}
