//! The attributed power of each location in the trace.

use ampere_tests::jobs::Place;
use ampere_tests::power::assert_power_matches_summary;
use ampere_tests::runs::{
    assert_same_figures, attribute, compile, figures, has_python_otf2, json, list, number, on_path,
    recorded_trace, stencil, succeed, text,
};
use ampere_tests::skip_unless;
use ampere_tests::stand_ins::with_rocm_smi;
use std::path::Path;
use std::process::Command;

fn has_power(trace: &Path) -> bool {
    text(&succeed(Command::new("otf2-print").arg("-G").arg(trace)).stdout).contains("attributed power")
}

/// Two GPUs have counters that change at different times, in runs with and without the power.
#[test]
fn the_integral_of_a_ranks_power_is_its_joules() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    skip_unless!(has_python_otf2() && on_path("otf2-print"), "no python3-otf2");
    let place = Place::new();
    let run = |output: &str, power: &str, locations: &str| {
        let mut command = place.ampere_run(output, ["mpirun", "--oversubscribe", "-n", "2", &stencil(), "1"]);
        let command = with_rocm_smi(&mut command, "watts=300/100@0.05,150");
        succeed(command.env("AMPERE_TRACE_POWER", power).env("AMPERE_LOCATIONS", locations));
        place.path(output)
    };
    for (output, locations) in [("main", "main"), ("all", "all")] {
        let run = run(output, "on", locations);
        let (with_power, values) = assert_power_matches_summary(&run);
        assert_eq!(with_power, 2);
        // There is at most one value per 10 ms and rank, and at least as many as changing counters require, even if the counters
        // are not read for a while.
        let seconds = json(&run.join("summary.json"))["run"]["seconds"].as_f64().expect("seconds");
        assert!((2.0 * seconds / 0.5..2.0 * seconds / 0.0099 + 4.0).contains(&(values as f64)), "{values}");
    }
    let without = run("without", "off", "main");
    assert!(!has_power(&without.join("traces.otf2")));
    place.assert_clean();
}

/// The attributed power is not a counter. It changes no bit of the figures that are computed from its trace, even if the
/// settings make every metric a device.
#[test]
fn the_power_is_never_a_device() {
    skip_unless!(on_path("mpirun") && on_path("otf2-print"), "no mpirun");
    let place = Place::new();
    let mut run = place.ampere_run("out", ["mpirun", "--oversubscribe", "-n", "2", &stencil(), "1"]);
    succeed(&mut run);
    let (live, trace) = (place.summary("out"), place.path("out/traces.otf2"));
    assert!(has_power(&trace));
    // The same events are in traces with and without the power.
    let played = |output: &str, power: &str| {
        let mut replay = place.ampere(["replay", "--speed", "max", "-o", output]);
        succeed(replay.arg(&trace).current_dir(place.directory()).env("AMPERE_TRACE_POWER", power));
        let trace = place.path(output).join("traces.otf2");
        (has_power(&trace), figures(&attribute(&trace, &[])))
    };
    let (with, without) = (played("with", "on"), played("without", "off"));
    assert_eq!((with.0, without.0), (true, false));
    assert!(with.1 == without.1);
    let everything = place.path("ampere.toml");
    std::fs::write(&everything, "[[device]]\nname = 'all'\nmetric = '.*'\n").expect("room");
    for options in [&[][..], &["--config", everything.to_str().expect("a name")]] {
        let again = attribute(&trace, options);
        assert_eq!(list(&again, "devices").len(), 1, "{options:?}");
        if options.is_empty() {
            assert_same_figures(&again, &live);
        }
        assert!(!again["run"]["notes"].to_string().contains("attributed power"), "{}", again["run"]["notes"]);
    }
    place.assert_clean();
}

/// A program on GPU streams, recorded on an MI300A, has the power in both views.
#[test]
fn the_integral_of_a_streams_power_is_its_joules() {
    let recorded = recorded_trace();
    skip_unless!(recorded.is_some(), "no ../shared/traces/mi300a-two-kernels");
    skip_unless!(has_python_otf2(), "no python3-otf2");
    let place = Place::new();
    for (output, policy) in [("sliced", "time_sliced"), ("busy", "busy_only")] {
        let mut replay = place.ampere(["replay", "--speed", "max", "-o"]);
        replay.arg(place.path(output)).arg(recorded.clone().expect("checked")).env("AMPERE_POLICY", policy);
        succeed(&mut replay);
        let (with_power, _) = assert_power_matches_summary(&place.path(output));
        assert!(with_power >= 3, "{with_power}");
        let again = attribute(&place.path(output).join("traces.otf2"), &["--policy", policy]);
        assert_same_figures(&again, &place.summary(output));
    }
    place.assert_clean();
}

/// If figures are computed again from the trace, its power has the new figures.
#[test]
fn the_power_is_that_of_the_final_figures() {
    skip_unless!(on_path("mpirun") && on_path("mpicc"), "no mpirun or no mpicc");
    skip_unless!(has_python_otf2(), "no python3-otf2");
    let place = Place::new();
    let source = "#include <mpi.h>
        #include <time.h>
        static void nap(long ms) { struct timespec t = {0, ms * 1000000}; nanosleep(&t, 0); }
        int main(int argc, char **argv) {
            nap(300);
            MPI_Init(&argc, &argv);
            nap(300);
            MPI_Finalize();
            return 0;
        }";
    let program = compile(&place, &["mpicc", "-O0", "-finstrument-functions"], "late", source);
    let config = place.path("ampere.toml");
    let device = "[[device]]\nname = 'mine'\nmetric = 'estimate:::energy'\nranks = [1]\ndelay = '40ms'\n";
    std::fs::write(&config, device).expect("room");
    let mut run = place.ampere(["run", "--config"]);
    run.arg(&config).arg("-o").arg(place.path("out"));
    succeed(run.args(["--", "mpirun", "--oversubscribe", "-n", "2"]).arg(&program));
    let notes = place.summary("out")["run"]["notes"].to_string();
    assert!(notes.contains("the figures below were computed again"), "{notes}");
    let (with_power, _) = assert_power_matches_summary(&place.path("out"));
    assert_eq!(with_power, 1);
    place.assert_clean();
}

/// A counter rarely changes and is reset: what was unknown during the run is known from the trace.
#[test]
fn the_total_is_that_of_the_final_figures() {
    let place = Place::new();
    let source = "#include <unistd.h>
        static void nap(void) { usleep(100000); }
        int main(void) { for (int i = 0; i < 20; i++) nap(); return 0; }";
    let program = place.compile("cc", "naps", source, &["-finstrument-functions"]);
    let mut run = place.ampere_run("out", [program]);
    succeed(with_rocm_smi(&mut run, "watts=100;step_ms=300;reset=0@1"));
    let summary = place.summary("out");
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("the figures below were computed again"), "{notes}");
    let device = &list(&summary, "devices")[0];
    assert_eq!(summary["run"]["total_joules"], device["total_joules"], "{notes}");
    let unknown = number(device, "uncovered_seconds");
    assert_eq!(notes.contains("is not known"), unknown > 0.0, "{unknown} s: {notes}");
    assert!(
        unknown == 0.0 || notes.contains(&format!("{unknown:.3} s is not known")),
        "{unknown} s: {notes}"
    );
    place.assert_clean();
}
