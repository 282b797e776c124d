//! Defines the communicators of all processes in the trace.
//!
//! A process knows its own handle of a communicator, and either all members or, with Score-P, its own rank and a number that is
//! the same in all of its processes. If some members have not reported a communicator, it is left out together with its events.
//! If MPI_Comm_spawn has started some of the members, each of two MPI_COMM_WORLDs reports its own members, and both lists are
//! put together. Members on other nodes report it in the traces of those nodes: until the traces are joined, these members have
//! no location here.

use super::TracedProcess;
use ampere_model::OF_ANOTHER_WORLD;
use ampere_model::{LocationKind, Members};
use otf2::{Comm, CommRef, Definitions, Group, GroupType, LocationRef, ParadigmType};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Communicators by a process' handles.
pub type Handles = HashMap<u32, CommRef>;

/// The flag `OTF2_COMM_FLAG_CREATE_DESTROY_EVENTS` of a communicator.
const HAS_EVENTS: u32 = 1;

/// Identifies the same communicator in different processes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    World,
    /// A communicator of one process, with the communicator's number in that process; 0 if the number is unknown.
    Alone(u32),
    Ranks(Vec<u32>),
    /// Score-P's key: the root's rank and the communicator's number there.
    Shared(u32, u32),
}

struct World {
    /// The number of all ranks. Ranks that MPI_Comm_spawn has started are numbered after the ranks of their parents, so the
    /// MPI_COMM_WORLD of a parent has fewer ranks than this.
    size: u32,
    /// The ranks on this node, in order.
    own: Vec<u32>,
    /// For each communicator with Score-P's key, a map from the rank in the communicator to the rank in the world, for the
    /// processes that have reported it.
    shared: BTreeMap<(u32, u32), BTreeMap<u32, u32>>,
    /// The members of communicators of two MPI_COMM_WORLDs, by the list of the members that one of these knows.
    completed: HashMap<Vec<u32>, Vec<u32>>,
}

/// Puts together what two MPI_COMM_WORLDs know about the members of a communicator: each member is known to one of them. Where
/// several others could know the rest, it stays unknown.
fn completed<'a>(known: impl Iterator<Item = &'a Members>) -> HashMap<Vec<u32>, Vec<u32>> {
    let in_part: BTreeSet<&Vec<u32>> = known
        .filter_map(|members| match members {
            Members::Ranks(ranks) if ranks.contains(&OF_ANOTHER_WORLD) => Some(ranks),
            _ => None,
        })
        .collect();
    // The lists, by the places whose members they have.
    let mut by_places: HashMap<Vec<bool>, Vec<&Vec<u32>>> = HashMap::new();
    for ranks in in_part {
        let places = ranks.iter().map(|rank| *rank != OF_ANOTHER_WORLD).collect();
        by_places.entry(places).or_default().push(ranks);
    }
    let whole = by_places.iter().filter_map(|(places, these)| {
        let others = by_places.get(&places.iter().map(|is_known| !is_known).collect::<Vec<_>>())?;
        let ([own], [rest]) = (&these[..], &others[..]) else { return None };
        let all = own.iter().zip(rest.iter()).map(|(own, rest)| *own.min(rest)).collect();
        Some(((*own).clone(), all))
    });
    whole.collect()
}

impl World {
    /// Returns `None` if there are no ranks, if ranks belong to several programs that could not be distinguished, or if a trace
    /// of all nodes lacks ranks: readers require a location for every member of a communicator.
    fn new(processes: &[TracedProcess], numbers: &[u32], is_part: bool) -> Option<World> {
        let recorded = || processes.iter().zip(numbers).filter(|(process, _)| !process.is_sampled);
        let mut size = None;
        for (process, number) in recorded() {
            let (rank, of) = process.rank.filter(|_| process.is_mpi_rank)?;
            if rank != *number || rank >= of || !has_main_thread(process) {
                return None;
            }
            size = size.max(Some(of));
        }
        let size = size.filter(|size: &u32| is_part || *size as usize == recorded().count())?;
        let mut own: Vec<u32> = recorded().map(|(_, number)| *number).collect();
        own.sort_unstable();
        let mut shared: BTreeMap<_, BTreeMap<u32, u32>> = BTreeMap::new();
        for (process, number) in recorded() {
            for communicator in process.communicators {
                if let Members::Shared { root, id, rank, .. } = communicator.members {
                    shared.entry((root, id)).or_default().insert(rank, *number);
                }
            }
        }
        let known = recorded().flat_map(|(process, _)| process.communicators);
        let completed = completed(known.map(|communicator| &communicator.members));
        Some(World { size, own, shared, completed })
    }

    /// Whether some ranks are on other nodes.
    fn is_part(&self) -> bool {
        self.own.len() < self.size as usize
    }

    /// Returns a location for each rank on this node, and the first one again for the ranks on other nodes.
    fn locations(&self) -> Vec<LocationRef> {
        let elsewhere = self.own.first().filter(|_| self.is_part());
        self.own.iter().chain(elsewhere).map(|rank| LocationRef((*rank).into())).collect()
    }

    /// Returns the index of a rank in these locations.
    fn place(&self, rank: Option<u32>) -> u64 {
        let found = rank.and_then(|rank| self.own.binary_search(&rank).ok());
        found.unwrap_or(self.own.len()) as u64
    }

    fn all(&self) -> Vec<u64> {
        (0..self.size).map(|rank| self.place(Some(rank))).collect()
    }

    /// Returns the communicator's key, and its members as indices into [`World::locations`]; no members for a communicator of
    /// one process, which is MPI_COMM_SELF. Returns `None` if some members are unknown. `size` is that of the process'
    /// MPI_COMM_WORLD.
    fn find(&self, members: &Members, size: u32) -> Option<(Key, Vec<u64>)> {
        match members {
            Members::World if size < self.size => self.find(&Members::Ranks((0..size).collect()), size),
            Members::World => Some((Key::World, self.all())),
            Members::Ranks(ranks) if ranks.len() == 1 => Some((Key::Alone(0), Vec::new())),
            Members::Ranks(ranks) => {
                let ranks = self.completed.get(ranks).unwrap_or(ranks);
                let is_known = !ranks.is_empty() && ranks.iter().all(|rank| *rank < self.size);
                let places = || ranks.iter().map(|rank| self.place(Some(*rank))).collect();
                is_known.then(|| (Key::Ranks(ranks.clone()), places()))
            }
            Members::Shared { id, size: 1, .. } => Some((Key::Alone(*id), Vec::new())),
            Members::Shared { root: 0, id: 0, size, .. } if *size == self.size => {
                Some((Key::World, self.all()))
            }
            Members::Shared { root, id, size, .. } => {
                let ranks = self.shared.get(&(*root, *id))?;
                let is_whole = ranks.len() == *size as usize && ranks.keys().copied().eq(0..*size);
                let is_known = is_whole || (self.is_part() && *size <= self.size);
                let places = || (0..*size).map(|rank| self.place(ranks.get(&rank).copied())).collect();
                is_known.then(|| (Key::Shared(*root, *id), places()))
            }
        }
    }

    /// Returns the name of a group of ranks. When the traces of nodes are joined, groups of equal name and size are one group.
    fn group_name(&self, key: &Key) -> String {
        match key {
            Key::Ranks(ranks) if self.is_part() => {
                format!("ranks {:016x}", ampere_model::text::fnv1a(ranks.iter().copied()))
            }
            Key::Shared(root, id) if self.is_part() => format!("ranks of communicator {id} of rank {root}"),
            _ => String::new(),
        }
    }
}

fn has_main_thread(process: &TracedProcess) -> bool {
    let mut definitions = process.locations.iter().map(|location| location.definition);
    definitions.any(|location| location.id.0 == 0 && location.kind == LocationKind::CpuThread)
}

fn group(name: &str, kind: GroupType, members: Vec<u64>) -> Group {
    Group { name: name.to_owned(), kind, paradigm: ParadigmType::Mpi, flags: 0, members }
}

/// Defines the communicators. `numbers` are the processes' numbers: their ranks, if each process has a rank of its own. `order`
/// lists the processes by number. `is_part` states that other nodes have further processes. Returns the handles of each process.
pub fn define(
    definitions: &mut Definitions,
    processes: &[TracedProcess],
    (numbers, order): (&[u32], &[usize]),
    is_part: bool,
) -> Vec<Handles> {
    let mut handles = vec![Handles::new(); processes.len()];
    let has_communicators = processes.iter().any(|process| !process.communicators.is_empty());
    let world = World::new(processes, numbers, is_part);
    let Some(world) = world.filter(|world| world.size > 1 || has_communicators) else {
        define_world_of_some(definitions, processes, numbers, order);
        return handles;
    };
    let world_comm = definitions.add_mpi_world_of(&world.locations(), world.all());
    let mut known = BTreeMap::from([(Key::World, world_comm)]);
    let mut alone = None;
    for at in order {
        for communicator in processes[*at].communicators {
            let size = processes[*at].rank.map_or(0, |(_, size)| size);
            let Some((key, members)) = world.find(&communicator.members, size) else { continue };
            let comm = known.entry(key.clone()).or_insert_with(|| {
                let group = match key {
                    Key::Alone(_) => *alone.get_or_insert_with(|| {
                        definitions.groups.push(group("MPI_COMM_SELF", GroupType::CommSelf, members))
                    }),
                    _ => {
                        definitions.groups.push(group(&world.group_name(&key), GroupType::CommGroup, members))
                    }
                };
                let is_shared = matches!(communicator.members, Members::Shared { .. });
                let flags = if is_shared { HAS_EVENTS } else { 0 };
                let name = match key {
                    Key::Alone(_) => "MPI_COMM_SELF".to_owned(),
                    Key::Shared(root, id) => format!("communicator {id} of rank {root}"),
                    _ => format!(
                        "communicator of {} ranks",
                        definitions.groups.get(group).map_or(0, |group| group.members.len())
                    ),
                };
                definitions.comms.push(Comm { name, group, parent: None, flags })
            });
            handles[*at].insert(communicator.handle, *comm);
        }
    }
    handles
}

/// Defines one world for the ranks of several programs, or for one node's part of the ranks, in the order of their numbers.
fn define_world_of_some(
    definitions: &mut Definitions,
    processes: &[TracedProcess],
    numbers: &[u32],
    order: &[usize],
) {
    let in_mpi =
        |process: &TracedProcess| process.is_mpi_rank && process.rank.is_some_and(|(_, size)| size > 1);
    if processes.iter().any(in_mpi) {
        let is_wanted = |process: &TracedProcess| has_main_thread(process) && !process.is_sampled;
        let with_main = order.iter().filter(|at| is_wanted(&processes[**at]));
        let mains: Vec<LocationRef> = with_main.map(|at| LocationRef(numbers[*at].into())).collect();
        definitions.add_mpi_world(&mains);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_worlds_know_the_members_of_a_communicator_together() {
        const NO: u32 = OF_ANOTHER_WORLD;
        let of = |lists: &[&[u32]]| {
            let known: Vec<Members> = lists.iter().map(|ranks| Members::Ranks(ranks.to_vec())).collect();
            completed(known.iter())
        };
        let both = of(&[&[0, 1, NO], &[NO, NO, 2], &[0, 1], &[0, 1, NO], &[NO, 2]]);
        let expected = [(vec![0, 1, NO], vec![0, 1, 2]), (vec![NO, NO, 2], vec![0, 1, 2])];
        assert_eq!(both, expected.into_iter().collect());
        // Which of the two spawned programs is in which of two communicators is not known.
        assert_eq!(of(&[&[0, 1, NO], &[NO, NO, 2], &[NO, NO, 3]]), HashMap::new());
        assert_eq!(of(&[&[0, 1, NO]]), HashMap::new());
    }
}
