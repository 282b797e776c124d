//! `ampere run` that a launcher starts, once for each rank: `srun -n 8 ampere run -- ./program`. Runs of their own would
//! each count the joules of the whole node. So each becomes its rank, whose plugin finds the others by the name that the
//! launcher gave the job, as without `ampere run`.

use super::command::become_command;
use crate::installation::CannotRun;
use ampere_model::launcher::rank_and_size;
use std::path::Path;
use std::process::Command;

/// Which of several ranks this is. `None` without a launcher.
pub fn rank() -> Option<u32> {
    rank_and_size(|name| std::env::var(name).ok()).map(|(rank, _)| rank)
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
