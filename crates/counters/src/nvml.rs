//! NVIDIA GPUs' energy counters through libnvidia-ml: millijoules since the driver was loaded, from Volta on.
//!
//! Older GPUs have power only. It is not integrated here: a note says so.

use std::fmt;
use std::path::{Path, PathBuf};

use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device as NvmlDevice, Nvml};

use crate::vendor::{self, CallError, Status};
use crate::{Device, Gauge, Kind, Quality, ReadError, Reading, Settings, Source, Trouble};

pub(crate) const NAME: &str = "nvml";

const LIBRARY: &str = "libnvidia-ml.so.1";
const ENERGY: &str = "nvmlDeviceGetTotalEnergyConsumption";
/// More devices than any node has: a count above it is not believed.
const DEVICES_MAX: u32 = 256;

const GAUGES: [Gauge; 5] =
    [Gauge::Power, Gauge::Temperature, Gauge::Busy, Gauge::MemoryUsed, Gauge::MemorySize];

pub(crate) struct NvidiaGpus {
    devices: Vec<Device>,
    handles: Vec<NvmlDevice<'static>>,
    /// Those that the library has a function for.
    gauges: Vec<Gauge>,
}

/// Opens all GPUs with an energy counter. `None`, and notes, if there is none.
pub(crate) fn open(settings: &Settings, trouble: &mut Trouble) -> Option<NvidiaGpus> {
    // A library that is named may be a stand-in: it is called regardless.
    if settings.nvml_library.is_none() && !has_driver(&settings.sys_root) {
        trouble.absent(format!("{NAME}: no NVIDIA driver is loaded"));
        return None;
    }
    let notes = &mut trouble.notes;
    let library = settings.nvml_library.as_deref().unwrap_or(Path::new(LIBRARY));
    let _one = vendor::lock().ok()?;
    let (nvml, count) = match initialise(library) {
        Ok(initialised) => initialised,
        Err(unusable) => {
            notes.push(unusable.to_string());
            return None;
        }
    };
    let driver = nvml.sys_driver_version().unwrap_or_else(|_| "unknown".to_owned());
    let mut found = NvidiaGpus { devices: Vec::new(), handles: Vec::new(), gauges: Vec::new() };
    for index in 0..count {
        if let Err(note) = found.add(nvml, index, &driver) {
            notes.push(note.to_string());
        }
    }
    if found.devices.is_empty() {
        notes.push(format!("{NAME}: none of {count} devices has a usable energy counter"));
        return None;
    }
    // Tried once here, because the error for a missing function allocates each time.
    let there =
        |gauge: &Gauge| !matches!(ask(&found.handles[0], *gauge), Err(NvmlError::FailedToLoadSymbol(_)));
    found.gauges = GAUGES.into_iter().filter(there).collect();
    if !vendor::watch_for_exit() {
        notes.push(format!("{NAME}: no room for an exit handler; not used, as it could crash the process"));
        return None;
    }
    Some(found)
}

/// Initialises the library and counts its devices.
fn initialise(library: &Path) -> Result<(&'static Nvml, u32), Unusable> {
    let nvml = Nvml::builder().lib_path(library.as_os_str()).init();
    let nvml = nvml.map_err(|error| match reason(&error) {
        Reason::NotLoaded(text) => Unusable::NotLoaded { library: library.to_owned(), text },
        Reason::Status(status) => Unusable::NotInitialised { library: library.to_owned(), status },
    })?;
    match nvml.device_count() {
        // Never unloaded, as every vendor's library: devices refer to it until the process ends.
        Ok(count) if count <= DEVICES_MAX => Ok((Box::leak(Box::new(nvml)), count)),
        Ok(count) => Err(Unusable::TooManyDevices(count)),
        Err(error) => Err(Unusable::NotCounted(reason(&error))),
    }
}

/// Why the library, or one of its devices, cannot be used.
enum Unusable {
    NotLoaded { library: PathBuf, text: String },
    NotInitialised { library: PathBuf, status: Status },
    TooManyDevices(u32),
    NotCounted(Reason),
    Device { index: u32, model: String, error: NvmlError },
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}: ")?;
        match self {
            Unusable::NotLoaded { library, text } => write!(
                f,
                "{} cannot be used: {text}; it comes with the driver, or name the file with AMPERE_NVML_LIBRARY",
                library.display()
            ),
            Unusable::NotInitialised { library, status } => write!(
                f,
                "nvmlInit of {} failed with {status}: is the driver loaded, of the library's version, and \
                 /dev/nvidiactl open to the user?",
                library.display()
            ),
            Unusable::TooManyDevices(count) => {
                write!(f, "the library reports {count} devices, more than any node has")
            }
            Unusable::NotCounted(reason) => write!(f, "the devices cannot be counted: {reason}"),
            Unusable::Device { index, model, error } => {
                let reason = reason(error);
                match error {
                    NvmlError::NotSupported => write!(
                        f,
                        "device {index} ({model}) has no energy counter ({reason}): GPUs before Volta have none; it is \
                         left out"
                    ),
                    NvmlError::NoPermission => write!(
                        f,
                        "device {index} ({model}) may not be read, {reason}: the job must have been given the GPU"
                    ),
                    _ => write!(f, "device {index}'s energy cannot be read, {reason}; it is left out"),
                }
            }
        }
    }
}

impl NvidiaGpus {
    /// Adds a GPU, if it has an energy counter.
    fn add(&mut self, nvml: &'static Nvml, index: u32, driver: &str) -> Result<(), Unusable> {
        let unusable = |model: &str| {
            let model = model.to_owned();
            move |error| Unusable::Device { index, model, error }
        };
        let handle = nvml.device_by_index(index).map_err(unusable("GPU"))?;
        let model = handle.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned());
        handle.total_energy_consumption().map_err(unusable(&model))?;
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
            resolution_joules: 1e-3,
            description: format!("{model}, driver {driver}"),
            pci: handle.pci_info().ok().map(|pci| short_address(&pci.bus_id)),
        });
        self.handles.push(handle);
        Ok(())
    }
}

/// A driver of Linux, or of Windows beneath it.
fn has_driver(root: &Path) -> bool {
    ["proc/driver/nvidia", "dev/nvidiactl", "dev/dxg"].iter().any(|path| root.join(path).exists())
}

/// `00000000:C1:00.0` as the kernel writes it: `0000:c1:00.0`.
fn short_address(bus: &str) -> String {
    let lower = bus.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 && domain.starts_with("0000") => {
            format!("{}:{rest}", &domain[4..])
        }
        _ => lower,
    }
}

/// An error of the wrapper's: the loader's text, or what the library answered.
enum Reason {
    NotLoaded(String),
    Status(Status),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NotLoaded(text) => f.write_str(text),
            Reason::Status(status) => status.fmt(f),
        }
    }
}

fn reason(error: &NvmlError) -> Reason {
    match error {
        NvmlError::LibloadingError(inner) => Reason::NotLoaded(
            std::error::Error::source(inner).map_or_else(|| inner.to_string(), ToString::to_string),
        ),
        NvmlError::FailedToLoadSymbol(text) => Reason::NotLoaded(text.clone()),
        other => Reason::Status(status(other)),
    }
}

/// `nvmlReturn_t`, with the header's name without `NVML_ERROR_`. Allocates nothing.
fn status(error: &NvmlError) -> Status {
    let (code, name) = match error {
        NvmlError::Uninitialized => (1, "UNINITIALIZED"),
        NvmlError::InvalidArg => (2, "INVALID_ARGUMENT"),
        NvmlError::NotSupported => (3, "NOT_SUPPORTED"),
        NvmlError::NoPermission => (4, "NO_PERMISSION"),
        NvmlError::NotFound => (6, "NOT_FOUND"),
        NvmlError::DriverNotLoaded => (9, "DRIVER_NOT_LOADED"),
        NvmlError::Timeout => (10, "TIMEOUT"),
        NvmlError::LibraryNotFound => (12, "LIBRARY_NOT_FOUND"),
        NvmlError::FunctionNotFound => (13, "FUNCTION_NOT_FOUND"),
        NvmlError::GpuLost => (15, "GPU_IS_LOST"),
        NvmlError::ResetRequired => (16, "RESET_REQUIRED"),
        NvmlError::OperatingSystem => (17, "OPERATING_SYSTEM"),
        NvmlError::LibRmVersionMismatch => (18, "LIB_RM_VERSION_MISMATCH"),
        NvmlError::InUse => (19, "IN_USE"),
        NvmlError::FailedToLoadSymbol(_) => (13, "FUNCTION_NOT_FOUND"),
        _ => (999, "UNKNOWN"),
    };
    Status { code, name }
}

/// In base units.
fn ask(handle: &NvmlDevice, gauge: Gauge) -> Result<f64, NvmlError> {
    match gauge {
        Gauge::Power => handle.power_usage().map(|milliwatts| f64::from(milliwatts) * 1e-3),
        Gauge::Temperature => handle.temperature(TemperatureSensor::Gpu).map(f64::from),
        Gauge::Busy => handle.utilization_rates().map(|percent| f64::from(percent.gpu) * 1e-2),
        Gauge::MemoryUsed => handle.memory_info().map(|bytes| bytes.used as f64),
        Gauge::MemorySize => handle.memory_info().map(|bytes| bytes.total as f64),
        _ => Err(NvmlError::NotSupported),
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
        let _one = vendor::lock().map_err(|error| match error {
            CallError::Status(status) => ReadError::Library { function: ENERGY, status },
            CallError::Ended => ReadError::Ended,
        })?;
        match handle.total_energy_consumption() {
            Ok(millijoules) => Ok(Reading {
                nanojoules: millijoules.wrapping_mul(1_000_000),
                raw: millijoules,
                counter_timestamp_ns: None,
            }),
            Err(error) => Err(ReadError::Library { function: ENERGY, status: status(&error) }),
        }
    }

    fn gauges(&self, device: usize) -> &[Gauge] {
        if device < self.handles.len() { &self.gauges } else { &[] }
    }

    fn gauge(&mut self, device: usize, gauge: Gauge) -> Option<f64> {
        let handle = self.handles.get(device)?;
        let _one = vendor::lock().ok()?;
        gauge.possible(ask(handle, gauge).ok()?)
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
