//! `ampere run` that a launcher starts, once for each rank: `srun -n 8 ampere run -- ./program`. Runs of their own would
//! each have the joules of the whole node. So each becomes its rank, whose plugin finds the others by the name that the
//! launcher gave the job, as without `ampere run`.

use crate::run::cannot_run;
use anyhow::Context;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Size and rank, by launcher. Of srun: a batch script has no such variables, or is its only task.
const LAUNCHERS: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
];

/// Which of several ranks this is.
pub fn rank() -> Option<u32> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let of = LAUNCHERS.iter().find_map(|(size, rank)| Some((number(size)?, number(rank)?)));
    of.filter(|(size, _)| *size > 1).map(|(_, rank)| rank)
}

/// Does not return where the command can be run.
pub fn become_rank(mut command: Command, rank: u32, output: Option<&Path>) -> anyhow::Result<ExitCode> {
    if rank == 0 {
        let place =
            output.map_or("./ampere-<date>_<time>_<id>".into(), |output| output.display().to_string());
        say!(
            "ampere: it was started once for each rank: a node's ranks are one run, results in {place}; for the live table start \
             it once, before the launcher, as in ampere run -- mpirun ..."
        );
    }
    let program = command.get_program().to_owned();
    Err(command.exec()).with_context(|| cannot_run(&program))
}
