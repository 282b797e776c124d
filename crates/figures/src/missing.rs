//! Finds ranks that the launcher started and that are not in the run, because they are in a container with a /dev/shm of its
//! own, because ampere is switched off in them, or because they are not instrumented.

use ampere_model::launcher::{launch_variables, local_rank_and_size};
use std::collections::{BTreeMap, BTreeSet};

/// The position of a process among the ranks that a launcher started on a node.
#[derive(Debug, PartialEq)]
struct Launched {
    launch: Vec<String>,
    local_rank: u32,
    local_size: u32,
}

impl Launched {
    /// Finds the position in the environment, whose lines have the form `NAME=value`.
    fn of(environment: &[String]) -> Option<Launched> {
        let text = |name: &str| {
            environment.iter().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('=').map(str::trim))
        };
        let (local_rank, local_size) = local_rank_and_size(|name| text(name).map(str::to_owned))?;
        let launch = launch_variables().map(|name| text(name).unwrap_or_default().to_owned()).collect();
        Some(Launched { launch, local_rank, local_size })
    }
}

/// Ascending numbers, as ranges that include both ends. Ranges are small even if a damaged log has an impossible job size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers(Vec<(u32, u32)>);

impl Numbers {
    /// Returns the numbers below `size` that are missing in `there`, which is in ascending order.
    pub fn missing(size: u32, there: impl Iterator<Item = u32>) -> Numbers {
        let (mut ranges, mut next) = (Vec::new(), 0);
        for number in there.filter(|number| *number < size) {
            if next < number {
                ranges.push((next, number - 1));
            }
            next = number + 1;
        }
        if next < size {
            ranges.push((next, size - 1));
        }
        Numbers(ranges)
    }

    /// Whether no number is missing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Returns a text such as "MPI Rank 3" or "MPI Ranks 0, 2 to 5".
    fn named(&self, what: &str) -> String {
        let range = |(first, last): &(u32, u32)| match last - first {
            0 => first.to_string(),
            1 => format!("{first}, {last}"),
            _ => format!("{first} to {last}"),
        };
        let list: Vec<String> = self.0.iter().map(range).collect();
        format!("{what}{} {}", if self.count() == 1 { "" } else { "s" }, list.join(", "))
    }
}

/// The missing ranks of one launch on this node.
#[derive(Debug, PartialEq)]
pub struct Missing {
    /// The number of ranks that the launcher started.
    pub local_size: u32,
    pub local_ranks: Numbers,
}

/// Returns one entry for each incomplete launch. `environments` are those of all known processes.
pub fn on_this_node<'a>(environments: impl Iterator<Item = &'a [String]>) -> Vec<Missing> {
    let mut launches: BTreeMap<(Vec<String>, u32), BTreeSet<u32>> = BTreeMap::new();
    for of in environments.filter_map(Launched::of) {
        launches.entry((of.launch, of.local_size)).or_default().insert(of.local_rank);
    }
    let missing = launches.into_iter().map(|((_, local_size), there)| Missing {
        local_size,
        local_ranks: Numbers::missing(local_size, there.into_iter()),
    });
    missing.filter(|missing| !missing.local_ranks.is_empty()).collect()
}

/// Returns a note about incomplete launches. `mpi` has the missing ranks and the job's size, if the whole job was started on this
/// node.
pub fn note_of_this_node(missing: &[Missing], mpi: Option<(&Numbers, u32)>) -> Option<String> {
    let first = missing.first()?;
    let (what, size) = match mpi
        .filter(|(ranks, size)| ranks.count() == first.local_ranks.count() && *size == first.local_size)
    {
        Some((ranks, size)) => (ranks.named("MPI Rank"), size),
        None => (first.local_ranks.named("local rank"), first.local_size),
    };
    let more = if missing.len() > 1 { ", and ranks of other launches" } else { "" };
    Some(format!("missing: {what} of the {size} that the launcher started on this node{more}: {ADVICE}"))
}

/// Returns the note about the ranks of a job that are in no node's results. `size` is the number of the job's ranks.
pub fn note_of_all_nodes(ranks: &Numbers, size: u32) -> String {
    format!(
        "no node's results have {} of {size}: {ADVICE}; or its node's results are in another directory",
        ranks.named("MPI Rank")
    )
}

const ADVICE: &str = "a rank is missing if it has a /dev/shm of its own (in a container: let it use the node's, or set AMPERE_SHM to \
     a directory that all share), if ampere is switched off in it, or if it neither calls MPI nor is instrumented";

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(processes: &[&str]) -> Vec<(u32, String)> {
        let all: Vec<Vec<String>> =
            processes.iter().map(|text| text.split_whitespace().map(str::to_owned).collect()).collect();
        on_this_node(all.iter().map(Vec::as_slice))
            .into_iter()
            .map(|m| (m.local_size, m.local_ranks.named("rank")))
            .collect()
    }

    #[test]
    fn the_local_size_of_each_launcher_shows_missing_local_ranks() {
        let of = |rank: &str, size: &str, number: u32| format!("{rank}={number} {size}=3");
        for (rank, size) in ampere_model::launcher::LOCAL_RANK_AND_SIZE {
            let all = [0, 1, 2].map(|number| of(rank, size, number));
            assert_eq!(missing(&[&all[0], &all[1], &all[2]]), []);
            assert_eq!(missing(&[&all[1], &all[1]]), [(3, "ranks 0, 2".to_owned())]);
        }
        let flux = "FLUX_TASK_LOCAL_ID=1 FLUX_JOB_SIZE=2 FLUX_JOB_NNODES=";
        assert_eq!(missing(&[&format!("{flux}1")]), [(2, "rank 0".to_owned())]);
        assert_eq!(missing(&[&format!("{flux}2")]), []);
        let slurm = "SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1(x2),3 SLURM_NODEID=";
        assert_eq!(missing(&[&format!("{slurm}1")]), []);
        assert_eq!(missing(&[&format!("{slurm}2")]), [(3, "ranks 1, 2".to_owned())]);
        assert_eq!(missing(&[&format!("{slurm}3")]), []);
        // A batch script, and a process without a launcher.
        assert_eq!(missing(&["SLURM_LOCALID=0 SLURM_TASKS_PER_NODE=64 SLURM_NODEID=0", ""]), []);
    }

    #[test]
    fn two_launches_of_one_run_are_reported_separately() {
        let of = |launch: u32, rank: u32, size: u32| {
            format!(
                "PMIX_NAMESPACE={launch} OMPI_COMM_WORLD_LOCAL_RANK={rank} OMPI_COMM_WORLD_LOCAL_SIZE={size}"
            )
        };
        let all = [of(1, 0, 2), of(1, 1, 2), of(2, 0, 2)];
        assert_eq!(missing(&[&all[0], &all[1], &all[2]]), [(2, "rank 1".to_owned())]);
        assert_eq!(missing(&[&all[0], &all[1]]), []);
    }

    #[test]
    fn missing_numbers_are_listed_in_ranges() {
        let missing = |size, there: &[u32]| Numbers::missing(size, there.iter().copied()).named("MPI Rank");
        assert_eq!(missing(10, &[1, 5, 8]), "MPI Ranks 0, 2 to 4, 6, 7, 9");
        assert_eq!(missing(4, &[0, 1, 2]), "MPI Rank 3");
        assert_eq!(missing(u32::MAX, &[u32::MAX]), format!("MPI Ranks 0 to {}", u32::MAX - 1));
        assert!(Numbers::missing(2, [0, 1].into_iter()).is_empty());
    }
}
