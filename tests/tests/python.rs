//! The wheel for pip: the programs in it run, and the module `ampere` reads their results. python/tests/test_ampere.py has the
//! checks in Python.

use ampere_tests::jobs::{Place, built, run};
use ampere_tests::runs::{list, number, on_path, python_with, relative, succeed, text};
use ampere_tests::{root, skip_unless, small_trace};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// PyPI takes larger files, but a wheel that is downloaded for each job of a CI is to be small.
const WHEEL_BYTES_MAX: u64 = 15_000_000;

/// Makes the wheel of what was built before.
fn wheel(place: &Place) -> PathBuf {
    let mut make = Command::new("make");
    make.current_dir(root()).args(["-s", "-o", "build", "wheel"]);
    make.arg(format!("BIN={}", built().display())).arg(format!("DIST={}", place.path("dist").display()));
    succeed(&mut make);
    let mut files = std::fs::read_dir(place.path("dist")).expect("a directory").flatten();
    files.next().expect("a wheel").path()
}

/// Makes a new environment with the wheel, and returns its `bin`; `None` if there is no venv, or other packages are not
/// available from PyPI.
fn environment(place: &Place, wheel: &Path, packages: &[&str]) -> Option<PathBuf> {
    let directory = place.path("venv");
    let is_done = |command: &mut Command| command.output().is_ok_and(|done| done.status.success());
    if !is_done(Command::new("python3").args(["-m", "venv"]).arg(&directory)) {
        return None;
    }
    let bin = directory.join("bin");
    let pip = || {
        let mut pip = Command::new(bin.join("python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip
    };
    succeed(pip().arg("--no-index").arg(wheel));
    let are_here = packages.is_empty() || is_done(pip().arg("--only-binary=:all:").args(packages));
    are_here.then_some(bin)
}

/// Returns the minor version of the glibc that a program needs, as binutils find it.
fn glibc_of(program: &Path) -> Option<u32> {
    let symbols = text(&succeed(Command::new("objdump").arg("-T").arg(program)).stdout);
    let versions = symbols.split("GLIBC_2.").skip(1);
    versions.filter_map(|text| text.split([')', '.', ' ']).next()?.parse().ok()).max()
}

/// Runs the environment's Python with the tests of python/tests.
fn python(place: &Place, bin: &Path, words: &[&str]) {
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut python = place.command(bin.join("python"));
    python.args(words).env("PATH", path).env("AMPERE_COUNTERS", "estimate");
    let done = run(python.env("PYTHONPATH", root().join("python/tests")));
    assert_eq!(done.code, 0, "{done:#?}");
}

/// Measures a program with the environment's ampere, and runs a class of python/tests/test_ampere.py, then a script.
fn check(place: &Place, bin: &Path, class: &str, script: &str) {
    let program = place.instrumented();
    let mut measure = place.command(bin.join("ampere"));
    measure.args(["run", "-o", "first", "--"]).arg(program).env("AMPERE_COUNTERS", "estimate");
    let done = run(&mut measure);
    assert_eq!(done.code, 7, "{done:#?}");
    assert!(place.summary("first")["quality"]["events"].as_u64() > Some(0), "{done:#?}");
    place.gpu_run("gpu");
    python(place, bin, &["-B", "-m", "unittest", &format!("test_ampere.{class}")]);
    python(place, bin, &["-c", script]);
}

#[test]
fn a_wheel_in_a_clean_environment_measures_a_program_and_reads_its_results() {
    let place = Place::new();
    let wheel = wheel(&place);
    let size = wheel.metadata().expect("a file").len();
    assert!(size <= WHEEL_BYTES_MAX, "{size} bytes");
    let bin = environment(&place, &wheel, &[]);
    skip_unless!(bin.is_some(), "no python3 with venv");
    let bin = bin.expect("checked");
    let name = wheel.file_name().expect("a name").to_string_lossy().into_owned();
    let minor = |text: &str| text.split(|digit: char| !digit.is_ascii_digit()).next()?.parse::<u32>().ok();
    let of_name = name.split("manylinux_2_").nth(1).and_then(minor);
    assert_eq!(of_name, glibc_of(&bin.join("ampere-collector")).max(glibc_of(&bin.join("ampere"))), "{name}");
    check(&place, &bin, "WithoutOtherPackages", "");
    place.assert_clean();
}

/// Runs the lines of code on the book's page, too.
#[test]
fn results_are_data_frames_of_pandas_polars_arrow_and_dask() {
    let place = Place::new();
    let wheel = wheel(&place);
    let packages = ["pandas", "pyarrow", "polars", "dask[dataframe]", "matplotlib"];
    let bin = environment(&place, &wheel, &packages);
    skip_unless!(bin.is_some(), "pandas, pyarrow, polars, dask and matplotlib are not available from PyPI");
    check(&place, &bin.expect("checked"), "WithDataFrames", &of_the_page(|block| !block.contains("pyspark")));
    place.assert_clean();
}

/// Returns the Python code of the book's page in blocks that `is_wanted`.
fn of_the_page(is_wanted: impl Fn(&&str) -> bool) -> String {
    let page = std::fs::read_to_string(root().join("docs/src/python.md")).expect("the page");
    let blocks = page.split("```python\n").skip(1).filter_map(|block| block.split("```").next());
    blocks.filter(is_wanted).collect()
}

/// PyPI has no wheel of pyspark, which needs Java: the test does not install it.
#[test]
fn spark_reads_call_paths_and_calls() {
    let python = python_with(&["pyspark"]);
    skip_unless!(python.is_some() && on_path("java"), "no pyspark and Java");
    let place = Place::new();
    place.gpu_run("first");
    for words in [
        ["report", "first", "-f", "parquet", "-o", "paths.parquet"].as_slice(),
        &["attribute", "first/traces.otf2", "--calls", "calls.parquet"],
    ] {
        let done = run(place.ampere(words).current_dir(place.path("")));
        assert_eq!(done.code, 0, "{done:#?}");
    }
    let more = "
import json
of_view = lambda rows: {row['view']: row[1] for row in rows.groupBy('view').sum('exclusive_joules').collect()}
paths = spark.read.parquet('paths.parquet').where(\"path != ''\")
print(json.dumps([of_view(paths), of_view(spark.read.parquet('calls.parquet').where('device is not null'))]))
";
    let script = of_the_page(|block| block.contains("pyspark")) + more;
    let mut spark = place.command(python.expect("checked"));
    spark.args(["-c", &script]).env("SPARK_LOCAL_IP", "127.0.0.1");
    let done = run(&mut spark);
    skip_unless!(
        !done.stderr.contains("libc.musl"),
        "Spark's snappy does not load where musl is installed, too"
    );
    assert_eq!(done.code, 0, "{done:#?}");
    let found: Value = serde_json::from_str(done.stdout.lines().last().expect("a line")).expect("JSON");
    let summary = place.summary("first");
    for name in ["ranks", "kernels"] {
        let views = list(&summary, "devices").iter().flat_map(|device| list(device, "views"));
        let of_view = views.filter(|view| view["view"] == name);
        let joules: f64 = of_view.map(|view| number(view, "attributed_joules")).sum();
        assert!(joules > 0.0, "{name}: {summary}");
        for figures in found.as_array().expect("a list") {
            assert!(relative(number(figures, name), joules) < 1e-6, "{name}: {joules} J: {found}");
        }
    }
}

#[test]
fn the_example_of_the_python_ampere_runs_after_changing_an_import() {
    let place = Place::new();
    let wheel = wheel(&place);
    let bin = environment(&place, &wheel, &["pandas", "pyarrow", "matplotlib"]);
    skip_unless!(bin.is_some(), "pandas, pyarrow and matplotlib are not available from PyPI");
    let counters: String =
        [0, 2, 4, 6].map(|device| format!("metric A2rocm_smi:::energy_count:device={device}\n")).concat();
    small_trace::write(&place.path("hpl-with-wrapper-trace"), &(counters + &"rank node0\n".repeat(8)));
    python(&place, &bin.expect("checked"), &["-B", "-m", "unittest", "test_ensemble"]);
    place.assert_clean();
}
