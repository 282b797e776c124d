//! Reads from a trace's definitions which ranks and communicators it has, and passes on its events of communication.

use crate::locations::LocationState;
use crate::places::{locations_of, node_of_group, process_of};
use crate::write::named;
use ampere_model::Timestamp;
use ampere_model::numbers::NumberTable;
use ampere_ring::communication::Communication as Record;
use ampere_settings::Config;
use ampere_timeline::attributor::Attributor;
use ampere_timeline::waiting::{CollectiveKind, Comm, Message, Operation, Rank, Ranks, Root};
use otf2::{
    CollectiveOp, CommRef, Communication, Definitions, GroupType, LocationGroupRef, LocationRef,
    LocationType, ParadigmType, Trace,
};
use std::collections::HashMap;
use std::path::Path;

/// Returns the processes in each communicator of MPI, except communicators with unknown members; `None` for those of a single
/// process. Some writers do not state the paradigm.
pub(crate) fn members_of(
    definitions: &Definitions,
) -> impl Iterator<Item = (u32, Option<Vec<LocationGroupRef>>)> {
    definitions.comms.iter().filter_map(|(reference, comm)| {
        let may_be_mpi =
            |paradigm| [ParadigmType::Mpi, ParadigmType::Unknown, ParadigmType::None].contains(&paradigm);
        let group = definitions.groups.get(comm.group).filter(|group| may_be_mpi(group.paradigm))?;
        if group.kind == GroupType::CommSelf {
            return Some((reference.0, None));
        }
        let locations = locations_of(definitions, comm.group)?;
        let process = |number: u64| process_of(definitions, LocationRef(number));
        let members: Option<Vec<_>> = locations.into_iter().map(process).collect();
        Some((reference.0, Some(members?)))
    })
}

/// Whether processes of several nodes have a communicator in common.
pub(crate) fn are_across_nodes(definitions: &Definitions) -> bool {
    let mut nodes_of = members_of(definitions).filter_map(|(_, members)| members).map(|members| {
        let mut nodes: Vec<String> =
            members.into_iter().map(|process| node_of_group(definitions, Some(process))).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    });
    nodes_of.any(|nodes| nodes > 1)
}

/// Whether a trace has ranks that communicate, which may therefore wait for each other.
///
/// # Errors
/// The trace cannot be read.
pub fn has_partners(anchor: &Path) -> Result<bool, otf2::Error> {
    let trace = Trace::open(anchor)?;
    let mut members = members_of(trace.definitions()).filter_map(|(_, members)| members);
    Ok(members.any(|members| members.len() > 1))
}

/// The greatest error of one node's times on the clock of another, in seconds, in traces that ampere has joined: the nodes'
/// clocks have only the time of day in common.
const CLOCK_ERROR_SECONDS: f64 = 1e-3;

/// Returns the greatest error of one node's times on the clock of another, in ticks. Other tools adjust their clocks
/// themselves.
pub(crate) fn clock_error(trace: &Trace, config: &Config) -> Timestamp {
    let of_trace = if trace.creator().starts_with("ampere") { CLOCK_ERROR_SECONDS } else { 0.0 };
    let seconds = config.attribution.clock_error.map_or(of_trace, |error| error.as_secs_f64());
    (seconds * trace.definitions().clock.timer_resolution as f64) as Timestamp
}

/// Returns the ranks of a trace; `None` if it has no communicator of MPI.
pub(crate) fn ranks_of(
    definitions: &Definitions,
    locations: &mut NumberTable<LocationState>,
    attributor: &Attributor,
    clock_error: Timestamp,
) -> Option<Ranks> {
    let comms: Vec<_> = members_of(definitions).collect();
    if comms.is_empty() {
        return None;
    }
    let mut numbers: HashMap<LocationGroupRef, u32> = HashMap::new();
    let mut nodes: HashMap<String, u32> = HashMap::new();
    let mut ranks: Vec<Rank> = Vec::new();
    for (reference, location) in definitions.locations.iter() {
        let (LocationType::CpuThread, Some(process)) = (location.kind, location.group) else { continue };
        let is_first = !numbers.contains_key(&process);
        let number = *numbers.entry(process).or_insert_with(|| {
            let next = nodes.len() as u32;
            let node = *nodes.entry(node_of_group(definitions, Some(process))).or_insert(next);
            ranks.push(Rank { node, ..Rank::default() });
            (ranks.len() - 1) as u32
        });
        let index = locations.get_mut(reference.0).map(|state| state.index);
        let rank = &mut ranks[number as usize];
        rank.locations.extend(index);
        rank.has_samples |= index.is_some_and(|index| attributor.has_samples(index));
        if is_first {
            rank.main = index;
            rank.number = index.and_then(|index| attributor.locations[index.0 as usize].rank);
        }
    }
    let comms = comms.into_iter().filter_map(|(number, members)| {
        let Some(members) = members else { return Some((number, Comm::Own)) };
        let members: Option<Vec<u32>> = members.iter().map(|process| numbers.get(process).copied()).collect();
        Some((number, Comm::Members(members?)))
    });
    Some(Ranks::new(ranks, comms, clock_error, definitions.clock.timer_resolution))
}

/// Converts an event of communication to an operation; `None` if no rank can wait in it.
#[inline]
pub(crate) fn operation(event: Communication) -> Option<Operation> {
    let message =
        |of: otf2::Message, request| Message { peer: of.peer, comm: of.comm.0, tag: of.tag, request };
    let collective = |of: otf2::Collective, request| Operation::Collective {
        comm: of.comm.0,
        operation: of.operation.to_raw(),
        kind: kind_of(of.operation),
        root: match of.root {
            otf2::Root::Rank(rank) => Root::Rank(rank),
            otf2::Root::ThisGroup => Root::ThisGroup,
            otf2::Root::None | otf2::Root::ThisProcess => Root::None,
        },
        request,
    };
    Some(match event {
        Communication::MpiSend(of) => Operation::Send(message(of, None)),
        Communication::MpiIsend(of, request) => Operation::Send(message(of, Some(request))),
        Communication::MpiRecv(of) => Operation::Receive(message(of, None)),
        Communication::MpiIrecv(of, request) => Operation::Receive(message(of, Some(request))),
        Communication::MpiIrecvRequest(request) => Operation::ReceiveRequest(request),
        Communication::MpiIsendComplete(request) => Operation::SendEnd(request),
        Communication::MpiRequestCancelled(request) => Operation::Cancelled(request),
        Communication::MpiCollectiveEnd(of) => collective(of, None),
        Communication::NonBlockingCollectiveRequest(request) => Operation::CollectiveRequest(request),
        Communication::NonBlockingCollectiveComplete(of, request) => collective(of, Some(request)),
        _ => return None,
    })
}

/// Converts an event of communication of a running job to an operation; `None` if no rank can wait in it. `comm` returns the
/// number of the communicator that has a handle in the process.
#[inline]
pub fn operation_of_record(event: Record, comm: impl Fn(u32) -> Option<u32>) -> Option<Operation> {
    let message = |of: ampere_ring::communication::Message, request| {
        Some(Message { peer: of.peer, comm: comm(of.communicator)?, tag: of.tag, request })
    };
    // Most events are messages. They are converted directly, without OTF2's form.
    match event {
        Record::MpiSend(of) => return message(of, None).map(Operation::Send),
        Record::MpiRecv(of) => return message(of, None).map(Operation::Receive),
        Record::MpiIsend(of, request) => return message(of, Some(request)).map(Operation::Send),
        Record::MpiIrecv(of, request) => return message(of, Some(request)).map(Operation::Receive),
        _ => {}
    }
    operation(named(event, |handle| comm(handle).map(CommRef))?)
}

fn kind_of(operation: CollectiveOp) -> CollectiveKind {
    match operation {
        CollectiveOp::Barrier => CollectiveKind::Barrier,
        CollectiveOp::Allgather
        | CollectiveOp::Allgatherv
        | CollectiveOp::Alltoall
        | CollectiveOp::Alltoallv
        | CollectiveOp::Alltoallw
        | CollectiveOp::Allreduce
        | CollectiveOp::ReduceScatter
        | CollectiveOp::ReduceScatterBlock => CollectiveKind::AllToAll,
        CollectiveOp::Scan | CollectiveOp::Exscan => CollectiveKind::Scan,
        CollectiveOp::Bcast | CollectiveOp::Scatter | CollectiveOp::Scatterv => CollectiveKind::OneToAll,
        CollectiveOp::Gather | CollectiveOp::Gatherv | CollectiveOp::Reduce => CollectiveKind::AllToOne,
        _ => CollectiveKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use otf2::{Comm, Group, Location, LocationGroup};

    #[test]
    fn communicators_may_lack_a_paradigm() {
        use ParadigmType::{Mpi, None, OpenMp, Unknown};
        for (paradigm, expected) in [(Mpi, 1), (None, 1), (Unknown, 1), (OpenMp, 0)] {
            let mut definitions = Definitions::default();
            let process = definitions.location_groups.push(LocationGroup::default());
            let location = Location { group: Some(process), ..Location::default() };
            definitions.locations.insert(LocationRef(0), location);
            let members = vec![0];
            let kind = GroupType::CommLocations;
            let group = definitions.groups.push(Group { kind, paradigm, members, ..Group::default() });
            definitions.comms.push(Comm { name: "all".to_owned(), group, parent: Option::None, flags: 0 });
            assert_eq!(members_of(&definitions).count(), expected, "{paradigm:?}");
        }
    }
}
