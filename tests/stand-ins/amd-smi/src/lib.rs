//! A stand-in for `libamd_smi.so`: the same C interface, energy counters that follow a script.
//!
//! It identifies itself: `amdsmi_get_lib_version` returns the build string `24.7.0.0 stand-in`, and ampere then labels its
//! figures *simulated*. The script is the environment variable `STAND_IN_AMD_SMI`, read by `amdsmi_init`: entries `key=value`
//! separated by `;`, see [`scripted_counters::script`]. Every socket has two processors, as an MI250X package has two dies; the
//! last may have one.

use std::ffi::{CStr, c_char, c_void};

use scripted_counters::script::Reading;
use scripted_counters::{StandIn, put};

type Status = u32;
type Handle = *mut c_void;

const SUCCESS: Status = 0;
const INVAL: Status = 1;
const NOT_SUPPORTED: Status = 2;
const INIT_ERROR: Status = 18;
const NOT_FOUND: Status = 31;

static LIBRARY: StandIn = StandIn::new("amdsmi", "STAND_IN_AMD_SMI");

/// Handles are numbers that start at these values. None is null, and no handle of a socket equals one of a processor.
const SOCKETS: usize = 0x1000;
const PROCESSORS: usize = 0x2000;
const PER_SOCKET: u32 = 2;

/// Reads the script and starts the counters. `AMDSMI_INIT_AMD_GPUS` is the only flag that it accepts.
#[unsafe(no_mangle)]
pub extern "C" fn amdsmi_init(flags: u64) -> Status {
    if flags != 2 {
        return INVAL;
    }
    LIBRARY.init().unwrap_or(INIT_ERROR)
}

/// Undoes one call of `amdsmi_init`.
#[unsafe(no_mangle)]
pub extern "C" fn amdsmi_shut_down() -> Status {
    LIBRARY.shut_down("amdsmi_shut_down");
    SUCCESS
}

/// Writes `number` handles from `first` on, as far as there is room. If `handles` is null, only their number is written.
///
/// # Safety
/// `count` is null or may be read and written; `handles` is null or has room for `*count`.
unsafe fn list(count: *mut u32, handles: *mut Handle, first: usize, number: u32) -> Status {
    if count.is_null() {
        return INVAL;
    }
    if handles.is_null() {
        // SAFETY: this function's own contract.
        unsafe { put(count, number) };
        return SUCCESS;
    }
    // SAFETY: this function's own contract.
    let number = number.min(unsafe { count.read_unaligned() });
    for at in 0..number as usize {
        // SAFETY: less than `*count`, for which there is room.
        unsafe { put(handles.add(at), std::ptr::without_provenance_mut(first + at)) };
    }
    // SAFETY: this function's own contract.
    unsafe { put(count, number) };
    SUCCESS
}

/// Returns one socket for every two devices of the script.
///
/// # Safety
/// `count` is null or may be read and written; `handles` is null or has room for `*count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdsmi_get_socket_handles(count: *mut u32, handles: *mut Handle) -> Status {
    match LIBRARY.count("amdsmi_get_socket_handles") {
        // SAFETY: this function's own contract.
        Ok(devices) => unsafe { list(count, handles, SOCKETS, devices.div_ceil(PER_SOCKET)) },
        Err(status) => status,
    }
}

/// Returns the devices of a socket.
///
/// # Safety
/// `count` is null or may be read and written; `handles` is null or has room for `*count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdsmi_get_processor_handles(
    socket: Handle,
    count: *mut u32,
    handles: *mut Handle,
) -> Status {
    let Ok(devices) = LIBRARY.count("amdsmi_get_processor_handles") else { return INVAL };
    let Some(first) = socket.addr().checked_sub(SOCKETS).map(|socket| socket as u32 * PER_SOCKET) else {
        return INVAL;
    };
    if first >= devices {
        return INVAL;
    }
    let number = PER_SOCKET.min(devices - first);
    // SAFETY: this function's own contract.
    unsafe { list(count, handles, PROCESSORS + first as usize, number) }
}

/// Returns the device of a handle, if the handle is valid.
fn device(processor: Handle) -> Option<usize> {
    let device = processor.addr().checked_sub(PROCESSORS)?;
    let count = LIBRARY.running("a function of a processor", |state| state.script.devices.len());
    (device < count).then_some(device)
}

/// Returns the present value of the energy counter according to the script.
///
/// # Safety
/// The three pointers are null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdsmi_get_energy_count(
    processor: Handle,
    accumulator: *mut u64,
    resolution: *mut f32,
    timestamp: *mut u64,
) -> Status {
    let function = "amdsmi_get_energy_count";
    let factor = LIBRARY.running(function, |state| state.script.resolution_microjoules);
    match device(processor).and_then(|device| LIBRARY.read(function, device)) {
        None => INVAL,
        Some(Reading::Error(status)) => status,
        Some(Reading::Gone) => NOT_FOUND,
        Some(Reading::Counter { ticks, timestamp_ns }) => {
            // SAFETY: this function's own contract.
            let whole =
                unsafe { put(accumulator, ticks) & put(resolution, factor) & put(timestamp, timestamp_ns) };
            if whole { SUCCESS } else { INVAL }
        }
    }
}

/// Each device has a PCI bus of its own, from 0000:c1 on.
///
/// # Safety
/// `bdfid` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdsmi_get_gpu_bdf_id(processor: Handle, bdfid: *mut u64) -> Status {
    let Some(device) = device(processor) else { return INVAL };
    // SAFETY: this function's own contract.
    if unsafe { put(bdfid, (0xc1 + device as u64) << 8) } { SUCCESS } else { INVAL }
}

/// The layout of `amdsmi_asic_info_t` in ROCm 6.2.
#[repr(C)]
pub struct AsicInfo {
    pub market_name: [c_char; 256],
    pub vendor_id: u32,
    pub vendor_name: [c_char; 64],
    pub subvendor_id: u32,
    pub device_id: u64,
    pub rev_id: u32,
    pub asic_serial: [c_char; 32],
    pub oam_id: u32,
    pub num_of_compute_units: u32,
    pub target_graphics_version: u64,
    pub reserved: [u32; 15],
}

/// Every device has the name in the variable `STAND_IN_AMD_SMI_MODEL`, or `Stand-in GPU`.
///
/// # Safety
/// `info` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdsmi_get_gpu_asic_info(processor: Handle, info: *mut AsicInfo) -> Status {
    if device(processor).is_none() {
        return INVAL;
    }
    let model = std::env::var("STAND_IN_AMD_SMI_MODEL").unwrap_or_else(|_| "Stand-in GPU".to_owned());
    let mut own = AsicInfo {
        market_name: [0; 256],
        vendor_id: 0x1002,
        vendor_name: [b'A' as c_char; 64],
        subvendor_id: 0x1002,
        device_id: 0x740c,
        rev_id: 1,
        asic_serial: [b'0' as c_char; 32],
        oam_id: 0xffff,
        num_of_compute_units: u32::MAX,
        target_graphics_version: u64::MAX,
        reserved: [u32::MAX; 15],
    };
    for (to, from) in own.market_name[..255].iter_mut().zip(model.bytes()) {
        *to = from as c_char;
    }
    // SAFETY: this function's own contract.
    if unsafe { put(info, own) } { SUCCESS } else { INVAL }
}

/// The layout of `amdsmi_version_t` in ROCm 6.2.
#[repr(C)]
pub struct Version {
    pub year: u32,
    pub major: u32,
    pub minor: u32,
    pub release: u32,
    pub build: *const c_char,
}

/// The version identifies the stand-in.
///
/// # Safety
/// `version` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdsmi_get_lib_version(version: *mut Version) -> Status {
    const BUILD: &CStr = c"24.7.0.0 stand-in";
    LIBRARY.running("amdsmi_get_lib_version", |_| ());
    let own = Version { year: 24, major: 7, minor: 0, release: 0, build: BUILD.as_ptr() };
    // SAFETY: this function's own contract.
    if unsafe { put(version, own) } { SUCCESS } else { INVAL }
}

/// Returns the value of a gauge of a handle's device.
fn gauge(function: &str, processor: Handle, name: &str) -> Result<f64, Status> {
    device(processor).and_then(|device| LIBRARY.gauge(function, device, name)).unwrap_or(Err(INVAL))
}

/// The layout of `amdsmi_power_info_t` in ROCm 7, or its first part if the variable `STAND_IN_AMD_SMI_ROCM` is 6.
#[repr(C)]
pub struct PowerInfo {
    pub words: [u32; 4],
    pub voltages: [u64; 3],
    pub power_limit: u32,
    pub reserved: [u64; 18],
}

/// Powers are in watts. If the script has a status for one, all its bits are ones, as in the real library.
///
/// # Safety
/// `info` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdsmi_get_power_info(processor: Handle, info: *mut PowerInfo) -> Status {
    if device(processor).is_none() {
        return INVAL;
    }
    let old = std::env::var_os("STAND_IN_AMD_SMI_ROCM").is_some_and(|release| release == "6");
    let unknown = if old { 0xffff } else { u32::MAX };
    let watts = |name| gauge("amdsmi_get_power_info", processor, name).map_or(unknown, |watts| watts as u32);
    let (now, average) = (watts("socket"), watts("power"));
    let either = if now == unknown { average } else { now };
    let own = PowerInfo {
        words: if old { [now, average, 800, 850] } else { [either, 0, now, average] },
        voltages: [800, 850, 900],
        power_limit: 560,
        reserved: [u64::MAX; 18],
    };
    // SAFETY: this function's own contract.
    if unsafe { put(info, own) } { SUCCESS } else { INVAL }
}

/// Writes a gauge of a device.
///
/// # Safety
/// `to` is null or may be written to.
unsafe fn write_gauge<T>(
    function: &str,
    processor: Handle,
    name: &str,
    to: *mut T,
    convert: impl Fn(f64) -> T,
) -> Status {
    match gauge(function, processor, name) {
        Err(status) => status,
        Ok(value) => {
            // SAFETY: this function's own contract.
            if unsafe { put(to, convert(value)) } { SUCCESS } else { INVAL }
        }
    }
}

/// Returns the present temperature of one of three sensors, in degrees.
///
/// # Safety
/// `temperature` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdsmi_get_temp_metric(
    processor: Handle,
    sensor: u32,
    metric: u32,
    temperature: *mut i64,
) -> Status {
    let Some(name) = ["edge", "junction", "memory"].get(sensor as usize).filter(|_| metric == 0) else {
        return NOT_SUPPORTED;
    };
    // SAFETY: this function's own contract.
    unsafe { write_gauge("amdsmi_get_temp_metric", processor, name, temperature, |degrees| degrees as i64) }
}

/// The layout of `amdsmi_engine_usage_t`.
#[repr(C)]
pub struct EngineUsage {
    pub gfx_activity: u32,
    pub umc_activity: u32,
    pub mm_activity: u32,
    pub reserved: [u32; 13],
}

/// # Safety
/// `usage` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdsmi_get_gpu_activity(processor: Handle, usage: *mut EngineUsage) -> Status {
    let own = |percent| EngineUsage {
        gfx_activity: percent as u32,
        umc_activity: 99,
        mm_activity: 0xffff,
        reserved: [0; 13],
    };
    // SAFETY: this function's own contract.
    unsafe { write_gauge("amdsmi_get_gpu_activity", processor, "busy", usage, own) }
}

/// Returns the used bytes of the device's own memory (type 0).
///
/// # Safety
/// `bytes` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdsmi_get_gpu_memory_usage(
    processor: Handle,
    kind: u32,
    bytes: *mut u64,
) -> Status {
    if kind != 0 {
        return NOT_SUPPORTED;
    }
    // SAFETY: this function's own contract.
    unsafe { write_gauge("amdsmi_get_gpu_memory_usage", processor, "used", bytes, |bytes| bytes as u64) }
}

/// Returns the size of the device's own memory in bytes.
///
/// # Safety
/// `bytes` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdsmi_get_gpu_memory_total(
    processor: Handle,
    kind: u32,
    bytes: *mut u64,
) -> Status {
    if kind != 0 {
        return NOT_SUPPORTED;
    }
    // SAFETY: this function's own contract.
    unsafe { write_gauge("amdsmi_get_gpu_memory_total", processor, "total", bytes, |bytes| bytes as u64) }
}
