//! Ranks, communicators, and the operations of ranks.

use super::frames::Tolerance;
use ampere_attribution::LocationIndex;
use ampere_model::Timestamp;
use ampere_model::numbers::{NumberMap, NumberTable};

/// The energy of waits is kept by pairs of groups of consecutive ranks. There are at most this number of groups.
pub const GROUPS_MAX: usize = 128;

/// A process that takes part in MPI.
#[derive(Clone, Debug, Default)]
pub struct Rank {
    /// The location of its main thread, if there are events of it.
    pub main: Option<LocationIndex>,
    /// All of its locations.
    pub locations: Vec<LocationIndex>,
    /// Whether frames around recorded calls are samples, so that the call path of a call may change during the call.
    pub has_samples: bool,
    /// The rank's number in `MPI_COMM_WORLD`, if it is known.
    pub number: Option<u32>,
    /// The number of its node: clocks of different nodes may differ.
    pub node: u32,
}

/// The number of all ranks that are on other nodes, in the communicators of a running job.
pub const ELSEWHERE: u32 = u32::MAX;

/// A communicator.
#[derive(Clone, Debug)]
pub enum Comm {
    /// The numbers of its ranks, which may be [`ELSEWHERE`].
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

/// The root of a collective operation, as one of its members names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// The operation has no root.
    None,
    /// The root's rank in the communicator.
    Rank(u32),
    /// Another member of this member's group, whose data is for the other group. This member has nothing to do.
    ThisGroup,
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
    /// A collective operation has ended. `operation` is a number that all members have in common.
    Collective {
        comm: u32,
        operation: u8,
        kind: CollectiveKind,
        root: Root,
        request: Option<u64>,
    },
}

/// The members of a communicator.
struct Members {
    ranks: Vec<u32>,
    /// The members that are not on other nodes.
    here: Vec<u32>,
    /// The index of each of these members in `here`.
    places: NumberMap<u32, u32>,
}

impl Members {
    /// Returns `None` if each process is alone.
    fn of(comm: Comm) -> Option<Members> {
        let Comm::Members(ranks) = comm else { return None };
        let here: Vec<u32> = ranks.iter().copied().filter(|rank| *rank != ELSEWHERE).collect();
        let places = here.iter().copied().zip(0..).collect();
        Some(Members { ranks, here, places })
    }
}

/// All ranks and communicators of a run.
pub struct Ranks {
    all: Vec<Rank>,
    comms: NumberTable<Option<Members>>,
    /// The rank of each location.
    of_locations: Vec<Option<u32>>,
    /// The ranks of communicators with several members, in the order of their numbers.
    in_order: Vec<u32>,
    /// The number of ranks in each group, except the last.
    group_size: usize,
    /// The group of each rank.
    group_of: Vec<Option<u32>>,
    tolerance: Tolerance,
}

impl Ranks {
    /// Stores the ranks by their numbers, and the communicators. `clock_error` is the greatest error of one node's times on the
    /// clock of another, in ticks.
    pub fn new(
        all: Vec<Rank>,
        comms: impl Iterator<Item = (u32, Comm)>,
        clock_error: Timestamp,
        ticks_per_second: u64,
    ) -> Ranks {
        let tolerance = Tolerance { clock_error, within_node: ticks_per_second / 1000 };
        let mut ranks = Ranks {
            all: Vec::new(),
            comms: NumberTable::default(),
            of_locations: Vec::new(),
            in_order: Vec::new(),
            group_size: 1,
            group_of: Vec::new(),
            tolerance,
        };
        comms.for_each(|(number, comm)| ranks.comms.insert(number.into(), Members::of(comm)));
        ranks.set(all);
        ranks.set_groups();
        ranks
    }

    /// Replaces the ranks of a running job by a longer list. Ranks that are known already keep their numbers.
    pub(super) fn set(&mut self, all: Vec<Rank>) {
        for (number, rank) in (0..).zip(&all) {
            for location in rank.locations.iter().map(|location| location.0 as usize) {
                self.of_locations.resize(self.of_locations.len().max(location + 1), None);
                self.of_locations[location] = Some(number);
            }
        }
        self.group_of.resize(all.len(), None);
        self.all = all;
    }

    /// Adds a communicator of a running job. The first one has all ranks.
    pub(super) fn add_comm(&mut self, number: u32, comm: Comm) {
        self.comms.insert(number.into(), Members::of(comm));
        if self.in_order.is_empty() {
            self.set_groups();
        }
    }

    fn set_groups(&mut self) {
        let mut is_member = vec![false; self.all.len()];
        let members = self.comms.values().flatten().flat_map(|members| &members.here);
        members.for_each(|rank| is_member[*rank as usize] = true);
        self.in_order = (0..self.all.len() as u32).filter(|rank| is_member[*rank as usize]).collect();
        let all = &self.all;
        self.in_order.sort_by_key(|rank| (all[*rank as usize].number.unwrap_or(u32::MAX), *rank));
        self.group_size = self.in_order.len().div_ceil(GROUPS_MAX).max(1);
        for (group, ranks) in (0..).zip(self.in_order.chunks(self.group_size)) {
            ranks.iter().for_each(|rank| self.group_of[*rank as usize] = Some(group));
        }
    }

    /// Whether members of communicators are on other nodes.
    pub(super) fn has_members_elsewhere(&self) -> bool {
        self.comms.values().flatten().any(|members| members.here.len() < members.ranks.len())
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

    /// Whether the call path of a location's call may change during the call.
    pub(super) fn has_samples(&self, location: LocationIndex) -> bool {
        self.of(location).is_some_and(|rank| self.all[rank as usize].has_samples)
    }

    pub(super) fn main(&self, rank: u32) -> Option<LocationIndex> {
        self.all[rank as usize].main
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns the rank that has a number in a communicator of `rank`; `None` if it is on another node.
    pub(super) fn peer(&self, rank: u32, comm: u32, number: u32) -> Option<u32> {
        match self.comms.get(comm.into())? {
            Some(members) => members.ranks.get(number as usize).copied().filter(|rank| *rank != ELSEWHERE),
            None => Some(rank),
        }
    }

    /// Returns the members of a communicator that are not on other nodes, if there are several.
    pub(super) fn members(&self, comm: u32) -> Option<&[u32]> {
        self.comms
            .get(comm.into())?
            .as_ref()
            .map(|members| members.here.as_slice())
            .filter(|all| all.len() > 1)
    }

    /// Returns a rank's place among these members.
    pub(super) fn place(&self, comm: u32, rank: u32) -> Option<u32> {
        self.comms.get(comm.into())?.as_ref()?.places.get(&rank).copied()
    }
}
