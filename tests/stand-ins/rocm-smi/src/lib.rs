//! A stand-in for `librocm_smi64.so`: the same C interface, energy counters that follow a script.
//!
//! It identifies itself: `rsmi_version_get` returns the build string `ampere stand-in`, and ampere then labels its figures
//! *simulated*. The script is the environment variable `STAND_IN_ROCM_SMI`, read by `rsmi_init`: entries `key=value` separated by
//! `;`, see [`scripted_counters::script`].

use std::ffi::{CString, c_char};

use scripted_counters::script::Reading;
use scripted_counters::{StandIn, put};

type Status = u32;

const SUCCESS: Status = 0;
const INVALID_ARGS: Status = 1;
const NOT_SUPPORTED: Status = 2;
const INPUT_OUT_OF_BOUNDS: Status = 7;
const INIT_ERROR: Status = 8;
const NOT_FOUND: Status = 10;

static LIBRARY: StandIn = StandIn::new("rocm_smi", "STAND_IN_ROCM_SMI");

/// Reads the script and starts the counters.
#[unsafe(no_mangle)]
pub extern "C" fn rsmi_init(_flags: u64) -> Status {
    LIBRARY.init().unwrap_or(INIT_ERROR)
}

/// Undoes one call of `rsmi_init`.
#[unsafe(no_mangle)]
pub extern "C" fn rsmi_shut_down() -> Status {
    LIBRARY.shut_down("rsmi_shut_down");
    SUCCESS
}

/// Returns the number of devices in the script.
///
/// # Safety
/// `count` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_num_monitor_devices(count: *mut u32) -> Status {
    match LIBRARY.count("rsmi_num_monitor_devices") {
        Ok(number) => {
            // SAFETY: this function's own contract.
            if unsafe { put(count, number) } { SUCCESS } else { INVALID_ARGS }
        }
        Err(status) => status,
    }
}

/// Returns the present value of the energy counter according to the script.
///
/// # Safety
/// The three pointers are null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_energy_count_get(
    device: u32,
    counter: *mut u64,
    resolution: *mut f32,
    timestamp: *mut u64,
) -> Status {
    let function = "rsmi_dev_energy_count_get";
    let factor = LIBRARY.running(function, |state| state.script.resolution_microjoules);
    match LIBRARY.read(function, device as usize) {
        None => INPUT_OUT_OF_BOUNDS,
        Some(Reading::Error(status)) => status,
        Some(Reading::Gone) => NOT_FOUND,
        Some(Reading::Counter { ticks, timestamp_ns }) => {
            // SAFETY: this function's own contract.
            let whole =
                unsafe { put(counter, ticks) & put(resolution, factor) & put(timestamp, timestamp_ns) };
            if whole { SUCCESS } else { INVALID_ARGS }
        }
    }
}

/// Each device has a PCI bus of its own, from 0000:c1 on. Partitions are functions of 0000:c1:00.
///
/// # Safety
/// `bdfid` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_pci_id_get(device: u32, bdfid: *mut u64) -> Status {
    LIBRARY.running("rsmi_dev_pci_id_get", |state| {
        if device as usize >= state.script.devices.len() {
            return INPUT_OUT_OF_BOUNDS;
        }
        let device = u64::from(device);
        let address = if state.script.partitions { 0xc1 << 8 | device } else { (0xc1 + device) << 8 };
        // SAFETY: this function's own contract.
        if unsafe { put(bdfid, address) } { SUCCESS } else { INVALID_ARGS }
    })
}

/// Every device has the name in the variable `STAND_IN_ROCM_SMI_MODEL`, or `Stand-in GPU`.
///
/// # Safety
/// `name` is null or points to `len` bytes that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_name_get(device: u32, name: *mut c_char, len: usize) -> Status {
    let model = std::env::var("STAND_IN_ROCM_SMI_MODEL").unwrap_or_else(|_| "Stand-in GPU".to_owned());
    let model = CString::new(model).unwrap_or_default();
    LIBRARY.running("rsmi_dev_name_get", |state| {
        if device as usize >= state.script.devices.len() {
            return INPUT_OUT_OF_BOUNDS;
        }
        if name.is_null() || len < model.count_bytes() + 1 {
            return INVALID_ARGS;
        }
        // SAFETY: `name` has at least as many bytes as are copied (checked above, under this function's contract).
        unsafe { name.copy_from_nonoverlapping(model.as_ptr(), model.count_bytes() + 1) };
        SUCCESS
    })
}

/// The layout of `rsmi_version_t`.
#[repr(C)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
    pub build: *const c_char,
}

/// The version identifies the stand-in. The call is allowed before `rsmi_init`, as in the real library.
///
/// # Safety
/// `version` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_version_get(version: *mut Version) -> Status {
    let own = Version { major: 5, minor: 0, patch: 0, build: c"ampere stand-in".as_ptr() };
    // SAFETY: this function's own contract.
    if unsafe { put(version, own) } { SUCCESS } else { INVALID_ARGS }
}

/// Writes a gauge of a device.
///
/// # Safety
/// `to` is null or may be written to.
unsafe fn write_gauge<T>(
    function: &str,
    device: u32,
    name: &str,
    to: *mut T,
    convert: impl Fn(f64) -> T,
) -> Status {
    match LIBRARY.gauge(function, device as usize, name) {
        None => INPUT_OUT_OF_BOUNDS,
        Some(Err(status)) => status,
        Some(Ok(value)) => {
            // SAFETY: this function's own contract.
            if unsafe { put(to, convert(value)) } { SUCCESS } else { INVALID_ARGS }
        }
    }
}

/// Returns the mean power in microwatts. Only sensor 0 exists.
///
/// # Safety
/// `power` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_power_ave_get(device: u32, sensor: u32, power: *mut u64) -> Status {
    if sensor != 0 {
        return NOT_SUPPORTED;
    }
    // SAFETY: this function's own contract.
    unsafe { write_gauge("rsmi_dev_power_ave_get", device, "power", power, |watts| (watts * 1e6) as u64) }
}

/// Returns the present power in microwatts.
///
/// # Safety
/// `power` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_current_socket_power_get(device: u32, power: *mut u64) -> Status {
    let function = "rsmi_dev_current_socket_power_get";
    // SAFETY: this function's own contract.
    unsafe { write_gauge(function, device, "socket", power, |watts| (watts * 1e6) as u64) }
}

/// Returns the present temperature of one of three sensors, in thousandths of a degree.
///
/// # Safety
/// `temperature` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_temp_metric_get(
    device: u32,
    sensor: u32,
    metric: u32,
    temperature: *mut i64,
) -> Status {
    let Some(name) = ["edge", "junction", "memory"].get(sensor as usize).filter(|_| metric == 0) else {
        return NOT_SUPPORTED;
    };
    // SAFETY: this function's own contract.
    unsafe {
        write_gauge("rsmi_dev_temp_metric_get", device, name, temperature, |degrees| (degrees * 1e3) as i64)
    }
}

/// # Safety
/// `percent` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_busy_percent_get(device: u32, percent: *mut u32) -> Status {
    // SAFETY: this function's own contract.
    unsafe { write_gauge("rsmi_dev_busy_percent_get", device, "busy", percent, |percent| percent as u32) }
}

/// Returns the used bytes of the device's own memory (type 0).
///
/// # Safety
/// `bytes` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_memory_usage_get(device: u32, kind: u32, bytes: *mut u64) -> Status {
    if kind != 0 {
        return NOT_SUPPORTED;
    }
    // SAFETY: this function's own contract.
    unsafe { write_gauge("rsmi_dev_memory_usage_get", device, "used", bytes, |bytes| bytes as u64) }
}

/// Returns the size of the device's own memory in bytes.
///
/// # Safety
/// `bytes` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_memory_total_get(device: u32, kind: u32, bytes: *mut u64) -> Status {
    if kind != 0 {
        return NOT_SUPPORTED;
    }
    // SAFETY: this function's own contract.
    unsafe { write_gauge("rsmi_dev_memory_total_get", device, "total", bytes, |bytes| bytes as u64) }
}
