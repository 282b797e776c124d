//! Settings: the file and the environment.

use super::*;
use std::collections::BTreeSet;

#[test]
fn wrong_settings_are_named() {
    let place = Place::new();
    let found = ask(doctor(&place).with(&[
        ("AMPERE_COUNTER", "rapl"),
        ("AMPERE_EVENTS", "al"),
        ("AMPERE_RING_BYTES", "16M"),
        ("AMPERE_TIME", "on"),
    ]));
    found.says("settings", "AMPERE_COUNTER", "note", &["is not known", "did you mean AMPERE_COUNTERS?"]);
    found.says("settings", "AMPERE_EVENTS", "note", &["use auto, folded or all"]);
    found.says("settings", "AMPERE_RING_BYTES", "note", &["is not a whole number"]);
    found.says("settings", "AMPERE_TIME", "ok", &["on"]);
    assert_eq!(found.code, 0);
    // The command names each of several mistakes for which a run would be refused.
    let found = ask(doctor(&place).with(&[("AMPERE_POLICY", "fair"), ("AMPERE_SLACK", "soon")]));
    found.says(
        "settings",
        "AMPERE_POLICY",
        "problem",
        &["\"fair\": use active, time_sliced or busy_only", "unset AMPERE_POLICY"],
    );
    found.says("settings", "AMPERE_SLACK", "problem", &["\"soon\" is not a time"]);
    assert_eq!(found.code, 1);
    let refused = place.ampere_run("out", ["true"]).env("AMPERE_SLACK", "soon").output().expect("it runs");
    assert_eq!(refused.status.code(), Some(1), "a run refuses it, too");
}

#[test]
fn an_unknown_counter_source_is_a_problem() {
    let place = Place::new();
    let found = ask(doctor(&place).with(&[("AMPERE_COUNTERS", "rapl,rocm")]));
    found.says("settings", "AMPERE_COUNTERS", "problem", &["\"rocm\" is not known", "rocm_smi, amdsmi"]);
    assert_eq!(found.code, 1);
}

#[test]
fn a_file_is_read_as_a_run_reads_it() {
    let place = Place::new();
    let file = place.path("ampere.toml");
    let there = || {
        let mut command = doctor(&place);
        command.arg("--config").arg(&file);
        command
    };
    let found = ask(there());
    found.says("settings", "file", "problem", &["cannot read the configuration", "ampere.toml"]);
    put(&file, "[attribution]\npolicy = \"busy_only\"\n");
    ask(there()).says("settings", "file", "ok", &["ampere.toml"]);
    put(&file, "[attribution]\npolice = \"busy_only\"\n");
    ask(there()).says("settings", "file", "problem", &["ampere.toml:2", "did you mean \"policy\"?"]);
    let named = doctor(&place).with(&[("AMPERE_CONFIG", file.to_str().expect("UTF-8"))]);
    ask(named).says("settings", "file", "problem", &["ampere.toml:2"]);
}

/// A variable that is added anywhere in the code must be known here.
#[test]
fn every_variable_is_known() {
    let mut names = BTreeSet::new();
    for folder in ["cli/src", "collector/src", "plugin/src", "crates"] {
        collect(&ampere_tests::root().join(folder), &mut names);
    }
    for page in ["docs/src/settings.md", "docs/src/settings-file.md"] {
        let page = std::fs::read_to_string(ampere_tests::root().join(page)).expect("a page of the book");
        names.extend(words(&page, |c| !(c.is_ascii_uppercase() || c == '_')));
    }
    // These are read by the tests alone.
    names.retain(|name| !name.starts_with("AMPERE_TEST_"));
    let of_tests = ["AMPERE_PROBE", "AMPERE_MADE_UP_GPUS", "AMPERE_QUITE_ANOTHER"];
    names.retain(|name| !of_tests.contains(&name.as_str()));
    assert!(names.len() > 30 && names.contains("AMPERE_SHM"), "{names:?}");
    let place = Place::new();
    let mut command = doctor(&place);
    for name in names.iter().filter(|name| !["AMPERE_SHM", "AMPERE_SYS_ROOT"].contains(&name.as_str())) {
        command.env(name, "17");
    }
    let found = ask(command);
    let unknown =
        |check: &&Value| check["found"].as_str().is_some_and(|found| found.contains("is not known and"));
    let unknown: Vec<&Value> = list(&found.report, "checks").iter().filter(unknown).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// Collects the names of variables in the string literals of all sources.
fn collect(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !["doctor/settings.rs", "settings/src/tests.rs"].iter().any(|test| path.ends_with(test))
        {
            let source = std::fs::read_to_string(&path).expect("a source");
            names.extend(words(&source, |c| c == '"' || c == ' ' || c == '='));
        }
    }
}

fn words(text: &str, separator: impl Fn(char) -> bool) -> Vec<String> {
    let is_name = |word: &&str| {
        word.len() > "AMPERE_".len()
            && word.starts_with("AMPERE_")
            && !word.ends_with('_')
            && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    };
    text.split(separator).filter(is_name).map(str::to_owned).collect()
}
