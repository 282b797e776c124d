//! The number of a process among the ranks of its node, from the variables of launchers and MPI libraries.

use super::visible;
use ampere_model::LOCAL_RANKS;
use std::collections::BTreeSet;
use std::fmt;

/// One of the ranks of a node, as its launcher numbers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRank {
    /// The rank's number on the node, from 0.
    pub rank: u32,
    /// The number of ranks on the node.
    pub of: u32,
    variable: &'static str,
}

impl fmt::Display for LocalRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "local rank {} of {} ({})", self.rank, self.of, self.variable)
    }
}

impl LocalRank {
    /// Returns the GPU that the rank uses if the number of ranks is a multiple of the number of GPUs: ranks are
    /// assigned to GPUs in turn, as programs do that choose their device by their local rank.
    pub fn uses(&self, gpus: &[u32]) -> Option<u32> {
        let count = gpus.len() as u32;
        (count > 0 && self.of.is_multiple_of(count)).then(|| gpus[(self.rank % count) as usize])
    }
}

/// Returns the local ranks of all processes of a node, in the order of their environments, from a variable that gives
/// each process a number of its own, from 0 on.
pub fn local_ranks(environments: &[&[String]]) -> Option<Vec<LocalRank>> {
    let of = environments.len() as u32;
    LOCAL_RANKS.iter().find_map(|variable| {
        let rank = |environment: &&[String]| visible::variable(environment, variable)?.parse::<u32>().ok();
        let ranks: Vec<u32> = environments.iter().map(rank).collect::<Option<_>>()?;
        let distinct: BTreeSet<u32> = ranks.iter().copied().collect();
        let complete = distinct.len() == ranks.len() && distinct.last().is_none_or(|last| *last + 1 == of);
        complete.then(|| ranks.into_iter().map(|rank| LocalRank { rank, of, variable }).collect())
    })
}
