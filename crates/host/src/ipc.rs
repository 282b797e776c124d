//! Score-P's inter-process calls, over the job's own MPI.
//!
//! They are collective: a process without this host (or without the plugin) would leave the others waiting for ever. So they
//! exist only where `AMPERE_HOST_COLLECTIVES=1` says that every process of the job has this library (whoever starts the
//! job knows), and are open only after all of these processes have agreed, at the end of MPI_Init, that each of them
//! measures. They use MPI_COMM_WORLD itself: the plugin calls them inside MPI_Init and MPI_Finalize, where the program
//! has nothing of its own under way.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use crate::mpi;
use scorep_abi::{Callbacks, ipc_datatype as datatype, ipc_operation as operation};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a call returns that cannot be made. Success is 0, as in MPI.
const CLOSED: c_int = -1;
/// Tag of the point-to-point calls, below the smallest upper bound that MPI allows.
const TAG: c_int = 32_749;

static OPEN: AtomicBool = AtomicBool::new(false);

/// Whether the user says that every process has this host.
pub fn wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("AMPERE_HOST_COLLECTIVES").is_some_and(|value| value == "1"))
}

/// Agrees with all other processes on whether each of them measures. Collective, once, at the end of MPI_Init.
pub fn agree(measuring: bool) {
    if !wanted() || OPEN.swap(true, Ordering::AcqRel) {
        return;
    }
    let (mine, mut all) = (c_int::from(measuring), 0);
    // SAFETY: two live integers, one element.
    let code = unsafe {
        ipc_allreduce((&raw const mine).cast(), (&raw mut all).cast(), 1, datatype::INT, operation::MIN)
    };
    OPEN.store(code == 0 && all == 1, Ordering::Release);
}

/// Whether the calls can be made now.
pub fn is_open() -> bool {
    OPEN.load(Ordering::Acquire)
}

/// From here on no call can be made.
pub fn close() {
    OPEN.store(false, Ordering::Release);
}

/// Waits for all processes, if they are known to come.
pub fn barrier() {
    // SAFETY: no arguments.
    unsafe { ipc_barrier() };
}

/// The table with the collective functions in it.
pub fn with_collectives(table: Callbacks) -> Callbacks {
    Callbacks {
        ipc_send: Some(ipc_send),
        ipc_recv: Some(ipc_recv),
        ipc_barrier: Some(ipc_barrier),
        ipc_bcast: Some(ipc_bcast),
        ipc_gather: Some(ipc_gather),
        ipc_gatherv: Some(ipc_gatherv),
        ipc_allgather: Some(ipc_allgather),
        ipc_reduce: Some(ipc_reduce),
        ipc_allreduce: Some(ipc_allreduce),
        ipc_scatter: Some(ipc_scatter),
        ipc_scatterv: Some(ipc_scatterv),
        ..table
    }
}

/// The MPI library's data type: an address in Open MPI, a number in the MPICH family.
fn mpi_type(kind: c_int) -> Option<usize> {
    let (open_mpi, mpich) = match kind {
        datatype::BYTE => (c"ompi_mpi_byte", 0x4c00_010d),
        datatype::CHAR => (c"ompi_mpi_char", 0x4c00_0101),
        datatype::UNSIGNED_CHAR => (c"ompi_mpi_unsigned_char", 0x4c00_0102),
        datatype::INT => (c"ompi_mpi_int", 0x4c00_0405),
        datatype::UNSIGNED => (c"ompi_mpi_unsigned", 0x4c00_0406),
        datatype::INT32_T => (c"ompi_mpi_int32_t", 0x4c00_0439),
        datatype::UINT32_T => (c"ompi_mpi_uint32_t", 0x4c00_043d),
        datatype::INT64_T => (c"ompi_mpi_int64_t", 0x4c00_083a),
        datatype::UINT64_T => (c"ompi_mpi_uint64_t", 0x4c00_083e),
        datatype::DOUBLE => (c"ompi_mpi_double", 0x4c00_080b),
        _ => return None,
    };
    Some(mpi::object(open_mpi, mpich))
}

/// The MPI library's reduction.
fn mpi_operation(kind: c_int) -> Option<usize> {
    let (open_mpi, mpich) = match kind {
        operation::BAND => (c"ompi_mpi_op_band", 0x5800_0006),
        operation::BOR => (c"ompi_mpi_op_bor", 0x5800_0008),
        operation::MIN => (c"ompi_mpi_op_min", 0x5800_0002),
        operation::MAX => (c"ompi_mpi_op_max", 0x5800_0001),
        operation::SUM => (c"ompi_mpi_op_sum", 0x5800_0003),
        _ => return None,
    };
    Some(mpi::object(open_mpi, mpich))
}

/// MPI_STATUS_IGNORE.
fn status_ignore() -> *mut c_void {
    if mpi::world() == mpi::WORLD_MPICH { std::ptr::without_provenance_mut(1) } else { null_mut() }
}

/// Calls a function of MPI's profiling interface, if calls can be made. Handles are passed as addresses: a 32-bit
/// handle of the MPICH family lies in the same register.
macro_rules! call {
    ($name:literal, $($argument:expr => $type:ty),*) => {{
        let name: &CStr = $name;
        let function = if is_open() { mpi::symbol(name) } else { null_mut() };
        if function.is_null() {
            return CLOSED;
        }
        // SAFETY: the function of this name takes these arguments in every MPI library, at the level of the calling
        // convention; the buffers are the caller's, sized by Score-P's interface.
        unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(function)($($argument),*)
        }
    }};
}

/// The data type, or return.
macro_rules! or_closed {
    ($value:expr) => {
        match $value {
            Some(value) => value,
            None => return CLOSED,
        }
    };
}

type In = *const c_void;
type Out = *mut c_void;

unsafe extern "C" fn ipc_send(buf: In, count: c_int, kind: c_int, to: c_int) -> c_int {
    let kind = or_closed!(mpi_type(kind));
    call!(c"PMPI_Send", buf => In, count => c_int, kind => usize, to => c_int, TAG => c_int, mpi::world() => usize)
}

unsafe extern "C" fn ipc_recv(buf: Out, count: c_int, kind: c_int, from: c_int) -> c_int {
    let kind = or_closed!(mpi_type(kind));
    call!(c"PMPI_Recv", buf => Out, count => c_int, kind => usize, from => c_int, TAG => c_int, mpi::world() => usize,
        status_ignore() => Out)
}

unsafe extern "C" fn ipc_barrier() -> c_int {
    call!(c"PMPI_Barrier", mpi::world() => usize)
}

unsafe extern "C" fn ipc_bcast(buf: Out, count: c_int, kind: c_int, root: c_int) -> c_int {
    let kind = or_closed!(mpi_type(kind));
    call!(c"PMPI_Bcast", buf => Out, count => c_int, kind => usize, root => c_int, mpi::world() => usize)
}

unsafe extern "C" fn ipc_gather(send: In, recv: Out, count: c_int, kind: c_int, root: c_int) -> c_int {
    let kind = or_closed!(mpi_type(kind));
    call!(c"PMPI_Gather", send => In, count => c_int, kind => usize, recv => Out, count => c_int, kind => usize,
        root => c_int, mpi::world() => usize)
}

unsafe extern "C" fn ipc_allgather(send: In, recv: Out, count: c_int, kind: c_int) -> c_int {
    let kind = or_closed!(mpi_type(kind));
    call!(c"PMPI_Allgather", send => In, count => c_int, kind => usize, recv => Out, count => c_int, kind => usize,
        mpi::world() => usize)
}

unsafe extern "C" fn ipc_reduce(
    send: In,
    recv: Out,
    count: c_int,
    kind: c_int,
    operation: c_int,
    root: c_int,
) -> c_int {
    let (kind, operation) = (or_closed!(mpi_type(kind)), or_closed!(mpi_operation(operation)));
    call!(c"PMPI_Reduce", send => In, recv => Out, count => c_int, kind => usize, operation => usize, root => c_int,
        mpi::world() => usize)
}

unsafe extern "C" fn ipc_allreduce(
    send: In,
    recv: Out,
    count: c_int,
    kind: c_int,
    operation: c_int,
) -> c_int {
    let (kind, operation) = (or_closed!(mpi_type(kind)), or_closed!(mpi_operation(operation)));
    call!(c"PMPI_Allreduce", send => In, recv => Out, count => c_int, kind => usize, operation => usize,
        mpi::world() => usize)
}

unsafe extern "C" fn ipc_scatter(send: In, recv: Out, count: c_int, kind: c_int, root: c_int) -> c_int {
    let kind = or_closed!(mpi_type(kind));
    call!(c"PMPI_Scatter", send => In, count => c_int, kind => usize, recv => Out, count => c_int, kind => usize,
        root => c_int, mpi::world() => usize)
}

/// Where each process's part begins: Score-P's interface has the parts one behind the other.
///
/// # Safety
/// On the root, `counts` has one entry per process.
unsafe fn displacements(counts: *const c_int, root: c_int) -> Vec<c_int> {
    if mpi::RANK.load(Ordering::Relaxed) != root || counts.is_null() {
        return Vec::new();
    }
    let size = mpi::SIZE.load(Ordering::Relaxed).max(0) as usize;
    // SAFETY: by this function's contract.
    let counts = unsafe { std::slice::from_raw_parts(counts, size) };
    counts
        .iter()
        .scan(0, |next: &mut c_int, &count| {
            let place = *next;
            *next = next.wrapping_add(count);
            Some(place)
        })
        .collect()
}

unsafe extern "C" fn ipc_gatherv(
    send: In,
    sendcount: c_int,
    recv: Out,
    counts: *const c_int,
    kind: c_int,
    root: c_int,
) -> c_int {
    let kind = or_closed!(mpi_type(kind));
    // SAFETY: by Score-P's interface.
    let places = unsafe { displacements(counts, root) };
    call!(c"PMPI_Gatherv", send => In, sendcount => c_int, kind => usize, recv => Out, counts => *const c_int,
        places.as_ptr() => *const c_int, kind => usize, root => c_int, mpi::world() => usize)
}

unsafe extern "C" fn ipc_scatterv(
    send: In,
    counts: *const c_int,
    recv: Out,
    recvcount: c_int,
    kind: c_int,
    root: c_int,
) -> c_int {
    let kind = or_closed!(mpi_type(kind));
    // SAFETY: by Score-P's interface.
    let places = unsafe { displacements(counts, root) };
    call!(c"PMPI_Scatterv", send => In, counts => *const c_int, places.as_ptr() => *const c_int, kind => usize,
        recv => Out, recvcount => c_int, kind => usize, root => c_int, mpi::world() => usize)
}
