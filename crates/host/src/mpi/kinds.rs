//! Decides by a function's name which events are recorded for it in addition to its frame.

use super::epochs::Side;
use super::neighbours::Form;
use scorep_abi::collective;
use std::ffi::c_int;

/// The events that are recorded for a function, and the type of its counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recorded {
    pub kind: Kind,
    /// Whether the function's counts have 64 bits.
    pub has_large_counts: bool,
}

/// The events that are recorded for a function in addition to its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Send,
    Receive,
    SendReceive,
    SendReceiveReplace,
    /// MPI_Mprobe and MPI_Improbe, which find a message that is received later.
    Find {
        /// Whether the call only tests, and does not wait.
        tests: bool,
    },
    ReceiveFound,
    StartReceiveFound,
    StartSend,
    StartReceive,
    StartSendReceive,
    StartSendReceiveReplace,
    /// Functions of the variants that begin with `Init` make persistent requests.
    InitSend,
    InitReceive,
    InitPartitionedSend,
    InitPartitionedReceive,
    Start,
    StartAll,
    Complete(Completion),
    FreeRequest,
    /// A function that frees a communicator or a window.
    FreeCommunicator,
    /// MPI_Win_fence, which is recorded as a barrier of the window's processes.
    Fence,
    /// MPI_Win_start and MPI_Win_post.
    BeginEpoch(Side),
    /// MPI_Win_complete and MPI_Win_wait.
    EndEpoch(Side),
    /// MPI_Win_test, which ends an epoch of [`Side::Exposure`] if all others have ended theirs.
    TestEpoch,
    /// A collective, by its value of Score-P's enum `SCOREP_CollectiveType`.
    Collective(c_int),
    StartCollective(c_int),
    InitCollective(c_int),
    /// MPI_Comm_idup and MPI_Comm_idup_with_info, by the position of the request among the arguments.
    StartDuplicate {
        request: usize,
    },
    /// A collective among neighbours, by its form and the collective with the same arguments.
    Neighbours(Form, c_int),
    Finalize,
    /// A function that may connect the process to those of another MPI_COMM_WORLD.
    Connect,
}

/// How a function completes requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    Wait,
    Test,
    /// MPI_Request_get_status, after which the request still exists.
    GetStatus,
    WaitAny,
    TestAny,
    WaitAll,
    TestAll,
    /// MPI_Waitsome and MPI_Testsome, whose arguments are the same.
    Some,
}

/// Returns the additional events of the function with this Fortran stem (`mpi_send`); `None` if only its frame is recorded.
pub fn recorded(lower: &str) -> Option<Recorded> {
    let stem = lower.strip_prefix("mpi_")?;
    let of_large_counts = stem.strip_suffix("_c");
    let kind = kind(of_large_counts.unwrap_or(stem))?;
    Some(Recorded { kind, has_large_counts: of_large_counts.is_some() })
}

fn kind(stem: &str) -> Option<Kind> {
    Some(match stem {
        "send" | "bsend" | "ssend" | "rsend" => Kind::Send,
        "recv" => Kind::Receive,
        "sendrecv" => Kind::SendReceive,
        "sendrecv_replace" => Kind::SendReceiveReplace,
        "mprobe" => Kind::Find { tests: false },
        "improbe" => Kind::Find { tests: true },
        "mrecv" => Kind::ReceiveFound,
        "imrecv" => Kind::StartReceiveFound,
        "isend" | "ibsend" | "issend" | "irsend" => Kind::StartSend,
        "irecv" => Kind::StartReceive,
        "isendrecv" => Kind::StartSendReceive,
        "isendrecv_replace" => Kind::StartSendReceiveReplace,
        "send_init" | "bsend_init" | "ssend_init" | "rsend_init" => Kind::InitSend,
        "recv_init" => Kind::InitReceive,
        "psend_init" => Kind::InitPartitionedSend,
        "precv_init" => Kind::InitPartitionedReceive,
        "start" => Kind::Start,
        "startall" => Kind::StartAll,
        "wait" => Kind::Complete(Completion::Wait),
        "test" => Kind::Complete(Completion::Test),
        "request_get_status" => Kind::Complete(Completion::GetStatus),
        "waitany" => Kind::Complete(Completion::WaitAny),
        "testany" => Kind::Complete(Completion::TestAny),
        "waitall" => Kind::Complete(Completion::WaitAll),
        "testall" => Kind::Complete(Completion::TestAll),
        "waitsome" | "testsome" => Kind::Complete(Completion::Some),
        "request_free" => Kind::FreeRequest,
        "comm_free" | "comm_disconnect" | "win_free" => Kind::FreeCommunicator,
        "comm_idup" => Kind::StartDuplicate { request: 2 },
        "comm_idup_with_info" => Kind::StartDuplicate { request: 3 },
        "win_fence" => Kind::Fence,
        "win_start" => Kind::BeginEpoch(Side::Access),
        "win_complete" => Kind::EndEpoch(Side::Access),
        "win_post" => Kind::BeginEpoch(Side::Exposure),
        "win_wait" => Kind::EndEpoch(Side::Exposure),
        "win_test" => Kind::TestEpoch,
        "finalize" => Kind::Finalize,
        "comm_spawn" | "comm_spawn_multiple" | "comm_accept" | "comm_connect" | "comm_join" => Kind::Connect,
        _ => return collective_kind(stem),
    })
}

fn collective_kind(stem: &str) -> Option<Kind> {
    if let Some((before, stem)) = stem.split_once("neighbor_") {
        let (form, stem) = match (before, stem.strip_suffix("_init")) {
            ("i", _) => (Form::NonBlocking, stem),
            (_, Some(stem)) => (Form::Persistent, stem),
            _ => (Form::Blocking, stem),
        };
        return operation(stem).map(|of| Kind::Neighbours(form, of));
    }
    if let Some(of) = operation(stem) {
        return Some(Kind::Collective(of));
    }
    if let Some(of) = stem.strip_suffix("_init").and_then(operation) {
        return Some(Kind::InitCollective(of));
    }
    stem.strip_prefix('i').and_then(operation).map(Kind::StartCollective)
}

/// Returns Score-P's constant for a collective operation, by the stem of the blocking function.
fn operation(stem: &str) -> Option<c_int> {
    Some(match stem {
        "barrier" => collective::BARRIER,
        "bcast" => collective::BROADCAST,
        "gather" => collective::GATHER,
        "gatherv" => collective::GATHERV,
        "scatter" => collective::SCATTER,
        "scatterv" => collective::SCATTERV,
        "allgather" => collective::ALLGATHER,
        "allgatherv" => collective::ALLGATHERV,
        "alltoall" => collective::ALLTOALL,
        "alltoallv" => collective::ALLTOALLV,
        "alltoallw" => collective::ALLTOALLW,
        "allreduce" => collective::ALLREDUCE,
        "reduce" => collective::REDUCE,
        "reduce_scatter" => collective::REDUCE_SCATTER,
        "reduce_scatter_block" => collective::REDUCE_SCATTER_BLOCK,
        "scan" => collective::SCAN,
        "exscan" => collective::EXSCAN,
        "comm_dup"
        | "comm_dup_with_info"
        | "comm_split"
        | "comm_split_type"
        | "comm_create"
        | "intercomm_create"
        | "intercomm_merge"
        | "cart_create"
        | "cart_sub"
        | "graph_create"
        | "dist_graph_create"
        | "dist_graph_create_adjacent" => collective::CREATE_HANDLE,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_function_follows_from_its_name() {
        let of = |lower: &str| recorded(lower).map(|found| (found.kind, found.has_large_counts));
        let reduce = collective::REDUCE_SCATTER_BLOCK;
        assert_eq!(of("mpi_reduce_scatter_block"), Some((Kind::Collective(reduce), false)));
        assert_eq!(of("mpi_ireduce_scatter_block_c"), Some((Kind::StartCollective(reduce), true)));
        assert_eq!(of("mpi_reduce_scatter_block_init"), Some((Kind::InitCollective(reduce), false)));
        assert_eq!(of("mpi_sendrecv_c"), Some((Kind::SendReceive, true)));
        let neighbours = |form| Kind::Neighbours(form, collective::ALLTOALLW);
        assert_eq!(of("mpi_neighbor_alltoallw_c"), Some((neighbours(Form::Blocking), true)));
        assert_eq!(of("mpi_ineighbor_alltoallw"), Some((neighbours(Form::NonBlocking), false)));
        assert_eq!(of("mpi_neighbor_alltoallw_init_c"), Some((neighbours(Form::Persistent), true)));
        assert_eq!(of("mpi_comm_idup_with_info"), Some((Kind::StartDuplicate { request: 3 }, false)));
        assert_eq!(of("mpi_testsome"), Some((Kind::Complete(Completion::Some), false)));
        assert_eq!(of("mpi_win_wait"), Some((Kind::EndEpoch(Side::Exposure), false)));
        for lower in ["mpi_init", "mpi_probe", "mpi_rget_c", "mpi_dist_graph_neighbors"] {
            assert_eq!(of(lower), None, "{lower}");
        }
    }
}
