//! The name of a process' session: the same for all processes of a job on a node, and different for different jobs.

use crate::process;
use ampere_model::launcher::{JOB_IDS, launched_rank};

/// The maximum number of ancestors of a rank that are examined: shells and wrappers between it and its launcher.
const ANCESTORS_MAX: u32 = 32;
/// A variable that MPICH's launcher sets even for a single rank.
const ONLY_RANK: &str = "PMI_RANK";

/// Returns the session's name, which is a file name.
pub fn session_name() -> String {
    if let Ok(name) = std::env::var("AMPERE_SESSION") {
        return sanitise(&name);
    }
    for variables in JOB_IDS {
        let values: Option<Vec<String>> = variables.iter().map(|name| std::env::var(name).ok()).collect();
        if let Some(values) = values {
            let name = format!("{}-{}", variables[0].to_ascii_lowercase(), values.join("."));
            return sanitise(&name) + &attempt();
        }
    }
    let leader = launching_process().unwrap_or_else(std::process::id);
    format!("s-pid-{leader}-{}", process::start_time(leader).unwrap_or(0))
}

/// Returns the pid of the launcher's process on this node: the nearest ancestor that does not belong to this rank. It
/// identifies the job if there is no job id. MPICH, MVAPICH2 and MPT have one such process on each node.
fn launching_process() -> Option<u32> {
    let launched = launched_rank(|name| std::env::var(name).ok()).map(|launched| launched.variable);
    let name = launched.or_else(|| std::env::var_os(ONLY_RANK).map(|_| ONLY_RANK))?;
    let own = format!("{name}={}", std::env::var(name).ok()?);
    let is_of_this_rank = |pid: u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == own.as_bytes())
    };
    let mut leader = process::parent(std::process::id())?;
    for _ in 0..ANCESTORS_MAX {
        match process::parent(leader).filter(|parent| *parent > 0 && is_of_this_rank(leader)) {
            Some(parent) => leader = parent,
            None => break,
        }
    }
    Some(leader)
}

/// Returns the suffix of the name for a job that was requeued. Such a job keeps its id but is another run, and the files of the
/// previous attempt are left for `ampere recover`.
fn attempt() -> String {
    let count = std::env::var("SLURM_RESTART_COUNT").ok().and_then(|count| count.parse::<u32>().ok());
    count.filter(|count| *count > 0).map_or_else(String::new, |count| format!("-again-{count}"))
}

/// Whether a session of this name belongs to this process alone.
pub fn is_of_this_process(name: &str) -> bool {
    name.starts_with(&format!("s-pid-{}-", std::process::id()))
}

/// Returns the name of a session with the allowed characters only. `add_name` in crates/preload/src/limits.c does the same.
fn sanitise(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = name.chars().take(120).map(allowed).collect();
    format!("s-{name}") // never "", "." or ".."
}
