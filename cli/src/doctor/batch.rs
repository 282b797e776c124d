//! Checks which process of a batch job gets the signal that Slurm sends before it kills the job.

use super::findings::{Check, Group};

/// The field of `/proc/PID/status` with the signals that the process handles.
const CAUGHT: &str = "SigCgt:";
const SIGTERM: u32 = 15;

pub fn check() -> Vec<Check> {
    let mut group = Group::new("batch job");
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    // SLURM_TASK_PID is the process of the batch script: the shell.
    let script = std::env::var("SLURM_TASK_PID").ok().and_then(|pid| pid.parse().ok());
    if script != Some(parent) {
        return group.checks;
    }
    let status = std::fs::read_to_string(format!("/proc/{parent}/status")).unwrap_or_default();
    match handles(&status, SIGTERM) {
        true => group.ok("Slurm's signal", "this script's shell has a trap for SIGTERM"),
        false => group.note(
            "Slurm's signal",
            "scancel and the time limit send SIGTERM to this script's shell alone, which has no trap for it: Slurm kills everything \
             else as soon as the shell has died",
            Some("start the run as exec ampere run ..., or set a trap that passes the signal on".to_owned()),
        ),
    }
    group.checks
}

fn handles(status: &str, signal: u32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix(CAUGHT));
    let mask = mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trap_shows_in_the_process_status() {
        assert!(!handles("Name:\tbash\nSigCgt:\t0000000000010002\n", SIGTERM));
        assert!(handles("Name:\tbash\nSigCgt:\t0000000000014002\n", SIGTERM));
        assert!(!handles("", SIGTERM));
    }
}
