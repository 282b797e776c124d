//! The place of a process among the ranks of its node, as launchers and MPI libraries tell it.

use super::{Evidence, visible};
use ampere_model::LOCAL_RANKS;
use std::collections::BTreeSet;
use std::fmt;

/// One of the ranks of a node, by its launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRank {
    /// From 0.
    pub rank: u32,
    /// How many ranks the node has.
    pub of: u32,
    variable: &'static str,
}

impl fmt::Display for LocalRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "local rank {} of {} ({})", self.rank, self.of, self.variable)
    }
}

impl LocalRank {
    /// The GPU, if the ranks fit the GPUs: the first ranks get one each, then it begins again, as programs do it that
    /// choose their device by their local rank.
    pub fn uses(&self, gpus: &[u32]) -> Option<u32> {
        let count = gpus.len() as u32;
        (count > 0 && self.of.is_multiple_of(count)).then(|| gpus[(self.rank % count) as usize])
    }
}

/// Local ranks of all processes of a node, in their order: by a variable that gives each a number of its own, from 0 on.
pub fn local_ranks(processes: &[&Evidence]) -> Option<Vec<LocalRank>> {
    let of = processes.len() as u32;
    LOCAL_RANKS.iter().find_map(|variable| {
        let rank =
            |evidence: &&Evidence| visible::variable(&evidence.environment, variable)?.parse::<u32>().ok();
        let ranks: Vec<u32> = processes.iter().map(rank).collect::<Option<_>>()?;
        let distinct: BTreeSet<u32> = ranks.iter().copied().collect();
        let complete = distinct.len() == ranks.len() && distinct.last().is_none_or(|last| *last + 1 == of);
        complete.then(|| ranks.into_iter().map(|rank| LocalRank { rank, of, variable }).collect())
    })
}
