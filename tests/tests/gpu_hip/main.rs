//! HIP programs without Score-P: kernels, copies and calls by rocprofiler-sdk. The tests need neither HIP nor rocprofiler-sdk:
//! the stand-in for rocprofiler-sdk is `tests/stand-ins/rocprofiler`, that for HIP is `tests/programs/amdhip64.c`, and the
//! program is `hip_kernels.c`. `played.rs` plays recorded runs, `clock.rs` lets the GPU's clock drift, and `languages.rs` has
//! programs that are not in C.

mod clock;
mod languages;
mod played;

use ampere_tests::collector::announced;
use ampere_tests::jobs::{Done, Place, have, run};
use ampere_tests::process::{Running, wait_for};
use ampere_tests::runs::{attribute, json, list, number};
use ampere_tests::stand_ins::with_rocm_smi;
use ampere_tests::{artifact, http, openmetrics, root, skip_unless};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A place with the stand-ins and the program.
struct Hip {
    place: Place,
    program: PathBuf,
}

impl Hip {
    fn new() -> Hip {
        let hip = Hip::without_rocprofiler();
        let library = artifact("libstand_in_rocprofiler_sdk.so");
        std::os::unix::fs::symlink(library, hip.place.path("librocprofiler-sdk.so")).expect("a link");
        hip
    }

    /// Makes the program with a HIP that has no rocprofiler-sdk next to it, as in ROCm's packages for Python.
    fn without_rocprofiler() -> Hip {
        let place = Place::new();
        let source =
            |name: &str| std::fs::read_to_string(root().join("tests/programs").join(name)).expect("a file");
        let include = format!("-I{}", root().join("tests/programs").display());
        let options = [
            "-O1",
            "-shared",
            "-fPIC",
            "-pthread",
            "-ldl",
            "-Wl,-soname,libamdhip64.so.6,-z,nodelete",
            &include,
        ];
        let library = place.compile("cc", "libamdhip64.so.6", &source("amdhip64.c"), &options);
        let path = library.to_string_lossy();
        let rpath = format!("-Wl,-rpath,{}", place.directory().display());
        let options = ["-O1", "-pthread", "-ldl", &include, &path, &rpath];
        let program = place.compile("cc", "hip", &source("hip_kernels.c"), &options);
        Hip { place, program }
    }

    /// Adds the GPUs of the stand-in for rocm_smi to the command.
    fn with_gpus<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        with_rocm_smi(command, "watts=300").env("LD_LIBRARY_PATH", self.place.directory())
    }

    fn measured(&self, words: &[&str]) -> Command {
        let program = self.program.to_string_lossy().into_owned();
        let mut command = self.place.ampere_run("out", [&program.as_str()].into_iter().chain(words));
        self.with_gpus(&mut command);
        command
    }

    fn plain(&self, words: &[&str]) -> Done {
        run(self.place.command(&self.program).args(words).env("LD_LIBRARY_PATH", self.place.directory()))
    }

    /// Runs the program, checks that it does the same as without ampere, and returns the summary.
    #[track_caller]
    fn runs(&self, words: &[&str], variable: &str) -> (Value, Done) {
        let done = run(self.measured(words).env("STAND_IN_ROCPROFILER", variable));
        done.as_without(&self.plain(words));
        done.no_panic();
        (json(&self.place.path("out/summary.json")), done)
    }
}

/// The figures of a row of a view.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    joules: f64,
    calls: f64,
}

/// The rows of a view by their innermost frame.
fn rows(summary: &Value, view_name: &str) -> BTreeMap<String, Row> {
    let mut all: BTreeMap<String, Row> = BTreeMap::new();
    for device in list(summary, "devices") {
        for view in list(device, "views").iter().filter(|view| view["view"] == view_name) {
            for row in list(view, "callpaths") {
                let path = row["path"].as_array().expect("a path");
                let name = path.last().and_then(Value::as_str).expect("a name").to_owned();
                let sum = all.entry(name).or_default();
                sum.joules += number(row, "exclusive_joules");
                sum.calls += number(row, "calls");
            }
        }
    }
    all
}

fn unrecorded(summary: &Value) -> f64 {
    number(&summary["quality"], "unrecorded_kernels")
}

fn locations(summary: &Value) -> Vec<String> {
    let views = list(summary, "devices").iter().flat_map(|device| list(device, "views"));
    let kernels = views.filter(|view| view["view"] == "kernels").flat_map(|view| list(view, "callpaths"));
    let mut names: Vec<String> =
        kernels.map(|row| row["location"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

const LARGER: &str = "larger(double*, unsigned long)";
const SMALLER: &str = "smaller(double*, unsigned long)";

#[track_caller]
fn assert_three_to_one(summary: &Value, pairs: f64) {
    let kernels = rows(summary, "kernels");
    let (larger, smaller) = (kernels[LARGER], kernels[SMALLER]);
    assert_eq!((larger.calls, smaller.calls), (pairs, pairs), "{kernels:#?}");
    // These kernels all run at the same power, and a busy machine does not lengthen them, because the stand-in sets their times.
    let ratio = larger.joules / smaller.joules;
    assert!((ratio - 3.0).abs() < 0.05, "{ratio}: {kernels:#?}");
    assert_eq!(unrecorded(summary), 0.0);
}

#[test]
fn kernels_have_joules_by_their_times_with_every_version_of_rocprofiler_sdk() {
    let hip = Hip::new();
    for version in ["400", "500", "600", "10000", "10203"] {
        let (summary, done) = hip.runs(&["three_to_one", "20"], &format!("version={version}"));
        done.said_nothing();
        assert_three_to_one(&summary, 20.0);
        // The calls are exact frames of the host's thread.
        let calls = rows(&summary, "ranks");
        assert_eq!(
            (calls["hipLaunchKernel"].calls, calls["hipDeviceSynchronize"].calls),
            (40.0, 20.0),
            "{calls:#?}"
        );
        assert_eq!(locations(&summary), ["HIP[gpu0:0]"]);
        let again = attribute(&hip.place.path("out/traces.otf2"), &[]);
        let of = |summary| rows(summary, "kernels").into_values().map(|row| row.joules).sum::<f64>();
        let (live, offline) = (of(&summary), of(&again));
        assert!((live / offline - 1.0).abs() < 1e-9, "{live} {offline}");
        std::fs::remove_dir_all(hip.place.path("out")).expect("the result");
    }
}

#[test]
fn ten_thousand_kernels_a_second_on_eight_streams_are_all_recorded() {
    let hip = Hip::new();
    let words = ["many", "20000"];
    let mut command = hip.measured(&words);
    // On a busy machine records may come late, which is not what this test checks.
    let done = run(command.env("STAND_IN_ROCPROFILER", "reversed").env("AMPERE_SLACK", "1s"));
    done.as_without(&hip.plain(&words));
    done.no_panic();
    let summary = json(&hip.place.path("out/summary.json"));
    let kernels = rows(&summary, "kernels");
    assert_eq!((kernels[LARGER].calls, kernels[SMALLER].calls), (15000.0, 5000.0), "{kernels:#?}");
    assert_eq!((unrecorded(&summary), locations(&summary).len()), (0.0, 8));
    // No kernel begins before its launch, and no record comes later than the collector waits.
    let quality = &summary["quality"];
    assert_eq!((number(quality, "kernels_without_launch"), number(quality, "late_events")), (0.0, 0.0));
}

#[test]
fn programs_that_never_wait_and_several_threads_lose_no_kernel() {
    let hip = Hip::new();
    let (summary, _) = hip.runs(&["never_waits"], "");
    assert_three_to_one(&summary, 20.0);
    std::fs::remove_dir_all(hip.place.path("out")).expect("the result");
    let (summary, _) = hip.runs(&["threads"], "");
    assert_three_to_one(&summary, 30.0);
    std::fs::remove_dir_all(hip.place.path("out")).expect("the result");
    let (summary, _) = hip.runs(&["reset"], "");
    assert_three_to_one(&summary, 10.0);
}

#[test]
fn records_that_cannot_be_true_or_do_not_come_are_counted() {
    let hip = Hip::new();
    let (summary, _) = hip.runs(&["odd"], "reversed");
    let kernels = rows(&summary, "kernels");
    // Five pairs of kernels, four kernels that overlap on one stream, and one with a name of 10,000 bytes.
    assert_eq!((kernels[LARGER].calls, kernels[SMALLER].calls), (5.0, 9.0), "{:?}", kernels.keys());
    assert_eq!(kernels[&"n".repeat(10_000)].calls, 1.0);
    // The records of three kernels end before they begin, and one kernel has no record.
    assert_eq!(unrecorded(&summary), 4.0);
    std::fs::remove_dir_all(hip.place.path("out")).expect("the result");
    // In this case the runtime drops seven records, because a buffer is full.
    let (summary, _) = hip.runs(&["three_to_one", "10"], "dropped=7");
    assert_eq!(unrecorded(&summary), 7.0);
}

#[test]
fn copies_are_frames_of_streams_and_calls_are_frames_of_the_host() {
    let hip = Hip::new();
    let (summary, _) = hip.runs(&["copies"], "");
    let kernels = rows(&summary, "kernels");
    assert_eq!(
        (kernels["[HIP memcpy HtoD]"].calls, kernels["[HIP memcpy DtoH]"].calls),
        (1.0, 1.0),
        "{kernels:#?}"
    );
    let calls = rows(&summary, "ranks");
    for name in ["hipMalloc", "hipFree", "hipMemcpyAsync", "hipLaunchKernel", "hipDeviceSynchronize"] {
        assert!(calls.contains_key(name), "{name}: {calls:#?}");
    }
}

#[test]
fn ranks_of_one_node_have_their_own_streams() {
    skip_unless!(have(&["mpirun.openmpi"]), "no Open MPI");
    let hip = Hip::new();
    let program = hip.program.to_string_lossy().into_owned();
    let words = ["mpirun.openmpi", "--oversubscribe", "-n", "2", &program, "three_to_one", "20"];
    let done = run(hip.with_gpus(&mut hip.place.ampere_run("out", words)));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = json(&hip.place.path("out/summary.json"));
    let kernels = rows(&summary, "kernels");
    assert_eq!((kernels[LARGER].calls, kernels[SMALLER].calls), (40.0, 40.0), "{kernels:#?}");
}

/// Two ranks that share a GPU. The first one launches kernels, and prints the seconds that this takes; the other one waits for
/// it.
const ONE_LAUNCHES: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #include "hip.h"
    int main(int argc, char **argv) {
        static const char name[] = "_Z6largerPdm.kd";
        struct work work = {.seconds = 0.02};
        struct dim3 one = {1, 1, 1};
        void *arguments[] = {&work};
        int rank;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        __hipRegisterFunction(0, name, (char *)name, name, 0, 0, 0, 0, 0, 0);
        double begin = MPI_Wtime();
        for (int i = 0; i < 30 && !rank; i++) {
            hipLaunchKernel(name, one, one, arguments, 0, 0);
            hipDeviceSynchronize();
        }
        if (!rank) printf("%.6f\n", MPI_Wtime() - begin);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Finalize();
        return 0;
    }
"#;

/// Returns the static and dynamic joules of each rank, and the joules of each row.
fn parts_of_ranks(summary: &Value) -> (BTreeMap<String, [f64; 2]>, BTreeMap<String, f64>) {
    let [device] = &list(summary, "devices")[..] else { panic!("one device: {summary:#}") };
    let view = list(device, "views").iter().find(|view| view["view"] == "ranks").expect("ranks");
    assert_eq!(view["policy"], "active");
    let (mut ranks, mut rows) = (BTreeMap::new(), BTreeMap::new());
    for row in list(view, "callpaths") {
        let group = row["location_group"].as_str().expect("a group").to_owned();
        let parts = ["static_joules", "dynamic_joules"].map(|key| number(row, key));
        let sum: &mut [f64; 2] = ranks.entry(group.clone()).or_default();
        *sum = [sum[0] + parts[0], sum[1] + parts[1]];
        rows.insert(format!("{group} {}", row["path"]), number(row, "exclusive_joules"));
    }
    (ranks, rows)
}

#[test]
fn dynamic_joules_of_a_gpu_are_those_of_the_rank_that_launches_kernels() {
    skip_unless!(have(&["mpirun.openmpi", "mpicc.openmpi"]), "no Open MPI");
    let hip = Hip::new();
    let include = format!("-I{}", root().join("tests/programs").display());
    let library = hip.place.path("libamdhip64.so.6").to_string_lossy().into_owned();
    let rpath = format!("-Wl,-rpath,{}", hip.place.directory().display());
    let options = [&*include, "-finstrument-functions", "-rdynamic", &library, &rpath];
    let program = hip.place.compile("mpicc.openmpi", "one_launches", ONE_LAUNCHES, &options);
    let metric = "rocm_smi:::energy_count:device=0";
    let setting = format!("[[device]]\nname = 'GPU'\nmetric = '{metric}'\nbaseline_watts = 100\n");
    let settings = hip.place.write("gpu.toml", &setting);
    let words = ["mpirun.openmpi", "--oversubscribe", "-n", "2", &program.to_string_lossy()];
    let mut command = hip.place.ampere_run("out", words);
    let done = run(hip.with_gpus(&mut command).env("AMPERE_CONFIG", &settings));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = json(&hip.place.path("out/summary.json"));
    let notes = list(&summary["run"], "notes").iter().filter_map(Value::as_str);
    let why =
        "joules of GPUs were not divided by kernels: the figures below were computed again from the trace";
    assert!(notes.into_iter().any(|note| note.ends_with(why)), "{}", summary["run"]);
    let (ranks, rows) = parts_of_ranks(&summary);
    let [launches, waits] = ["MPI Rank 0", "MPI Rank 1"].map(|rank| ranks[rank]);
    // Kernels ran for 0.6 s at 200 W above the baseline. An interval between two readings in which a kernel ran also has time
    // without one: on a busy machine, all of the time between kernels, and some before and after.
    let seconds: f64 = done.stdout.trim().parse().expect("seconds");
    assert!(launches[1] > 110.0 && launches[1] < 200.0 * (seconds + 0.6), "{ranks:?}, {seconds} s");
    assert_eq!(waits[1], 0.0, "{ranks:?}");
    // On a busy machine, one of the ranks exists for longer than the other.
    assert!(waits[0] > 25.0 && launches[0] > 25.0, "{ranks:?}");
    let again = attribute(&hip.place.path("out/traces.otf2"), &["--config", &settings.to_string_lossy()]);
    let (_, offline) = parts_of_ranks(&again);
    assert_eq!(rows.keys().collect::<Vec<_>>(), offline.keys().collect::<Vec<_>>());
    for (row, live) in &rows {
        assert!((live - offline[row]).abs() <= 1e-9 * live.max(1.0), "{row}: {live} {}", offline[row]);
    }
}

#[test]
fn parts_of_a_gpu_share_its_counter() {
    let hip = Hip::new();
    let mut command = hip.measured(&["many", "200"]);
    let done = run(command.env("STAND_IN_ROCPROFILER", "partitions").env("STAND_IN_GPUS", "2"));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = json(&hip.place.path("out/summary.json"));
    let names = locations(&summary);
    assert!(names.iter().any(|name| name.starts_with("HIP[gpu0:")), "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("HIP[gpu1:")), "{names:?}");
    let devices: Vec<&str> = list(&summary, "devices")
        .iter()
        .filter(|device| !rows(&serde_json::json!({ "devices": [device] }), "kernels").is_empty())
        .filter_map(|device| device["name"].as_str())
        .collect();
    assert_eq!(devices.len(), 1, "{devices:?}");
}

/// Returns the locations of the kernels of each device.
fn streams_of_devices(summary: &Value) -> BTreeMap<String, Vec<String>> {
    let of = |device: &Value| {
        let name = device["name"].as_str().expect("a name").to_owned();
        (name, locations(&serde_json::json!({ "devices": [device] })))
    };
    list(summary, "devices").iter().map(of).filter(|(_, streams)| !streams.is_empty()).collect()
}

#[test]
fn a_stream_belongs_to_the_counter_with_its_gpus_address_whatever_their_numbers_are() {
    for (word, expected) in [
        ("", [("GPU-0", "HIP[gpu0:0]"), ("GPU-1", "HIP[gpu1:0]")]),
        ("swapped", [("GPU-0", "HIP[gpu1:0]"), ("GPU-1", "HIP[gpu0:0]")]),
    ] {
        let hip = Hip::new();
        let mut command = hip.measured(&["two_gpus"]);
        command.env("STAND_IN_ROCPROFILER", word).env("STAND_IN_GPUS", "2");
        let done = run(command.env("STAND_IN_ROCM_SMI", "watts=300,100"));
        assert_eq!(done.code, 0, "{done:#?}");
        let found = streams_of_devices(&json(&hip.place.path("out/summary.json")));
        let expected = expected.map(|(device, stream)| (device.to_owned(), vec![stream.to_owned()]));
        assert_eq!(found, BTreeMap::from(expected), "{word}");
    }
}

/// A silent stream is waited for up to 60 s, unless it is known that nothing is missing.
#[test]
fn a_stream_that_is_silent_does_not_hold_back_the_live_figures_of_kernels() {
    let hip = Hip::new();
    let stop = hip.place.path("stop");
    let mut command = hip.measured(&["silent", &stop.to_string_lossy()]);
    // On a busy machine records may come late, which is not what this test checks.
    command.env("AMPERE_SLACK", "1s");
    let mut running = Running::start(&mut command);
    wait_for("joules of the stream that is busy", Duration::from_secs(60), || {
        let address = announced(&hip.place.path("out"))?.address();
        let metrics = http::get(address, "/metrics").ok()?.body;
        let has_clock = metrics.contains("ampere_gpu_clock_error_seconds{");
        (openmetrics::kernel_joules(&metrics, SMALLER) > 10.0 && has_clock).then_some(())
    });
    std::fs::write(&stop, "").expect("room");
    assert!(running.wait(Duration::from_secs(60)).is_some_and(|status| status.success()));
    let summary = json(&hip.place.path("out/summary.json"));
    assert_eq!((number(&summary["quality"], "late_events"), unrecorded(&summary)), (0.0, 0.0));
    assert_eq!(rows(&summary, "kernels")[LARGER].calls, 1.0);
}

#[test]
fn two_processes_on_one_gpu_share_its_joules() {
    let hip = Hip::new();
    let both = format!("{0} three_to_one 20 & {0} three_to_one 20; wait", hip.program.display());
    let done = run(hip.with_gpus(&mut hip.place.ampere_run("out", ["sh", "-c", &both])));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = json(&hip.place.path("out/summary.json"));
    let kernels = rows(&summary, "kernels");
    assert_eq!((kernels[LARGER].calls, kernels[SMALLER].calls), (40.0, 40.0), "{kernels:#?}");
    let [device] = &list(&summary, "devices")[..] else { panic!("one device") };
    let view = list(device, "views").iter().find(|view| view["view"] == "kernels").expect("kernels");
    let (all, idle) = (number(device, "total_joules"), number(view, "idle_joules"));
    let attributed: f64 = kernels.values().map(|row| row.joules).sum();
    assert!((attributed + idle - all).abs() < 1e-6 * all, "{attributed} {idle} {all}");
    // 1.6 s of kernels at 300 W, of which the two processes run some at the same time.
    assert!(attributed > 0.0 && attributed < 1.01 * 1.6 * 300.0, "{attributed}");
}

#[test]
fn a_program_that_forks_exits_or_crashes_does_as_without_ampere() {
    let hip = Hip::new();
    for (words, pairs) in [(["fork"], 10.0), (["_exit"], 60.0), (["crash"], 60.0)] {
        let done = run(&mut hip.measured(&words));
        done.as_without(&hip.plain(&words));
        let kernels = rows(&json(&hip.place.path("out/summary.json")), "kernels");
        // The records that are still in the runtime's buffer when the program is killed are lost: those of up to a quarter of
        // a second, or more on a busy machine.
        let calls = kernels[LARGER].calls;
        let least = if words[0] == "fork" { pairs } else { pairs / 4.0 };
        assert!(calls >= least && calls <= pairs, "{words:?}: {kernels:#?}");
        std::fs::remove_dir_all(hip.place.path("out")).expect("the result");
    }
}

#[test]
fn a_rocm_without_rocprofiler_sdk_runs_the_program_and_a_note_reports_that_kernels_are_not_recorded() {
    let hip = Hip::without_rocprofiler();
    let done = run(&mut hip.measured(&["three_to_one", "5"]));
    done.as_without(&hip.plain(&["three_to_one", "5"]));
    let summary = json(&hip.place.path("out/summary.json"));
    let notes = list(&summary["run"], "notes");
    let is_there =
        notes.iter().filter_map(Value::as_str).any(|note| note.contains("has no librocprofiler-sdk.so"));
    assert!(is_there, "{notes:#?}");
}

#[test]
fn the_doctor_reports_whether_kernels_will_be_seen() {
    let found = |hip: &Hip| {
        let done = run(hip.with_gpus(&mut hip.place.ampere(["doctor", "--json"])));
        let found: Value = serde_json::from_str(&done.stdout).expect("JSON");
        let is_it = |check: &&Value| check["group"] == "GPU kernels" && check["name"] == "HIP";
        let text = |check: &Value| format!("{} {}", check["status"], check["found"]).replace('"', "");
        list(&found, "checks").iter().filter(is_it).map(text).collect::<Vec<_>>()
    };
    let hip = Hip::new();
    // The program finds the library by its name without a number, and the doctor by the numbered names that every ROCm has.
    let linked = hip.place.path("librocprofiler-sdk.so");
    std::fs::rename(&linked, hip.place.path("librocprofiler-sdk.so.1")).expect("a link");
    assert_eq!(found(&hip), ["ok libamdhip64.so.6, librocprofiler-sdk.so.1: kernels are seen"]);
    let without = "note libamdhip64.so.6; the loader does not find librocprofiler-sdk.so.1: kernels are seen if the program \
                   has it";
    assert_eq!(found(&Hip::without_rocprofiler()), [without]);
}

#[test]
fn an_unknown_version_and_a_function_that_fails_are_reported_in_one_line() {
    let hip = Hip::new();
    for (variable, words) in [
        ("version=20000", ["rocprofiler-sdk 2.0.0 is not known"]),
        ("version=300", ["rocprofiler-sdk 0.3.0 is not known"]),
        ("without=rocprofiler_configure_callback_tracing_service", ["failed with status 1"]),
    ] {
        let (summary, done) = hip.runs(&["three_to_one", "3"], variable);
        let lines = done.said().iter().filter(|line| line.contains(words[0])).count();
        assert_eq!(lines, 1, "{done:#?}");
        assert!(rows(&summary, "kernels").is_empty());
        std::fs::remove_dir_all(hip.place.path("out")).expect("the result");
    }
}

/// A program that opens HIP and closes it again. Like the real library, the stand-in stays in the process: it has threads.
const CLOSES: &str = r#"
    #include <dlfcn.h>
    #include <stdio.h>
    #include <unistd.h>
    #include "hip.h"
    int main(void) {
        static const char name[] = "_Z6largerPdm.kd";
        struct work work = {.seconds = 0.005};
        struct dim3 one = {1, 1, 1};
        void *arguments[] = {&work}, *library = dlopen("libamdhip64.so.6", RTLD_NOW);
        __typeof__(__hipRegisterFunction) *add = dlsym(library, "__hipRegisterFunction");
        __typeof__(hipLaunchKernel) *launch = dlsym(library, "hipLaunchKernel");
        __typeof__(hipDeviceSynchronize) *synchronize = dlsym(library, "hipDeviceSynchronize");
        add(0, name, (char *)name, name, 0, 0, 0, 0, 0, 0);
        for (int i = 0; i < 10; i++) launch(name, one, one, arguments, 0, 0);
        synchronize();
        printf("closed: %d\n", dlclose(library));
        usleep(200000);
        return 6;
    }
"#;

#[test]
fn a_program_may_close_the_runtime() {
    let mut hip = Hip::new();
    let include = format!("-I{}", root().join("tests/programs").display());
    hip.program = hip.place.compile("cc", "closes", CLOSES, &["-ldl", &include]);
    let (summary, done) = hip.runs(&[], "");
    assert_eq!((done.code, unrecorded(&summary)), (6, 0.0));
    assert_eq!(rows(&summary, "kernels")[LARGER].calls, 10.0);
}

/// Another tool, which prints a line when it is configured.
const TOOL: &str = r#"
    #include <unistd.h>
    void *rocprofiler_configure(unsigned version, const char *text, unsigned priority, void *client) {
        (void)version, (void)text, (void)priority, (void)client;
        write(1, "another tool\n", 13);
        return 0;
    }
"#;

#[test]
fn the_library_of_another_tool_is_kept() {
    let hip = Hip::new();
    let tool = hip.place.compile("cc", "libtool.so", TOOL, &["-shared", "-fPIC"]);
    let done = run(hip.measured(&["three_to_one", "10"]).env("ROCP_TOOL_LIBRARIES", &tool));
    assert_eq!((done.code, done.stdout.matches("another tool\n").count()), (0, 1), "{done:#?}");
    assert_three_to_one(&json(&hip.place.path("out/summary.json")), 10.0);
}

#[test]
fn rocprofiler_registers_own_library_finds_and_configures_ours() {
    let register = std::env::var_os("AMPERE_TEST_ROCPROFILER_REGISTER").map(PathBuf::from);
    let register = register.or_else(|| Some(PathBuf::from("/opt/rocm/lib/librocprofiler-register.so.0")));
    let Some(register) = register.filter(|path| Path::new(path).exists()) else {
        println!("skipped: no librocprofiler-register.so.0");
        return;
    };
    let path = std::ffi::CString::new(register.as_os_str().as_encoded_bytes()).expect("a path");
    // SAFETY: the library's start function does nothing. If it cannot be opened, the stand-in for HIP does without it.
    assert!(!unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) }.is_null(), "{}", register.display());
    let hip = Hip::new();
    std::os::unix::fs::symlink(register, hip.place.path("librocprofiler-register.so.0")).expect("a link");
    let (summary, _) = hip.runs(&["three_to_one", "10"], "");
    assert_three_to_one(&summary, 10.0);
    // Without rocprofiler-sdk, rocprofiler-register could abort the program, which must run all the same.
    std::fs::remove_file(hip.place.path("librocprofiler-sdk.so")).expect("a link");
    std::fs::remove_dir_all(hip.place.path("out")).expect("the result");
    let (summary, _) = hip.runs(&["three_to_one", "10"], "");
    assert!(rows(&summary, "kernels").is_empty());
}
