//! The calls into libnvidia-ml. Signatures, structures and units are those of `nvml.h`; the functions with `_v2` and `_v3` in
//! their names are in every driver since 2017. What applies to every vendor's library is in [`crate::vendor`]; NVML itself is
//! thread-safe. It is never shut down: handles are valid until the process ends.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::path::Path;

use crate::Gauge;
use crate::vendor::{CallError, LoadError, Status, Symbols, lock};

/// The type `nvmlDevice_t`, a pointer that only the library follows.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Handle(usize);

/// The structure `nvmlPciInfo_t` of the header.
#[repr(C)]
struct PciInfo {
    bus_id_legacy: [u8; 16],
    numbers: [u32; 5],
    bus_id: [u8; 32],
}

/// The structure `nvmlUtilization_t`, in percent.
#[derive(Default)]
#[repr(C)]
struct Utilization {
    gpu: u32,
    memory: u32,
}

/// The structure `nvmlMemory_v2_t`, in bytes. In the first version of the structure, what the driver reserves counts as used.
#[repr(C)]
struct Memory {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { version: size_of::<Memory>() as u32 | 2 << 24, total: 0, reserved: 0, free: 0, used: 0 }
    }
}

/// The structure `nvmlProcessInfo_t` since its second version.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct ProcessInfo {
    pid: u32,
    memory_bytes: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

/// The structure that `nvmlDeviceGetComputeRunningProcesses_v3` writes instead in some drivers from 535.43 until before 535.98.
#[repr(C)]
struct LongProcessInfo {
    info: ProcessInfo,
    protected_memory_bytes: u64,
}

/// Whether a driver may write [`LongProcessInfo`].
fn may_write_long_entries(driver: &str) -> bool {
    let mut numbers = driver.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    numbers.next() == Some(535) && numbers.next().is_some_and(|minor| (43..98).contains(&minor))
}

/// The number of entries for processes at the first attempt.
const PROCESSES: u32 = 64;
/// The factor by which each further attempt has more entries.
const MORE_PROCESSES: u32 = 16;

/// The clock of the multiprocessors, `NVML_CLOCK_SM`.
const CLOCK_SM: u32 = 1;
/// `nvmlClocksThrottleReasonSwThermalSlowdown` and `nvmlClocksThrottleReasonHwThermalSlowdown`.
const THERMAL_REASONS: u64 = 0x20 | 0x40;
/// `nvmlClocksThrottleReasonSwPowerCap` and `nvmlClocksThrottleReasonHwPowerBrakeSlowdown`.
const POWER_REASONS: u64 = 0x04 | 0x80;
/// The header's name is `NVML_TEMPERATURE_GPU`.
const TEMPERATURE_GPU: u32 = 0;

type TextFn = unsafe extern "C" fn(text: *mut c_char, length: u32) -> u32;
type DeviceFn<T> = unsafe extern "C" fn(device: Handle, value: *mut T) -> u32;

/// The functions of an initialised library.
pub(super) struct Library {
    driver_version: Option<TextFn>,
    count: unsafe extern "C" fn(count: *mut u32) -> u32,
    handle: unsafe extern "C" fn(index: u32, handle: *mut Handle) -> u32,
    energy: DeviceFn<u64>,
    name: Option<unsafe extern "C" fn(device: Handle, name: *mut c_char, length: u32) -> u32>,
    pci: Option<DeviceFn<PciInfo>>,
    power: Option<DeviceFn<u32>>,
    temperature: Option<unsafe extern "C" fn(device: Handle, sensor: u32, celsius: *mut u32) -> u32>,
    utilization: Option<DeviceFn<Utilization>>,
    memory: Option<DeviceFn<Memory>>,
    clock: Option<unsafe extern "C" fn(device: Handle, clock: u32, megahertz: *mut u32) -> u32>,
    power_limit: Option<DeviceFn<u32>>,
    /// The older name of `nvmlDeviceGetCurrentClocksEventReasons`, which every driver has.
    throttle_reasons: Option<DeviceFn<u64>>,
    processes: Option<unsafe extern "C" fn(device: Handle, count: *mut u32, to: *mut ProcessInfo) -> u32>,
}

/// The reason why there is no [`Library`].
pub(super) enum OpenError {
    Load(LoadError),
    Init(CallError),
}

impl From<LoadError> for OpenError {
    fn from(error: LoadError) -> OpenError {
        OpenError::Load(error)
    }
}

impl Library {
    /// Loads the library, looks up its functions and initialises it.
    pub fn open(path: &Path) -> Result<Library, OpenError> {
        // SAFETY: the library is libnvidia-ml by its file name or because the user has named it as that; its initialisers set up
        // its own state.
        let symbols = unsafe { Symbols::open(path) }?;
        // SAFETY: the types are those of nvml.h for these names.
        let (init, mut library) = unsafe {
            let init: unsafe extern "C" fn() -> u32 = symbols.get("nvmlInit_v2")?;
            let library = Library {
                driver_version: symbols.get("nvmlSystemGetDriverVersion").ok(),
                count: symbols.get("nvmlDeviceGetCount_v2")?,
                handle: symbols.get("nvmlDeviceGetHandleByIndex_v2")?,
                energy: symbols.get(super::ENERGY)?,
                name: symbols.get("nvmlDeviceGetName").ok(),
                pci: symbols.get("nvmlDeviceGetPciInfo_v3").ok(),
                power: symbols.get("nvmlDeviceGetPowerUsage").ok(),
                temperature: symbols.get("nvmlDeviceGetTemperature").ok(),
                utilization: symbols.get("nvmlDeviceGetUtilizationRates").ok(),
                memory: symbols.get("nvmlDeviceGetMemoryInfo_v2").ok(),
                clock: symbols.get("nvmlDeviceGetClockInfo").ok(),
                power_limit: symbols.get("nvmlDeviceGetEnforcedPowerLimit").ok(),
                throttle_reasons: symbols.get("nvmlDeviceGetCurrentClocksThrottleReasons").ok(),
                processes: symbols.get("nvmlDeviceGetComputeRunningProcesses_v3").ok(),
            };
            (init, library)
        };
        symbols.keep();
        let guard = lock().map_err(OpenError::Init)?;
        // SAFETY: it may be called at any time, and counts its callers.
        check(unsafe { init() }).map_err(OpenError::Init)?;
        drop(guard);
        if library.driver_version().is_none_or(|driver| may_write_long_entries(&driver)) {
            library.processes = None;
        }
        Ok(library)
    }

    pub fn device_count(&self) -> Result<u32, CallError> {
        // SAFETY: the library is initialised, else there is no `Library`, and has not ended, as `get` ensures; the value is a
        // local of the header's type.
        get(|count| unsafe { (self.count)(count) })
    }

    pub fn device(&self, index: u32) -> Result<Handle, CallError> {
        let mut handle = Handle(0);
        let _guard = lock()?;
        // SAFETY: as in `device_count`.
        check(unsafe { (self.handle)(index, &mut handle) })?;
        Ok(handle)
    }

    /// Reads the energy in millijoules.
    pub fn energy(&self, device: Handle) -> Result<u64, CallError> {
        // SAFETY: as in `device_count`; the handle is the library's.
        get(|millijoules| unsafe { (self.energy)(device, millijoules) })
    }

    pub fn driver_version(&self) -> Option<String> {
        let version = self.driver_version?;
        // SAFETY: as in `device_count`; the library may write `length` bytes.
        text(|text, length| unsafe { version(text, length) })
    }

    pub fn model(&self, device: Handle) -> Option<String> {
        let name = self.name?;
        // SAFETY: as in `driver_version`.
        text(|text, length| unsafe { name(device, text, length) })
    }

    /// Returns the address in the form `00000000:C1:00.0`.
    pub fn bus(&self, device: Handle) -> Option<String> {
        let pci = self.pci?;
        let mut info = PciInfo { bus_id_legacy: [0; 16], numbers: [0; 5], bus_id: [0; 32] };
        let _guard = lock().ok()?;
        // SAFETY: as in `energy`.
        check(unsafe { pci(device, &mut info) }).ok()?;
        Some(CStr::from_bytes_until_nul(&info.bus_id).ok()?.to_string_lossy().into_owned())
    }

    /// Returns the processes that have a compute context on the device; `None` if there are more than 16,384, or if the library
    /// cannot list them.
    pub fn processes(&self, device: Handle) -> Option<Vec<u32>> {
        let processes = self.processes?;
        // Other processes may start in the meantime, so there are several attempts.
        for places in [PROCESSES, PROCESSES * MORE_PROCESSES, PROCESSES * MORE_PROCESSES * MORE_PROCESSES] {
            // The buffer is large enough for either size of an entry.
            let bytes = places as usize * size_of::<LongProcessInfo>();
            let mut infos = vec![ProcessInfo::default(); bytes.div_ceil(size_of::<ProcessInfo>())];
            let mut count = places;
            let guard = lock().ok()?;
            // SAFETY: as in `energy`; the library may write `places` entries.
            let code = unsafe { processes(device, &mut count, infos.as_mut_ptr()) };
            drop(guard);
            if code != INSUFFICIENT_SIZE {
                check(code).ok()?;
                return Some(infos.iter().take(count.min(places) as usize).map(|info| info.pid).collect());
            }
        }
        None
    }

    /// Whether the library has the gauge's function.
    pub fn has(&self, gauge: Gauge) -> bool {
        match gauge {
            Gauge::Power => self.power.is_some(),
            Gauge::Temperature => self.temperature.is_some(),
            Gauge::Busy => self.utilization.is_some(),
            Gauge::MemoryUsed | Gauge::MemorySize => self.memory.is_some(),
            Gauge::Clock => self.clock.is_some(),
            Gauge::PowerLimit => self.power_limit.is_some(),
            Gauge::ThermalThrottling | Gauge::PowerThrottling => self.throttle_reasons.is_some(),
            _ => false,
        }
    }

    /// Reads a gauge in base units.
    pub fn gauge(&self, device: Handle, gauge: Gauge) -> Option<f64> {
        // SAFETY: as in `energy`.
        unsafe {
            match gauge {
                Gauge::Power => {
                    let power = self.power?;
                    get(|milliwatts: &mut u32| power(device, milliwatts)).ok().map(|mw| f64::from(mw) * 1e-3)
                }
                Gauge::Temperature => {
                    let temperature = self.temperature?;
                    get(|celsius| temperature(device, TEMPERATURE_GPU, celsius)).ok().map(f64::from)
                }
                Gauge::Busy => {
                    let utilization = self.utilization?;
                    let percent: Utilization = get(|percent| utilization(device, percent)).ok()?;
                    Some(f64::from(percent.gpu) * 1e-2)
                }
                Gauge::MemoryUsed | Gauge::MemorySize => {
                    let memory = self.memory?;
                    let bytes: Memory = get(|bytes| memory(device, bytes)).ok()?;
                    Some(if gauge == Gauge::MemoryUsed { bytes.used } else { bytes.total } as f64)
                }
                Gauge::Clock => {
                    let clock = self.clock?;
                    get(|megahertz: &mut u32| clock(device, CLOCK_SM, megahertz))
                        .ok()
                        .map(|mhz| f64::from(mhz) * 1e6)
                }
                Gauge::PowerLimit => {
                    let limit = self.power_limit?;
                    get(|milliwatts: &mut u32| limit(device, milliwatts)).ok().map(|mw| f64::from(mw) * 1e-3)
                }
                Gauge::ThermalThrottling | Gauge::PowerThrottling => {
                    let reasons = self.throttle_reasons?;
                    let reasons: u64 = get(|bits| reasons(device, bits)).ok()?;
                    let of = if gauge == Gauge::PowerThrottling { POWER_REASONS } else { THERMAL_REASONS };
                    Some(f64::from(u8::from(reasons & of != 0)))
                }
                _ => None,
            }
        }
    }
}

/// Returns what a function writes through its pointer.
fn get<T: Default>(call: impl FnOnce(&mut T) -> u32) -> Result<T, CallError> {
    let _guard = lock()?;
    let mut value = T::default();
    check(call(&mut value))?;
    Ok(value)
}

/// Returns the text that a function writes; `None` also for an empty one.
fn text(call: impl FnOnce(*mut c_char, u32) -> u32) -> Option<String> {
    let _guard = lock().ok()?;
    let mut bytes = [0u8; 128];
    // The library may not write the last byte, so that a zero always ends the text.
    check(call(bytes.as_mut_ptr().cast(), bytes.len() as u32 - 1)).ok()?;
    let text = CStr::from_bytes_until_nul(&bytes).ok()?.to_string_lossy().into_owned();
    (!text.is_empty()).then_some(text)
}

const INSUFFICIENT_SIZE: u32 = 7;
pub(super) const NOT_SUPPORTED: u32 = 3;
pub(super) const NO_PERMISSION: u32 = 4;

/// Checks a `nvmlReturn_t`. The error has the header's name without `NVML_ERROR_`. Allocates nothing.
fn check(code: u32) -> Result<(), CallError> {
    let name = match code {
        0 => return Ok(()),
        1 => "UNINITIALIZED",
        2 => "INVALID_ARGUMENT",
        NOT_SUPPORTED => "NOT_SUPPORTED",
        NO_PERMISSION => "NO_PERMISSION",
        6 => "NOT_FOUND",
        9 => "DRIVER_NOT_LOADED",
        10 => "TIMEOUT",
        12 => "LIBRARY_NOT_FOUND",
        13 => "FUNCTION_NOT_FOUND",
        15 => "GPU_IS_LOST",
        16 => "RESET_REQUIRED",
        17 => "OPERATING_SYSTEM",
        18 => "LIB_RM_VERSION_MISMATCH",
        19 => "IN_USE",
        _ => "UNKNOWN",
    };
    Err(CallError::Status(Status { code, name }))
}

#[cfg(test)]
mod tests {
    use super::may_write_long_entries;

    #[test]
    fn drivers_with_another_layout_of_processes_are_known() {
        let known = ["535.43.02", "535.54.03", "535.86.05", "535.98", "535.183.01", "550.54.15", "unknown"];
        assert_eq!(known.map(may_write_long_entries), [true, true, true, false, false, false, false]);
    }
}
