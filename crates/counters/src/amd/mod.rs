//! The common parts of rocm_smi and amdsmi. Both read the same accumulators of the driver, one per GPU package, in ticks whose
//! energy the library reports.

use std::path::Path;
use std::time::{Duration, Instant};

use ampere_model::counted::is_mi250x;

use crate::amd::kernel::KernelGauges;
use crate::energy::Resolution;
use crate::hwmon;
use crate::vendor::{self, CallError};
use crate::{Device, Gauge, Kind, OpenErrors, Quality, Quantity, ReadError, Reading, Settings, Source};

pub(crate) mod gauges;
mod kernel;
pub(crate) mod presence;
pub(crate) mod queues;

/// The time within which a counter that shows 0 at first must rise. The driver updates its figures every millisecond, and even an
/// idle GPU uses more than a thousand ticks in that time.
const ZERO_LIMIT: Duration = Duration::from_millis(20);
/// The name of a device whose model the library does not report.
const UNKNOWN_MODEL: &str = "AMD GPU";

/// No node has more devices than this. A library that reports more is wrong.
pub(crate) const DEVICES_MAX: u32 = 256;

/// A library's report about an accumulator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Energy {
    pub raw: u64,
    pub resolution_microjoules: f32,
    /// The driver's time in nanoseconds; 0 if it has none.
    pub timestamp: u64,
}

/// One of AMD's libraries, initialised.
pub(crate) trait Gpus: Send {
    /// The source's name, one of [`crate::COUNTER_SOURCES`].
    const SOURCE: &'static str;
    /// The function that reads the accumulator, for messages.
    const FUNCTION: &'static str;
    const NOT_SUPPORTED: u32;
    const NO_PERMISSION: u32;

    fn energy(&self, device: u32) -> Result<Energy, CallError>;
    fn model(&self, device: u32) -> Option<String>;
    /// Returns the PCI address, such as `0000:c1:00.0`.
    fn pci(&self, device: u32) -> Option<String>;
    /// Returns name and version, for people. A stand-in's text contains "stand-in".
    fn version(&self) -> String;
    /// Returns the gauges for which the library has a function.
    fn gauges(&self) -> &[Gauge];
    /// Reads a gauge in base units. The library's value may be nonsense.
    fn gauge(&self, device: u32, gauge: Gauge) -> Option<f64>;
}

/// Formats the `BDFID` of both libraries: domain, bus, device, function. A partition's number, in bits 28 to 31, is left out: the
/// partitions of a GPU share its address and its counter.
pub(crate) fn pci_address(id: u64) -> String {
    format!("{:04x}:{:02x}:{:02x}.{:x}", id >> 32, id >> 8 & 0xff, id >> 3 & 0x1f, id & 7)
}

/// The GPUs of a library as a source.
pub(crate) struct Accumulators<L> {
    library: L,
    devices: Vec<Device>,
    /// For each of `devices`, the library's index, and the energy of a tick.
    counters: Vec<(u32, Resolution)>,
    /// For each of `devices`, the gauges that may be read.
    gauges: Vec<Vec<Gauge>>,
    /// For each of `devices`, the gauges that are read from the kernel's files.
    files: Vec<KernelGauges>,
}

/// Returns the gauges of a device that may be read. If the kernel shows no sensors for it, gauges that sensors measure are
/// excluded: librocm_smi64 5.2.3 would end the process while it holds a lock that all processes of the node share.
fn readable_gauges(known: &[Gauge], has_sensors: bool) -> Vec<Gauge> {
    let from_sensors = |gauge: &&Gauge| matches!(gauge.quantity(), Quantity::Power | Quantity::Temperature);
    known.iter().filter(|gauge| has_sensors || !from_sensors(gauge)).copied().collect()
}

impl<L: Gpus> Accumulators<L> {
    /// Reads every device once and keeps those that show energy. Returns `None`, with notes, if there is none.
    pub fn open(library: L, count: u32, settings: &Settings, errors: &mut OpenErrors) -> Option<Self> {
        let source = L::SOURCE;
        let found = Accumulators::choose(library, count, settings, errors);
        if found.devices.is_empty() {
            errors.notes.push(format!("{source}: none of {count} devices has a usable energy counter"));
            return None;
        }
        // Every function that is called later is called once before the exit handler is registered.
        for gauge in &found.gauges[0] {
            found.library.gauge(found.counters[0].0, *gauge);
        }
        if !vendor::watch_for_exit() {
            errors.notes.push(format!(
                "{source}: no room for an exit handler; not used, as it could crash the process"
            ));
            return None;
        }
        Some(found)
    }

    fn choose(library: L, count: u32, settings: &Settings, errors: &mut OpenErrors) -> Self {
        let source = L::SOURCE;
        let named = settings.rocm_smi_resolution_microjoules;
        let overridden = named.and_then(Resolution::from_microjoules);
        if let (Some(value), None) = (named, overridden) {
            errors.notes.push(format!(
                "{source}: a resolution of {value} uJ makes no sense; the library's own is used"
            ));
        }
        let version = library.version();
        let quality = if version.contains("stand-in") { Quality::Simulated } else { Quality::Measured };
        let mut found = Accumulators {
            library,
            devices: Vec::new(),
            counters: Vec::new(),
            gauges: Vec::new(),
            files: Vec::new(),
        };
        for (index, first) in (0..count).zip(first_readings(&found.library, count)) {
            let is_second = index % 2 == 1 && found.counters.last().is_some_and(|c| c.0 == index - 1);
            let has_two_dies = |device: &Device| {
                is_mi250x(&device.description) || device.description.starts_with(UNKNOWN_MODEL)
            };
            let partner_counts = is_second && found.devices.last().is_some_and(has_two_dies);
            let energy = match first {
                Ok(energy) if energy.raw != 0 => energy,
                other => {
                    leave_out::<L>(index, other, partner_counts, errors);
                    continue;
                }
            };
            let resolution = overridden.or_else(|| Resolution::from_float(energy.resolution_microjoules));
            let Some(resolution) = resolution else {
                errors.unreadable(format!(
                    "{source}: device {index} reports {} uJ per tick, which makes no sense; set \
                     AMPERE_ROCM_SMI_RESOLUTION_UJ",
                    energy.resolution_microjoules
                ));
                continue;
            };
            let pci = found.library.pci(index);
            if let Some(same) = found.devices.iter().find(|known| pci.is_some() && known.pci == pci) {
                errors.notes.push(format!(
                    "{source}: device {index} is a partition of {}'s package, which counts for all of them",
                    same.name
                ));
                continue;
            }
            found.add_gauges(pci.as_deref(), &settings.sys_root, quality);
            let model = found.library.model(index).unwrap_or_else(|| UNKNOWN_MODEL.to_owned());
            found.devices.push(Device {
                name: format!("GPU-{index}"),
                metric: format!("{source}:::energy_count:device={index}"),
                source,
                quality,
                kind: Kind::Gpu,
                contains: Vec::new(),
                resolution_joules: resolution.joules(),
                description: format!("{model}, {version}"),
                pci,
                wraps_at_nanojoules: None,
                baseline_microwatts: None,
            });
            found.counters.push((index, resolution));
        }
        found
    }

    /// Adds the gauges of the next device.
    fn add_gauges(&mut self, pci: Option<&str>, root: &Path, quality: Quality) {
        let pci = pci.unwrap_or_default();
        let has_sensors = hwmon::amd_chip(root, pci).is_some() || quality == Quality::Simulated;
        let files = KernelGauges::open(root, pci);
        let mut gauges = readable_gauges(self.library.gauges(), has_sensors);
        gauges.extend(files.known());
        self.gauges.push(gauges);
        self.files.push(files);
    }
}

/// Reads every device for the first time. Counters that show 0 are read again for a short time.
fn first_readings(library: &impl Gpus, count: u32) -> Vec<Result<Energy, CallError>> {
    let mut readings: Vec<_> = (0..count).map(|index| library.energy(index)).collect();
    let start = Instant::now();
    let at_zero = |reading: &Result<Energy, CallError>| matches!(reading, Ok(energy) if energy.raw == 0);
    while readings.iter().any(at_zero) && start.elapsed() < ZERO_LIMIT {
        std::thread::sleep(Duration::from_millis(1));
        for (index, reading) in (0..count).zip(&mut readings) {
            if at_zero(reading) {
                *reading = library.energy(index);
            }
        }
    }
    readings
}

/// Adds a note about why a device is not used.
fn leave_out<L: Gpus>(
    index: u32,
    reading: Result<Energy, CallError>,
    partner_counts: bool,
    errors: &mut OpenErrors,
) {
    let source = L::SOURCE;
    let code = match &reading {
        Err(CallError::Status(status)) => Some(status.code),
        _ => None,
    };
    let line = match reading {
        _ if partner_counts && (reading.is_ok() || code == Some(L::NOT_SUPPORTED)) => format!(
            "{source}: device {index} shows no energy: the second die of an MI250X package is counted by device {}",
            index - 1
        ),
        Ok(_) => format!("{source}: device {index}'s energy counter stays at 0; it is not used"),
        Err(error) if code == Some(L::NO_PERMISSION) => format!(
            "{source}: device {index} may not be read, {error}: the user must be in the groups video and render, \
             and the job must have been given the GPU"
        ),
        Err(error) => {
            let line = format!("{source}: device {index}'s energy cannot be read, {error}; it is not used");
            return if code == Some(L::NOT_SUPPORTED) {
                errors.notes.push(line)
            } else {
                errors.unreadable(line)
            };
        }
    };
    errors.notes.push(line);
}

impl<L: Gpus> Source for Accumulators<L> {
    fn name(&self) -> &'static str {
        L::SOURCE
    }

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn devices_mut(&mut self) -> &mut [Device] {
        &mut self.devices
    }

    fn read(&mut self, device: usize) -> Result<Reading, ReadError> {
        let (index, resolution) = *self.counters.get(device).ok_or(ReadError::NoSuchDevice)?;
        let energy = self.library.energy(index).map_err(|error| match error {
            CallError::Status(status) => ReadError::Library { function: L::FUNCTION, status },
            CallError::Ended => ReadError::Ended,
        })?;
        Ok(Reading {
            nanojoules: resolution.nanojoules(energy.raw),
            raw: energy.raw,
            counter_timestamp_ns: (energy.timestamp != 0).then_some(energy.timestamp),
        })
    }

    fn gauges(&self, device: usize) -> &[Gauge] {
        self.gauges.get(device).map_or(&[], Vec::as_slice)
    }

    fn gauge(&mut self, device: usize, gauge: Gauge) -> Option<f64> {
        let (index, _) = *self.counters.get(device)?;
        if !self.gauges.get(device)?.contains(&gauge) {
            return None;
        }
        let files = self.files.get_mut(device)?;
        let value =
            if files.known().contains(&gauge) { files.read(gauge) } else { self.library.gauge(index, gauge) };
        gauge.possible(value?)
    }
}
