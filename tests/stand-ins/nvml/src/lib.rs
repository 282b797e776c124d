//! A stand-in for `libnvidia-ml.so.1`: the same C interface, energy counters that follow a script, in millijoules.
//!
//! It identifies itself: the driver's version is `535.0 stand-in`, and ampere then labels its figures *simulated*. The script is
//! the environment variable `STAND_IN_NVML`, read by `nvmlInit_v2`: entries `key=value` separated by `;`, see
//! [`scripted_counters::script`].
//!
//! The file `1` in the directory `STAND_IN_NVML_PROCESSES` has the pids of the processes that use device 1, and so on.

use std::ffi::{CStr, CString, c_char, c_uint, c_ulonglong, c_void};

use scripted_counters::script::Reading;
use scripted_counters::{StandIn, put};

type Return = c_uint;
type Handle = *mut c_void;

const SUCCESS: Return = 0;
const INVALID_ARGUMENT: Return = 2;
const INSUFFICIENT_SIZE: Return = 7;
const NOT_SUPPORTED: Return = 3;
const GPU_IS_LOST: Return = 15;
const UNKNOWN: Return = 999;

static LIBRARY: StandIn = StandIn::new("nvml", "STAND_IN_NVML");

/// Handles are numbers that start at this value, so that none is null.
const HANDLES: usize = 0x1000;
/// Length of the legacy address in `nvmlPciInfo_t`.
const LEGACY_ADDRESS_BYTES: usize = 16;
const ADDRESS_BYTES: usize = 32;

/// Reads the script and starts the counters.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Return {
    LIBRARY.init().unwrap_or(UNKNOWN)
}

/// Undoes one call of `nvmlInit_v2`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Return {
    LIBRARY.shut_down("nvmlShutdown");
    SUCCESS
}

/// Writes a text and its terminating NUL.
///
/// # Safety
/// `to` is null or points to `length` bytes that may be written to.
unsafe fn put_text(to: *mut c_char, length: c_uint, text: &CStr) -> Return {
    let bytes = text.to_bytes_with_nul();
    if to.is_null() {
        return INVALID_ARGUMENT;
    }
    if bytes.len() > length as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: `to` has at least as many bytes as are copied (checked above, under this function's contract).
    unsafe { to.copy_from_nonoverlapping(text.as_ptr(), bytes.len()) };
    SUCCESS
}

/// The version identifies the stand-in.
///
/// # Safety
/// `version` is null or points to `length` bytes that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> Return {
    LIBRARY.running("nvmlSystemGetDriverVersion", |_| ());
    // SAFETY: this function's own contract.
    unsafe { put_text(version, length, c"535.0 stand-in") }
}

/// Returns the number of devices in the script.
///
/// # Safety
/// `count` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> Return {
    match LIBRARY.count("nvmlDeviceGetCount_v2") {
        Ok(number) => {
            // SAFETY: this function's own contract.
            if unsafe { put(count, number) } { SUCCESS } else { INVALID_ARGUMENT }
        }
        Err(status) => status,
    }
}

/// # Safety
/// `device` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut Handle) -> Return {
    let count = LIBRARY.running("nvmlDeviceGetHandleByIndex_v2", |state| state.script.devices.len());
    if index as usize >= count {
        return INVALID_ARGUMENT;
    }
    let handle = std::ptr::without_provenance_mut(HANDLES + index as usize);
    // SAFETY: this function's own contract.
    if unsafe { put(device, handle) } { SUCCESS } else { INVALID_ARGUMENT }
}

/// Every device has the name in the variable `STAND_IN_NVML_MODEL`, or `Stand-in GPU`.
///
/// # Safety
/// `name` is null or points to `length` bytes that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(device: Handle, name: *mut c_char, length: c_uint) -> Return {
    if device.addr() < HANDLES {
        return INVALID_ARGUMENT;
    }
    let model = std::env::var("STAND_IN_NVML_MODEL").unwrap_or_default();
    let model = CString::new(model).ok().filter(|model| !model.is_empty());
    // SAFETY: this function's own contract.
    unsafe { put_text(name, length, model.as_deref().unwrap_or(c"Stand-in GPU")) }
}

/// The layout of `nvmlPciInfo_t`.
#[repr(C)]
pub struct PciInfo {
    pub bus_id_legacy: [c_char; LEGACY_ADDRESS_BYTES],
    pub domain: c_uint,
    pub bus: c_uint,
    pub device: c_uint,
    pub pci_device_id: c_uint,
    pub pci_sub_system_id: c_uint,
    pub bus_id: [c_char; ADDRESS_BYTES],
}

/// Each device has a PCI bus of its own, from 00000000:C1 on.
///
/// # Safety
/// `info` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: Handle, info: *mut PciInfo) -> Return {
    let Some(index) = device.addr().checked_sub(HANDLES) else { return INVALID_ARGUMENT };
    let bus = 0xc1 + index as c_uint;
    let mut own = PciInfo {
        bus_id_legacy: [0; LEGACY_ADDRESS_BYTES],
        domain: 0,
        bus,
        device: 0,
        pci_device_id: 0,
        pci_sub_system_id: 0,
        bus_id: [0; ADDRESS_BYTES],
    };
    for (to, from) in own.bus_id.iter_mut().zip(format!("00000000:{bus:02X}:00.0").bytes()) {
        *to = from as c_char;
    }
    // SAFETY: this function's own contract.
    if unsafe { put(info, own) } { SUCCESS } else { INVALID_ARGUMENT }
}

/// Returns the present value of the energy counter according to the script, in millijoules.
///
/// # Safety
/// `energy` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTotalEnergyConsumption(
    device: Handle,
    energy: *mut c_ulonglong,
) -> Return {
    let function = "nvmlDeviceGetTotalEnergyConsumption";
    let microjoules = LIBRARY.running(function, |state| f64::from(state.script.resolution_microjoules));
    let reading = device.addr().checked_sub(HANDLES).and_then(|index| LIBRARY.read(function, index));
    match reading {
        None => INVALID_ARGUMENT,
        Some(Reading::Error(status)) => status,
        Some(Reading::Gone) => GPU_IS_LOST,
        Some(Reading::Counter { ticks, .. }) => {
            let millijoules = (ticks as f64 * microjoules / 1000.0) as c_ulonglong;
            // SAFETY: this function's own contract.
            if unsafe { put(energy, millijoules) } { SUCCESS } else { INVALID_ARGUMENT }
        }
    }
}

/// Writes a gauge of a device.
///
/// # Safety
/// `to` is null or may be written to.
unsafe fn write_gauge<T>(
    function: &str,
    device: Handle,
    name: &str,
    to: *mut T,
    convert: impl Fn(f64) -> T,
) -> Return {
    let index = device.addr().checked_sub(HANDLES);
    match index.and_then(|index| LIBRARY.gauge(function, index, name)) {
        None => INVALID_ARGUMENT,
        Some(Err(status)) => status,
        Some(Ok(value)) => {
            // SAFETY: this function's own contract.
            if unsafe { put(to, convert(value)) } { SUCCESS } else { INVALID_ARGUMENT }
        }
    }
}

/// Returns the power in milliwatts.
///
/// # Safety
/// `power` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: Handle, power: *mut c_uint) -> Return {
    // SAFETY: this function's own contract.
    unsafe { write_gauge("nvmlDeviceGetPowerUsage", device, "power", power, |watts| (watts * 1e3) as c_uint) }
}

/// Returns the temperature of the only sensor, in degrees.
///
/// # Safety
/// `degrees` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: Handle,
    sensor: c_uint,
    degrees: *mut c_uint,
) -> Return {
    if sensor != 0 {
        return INVALID_ARGUMENT;
    }
    // SAFETY: this function's own contract.
    unsafe { write_gauge("nvmlDeviceGetTemperature", device, "gpu", degrees, |degrees| degrees as c_uint) }
}

/// The layout of `nvmlUtilization_t`, whose values are in percent.
#[repr(C)]
pub struct Utilization {
    pub gpu: c_uint,
    pub memory: c_uint,
}

/// # Safety
/// `utilization` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(
    device: Handle,
    utilization: *mut Utilization,
) -> Return {
    let own = |percent| Utilization { gpu: percent as c_uint, memory: 99 };
    // SAFETY: this function's own contract.
    unsafe { write_gauge("nvmlDeviceGetUtilizationRates", device, "busy", utilization, own) }
}

/// Returns the clock of the multiprocessors (clock 1) in megahertz.
///
/// # Safety
/// `megahertz` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetClockInfo(
    device: Handle,
    clock: c_uint,
    megahertz: *mut c_uint,
) -> Return {
    if clock != 1 {
        return NOT_SUPPORTED;
    }
    // SAFETY: this function's own contract.
    unsafe { write_gauge("nvmlDeviceGetClockInfo", device, "clock", megahertz, |mhz| mhz as c_uint) }
}

/// Returns the power limit in milliwatts.
///
/// # Safety
/// `limit` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetEnforcedPowerLimit(device: Handle, limit: *mut c_uint) -> Return {
    let function = "nvmlDeviceGetEnforcedPowerLimit";
    // SAFETY: this function's own contract.
    unsafe { write_gauge(function, device, "limit", limit, |watts| (watts * 1e3) as c_uint) }
}

/// Returns the bits of the reasons for which the clock is lowered.
///
/// # Safety
/// `reasons` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    device: Handle,
    reasons: *mut c_ulonglong,
) -> Return {
    let function = "nvmlDeviceGetCurrentClocksThrottleReasons";
    // SAFETY: this function's own contract.
    unsafe { write_gauge(function, device, "reasons", reasons, |bits| bits as c_ulonglong) }
}

/// The layout of `nvmlMemory_v2_t`.
#[repr(C)]
pub struct Memory {
    pub version: c_uint,
    pub total: c_ulonglong,
    pub reserved: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

/// # Safety
/// `memory` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Handle, memory: *mut Memory) -> Return {
    let function = "nvmlDeviceGetMemoryInfo_v2";
    let total = device.addr().checked_sub(HANDLES).and_then(|i| LIBRARY.gauge(function, i, "total"));
    let total = match total {
        None => return INVALID_ARGUMENT,
        Some(Err(status)) => return status,
        Some(Ok(total)) => total as c_ulonglong,
    };
    let own = |used| {
        let used = used as c_ulonglong;
        Memory {
            version: 2 << 24 | size_of::<Memory>() as c_uint,
            total,
            reserved: 0,
            free: total - used,
            used,
        }
    };
    // SAFETY: this function's own contract.
    unsafe { write_gauge(function, device, "used", memory, own) }
}

/// The layout of the second version of `nvmlProcessInfo_t`.
#[repr(C)]
pub struct ProcessInfo {
    pub pid: c_uint,
    pub used_gpu_memory: c_ulonglong,
    pub gpu_instance_id: c_uint,
    pub compute_instance_id: c_uint,
}

/// # Safety
/// `count` may be read and written; `infos` points to `*count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Handle,
    count: *mut c_uint,
    infos: *mut ProcessInfo,
) -> Return {
    LIBRARY.running("nvmlDeviceGetComputeRunningProcesses_v3", |_| ());
    let Some(index) = device.addr().checked_sub(HANDLES) else { return INVALID_ARGUMENT };
    let Some(directory) = std::env::var_os("STAND_IN_NVML_PROCESSES") else { return NOT_SUPPORTED };
    let file = std::path::Path::new(&directory).join(index.to_string());
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let pids: Vec<c_uint> = text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    // SAFETY: this function's own contract.
    let places = unsafe { count.replace(pids.len() as c_uint) } as usize;
    if places < pids.len() {
        return INSUFFICIENT_SIZE;
    }
    for (place, pid) in pids.into_iter().enumerate() {
        let info =
            ProcessInfo { pid, used_gpu_memory: 1 << 20, gpu_instance_id: !0, compute_instance_id: !0 };
        // SAFETY: there are as many elements (checked above, under this function's contract).
        unsafe { infos.add(place).write(info) };
    }
    SUCCESS
}
