//! Collectives: their arguments, and their bytes as Score-P counts them.
//!
//! In an inter-communicator, each group gets the data of the other one. The plugin knows both groups as one communicator, so the
//! root is recorded by its number in that communicator. The other members of the root's group have no part in the collective;
//! they record [`root::THIS_GROUP`].

use super::communicators::{Communicator, UNKNOWN, communicator};
use super::frame::Frame;
use super::library::Library;
use crate::communication::Collective;
use scorep_abi::{collective, root};
use std::ffi::c_int;

/// Returns the positions of the communicator and the root among the arguments of a collective.
pub fn arguments(operation: c_int) -> (usize, Option<usize>) {
    match operation {
        collective::BARRIER | collective::CREATE_HANDLE => (0, None),
        collective::BROADCAST => (4, Some(3)),
        collective::GATHER | collective::SCATTER => (7, Some(6)),
        collective::GATHERV | collective::SCATTERV => (8, Some(7)),
        collective::ALLGATHER | collective::ALLTOALL => (6, None),
        collective::ALLGATHERV => (7, None),
        collective::ALLTOALLV | collective::ALLTOALLW => (8, None),
        collective::REDUCE => (6, Some(5)),
        _ => (5, None),
    }
}

/// Returns the collective that the arguments of a call describe. If the call has failed, no bytes are counted.
pub fn described(library: &Library, operation: c_int, frame: Frame, has_succeeded: bool) -> Collective {
    let (communicator_at, root_at) = arguments(operation);
    let found = communicator(library, frame.word(communicator_at));
    let root = root_at.map_or(root::NONE, |at| match found {
        Some(found) if found.remote.is_some() => root_between_groups(library, found, frame.int(at)),
        _ => frame.int(at),
    });
    let (sent, received) =
        found.filter(|_| has_succeeded && root != root::THIS_GROUP).map_or((0, 0), |found| {
            bytes_of(library, operation, frame, found, root == found.own_number() as c_int)
        });
    let communicator = found.map_or(UNKNOWN, |found| found.handle);
    Collective { communicator, root, operation, sent, received }
}

/// Returns the root that an argument names in an inter-communicator.
fn root_between_groups(library: &Library, communicator: Communicator, root: c_int) -> c_int {
    match u32::try_from(root) {
        Ok(rank) => (communicator.peers().first + rank) as c_int,
        Err(_) if library.is_this_root(root) => communicator.own_number() as c_int,
        Err(_) => root::THIS_GROUP,
    }
}

/// Returns the bytes sent and received, as Score-P counts them. Arguments that MPI ignores are not read, because they may be
/// anything.
fn bytes_of(
    library: &Library,
    operation: c_int,
    frame: Frame,
    communicator: Communicator,
    is_root: bool,
) -> (u64, u64) {
    let own = communicator.rank as usize;
    let buffer = match operation {
        collective::SCATTER => 3,
        collective::SCATTERV => 4,
        _ => 0,
    };
    let is_in_place = library.is_in_place(frame.word(buffer));
    // The number of ranks whose data this rank gets.
    let partners = communicator.remote.map_or(communicator.size, |remote| remote.size);
    // Data that stays in place is not counted.
    let all = u64::from(partners) - u64::from(is_in_place);
    let in_own_group = u64::from(communicator.size) - u64::from(is_in_place);
    let at_root = |bytes: &dyn Fn() -> u64| if is_root { bytes() } else { 0 };
    let one = |count: usize, datatype: usize| library.bytes(frame.count(count), frame.word(datatype));
    // In an inter-communicator, the root sends data to the other group or gets data from it, and keeps none for itself.
    let has_no_part = is_in_place || is_root && communicator.remote.is_some();
    let own_part = |count, datatype| if has_no_part { 0 } else { one(count, datatype) };
    // SAFETY: the arrays have an element for each rank of a group.
    let element = |array: usize, at: usize| unsafe { frame.count_in(array, at) };
    let ranks = |size: u32| (0..size as usize).filter(|rank| !is_in_place || *rank != own);
    let sum_in = |group: u32, counts: usize, datatype: usize| -> u64 {
        ranks(group).map(|rank| library.bytes(element(counts, rank), frame.word(datatype))).sum()
    };
    let sum = |counts, datatype| sum_in(partners, counts, datatype);
    let each = |counts: usize, types: usize| -> u64 {
        // SAFETY: as above, for arrays of datatypes.
        let datatype = |rank| unsafe { library.handle_in(frame.word(types), rank) };
        ranks(partners).map(|rank| library.bytes(element(counts, rank), datatype(rank))).sum()
    };
    // With MPI_IN_PLACE, the arguments of the receive describe the data that is sent.
    let sent =
        |received: &dyn Fn() -> u64, sent: &dyn Fn() -> u64| if is_in_place { received() } else { sent() };
    match operation {
        collective::BROADCAST => (at_root(&|| all * one(1, 2)), own_part(1, 2)),
        collective::GATHER => (own_part(1, 2), at_root(&|| all * one(4, 5))),
        collective::GATHERV => (own_part(1, 2), at_root(&|| sum(4, 6))),
        collective::SCATTER => (at_root(&|| all * one(1, 2)), own_part(4, 5)),
        collective::SCATTERV => (at_root(&|| sum(1, 3)), own_part(5, 6)),
        collective::ALLGATHER | collective::ALLTOALL => {
            let received = all * one(4, 5);
            (sent(&|| received, &|| all * one(1, 2)), received)
        }
        collective::ALLGATHERV => {
            let ours = || all * library.bytes(element(4, own), frame.word(6));
            (sent(&ours, &|| all * one(1, 2)), sum(4, 6))
        }
        collective::ALLTOALLV => (sent(&|| sum(5, 7), &|| sum(1, 3)), sum(5, 7)),
        collective::ALLTOALLW => (sent(&|| each(5, 7), &|| each(1, 3)), each(5, 7)),
        collective::REDUCE => (own_part(2, 3), at_root(&|| all * one(2, 3))),
        collective::ALLREDUCE => (all * one(2, 3), all * one(2, 3)),
        collective::REDUCE_SCATTER_BLOCK => (in_own_group * one(2, 3), all * one(2, 3)),
        collective::REDUCE_SCATTER => {
            let received = all * library.bytes(element(2, own), frame.word(3));
            (sum_in(communicator.size, 2, 3), received)
        }
        collective::SCAN => {
            let (sent, received) = (all - own as u64, own as u64 + 1 - u64::from(is_in_place));
            (sent * one(2, 3), received * one(2, 3))
        }
        collective::EXSCAN => {
            ((u64::from(communicator.size) - 1 - own as u64) * one(2, 3), own as u64 * one(2, 3))
        }
        _ => (0, 0),
    }
}
