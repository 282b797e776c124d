//! Collectives: their arguments, and their bytes as Score-P counts them.

use super::communicators::{Communicator, UNKNOWN, communicator};
use super::frame::Frame;
use super::library::Library;
use crate::communication::Collective;
use scorep_abi::{collective, root};
use std::ffi::c_int;

/// Returns the positions of the communicator and the root among the arguments of a collective.
pub fn arguments(of: c_int) -> (usize, Option<usize>) {
    match of {
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
    let root = root_at.map_or(root::NONE, |at| frame.int(at));
    let found = communicator(library, frame.word(communicator_at));
    let (sent, received) = found
        .filter(|_| has_succeeded)
        .map_or((0, 0), |found| bytes_of(library, operation, frame, found, root == found.rank as c_int));
    let communicator = found.map_or(UNKNOWN, |found| found.handle);
    Collective { communicator, root, operation, sent, received }
}

/// Bytes sent and received, as Score-P counts them. Arguments that MPI ignores are not read, because they may be anything.
fn bytes_of(
    library: &Library,
    of: c_int,
    frame: Frame,
    communicator: Communicator,
    is_root: bool,
) -> (u64, u64) {
    let own = communicator.rank as usize;
    let buffer = match of {
        collective::SCATTER => 3,
        collective::SCATTERV => 4,
        _ => 0,
    };
    let is_in_place = library.is_in_place(frame.word(buffer));
    // Data that stays in place is not counted.
    let all = u64::from(communicator.size) - u64::from(is_in_place);
    let at_root = |bytes: &dyn Fn() -> u64| if is_root { bytes() } else { 0 };
    let one = |count: usize, datatype: usize| library.bytes(frame.count(count), frame.word(datatype));
    let unless_in_place = |count, datatype| if is_in_place { 0 } else { one(count, datatype) };
    // SAFETY: the arrays have an element for each rank of the communicator.
    let element = |array: usize, at: usize| unsafe { frame.count_in(array, at) };
    let ranks = || (0..communicator.size as usize).filter(|rank| !is_in_place || *rank != own);
    let sum = |counts: usize, datatype: usize| -> u64 {
        ranks().map(|rank| library.bytes(element(counts, rank), frame.word(datatype))).sum()
    };
    let each = |counts: usize, types: usize| -> u64 {
        // SAFETY: as above, for arrays of datatypes.
        let datatype = |rank| unsafe { library.handle_in(frame.word(types), rank) };
        ranks().map(|rank| library.bytes(element(counts, rank), datatype(rank))).sum()
    };
    let given = |ours: u64, theirs: &dyn Fn() -> u64| if is_in_place { ours } else { theirs() };
    match of {
        collective::BROADCAST => {
            let bytes = one(1, 2);
            (at_root(&|| all * bytes), bytes)
        }
        collective::GATHER => (unless_in_place(1, 2), at_root(&|| all * one(4, 5))),
        collective::GATHERV => (unless_in_place(1, 2), at_root(&|| sum(4, 6))),
        collective::SCATTER => (at_root(&|| all * one(1, 2)), unless_in_place(4, 5)),
        collective::SCATTERV => (at_root(&|| sum(1, 3)), unless_in_place(5, 6)),
        collective::ALLGATHER | collective::ALLTOALL => {
            let received = all * one(4, 5);
            (given(received, &|| all * one(1, 2)), received)
        }
        collective::ALLGATHERV => {
            let ours = all * library.bytes(element(4, own), frame.word(6));
            (given(ours, &|| all * one(1, 2)), sum(4, 6))
        }
        collective::ALLTOALLV => (given(sum(5, 7), &|| sum(1, 3)), sum(5, 7)),
        collective::ALLTOALLW => (given(each(5, 7), &|| each(1, 3)), each(5, 7)),
        collective::REDUCE => (unless_in_place(2, 3), at_root(&|| all * one(2, 3))),
        collective::ALLREDUCE | collective::REDUCE_SCATTER_BLOCK => (all * one(2, 3), all * one(2, 3)),
        collective::REDUCE_SCATTER => (sum(2, 3), all * library.bytes(element(2, own), frame.word(3))),
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
