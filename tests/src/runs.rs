//! Figures of whole runs, and what is installed on this machine.

use crate::jobs::Place;
use crate::{artifact, process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Score-P's own trace of a real run on two MI300A. It is too large for the repository, so tests use it only if it is stored next
/// to the checkout.
pub fn recorded_trace() -> Option<PathBuf> {
    let next_to = crate::root().join("../shared/traces/mi300a-two-kernels/traces.otf2");
    next_to.exists().then_some(next_to)
}

/// Returns the definition of attribution as a slow and readable program that shares no code with ampere. It needs
/// python3-otf2.
pub fn oracle() -> PathBuf {
    crate::root().join("tests/oracle/attribute.py")
}

/// Whether Debian's python3-otf2 is installed. If it is installed but cannot be imported, tests fail instead of being skipped.
pub fn has_python_otf2() -> bool {
    let probe = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('otf2') else 3)";
    match Command::new("/usr/bin/python3").args(["-c", probe]).status() {
        Ok(status) => match status.code() {
            Some(0) => true,
            Some(3) => false,
            _ => panic!("/usr/bin/python3: {status}"),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => panic!("/usr/bin/python3: {error}"),
    }
}

/// Returns a Python that has these modules: `AMPERE_TEST_PYTHON`, one on the PATH, or the distribution's.
pub fn python_with(modules: &[&str]) -> Option<PathBuf> {
    let chosen = std::env::var_os("AMPERE_TEST_PYTHON").map(PathBuf::from);
    let pythons = chosen.into_iter().chain([PathBuf::from("python3"), PathBuf::from("/usr/bin/python3")]);
    let probe =
        format!("import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, {modules:?})))");
    let has_all = |python: &PathBuf| {
        Command::new(python).args(["-c", &probe]).output().is_ok_and(|done| done.status.success())
    };
    pythons.into_iter().find(has_all)
}

pub fn on_path(program: &str) -> bool {
    process::program(program).is_some()
}

/// Whether namespaces can be made and file systems mounted in them. This requires root, and a container that permits it.
pub fn may_mount() -> bool {
    Command::new("unshare").args(["-m", "true"]).output().is_ok_and(|done| done.status.success())
}

/// Whether the kernel allows this process to sample stacks.
pub fn may_sample() -> bool {
    ampere_stacks::Sampler::begin(&ampere_stacks::Options::default()).is_ok()
}

/// Ends the calling test with a message if something it needs is absent; use it before anything else. If it is present but does
/// not work, the test must fail. tests/skips.txt lists the messages that scripts/run-tests accepts.
#[macro_export]
macro_rules! skip_unless {
    ($condition:expr, $why:expr) => {
        if !$condition {
            println!("skipped: {}", $why);
            return;
        }
    };
}

/// Parses a summary or other JSON. A summary's columns of call paths become rows with names.
pub fn parse(text: impl AsRef<[u8]>) -> serde_json::Result<Value> {
    let mut json: Value = serde_json::from_slice(text.as_ref())?;
    if json["schema"] == "ampere-summary/2" {
        let (names, paths) = (json["names"].clone(), json["paths"].clone());
        let name = |number: &Value| names[number.as_u64().expect("a number") as usize].clone();
        for device in json["devices"].as_array_mut().expect("devices") {
            let mut views: Vec<&mut Value> = Vec::new();
            let device = device.as_object_mut().expect("a device");
            for (key, value) in device.iter_mut() {
                match key.as_str() {
                    "views" => views.extend(value.as_array_mut().expect("views")),
                    "other_ranks" => views.push(value),
                    _ => {}
                }
            }
            views.into_iter().for_each(|view| view["callpaths"] = rows(&view["callpaths"], &paths, &name));
        }
    }
    Ok(json)
}

/// Only this number of innermost frames of a path get names: with deep recursion, all names of all rows would fill the memory.
const NAMED_FRAMES_MAX: usize = 64;

fn rows(columns: &Value, paths: &Value, name: &dyn Fn(&Value) -> Value) -> Value {
    let frames = |last: &Value| {
        let up = |at: &Value| paths["parent"].get(at.as_u64()? as usize).filter(|up| !up.is_null()).cloned();
        let mut path: Vec<Value> = std::iter::successors(Some(last.clone()), up)
            .take(NAMED_FRAMES_MAX)
            .map(|at| name(&paths["name"][at.as_u64().expect("a path") as usize]))
            .collect();
        path.reverse();
        Value::from(path)
    };
    let columns = columns.as_object().expect("columns");
    let row = |at: usize| {
        let fields = columns.iter().map(|(key, column)| {
            let value = &column[at];
            let meaning = match key.as_str() {
                "path" => frames(value),
                "location_group" | "location" => name(value),
                _ => value.clone(),
            };
            (key.clone(), meaning)
        });
        Value::Object(fields.collect())
    };
    (0..columns["path"].as_array().expect("a column").len()).map(row).collect()
}

pub fn json(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[track_caller]
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output.stderr));
    output
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `ampere attribute TRACE --json` with more arguments.
pub fn attribute(trace: &Path, more: &[&str]) -> Value {
    let output =
        succeed(Command::new(artifact("ampere")).arg("attribute").arg(trace).arg("--json").args(more));
    parse(&output.stdout).expect("JSON on standard output")
}

/// Builds the MPI example. Several tests in several processes request it at the same time.
pub fn stencil() -> String {
    let directory = crate::root().join("examples/mpi");
    succeed(Command::new("flock").arg(&directory).args(["make", "-s", "-C"]).arg(&directory));
    directory.join("stencil").to_string_lossy().into_owned()
}

pub fn compile(place: &Place, compiler: &[&str], name: &str, source: &str) -> PathBuf {
    let file = place.path(format!("{name}.c"));
    std::fs::write(&file, source).expect("room for a source file");
    let program = place.path(name);
    let mut command = Command::new(compiler[0]);
    // Score-P's wrapper leaves files in its current directory, under names that two tests can have in common.
    command.current_dir(place.directory());
    succeed(command.args(&compiler[1..]).arg("-o").arg(&program).arg(&file));
    program
}

/// Returns the difference of two numbers relative to the larger one.
pub fn relative(a: f64, b: f64) -> f64 {
    if a == b { 0.0 } else { (a - b).abs() / a.abs().max(b.abs()) }
}

pub fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no number {key} in {value}"))
}

/// Returns the ranges of a summary that are not frames: interface, name, how many have ended and how many have not.
pub fn ranges(summary: &Value) -> Vec<(String, String, u64, u64)> {
    let text = |range: &Value, key: &str| range[key].as_str().expect("a string").to_owned();
    let whole = |range: &Value, key: &str| range[key].as_u64().expect("a number");
    let all = summary["run"]["ranges"].as_array().into_iter().flatten();
    all.map(|range| {
        (text(range, "interface"), text(range, "name"), whole(range, "count"), whole(range, "open"))
    })
    .collect()
}

pub fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("no list {key} in {value}"))
}

/// The call paths that count for a function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Frames {
    /// The call paths that end in the function.
    Own,
    /// The call paths that contain the function.
    All,
}

/// Returns the figures of the functions of the first view, by rank and function: seconds, waited joules and caused joules.
pub fn waits(summary: &Value, frames: Frames) -> BTreeMap<(String, String), [f64; 3]> {
    let mut rows: BTreeMap<_, [f64; 3]> = BTreeMap::new();
    for call_path in list(&summary["devices"][0]["views"][0], "callpaths") {
        let mut regions: Vec<&str> = list(call_path, "path").iter().filter_map(Value::as_str).collect();
        if frames == Frames::Own {
            regions.drain(..regions.len() - 1);
        }
        regions.sort_unstable();
        regions.dedup();
        let rank = call_path["location_group"].as_str().expect("a rank");
        let figures = ["exclusive_seconds", "waited_joules", "caused_waiting_joules"];
        for region in regions {
            let row = rows.entry((rank.to_owned(), region.to_owned())).or_default();
            row.iter_mut().zip(figures).for_each(|(sum, column)| *sum += number(call_path, column));
        }
    }
    rows
}

const ROW_FIGURES: [&str; 6] = [
    "calls",
    "exclusive_joules",
    "inclusive_joules",
    "resolved_joules",
    "possible_joules",
    "exclusive_seconds",
];

/// Returns all figures of a summary by name.
pub fn figures(summary: &Value) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for device in list(summary, "devices") {
        let word = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let device_name = format!("{} {}", word(device, "node"), word(device, "name"));
        all.insert(format!("{device_name} total"), number(device, "total_joules"));
        for view in list(device, "views") {
            let view_name = format!("{device_name} {}", word(view, "view"));
            for key in ["attributed_joules", "idle_joules", "lost_joules"] {
                all.insert(format!("{view_name} {key}"), number(view, key));
            }
            // Leaves out rows that have caused waiting and have no other figure: ranks that used another device waited for them.
            let has_figures = |row: &&Value| {
                let is_cause = row["caused_waiting_joules"].as_f64().is_some_and(|joules| joules > 0.0);
                !is_cause || ROW_FIGURES.iter().any(|key| number(row, key) != 0.0)
            };
            for row in list(view, "callpaths").iter().filter(has_figures) {
                let name =
                    format!("{view_name} {} {} {}", row["location_group"], row["location"], row["path"]);
                for key in ROW_FIGURES {
                    // Several locations may have the same name.
                    *all.entry(format!("{name} {key}")).or_default() += number(row, key);
                }
            }
            for row in list(view, "regions").iter().filter(has_figures) {
                for key in ROW_FIGURES {
                    all.insert(format!("{view_name} {} {key}", row["region"]), number(row, key));
                }
            }
        }
    }
    all
}

/// Panics if two summaries have different rows, or figures that differ by more than 1.01e-8 of their value.
#[track_caller]
pub fn assert_same_figures(one: &Value, other: &Value) {
    let (one, other) = (figures(one), figures(other));
    let names = |figures: &BTreeMap<String, f64>| figures.keys().cloned().collect::<BTreeSet<_>>();
    let (left, right) = (names(&one), names(&other));
    assert!(left == right, "only in one: {:#?}", left.symmetric_difference(&right).collect::<Vec<_>>());
    for (name, figure) in &one {
        let difference = relative(*figure, other[name]);
        // A step of the ninth digit is at most 1e-8, and a figure that lies between two of them may be rounded to either.
        assert!(difference < 1.01e-8, "{name}: {figure} and {}", other[name]);
    }
}
