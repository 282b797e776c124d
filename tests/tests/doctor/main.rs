//! `ampere doctor` as a whole process: whether what it reports is true.

use ampere_tests::artifact;
use ampere_tests::jobs::Place;
use ampere_tests::runs::{list, number, succeed, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

mod machine;
mod settings;
mod sources;
mod surroundings;

/// Returns a doctor on a made-up root without counters, so that it sees only the estimate, whatever the machine has.
fn doctor(place: &Place) -> Command {
    let root = place.path("root");
    put(&root.join("proc/stat"), "cpu  100 0 0 5000 0 0 0 0 0 0\n");
    // These are the files of a machine without problems.
    put(&root.join("proc/cpuinfo"), "flags\t\t: fpu tsc constant_tsc nonstop_tsc\n");
    bare(place).with(&[("AMPERE_SYS_ROOT", root.to_str().expect("UTF-8"))])
}

/// Returns a doctor that sees the real machine, and no settings.
fn bare(place: &Place) -> Command {
    let mut command = place.command(artifact("ampere"));
    command.arg("doctor").env_remove("AMPERE_COUNTERS");
    command
}

trait With {
    fn with(self, variables: &[(&str, &str)]) -> Self;
}

impl With for Command {
    fn with(mut self, variables: &[(&str, &str)]) -> Command {
        self.envs(variables.iter().copied());
        self
    }
}

/// The findings in its JSON output.
#[derive(Debug)]
struct Found {
    report: Value,
    code: i32,
}

#[track_caller]
fn ask(mut command: Command) -> Found {
    let output = command.arg("--json").output().expect("it runs");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout}\n{stderr}"));
    let found = Found { report, code: output.status.code().unwrap_or(-1) };
    assert_eq!(found.report["schema"], "ampere-doctor/1");
    assert_eq!(found.report["ok"], found.code == 0, "{found:#?}");
    let problems = list(&found.report, "checks").iter().any(|check| check["status"] == "problem");
    assert_eq!(found.code, i32::from(problems), "{found:#?}");
    assert_eq!(stderr, "");
    found
}

impl Found {
    /// Returns the only check of this name.
    #[track_caller]
    fn check(&self, group: &str, name: &str) -> &Value {
        let checks = list(&self.report, "checks");
        let mut named = checks.iter().filter(|check| check["group"] == group && check["name"] == name);
        match (named.next(), named.next()) {
            (Some(check), None) => check,
            found => panic!("{group}, {name}: {found:?} in {checks:#?}"),
        }
    }

    /// Panics unless the check has this status and these words.
    #[track_caller]
    fn says(&self, group: &str, name: &str, status: &str, words: &[&str]) -> &Value {
        let check = self.check(group, name);
        assert_eq!(check["status"], status, "{check:#}");
        let word = |key: &str| check[key].as_str().unwrap_or_default();
        let said = format!("{} -> {}", word("found"), word("advice"));
        words.iter().for_each(|word| assert!(said.contains(word), "{word:?} is not in {said}"));
        check
    }

    #[track_caller]
    fn source(&self, name: &str) -> &Value {
        let found = list(&self.report, "sources").iter().find(|source| source["name"] == name);
        found.unwrap_or_else(|| panic!("no source {name}"))
    }

    /// Returns the names of the sources that a run reads.
    fn used(&self) -> Vec<&str> {
        let used = list(&self.report, "sources").iter().filter(|source| source["used"] == true);
        used.filter_map(|source| source["name"].as_str()).collect()
    }
}

fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(path, text).expect("a file");
}

fn script(path: &Path, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    put(path, text);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    path.to_owned()
}
