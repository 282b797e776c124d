//! AMD GPUs' energy counters through librocm_smi64.

use std::time::{Duration, Instant};

use crate::energy::Resolution;
use crate::{Device, Kind, Quality, ReadError, Reading, Settings, Source};

mod library;
mod search;
mod status;

pub use status::Status;

use library::{CallError, Energy, Library};

pub(crate) const NAME: &str = "rocm_smi";

const ENERGY: &str = "rsmi_dev_energy_count_get";

/// How long a counter that shows 0 at first may take to leave it. The driver renews its figures every millisecond, and
/// an idle GPU makes more than a thousand ticks in that time.
const ZERO_LIMIT: Duration = Duration::from_millis(20);

/// More devices than any node has: a count above it is not believed.
const DEVICES_MAX: u32 = 256;

pub(crate) struct RocmSmi {
    library: Library,
    devices: Vec<Device>,
    /// For each of `devices`: the library's index, and the energy of a tick.
    counters: Vec<(u32, Resolution)>,
}

/// Opens all devices with a usable counter. `None`, and notes, if there is none.
pub(crate) fn open(settings: &Settings, notes: &mut Vec<String>) -> Option<RocmSmi> {
    // The real library must not be bothered without a GPU: it prints, fails, and then must not be touched again. One
    // that the user names is called regardless: it may be a stand-in, or know better.
    if settings.rocm_smi_library.is_none()
        && let Some(reason) = search::no_gpu(&settings.sys_root)
    {
        notes.push(format!("rocm_smi: {reason}"));
        return None;
    }
    let (loaded, path) = match search::load(settings.rocm_smi_library.as_deref()) {
        Ok(found) => found,
        Err(note) => {
            notes.push(note);
            return None;
        }
    };
    let library = match loaded.init() {
        Ok(library) => library,
        Err(error) => {
            notes.push(format!(
                "rocm_smi: rsmi_init of {} failed with {error}: no GPU that may be used? If there is one, check \
                 that the user is in the groups video and render and that no other user's /dev/shm/rocm_smi* is \
                 left over",
                path.display()
            ));
            return None;
        }
    };
    let count = match library.device_count() {
        Ok(count) if count <= DEVICES_MAX => count,
        Ok(count) => {
            notes.push(format!("rocm_smi: the library speaks of {count} devices, which is not believed"));
            return None;
        }
        Err(error) => {
            notes.push(format!("rocm_smi: the devices cannot be counted: {error}"));
            return None;
        }
    };
    let source = RocmSmi::choose(library, count, settings, notes);
    if source.devices.is_empty() {
        notes.push(format!("rocm_smi: none of {count} devices has a usable energy counter"));
        return None;
    }
    if !source.library.watch_for_exit() {
        notes.push(
            "rocm_smi: no room for an exit handler; not used, as it could crash the process".to_owned(),
        );
        return None;
    }
    Some(source)
}

impl RocmSmi {
    /// Reads every device once and keeps those that show energy.
    fn choose(library: Library, count: u32, settings: &Settings, notes: &mut Vec<String>) -> RocmSmi {
        let named = settings.rocm_smi_resolution_microjoules;
        let overridden = named.and_then(Resolution::from_microjoules);
        if let (Some(value), None) = (named, overridden) {
            notes.push(format!(
                "rocm_smi: a resolution of {value} uJ makes no sense; the library's own is taken"
            ));
        }
        let (quality, version) = describe_library(&library);
        let mut source = RocmSmi { library, devices: Vec::new(), counters: Vec::new() };
        for (index, first) in (0..count).zip(first_readings(&source.library, count)) {
            let partner_counts = index % 2 == 1 && source.counters.last().is_some_and(|c| c.0 == index - 1);
            let energy = match first {
                Ok(energy) if energy.raw != 0 => energy,
                other => {
                    notes.push(why_not(index, other, partner_counts));
                    continue;
                }
            };
            let resolution = overridden.or_else(|| Resolution::from_float(energy.resolution_microjoules));
            let Some(resolution) = resolution else {
                notes.push(format!(
                    "rocm_smi: device {index} says {} uJ per tick, which makes no sense; set \
                     AMPERE_ROCM_SMI_RESOLUTION_UJ",
                    energy.resolution_microjoules
                ));
                continue;
            };
            let model = source.library.name(index).unwrap_or_else(|| "AMD GPU".to_owned());
            source.devices.push(Device {
                name: format!("GPU-{index}"),
                metric: format!("rocm_smi:::energy_count:device={index}"),
                source: NAME,
                quality,
                kind: Kind::Gpu,
                resolution_joules: resolution.joules(),
                description: format!("{model}, {version}"),
                pci: source.library.pci(index),
            });
            source.counters.push((index, resolution));
        }
        source
    }
}

/// A first reading of every device. Counters at 0 get a little time to leave it, all together.
fn first_readings(library: &Library, count: u32) -> Vec<Result<Energy, CallError>> {
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

/// The note about a device that is not offered.
fn why_not(index: u32, reading: Result<Energy, CallError>, partner_counts: bool) -> String {
    match reading {
        Ok(_) | Err(CallError::Status(Status::NOT_SUPPORTED)) if partner_counts => format!(
            "rocm_smi: device {index} shows no energy: the second die of an MI250X package is counted by device {}",
            index - 1
        ),
        Ok(_) => format!("rocm_smi: device {index}'s energy counter stays at 0; it is left out"),
        Err(CallError::Status(status @ Status::PERMISSION)) => format!(
            "rocm_smi: device {index} may not be read, {status}: the user must be in the groups video and render, \
             and the job must have been given the GPU"
        ),
        Err(error) => format!("rocm_smi: device {index}'s energy cannot be read, {error}; it is left out"),
    }
}

fn describe_library(library: &Library) -> (Quality, String) {
    let Some(version) = library.version() else { return (Quality::Measured, "rocm_smi".to_owned()) };
    let [major, minor, patch] = version.numbers;
    // The stand-in says that it is one.
    let quality = if version.build.contains("stand-in") { Quality::Simulated } else { Quality::Measured };
    (quality, format!("rocm_smi {major}.{minor}.{patch} {}", version.build).trim_end().to_owned())
}

impl Source for RocmSmi {
    fn name(&self) -> &'static str {
        NAME
    }

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn read(&mut self, device: usize) -> Result<Reading, ReadError> {
        let (index, resolution) = *self.counters.get(device).ok_or(ReadError::NoSuchDevice)?;
        let energy = self.library.energy(index).map_err(|error| match error {
            CallError::Status(status) => ReadError::Library { function: ENERGY, status },
            CallError::Ended => ReadError::Ended,
        })?;
        Ok(Reading {
            nanojoules: resolution.nanojoules(energy.raw),
            raw: energy.raw,
            counter_timestamp_ns: (energy.timestamp != 0).then_some(energy.timestamp),
        })
    }
}
