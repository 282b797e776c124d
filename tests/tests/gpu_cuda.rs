//! Programs that use CUDA, on the stand-in for NVIDIA's libraries: their kernels are seen without Score-P and without a rebuild,
//! and the programs behave as without ampere.

use ampere_tests::collector::announced;
use ampere_tests::gpu::{Row, assert_launched, calls_by_path, fortran, row, view};
use ampere_tests::jobs::{Done, Place, run};
use ampere_tests::process::{Running, wait_for};
use ampere_tests::runs::{attribute, list, may_sample, number, on_path, python_with, relative};
use ampere_tests::{artifact, http, openmetrics, skip_unless};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = include_str!("../programs/cuda_kernels.c");
const WATTS: f64 = 200.0;

/// A place with the stand-ins and the program.
struct Gpu {
    place: Place,
    program: PathBuf,
}

impl Gpu {
    fn new() -> Gpu {
        let place = Place::new();
        let cuda = place.path("libcuda.so.1");
        std::fs::copy(artifact("libstand_in_cuda.so"), &cuda).unwrap();
        // The same file by both names: the loader makes them one library.
        std::os::unix::fs::symlink("libcuda.so.1", place.path("libcupti.so.13")).unwrap();
        let rpath = format!("-Wl,-rpath,{}", place.directory().display());
        let program = place.compile("cc", "program", SOURCE, &["-g", cuda.to_str().unwrap(), &rpath]);
        Gpu { place, program }
    }

    fn with<'a>(&self, command: &'a mut Command, script: &str) -> &'a mut Command {
        command
            .env("LD_LIBRARY_PATH", self.place.directory())
            .env("STAND_IN_CUPTI", script)
            .env("AMPERE_COUNTERS", "nvml")
            .env("AMPERE_NVML_LIBRARY", artifact("libstand_in_nvidia_ml.so"))
            .env("STAND_IN_NVML", format!("watts={WATTS}"))
    }

    fn plain(&self, arguments: &[&str]) -> Done {
        run(self.with(&mut self.place.command(&self.program), "").args(arguments))
    }

    fn measured(&self, output: &str, script: &str, arguments: &[&str]) -> Done {
        let program = [self.program.to_str().unwrap()];
        let words = program.iter().chain(arguments);
        run(self.with(&mut self.place.ampere_run(output, words), script))
    }

    /// Like `as_without`, in a run that samples call paths. A launch takes longer than the period, so each has a sample, and the
    /// kernel has room for the samples of 0.4 s.
    fn sampled(&self, arguments: &[&str]) -> Value {
        let program = [self.program.to_str().unwrap()];
        let mut command = self.place.ampere_run("sampled", program.iter().chain(arguments));
        let done = run(self.with(&mut command, "launch_us=8000").env("AMPERE_SAMPLE", "5ms"));
        done.as_without(&self.plain(arguments));
        self.place.summary("sampled")
    }

    /// Runs the program with and without ampere, compares what it does, and returns the summary.
    fn as_without(&self, script: &str, arguments: &[&str]) -> Value {
        let output = format!("out{}", script.replace('=', "-"));
        let (plain, done) = (self.plain(arguments), self.measured(&output, script, arguments));
        done.as_without(&plain);
        done.said_nothing();
        self.place.summary(&output)
    }
}

/// The light and the heavy kernel.
fn both(summary: &Value) -> [Row; 2] {
    ["light(float*)", "heavy(float*)"].map(|kernel| row(summary, "kernels", kernel))
}

/// The number of kernels, copies and memsets that are counted as not recorded.
fn unrecorded(summary: &Value) -> f64 {
    number(&summary["quality"], "unrecorded_kernels")
}

/// Checks the number of each kernel's calls, and its time on the made-up GPU.
#[track_caller]
fn assert_calls_and_times(summary: &Value, calls: f64, light_seconds: f64) {
    let [light, heavy] = both(summary);
    assert_eq!([light.calls, heavy.calls], [calls; 2]);
    assert!(relative(light.seconds, light_seconds) < 1e-3, "{light:?}");
    assert!(relative(heavy.seconds, 3.0 * light_seconds) < 1e-3, "{heavy:?}");
    assert_eq!(unrecorded(summary), 0.0);
}

/// Like [`assert_calls_and_times`], and checks that heavy kernels have three times the joules of light ones. This holds for
/// kernels that run one after the other.
#[track_caller]
fn assert_exact(summary: &Value, calls: f64, light_seconds: f64) {
    assert_calls_and_times(summary, calls, light_seconds);
    let [light, heavy] = both(summary);
    assert!(relative(heavy.joules, 3.0 * light.joules) < 0.02, "{light:?}, {heavy:?}");
}

/// Like [`assert_exact`], for several streams: heavy kernels have roughly three times the joules of light ones. Streams begin
/// one after the other, so light kernels share the device with heavy ones, or are alone while the program is interrupted
/// between its launches.
#[track_caller]
fn assert_exact_on_streams(summary: &Value, calls: f64, light_seconds: f64) {
    assert_calls_and_times(summary, calls, light_seconds);
    let [light, heavy] = both(summary);
    assert!(relative(heavy.joules, 3.0 * light.joules) < 0.4, "{light:?}, {heavy:?}");
}

#[test]
fn kernels_have_their_joules_and_calls_are_frames_of_the_program() {
    let gpu = Gpu::new();
    let summary = gpu.as_without("", &["100", "1", "1000000"]);
    assert_exact(&summary, 100.0, 0.1);
    let [light, _] = both(&summary);
    assert!(relative(light.joules, WATTS * light.seconds) < 0.02, "alone on the GPU: {light:?}");
    assert_eq!(row(&summary, "ranks", "cudaLaunchKernel").calls, 200.0);
    // The runtime calls the driver, which is part of the runtime's call.
    assert_eq!(row(&summary, "ranks", "cuLaunchKernel").calls, 0.0);
    assert_eq!(row(&summary, "ranks", "cudaDeviceSynchronize").calls, 100.0);
    // The device is found by its address.
    let links = serde_json::to_string(&summary).unwrap();
    assert!(links.contains("PCI address 0000:c1:00.0"), "{links}");
}

#[test]
fn launches_by_the_driver_copies_and_memsets_are_seen() {
    let gpu = Gpu::new();
    let summary = gpu.as_without("", &["10", "1", "1000000", "driver"]);
    assert_eq!(row(&summary, "ranks", "cuLaunchKernel").calls, 10.0);
    assert_eq!(both(&summary).map(|kernel| kernel.calls), [20.0, 10.0]);
    let gpu = Gpu::new();
    let summary = gpu.as_without("", &["10", "1", "1000000", "copies"]);
    for transfer in ["[CUDA memcpy HtoD]", "[CUDA memcpy DtoH]", "[CUDA memset]"] {
        let row = row(&summary, "kernels", transfer);
        assert!(row.calls == 10.0 && relative(row.seconds, 10.0 * 1048576e-9) < 1e-3, "{transfer}: {row:?}");
    }
    for call in ["cudaMalloc", "cudaFree", "cudaMemsetAsync"] {
        assert_eq!(row(&summary, "ranks", call).calls, 10.0, "{call}");
    }
}

#[test]
fn streams_are_distinguished_and_share_the_device() {
    let gpu = Gpu::new();
    let summary = gpu.as_without("", &["100", "4", "1000000"]);
    assert_exact_on_streams(&summary, 400.0, 0.4);
    let [light, heavy] = both(&summary);
    let all = light.joules + heavy.joules;
    // One stream after the other would use four times as much. A program that is interrupted between
    // its launches has streams that begin at different times.
    assert!(all < 1.5 * WATTS * 0.4, "kernels of four streams at a time share the power: {all} J");
}

/// The stream of the lane `CUDA[0:7:1]` is `CUDA[0:7`.
fn stream_of(location: &str) -> &str {
    let end = location.match_indices([':', ']']).nth(1).unwrap().0;
    &location[..end]
}

/// Returns the streams of the kernels of each device, without their lanes.
fn streams_of_devices(summary: &Value) -> Vec<(&str, Vec<&str>)> {
    let of = |device| {
        let views = list(device, "views").iter().filter(|view| view["view"] == "kernels");
        let rows = views.flat_map(|view| list(view, "callpaths"));
        let mut streams: Vec<&str> = rows.map(|row| stream_of(row["location"].as_str().unwrap())).collect();
        streams.sort_unstable();
        streams.dedup();
        (device["name"].as_str().unwrap(), streams)
    };
    list(summary, "devices").iter().map(of).filter(|(_, streams)| !streams.is_empty()).collect()
}

#[test]
fn a_stream_belongs_to_the_counter_with_its_gpus_address_and_parts_of_a_gpu_share_it() {
    let (first, second) = ("CUDA[0:7", "CUDA[1:13");
    for (script, expected) in [
        ("gpus=2", vec![("GPU-0", vec![first]), ("GPU-1", vec![second])]),
        ("gpus=2;swapped=1", vec![("GPU-0", vec![second]), ("GPU-1", vec![first])]),
        ("gpus=2;mig=1", vec![("GPU-0", vec![first, second])]),
    ] {
        let gpu = Gpu::new();
        let program = gpu.program.to_str().unwrap();
        let mut command = gpu.place.ampere_run("out", [program, "50", "2", "1000000"]);
        let done = run(gpu.with(&mut command, script).env("STAND_IN_NVML", "watts=200,100"));
        assert_eq!(done.code, 0, "{done:#?}");
        assert_eq!(streams_of_devices(&gpu.place.summary("out")), expected, "{script}");
    }
}

/// A silent stream is waited for up to 60 s, unless it is known that nothing is missing.
#[test]
fn a_stream_that_is_silent_does_not_hold_back_the_live_figures_of_kernels() {
    let gpu = Gpu::new();
    let stop = gpu.place.path("stop");
    let program = gpu.program.to_str().unwrap();
    let words = [program, "0", "2", "10000000", "silent", stop.to_str().unwrap()];
    let mut command = gpu.place.ampere_run("out", words);
    // On a busy machine records may come late, which is not what this test checks.
    let mut running = Running::start(gpu.with(&mut command, "").env("AMPERE_SLACK", "1s"));
    wait_for("joules of the stream that is busy", Duration::from_secs(60), || {
        let address = announced(&gpu.place.path("out"))?.address();
        let joules = openmetrics::kernel_joules(&http::get(address, "/metrics").ok()?.body, "light(float*)");
        (joules > 10.0).then_some(())
    });
    std::fs::write(&stop, "").unwrap();
    assert!(running.wait(Duration::from_secs(60)).is_some_and(|status| status.success()));
    let summary = gpu.place.summary("out");
    assert_eq!((number(&summary["quality"], "late_events"), unrecorded(&summary)), (0.0, 0.0));
    assert_eq!(both(&summary)[1].calls, 1.0);
}

#[test]
fn two_processes_on_one_gpu_share_its_joules() {
    let gpu = Gpu::new();
    let words = format!("{0} 100 1 1000000 & {0} 100 1 1000000; wait", gpu.program.display());
    let done = run(gpu.with(&mut gpu.place.ampere_run("out", ["sh", "-c", &words]), ""));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = gpu.place.summary("out");
    let [light, heavy] = both(&summary);
    assert_eq!([light.calls, heavy.calls], [200.0; 2]);
    let view = view(&summary, "kernels");
    let all = number(&list(&summary, "devices")[0], "total_joules");
    let attributed = light.joules + heavy.joules;
    assert!(relative(attributed + number(view, "idle_joules"), all) < 1e-6, "{attributed} of {all}");
    // 0.8 s of kernels, of which the two processes run some at the same time.
    assert!(attributed > 0.0 && attributed < 1.01 * 0.8 * WATTS, "{attributed}");
}

#[test]
fn a_program_that_waits_only_at_its_end_has_its_kernels() {
    let gpu = Gpu::new();
    assert_exact_on_streams(&gpu.as_without("", &["100", "2", "1000000", "late"]), 200.0, 0.2);
}

#[test]
fn kernels_that_run_when_the_program_ends_are_counted() {
    let gpu = Gpu::new();
    // The GPU gets 8 s of work, and the program does not wait for it.
    let summary = gpu.as_without("", &["2000", "1", "1000000", "never"]);
    let recorded: f64 = both(&summary).iter().map(|kernel| kernel.calls).sum();
    assert!(recorded < 4000.0 && recorded + unrecorded(&summary) == 4000.0, "{recorded} of 4000");
}

#[test]
fn records_out_of_order_are_put_in_order() {
    let gpu = Gpu::new();
    assert_exact_on_streams(&gpu.as_without("reverse=1", &["200", "2", "200000"]), 400.0, 0.08);
}

#[test]
fn records_that_cannot_be_true_and_dropped_ones_are_counted() {
    let gpu = Gpu::new();
    for script in ["untimed=10", "negative=10", "drop=10"] {
        let summary = gpu.as_without(script, &["100", "1", "300000"]);
        let recorded: f64 = both(&summary).iter().map(|kernel| kernel.calls).sum();
        assert_eq!((recorded, unrecorded(&summary)), (180.0, 20.0), "{script}");
    }
}

#[test]
fn a_device_clock_that_is_behind_is_noticed_and_kernels_stay_behind_their_launches() {
    let gpu = Gpu::new();
    let summary = gpu.as_without("early_us=40", &["100", "1", "300000"]);
    assert_eq!(both(&summary).map(|kernel| kernel.calls), [100.0; 2]);
    // A kernel that begins before its launch could not be matched with the launch.
    assert_eq!(number(&summary["quality"], "kernels_without_launch"), 0.0);
    let text = std::fs::read_to_string(gpu.place.path("outearly_us-40/summary.txt"))
        .unwrap()
        .replace("\n        ", " ");
    let (_, error) = text.split_once("times of its GPUs are right to ").unwrap_or_else(|| panic!("{text}"));
    // A kernel begins 2 us after its launch, or later. The two clocks are read one after the other, on a busy machine with an
    // interruption of some microseconds between them. The times of records that are delivered late also contain the drift of
    // the two clocks in the meantime.
    let error: u64 = error.split(' ').next().unwrap().parse().unwrap();
    assert!((25..=400).contains(&error), "{error} us");
}

#[test]
fn a_name_of_ten_thousand_bytes_is_kept() {
    let gpu = Gpu::new();
    let summary = gpu.as_without("", &["10", "1", "1000000", "named"]);
    let regions = list(view(&summary, "kernels"), "regions");
    let long =
        regions.iter().find(|row| row["region"].as_str().is_some_and(|name| name.len() > 200)).unwrap();
    assert_eq!(number(long, "calls"), 10.0);
}

#[test]
fn a_device_that_is_reset_continues() {
    let gpu = Gpu::new();
    assert_exact(&gpu.as_without("", &["20", "1", "1000000", "reset"]), 20.0, 0.02);
}

#[test]
fn every_end_of_the_program_is_as_without_ampere() {
    let gpu = Gpu::new();
    for (what, rounds) in [
        ("status", "100"),
        ("_exit", "400"),
        ("crash", "400"),
        ("crash_in_launch", "400"),
        ("fork", "100"),
        ("init", "100"),
    ] {
        let arguments = [rounds, "1", "1000000", what];
        let (plain, done) = (gpu.plain(&arguments), gpu.measured(what, "", &arguments));
        done.as_without(&plain);
        done.no_panic();
    }
    // 1.6 s of work. If a program ends at once, the last quarter of a second is missing, or more on a busy machine.
    for what in ["_exit", "crash", "crash_in_launch"] {
        let [light, _] = both(&gpu.place.summary(what));
        assert!((20.0..=400.0).contains(&light.calls), "{what}: {light:?}");
    }
    // A child may not use CUDA; what the parent does afterwards is seen.
    assert_eq!(both(&gpu.place.summary("fork")).map(|kernel| kernel.calls), [101.0; 2]);
    gpu.place.no_process_left();
}

#[test]
fn the_programs_own_profiler_finds_cupti_free() {
    let gpu = Gpu::new();
    let arguments = ["100", "1", "1000000", "profile"];
    let (plain, done) = (gpu.plain(&arguments), gpu.measured("out", "", &arguments));
    assert!(plain.stdout.contains("profiler: status 0, calls 4"), "{plain:?}");
    done.as_without(&plain);
    done.said_once(&["CUDA kernels are not recorded from here on", "profiler of the program's own"]);
    assert_exact(&gpu.place.summary("out"), 100.0, 0.1);
}

/// A program that opens CUDA and closes it again. CUPTI keeps the library in the process.
const CLOSES: &str = r#"
    #include <dlfcn.h>
    #include <stdio.h>
    #include <unistd.h>
    struct kernel { const char *name; unsigned long nanoseconds; } light = {"_Z5lightPf", 1000000};
    struct dim3 { unsigned x, y, z; };
    int main(void) {
        struct dim3 one = {1, 1, 1};
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        int (*launch)(const struct kernel *, struct dim3, struct dim3, void **, unsigned long, void *);
        int (*synchronize)(void);
        *(void **)&launch = dlsym(library, "cudaLaunchKernel");
        *(void **)&synchronize = dlsym(library, "cudaDeviceSynchronize");
        for (int i = 0; i < 10; i++) launch(&light, one, one, 0, 0, 0);
        synchronize();
        printf("closed: %d\n", dlclose(library));
        usleep(400000);
        return 6;
    }
"#;

#[test]
fn a_program_may_close_the_runtime() {
    let mut gpu = Gpu::new();
    gpu.program = gpu.place.compile("cc", "closes", CLOSES, &["-ldl"]);
    let summary = gpu.as_without("", &[]);
    assert_eq!((both(&summary)[0].calls, unrecorded(&summary)), (10.0, 0.0));
}

#[test]
fn what_score_p_measures_is_left_to_its_adapter_and_a_line_reports_it() {
    let mut gpu = Gpu::new();
    let source = format!("{SOURCE}\nvoid SCOREP_InitMeasurement(void) {{}}\n");
    let cuda = gpu.place.path("libcuda.so.1");
    gpu.program = gpu.place.compile("cc", "score_p", &source, &["-rdynamic", cuda.to_str().unwrap()]);
    let arguments = ["10", "1", "1000000"];
    let plain = gpu.plain(&arguments);
    let program = [gpu.program.to_str().unwrap()];
    for (value, line) in [
        (
            "no",
            "work that CUDA runs on GPUs is not recorded: set SCOREP_CUDA_ENABLE=yes for Score-P's adapter",
        ),
        ("yes", "Score-P's adapter records the work that CUDA runs on GPUs"),
    ] {
        let mut command = gpu.place.ampere_run(value, program.iter().chain(&arguments));
        let done = run(gpu.with(&mut command, "").env("SCOREP_CUDA_ENABLE", value));
        done.as_without(&plain);
        done.no_panic();
        assert_eq!(done.stderr.matches(line).count(), 1, "{done:#?}");
        let summary = std::fs::read_to_string(gpu.place.path(value).join("summary.json"));
        assert!(!summary.unwrap_or_default().contains("light(float*)"), "{value}");
    }
}

/// Another tool, which prints that it was loaded.
const TOOL: &str = r#"
    #include <unistd.h>
    int InitializeInjection(void) { return write(1, "another tool\n", 13) == 13; }
"#;

#[test]
fn the_library_of_another_tool_is_loaded_instead_and_a_note_reports_it() {
    let gpu = Gpu::new();
    let tool = gpu.place.compile("cc", "libtool.so", TOOL, &["-shared", "-fPIC"]);
    // Other parts of this program are recorded without CUDA.
    let cuda = gpu.place.path("libcuda.so.1");
    let options = ["-finstrument-functions", cuda.to_str().unwrap()];
    let program = gpu.place.compile("cc", "instrumented", SOURCE, &options);
    let mut command = gpu.place.ampere_run("out", [program.to_str().unwrap(), "10", "1", "1000000"]);
    let done = run(gpu.with(&mut command, "").env("CUDA_INJECTION64_PATH", &tool));
    assert_eq!((done.code, done.stdout.matches("another tool\n").count()), (0, 1), "{done:#?}");
    let notes = gpu.place.summary("out")["run"]["notes"].to_string();
    assert!(notes.contains("CUDA_INJECTION64_PATH was set to"), "{notes}");
}

#[test]
fn where_cupti_cannot_be_used_a_line_explains_why() {
    let gpu = Gpu::new();
    let arguments = ["10", "1", "1000000"];
    let plain = gpu.plain(&arguments);
    let refused = |output: &str, script: &str, words: [&str; 2]| {
        let done = gpu.measured(output, script, &arguments);
        done.as_without(&plain);
        done.no_panic();
        let said: Vec<_> = done.said().into_iter().filter(|line| line.contains("kernels are not")).collect();
        assert!(said.len() == 1 && words.iter().all(|word| said[0].contains(word)), "{done:#?}");
    };
    refused("busy", "busy=1", ["another tool", "uses CUPTI"]);
    refused("old", "version=14", ["has version 14", "CUDA 11.6 or later is needed"]);
    std::fs::remove_file(gpu.place.path("libcupti.so.13")).unwrap();
    refused("none", "", ["there is no libcupti.so.13", "LD_LIBRARY_PATH"]);
}

#[test]
fn the_doctor_reports_whether_kernels_will_be_seen() {
    let gpu = Gpu::new();
    let found = |tool: &str| {
        let mut command = gpu.place.ampere(["doctor", "--json"]);
        let done = run(gpu.with(&mut command, "").env("CUDA_INJECTION64_PATH", tool));
        let found: Value = serde_json::from_str(&done.stdout).unwrap();
        let is_it = |check: &&Value| {
            check["group"] == "GPU kernels"
                && ["CUDA", "CUDA_INJECTION64_PATH"].map(Value::from).contains(&check["name"])
        };
        let text = |check: &Value| format!("{} {}", check["status"], check["found"]).replace('"', "");
        list(&found, "checks").iter().filter(is_it).map(text).collect::<Vec<_>>()
    };
    assert_eq!(found(""), ["ok libcuda.so.1, libcupti.so.13: kernels are seen"]);
    let other = "note CUDA loads other.so instead of ampere's library: kernels are not seen";
    assert_eq!(found("other.so").last().map(String::as_str), Some(other));
    std::fs::remove_file(gpu.place.path("libcupti.so.13")).unwrap();
    let without =
        "note libcuda.so.1; the loader does not find libcupti.so.13: kernels are seen if the program has it";
    assert_eq!(found(""), [without]);
}

#[test]
fn kernels_of_a_fortran_program_are_below_the_subroutines_that_launch_them() {
    skip_unless!(on_path("gfortran"), "no gfortran");
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let mut gpu = Gpu::new();
    let rpath = format!("-Wl,-rpath,{}", gpu.place.directory().display());
    gpu.program = fortran(&gpu.place, "cuda_kernels.f90", &["libcuda.so.1", &rpath]);
    let summary = gpu.sampled(&[]);
    let calls = [("cudaLaunchKernel", 50.0), ("cuLaunchKernel", 50.0), ("cudaDeviceSynchronize", 50.0)];
    let light = ["cuda::smooth", "cudaLaunchKernel", "light(float*)"];
    let heavy = ["cuda::solve", "cuLaunchKernel", "heavy(float*)"];
    assert_launched(&summary, "CUDA", &calls, &[(light, 50.0), (heavy, 50.0)]);
    let offline = attribute(&gpu.place.path("sampled/traces.otf2"), &[]);
    assert_eq!(calls_by_path(&offline), calls_by_path(&summary));
}

const PYTHON: &str = r#"
import ctypes
class Kernel(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("nanoseconds", ctypes.c_uint64)]
class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]
cuda = ctypes.CDLL("libcuda.so.1")
one = Dim3(1, 1, 1)
kernels = [Kernel(b"_Z5lightPf", 1000000), Kernel(b"_Z5heavyPf", 3000000)]
for _ in range(50):
    for kernel in kernels:
        cuda.cudaLaunchKernel(ctypes.byref(kernel), one, one, None, ctypes.c_size_t(0), None)
    cuda.cudaDeviceSynchronize()
print("launched 100")
"#;

#[test]
fn kernels_of_a_python_program_are_below_the_interpreter_that_launches_them() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let Some(python) = python_with(&["ctypes"]) else { panic!("a Python") };
    let mut gpu = Gpu::new();
    gpu.program = python;
    let script = gpu.place.write("launches.py", PYTHON);
    let summary = gpu.sampled(&[script.to_str().unwrap()]);
    let calls = [("cudaLaunchKernel", 100.0), ("cudaDeviceSynchronize", 50.0)];
    let work = ["light(float*)", "heavy(float*)"]
        .map(|kernel| (["_PyEval_EvalFrameDefault", "cudaLaunchKernel", kernel], 50.0));
    assert_launched(&summary, "CUDA", &calls, &work);
}

#[test]
fn a_program_without_a_gpu_runtime_loads_none_of_the_libraries() {
    let place = Place::new();
    let done = run(&mut place.ampere_run("out", ["cat", "/proc/self/maps"]));
    assert!(done.stdout.contains("libampere_preload.so"), "{done:#?}");
    for library in ["libampere_cuda", "libampere_hip", "libampere_opencl", "libampere_host"] {
        assert!(!done.stdout.contains(library), "{library}: {done:#?}");
    }
}

#[test]
fn kernels_at_a_high_rate_on_eight_streams_are_all_recorded() {
    let gpu = Gpu::new();
    let arguments = ["0", "8", "1000", "rate", "10000", "3"];
    let done = gpu.measured("out", "", &arguments);
    let launched: f64 = done.stdout.trim().strip_prefix("launched ").unwrap().parse().unwrap();
    let summary = gpu.place.summary("out");
    assert_eq!(both(&summary)[0].calls + unrecorded(&summary), launched);
    assert_eq!(unrecorded(&summary), 0.0);
}
