//! CPU time that other jobs use on the node while the run is running.
//!
//! It is the busy time of all CPUs ([`crate::cpu_time`] names the kernel's columns), without that of the run's
//! processes and of ampere. It includes the kernel's own work, such as for interrupts, which is small if nothing else runs.
//!
//! The parts have different resolutions: the kernel counts busy time in ticks, and a short child's time is known only once its
//! parent has waited for it. Only the CPU time that exceeds both errors is reported, so that no CPU time of the run is ever
//! attributed to another job. The errors are those of sums since the start, so they do not grow during the run.

use crate::run_cpu::{BusyTime, SharedRunCpu};
use std::sync::PoisonError;

/// `/proc/stat` has five columns of busy time, each in steps of 10 ms.
const RESOLUTION_NS: u64 = 50_000_000;

/// The time spent on searching for the last CPU time of ended processes is at most the whole time divided by this.
const SEARCH_SHARE: u32 = 200;

/// Counts the CPU time of other jobs.
pub struct OtherJobs {
    run: SharedRunCpu,
    /// The CPU time that an earlier process had reported.
    before_ns: u64,
    used_ns: u64,
}

impl OtherJobs {
    /// Returns `None` if the node's CPU time cannot be read.
    pub fn new(run: &SharedRunCpu) -> Option<OtherJobs> {
        run.lock().unwrap_or_else(PoisonError::into_inner).busy()?;
        Some(OtherJobs { run: run.clone(), before_ns: 0, used_ns: 0 })
    }

    /// Continues after a process that had reported this CPU time.
    pub fn resume(&mut self, before_ns: u64) {
        self.before_ns = before_ns;
    }

    /// Returns the CPU time of other jobs since the start, in nanoseconds. It never decreases.
    pub fn cpu_ns(&mut self) -> u64 {
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        let not_seen_ns = run.not_seen_ns(SEARCH_SHARE);
        // CPU time of processes of the run that cannot be read must not be attributed to other jobs.
        if let Some(busy) = run.busy().filter(|_| !run.is_partial()) {
            self.used_ns = self.used_ns.max(others_ns(&busy).saturating_sub(not_seen_ns));
        }
        self.before_ns + self.used_ns
    }
}

fn others_ns(busy: &BusyTime) -> u64 {
    busy.node_ns.saturating_sub(busy.own_ns).saturating_sub(busy.ampere_ns).saturating_sub(RESOLUTION_NS)
}
