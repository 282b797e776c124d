//! Finds a rank's number in the job, and on its node, from its launcher's variables.

/// The variables of size and rank, by launcher. In a batch script, srun's variables are not set, or the script is the only task.
const SIZE_AND_RANK: [(&str, &str); 8] = [
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    ("MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
    ("JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"),
    SRUN,
    TORCHRUN,
];
const SRUN: (&str, &str) = ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID");
/// The variables of torchrun. These names are general, so they count only if torchrun has numbered the node's processes, too.
const TORCHRUN: (&str, &str) = ("WORLD_SIZE", "RANK");
const TORCHRUN_LOCAL_RANK: &str = "LOCAL_RANK";
/// The variables of ranks of launchers that do not always set the job's size.
const RANK_ALONE: [&str; 8] = [
    "PALS_RANKID",
    "ALPS_APP_PE",
    "MPT_MPI_RANK",
    "JSM_NAMESPACE_RANK",
    "MV2_COMM_WORLD_RANK",
    "MVP_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
];
/// A variable that is set in a shell of `srun --pty`, and in the jobs that are submitted from it. The size of the shell's step
/// is not the number of ranks that are started in the shell.
const SLURM_SHELL: &str = "SLURM_PTY_PORT";
/// A variable that is set everywhere in a Flux instance, including its batch script. If srun started the instance, older
/// brokers leave srun's variables set, which describe the brokers.
const IN_FLUX: &str = "FLUX_URI";
/// The number of components of a heterogeneous Slurm job. The size of a step is that of one component.
const SLURM_COMPONENTS: &str = "SLURM_HET_SIZE";

/// A process that a launcher has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchedRank {
    /// The rank's number in the job.
    pub rank: u32,
    /// The number of ranks in the job; `None` if the launcher does not set it.
    pub size: Option<u32>,
    /// The variable that has the rank.
    pub variable: &'static str,
}

/// Returns a rank's number and the number of ranks; `None` without a launcher, for the only rank, and if the launcher does not
/// set the number of ranks. `variable` returns a variable of the rank's environment.
pub fn rank_and_size(variable: impl Fn(&str) -> Option<String>) -> Option<(u32, u32)> {
    launched_rank(variable).and_then(|launched| Some((launched.rank, launched.size?)))
}

/// Returns the launcher's rank of a process; `None` without a launcher, and for the only rank.
pub fn launched_rank(variable: impl Fn(&str) -> Option<String>) -> Option<LaunchedRank> {
    let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
    let is_in_flux = variable(IN_FLUX).is_some();
    let is_srun_meant = !is_in_flux && variable(SLURM_SHELL).is_none();
    if let Some(rank) = rank_of_components(&number).filter(|_| is_srun_meant) {
        return Some(rank);
    }
    let is_meant = |launcher: &(&str, &str)| match *launcher {
        SRUN => is_srun_meant,
        TORCHRUN => number(TORCHRUN_LOCAL_RANK).is_some(),
        _ => true,
    };
    // Variables of an outer launcher may be set, too: the first launcher that has started several ranks, with this one among
    // them, counts.
    let launchers = SIZE_AND_RANK.iter().filter(|launcher| is_meant(launcher));
    let mut sized =
        launchers.filter_map(|(size, rank)| Some((number(rank)?, number(size)?, *rank))).peekable();
    if sized.peek().is_some() {
        let several = sized.find(|(rank, size, _)| *size > 1 && rank < size);
        return several.map(|(rank, size, variable)| LaunchedRank { rank, size: Some(size), variable });
    }
    let mut alone = RANK_ALONE.iter().filter(|_| !is_in_flux);
    alone.find_map(|name| Some(LaunchedRank { rank: number(name)?, size: None, variable: name }))
}

/// Returns the rank of a task in a step of a heterogeneous Slurm job. The batch script is in no step.
fn rank_of_components(number: &impl Fn(&str) -> Option<u32>) -> Option<LaunchedRank> {
    number(SLURM_COMPONENTS).filter(|components| *components > 1)?;
    let (size, variable) = SRUN;
    let is_in_step = number(size).is_some() || number("SLURM_STEP_ID").is_some();
    let rank = number(variable).filter(|rank| is_in_step || *rank > 0)?;
    Some(LaunchedRank { rank, size: None, variable })
}

/// The variables of the local rank and of the number of ranks on the node, by launcher.
pub const LOCAL_RANK_AND_SIZE: [(&str, &str); 8] = [
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("MVP_COMM_WORLD_LOCAL_RANK", "MVP_COMM_WORLD_LOCAL_SIZE"),
    ("PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),
    ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    ("JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"),
    (TORCHRUN_LOCAL_RANK, "LOCAL_WORLD_SIZE"),
];

/// Further variables that show how many ranks of a launch run on a node.
const ON_THE_NODE: [&str; 4] =
    ["FLUX_JOB_NNODES", "FLUX_JOB_SIZE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"];

/// Variables that identify a job, by launcher, the most specific first. If a launcher needs several, they are joined.
pub const JOB_IDS: [&[&str]; 8] = [
    &["PMIX_NAMESPACE"],
    &["OMPI_MCA_ess_base_jobid"],
    &["FLUX_JOB_ID"],
    &["PALS_APID"],
    &["ALPS_APP_ID"],
    // All components of a heterogeneous job have the id of the first one.
    &["SLURM_JOB_ID_HET_GROUP_0", "SLURM_STEP_ID"],
    &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    &["PMI_JOBID"],
];

/// Variables that name a launch: a run may have several launches, one after the other.
pub fn launch_variables() -> impl Iterator<Item = &'static str> {
    JOB_IDS.iter().enumerate().flat_map(|(at, names)| {
        let is_new = move |name: &&str| !JOB_IDS[..at].iter().any(|before| before.contains(name));
        names.iter().copied().filter(is_new)
    })
}

/// Variables with the number of ranks that the launcher started on the node, and with the launch that a rank belongs to.
pub fn recorded_variables() -> impl Iterator<Item = &'static str> {
    let sizes = LOCAL_RANK_AND_SIZE.iter().map(|(_, size)| *size);
    sizes.chain(ON_THE_NODE).chain(launch_variables())
}

/// Returns a rank's number among those that the launcher started on its node, and their number. `variable` returns a variable of
/// the rank's environment.
pub fn local_rank_and_size(variable: impl Fn(&str) -> Option<String>) -> Option<(u32, u32)> {
    let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
    let pair = || LOCAL_RANK_AND_SIZE.iter().find_map(|(rank, size)| Some((number(rank)?, number(size)?)));
    // Flux sets only the size of the job.
    let flux = || {
        number("FLUX_JOB_NNODES").filter(|nodes| *nodes == 1)?;
        Some((number("FLUX_TASK_LOCAL_ID")?, number("FLUX_JOB_SIZE")?))
    };
    // SLURM_TASKS_PER_NODE is not used because batch scripts have it, too.
    let slurm = || {
        let tasks = variable("SLURM_STEP_TASKS_PER_NODE").filter(|_| variable(SLURM_SHELL).is_none())?;
        Some((number("SLURM_LOCALID")?, tasks_of_node(tasks.trim(), number("SLURM_NODEID")?)?))
    };
    pair().or_else(flux).or_else(slurm).filter(|(rank, size)| rank < size)
}

/// Returns the number of tasks of a node in Slurm's list: `4(x2),3` means 4, 4 and 3 tasks.
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
    fn a_rank_is_known_by_its_launcher_and_a_batch_script_is_no_rank() {
        let rank = |variables: &[(&str, &str)]| {
            rank_and_size(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
            })
        };
        assert_eq!(rank(&[]), None);
        assert_eq!(rank(&[("PMI_RANK", "3"), ("PMI_SIZE", "4")]), Some((3, 4)));
        assert_eq!(rank(&[("PMI_RANK", "4"), ("PMI_SIZE", "4")]), None);
        assert_eq!(rank(&[("PMI_RANK", "3")]), None, "the size is not known");
        let of_slurm = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert_eq!(rank(&of_slurm), Some((1, 2)));
        assert_eq!(
            rank(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PTY_PORT", "4")]),
            None
        );
        assert_eq!(rank(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), None);
        assert_eq!(rank(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]), None);
        assert_eq!(rank(&[&of_slurm[..], &[("FLUX_URI", "local:///run/flux/local")]].concat()), None);
        let of_flux = [("FLUX_URI", "local:///x"), ("FLUX_TASK_RANK", "5"), ("FLUX_JOB_SIZE", "16")];
        assert_eq!(rank(&[&of_slurm[..], &of_flux].concat()), Some((5, 16)));
    }

    /// Ranks that a script's launcher starts also have the variables of the launcher that started the script.
    #[test]
    fn a_rank_of_a_launcher_inside_another_one_is_known() {
        let rank = |variables: &[(&str, &str)]| {
            let of = |name: &str| Some(variables.iter().find(|(known, _)| *known == name)?.1.to_owned());
            launched_rank(of).map(|launched| (launched.rank, launched.size))
        };
        let open_mpi = |rank, size| [("OMPI_COMM_WORLD_RANK", rank), ("OMPI_COMM_WORLD_SIZE", size)];
        let srun = |rank, size| [("SLURM_PROCID", rank), ("SLURM_STEP_NUM_TASKS", size)];
        let hydra = |rank, size| [("PMI_RANK", rank), ("PMI_SIZE", size)];
        for (inner, outer) in [
            (srun("1", "2"), open_mpi("0", "1")),
            (hydra("1", "2"), open_mpi("0", "1")),
            (open_mpi("1", "2"), srun("0", "1")),
            (open_mpi("1", "2"), hydra("0", "4")),
            // A rank that is not below its launcher's size does not belong to that launcher.
            (srun("1", "2"), hydra("7", "2")),
        ] {
            assert_eq!(rank(&[inner, outer].concat()), Some((1, Some(2))), "{inner:?} in {outer:?}");
        }
        assert_eq!(rank(&[open_mpi("0", "1"), srun("0", "1")].concat()), None);
    }

    #[test]
    fn each_recorded_variable_is_recorded_once() {
        let all: Vec<&str> = recorded_variables().collect();
        let once: std::collections::BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(once.len(), all.len());
        for name in ["PMI_LOCAL_SIZE", "FLUX_JOB_NNODES", "SLURM_STEP_ID", "PMIX_NAMESPACE", "PMI_JOBID"] {
            assert!(once.contains(name), "{name}");
        }
    }

    #[test]
    fn a_rank_is_known_if_its_launcher_does_not_set_the_size() {
        let rank = |variables: &[(&str, &str)]| {
            let of = |name: &str| Some(variables.iter().find(|(known, _)| *known == name)?.1.to_owned());
            launched_rank(of).map(|launched| (launched.rank, launched.size))
        };
        for name in RANK_ALONE {
            assert_eq!(rank(&[(name, "0")]), Some((0, None)), "{name}");
            assert_eq!(rank(&[(name, "3")]), Some((3, None)), "{name}");
            assert_eq!(rank(&[(name, "a")]), None, "{name}");
            // The variables of the launcher that started the broker of a Flux instance do not describe the instance's scripts.
            assert_eq!(rank(&[(name, "3"), ("FLUX_URI", "local:///x")]), None, "{name}");
            // A known size takes precedence.
            let only = [(name, "0"), ("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")];
            assert_eq!(rank(&only), None, "{name}");
        }
        for (size, of) in SIZE_AND_RANK {
            let torchrun = (TORCHRUN_LOCAL_RANK, "1");
            assert_eq!(rank(&[(of, "1"), (size, "2"), torchrun]), Some((1, Some(2))), "{of}");
            assert_eq!(rank(&[(of, "0"), (size, "1"), torchrun]), None, "{of}");
        }
        assert_eq!(rank(&[("RANK", "1"), ("WORLD_SIZE", "2")]), None, "general names");
    }

    #[test]
    fn a_task_of_a_heterogeneous_slurm_job_is_a_rank_and_its_batch_script_is_no_rank() {
        let rank = |variables: &[(&str, &str)]| {
            let of = |name: &str| Some(variables.iter().find(|(known, _)| *known == name)?.1.to_owned());
            launched_rank(of).map(|launched| (launched.rank, launched.size))
        };
        let components = ("SLURM_HET_SIZE", "2");
        let script = [components, ("SLURM_PROCID", "0"), ("SLURM_JOB_ID_HET_GROUP_0", "7")];
        assert_eq!(rank(&script), None);
        // This component has one task.
        let task = [components, ("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_STEP_ID", "0")];
        assert_eq!(rank(&task), Some((0, None)));
        let task = [components, ("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "1")];
        assert_eq!(rank(&task), Some((1, None)));
        assert_eq!(rank(&[("SLURM_HET_SIZE", "1"), ("SLURM_PROCID", "0"), ("SLURM_STEP_ID", "0")]), None);
        // Open MPI's launcher runs in the script.
        let mpi =
            [components, ("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4"), ("SLURM_PROCID", "0")];
        assert_eq!(rank(&mpi), Some((1, Some(4))));
    }
}
