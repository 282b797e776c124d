//! Programs in Fortran and Python.

use crate::Hip;
use ampere_tests::gpu::{assert_launched, calls_by_path, fortran};
use ampere_tests::jobs::run;
use ampere_tests::runs::{attribute, json, may_sample, on_path, python_with};
use ampere_tests::skip_unless;
use serde_json::Value;

/// Runs the program with samples of its call paths. A launch takes longer than the period, so each has a sample, and the kernel
/// has room for the samples of 0.4 s.
fn sampled(hip: &Hip, words: &[&str]) -> Value {
    let plain = hip.plain(words);
    let mut command = hip.measured(words);
    let done = run(command.env("STAND_IN_LAUNCH_US", "10000").env("AMPERE_SAMPLE", "5ms"));
    done.as_without(&plain);
    done.no_panic();
    json(&hip.place.path("out/summary.json"))
}

#[test]
fn kernels_and_copies_of_a_fortran_program_are_below_the_subroutines_that_launch_them() {
    skip_unless!(on_path("gfortran"), "no gfortran");
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let mut hip = Hip::new();
    let rpath = format!("-Wl,-rpath,{}", hip.place.directory().display());
    hip.program = fortran(&hip.place, "hip_kernels.f90", &["libamdhip64.so.6", &rpath]);
    let summary = sampled(&hip, &[]);
    let calls = [("hipLaunchKernel", 50.0), ("hipMemcpyAsync", 50.0), ("hipDeviceSynchronize", 50.0)];
    let kernel = ["hip::smooth", "hipLaunchKernel", crate::LARGER];
    let copy = ["hip::exchange", "hipMemcpyAsync", "[HIP memcpy HtoD]"];
    assert_launched(&summary, "HIP", &calls, &[(kernel, 50.0), (copy, 50.0)]);
    let offline = attribute(&hip.place.path("out/traces.otf2"), &[]);
    assert_eq!(calls_by_path(&offline), calls_by_path(&summary));
}

const PYTHON: &str = r#"
import ctypes
class Work(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_double), ("odd", ctypes.c_int), ("begin", ctypes.c_double), ("end", ctypes.c_double)]
class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]
hip = ctypes.CDLL("libamdhip64.so.6")
one = Dim3(1, 1, 1)
kernels = []
for name, seconds in [(b"_Z6largerPdm.kd", 0.003), (b"_Z7smallerPdm.kd", 0.001)]:
    text, work = ctypes.c_char_p(name), Work(seconds)
    hip.__hipRegisterFunction(None, text, text, text, 0, None, None, None, None, None)
    kernels.append((text, (ctypes.c_void_p * 1)(ctypes.addressof(work)), work))
for _ in range(50):
    for text, arguments, _ in kernels:
        hip.hipLaunchKernel(text, one, one, arguments, ctypes.c_size_t(0), None)
    hip.hipDeviceSynchronize()
print("launched 100")
"#;

#[test]
fn kernels_of_a_python_program_are_below_the_interpreter_that_launches_them() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let mut hip = Hip::new();
    hip.program = python_with(&["ctypes"]).expect("a Python");
    let script = hip.place.write("launches.py", PYTHON);
    let summary = sampled(&hip, &[&script.to_string_lossy()]);
    let calls = [("hipLaunchKernel", 100.0), ("hipDeviceSynchronize", 50.0)];
    let work = [crate::LARGER, crate::SMALLER]
        .map(|kernel| (["_PyEval_EvalFrameDefault", "hipLaunchKernel", kernel], 50.0));
    assert_launched(&summary, "HIP", &calls, &work);
}
