//! Settings: the file, and the environment variables that are set. A run refuses what is wrong in `ampere.toml`'s terms;
//! of the rest it says less, or nothing.

use super::Wanted;
use super::report::{Check, Group};
use crate::variables::{OF_CONFIG, OF_COUNTERS, PREFIX, is_known, meant_by};
use ampere_counters::Settings;
use ampere_ring::session::{ENV_DISABLE, switches_off};
use ampere_settings::Config;
use std::path::Path;

/// What is wrong with a value, and whether a run refuses it.
enum Wrong {
    Refused(String),
    LeftOut(String),
}

pub fn look(wanted: &Wanted) -> Vec<Check> {
    let mut group = Group::new("settings");
    match &wanted.config {
        Some(path) => look_at_file(&mut group, path),
        None => group.ok("file", "none: the defaults hold"),
    }
    let mut set: Vec<(String, String)> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with(PREFIX))
        .collect();
    set.sort();
    for (name, value) in set {
        look_at_variable(&mut group, &name, &value);
    }
    group.checks
}

fn look_at_file(group: &mut Group, path: &Path) {
    let shown = path.display().to_string();
    let advice = "put it right, or leave --config and AMPERE_CONFIG out";
    match std::fs::read_to_string(path) {
        Err(error) => {
            group.problem("file", format!("cannot read the configuration {shown}: {error}"), advice)
        }
        Ok(text) => match Config::parse(&text, &shown) {
            Ok(_) => group.ok("file", shown),
            Err(error) => group.problem("file", error.to_string(), advice),
        },
    }
}

fn look_at_variable(group: &mut Group, name: &str, value: &str) {
    if !is_known(name) {
        let advice =
            meant_by(name).map_or_else(|| format!("unset {name}"), |meant| format!("did you mean {meant}?"));
        return group.note(name, "is not known and changes nothing", Some(advice));
    }
    match wrong(name, value) {
        None => group.ok(name, if value.is_empty() { "is empty" } else { value }),
        // The message begins with the name.
        Some(Wrong::Refused(why)) => {
            let why = why.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&why);
            group.problem(name, why, format!("put it right, or unset {name}"));
        }
        Some(Wrong::LeftOut(why)) => group.note(name, why, Some(format!("put it right, or unset {name}"))),
    }
}

fn wrong(name: &str, value: &str) -> Option<Wrong> {
    let lookup = |asked: &str| (asked == name).then(|| value.to_owned());
    if OF_CONFIG.contains(&name) {
        // On its own, so that each mistake is told and not only the first.
        return Config::default().apply(&lookup).err().map(|error| Wrong::Refused(error.to_string()));
    }
    if name == ampere_counters::ENV_COUNTERS {
        return ampere_counters::check_names(value).err().map(Wrong::Refused);
    }
    if OF_COUNTERS.contains(&name) {
        let mut wrong = Vec::new();
        Settings::default().apply_variables(|asked| lookup(asked).map(Into::into), &mut wrong);
        let why = wrong.pop()?;
        let why = why.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&why);
        return Some(Wrong::Refused(why.to_owned()));
    }
    let number =
        || value.trim().parse::<u64>().is_err().then(|| format!("{value:?} is no number; it is left out"));
    let file = || (!Path::new(value).is_file()).then(|| format!("{value:?}: there is no such file"));
    let why = match name {
        "AMPERE_EVENTS" => (!["", "auto", "all", "folded"].contains(&value.trim()))
            .then(|| format!("{value:?}: use all, auto or folded; auto is taken")),
        "AMPERE_RING_BYTES" | "AMPERE_FINALIZE_TIMEOUT" | "AMPERE_START_TIMEOUT" => number(),
        "AMPERE_COLLECTOR" | "AMPERE_HOST_PLUGIN" if !value.is_empty() => file(),
        ENV_DISABLE => switches_off(value).then(|| "nothing is measured".to_owned()),
        _ => None,
    };
    why.map(Wrong::LeftOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_at(name: &str, value: &str) -> Check {
        let mut group = Group::new("settings");
        look_at_variable(&mut group, name, value);
        group.checks.pop().unwrap()
    }

    #[test]
    fn every_variable_is_judged() {
        use super::super::report::Status::{Note, Ok, Problem};
        let cases = [
            ("AMPERE_POLICY", "busy_only", Ok, ""),
            ("AMPERE_POLICY", "bussy_only", Problem, "\"bussy_only\" is no policy"),
            ("AMPERE_SAMPLE_PERIOD", "1ns", Problem, "use 100us to 10s"),
            ("AMPERE_COLLECTOR_CPUS", "0-3,8", Ok, ""),
            ("AMPERE_COLLECTOR_CPUS", "all", Problem, "no list of CPUs"),
            ("AMPERE_COUNTERS", "rapl,rocm", Problem, "\"rocm\" is not known"),
            ("AMPERE_COUNTERS", "rapl", Ok, ""),
            ("AMPERE_ESTIMATE_IDLE_WATTS", "many", Problem, "is no number"),
            ("AMPERE_ESTIMATE_IDLE_WATTS", "-4", Problem, "is no number of 0 or more"),
            ("AMPERE_EVENTS", "most", Note, "auto is taken"),
            ("AMPERE_RING_BYTES", "8M", Note, "is no number"),
            ("AMPERE_COLLECTOR", "/nonexistent", Note, "no such file"),
            ("AMPERE_DISABLE", "1", Note, "nothing is measured"),
            ("AMPERE_DISABLE", "0", Ok, ""),
            ("AMPERE_POLICIE", "x", Note, "is not known"),
        ];
        for (name, value, status, words) in cases {
            let check = look_at(name, value);
            assert_eq!(check.status, status, "{check:?}");
            assert!(check.found.contains(words), "{check:?}");
            assert_eq!(check.advice.is_some(), status != Ok, "{check:?}");
        }
        assert_eq!(look_at("AMPERE_COUNTER", "x").advice.as_deref(), Some("did you mean AMPERE_COUNTERS?"));
        assert_eq!(
            look_at("AMPERE_QUITE_ANOTHER", "x").advice.as_deref(),
            Some("unset AMPERE_QUITE_ANOTHER")
        );
    }
}
