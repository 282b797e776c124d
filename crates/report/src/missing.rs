//! Ranks that the launcher started and that are not in the run: in a container that shares neither memory nor names with the
//! others, switched off, or not instrumented.

use std::collections::{BTreeMap, BTreeSet};

/// Local rank and number of ranks on the node, by launcher.
const LOCAL: [(&str, &str); 5] = [
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    ("JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"),
];
/// Variables that name a launch: a run may have several, one after the other.
const LAUNCHES: [&str; 6] =
    ["PMIX_NAMESPACE", "FLUX_JOB_ID", "PALS_APID", "SLURM_JOB_ID", "SLURM_STEP_ID", "PMI_JOBID"];

/// The place of a process among the ranks that a launcher started on a node.
#[derive(Debug, PartialEq)]
struct Launched {
    launch: Vec<String>,
    local_rank: u32,
    local_size: u32,
}

impl Launched {
    /// `environment`: `NAME=value`.
    fn of(environment: &[String]) -> Option<Launched> {
        let text = |name: &str| {
            environment.iter().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('=').map(str::trim))
        };
        let number = |name: &str| text(name)?.parse::<u32>().ok();
        let pair = || LOCAL.iter().find_map(|(rank, size)| Some((number(rank)?, number(size)?)));
        // Flux has the size of the job only.
        let flux = || {
            number("FLUX_JOB_NNODES").filter(|nodes| *nodes == 1)?;
            Some((number("FLUX_TASK_LOCAL_ID")?, number("FLUX_JOB_SIZE")?))
        };
        // Not SLURM_TASKS_PER_NODE, which batch scripts have, too.
        let slurm = || {
            let tasks = text("SLURM_STEP_TASKS_PER_NODE")?;
            Some((number("SLURM_LOCALID")?, tasks_of_node(tasks, number("SLURM_NODEID")?)?))
        };
        let (local_rank, local_size) = pair().or_else(flux).or_else(slurm)?;
        let launch = LAUNCHES.iter().map(|name| text(name).unwrap_or_default().to_owned()).collect();
        (local_rank < local_size).then_some(Launched { launch, local_rank, local_size })
    }
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

/// The missing ranks of one launch on this node.
#[derive(Debug, PartialEq)]
pub struct Missing {
    /// How many ranks the launcher started.
    pub local_size: u32,
    /// Those that are missing, in order.
    pub local_ranks: Vec<u32>,
}

/// One for each incomplete launch. `environments`: of all processes that are known.
pub fn on_this_node<'a>(environments: impl Iterator<Item = &'a [String]>) -> Vec<Missing> {
    let mut launches: BTreeMap<(Vec<String>, u32), BTreeSet<u32>> = BTreeMap::new();
    for of in environments.filter_map(Launched::of) {
        launches.entry((of.launch, of.local_size)).or_default().insert(of.local_rank);
    }
    let missing = launches.into_iter().map(|((_, local_size), there)| Missing {
        local_size,
        local_ranks: (0..local_size).filter(|rank| !there.contains(rank)).collect(),
    });
    missing.filter(|missing| !missing.local_ranks.is_empty()).collect()
}

/// Incomplete launches in one line. `mpi`: missing ranks and size, where all of the job was started on this node.
pub fn note_of_this_node(missing: &[Missing], mpi: Option<(&[u32], u32)>) -> Option<String> {
    let first = missing.first()?;
    let (what, size) = match mpi
        .filter(|(ranks, size)| ranks.len() == first.local_ranks.len() && *size == first.local_size)
    {
        Some((ranks, size)) => (named("MPI Rank", ranks), size),
        None => (named("local rank", &first.local_ranks), first.local_size),
    };
    let more = if missing.len() > 1 { ", and ranks of other launches likewise" } else { "" };
    Some(format!("missing: {what} of the {size} that the launcher started on this node{more}: {ADVICE}"))
}

/// The note of a job whose ranks are not all in the results.
pub fn note_of_all_nodes(ranks: &[u32], size: u32) -> String {
    format!(
        "no node's results have {} of {size}: {ADVICE}; or its node's results are in another directory",
        named("MPI Rank", ranks)
    )
}

/// What users can do about it.
const ADVICE: &str = "a rank is missing that has a /dev/shm of its own (a container: let it use the node's, or set AMPERE_SHM to a \
     directory that all share), is switched off, or neither calls MPI nor is instrumented";

/// Numbers in order as people write them: `0, 2 to 5, 7`.
pub fn list(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let range = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(", ")
}

/// "MPI Rank 3", "MPI Ranks 1 to 3".
pub fn named(what: &str, numbers: &[u32]) -> String {
    format!("{what}{} {}", if numbers.len() == 1 { "" } else { "s" }, list(numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(processes: &[&str]) -> Vec<(u32, Vec<u32>)> {
        let all: Vec<Vec<String>> =
            processes.iter().map(|text| text.split_whitespace().map(str::to_owned).collect()).collect();
        on_this_node(all.iter().map(Vec::as_slice))
            .into_iter()
            .map(|m| (m.local_size, m.local_ranks))
            .collect()
    }

    #[test]
    fn the_local_size_of_each_launcher_shows_missing_local_ranks() {
        let of = |rank: &str, size: &str, number: u32| format!("{rank}={number} {size}=3");
        for (rank, size) in LOCAL {
            let all = [0, 1, 2].map(|number| of(rank, size, number));
            assert_eq!(missing(&[&all[0], &all[1], &all[2]]), []);
            assert_eq!(missing(&[&all[1], &all[1]]), [(3, vec![0, 2])]);
        }
        let flux = "FLUX_TASK_LOCAL_ID=1 FLUX_JOB_SIZE=2 FLUX_JOB_NNODES=";
        assert_eq!(missing(&[&format!("{flux}1")]), [(2, vec![0])]);
        assert_eq!(missing(&[&format!("{flux}2")]), []);
        let slurm = "SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1(x2),3 SLURM_NODEID=";
        assert_eq!(missing(&[&format!("{slurm}1")]), []);
        assert_eq!(missing(&[&format!("{slurm}2")]), [(3, vec![1, 2])]);
        assert_eq!(missing(&[&format!("{slurm}3")]), []);
        // A batch script, and a process without a launcher.
        assert_eq!(missing(&["SLURM_LOCALID=0 SLURM_TASKS_PER_NODE=64 SLURM_NODEID=0", ""]), []);
    }

    #[test]
    fn two_launches_of_one_run_are_two() {
        let of = |launch: u32, rank: u32, size: u32| {
            format!(
                "PMIX_NAMESPACE={launch} OMPI_COMM_WORLD_LOCAL_RANK={rank} OMPI_COMM_WORLD_LOCAL_SIZE={size}"
            )
        };
        let all = [of(1, 0, 2), of(1, 1, 2), of(2, 0, 2)];
        assert_eq!(missing(&[&all[0], &all[1], &all[2]]), [(2, vec![1])]);
        assert_eq!(missing(&[&all[0], &all[1]]), []);
    }

    #[test]
    fn numbers_are_listed_in_ranges() {
        assert_eq!(list(&[0, 2, 3, 4, 6, 7, 9]), "0, 2 to 4, 6, 7, 9");
        assert_eq!(named("MPI Rank", &[3]), "MPI Rank 3");
        assert_eq!(named("MPI Rank", &[1, 2, 3]), "MPI Ranks 1 to 3");
    }
}
