//! Ranks, communicators, and the operations of ranks.

use super::frames::Tolerance;
use ampere_attribution::LocationIndex;
use ampere_model::Timestamp;
use ampere_model::numbers::NumberMap;

/// The energy of waits is kept by pairs of groups of consecutive ranks. There are at most this number of groups.
pub const GROUPS_MAX: usize = 128;

/// A process that takes part in MPI.
#[derive(Clone, Debug, Default)]
pub struct Rank {
    /// The location of its main thread, if there are events of it.
    pub main: Option<LocationIndex>,
    /// All of its locations.
    pub locations: Vec<LocationIndex>,
    /// Whether frames around recorded calls are samples, so that the call path of a call may change meanwhile.
    pub has_samples: bool,
    /// Its number in `MPI_COMM_WORLD`, if it is known.
    pub number: Option<u32>,
    /// The number of its node: clocks of different nodes may differ.
    pub node: u32,
}

/// A communicator.
#[derive(Clone, Debug)]
pub enum Comm {
    /// The numbers of its ranks.
    Members(Vec<u32>),
    /// Each process is alone in a communicator of its own.
    Own,
}

/// A message, as one of its sides sees it.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// The other side's rank in the communicator.
    pub peer: u32,
    /// The number of the communicator.
    pub comm: u32,
    /// The tag.
    pub tag: u32,
    /// The request of a non-blocking operation. A receive has it when it completes.
    pub request: Option<u64>,
}

/// Who waits for whom in a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CollectiveKind {
    Barrier,
    AllToAll,
    OneToAll,
    AllToOne,
    /// Each rank needs data of the ranks before it.
    Scan,
    /// No rank is known to wait.
    Other,
}

/// An event of communication.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Operation {
    Send(Message),
    Receive(Message),
    /// A receive was started, and will complete with this request.
    ReceiveRequest(u64),
    /// A non-blocking send with this request has ended.
    SendEnd(u64),
    /// A request was cancelled.
    Cancelled(u64),
    /// A non-blocking collective operation was started.
    CollectiveRequest(u64),
    /// A collective operation has ended. `operation` is a number that all members have in common, `root` the rank in the
    /// communicator.
    Collective {
        comm: u32,
        operation: u8,
        kind: CollectiveKind,
        root: Option<u32>,
        request: Option<u64>,
    },
}

/// The members of a communicator, and the place of each.
struct Members {
    ranks: Vec<u32>,
    places: NumberMap<u32, u32>,
}

/// All ranks and communicators of a run.
pub struct Ranks {
    all: Vec<Rank>,
    comms: NumberMap<u32, Option<Members>>,
    /// The rank of each location.
    of_locations: Vec<Option<u32>>,
    /// The ranks of communicators with several members, by their numbers, and the number of them in each group but the last.
    in_order: Vec<u32>,
    group_size: usize,
    /// The group of each rank.
    group_of: Vec<Option<u32>>,
    tolerance: Tolerance,
}

impl Ranks {
    /// Takes the ranks by their numbers, and the communicators. `clock_error` is the greatest error of one node's times on the
    /// clock of another, in ticks.
    pub fn new(
        all: Vec<Rank>,
        comms: impl Iterator<Item = (u32, Comm)>,
        clock_error: Timestamp,
        ticks_per_second: u64,
    ) -> Ranks {
        let mut of_locations = Vec::new();
        for (number, rank) in (0..).zip(&all) {
            for location in rank.locations.iter().map(|location| location.0 as usize) {
                of_locations.resize(of_locations.len().max(location + 1), None);
                of_locations[location] = Some(number);
            }
        }
        let members = |comm| match comm {
            Comm::Own => None,
            Comm::Members(ranks) => {
                let places = ranks.iter().copied().zip(0..).collect();
                Some(Members { ranks, places })
            }
        };
        let comms: NumberMap<u32, Option<Members>> =
            comms.map(|(number, comm)| (number, members(comm))).collect();
        let mut is_member = vec![false; all.len()];
        let members = comms.values().flatten().flat_map(|members| &members.ranks);
        members.for_each(|rank| is_member[*rank as usize] = true);
        let mut in_order: Vec<u32> = (0..all.len() as u32).filter(|rank| is_member[*rank as usize]).collect();
        in_order.sort_by_key(|rank| (all[*rank as usize].number.unwrap_or(u32::MAX), *rank));
        let group_size = in_order.len().div_ceil(GROUPS_MAX).max(1);
        let mut group_of = vec![None; all.len()];
        for (group, ranks) in (0..).zip(in_order.chunks(group_size)) {
            ranks.iter().for_each(|rank| group_of[*rank as usize] = Some(group));
        }
        let tolerance = Tolerance { clock_error, within_node: ticks_per_second / 1000 };
        Ranks { all, comms, of_locations, in_order, group_size, group_of, tolerance }
    }

    /// Returns the locations of each group's ranks, one of each rank.
    pub(super) fn groups(&self) -> impl Iterator<Item = Vec<LocationIndex>> + '_ {
        let location = |rank: &u32| self.all[*rank as usize].locations.first().copied();
        self.in_order.chunks(self.group_size).map(move |ranks| ranks.iter().filter_map(location).collect())
    }

    /// Returns the number of a location's group of ranks.
    pub(super) fn group(&self, location: LocationIndex) -> Option<u32> {
        self.group_of[self.of(location)? as usize]
    }

    pub(super) fn locations(&self) -> impl Iterator<Item = LocationIndex> + '_ {
        self.all.iter().flat_map(|rank| rank.locations.iter().copied())
    }

    pub(super) fn tolerance(&self) -> Tolerance {
        self.tolerance
    }

    #[inline]
    pub(super) fn of(&self, location: LocationIndex) -> Option<u32> {
        self.of_locations.get(location.0 as usize).copied().flatten()
    }

    pub(super) fn node(&self, rank: u32) -> u32 {
        self.all[rank as usize].node
    }

    /// Whether the call path of a call of a location may change meanwhile.
    pub(super) fn has_samples(&self, location: LocationIndex) -> bool {
        self.of(location).is_some_and(|rank| self.all[rank as usize].has_samples)
    }

    pub(super) fn main(&self, rank: u32) -> Option<LocationIndex> {
        self.all[rank as usize].main
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns the rank that has a number in a communicator of `rank`.
    pub(super) fn peer(&self, rank: u32, comm: u32, number: u32) -> Option<u32> {
        match self.comms.get(&comm)? {
            Some(members) => members.ranks.get(number as usize).copied(),
            None => Some(rank),
        }
    }

    /// Returns the members of a communicator that has several.
    pub(super) fn members(&self, comm: u32) -> Option<&[u32]> {
        self.comms.get(&comm)?.as_ref().map(|members| members.ranks.as_slice()).filter(|all| all.len() > 1)
    }

    /// Returns a rank's number in a communicator.
    pub(super) fn place(&self, comm: u32, rank: u32) -> Option<u32> {
        self.comms.get(&comm)?.as_ref()?.places.get(&rank).copied()
    }
}
