//! Rank and size of this process in MPI_COMM_WORLD.

use crate::plugin;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The rank in MPI_COMM_WORLD, once known.
pub static RANK: AtomicI32 = AtomicI32::new(0);
/// The size of MPI_COMM_WORLD, once known.
pub static SIZE: AtomicI32 = AtomicI32::new(1);
static IS_KNOWN: AtomicBool = AtomicBool::new(false);

/// Whether rank and size are known.
pub fn are_known() -> bool {
    IS_KNOWN.load(Ordering::Acquire)
}

/// Sets rank and size and passes them to the plugin, the first time that it is called.
pub fn set(rank: c_int, size: c_int) {
    if IS_KNOWN.load(Ordering::Acquire) {
        return;
    }
    RANK.store(rank, Ordering::Relaxed);
    SIZE.store(size, Ordering::Relaxed);
    // Release pairs with the Acquire in `are_known`.
    IS_KNOWN.store(true, Ordering::Release);
    plugin::init_mpp();
}

/// Whether this process has had an MPI library from its start, so that MPI_Init can be expected.
pub fn will_be_known() -> bool {
    // SAFETY: a lookup by name in the global scope.
    unsafe { !libc::dlsym(libc::RTLD_DEFAULT, c"PMPI_Init".as_ptr()).is_null() }
}
