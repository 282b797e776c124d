//! `ampere attribute` against the definition, in a slow and readable implementation of its own, on random traces.
//!
//! 500 traces; `AMPERE_ORACLE_TRACES=5000` for more, `AMPERE_ORACLE_SEED=...` for others. A failure names its seed, which
//! with one trace makes it again. `AMPERE_ORACLE` is the oracle's path where it is not beside the repository.

mod random;

use ampere_tests::artifact;
use ampere_tests::runs::{list, number, shared};
use random::{Generated, Random};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Imports the oracle once and asks it about every trace: one line of JSON each.
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

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

fn oracle() -> Option<PathBuf> {
    let named = std::env::var_os("AMPERE_ORACLE").map(PathBuf::from);
    let path = named.or_else(|| shared("oracle/attribute.py"));
    if path.is_none() {
        println!("skipped: no oracle beside the repository");
        return None;
    }
    let has_otf2 =
        Command::new("/usr/bin/python3").args(["-c", "import otf2"]).stderr(Stdio::null()).status();
    if !has_otf2.is_ok_and(|status| status.success()) {
        println!("skipped: the oracle needs python3-otf2");
        return None;
    }
    path
}

fn ask(oracle: &Path, directories: &[PathBuf]) -> Child {
    let mut command = Command::new("/usr/bin/python3");
    command.arg("-c").arg(DRIVER).arg(oracle).args(directories).stdout(Stdio::piped());
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
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn random_traces_give_what_the_definition_says() {
    let Some(oracle) = oracle() else { return };
    let (traces, seed) = (setting("AMPERE_ORACLE_TRACES", 500), setting("AMPERE_ORACLE_SEED", 1));
    let mut rows = 0;
    let seeds: Vec<u64> = (seed..seed + traces).collect();
    for batch in seeds.chunks(250) {
        let place = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let directories: Vec<PathBuf> =
            batch.iter().map(|seed| place.path().join(seed.to_string())).collect();
        let generated: Vec<Generated> =
            batch.iter().zip(&directories).map(|(seed, directory)| generate(*seed, directory)).collect();
        let mut theirs = ask(&oracle, &directories);
        let mut lines = BufReader::new(theirs.stdout.take().expect("piped")).lines();
        for ((seed, directory), generated) in batch.iter().zip(&directories).zip(&generated) {
            let ours = ours(directory, generated.policy);
            let line =
                lines.next().unwrap_or_else(|| panic!("seed {seed}: the oracle ended")).expect("a line");
            let theirs = serde_json::from_str(&line).expect("JSON");
            let mut comparison = Comparison { seed: *seed, policy: generated.policy, rows: 0 };
            comparison.all(&ours, &theirs);
            rows += comparison.rows;
        }
        assert!(theirs.wait().expect("python ends").success());
    }
    println!("{traces} random traces, {rows} figures as the oracle has them");
    assert!(rows > 20 * traces, "the traces have too little in them");
}

fn generate(seed: u64, directory: &Path) -> Generated {
    std::fs::create_dir(directory).expect("a directory");
    let generated = random::write(&mut Random(seed), directory).expect("a trace");
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
        let mut seen = BTreeMap::new();
        // Each device is there twice: first with its ranks, then with its streams.
        for expected in list(theirs, "devices") {
            let name = expected["name"].as_str().expect("a name").to_owned();
            let device = list(ours, "devices").iter().find(|device| device["name"] == name.as_str());
            let device = device.unwrap_or_else(|| panic!("seed {}: {name} is missing", self.seed));
            let view = seen.entry(name.clone()).or_insert(0);
            self.view(&name, device, &list(device, "views")[*view], expected);
            *view += 1;
        }
        assert!(seen.values().all(|views| *views == 2), "seed {}: {seen:?}", self.seed);
        assert_eq!(seen.len(), list(ours, "devices").len(), "seed {}", self.seed);
    }

    fn view(&mut self, name: &str, device: &Value, view: &Value, expected: &Value) {
        let total = number(expected, "total");
        let what = format!("{name} {}", view["view"]);
        let same = |what: String, ours: f64, theirs: f64| {
            assert_same(self.seed, self.policy, total, what, ours, theirs)
        };
        same(format!("{what} total"), number(device, "total_joules"), total);
        assert_eq!(device["samples"], expected["samples"], "seed {} {what}", self.seed);
        let expected = &expected[self.policy];
        for (key, theirs) in [("attributed_joules", "attributed"), ("idle_joules", "idle")] {
            same(format!("{what} {key}"), number(view, key), number(expected, theirs));
        }
        assert_eq!(number(view, "lost_joules"), 0.0, "seed {} {what}", self.seed);
        let (mut exclusive, mut inclusive) = (BTreeMap::new(), BTreeMap::new());
        for row in list(view, "callpaths") {
            let path: Vec<&str> = list(row, "path").iter().filter_map(Value::as_str).collect();
            *exclusive.entry(path.join(";")).or_insert(0.0) += number(row, "exclusive_joules");
        }
        for row in list(view, "regions") {
            inclusive
                .insert(row["region"].as_str().expect("a name").to_owned(), number(row, "inclusive_joules"));
        }
        let mut rows = 0;
        for (kind, ours) in [("exclusive", &exclusive), ("inclusive", &inclusive)] {
            let theirs = expected[kind].as_object().expect("a table");
            let keys: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
            for key in keys {
                let theirs = theirs.get(key).and_then(Value::as_f64).unwrap_or(0.0);
                same(format!("{what} {kind} {key}"), ours.get(key).copied().unwrap_or(0.0), theirs);
                rows += 1;
            }
        }
        self.rows += rows;
    }
}

/// To 1e-9 of the figure. The oracle takes differences of sums, so of very small figures it has fewer digits: to 1e-13
/// of the device's total.
#[track_caller]
fn assert_same(seed: u64, policy: &str, total: f64, what: String, ours: f64, theirs: f64) {
    let allowed = 1e-9 * ours.abs().max(theirs.abs()) + 1e-13 * total.abs();
    let off = (ours - theirs).abs();
    assert!(off <= allowed, "seed {seed} ({policy}): {what}: {ours} is not the oracle's {theirs}");
}
