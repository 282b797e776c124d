//! The sampler's figures about itself and its devices.

use crate::sampling::gauges::GaugeStatistics;
use ampere_figures::summary::{Readings, SamplerOverhead};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The sampler's figures about itself. Times are nanoseconds.
#[derive(Debug, Default)]
pub struct SamplerFigures {
    /// The number of times when it had to wake up.
    pub deadlines: AtomicU64,
    /// The number of times when it woke up more than a millisecond too late.
    pub missed_deadlines: AtomicU64,
    /// The sum of the delays of waking up.
    pub late_ns: AtomicU64,
    /// The longest delay of waking up.
    pub latest_ns: AtomicU64,
    pub cpu_ns: AtomicU64,
    /// The time since the thread started.
    pub run_ns: AtomicU64,
    /// The time that reading gauges took.
    pub gauges_ns: AtomicU64,
    /// The longest time that one reading of gauges took.
    pub longest_gauge_ns: AtomicU64,
    pub(super) devices: OnceLock<Vec<DeviceFigures>>,
}

/// The sampler's figures about a device. Times are nanoseconds.
#[derive(Debug, Default)]
pub struct DeviceFigures {
    /// The number of successful readings.
    pub readings: AtomicU64,
    pub failed_readings: AtomicU64,
    pub read_ns: AtomicU64,
    /// The longest time that a reading took.
    pub longest_read_ns: AtomicU64,
    /// The observed time between two changes of the source's counters; 0 while it is unknown.
    pub update_ns: AtomicU64,
    /// Statistics of the device's gauges.
    pub gauges: Vec<GaugeStatistics>,
}

impl SamplerFigures {
    /// Returns the devices by the sampler's numbers; empty until the counters are open.
    pub fn devices(&self) -> &[DeviceFigures] {
        self.devices.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the number of failed readings of all devices.
    pub fn failed_readings(&self) -> u64 {
        self.devices().iter().map(|device| device.failed_readings.load(Ordering::Relaxed)).sum()
    }
}

impl From<&DeviceFigures> for Readings {
    fn from(figures: &DeviceFigures) -> Readings {
        let seconds = |of: &AtomicU64| of.load(Ordering::Relaxed) as f64 * 1e-9;
        Readings {
            readings: figures.readings.load(Ordering::Relaxed),
            failed_readings: figures.failed_readings.load(Ordering::Relaxed),
            read_seconds: seconds(&figures.read_ns),
            longest_read_seconds: seconds(&figures.longest_read_ns),
            update_seconds: seconds(&figures.update_ns),
        }
    }
}

impl From<&SamplerFigures> for SamplerOverhead {
    fn from(figures: &SamplerFigures) -> SamplerOverhead {
        let seconds = |of: &AtomicU64| of.load(Ordering::Relaxed) as f64 * 1e-9;
        let (cpu_seconds, run) = (seconds(&figures.cpu_ns), seconds(&figures.run_ns));
        let deadlines = figures.deadlines.load(Ordering::Relaxed);
        SamplerOverhead {
            cpu_seconds,
            // The run time is updated only from time to time, and not by a sampler that hangs, so the quotient may be too large.
            cpu_share: if run > 0.0 { (cpu_seconds / run).min(1.0) } else { 0.0 },
            deadlines,
            missed_deadlines: figures.missed_deadlines.load(Ordering::Relaxed),
            mean_late_seconds: seconds(&figures.late_ns) / deadlines.max(1) as f64,
            longest_late_seconds: seconds(&figures.latest_ns),
            gauges_seconds: seconds(&figures.gauges_ns),
            longest_gauge_seconds: seconds(&figures.longest_gauge_ns),
        }
    }
}
