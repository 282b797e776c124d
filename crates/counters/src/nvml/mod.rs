//! NVIDIA GPUs' energy counters through libnvidia-ml: millijoules since the driver was loaded, from Volta on.
//!
//! Older GPUs only report their power, which is not used; a note reports that.

use std::fmt;
use std::path::{Path, PathBuf};

mod library;

use crate::processes;
use crate::vendor::{self, CallError, LoadError};
use crate::{Device, Gauge, Kind, OpenErrors, Quality, ReadError, Reading, Settings, Source};
use library::{Handle, Library, NO_PERMISSION, NOT_SUPPORTED, OpenError};

pub(crate) const NAME: &str = "nvml";

const LIBRARY: &str = "libnvidia-ml.so.1";
const ENERGY: &str = "nvmlDeviceGetTotalEnergyConsumption";
/// No node has more devices than this. A library that reports more is wrong.
const DEVICES_MAX: u32 = 256;

const GAUGES: [Gauge; 9] = [
    Gauge::Power,
    Gauge::Temperature,
    Gauge::Busy,
    Gauge::MemoryUsed,
    Gauge::MemorySize,
    Gauge::Clock,
    Gauge::PowerLimit,
    Gauge::ThermalThrottling,
    Gauge::PowerThrottling,
];

pub(crate) struct NvidiaGpus {
    library: Library,
    devices: Vec<Device>,
    handles: Vec<Handle>,
    gauges: Vec<Gauge>,
    /// Whether this process sees the same pids as the driver.
    knows_pids: bool,
}

/// Opens all GPUs with an energy counter. Returns `None`, with notes, if there is none.
pub(crate) fn open(settings: &Settings, errors: &mut OpenErrors) -> Option<NvidiaGpus> {
    // A library that the user has named is called even without a driver, because it may be a stand-in.
    if settings.nvml_library.is_none() && !has_driver(&settings.sys_root) {
        errors.absent(format!("{NAME}: no NVIDIA driver is loaded"));
        return None;
    }
    let library = settings.nvml_library.as_deref().unwrap_or(Path::new(LIBRARY));
    let opened = Library::open(library).map_err(|error| match error {
        OpenError::Load(error) => Unusable::NotLoaded { library: library.to_owned(), error },
        OpenError::Init(error) => Unusable::NotInitialised { library: library.to_owned(), error },
    });
    let counted = opened.and_then(|library| Ok((count_devices(&library)?, library)));
    let (count, library) = counted.map_err(|unusable| errors.notes.push(unusable.to_string())).ok()?;
    let gauges = GAUGES.into_iter().filter(|gauge| library.has(*gauge)).collect();
    let driver = library.driver_version().unwrap_or_else(|| "unknown".to_owned());
    let knows_pids = processes::pids_are_the_kernels(&settings.sys_root);
    let mut found = NvidiaGpus { library, devices: Vec::new(), handles: Vec::new(), gauges, knows_pids };
    for index in 0..count {
        if let Err(why) = found.add(index, &driver) {
            match why.is_usual() {
                true => errors.notes.push(why.to_string()),
                false => errors.unreadable(why.to_string()),
            }
        }
    }
    if found.devices.is_empty() {
        errors.notes.push(format!("{NAME}: none of {count} devices has a usable energy counter"));
        return None;
    }
    // Every function that is called later is called once before the exit handler is registered.
    for gauge in &found.gauges {
        found.library.gauge(found.handles[0], *gauge);
    }
    found.processes(0);
    if !vendor::watch_for_exit() {
        errors
            .notes
            .push(format!("{NAME}: no room for an exit handler; not used, as it could crash the process"));
        return None;
    }
    Some(found)
}

fn count_devices(library: &Library) -> Result<u32, Unusable> {
    match library.device_count() {
        Ok(count) if count <= DEVICES_MAX => Ok(count),
        Ok(count) => Err(Unusable::TooManyDevices(count)),
        Err(error) => Err(Unusable::NotCounted(error)),
    }
}

/// The reason why the library, or one of its devices, cannot be used.
enum Unusable {
    NotLoaded { library: PathBuf, error: LoadError },
    NotInitialised { library: PathBuf, error: CallError },
    TooManyDevices(u32),
    NotCounted(CallError),
    Device { index: u32, model: String, error: CallError },
}

impl Unusable {
    /// Whether the device has no counter, or belongs to another job.
    fn is_usual(&self) -> bool {
        let Unusable::Device { error: CallError::Status(status), .. } = self else { return false };
        [NOT_SUPPORTED, NO_PERMISSION].contains(&status.code)
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}: ")?;
        match self {
            Unusable::NotLoaded { library, error } => write!(
                f,
                "{} cannot be used: {error}; it is installed with the driver; if it is elsewhere, set AMPERE_NVML_LIBRARY",
                library.display()
            ),
            Unusable::NotInitialised { library, error } => write!(
                f,
                "nvmlInit of {} failed with {error}: check that the driver is loaded and has the library's version, and that \
                 the user may open /dev/nvidiactl",
                library.display()
            ),
            Unusable::TooManyDevices(count) => {
                write!(f, "the library reports {count} devices, more than any node has")
            }
            Unusable::NotCounted(error) => write!(f, "the devices cannot be counted: {error}"),
            Unusable::Device { index, model, error } => match error {
                CallError::Status(status) if status.code == NOT_SUPPORTED => write!(
                    f,
                    "device {index} ({model}) has no energy counter ({error}): GPUs before Volta have none; it is not used"
                ),
                CallError::Status(status) if status.code == NO_PERMISSION => write!(
                    f,
                    "device {index} ({model}) may not be read, {error}: the job must have been given the GPU"
                ),
                _ => write!(f, "device {index}'s energy cannot be read, {error}; it is not used"),
            },
        }
    }
}

impl NvidiaGpus {
    /// Adds a GPU, if it has an energy counter.
    fn add(&mut self, index: u32, driver: &str) -> Result<(), Unusable> {
        let unusable = |model: &str| {
            let model = model.to_owned();
            move |error| Unusable::Device { index, model, error }
        };
        let handle = self.library.device(index).map_err(unusable("GPU"))?;
        let model = self.library.model(handle).unwrap_or_else(|| "NVIDIA GPU".to_owned());
        self.library.energy(handle).map_err(unusable(&model))?;
        // The stand-in's version contains this word.
        let quality = if driver.contains("stand-in") { Quality::Simulated } else { Quality::Measured };
        self.devices.push(Device {
            name: format!("GPU-{index}"),
            metric: format!("{NAME}:::total_energy_consumption:device={index}"),
            source: NAME,
            quality,
            kind: Kind::Gpu,
            contains: Vec::new(),
            wraps_at_nanojoules: None,
            baseline_microwatts: None,
            resolution_joules: 1e-3,
            description: format!("{model}, driver {driver}"),
            pci: self.library.bus(handle).map(|bus| short_address(&bus)),
        });
        self.handles.push(handle);
        Ok(())
    }
}

/// Whether there is a driver: Linux's own, or that of Windows if this is the Windows Subsystem for Linux.
fn has_driver(root: &Path) -> bool {
    ["proc/driver/nvidia", "dev/nvidiactl", "dev/dxg"].iter().any(|path| root.join(path).exists())
}

/// Converts `00000000:C1:00.0` to the kernel's form `0000:c1:00.0`.
fn short_address(bus: &str) -> String {
    let lower = bus.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 && domain.starts_with("0000") => {
            format!("{}:{rest}", &domain[4..])
        }
        _ => lower,
    }
}

impl Source for NvidiaGpus {
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
        let handle = self.handles.get(device).ok_or(ReadError::NoSuchDevice)?;
        match self.library.energy(*handle) {
            Ok(millijoules) => Ok(Reading {
                nanojoules: millijoules.wrapping_mul(1_000_000),
                raw: millijoules,
                counter_timestamp_ns: None,
            }),
            Err(CallError::Status(status)) => Err(ReadError::Library { function: ENERGY, status }),
            Err(CallError::Ended) => Err(ReadError::Ended),
        }
    }

    fn gauges(&self, device: usize) -> &[Gauge] {
        if device < self.handles.len() { &self.gauges } else { &[] }
    }

    fn gauge(&mut self, device: usize, gauge: Gauge) -> Option<f64> {
        gauge.possible(self.library.gauge(*self.handles.get(device)?, gauge)?)
    }

    fn processes(&mut self, device: usize) -> Option<Vec<u32>> {
        self.library.processes(*self.handles.get(device).filter(|_| self.knows_pids)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_the_kernel_does() {
        assert_eq!(short_address("00000000:C1:00.0"), "0000:c1:00.0");
        assert_eq!(short_address("00010000:01:00.0"), "00010000:01:00.0");
        assert_eq!(short_address("0000:c1:00.0"), "0000:c1:00.0");
    }
}
