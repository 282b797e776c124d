//! Kernels of OpenCL programs under `ampere run`, without Score-P, on PoCL, which runs them on the CPU's cores. The joules are
//! those of a simulated counter.

use ampere_tests::collector::announced;
use ampere_tests::gpu::{assert_launched, calls_by_path, fortran, row, view};
use ampere_tests::http::get;
use ampere_tests::jobs::{Done, Place, run};
use ampere_tests::openmetrics::kernel_joules;
use ampere_tests::process::{Running, wait_for};
use ampere_tests::runs::{attribute, list, may_sample, number, on_path, python_with, relative};
use ampere_tests::stand_ins::with_rocm_smi;
use ampere_tests::{artifact, root, skip_unless};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const WATTS: f64 = 300.0;
/// A CPU has no PCI address, so the settings name what runs on the simulated GPU.
const SETTINGS: &str =
    "[[device]]\nname = \"GPU-0\"\nmetric = 'rocm_smi:::energy_count:device=0'\nlocations = ['OpenCL.+']\n";

/// The file that names PoCL's library: that of the copy that `scripts/need-packages` makes, or else the system's.
fn vendors() -> Option<PathBuf> {
    let own = artifact("ampere").parent()?.parent()?.join("pocl/pocl.icd");
    [own, PathBuf::from("/etc/OpenCL/vendors/pocl.icd")].into_iter().find(|path| path.is_file())
}

/// A place, a program of `tests/programs`, and PoCL.
struct Opencl {
    place: Place,
    vendors: PathBuf,
    program: PathBuf,
    settings: PathBuf,
}

impl Opencl {
    /// `None` if there is no PoCL, or no compiler for it; the test is then skipped.
    fn new(compiler: &[&str], source: &str) -> Option<Opencl> {
        let opencl = Opencl::found().filter(|_| on_path(compiler[0]))?;
        let mut command = Command::new(compiler[0]);
        command.args(&compiler[1..]).args(["-O1", "-o"]).arg(&opencl.program);
        command.arg(root().join("tests/programs").join(source)).args(["-lOpenCL", "-ldl"]);
        let done = command.output().expect("a compiler");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Some(opencl)
    }

    /// Like `new`, but without a program.
    fn found() -> Option<Opencl> {
        let Some(vendors) = vendors() else {
            println!("skipped: no OpenCL platform here");
            return None;
        };
        let place = Place::new();
        let (program, settings) = (place.path("program"), place.write("ampere.toml", SETTINGS));
        Some(Opencl { place, vendors, program, settings })
    }

    fn prepared(&self, mut command: Command) -> Command {
        with_rocm_smi(&mut command, &format!("watts={WATTS}"));
        command.env("OCL_ICD_VENDORS", &self.vendors).env("AMPERE_CONFIG", &self.settings);
        // PoCL keeps compiled kernels in this directory.
        command.env("POCL_CACHE_DIR", self.place.path("tmp"));
        command
    }

    /// Runs `opencl.c` with the argument `way`, without ampere and with it.
    fn both(&self, way: &str) -> (Done, Done) {
        let mut plain = self.prepared(self.place.command(&self.program));
        plain.arg(way);
        let mut measured =
            self.prepared(self.place.ampere_run(way, [self.program.as_os_str(), way.as_ref()]));
        let (plain, measured) = (run(&mut plain), run(&mut measured));
        measured.as_without(&plain);
        measured.no_panic();
        (plain, measured)
    }
}

/// The names, calls and joules of the kernels and copies that ran on the GPU. Rows without calls belong to the code that
/// launched them.
fn kernels(summary: &Value) -> Vec<(String, f64, f64)> {
    let rows = list(view(summary, "kernels"), "regions").iter().map(|row| {
        let region = row["region"].as_str().unwrap_or_default().to_owned();
        (region, number(row, "calls"), number(row, "exclusive_joules"))
    });
    rows.filter(|(_, calls, _)| *calls > 0.0).collect()
}

fn calls_of(summary: &Value, name: &str) -> f64 {
    row(summary, "kernels", name).calls
}

/// Joules of both kernels in the live metrics.
fn live_joules(output: &Path) -> Option<[f64; 2]> {
    let body = get(announced(output)?.address(), "/metrics").ok()?.body;
    Some(["light", "heavy"].map(|name| kernel_joules(&body, name)))
}

/// Runs `kernels.c`, one of whose kernels does three times the work of the other, and compares the joules with the times, live,
/// in the summary and in the trace. If only one queue uses the device, the joules of the heavy kernels as a multiple of those of
/// the light ones are added to `ratios`.
fn play(ranks: usize, arguments: &[&str], ratios: &mut Vec<f64>) {
    let is_mpi = ranks > 1;
    skip_unless!(!is_mpi || (on_path("mpicc.openmpi") && on_path("mpirun.openmpi")), "no Open MPI");
    let compiler = if is_mpi { &["mpicc.openmpi", "-DUSE_MPI"][..] } else { &["cc"] };
    let Some(opencl) = Opencl::new(compiler, "kernels.c") else { return };
    let place = &opencl.place;
    let mut words: Vec<std::ffi::OsString> = Vec::new();
    if is_mpi {
        words.extend(["mpirun.openmpi", "--oversubscribe", "-n"].map(Into::into));
        words.push(ranks.to_string().into());
    }
    words.push(opencl.program.clone().into());
    words.extend(arguments.iter().map(Into::into));
    let mut command = opencl.prepared(place.ampere_run("out", words));
    let mut running = Running::start(&mut command);
    // The program waits after its kernels have run.
    let live = wait_for("all kernels in the live metrics", LIMIT, || {
        let now = live_joules(&place.path("out"))?;
        std::thread::sleep(Duration::from_millis(500));
        (now[0] > 0.0 && now[1] > 0.0 && live_joules(&place.path("out")) == Some(now)).then_some(now)
    });
    std::fs::write(place.path("over"), "").expect("room for a file");
    assert!(running.wait(LIMIT).is_some_and(|status| status.success()), "the program succeeds");
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    let joules_of = |summary: &Value| ["light", "heavy"].map(|name| row(summary, "kernels", name).joules);
    let in_summary = joules_of(&summary);
    let settings = opencl.settings.display().to_string();
    let in_trace = joules_of(&attribute(&place.path("out/traces.otf2"), &["--config", &settings]));
    let rounds: f64 = arguments[0].parse().expect("a number");
    let queues: f64 = arguments[1].parse().expect("a number");
    for kernel in ["light", "heavy"] {
        assert_eq!(calls_of(&summary, kernel), rounds * queues * ranks as f64, "{kernel}");
    }
    println!("live {live:?} J, summary {in_summary:?} J, trace {in_trace:?} J; {arguments:?}");
    for kernel in 0..2 {
        assert!(relative(in_trace[kernel], in_summary[kernel]) < 1e-9, "{in_trace:?}, {in_summary:?}");
        assert!(live[kernel] <= in_summary[kernel] * 1.01, "{live:?}, {in_summary:?}");
    }
    let seconds = ["light", "heavy"].map(|name| row(&summary, "kernels", name).seconds);
    // Kernels that run at the same time share the device's power.
    assert!(in_summary[0] + in_summary[1] < 1.01 * WATTS * (seconds[0] + seconds[1]), "{seconds:?} s");
    if !is_mpi && arguments[1] == "1" {
        for kernel in 0..2 {
            assert!(
                relative(in_summary[kernel], WATTS * seconds[kernel]) < 0.02,
                "{in_summary:?}, {seconds:?}"
            );
        }
        ratios.push(in_summary[1] / in_summary[0]);
    }
    place.assert_clean();
}

#[test]
fn kernels_of_three_to_one_work_have_three_to_one_joules() {
    for arguments in [&["6", "1"][..], &["6", "1", "late"]] {
        let mut ratios = Vec::new();
        // How long a kernel runs depends on what else uses the processor: an interruption of half a second is longer than all
        // light kernels. Where the test is skipped, there is no ratio.
        let is_three = |_| {
            play(1, arguments, &mut ratios);
            ratios.last().is_none_or(|ratio| (2.0..4.5).contains(ratio))
        };
        let is_right = (0..6).any(is_three);
        assert!(is_right, "three times the work, {ratios:?} times the joules: {arguments:?}");
    }
}

#[test]
fn kernels_of_several_queues_have_joules_by_their_work() {
    play(1, &["2", "3"], &mut Vec::new());
    play(1, &["2", "3", "late"], &mut Vec::new());
}

/// A silent queue is waited for up to 60 s, unless it is known that nothing is missing.
#[test]
fn a_queue_that_is_silent_does_not_hold_back_the_live_figures_of_kernels() {
    let Some(opencl) = Opencl::new(&["cc"], "opencl.c") else { return };
    let place = &opencl.place;
    let words = [opencl.program.as_os_str(), "one_is_silent".as_ref()];
    // On a busy machine records may come late, which is not what this test checks.
    let mut running =
        Running::start(opencl.prepared(place.ampere_run("out", words)).env("AMPERE_SLACK", "1s"));
    wait_for("joules of the queue that is busy", LIMIT, || {
        let [light, heavy] = live_joules(&place.path("out"))?;
        (heavy > 0.0 && light > 3.0 * heavy).then_some(())
    });
    std::fs::write(place.path("over"), "").expect("room for a file");
    assert!(running.wait(LIMIT).is_some_and(|status| status.code() == Some(7)));
    let summary = place.summary("out");
    assert_eq!(calls_of(&summary, "heavy"), 1.0);
    let quality = &summary["quality"];
    assert_eq!((number(quality, "late_events"), number(quality, "unrecorded_kernels")), (0.0, 0.0));
}

#[test]
fn kernels_of_two_ranks_have_joules_by_their_work() {
    play(2, &["2", "2"], &mut Vec::new());
}

/// Runs `opencl.c` with each argument for which all kernels must be recorded, and checks their names and calls.
#[test]
fn kernels_are_recorded_however_the_program_treats_its_queues_and_events() {
    let long = "a".repeat(200);
    let both: &[(&str, f64)] = &[("light", 3.0), ("heavy", 3.0)];
    let copies: &[(&str, f64)] = &[
        ("[OpenCL write]", 1.0),
        ("[OpenCL fill]", 1.0),
        ("[OpenCL read]", 1.0),
        ("[OpenCL copy]", 1.0),
        ("[OpenCL map]", 1.0),
        ("[OpenCL unmap]", 1.0),
    ];
    let ways: [(&str, &[(&str, f64)]); 8] = [
        ("waits", both),
        ("never_waits", both),
        ("out_of_order", both),
        ("released_early", both),
        ("closes", both),
        ("copies", copies),
        ("forks", &[("light", 2.0)]),
        ("long_name", &[(&long, 1.0)]),
    ];
    let Some(opencl) = Opencl::new(&["cc"], "opencl.c") else { return };
    for (way, expected) in ways {
        let (plain, _) = opencl.both(way);
        assert_eq!(plain.code, 7, "{plain:#?}");
        let summary = opencl.place.summary(way);
        assert_eq!(summary["run"]["complete"], true, "{way}: {}", summary["run"]);
        for (kernel, calls) in expected {
            assert_eq!(calls_of(&summary, kernel), *calls, "{way}: {:?}", kernels(&summary));
        }
        assert_eq!(kernels(&summary).len(), expected.len(), "{way}: {:?}", kernels(&summary));
    }
    opencl.place.assert_clean();
}

#[test]
fn what_a_program_asks_of_its_queues_and_events_is_answered_as_without_ampere() {
    let Some(opencl) = Opencl::new(&["cc"], "opencl.c") else { return };
    let (plain, _) = opencl.both("properties");
    assert_eq!(plain.code, 7, "{plain:#?}");
    assert_eq!(calls_of(&opencl.place.summary("properties"), "tiny"), 2.0);
}

#[test]
fn every_way_in_which_a_program_ends_is_the_same_with_ampere() {
    let Some(opencl) = Opencl::new(&["cc"], "opencl.c") else { return };
    for (way, status, kernel, calls) in
        [("leaves_at_once", 5, "heavy", 3.0), ("crashes", 128 + libc::SIGSEGV, "light", 1.0)]
    {
        let (plain, _) = opencl.both(way);
        assert_eq!(plain.code, status, "{plain:#?}");
        assert_eq!(calls_of(&opencl.place.summary(way), kernel), calls, "{way}");
    }
    opencl.place.assert_clean();
}

#[test]
fn a_kernel_that_outlives_its_program_is_counted() {
    let Some(opencl) = Opencl::new(&["cc"], "opencl.c") else { return };
    let (plain, _) = opencl.both("ends_meanwhile");
    assert_eq!(plain.code, 7, "{plain:#?}");
    let summary = opencl.place.summary("ends_meanwhile");
    assert_eq!(number(&summary["quality"], "unrecorded_kernels"), 1.0);
    assert_eq!(summary["run"]["complete"], false);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("1 kernel or copy on a GPU could not be recorded"), "{notes}");
}

#[test]
fn none_of_ten_thousand_kernels_a_second_on_eight_queues_is_lost() {
    let Some(opencl) = Opencl::new(&["cc"], "opencl.c") else { return };
    opencl.both("many");
    let summary = opencl.place.summary("many");
    assert_eq!(calls_of(&summary, "tiny"), 20_000.0);
    let losses = [
        "unrecorded_kernels",
        "kernels_without_launch",
        "unrecorded_calls",
        "dropped_records",
        "suppressed_calls",
    ];
    for loss in losses {
        assert_eq!(number(&summary["quality"], loss), 0.0, "{loss}");
    }
}

#[test]
fn calls_of_the_runtime_are_frames_of_the_thread_that_makes_them() {
    let Some(opencl) = Opencl::new(&["cc"], "opencl.c") else { return };
    opencl.both("waits");
    let summary = opencl.place.summary("waits");
    for (call, calls) in
        [("clEnqueueNDRangeKernel", 6.0), ("clFinish", 1.0), ("clFlush", 1.0), ("clCreateBuffer", 0.0)]
    {
        // The buffer is made before the first queue, with which the measurement begins.
        assert_eq!(row(&summary, "ranks", call).calls, calls, "{call}");
    }
}

#[test]
fn a_kernels_call_path_begins_with_its_launch_live_and_from_the_trace() {
    let Some(opencl) = Opencl::new(&["cc"], "opencl.c") else { return };
    opencl.both("waits");
    let place = &opencl.place;
    let summary = place.summary("waits");
    let live = calls_by_path(&summary);
    for kernel in ["light", "heavy"] {
        let paths = live.iter().filter(|(path, _)| path.last() == Some(&kernel));
        let launched = paths.filter(|(path, _)| {
            path.iter().rev().nth(1).is_some_and(|launch| *launch == "clEnqueueNDRangeKernel")
        });
        assert_eq!(launched.map(|(_, calls)| calls).sum::<f64>(), 3.0, "{kernel}: {live:?}");
    }
    let settings = opencl.settings.display().to_string();
    let offline = attribute(&place.path("waits/traces.otf2"), &["--config", &settings]);
    assert_eq!(calls_by_path(&offline), live);
}

/// A layer between ours and PoCL.
const BELOW: &str = include_str!("../programs/opencl_below.c");

/// Runs a program with samples of its call paths. A launch takes longer than the period, so each has a sample, and the kernel
/// has room for the samples of 0.4 s.
fn sampled(opencl: &Opencl, words: &[&str]) -> Value {
    let mut plain = opencl.prepared(opencl.place.command(&opencl.program));
    let plain = run(plain.args(words));
    let program = opencl.program.to_string_lossy();
    let layer = opencl.place.compile("cc", "liblayer.so", BELOW, &["-DBUSY", "-shared", "-fPIC"]);
    let mut command = opencl.prepared(opencl.place.ampere_run("sampled", [&*program].iter().chain(words)));
    let done = run(command.env("OPENCL_LAYERS", layer).env("AMPERE_SAMPLE", "5ms"));
    assert_eq!(plain.code, 0, "{plain:#?}");
    done.as_without(&plain);
    done.no_panic();
    opencl.place.summary("sampled")
}

#[test]
fn kernels_and_copies_of_a_fortran_program_are_below_the_subroutines_that_launch_them() {
    skip_unless!(on_path("gfortran"), "no gfortran");
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let Some(mut opencl) = Opencl::found() else { return };
    opencl.program = fortran(&opencl.place, "opencl.f90", &["-lOpenCL"]);
    let summary = sampled(&opencl, &[]);
    let calls = [("clEnqueueNDRangeKernel", 50.0), ("clEnqueueWriteBuffer", 50.0), ("clFinish", 50.0)];
    let kernel = ["opencl::smooth", "clEnqueueNDRangeKernel", "larger"];
    let copy = ["opencl::exchange", "clEnqueueWriteBuffer", "[OpenCL write]"];
    assert_launched(&summary, "OpenCL", &calls, &[(kernel, 50.0), (copy, 50.0)]);
    let settings = opencl.settings.display().to_string();
    let offline = attribute(&opencl.place.path("sampled/traces.otf2"), &["--config", &settings]);
    assert_eq!(calls_by_path(&offline), calls_by_path(&summary));
}

const PYTHON: &str = r#"
import ctypes, glob, os, time
cl = ctypes.CDLL("libOpenCL.so.1")
for name in ["clCreateContext", "clCreateCommandQueue", "clCreateProgramWithSource", "clCreateKernel", "clCreateBuffer"]:
    getattr(cl, name).restype = ctypes.c_void_p
V, size, all_devices = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64(0xffffffff)
platform, device, code = V(), V(), ctypes.c_int()
cl.clGetPlatformIDs(1, ctypes.byref(platform), None)
cl.clGetDeviceIDs(platform, all_devices, 1, ctypes.byref(device), None)
context = V(cl.clCreateContext(None, 1, ctypes.byref(device), None, None, ctypes.byref(code)))
queue = V(cl.clCreateCommandQueue(context, device, ctypes.c_uint64(0), ctypes.byref(code)))
text = ctypes.c_char_p(b"__kernel void larger(__global float *of) { of[get_global_id(0)] += 1; }"
                       b"__kernel void smaller(__global float *of) { of[get_global_id(0)] += 2; }")
program = V(cl.clCreateProgramWithSource(context, 1, ctypes.byref(text), None, ctypes.byref(code)))
cl.clBuildProgram(program, 0, None, None, None, None)
buffer = V(cl.clCreateBuffer(context, ctypes.c_uint64(1), size(4000), None, ctypes.byref(code)))
kernels = [V(cl.clCreateKernel(program, name, ctypes.byref(code))) for name in (b"larger", b"smaller")]
for kernel in kernels:
    cl.clSetKernelArg(kernel, 0, size(8), ctypes.byref(buffer))
# Waits until the collector has read the names of LLVM's many functions: then its thread that reads samples hardly ever runs or
# waits for a CPU, unless the machine is busy all the time.
def is_reading():
    def text(file):
        try: return open(file, errors="replace").read()
        except OSError: return ""
    collectors = [at for at in glob.glob("/proc/[0-9]*") if f"/s-{session}" in text(f"{at}/cmdline")]
    threads = [text(stat) for at in collectors for stat in glob.glob(f"{at}/task/*/stat")]
    return any("(ampere-stacks) R" in thread for thread in threads)
session = os.environ.get("AMPERE_SESSION")
for _ in range(60):
    if not session or sum(time.sleep(0.05) or is_reading() for _ in range(20)) <= 5: break
items = size(1000)
for _ in range(50):
    for kernel in kernels:
        code.value |= cl.clEnqueueNDRangeKernel(queue, kernel, 1, None, ctypes.byref(items), None, 0, None, None)
    cl.clFinish(queue)
print("launched 100" if code.value == 0 else code)
"#;

#[test]
fn kernels_of_a_python_program_are_below_the_interpreter_that_launches_them() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let Some(mut opencl) = Opencl::found() else { return };
    opencl.program = python_with(&["ctypes"]).expect("a Python");
    let script = opencl.place.write("launches.py", PYTHON);
    let summary = sampled(&opencl, &[&script.to_string_lossy()]);
    let calls = [("clEnqueueNDRangeKernel", 100.0), ("clFinish", 50.0)];
    let work = ["larger", "smaller"]
        .map(|kernel| (["_PyEval_EvalFrameDefault", "clEnqueueNDRangeKernel", kernel], 50.0));
    assert_launched(&summary, "OpenCL", &calls, &work);
}

/// Another tool's layer, which prints a line when it is loaded.
const LAYER: &str = r#"
    #include <string.h>
    #include <unistd.h>
    int clGetLayerInfo(unsigned what, size_t size, void *value, size_t *needed) {
        const unsigned version = 100;
        const size_t bytes = what == 0x4240 ? sizeof version : sizeof "other";
        if (value && size >= bytes) memcpy(value, what == 0x4240 ? (const void *)&version : "other", bytes);
        if (needed) *needed = bytes;
        return 0;
    }
    int clInitLayer(unsigned entries, void *target, unsigned *own_entries, void **table) {
        *own_entries = entries;
        *table = target;
        return write(1, "another layer\n", 14) != 14;
    }
"#;

#[test]
fn the_layer_of_another_tool_is_kept() {
    let Some(opencl) = Opencl::new(&["cc"], "opencl.c") else { return };
    let layer = opencl.place.compile("cc", "liblayer.so", LAYER, &["-shared", "-fPIC"]);
    let words = [opencl.program.as_os_str(), "waits".as_ref()];
    let done = run(opencl.prepared(opencl.place.ampere_run("out", words)).env("OPENCL_LAYERS", &layer));
    assert_eq!((done.code, done.stdout.as_str()), (7, "another layer\nwaits\n"), "{done:#?}");
    let summary = opencl.place.summary("out");
    assert_eq!(["light", "heavy"].map(|kernel| calls_of(&summary, kernel)), [3.0; 2]);
}

#[test]
fn kernels_that_end_before_they_start_are_counted_as_not_recorded() {
    let Some(opencl) = Opencl::new(&["cc"], "opencl.c") else { return };
    let layer = opencl.place.compile("cc", "liblayer.so", BELOW, &["-DNEGATIVE", "-shared", "-fPIC"]);
    let words = [opencl.program.as_os_str(), "waits".as_ref()];
    let done = run(opencl.prepared(opencl.place.ampere_run("out", words)).env("OPENCL_LAYERS", &layer));
    assert_eq!((done.code, done.stdout.as_str()), (7, "waits\n"), "{done:#?}");
    let summary = opencl.place.summary("out");
    assert_eq!(number(&summary["quality"], "unrecorded_kernels"), 2.0);
    assert_eq!(["light", "heavy"].map(|kernel| calls_of(&summary, kernel)), [2.0; 2]);
}

/// Uses an implementation of OpenCL that does nothing, behind the layer, with further kinds of impossible times.
#[test]
fn commands_whose_times_cannot_be_true_are_counted_and_a_clock_that_goes_back_is_followed() {
    let Some(opencl) = Opencl::new(&["cc"], "opencl_layer.c") else { return };
    let layer = artifact("libampere_opencl.so");
    for (what, not_recorded) in [("negative", 10.0), ("untimed", 10.0), ("before", 10.0), ("back", 0.0)] {
        let words = [opencl.program.as_os_str(), layer.as_os_str()];
        let words = words.into_iter().chain(["100", "200", "1", what].map(AsRef::as_ref));
        let done = run(&mut opencl.prepared(opencl.place.ampere_run(what, words)));
        assert_eq!(done.code, 0, "{done:#?}");
        let summary = opencl.place.summary(what);
        assert_eq!(number(&summary["quality"], "unrecorded_kernels"), not_recorded, "{what}");
        let kernels = list(view(&summary, "kernels"), "regions").iter();
        let kernels: Vec<&Value> = kernels.filter(|row| number(row, "calls") > 0.0).collect();
        assert_eq!(kernels.len(), 1, "{what}");
        assert_eq!(number(kernels[0], "calls"), 100.0 - not_recorded, "{what}");
        let seconds = number(kernels[0], "exclusive_seconds");
        assert!(relative(seconds, (100.0 - not_recorded) * 1e-3) < 0.01, "{what}: {seconds} s");
    }
}

/// Makes a loader like those from before there were layers: the real one, with the name of the layers' variable removed.
fn older_loader(place: &Place) -> PathBuf {
    let list = Command::new("ldconfig").arg("-p").output().expect("ldconfig").stdout;
    let list = String::from_utf8_lossy(&list).into_owned();
    let line = list.lines().find(|line| line.trim().starts_with("libOpenCL.so.1 ")).expect("a loader");
    let (_, path) = line.split_once("=> ").expect("a path");
    let mut bytes = std::fs::read(path).expect("the loader");
    let variable = b"OPENCL_LAYERS";
    let places = 0..bytes.len() - variable.len();
    for at in places.filter(|at| bytes[*at..].starts_with(variable)).collect::<Vec<_>>() {
        bytes[at..at + variable.len()].copy_from_slice(b"OPENCL_NOBODY");
    }
    std::fs::create_dir(place.path("older")).expect("a directory");
    std::fs::write(place.path("older/libOpenCL.so.1"), bytes).expect("room");
    place.path("older")
}

#[test]
fn with_an_older_loader_the_program_runs_and_the_run_and_the_doctor_report_why_kernels_are_not_seen() {
    let Some(opencl) = Opencl::new(&["cc"], "opencl.c") else { return };
    let place = &opencl.place;
    let older = older_loader(place);
    let with_older = |command| {
        let mut command = opencl.prepared(command);
        command.env("LD_LIBRARY_PATH", &older);
        command
    };
    let words = [opencl.program.as_os_str(), "waits".as_ref()];
    let mut plain = with_older(place.command(&opencl.program));
    let plain = run(plain.arg("waits"));
    let done = run(&mut with_older(place.ampere_run("out", words)));
    done.as_without(&plain);
    assert_eq!(plain.code, 7, "{plain:#?}");
    let text = std::fs::read_to_string(place.path("out/summary.json")).expect("a summary");
    assert!(!text.contains("heavy"), "{text}");
    let why = "1 process was recorded without OpenCL kernels, if it had any, because its OpenCL loader opens no layers";
    assert!(text.contains(why), "{text}");
    let off = run(with_older(place.ampere_run("off", words)).env("AMPERE_GPU", "off"));
    off.as_without(&plain);
    let text = std::fs::read_to_string(place.path("off/summary.json")).unwrap_or_default();
    assert!(!text.contains("opens no layers"), "{text}");
    let found = run(&mut with_older(place.ampere(["doctor", "--json"])));
    let found: Value = serde_json::from_str(&found.stdout).expect("JSON");
    let check = list(&found, "checks").iter().find(|check| check["name"] == "OpenCL").expect("a check");
    assert_eq!(
        (&check["status"], &check["found"]),
        (&Value::from("note"), &Value::from("libOpenCL.so.1 opens no layers: kernels are not seen"))
    );
}

#[test]
fn nothing_is_recorded_where_gpus_are_switched_off() {
    let Some(opencl) = Opencl::new(&["cc"], "opencl.c") else { return };
    let mut command =
        opencl.prepared(opencl.place.ampere_run("off", [opencl.program.as_os_str(), "waits".as_ref()]));
    let done = run(command.env("AMPERE_GPU", "off"));
    assert_eq!((done.code, done.stdout.as_str()), (7, "waits\n"), "{done:#?}");
    let summary = opencl.place.path("off/summary.json");
    let text = std::fs::read_to_string(summary).unwrap_or_default();
    assert!(!text.contains("clFinish"), "{text}");
}

/// An implementation of OpenCL that does nothing, behind the layer: 100,000 kernels a second with names of 10,000 characters.
#[test]
fn a_hundred_thousand_kernels_a_second_with_long_names_are_recorded() {
    let Some(opencl) = Opencl::new(&["cc"], "opencl_layer.c") else { return };
    let layer = artifact("libampere_opencl.so");
    let words =
        [opencl.program.as_os_str(), layer.as_os_str(), "100000".as_ref(), "100000".as_ref(), "8".as_ref()];
    let done = run(&mut opencl.prepared(opencl.place.ampere_run("out", words)));
    assert_eq!(done.code, 0, "{done:#?}");
    println!("{}", done.stdout);
    let summary = opencl.place.summary("out");
    assert_eq!(calls_of(&summary, &"k".repeat(10_000)), 100_000.0);
    assert_eq!(number(&summary["quality"], "unrecorded_kernels"), 0.0);
    // The device's clock is one of the system's clocks, so its times need no note about their error.
    assert!(
        !summary["run"]["notes"].to_string().contains("times of its GPUs"),
        "{}",
        summary["run"]["notes"]
    );
}

#[test]
fn the_doctor_reports_whether_kernels_will_be_seen() {
    let place = Place::new();
    let done = run(&mut place.ampere(["doctor", "--json"]));
    let found: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let of_gpus = |check: &&Value| check["group"] == "GPU kernels";
    let checks: Vec<&Value> = list(&found, "checks").iter().filter(of_gpus).collect();
    let has_loader = Command::new("ldconfig")
        .arg("-p")
        .output()
        .is_ok_and(|told| String::from_utf8_lossy(&told.stdout).contains("libOpenCL.so.1"));
    let opencl = checks.iter().find(|check| check["name"] == "OpenCL");
    assert_eq!(opencl.is_some(), has_loader, "{checks:?}");
    if let Some(opencl) = opencl {
        assert_eq!(
            (&opencl["status"], &opencl["found"]),
            (&Value::from("ok"), &Value::from("libOpenCL.so.1 opens layers: kernels are seen"))
        );
    }
    assert!(!checks.is_empty());
}
