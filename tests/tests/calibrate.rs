//! `ampere calibrate` as a whole: the stand-in for librocm_smi64 has the delay that its script sets, and a command reports the
//! edges of its square wave.

use ampere_tests::jobs::Place;
use ampere_tests::runs::{attribute, compile, list, number, succeed, text};
use ampere_tests::{artifact, skip_unless};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Sleeps in `busy` and in `rest`, at the times at which the stand-in's wave of that period is high and low. The stand-in's power
/// follows the clock and not the load, so the edges are exact on any machine. At the end it prints the sum of the seconds by
/// which it woke up late.
const WAVE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#define OUT __attribute__((no_instrument_function))
static double late;
OUT static void until(double t) {
    struct timespec s;
    s.tv_sec = (time_t)t;
    s.tv_nsec = (long)((t - (double)s.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &s, NULL) != 0) {}
    clock_gettime(CLOCK_MONOTONIC, &s);
    late += s.tv_sec + s.tv_nsec * 1e-9 - t;
}
void busy(double t) { until(t); }
void rest(double t) { until(t); }
OUT int main(int argc, char **argv) {
    double half = atof(argv[1]) / 2;
    long periods = atol(argv[2]);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long n = (long)((now.tv_sec + now.tv_nsec * 1e-9) / (2 * half)) + 1;
    printf("a line of the program's own\n");
    until(2 * n * half);
    for (long end = n + periods; n < end; n++) {
        printf("edge rise %.0f 0\n", 2 * n * half * 1e9);
        busy((2 * n + 1) * half);
        printf("edge fall %.0f 0\n", (2 * n + 1) * half * 1e9);
        rest((2 * n + 2) * half);
    }
    printf("late %.6f\n", late);
    return argc > 3 ? atoi(argv[3]) : 0;
}
"#;

/// Held by each test that measures, because one of them loads all cores.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wave(place: &Place) -> String {
    compile(place, &["cc", "-O1", "-finstrument-functions"], "wave", WAVE).display().to_string()
}

/// Returns a command with the stand-in for librocm_smi64 as its only source.
fn with_script(place: &Place, script: &str, arguments: &[&str]) -> Command {
    let mut command = place.command(artifact("ampere"));
    command.arg("calibrate").args(arguments).env("AMPERE_COUNTERS", "rocm_smi");
    command
        .env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"))
        .env("STAND_IN_ROCM_SMI", script);
    command
}

fn device<'a>(report: &'a Value, name: &str) -> &'a Value {
    let devices = list(report, "devices");
    devices.iter().find(|device| device["name"] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

/// Checks a figure with a tolerance, because other tests may keep the machine busy, and then readings are late by milliseconds.
#[track_caller]
fn close(device: &Value, key: &str, expected: f64, within: f64) {
    let found = number(device, key);
    assert!((found - expected).abs() < within, "{key}: {found}, not {expected} to {within}: {device:#}");
}

const SCRIPT: &str = "watts=300/50@0.5,400/90@0.5,100,200;lag_ms=120,30,0,0;step_ms=15;error=3:4";

#[test]
fn the_delay_that_was_put_in_is_found_and_used() {
    let _alone = alone();
    let place = Place::new();
    let wave = wave(&place);
    let output = succeed(&mut with_script(&place, SCRIPT, &["--json", "--", &wave, "1", "8"]));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON alone on standard output");
    let said = text(&output.stderr);
    assert!(said.contains("a line of the program's own") && !said.contains("edge"), "{said}");
    assert_eq!(report["schema"], "ampere-calibration/1");
    assert_eq!(report["load"]["periods"], 8);
    close(&report["load"], "period_seconds", 1.0, 1e-6);
    for (name, delay, idle, busy) in [("GPU-0", 0.120, 50.0, 300.0), ("GPU-1", 0.030, 90.0, 400.0)] {
        let device = device(&report, name);
        assert_eq!((&device["verdict"], &device["energy"]), (&"responds".into(), &"simulated".into()));
        close(device, "delay_estimate_seconds", delay, 0.004);
        close(device, "idle_watts", idle, 5.0);
        close(device, "busy_watts", busy, 5.0);
        close(&device["update_seconds"], "median", 0.015, 0.003);
        assert!(number(device, "delay_error_seconds") < 0.01, "{device:#}");
    }
    let constant = device(&report, "GPU-2");
    assert_eq!(
        (&constant["verdict"], &constant["delay_to_set_seconds"]),
        (&"no response".into(), &Value::Null)
    );
    close(constant, "mean_watts", 100.0, 2.0);
    // A counter that cannot be read at all is not listed as a device; the library's error is reported.
    assert!(said.contains("device 3 may not be read") && list(&report, "devices").len() == 3, "{said}");

    let sections = report["settings"].as_str().expect("sections for ampere.toml");
    assert!(sections.contains("name = \"GPU-1\"") && !sections.contains("GPU-2"), "{sections}");
    assert!(sections.contains("# ampere calibrate, 20") && sections.contains("an estimate"), "{sections}");
    let baselines = sections.lines().filter_map(|line| line.strip_prefix("baseline_watts = "));
    let baselines: Vec<f64> = baselines.map(|watts| watts.parse().expect("a number")).collect();
    assert!(baselines.len() == 2 && (baselines[0] - 50.0).abs() < 5.0, "{sections}");
    let file = place.path("ampere.toml");
    std::fs::write(&file, format!("[attribution]\nsharing = \"shared\"\n\n{sections}")).unwrap();
    check_attribution(&place, &wave, &file.display().to_string());
}

/// The power is 300 W for half a second and 50 W for the next, and is reported 120 ms late: without the delay, busy phases would
/// be charged for energy of the idle ones.
#[track_caller]
fn check_attribution(place: &Place, wave: &str, config: &str) {
    let measured = || -> f64 {
        let _ = std::fs::remove_dir_all(place.path("out"));
        let mut run = place.ampere_run("out", [wave, "1", "6"]);
        run.env("AMPERE_COUNTERS", "rocm_smi")
            .env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"));
        let said = text(&succeed(run.env("STAND_IN_ROCM_SMI", SCRIPT)).stdout);
        said.lines().find_map(|line| line.strip_prefix("late ")?.parse().ok()).expect("seconds")
    };
    // If the program was kept from waking up in time, its functions have other joules, and it runs again.
    let late = (0..5).map(|_| measured()).find(|late| *late < 0.1).expect("the program wakes up in time");
    let watts = |name: &str, more: &[&str]| {
        let summary = attribute(&place.path("out/traces.otf2"), more);
        let device = device(&summary, name);
        let regions = list(&device["views"][0], "regions");
        let busy = regions.iter().find(|row| row["region"] == "busy").expect("the program's busy phases");
        number(busy, "exclusive_joules") / number(busy, "exclusive_seconds")
    };
    let (without, with) = (watts("GPU-0", &[]), watts("GPU-0", &["--config", config]));
    let within = 8.0 + 200.0 * late;
    assert!((without - 240.0).abs() < within, "{without} W without a delay, {late} s late");
    assert!((with - 300.0).abs() < within, "{with} W with the delay, {late} s late");
    let active = attribute(&place.path("out/traces.otf2"), &["--config", config, "--policy", "active"]);
    let baseline = &device(&active, "GPU-0")["baseline"];
    assert_eq!(baseline["kind"], "calibrated", "{baseline}");
}

#[test]
fn a_wave_that_is_too_short_is_reported() {
    let _alone = alone();
    let place = Place::new();
    let wave = wave(&place);
    let script = "watts=300/50@0.25,300/50@0.25;step_ms=200;lag_ms=0,10";
    let output = with_script(&place, script, &["--", &wave, "0.5", "8"]).output().unwrap();
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(out.contains("GPU-0: aliased: the counter changes too rarely for a period of 500 ms"), "{out}");
    // The time that would be enough is ten times the time between two changes, which are read late on a busy machine.
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    let before = words.split(" s would be enough").next().unwrap_or_default();
    let enough = before.rsplit(' ').next().and_then(|seconds| seconds.parse::<f64>().ok());
    assert!(enough.is_some_and(|seconds| (1.8..2.2).contains(&seconds)), "{out}");
    assert!(said.contains("ampere: no counter's delay could be found"), "{said}");
    // The terminal shows a picture next to the load.
    assert!(out.contains("  load   █") && out.contains("  GPU-0  "), "{out}");
}

/// Checks that the command ended with this status, and printed `why` and no result.
#[track_caller]
fn fails(output: &Output, status: i32, why: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.lines().any(|line| line.contains(why)), "{why:?} is not in: {said}");
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn a_load_that_makes_no_wave_is_refused() {
    let place = Place::new();
    let wave = wave(&place);
    let run = |arguments: &[&str]| with_script(&place, "watts=100", arguments).output().unwrap();
    for (script, why) in [
        ("exit 3", "sh ended with status 3"),
        ("kill -9 $$", "sh ended by signal 9"),
        ("echo hello", "sh printed no edges: lines \"edge rise NANOSECONDS\""),
        ("echo edge up 5", "sh: \"edge up 5\" is not an edge"),
        ("echo edge rise 5; echo edge fall 6", "sh: too few periods of busy and idle, 1: 4 are needed"),
        (
            "for i in 1 3 5 7 9; do echo edge rise $i; echo edge fall $((i + 1)); done",
            "the times of its edges are not CLOCK_MONOTONIC",
        ),
    ] {
        fails(&run(&["--", "sh", "-c", script]), 1, why);
    }
    fails(&run(&["--", &wave, "0.1", "5", "7"]), 1, "ended with status 7");
    fails(&run(&["--", "./absent"]), 1, "cannot run ./absent: there is no such file");
    fails(&run(&["--period", "x"]), 2, "\"x\" is not a time");
    fails(&run(&["--period", "1ms"]), 2, "too short");
    fails(&run(&["--period", "5s", "--duration", "10s"]), 2, "less than 4 periods of 5s");
    fails(&run(&["--duration", "1000s"]), 2, "too long");
    fails(&run(&["--period", "1s", "--", &wave]), 2, "cannot be used with");
    fails(&run_with(&place, "none"), 1, "there is no counter to calibrate");
    fails(&run_with(&place, "foo"), 1, "\"foo\" is not known");
}

fn run_with(place: &Place, counters: &str) -> Output {
    let mut command = place.command(artifact("ampere"));
    command.arg("calibrate").env("AMPERE_COUNTERS", counters).output().unwrap()
}

#[test]
fn an_interrupt_ends_the_command_too() {
    let place = Place::new();
    let pid_file = place.path("pid");
    let script = format!("echo $$ > {}; exec sleep 100", pid_file.display());
    let mut child = with_script(&place, "watts=100", &["--", "sh", "-c", &script])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = ampere_tests::process::wait_for("the command", Duration::from_secs(60), || {
        std::fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse::<i32>().ok())
    });
    let own = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(own, rustix::process::Signal::TERM).unwrap();
    let begun = Instant::now();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "the command is still running");
}

/// Busy and idle ticks of all cores since the machine was booted.
fn processor_ticks() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/stat").expect("Linux has it");
    let ticks: Vec<u64> = text
        .lines()
        .next()
        .into_iter()
        .flat_map(str::split_whitespace)
        .filter_map(|n| n.parse().ok())
        .collect();
    // user, nice, system, idle, iowait
    let idle = ticks[3] + ticks[4];
    [ticks.iter().take(8).sum::<u64>() - idle, idle]
}

/// The estimate is computed from the CPU time of all cores, as counted by the kernel. It follows the load immediately if no
/// other program uses the machine.
#[test]
fn the_built_in_wave_is_seen_by_the_estimate() {
    let _alone = alone();
    let place = Place::new();
    let mut command = place.command(artifact("ampere"));
    command.args(["calibrate", "--period", "500ms", "--duration", "8s", "--json"]);
    let before = processor_ticks();
    let output = command.output().unwrap();
    let [busy, idle] = [0, 1].map(|at| processor_ticks()[at] - before[at]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON on standard output");
    assert_eq!(report["load"]["kind"], "cpu");
    let node = device(&report, "node");
    assert_eq!(node["energy"], "estimated");
    // The load itself is busy for half of the time.
    skip_unless!(4 * busy < 5 * idle, "other programs use the machine's cores");
    skip_unless!(5 * busy > 4 * idle, "this program may not use all cores of the machine");
    assert_eq!(node["verdict"], "responds", "{node}");
    assert!(number(node, "busy_watts") > number(node, "idle_watts"));
    // CPU time is counted in steps of up to 10 ms. With other tests running, the edges of the load are not where they should be.
    close(node, "delay_estimate_seconds", 0.0, 0.06);
    assert!(report["settings"].as_str().unwrap().contains("metric = 'estimate:::energy'"));
}
