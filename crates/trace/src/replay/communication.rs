//! The communicators and events of MPI that a replay plays, in the form that a process of a run records.

use super::ReplayedProcess;
use crate::scorep_names::{number_of_collective, number_of_root};
use crate::waits::members_of;
use ampere_model::{Communicator, Members};
use ampere_ring::communication::{Collective, Communication, Message};
use otf2::{Communication as Named, Definitions, LocationGroupRef};
use std::collections::HashMap;

/// Returns the communicators that each process uses, by the processes' numbers. Their handles are the trace's references.
pub(super) fn communicators_of(
    definitions: &Definitions,
    processes: &[ReplayedProcess],
) -> HashMap<u32, Vec<Communicator>> {
    let numbers: HashMap<LocationGroupRef, u32> =
        processes.iter().map(|process| (LocationGroupRef(process.reference), process.number)).collect();
    let mut all: HashMap<u32, Vec<Communicator>> = HashMap::new();
    let mut add = |process: u32, handle, members| {
        all.entry(process).or_default().push(Communicator { handle, members });
    };
    let mut has_world = false;
    for (handle, members) in members_of(definitions) {
        let Some(members) = members else {
            numbers.values().for_each(|process| add(*process, handle, Members::Ranks(vec![*process])));
            continue;
        };
        let members: Option<Vec<u32>> = members.iter().map(|group| numbers.get(group).copied()).collect();
        let Some(members) = members else { continue };
        let is_all = processes.first().is_some_and(|process| members.iter().copied().eq(0..process.size));
        let is_world = is_all && !has_world;
        has_world |= is_all;
        for (rank, process) in (0..).zip(&members) {
            // 0 is the number of MPI_COMM_WORLD. Two communicators with the same members are different ones.
            let root = members[0];
            let id = handle.saturating_add(1);
            let size = members.len() as u32;
            let shared = Members::Shared { root, id, size, rank };
            add(*process, handle, if is_world { Members::World } else { shared });
        }
    }
    all
}

/// Returns an event with the numbers that a process records; `None` if no rank waits in it.
pub(super) fn recorded(event: Named) -> Option<Communication> {
    let message =
        |of: otf2::Message| Message { peer: of.peer, communicator: of.comm.0, tag: of.tag, bytes: of.bytes };
    let collective = |of: otf2::Collective| {
        Some(Collective {
            operation: number_of_collective(of.operation)?,
            communicator: of.comm.0,
            root: number_of_root(of.root)?,
            bytes_sent: of.bytes_sent,
            bytes_received: of.bytes_received,
        })
    };
    Some(match event {
        Named::MpiSend(of) => Communication::MpiSend(message(of)),
        Named::MpiIsend(of, request) => Communication::MpiIsend(message(of), request),
        Named::MpiRecv(of) => Communication::MpiRecv(message(of)),
        Named::MpiIrecv(of, request) => Communication::MpiIrecv(message(of), request),
        Named::MpiIrecvRequest(request) => Communication::MpiIrecvRequest(request),
        Named::MpiIsendComplete(request) => Communication::MpiIsendComplete(request),
        Named::MpiRequestCancelled(request) => Communication::MpiRequestCancelled(request),
        Named::MpiCollectiveEnd(of) => Communication::MpiCollectiveEnd(collective(of)?),
        Named::NonBlockingCollectiveRequest(request) => Communication::NonBlockingCollectiveRequest(request),
        Named::NonBlockingCollectiveComplete(of, request) => {
            Communication::NonBlockingCollectiveComplete(collective(of)?, request)
        }
        _ => return None,
    })
}
