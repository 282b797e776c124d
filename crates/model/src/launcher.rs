//! What a launcher says of a rank's place on its node.

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
