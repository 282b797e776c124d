//! The name of a process' session: the same for all processes of a job on a node, and different for different jobs.

use crate::process;

/// Variables that identify a job, by launcher, the most specific first. Where a launcher needs several, they are joined.
const LAUNCHERS: [&[&str]; 6] = [
    &["PMIX_NAMESPACE"],
    &["OMPI_MCA_ess_base_jobid"],
    &["FLUX_JOB_ID"],
    &["PALS_APID"],
    &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    &["PMI_JOBID"],
];

/// The session's name, which is a file name.
pub fn session_name() -> String {
    if let Ok(name) = std::env::var("AMPERE_SESSION") {
        return sanitise(&name);
    }
    for variables in LAUNCHERS {
        let values: Option<Vec<String>> = variables.iter().map(|name| std::env::var(name).ok()).collect();
        if let Some(values) = values {
            let name = format!("{}-{}", variables[0].to_ascii_lowercase(), values.join("."));
            return sanitise(&name) + &attempt();
        }
    }
    // MPICH's mpiexec sets no job id, but has one proxy per node, the parent of the node's ranks.
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get() as u32);
    let leader = if std::env::var_os("PMI_RANK").is_some() { parent } else { std::process::id() };
    format!("s-pid-{leader}-{}", process::start_time(leader).unwrap_or(0))
}

/// A job that is queued again keeps its id but is another run: what the previous attempt left is for `ampere recover`.
fn attempt() -> String {
    let count = std::env::var("SLURM_RESTART_COUNT").ok().and_then(|count| count.parse::<u32>().ok());
    count.filter(|count| *count > 0).map_or_else(String::new, |count| format!("-again-{count}"))
}

/// Whether a session of this name belongs to this process alone.
pub fn is_of_this_process(name: &str) -> bool {
    name.starts_with(&format!("s-pid-{}-", std::process::id()))
}

fn sanitise(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = name.chars().take(120).map(allowed).collect();
    format!("s-{name}") // never "", "." or ".."
}
