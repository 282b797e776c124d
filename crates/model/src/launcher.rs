//! What a launcher says of a rank's place in the job, and on its node.

/// Size and rank, by launcher. Of srun: a batch script has no such variables, or is its only task.
const SIZE_AND_RANK: [(&str, &str); 5] = [
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

/// The number of a launcher's rank, and how many there are. `None` without a launcher, and of the only rank. `variable`: of its
/// environment.
pub fn rank_and_size(variable: impl Fn(&str) -> Option<String>) -> Option<(u32, u32)> {
    let number = |name: &str| variable(name)?.parse::<u32>().ok();
    let mut launchers =
        SIZE_AND_RANK.iter().filter(|launcher| **launcher != SRUN || variable(IN_FLUX).is_none());
    let of = launchers.find_map(|(size, rank)| Some((number(rank)?, number(size)?)));
    of.filter(|(rank, size)| *size > 1 && rank < size)
}

/// Local rank and number of ranks on the node, by launcher.
pub const LOCAL_RANK_AND_SIZE: [(&str, &str); 5] = [
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    ("JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"),
];

/// A rank's number among those that the launcher started on its node, and how many these are. `variable`: of its environment.
pub fn local_rank_and_size(variable: impl Fn(&str) -> Option<String>) -> Option<(u32, u32)> {
    let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
    let pair = || LOCAL_RANK_AND_SIZE.iter().find_map(|(rank, size)| Some((number(rank)?, number(size)?)));
    // Flux has the size of the job only.
    let flux = || {
        number("FLUX_JOB_NNODES").filter(|nodes| *nodes == 1)?;
        Some((number("FLUX_TASK_LOCAL_ID")?, number("FLUX_JOB_SIZE")?))
    };
    // Not SLURM_TASKS_PER_NODE, which batch scripts have, too.
    let slurm = || {
        let tasks = variable("SLURM_STEP_TASKS_PER_NODE")?;
        Some((number("SLURM_LOCALID")?, tasks_of_node(tasks.trim(), number("SLURM_NODEID")?)?))
    };
    pair().or_else(flux).or_else(slurm).filter(|(rank, size)| rank < size)
}

/// Slurm's list: `4(x2),3` are 4, 4 and 3 tasks.
fn tasks_of_node(list: &str, node: u32) -> Option<u32> {
    let mut first = 0u32;
    for part in list.split(',') {
        let (tasks, nodes) = match part.split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        first = first.checked_add(nodes)?;
        if node < first {
            return tasks.parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_known_by_its_launcher_and_a_batch_script_is_none() {
        let rank = |variables: &[(&str, &str)]| {
            rank_and_size(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
            })
        };
        assert_eq!(rank(&[]), None);
        assert_eq!(rank(&[("PMI_RANK", "3"), ("PMI_SIZE", "4")]), Some((3, 4)));
        assert_eq!(rank(&[("PMI_RANK", "4"), ("PMI_SIZE", "4")]), None);
        assert_eq!(rank(&[("PMI_RANK", "3")]), None);
        let of_slurm = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert_eq!(rank(&of_slurm), Some((1, 2)));
        assert_eq!(rank(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), None);
        assert_eq!(rank(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]), None);
        assert_eq!(rank(&[&of_slurm[..], &[("FLUX_URI", "local:///run/flux/local")]].concat()), None);
        let of_flux = [("FLUX_URI", "local:///x"), ("FLUX_TASK_RANK", "5"), ("FLUX_JOB_SIZE", "16")];
        assert_eq!(rank(&[&of_slurm[..], &of_flux].concat()), Some((5, 16)));
    }
}
