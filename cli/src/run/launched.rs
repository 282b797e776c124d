//! `ampere run` that a launcher starts, once for each rank: `srun -n 8 ampere run -- ./program`. Runs of their own would
//! each count the joules of the whole node. So each becomes its rank, whose plugin finds the others by the name that the
//! launcher gave the job, as without `ampere run`.

use super::command::become_command;
use crate::parts::CannotRun;
use std::path::Path;
use std::process::Command;

/// Size and rank, by launcher. Of srun: a batch script has no such variables, or is its only task.
const LAUNCHERS: [(&str, &str); 5] = [
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
    ("JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"),
    SRUN,
];
const SRUN: (&str, &str) = ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID");
/// Set in all of a Flux instance, also in its batch script. The instance may be a step of srun's, whose variables older
/// brokers leave there: they are about the brokers.
const IN_FLUX: &str = "FLUX_URI";

/// Which of several ranks this is. `None` without a launcher.
pub fn rank() -> Option<u32> {
    rank_by(|name| std::env::var(name).ok())
}

fn rank_by(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let number = |name: &str| variable(name)?.parse::<u32>().ok();
    let mut launchers = LAUNCHERS.iter().filter(|launcher| **launcher != SRUN || variable(IN_FLUX).is_none());
    let of = launchers.find_map(|(size, rank)| Some((number(size)?, number(rank)?)));
    of.filter(|(size, _)| *size > 1).map(|(_, rank)| rank)
}

/// Replaces this process by the command. Returns only if the command cannot be run.
pub fn become_rank(command: Command, rank: u32, output: Option<&Path>) -> CannotRun {
    if rank == 0 {
        let place =
            output.map_or("./ampere-<date>_<time>_<id>".into(), |output| output.display().to_string());
        say!(
            "ampere: ampere run was started once for each rank: a node's ranks are one run, results in {place}; for the live table \
             start it once, before the launcher"
        );
    }
    become_command(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_known_by_its_launcher_and_a_batch_script_is_none() {
        let rank = |variables: &[(&str, &str)]| {
            rank_by(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
            })
        };
        assert_eq!(rank(&[]), None);
        assert_eq!(rank(&[("PMI_RANK", "3"), ("PMI_SIZE", "4")]), Some(3));
        assert_eq!(rank(&[("PMI_RANK", "3")]), None);
        let of_slurm = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert_eq!(rank(&of_slurm), Some(1));
        assert_eq!(rank(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]), None);
        assert_eq!(rank(&[&of_slurm[..], &[("FLUX_URI", "local:///run/flux/local")]].concat()), None);
        let of_flux = [("FLUX_URI", "local:///x"), ("FLUX_TASK_RANK", "5"), ("FLUX_JOB_SIZE", "16")];
        assert_eq!(rank(&[&of_slurm[..], &of_flux].concat()), Some(5));
    }
}
