//! Runs under a real Score-P, if there is one on the PATH.

mod languages;
mod messages;
mod opencl;
mod profile;

use ampere_tests::jobs::Place;
use ampere_tests::runs::{attribute, compile, json, list, number, on_path, succeed, text};
use ampere_tests::{artifact, skip_unless};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const RING: &str = r#"
#include <mpi.h>
static double work(int n) { volatile double s = 0; for (int i = 0; i < n; i++) s += 1.0 / (1 + i); return s; }
int main(int c, char **v) {
    int r, n; double x, y = 0;
    MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &r); MPI_Comm_size(MPI_COMM_WORLD, &n);
    x = r;
    for (int i = 0; i < 20; i++) {
        MPI_Sendrecv(&x, 1, MPI_DOUBLE, (r + 1) % n, 0, &y, 1, MPI_DOUBLE, (r + n - 1) % n, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#ifdef _OPENMP
#pragma omp parallel num_threads(2)
#endif
        { work(2000000); }
        MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
"#;

/// Returns the number of enters and leaves per location, by otf2-print.
fn counts(trace: &Path) -> BTreeMap<String, usize> {
    let printed = text(&succeed(Command::new("otf2-print").arg(trace)).stdout);
    let mut counts = BTreeMap::new();
    for line in printed.lines().filter(|l| l.starts_with("ENTER") || l.starts_with("LEAVE")) {
        let mut words = line.split_whitespace();
        let key = format!("{} {}", words.next().unwrap_or_default(), words.next().unwrap_or_default());
        *counts.entry(key).or_insert(0) += 1;
    }
    counts
}

fn under_score_p(openmp: bool, timer: &str) {
    skip_unless!(on_path("scorep") && on_path("mpirun") && on_path("otf2-print"), "no scorep on the PATH");
    let place = Place::new();
    let mut compiler = vec!["scorep", "mpicc", "-O1", "-g"];
    if openmp {
        compiler.push("-fopenmp");
    }
    let program = compile(&place, &compiler, "ring", RING);
    let theirs = place.path("scorep");
    let mut command = place.command("mpirun");
    command
        .args(["--oversubscribe", "-n", "2"])
        .arg(&program)
        .env("SCOREP_SUBSTRATE_PLUGINS", "ampere")
        .env("LD_LIBRARY_PATH", artifact("libscorep_substrate_ampere.so").parent().unwrap())
        .env("SCOREP_TIMER", timer)
        .env("AMPERE_OUTPUT", place.path("out"))
        // Score-P's own trace of the same run is compared.
        .env("SCOREP_ENABLE_PROFILING", "false")
        .env("SCOREP_ENABLE_TRACING", "true")
        .env("SCOREP_EXPERIMENT_DIRECTORY", &theirs);
    succeed(&mut command);
    assert_eq!(counts(&place.path("out/traces.otf2")), counts(&theirs.join("traces.otf2")));
    let summary = json(&place.path("out/summary.json"));
    assert_eq!(summary["run"]["host"], "score-p");
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    assert_eq!(summary["run"]["ranks"], 2);
    let view = &summary["devices"][0]["views"][0];
    let calls = |region: &str| {
        list(view, "regions").iter().find(|r| r["region"] == region).map(|r| number(r, "calls"))
    };
    assert_eq!(calls("MPI_Allreduce"), Some(40.0));
    assert_eq!(calls("main"), Some(2.0));
    assert!(number(&summary["quality"], "conservation_error_joules") < 1e-6);
    place.assert_clean();
}

#[test]
fn an_mpi_program() {
    under_score_p(false, "tsc");
}

#[test]
fn an_mpi_and_openmp_program() {
    under_score_p(true, "tsc");
}

#[test]
fn with_other_timers() {
    under_score_p(false, "gettimeofday");
    under_score_p(false, "clock_gettime");
}

const PHASES: &str = r#"
#ifdef USE_MPI
#include <mpi.h>
#endif
static double work(int n) { volatile double s = 0; for (int i = 0; i < n; i++) s += 1.0 / (1 + i); return s; }
int main(int c, char **v) {
#ifdef USE_MPI
    MPI_Init(&c, &v);
#endif
    for (int i = 0; i < 10; i++) work(15000000);
#ifdef USE_MPI
    MPI_Finalize();
#endif
    return 0;
}
"#;

/// A metric in Score-P's trace, by otf2-print.
#[derive(Debug, Default)]
struct Metric {
    definition: String,
    /// The times in ticks, and the raw values.
    samples: Vec<(u64, u64)>,
}

/// Returns the metrics by name, and the ticks of a second.
fn metrics_in(trace: &Path) -> (BTreeMap<String, Metric>, f64) {
    let definitions = text(&succeed(Command::new("otf2-print").arg("-G").arg(trace)).stdout);
    let name_in = |line: &str| line.split('"').nth(1).unwrap_or_default().to_owned();
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let is_counter = |line: &&str| !line.contains("attributed power");
    for line in definitions.lines().filter(is_counter).filter(|line| line.starts_with("METRIC_MEMBER")) {
        metrics.insert(name_in(line), Metric { definition: line.to_owned(), samples: Vec::new() });
    }
    let clock = definitions.lines().find(|line| line.starts_with("CLOCK_PROPERTIES")).unwrap();
    let ticks = clock.split("Ticks per Seconds: ").nth(1).unwrap().split(',').next().unwrap();
    let events = text(&succeed(Command::new("otf2-print").arg(trace)).stdout);
    for line in events.lines().filter(is_counter).filter(|line| line.starts_with("METRIC ")) {
        let time = line.split_whitespace().nth(2).unwrap().parse().unwrap();
        let value = line.rsplit("; ").next().unwrap().trim_end_matches(')').parse().unwrap();
        metrics.get_mut(&name_in(line)).unwrap().samples.push((time, value));
    }
    (metrics, ticks.parse().unwrap())
}

impl Metric {
    /// Checks that values rise or stay the same. Returns watts.
    #[track_caller]
    fn watts(&self, ticks_per_second: f64) -> f64 {
        assert!(self.samples.len() > 20, "{self:?}");
        assert!(
            self.samples.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1),
            "{self:?}"
        );
        let (first, last) = (self.samples[0], self.samples[self.samples.len() - 1]);
        1e-6 * (last.1 - first.1) as f64 * ticks_per_second / (last.0 - first.0) as f64
    }
}

/// Returns a run under Score-P with the metric plugin, and the path of Score-P's trace.
fn with_metrics(place: &Place, patterns: &str) -> (Command, PathBuf) {
    let program = compile(place, &["scorep", "mpicc", "-O1", "-g", "-DUSE_MPI"], "phases", PHASES);
    let mut command = place.command("mpirun");
    command.args(["--oversubscribe", "-n", "2"]).arg(program);
    let trace = ask_for_metrics(&mut command, place, patterns);
    (command, trace)
}

fn ask_for_metrics(command: &mut Command, place: &Place, patterns: &str) -> PathBuf {
    let theirs = place.path("scorep");
    command
        .env("SCOREP_METRIC_PLUGINS", "ampere_plugin")
        .env("SCOREP_METRIC_AMPERE_PLUGIN", patterns)
        .env("LD_LIBRARY_PATH", artifact("libampere_plugin.so").parent().unwrap())
        .env("AMPERE_OUTPUT", place.path("out"))
        .env("SCOREP_ENABLE_PROFILING", "false")
        .env("SCOREP_ENABLE_TRACING", "true")
        .env("SCOREP_EXPERIMENT_DIRECTORY", &theirs);
    theirs.join("traces.otf2")
}

fn simulate(command: &mut Command, script: &str) {
    command.env("AMPERE_COUNTERS", "rocm_smi,estimate").env("STAND_IN_ROCM_SMI", script);
    command.env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"));
}

#[test]
fn the_counters_are_in_score_ps_own_trace() {
    skip_unless!(on_path("scorep") && on_path("mpirun") && on_path("otf2-print"), "no scorep on the PATH");
    for timer in ["tsc", "gettimeofday", "clock_gettime"] {
        let place = Place::new();
        let (mut command, trace) = with_metrics(&place, "rocm_smi:::energy_count:device=*,A2*device=1");
        simulate(&mut command, "watts=300,150");
        let output = succeed(command.env("SCOREP_TIMER", timer));
        assert_eq!(text(&output.stderr), "");
        let (metrics, ticks) = metrics_in(&trace);
        let names: Vec<&String> = metrics.keys().collect();
        assert_eq!(
            names,
            [
                "A2rocm_smi:::energy_count:device=1",
                "rocm_smi:::energy_count:device=0",
                "rocm_smi:::energy_count:device=1"
            ]
        );
        for (name, metric) in &metrics {
            let expected = if name.ends_with('0') { 300.0 } else { 150.0 };
            let watts = metric.watts(ticks);
            assert!((watts - expected).abs() < 0.02 * expected, "{name} by {timer}: {watts} W");
            for part in ["Mode: ACCUMULATED_START", "UINT64", "DECIMAL", "Exponent: -6", "\"J\"", "simulated"]
            {
                assert!(metric.definition.contains(part), "{part} in {}", metric.definition);
            }
        }
        // Energy can be attributed in this trace: the ranks work, and wait for each other at the end.
        let attributed = attribute(&trace, &[]);
        let devices = list(&attributed, "devices");
        assert_eq!(devices.len(), 3);
        let work = &list(&devices[0]["views"][0], "regions")[0];
        assert_eq!((&work["region"], number(work, "calls")), (&"work".into(), 20.0));
        let total = number(&devices[0], "total_joules");
        assert!(number(work, "exclusive_joules") > 0.6 * total, "{work} of {total} J");
        assert!(number(&devices[0]["views"][0], "attributed_joules") > 0.95 * total, "{}", devices[0]);
        assert_eq!(attributed["run"]["energy"], "simulated");
        // The metric plugin alone writes no results of ampere, and leaves nothing behind.
        assert!(!place.path("out").exists());
        place.assert_clean();
    }
}

/// One collector reads the counters, so Score-P's trace and that of ampere have the same samples.
#[test]
fn both_plugins_read_the_same_samples() {
    skip_unless!(on_path("scorep") && on_path("mpirun") && on_path("otf2-print"), "no scorep on the PATH");
    let place = Place::new();
    let (mut command, trace) = with_metrics(&place, "*");
    simulate(&mut command, "watts=300/100@0.05");
    let output = succeed(command.env("SCOREP_SUBSTRATE_PLUGINS", "ampere"));
    assert!(text(&output.stderr).starts_with("ampere: energy summary in"), "{}", text(&output.stderr));
    place.assert_clean();
    let (theirs, _) = metrics_in(&trace);
    let (mut ours, _) = metrics_in(&place.path("out/traces.otf2"));
    assert!(ours.remove("ampere::cpu_time").is_some(), "times on a CPU are in our trace alone");
    assert_eq!(theirs.keys().collect::<Vec<_>>(), ours.keys().collect::<Vec<_>>());
    for (name, metric) in &theirs {
        // Ampere's samples start earlier and end later, and are in nanojoules; where both have samples, these are equal.
        let (first, last) = (metric.samples[0].0, metric.samples[metric.samples.len() - 1].0);
        let same: Vec<(u64, u64)> = ours[name]
            .samples
            .iter()
            .filter(|(time, _)| (first..=last).contains(time))
            .map(|(time, nanojoules)| (*time, nanojoules / 1000))
            .collect();
        assert_eq!(metric.samples, same, "{name}");
    }
    // With another timer, the session's samples have other timestamps than Score-P's series, whose times are from another
    // clock.
    let place = Place::new();
    let (mut command, trace) = with_metrics(&place, "*device=0");
    simulate(&mut command, "watts=300");
    succeed(command.env("SCOREP_SUBSTRATE_PLUGINS", "ampere").env("SCOREP_TIMER", "gettimeofday"));
    let (metrics, ticks) = metrics_in(&trace);
    let watts = metrics["rocm_smi:::energy_count:device=0"].watts(ticks);
    assert!((watts - 300.0).abs() < 6.0, "{watts} W");
}

#[test]
fn a_metric_that_is_missing_is_named_in_one_line() {
    skip_unless!(on_path("scorep") && on_path("mpirun") && on_path("otf2-print"), "no scorep on the PATH");
    let place = Place::new();
    let (mut command, trace) = with_metrics(&place, "estimate:::energy,rocm_smi:::energy_count:device=7");
    simulate(&mut command, "watts=300");
    // Score-P may print warnings as well, for example about its timer.
    let ours = |said: &str| said.lines().filter(|line| line.starts_with("ampere:")).count();
    let said = text(&succeed(&mut command).stderr);
    assert_eq!(ours(&said), 1, "{said}");
    assert!(said.contains("no counter is called \"rocm_smi:::energy_count:device=7\": use one of"), "{said}");
    let (metrics, ticks) = metrics_in(&trace);
    assert_eq!(metrics.len(), 1);
    assert!(metrics["estimate:::energy"].watts(ticks) > 50.0);
    // In this case counters cannot be opened at all.
    let (mut command, trace) = with_metrics(&place, "*");
    command.env("AMPERE_CONFIG", "/nowhere.toml").env("SCOREP_OVERWRITE_EXPERIMENT_DIRECTORY", "true");
    let said = text(&succeed(&mut command).stderr);
    assert!(ours(&said) == 1 && said.contains("/nowhere.toml"), "{said}");
    assert!(metrics_in(&trace).0.is_empty());
    // Score-P's profile does not permit such metrics: Score-P prints a warning, and ampere explains what to do.
    let (mut command, _) = with_metrics(&place, "*");
    let said = text(&succeed(command.env("SCOREP_ENABLE_PROFILING", "true")).stderr);
    assert!(ours(&said) == 1 && said.contains("SCOREP_ENABLE_PROFILING=false"), "{said}");
}

#[test]
fn a_program_without_mpi_has_metrics_too() {
    skip_unless!(on_path("scorep") && on_path("otf2-print"), "no scorep on the PATH");
    let place = Place::new();
    let program = compile(&place, &["scorep", "gcc", "-O1"], "phases", PHASES);
    let mut command = place.command(program);
    let trace = ask_for_metrics(&mut command, &place, "estimate:::*");
    assert_eq!(text(&succeed(&mut command).stderr), "");
    let (metrics, ticks) = metrics_in(&trace);
    assert!(metrics["estimate:::energy"].watts(ticks) > 50.0);
}
