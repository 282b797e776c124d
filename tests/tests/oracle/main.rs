//! `ampere attribute` compared with the definition on random traces. The definition is a slow and readable program that shares no
//! code with ampere.
//!
//! There are 200 traces; `AMPERE_ORACLE_TRACES=5000` makes more, `AMPERE_ORACLE_SEED=...` others. A failure names its seed;
//! with `AMPERE_ORACLE_TRACES=1`, this seed repeats it.

mod random;

use ampere_tests::random::{Random, setting};
use ampere_tests::runs::{has_python_otf2, list, number, oracle, parse};
use ampere_tests::{artifact, skip_unless};
use random::Generated;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Imports the oracle once and runs it on every trace. Each trace is a line of JSON.
const DRIVER: &str = r#"
import contextlib, importlib.util, io, json, sys
spec = importlib.util.spec_from_file_location("oracle", sys.argv[1])
oracle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(oracle)
for directory in sys.argv[2:]:
    out = io.StringIO()
    sys.argv = ["oracle", directory + "/traces.otf2", directory + "/oracle.json"]
    with contextlib.redirect_stdout(out):
        oracle.main()
    print(json.dumps(json.loads(out.getvalue())), flush=True)
"#;

fn ask(directories: &[PathBuf]) -> Child {
    let mut command = Command::new("/usr/bin/python3");
    command.arg("-c").arg(DRIVER).arg(oracle()).args(directories).stdout(Stdio::piped());
    command.spawn().expect("python runs")
}

fn ours(directory: &Path, policy: &str) -> Value {
    let mut command = Command::new(artifact("ampere"));
    command
        .arg("attribute")
        .arg(directory.join("traces.otf2"))
        .arg("--config")
        .arg(directory.join("ampere.toml"));
    let output = command.args(["--json", "--policy", policy]).output().expect("ampere runs");
    assert!(output.status.success(), "{}: {}", directory.display(), String::from_utf8_lossy(&output.stderr));
    parse(&output.stdout).expect("JSON")
}

#[test]
fn random_traces_give_the_figures_of_the_definition() {
    skip_unless!(has_python_otf2(), "no python3-otf2");
    let (traces, seed) = (setting("AMPERE_ORACLE_TRACES", 200), setting("AMPERE_ORACLE_SEED", 1));
    let mut rows = 0;
    let seeds: Vec<u64> = (seed..seed + traces).collect();
    // Traces are removed once they are compared, so that thousands need no more room than a few.
    for batch in seeds.chunks(50) {
        let place = tempfile::tempdir().expect("a directory");
        let directories: Vec<PathBuf> =
            batch.iter().map(|seed| place.path().join(seed.to_string())).collect();
        let generated: Vec<Generated> =
            batch.iter().zip(&directories).map(|(seed, directory)| generate(*seed, directory)).collect();
        let mut theirs = ask(&directories);
        let mut lines = BufReader::new(theirs.stdout.take().expect("piped")).lines();
        for ((seed, directory), generated) in batch.iter().zip(&directories).zip(&generated) {
            let ours = ours(directory, generated.policy);
            let line =
                lines.next().unwrap_or_else(|| panic!("seed {seed}: the oracle ended")).expect("a line");
            let theirs = serde_json::from_str(&line).expect("JSON");
            let mut comparison = Comparison { seed: *seed, policy: generated.policy, rows: 0 };
            comparison.all(&ours, &theirs);
            rows += comparison.rows;
            std::fs::remove_dir_all(directory).expect("its own directory");
        }
        assert!(theirs.wait().expect("python ends").success());
    }
    println!("{traces} random traces, {rows} figures agree with the oracle");
    assert!(rows > 20 * traces, "the traces have too little in them");
}

fn generate(seed: u64, directory: &Path) -> Generated {
    std::fs::create_dir(directory).expect("a directory");
    let generated = random::write(&mut Random::new(seed), directory).expect("a trace");
    std::fs::write(directory.join("ampere.toml"), &generated.toml).expect("a file");
    std::fs::write(directory.join("oracle.json"), generated.json.to_string()).expect("a file");
    generated
}

struct Comparison {
    seed: u64,
    policy: &'static str,
    rows: u64,
}

impl Comparison {
    fn all(&mut self, ours: &Value, theirs: &Value) {
        // `json_of` defines the names of the oracle's devices.
        let theirs: BTreeMap<&str, &Value> = list(theirs, "devices")
            .iter()
            .map(|device| (device["name"].as_str().expect("a name"), device))
            .collect();
        let mut views = 0;
        for device in list(ours, "devices") {
            for view in list(device, "views") {
                let name = format!("{} {}", text(device, "name"), text(view, "view"));
                let expected =
                    theirs.get(name.as_str()).unwrap_or_else(|| panic!("seed {}: {name}", self.seed));
                self.view(&name, device, view, expected);
                self.bounds(&name, view, expected, &theirs);
                views += 1;
            }
        }
        let expected = theirs.keys().filter(|name| !name.contains(" of ")).count();
        assert_eq!(views, expected, "seed {}", self.seed);
    }

    fn view(&mut self, what: &str, device: &Value, view: &Value, expected: &Value) {
        let total = number(expected, "total");
        let same = |what: String, ours: f64, theirs: f64| {
            assert_same(self.seed, self.policy, total, what, ours, theirs)
        };
        same(format!("{what} total"), number(device, "total_joules"), total);
        assert_eq!(device["samples"], expected["samples"], "seed {} {what}", self.seed);
        let policy = text(view, "policy");
        // A rank uses a GPU by its kernels, not by its CPU time.
        let is_gpu = text(view, "view") == "ranks" && what.contains("GPU");
        let is_unknown = self.policy == "active" && is_gpu && expected["has_kernels"] == false;
        let expected_policy = if is_unknown { "time_sliced" } else { self.policy };
        assert_eq!(policy, expected_policy, "seed {} {what}", self.seed);
        let expected = &expected[policy];
        for (key, theirs) in [("attributed_joules", "attributed"), ("idle_joules", "idle")] {
            same(format!("{what} {key}"), number(view, key), number(expected, theirs));
        }
        assert_eq!(number(view, "lost_joules"), 0.0, "seed {} {what}", self.seed);
        let exclusive = sums(list(view, "callpaths"), path, "exclusive_joules");
        let inclusive = sums(list(view, "regions"), region, "inclusive_joules");
        self.table(&format!("{what} exclusive"), total, &exclusive, &expected["exclusive"]);
        self.table(&format!("{what} inclusive"), total, &inclusive, &expected["inclusive"]);
        if policy == "active" {
            for key in ["static", "dynamic"] {
                let ours = sums(list(view, "callpaths"), path, &format!("{key}_joules"));
                self.table(&format!("{what} {key}"), total, &ours, &expected[key]);
            }
        }
    }

    /// Checks the least and the most joules of each row. Resolved joules are those of single locations, and are summed for
    /// each call path. Possible joules are compared for each location, so the oracle also computed each location separately.
    fn bounds(&mut self, what: &str, view: &Value, expected: &Value, theirs: &BTreeMap<&str, &Value>) {
        let total = number(expected, "total");
        if text(view, "policy") == "active" {
            return self.active_bounds(what, view, expected, theirs);
        }
        let resolved = sums(list(view, "callpaths"), path, "resolved_joules");
        self.table(&format!("{what} resolved"), total, &resolved, &expected["resolved"]);
        let regions = sums(list(view, "regions"), region, "possible_joules");
        self.table(&format!("{what} possible"), total, &regions, &expected["possible_regions"]);
        let begin = format!("{what} of ");
        for (name, expected) in theirs.range(begin.as_str()..) {
            let Some(consumer) = name.strip_prefix(&begin) else { break };
            let rows: Vec<Value> =
                list(view, "callpaths").iter().filter(|row| is_of(row, consumer)).cloned().collect();
            let possible = sums(&rows, path, "possible_joules");
            self.table(&format!("{name} possible"), total, &possible, &expected["possible"]);
        }
        for row in list(view, "callpaths").iter().chain(list(view, "regions")) {
            let figures =
                ["resolved_joules", "exclusive_joules", "possible_joules"].map(|key| number(row, key));
            let rounding = 1e-8 * figures[2] + 1e-13 * total.abs();
            let in_order = figures.windows(2).all(|pair| pair[0] <= pair[1] + rounding);
            assert!(in_order, "seed {} ({}): {what} {row}", self.seed, self.policy);
        }
    }

    /// Does the same for the dynamic joules of the policy *active*. The oracle's resolved joules are those of a call path on
    /// all locations together.
    fn active_bounds(&mut self, what: &str, view: &Value, expected: &Value, theirs: &BTreeMap<&str, &Value>) {
        let total = number(expected, "total");
        let resolved = sums(list(view, "callpaths"), path, "resolved_joules");
        let begin = format!("{what} of ");
        let consumers: Vec<_> = theirs
            .range(begin.as_str()..)
            .map_while(|(name, device)| Some((name.strip_prefix(&begin)?, device)))
            .collect();
        match consumers.len() {
            1 => self.table(&format!("{what} resolved"), total, &resolved, &expected["active"]["resolved"]),
            _ => resolved.iter().for_each(|(path, ours)| {
                let most = expected["active"]["resolved"][path].as_f64().unwrap_or(0.0);
                assert!(
                    *ours <= most * (1.0 + 6e-9) + 1e-13 * total,
                    "seed {}: {what} {path}: {ours} {most}",
                    self.seed
                );
            }),
        }
        for (consumer, expected) in consumers {
            let rows: Vec<Value> =
                list(view, "callpaths").iter().filter(|row| is_of(row, consumer)).cloned().collect();
            let possible = sums(&rows, path, "possible_joules");
            self.table(
                &format!("{begin}{consumer} possible"),
                total,
                &possible,
                &expected["active"]["possible"],
            );
        }
        for row in list(view, "callpaths").iter().chain(list(view, "regions")) {
            let figures =
                ["resolved_joules", "dynamic_joules", "possible_joules"].map(|key| number(row, key));
            let rounding = 1e-8 * figures[2] + 1e-13 * total.abs();
            let in_order = figures.windows(2).all(|pair| pair[0] <= pair[1] + rounding);
            assert!(in_order, "seed {}: {what} {row}", self.seed);
        }
    }

    fn table(&mut self, what: &str, total: f64, ours: &BTreeMap<String, f64>, theirs: &Value) {
        let theirs = theirs.as_object().expect("a table");
        let keys: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
        for key in keys {
            let theirs = theirs.get(key).and_then(Value::as_f64).unwrap_or(0.0);
            let ours = ours.get(key).copied().unwrap_or(0.0);
            assert_same(self.seed, self.policy, total, format!("{what} {key}"), ours, theirs);
            self.rows += 1;
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}"))
}

fn path(row: &Value) -> String {
    list(row, "path").iter().filter_map(Value::as_str).collect::<Vec<_>>().join(";")
}

fn region(row: &Value) -> String {
    text(row, "region").to_owned()
}

/// Whether a call path's row is that of a location, which the oracle calls "location" or "group/location".
fn is_of(row: &Value, consumer: &str) -> bool {
    let (group, location) = (text(row, "location_group"), text(row, "location"));
    consumer == location || consumer == format!("{group}/{location}")
}

fn sums(rows: &[Value], name: fn(&Value) -> String, figure: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for row in rows {
        *sums.entry(name(row)).or_insert(0.0) += number(row, figure);
    }
    sums
}

/// Compares figures to 6e-9 of their value, because rows have nine digits. The oracle subtracts sums, so that its small figures
/// have fewer digits: these are compared to 1e-13 of the device's total.
#[track_caller]
fn assert_same(seed: u64, policy: &str, total: f64, what: String, ours: f64, theirs: f64) {
    let allowed = 6e-9 * ours.abs().max(theirs.abs()) + 1e-13 * total.abs();
    let off = (ours - theirs).abs();
    assert!(off <= allowed, "seed {seed} ({policy}): {what}: {ours} is not the oracle's {theirs}");
}
