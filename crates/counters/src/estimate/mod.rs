//! An energy counter for nodes without one: a model of two numbers, watts of the idle node and watts per busy core.
//!
//! energy = idle watts * time since boot + watts per core * busy CPU time since boot
//!
//! Both are absolute, so the counter has no state: two readers, in one process or in two, see the same one, and a pause
//! between reads loses nothing. The first part is smooth, the second moves in the steps of [`cpu_time`].

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

use crate::{DEFAULT_IDLE_WATTS, DEFAULT_WATTS_PER_CORE};
use crate::{Device, Kind, Quality, ReadError, Reading, Settings, Source};

mod cpu_time;

use cpu_time::CpuTime;

pub(crate) const NAME: &str = "estimate";

/// More than any node takes; above it, a unit was mistaken.
const WATTS_MAX: f64 = 1e6;

/// The model, in whole microwatts so that sums are exact.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Model {
    idle_microwatts: u64,
    per_core_microwatts: u64,
}

impl Model {
    /// Nanojoules, modulo 2^64. Microwatts times nanoseconds are femtojoules.
    fn nanojoules(self, monotonic_ns: u64, busy_ns: u64) -> u64 {
        let idle = u128::from(self.idle_microwatts) * u128::from(monotonic_ns);
        let busy = u128::from(self.per_core_microwatts) * u128::from(busy_ns);
        ((idle + busy) / 1_000_000) as u64
    }
}

pub(crate) struct Estimate {
    model: Model,
    cpu_time: CpuTime,
    /// The most busy time seen. The kernel's sums may step back by a tick when a CPU goes offline.
    busy_ns: u64,
    devices: [Device; 1],
}

/// `None`, and a note, where the CPU time cannot be read.
pub(crate) fn open(settings: &Settings, notes: &mut Vec<String>) -> Option<Estimate> {
    let mut watts = |value: f64, default: f64, what: &str| {
        if (0.0..=WATTS_MAX).contains(&value) {
            return value;
        }
        notes.push(format!("estimate: {what} of {value} W makes no sense; {default} W is taken"));
        default
    };
    let idle = watts(settings.estimate_idle_watts, DEFAULT_IDLE_WATTS, "an idle power");
    let per_core = watts(settings.estimate_watts_per_core, DEFAULT_WATTS_PER_CORE, "a power per core");
    let (cpu_time, path) = match CpuTime::open(&settings.sys_root) {
        Ok(found) => found,
        Err(reason) => {
            notes.push(format!("estimate: not possible, no CPU time to be had: {reason}"));
            return None;
        }
    };
    let device = Device {
        name: "node".to_owned(),
        metric: "estimate:::energy".to_owned(),
        source: NAME,
        quality: Quality::Estimated,
        kind: Kind::Node,
        contains: Vec::new(),
        resolution_joules: 1e-9,
        description: format!("{idle} W and {per_core} W per busy core, CPU time from {}", path.display()),
        pci: None,
    };
    let model = Model {
        idle_microwatts: (idle * 1e6).round() as u64,
        per_core_microwatts: (per_core * 1e6).round() as u64,
    };
    Some(Estimate { model, cpu_time, busy_ns: 0, devices: [device] })
}

impl Source for Estimate {
    fn name(&self) -> &'static str {
        NAME
    }

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn devices_mut(&mut self) -> &mut [Device] {
        &mut self.devices
    }

    fn read(&mut self, device: usize) -> Result<Reading, ReadError> {
        if device != 0 {
            return Err(ReadError::NoSuchDevice);
        }
        let now = clock_gettime(ClockId::Monotonic);
        let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        self.busy_ns = self.busy_ns.max(self.cpu_time.busy_ns(now_ns)?);
        let nanojoules = self.model.nanojoules(now_ns, self.busy_ns);
        Ok(Reading { nanojoules, raw: nanojoules, counter_timestamp_ns: Some(now_ns) })
    }

    /// The CPU time behind it moves in steps of up to that size.
    fn shortest_period(&self, _device: usize) -> Duration {
        Duration::from_millis(10)
    }

    fn shortest_calm_period(&self, _device: usize) -> Duration {
        Duration::from_millis(50)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joules_are_watts_times_time() {
        let model = Model { idle_microwatts: 100_000_000, per_core_microwatts: 4_000_000 };
        assert_eq!(model.nanojoules(3_000_000_000, 5_000_000_000), 320_000_000_000);
        // 400 days of a busy 128-core node: beyond 2^64 nJ, and differences still hold.
        let late = 400 * 86_400 * 1_000_000_000;
        let one_second = model
            .nanojoules(late + 1_000_000_000, 128 * (late + 1_000_000_000))
            .wrapping_sub(model.nanojoules(late, 128 * late));
        assert_eq!(one_second, 612_000_000_000);
    }
}
