//! Checks the settings: the file, and the environment variables that are set. Some mistakes stop a run, others are only noted.

use super::Wanted;
use super::findings::{Check, Group};
use ampere_model::{ENV_DISABLE, switches_off};
use ampere_settings::{Config, IfWrong, PREFIX, Setting, setting};
use std::path::Path;

pub fn check(wanted: &Wanted) -> Vec<Check> {
    let mut group = Group::new("settings");
    match &wanted.config {
        Some(path) => look_at_file(&mut group, path),
        None => group.ok("file", "none: the defaults apply"),
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
    let advice = "correct it, or leave --config and AMPERE_CONFIG out";
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
    let Some(setting) = setting(name) else {
        let meant = Setting::meant_by(name);
        let advice = meant
            .map_or_else(|| format!("unset {name}"), |meant| format!("did you mean {}?", meant.variable));
        return group.note(name, "is not known and has no effect", Some(advice));
    };
    let advice = format!("correct it, or unset {name}");
    match (setting.check(value), setting.if_wrong) {
        (Ok(()), _) if name == ENV_DISABLE && switches_off(value) => {
            group.note(name, "nothing is measured", Some(advice));
        }
        (Ok(()), _) => group.ok(name, if value.is_empty() { "is empty" } else { value }),
        (Err(why), IfWrong::Refused | IfWrong::RefusedByRun) => group.problem(name, why.to_string(), advice),
        (Err(why), IfWrong::LeftOut) => group.note(name, format!("{why}; it is ignored"), Some(advice)),
    }
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
    fn wrong_values_of_variables_are_reported() {
        use super::super::findings::Status::{Note, Ok, Problem};
        let cases = [
            ("AMPERE_POLICY", "busy_only", Ok, ""),
            ("AMPERE_POLICY", "bussy_only", Problem, "use active, time_sliced or busy_only"),
            ("AMPERE_SAMPLE_PERIOD", "1ns", Problem, "use 100us to 10s"),
            ("AMPERE_COLLECTOR_CPUS", "0-3,8", Ok, ""),
            ("AMPERE_COLLECTOR_CPUS", "all", Problem, "is not a list of CPUs"),
            ("AMPERE_COUNTERS", "rapl,rocm", Problem, "\"rocm\" is not known"),
            ("AMPERE_COUNTERS", "rapl", Ok, ""),
            ("AMPERE_ESTIMATE_IDLE_WATTS", "many", Problem, "is not a number"),
            ("AMPERE_ESTIMATE_IDLE_WATTS", "-4", Problem, "use a number of 0 or more"),
            ("AMPERE_EVENTS", "most", Note, "use auto, folded or all"),
            ("AMPERE_RING_BYTES", "8M", Note, "is not a whole number"),
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
