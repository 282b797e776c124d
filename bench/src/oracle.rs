//! `ampere attribute` against an independent implementation of the definition, in Python, that the tests compare it with.
//! It is not part of the project: without it this is skipped. `AMPERE_ORACLE` is its path where it is not beside the
//! repository.

use crate::trace::{Shape, Walk};
use crate::{Figure, child, median};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const RANKS: u64 = 8;
/// So many that starting and printing do not count.
const EVENTS: u64 = 1_000_000;
const ROUNDS: usize = 3;
/// Of ours, which takes a hundredth of the time: a single run of it just after the other's is one with cold caches.
const RUNS_A_ROUND: usize = 7;

/// Both answer for one policy.
const DRIVER: &str = r#"
import importlib.util, sys
spec = importlib.util.spec_from_file_location("oracle", sys.argv.pop(1))
oracle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(oracle)
oracle.busy_only = lambda *arguments: ({}, 0.0)
oracle.main()
"#;

pub fn figures() -> Result<Vec<Figure>, String> {
    let oracle = find()?;
    let directory = tempfile::tempdir().expect("a directory");
    let shape = Shape { ranks: RANKS, regions: Walk::REGIONS, devices: 1 };
    let written = shape.write(directory.path(), |rank| Walk::new(rank, EVENTS / RANKS));
    let trace = written.expect("a trace").anchor;
    let config = directory.path().join("oracle.json");
    let consumers: Vec<String> = (0..RANKS).map(|rank| format!("MPI Rank {rank}/Master thread")).collect();
    let device = serde_json::json!({"name": "0", "metric": "bench:::energy:device=0", "scale": 1e-9,
                                    "consumers": consumers});
    std::fs::write(&config, serde_json::json!({"devices": [device]}).to_string()).expect("a file");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for _ in 0..RUNS_A_ROUND {
            ours.push(1e3 * child::run(&mut child::attribute(&trace)).seconds);
        }
        let mut python = Command::new("/usr/bin/python3");
        let answer = child::run(python.args(["-c", DRIVER]).args([&oracle, &trace, &config]));
        theirs.push(1e3 * answer.seconds);
        assert_same(&child::run(child::attribute(&trace).arg("--json")).output, &answer.output);
    }
    Ok(vec![Figure {
        what: "attribute: a million events, the whole process",
        value: median(ours),
        unit: "ms",
        yardstick: "the oracle in Python; to reach: a hundredth of it",
        yardstick_value: median(theirs),
    }])
}

fn find() -> Result<PathBuf, String> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let oracle = std::env::var_os("AMPERE_ORACLE")
        .map_or_else(|| project.join("../shared/oracle/attribute.py"), PathBuf::from);
    if !oracle.exists() {
        return Err("no oracle beside the repository".to_owned());
    }
    let mut python = Command::new("/usr/bin/python3");
    let imports = python.args(["-c", "import otf2"]).stderr(Stdio::null()).status();
    if !imports.is_ok_and(|status| status.success()) {
        return Err("the oracle needs python3-otf2".to_owned());
    }
    Ok(oracle)
}

/// Figures of two that disagree could not be compared.
fn assert_same(ours: &[u8], oracle: &[u8]) {
    let ours: serde_json::Value = serde_json::from_slice(ours).expect("a summary");
    let oracle: serde_json::Value = serde_json::from_slice(oracle).expect("the oracle's answer");
    let a = ours["devices"][0]["views"][0]["attributed_joules"].as_f64().expect("joules");
    let b = oracle["devices"][0]["time_sliced"]["attributed"].as_f64().expect("joules");
    assert!((a - b).abs() <= 1e-9 * b, "{a} J, by the oracle {b} J");
}
