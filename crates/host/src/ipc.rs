//! Score-P's inter-process calls, over the job's own MPI.
pub fn wanted() -> bool {
    false
}
pub fn with_collectives(table: scorep_abi::Callbacks) -> scorep_abi::Callbacks {
    table
}
pub fn close() {}
