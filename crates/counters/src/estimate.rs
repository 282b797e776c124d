//! An energy counter for nodes without one: a model with two numbers, watts of the idle node and watts per busy core.
//!
//! For a run ([`Source::count_for`]): energy = idle watts * the run's share of the node's CPUs * time since boot
//!                                           + watts per core * CPU time of the run's own processes
//!
//! Other users' work on the node is not included. Without a run, the estimate is for the whole node: all of its CPUs, and their
//! whole busy time. Its two parts are absolute values then, so that two readers, in one process or in two, read the same value.
//! For a run, a process that takes over continues with the last power ([`Source::resume`]). A pause between reads loses nothing.
//! The first part rises evenly, the second in the steps of [`CpuTime`], or of the scheduler's ticks.

use std::sync::PoisonError;
use std::time::Duration;

use crate::cpu_gauges::CpuGauges;
use crate::cpu_time::{CpuTime, now_ns};
use crate::integral::FIRST_NANOJOULES;
use crate::run_cpu::SharedRunCpu;
use crate::{Device, Gauge, Kind, LastReading, Quality, ReadError, Reading, Settings, Source};

pub(crate) const NAME: &str = "estimate";

/// No node draws more power, so a larger number was probably meant in another unit.
const WATTS_MAX: f64 = 1e6;

/// The model, in whole microwatts so that sums are exact.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Model {
    idle_microwatts: u64,
    per_core_microwatts: u64,
}

impl Model {
    /// Returns nanojoules, modulo 2^64. Microwatts times nanoseconds are femtojoules.
    fn nanojoules(self, monotonic_ns: u64, busy_ns: u64) -> u64 {
        let idle = u128::from(self.idle_microwatts) * u128::from(monotonic_ns);
        let busy = u128::from(self.per_core_microwatts) * u128::from(busy_ns);
        ((idle + busy) / 1_000_000) as u64
    }
}

pub(crate) struct Estimate {
    model: Model,
    cpu_time: CpuTime,
    /// The highest busy time seen. The kernel's sums may step back by a tick when a CPU goes offline.
    busy_ns: u64,
    /// The monotonic time of the last read.
    read_ns: u64,
    run: Option<SharedRunCpu>,
    cpus: CpuGauges,
    /// The energy that an earlier process has counted for the run. It is added to the energy that this process counts.
    before_nanojoules: u64,
    devices: [Device; 1],
}

/// Opens the estimate. Returns `None`, with a note, if the CPU time cannot be read.
pub(crate) fn open(settings: &Settings, notes: &mut Vec<String>) -> Option<Estimate> {
    let mut watts = |value: f64, default: f64, what: &str| {
        if (0.0..=WATTS_MAX).contains(&value) {
            return value;
        }
        notes.push(format!("estimate: {what} of {value} W makes no sense; {default} W is used"));
        default
    };
    let usual = Settings::default();
    let idle = watts(settings.idle_watts, usual.idle_watts, "an idle power");
    let per_core = watts(settings.watts_per_core, usual.watts_per_core, "a power per core");
    let (cpu_time, path) = match CpuTime::open(&settings.sys_root) {
        Ok(found) => found,
        Err(reason) => {
            notes.push(format!("estimate: not possible, because the CPU time cannot be read: {reason}"));
            return None;
        }
    };
    let idle_microwatts = (idle * 1e6).round() as u64;
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
        wraps_at_nanojoules: None,
        baseline_microwatts: Some(idle_microwatts),
    };
    let model = Model { idle_microwatts, per_core_microwatts: (per_core * 1e6).round() as u64 };
    Some(Estimate {
        model,
        cpu_time,
        busy_ns: 0,
        read_ns: 0,
        run: None,
        cpus: CpuGauges::open(&settings.sys_root, None),
        before_nanojoules: 0,
        devices: [device],
    })
}

/// Returns the highest possible CPU time, `elapsed_ns` after it was `counted_ns`. The time of an unseen child becomes known
/// all at once, when its parent has waited for it. An excess over this bound is counted later, or at the end of the run.
fn busy_max(counted_ns: u64, elapsed_ns: u64, cpus: usize) -> u64 {
    counted_ns.saturating_add(elapsed_ns.saturating_mul(cpus as u64))
}

impl Estimate {
    fn nanojoules(&mut self, now_ns: u64) -> Result<u64, ReadError> {
        let busy_ns = match &self.run {
            Some(run) => {
                let mut run = run.lock().unwrap_or_else(PoisonError::into_inner);
                let (own_ns, (_, cpus), (began_ns, has_ended)) =
                    (run.own_ns(), run.cpus(), run.began_and_ended());
                let (counted_ns, since) =
                    if has_ended { (0, began_ns) } else { (self.busy_ns, self.read_ns) };
                own_ns.min(busy_max(counted_ns, now_ns.saturating_sub(since), cpus))
            }
            None => self.cpu_time.busy_ns(now_ns)?,
        };
        self.read_ns = now_ns;
        self.busy_ns = self.busy_ns.max(busy_ns);
        Ok(self.model.nanojoules(now_ns, self.busy_ns).wrapping_add(self.before_nanojoules))
    }
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
        let now_ns = now_ns();
        let nanojoules = self.nanojoules(now_ns)?;
        Ok(Reading { nanojoules, raw: nanojoules, counter_timestamp_ns: Some(now_ns) })
    }

    fn count_for(&mut self, run: &SharedRunCpu) {
        let (own, all) = run.lock().unwrap_or_else(PoisonError::into_inner).cpus();
        let idle_microwatts = self.model.idle_microwatts;
        self.model.idle_microwatts = (u128::from(idle_microwatts) * own as u128 / all as u128) as u64;
        self.devices[0].baseline_microwatts = Some(self.model.idle_microwatts);
        self.devices[0].description = format!(
            "{} W for {own} of {all} CPUs and {} W per core that the run's own processes keep busy",
            idle_microwatts as f64 / 1e6,
            self.model.per_core_microwatts as f64 / 1e6
        );
        (self.run, self.busy_ns, self.before_nanojoules) = (Some(run.clone()), 0, FIRST_NANOJOULES);
        self.read_ns = now_ns();
    }

    /// The CPU time until now is not known here, so the estimate continues with the last power.
    fn resume(&mut self, _device: usize, last: LastReading) {
        if self.run.is_some()
            && let Ok(now) = self.nanojoules(now_ns())
        {
            let meanwhile = (last.watts.max(0.0) * last.ago.as_nanos() as f64) as u64;
            let ahead = last.nanojoules.wrapping_add(meanwhile).wrapping_sub(now);
            self.before_nanojoules = self.before_nanojoules.wrapping_add(ahead);
        }
    }

    /// The CPU time from which the estimate is computed has steps of up to this size.
    fn shortest_period(&self, _device: usize) -> Duration {
        Duration::from_millis(10)
    }

    fn shortest_calm_period(&self, _device: usize) -> Duration {
        Duration::from_millis(200)
    }

    fn gauges(&self, device: usize) -> &[Gauge] {
        if device == 0 { self.cpus.known() } else { &[] }
    }

    fn gauge(&mut self, device: usize, gauge: Gauge) -> Option<f64> {
        gauge.possible(self.cpus.read(gauge).filter(|_| device == 0)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joules_are_watts_times_time() {
        let model = Model { idle_microwatts: 100_000_000, per_core_microwatts: 4_000_000 };
        assert_eq!(model.nanojoules(3_000_000_000, 5_000_000_000), 320_000_000_000);
        // After 400 days of a busy 128-core node the sum is beyond 2^64 nJ, and differences are still right.
        let late = 400 * 86_400 * 1_000_000_000;
        let one_second = model
            .nanojoules(late + 1_000_000_000, 128 * (late + 1_000_000_000))
            .wrapping_sub(model.nanojoules(late, 128 * late));
        assert_eq!(one_second, 612_000_000_000);
    }
}
