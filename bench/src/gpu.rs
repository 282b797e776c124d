//! Measures the cost of the libraries that record GPU kernels, with stand-ins for the vendors' libraries, and whether they keep
//! up.

use crate::{Figure, child};
use anyhow::Context;
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of launches by HIP, and of rounds of two launches by CUDA, over which times are averaged.
const LAUNCHES: &str = "100000";
/// Number of kernels on eight streams, 10,000 a second.
const KERNELS: u32 = 30_000;

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    let place = tempfile::tempdir()?;
    let hip = Program::hip(place.path())?;
    let cuda = Program::cuda(place.path())?;
    // With `timed` in its variable, a stand-in prints how long ampere's functions took (tests/stand-ins). The lists of words are
    // the arguments of hip_kernels.c and cuda_kernels.c (tests/programs). Here, the latter uses one stream and kernels of 100 ns
    // and 300 ns, and waits for them only at the end.
    let [hip_launch, hip_record] = hip.times("STAND_IN_ROCPROFILER", "timed", &["bench", LAUNCHES])?;
    let [cuda_launch, cuda_record] =
        cuda.times("STAND_IN_CUPTI", "timed=1", &[LAUNCHES, "1", "100", "late"])?;
    hip.run("", "", &["many", &KERNELS.to_string()])?;
    let lost = hip.quality()?["unrecorded_kernels"].as_f64().context("no unrecorded_kernels")?;
    let recorded = 100.0 * (1.0 - lost / f64::from(KERNELS));
    let yardstick = "limit";
    Ok(vec![
        Figure::new("GPU: a launch by HIP, our part", hip_launch, "ns", yardstick, 300.0),
        Figure::new("GPU: a launch by CUDA, our part", cuda_launch, "ns", yardstick, 300.0),
        Figure::new("GPU: the record of a kernel by HIP, our part", hip_record, "ns", yardstick, 500.0),
        Figure::new("GPU: the record of a kernel by CUDA, our part", cuda_record, "ns", yardstick, 500.0),
        Figure::new("GPU: 10,000 kernels a second on 8 streams, recorded", recorded, "%", "all", 100.0),
        Figure::new(
            "GPU: libraries of ampere not loaded into a program that uses no GPU",
            not_loaded(place.path())?,
            "",
            "all",
            3.0,
        ),
    ])
}

/// A program with its stand-ins, and their directory.
struct Program {
    file: PathBuf,
    place: PathBuf,
    counters: [(&'static str, String); 3],
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs").join(name)
}

fn compile(words: &[&OsStr]) -> anyhow::Result<()> {
    child::run(Command::new("cc").args(["-O2", "-pthread"]).args(words)).map(|_| ())
}

/// Returns the variables that select the stand-in for the library of counters.
fn counters(
    counter_source: &'static str,
    library_variable: &'static str,
    script_variable: &'static str,
    library: &str,
) -> [(&'static str, String); 3] {
    let library = child::sibling(library).to_string_lossy().into_owned();
    [
        ("AMPERE_COUNTERS", counter_source.to_owned()),
        (library_variable, library),
        (script_variable, "watts=300".to_owned()),
    ]
}

impl Program {
    fn hip(place: &Path) -> anyhow::Result<Program> {
        let place = place.join("hip");
        std::fs::create_dir(&place)?;
        symlink(child::sibling("libstand_in_rocprofiler_sdk.so"), place.join("librocprofiler-sdk.so"))?;
        let (library, file) = (place.join("libamdhip64.so.6"), place.join("program"));
        let text = OsStr::new;
        let (first, second) = (source("amdhip64.c"), source("hip_kernels.c"));
        let shared = ["-shared", "-fPIC", "-Wl,-soname,libamdhip64.so.6", "-o"].map(text);
        compile(&[&shared[..], &[library.as_os_str(), first.as_os_str()]].concat())?;
        compile(&[text("-o"), file.as_os_str(), second.as_os_str(), library.as_os_str()])?;
        let counters =
            counters("rocm_smi", "AMPERE_ROCM_SMI_LIBRARY", "STAND_IN_ROCM_SMI", "libstand_in_rocm_smi64.so");
        Ok(Program { file, place, counters })
    }

    fn cuda(place: &Path) -> anyhow::Result<Program> {
        let place = place.join("cuda");
        std::fs::create_dir(&place)?;
        let (library, file) = (place.join("libcuda.so.1"), place.join("program"));
        std::fs::copy(child::sibling("libstand_in_cuda.so"), &library)?;
        symlink("libcuda.so.1", place.join("libcupti.so.13"))?;
        let source = source("cuda_kernels.c");
        compile(&[OsStr::new("-o"), file.as_os_str(), source.as_os_str(), library.as_os_str()])?;
        let counters = counters("nvml", "AMPERE_NVML_LIBRARY", "STAND_IN_NVML", "libstand_in_nvidia_ml.so");
        Ok(Program { file, place, counters })
    }

    /// Runs the program under `ampere run`. Returns its standard error.
    fn run(&self, variable: &str, script: &str, words: &[&str]) -> anyhow::Result<String> {
        let _ = std::fs::remove_dir_all(self.place.join("out"));
        let mut command = Command::new(child::sibling("ampere"));
        command.args(["run", "--sample", "off", "--listen", "127.0.0.1:0", "-o"]).arg(self.place.join("out"));
        command.arg("--").arg(&self.file).args(words).env("LD_LIBRARY_PATH", &self.place);
        command.envs(self.counters.iter().map(|(name, value)| (name, value)));
        if !variable.is_empty() {
            command.env(variable, script);
        }
        let done = command.output()?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        anyhow::ensure!(done.status.success(), "{command:?}: {said}");
        Ok(said)
    }

    /// Returns the nanoseconds that the stand-in has measured, of a launch and of a record.
    fn times(&self, variable: &str, script: &str, words: &[&str]) -> anyhow::Result<[f64; 2]> {
        let said = self.run(variable, script, words)?;
        let before = |text: &str| {
            let number = said.split(text).next()?.rsplit(' ').next()?;
            number.parse::<f64>().ok()
        };
        let times = before(" ns of calls").zip(before(" ns of records"));
        // A time of 0 means that ampere's library was not loaded.
        let times = times.filter(|(launch, record)| *launch > 0.0 && *record > 0.0);
        times.map(<[f64; 2]>::from).with_context(|| format!("no times: {said}"))
    }

    fn quality(&self) -> anyhow::Result<Value> {
        let summary: Value = serde_json::from_slice(&std::fs::read(self.place.join("out/summary.json"))?)?;
        Ok(summary["quality"].clone())
    }
}

/// Returns how many of the libraries for GPUs are not loaded into a program that uses none.
fn not_loaded(place: &Path) -> anyhow::Result<f64> {
    let mut command = Command::new(child::sibling("ampere"));
    command.args(["run", "--listen", "127.0.0.1:0", "-o"]).arg(place.join("out"));
    command.args(["--", "cat", "/proc/self/maps"]).env("AMPERE_COUNTERS", "estimate");
    let maps = child::run(&mut command)?.output;
    let maps = String::from_utf8_lossy(&maps);
    let libraries = ["libampere_cuda.so", "libampere_hip.so", "libampere_opencl.so"];
    Ok(libraries.iter().filter(|library| !maps.contains(*library)).count() as f64)
}
