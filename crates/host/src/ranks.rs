//! This process's rank in the run, and the number of ranks in the run, as far as this process knows. They are its rank in
//! MPI_COMM_WORLD and the size of that communicator. In a program that MPI_Comm_spawn has started, the number of the ranks that
//! were started before is added to both.

use crate::plugin;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// This process's rank, once known.
pub static RANK: AtomicI32 = AtomicI32::new(0);
/// The number of ranks, once known.
pub static SIZE: AtomicI32 = AtomicI32::new(1);
static IS_KNOWN: AtomicBool = AtomicBool::new(false);
/// Whether MPI has set rank and size.
static ARE_OF_MPI: AtomicBool = AtomicBool::new(false);

/// Whether rank and size are known.
pub fn are_known() -> bool {
    IS_KNOWN.load(Ordering::Acquire)
}

/// Sets rank and size and passes them to the plugin, unless they are known.
pub fn set(rank: c_int, size: c_int) {
    if !are_known() {
        store(rank, size);
    }
}

/// Sets the rank and the size that MPI reports; only the first call has an effect. If the program loaded MPI after its
/// first event, they replace rank 0 of 1.
pub fn set_by_mpi(rank: c_int, size: c_int) {
    if ARE_OF_MPI.swap(true, Ordering::Relaxed) {
        return;
    }
    let before = (RANK.load(Ordering::Relaxed), SIZE.load(Ordering::Relaxed));
    if !are_known() || before != (rank, size) {
        store(rank, size);
    }
}

fn store(rank: c_int, size: c_int) {
    RANK.store(rank, Ordering::Relaxed);
    SIZE.store(size, Ordering::Relaxed);
    // Release pairs with the Acquire in `are_known`.
    IS_KNOWN.store(true, Ordering::Release);
    plugin::init_mpp();
}

/// Whether this process has had an MPI library from its start, so that MPI_Init can be expected.
pub fn will_be_known() -> bool {
    // SAFETY: this is a lookup by name in the global scope.
    unsafe { !libc::dlsym(libc::RTLD_DEFAULT, c"PMPI_Init".as_ptr()).is_null() }
}

/// Returns the number of jobs that MPI_Comm_spawn started before the spawned job with this name in PMIx. The launcher's own job
/// has the number 1, and the first spawned one the number 2.
pub fn spawned_before(job: &str) -> u32 {
    // PRRTE's names end in the number; Open MPI 4 has a number of the launcher in the upper 16 bits.
    let number = match job.rsplit_once('@') {
        Some((_, number)) => number.parse().ok(),
        None => job.parse::<u32>().ok().map(|number| number & 0xffff),
    };
    number.unwrap_or(0u32).saturating_sub(2)
}

#[cfg(test)]
mod tests {
    #[test]
    fn jobs_are_counted_by_their_names() {
        let names = [
            "1730281473",
            "1730281474",
            "1730281476",
            "prterun-node-7@2",
            "prterun-node-7@4",
            "slurm.pmix.1.0",
            "",
        ];
        assert_eq!(names.map(super::spawned_before), [0, 0, 2, 0, 2, 0, 0]);
    }
}
