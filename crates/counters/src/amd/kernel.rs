//! Gauges of an AMD GPU in files of the kernel's driver: its clock, its power limit, and whether it is throttled. The vendor's
//! libraries read the same files, but the layout of the structures that they return changes with their releases.
//!
//! `gpu_metrics` starts with its size and version (`kgd_pp_interface.h` of Linux). Versions 1.3 (MI200) and 1.6 to 1.8 (MI300)
//! show the reasons for throttling: as bits that apply now, or as a count of cycles for each reason. Other versions
//! are not read.

use std::path::Path;

use crate::file::ValueFile;
use crate::{Gauge, hwmon};

/// The offset of `indep_throttle_status` in version 1.3.
const STATUS_AT: usize = 112;
/// The bits for limits of power and of current (`SMU_THROTTLER_*` in `amdgpu_smu.h`).
const POWER_BITS: u64 = 0x0000_0000_ffff_ffff;
/// The bits for temperatures.
const THERMAL_BITS: u64 = 0x00ff_ffff_0000_0000;

/// What `gpu_metrics` reports about throttling.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Throttling {
    /// The reasons that apply now.
    Status(u64),
    Cycles(Cycles),
}

/// Counts of the firmware's cycles: all of them, and those in which a reason applied. They wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cycles {
    all: u32,
    power: u32,
    /// PROCHOT, and the temperatures of the socket, the voltage regulators and the memory.
    thermal: [u32; 4],
}

impl Cycles {
    /// Returns the fraction of the cycles since `before` in which a reason applied.
    fn part_since(self, before: Cycles, gauge: Gauge) -> Option<f64> {
        let all = Some(self.all.wrapping_sub(before.all)).filter(|cycles| *cycles > 0)?;
        let throttled = match gauge {
            Gauge::PowerThrottling => self.power.wrapping_sub(before.power),
            // Several reasons may apply at the same time.
            _ => self.thermal.iter().zip(before.thermal).map(|(now, then)| now.wrapping_sub(then)).max()?,
        };
        Some((f64::from(throttled) / f64::from(all)).min(1.0))
    }
}

fn throttling(metrics: &[u8]) -> Option<Throttling> {
    let number = |at: usize| Some(u32::from_le_bytes(metrics.get(at..at + 4)?.try_into().ok()?));
    let cycles = |at: usize| {
        let [all, prochot, power, socket, regulators, memory] =
            [0, 1, 2, 3, 4, 5].map(|field| number(at + 4 * field));
        let thermal = [prochot?, socket?, regulators?, memory?];
        // The driver sets all bits of a figure that the GPU does not have.
        let all = all.filter(|cycles| *cycles != u32::MAX)?;
        Some(Throttling::Cycles(Cycles { all, power: power?, thermal }))
    };
    match metrics.get(2..4)? {
        [1, 3] => {
            let (low, high) = (number(STATUS_AT)?, number(STATUS_AT + 4)?);
            let status = u64::from(high) << 32 | u64::from(low);
            (status != u64::MAX).then_some(Throttling::Status(status))
        }
        [1, 6] => cycles(32),
        [1, 7 | 8] => cycles(40),
        _ => None,
    }
}

/// The files of a GPU. Gauges that the GPU does not have are not in `known`.
pub(crate) struct KernelGauges {
    known: Vec<Gauge>,
    clock: Option<ValueFile>,
    power_limit: Option<ValueFile>,
    metrics: Option<ValueFile>,
    /// The counts at the last reading of each kind of throttling: thermal, power.
    before: [Cycles; 2],
}

impl KernelGauges {
    /// Opens the files of the GPU at a PCI address.
    pub fn open(root: &Path, pci: &str) -> KernelGauges {
        let chip = hwmon::amd_chip(root, pci);
        let number = |name: &str| {
            let mut file = ValueFile::open(chip.as_ref()?.join(name)).ok()?;
            file.number().ok().map(|_| file)
        };
        let (clock, power_limit) = (number("freq1_input"), number("power1_cap"));
        let metrics = chip.as_ref().and_then(|chip| {
            let mut file = ValueFile::open(chip.join("device/gpu_metrics")).ok()?;
            file.read(throttling).ok().map(|first| (file, first))
        });
        let before = match metrics {
            Some((_, Throttling::Cycles(cycles))) => cycles,
            _ => Cycles::default(),
        };
        let mut known = Vec::new();
        known.extend(clock.is_some().then_some(Gauge::Clock));
        known.extend(power_limit.is_some().then_some(Gauge::PowerLimit));
        if metrics.is_some() {
            known.extend([Gauge::ThermalThrottling, Gauge::PowerThrottling]);
        }
        let metrics = metrics.map(|(file, _)| file);
        KernelGauges { known, clock, power_limit, metrics, before: [before; 2] }
    }

    pub fn known(&self) -> &[Gauge] {
        &self.known
    }

    /// Reads a gauge in base units; `None` also for one that is not in [`KernelGauges::known`].
    pub fn read(&mut self, gauge: Gauge) -> Option<f64> {
        match gauge {
            Gauge::Clock => self.clock.as_mut()?.number().ok().map(|hertz| hertz as f64),
            Gauge::PowerLimit => {
                self.power_limit.as_mut()?.number().ok().map(|microwatts| microwatts as f64 * 1e-6)
            }
            Gauge::ThermalThrottling | Gauge::PowerThrottling => {
                let (bits, before) = match gauge {
                    Gauge::ThermalThrottling => (THERMAL_BITS, &mut self.before[0]),
                    _ => (POWER_BITS, &mut self.before[1]),
                };
                match self.metrics.as_mut()?.read(throttling).ok()? {
                    Throttling::Status(status) => Some(f64::from(u8::from(status & bits != 0))),
                    Throttling::Cycles(now) => now.part_since(std::mem::replace(before, now), gauge),
                }
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(content: u8, at: usize, words: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 120];
        bytes[..4].copy_from_slice(&[120, 0, 1, content]);
        for (word, place) in words.iter().zip(bytes[at..].chunks_exact_mut(4)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn each_version_of_the_metrics_is_read_at_its_places() {
        assert_eq!(throttling(&metrics(3, 112, &[1, 16])), Some(Throttling::Status(0x10_0000_0001)));
        let cycles = Cycles { all: 10, power: 3, thermal: [2, 4, 5, 6] };
        for (content, at) in [(6, 32), (7, 40), (8, 40)] {
            let bytes = metrics(content, at, &[10, 2, 3, 4, 5, 6]);
            assert_eq!(throttling(&bytes), Some(Throttling::Cycles(cycles)), "1.{content}");
        }
        for unknown in
            [metrics(3, 112, &[u32::MAX; 2]), metrics(6, 32, &[u32::MAX; 6]), metrics(4, 112, &[1])]
        {
            assert_eq!(throttling(&unknown), None);
        }
        assert_eq!(throttling(&metrics(3, 112, &[1])[..100]), None, "it is cut off");
        assert_eq!(throttling(&[]), None);
    }

    #[test]
    fn the_part_of_the_cycles_is_that_since_the_last_reading_also_across_a_wrap() {
        let before = Cycles { all: u32::MAX - 49, power: u32::MAX - 9, thermal: [0; 4] };
        let now = Cycles { all: 50, power: 15, thermal: [0, 40, 0, 10] };
        assert_eq!(now.part_since(before, Gauge::PowerThrottling), Some(0.25));
        assert_eq!(now.part_since(before, Gauge::ThermalThrottling), Some(0.4));
        assert_eq!(now.part_since(now, Gauge::PowerThrottling), None, "no cycle has passed");
    }
}
