//! Counts commands that are not recorded, keeps the errors of clocks, and reports both to the host.

use crate::clock::DeviceClock;
use crate::host::Host;
use crate::interface::Quality;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of an adapter.
#[derive(Debug)]
pub struct Losses {
    paradigm: i32,
    not_recorded: AtomicU64,
    clock_error: AtomicU64,
    clock_drift: AtomicU64,
    /// The sum of the counts in the last report. It changes if one of them does, because none decreases.
    reported: AtomicU64,
}

impl Losses {
    /// Makes counts of zero for the adapter with this paradigm, a value of [`scorep_abi::paradigm`].
    pub const fn new(paradigm: i32) -> Losses {
        let [not_recorded, clock_error, clock_drift, reported] = [const { AtomicU64::new(0) }; 4];
        Losses { paradigm, not_recorded, clock_error, clock_drift, reported }
    }

    /// Counts kernels, copies and other commands that are not recorded.
    pub fn count(&self, commands: u64) {
        self.not_recorded.fetch_add(commands, Ordering::Relaxed);
    }

    /// Records the error and the drift of a device's clock.
    pub fn record_clock(&self, clock: &DeviceClock) {
        self.clock_error.fetch_max(clock.error(), Ordering::Relaxed);
        self.clock_drift.fetch_max(clock.drift(), Ordering::Relaxed);
    }

    /// Records a lower bound of the error of a device's clock, in nanoseconds, from a record that contradicts the times of the
    /// program's calls.
    pub fn raise_clock_error_to(&self, nanoseconds: u64) {
        if nanoseconds > 0 {
            self.clock_error.fetch_max(nanoseconds, Ordering::Relaxed);
        }
    }

    /// Reports the counts if they have changed. This must be called about once a second while events are recorded, and at the
    /// end.
    pub fn report(&self, host: &Host) {
        let [not_recorded, clock_error, clock_drift] =
            [&self.not_recorded, &self.clock_error, &self.clock_drift]
                .map(|count| count.load(Ordering::Relaxed));
        let sum = not_recorded.wrapping_add(clock_error).wrapping_add(clock_drift);
        if self.reported.swap(sum, Ordering::Relaxed) != sum {
            host.report_quality(&Quality { paradigm: self.paradigm, not_recorded, clock_error, clock_drift });
        }
    }
}
