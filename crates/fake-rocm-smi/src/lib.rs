//! A stand-in for `librocm_smi64.so`: the same C interface, energy counters that follow a script.
//!
//! It says what it is: `rsmi_version_get` returns the build string `ampere stand-in`, and ampere then labels its
//! figures *simulated*. The script is the environment variable `FAKE_ROCM_SMI`, read by `rsmi_init`: entries
//! `key=value` separated by `;`, see [`script`]. Energy is watts times `CLOCK_MONOTONIC`, so two processes with the
//! same script read the same counters.
//!
//! Any call outside `rsmi_init` ... `rsmi_shut_down` aborts the process, as the real library may (5.2.3 segfaults):
//! a caller that does so must not pass a test by luck.
//!
//! Note for those who run tests: `cargo test` puts this library's folder on `LD_LIBRARY_PATH`. A test that wants the
//! real library by name must remove that variable.

use std::ffi::{CStr, c_char};
use std::sync::Mutex;
use std::time::Duration;

pub mod script;

use script::{Script, Sight};

type Status = u32;

const SUCCESS: Status = 0;
const INVALID_ARGS: Status = 1;
const NOT_SUPPORTED: Status = 2;
const INPUT_OUT_OF_BOUNDS: Status = 7;
const INIT_ERROR: Status = 8;

/// What the library is between `rsmi_init` and `rsmi_shut_down`.
struct Running {
    script: Script,
    /// CLOCK_MONOTONIC of the script's time zero, in seconds.
    epoch: f64,
    /// Energy reads so far, by device.
    reads: Vec<u64>,
    /// `rsmi_init` calls not yet undone.
    uses: u32,
}

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

/// Seconds of CLOCK_MONOTONIC.
fn monotonic() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// Runs `body` on the running library, or ends the process where there is none.
fn running<T>(function: &str, body: impl FnOnce(&mut Running) -> T) -> T {
    let mut guard = RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match guard.as_mut() {
        Some(state) => body(state),
        None => {
            eprintln!("rocm_smi stand-in: {function} was called without a successful rsmi_init");
            std::process::abort();
        }
    }
}

/// Writes through a caller's pointer; false where it is null.
///
/// # Safety
/// `to` is null or points to memory of the caller that a `T` may be written to.
unsafe fn put<T>(to: *mut T, value: T) -> bool {
    if to.is_null() {
        return false;
    }
    // SAFETY: not null, and the caller of this function vouches for the rest. Unaligned, as C callers may do that.
    unsafe { to.write_unaligned(value) };
    true
}

/// Reads the script and starts the counters.
#[unsafe(no_mangle)]
pub extern "C" fn rsmi_init(_flags: u64) -> Status {
    let text = std::env::var("FAKE_ROCM_SMI").unwrap_or_default();
    let script = match Script::parse(&text) {
        Ok(script) => script,
        Err(wrong) => {
            eprintln!("rocm_smi stand-in: FAKE_ROCM_SMI: {wrong}");
            return INIT_ERROR;
        }
    };
    if script.init_status != SUCCESS {
        return script.init_status;
    }
    let mut guard = RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match guard.as_mut() {
        Some(state) => state.uses += 1,
        None => {
            let epoch = script.epoch.unwrap_or_else(monotonic);
            *guard = Some(Running { reads: vec![0; script.devices.len()], script, epoch, uses: 1 });
        }
    }
    SUCCESS
}

/// Undoes one `rsmi_init`.
#[unsafe(no_mangle)]
pub extern "C" fn rsmi_shut_down() -> Status {
    let left = running("rsmi_shut_down", |state| {
        state.uses -= 1;
        state.uses
    });
    if left == 0 {
        *RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    }
    SUCCESS
}

/// The number of devices in the script.
///
/// # Safety
/// `count` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_num_monitor_devices(count: *mut u32) -> Status {
    running("rsmi_num_monitor_devices", |state| {
        if state.script.count_status != SUCCESS {
            return state.script.count_status;
        }
        // SAFETY: this function's own contract.
        if unsafe { put(count, state.script.devices.len() as u32) } { SUCCESS } else { INVALID_ARGS }
    })
}

/// The energy counter as the script has it now.
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
    let (sight, factor, slow_us) = running("rsmi_dev_energy_count_get", |state| {
        let index = device as usize;
        let Some(reads) = state.reads.get_mut(index) else {
            return (Sight::Error(INPUT_OUT_OF_BOUNDS), 0.0, 0);
        };
        *reads += 1;
        let now = monotonic();
        let sight = state.script.see(index, now, now - state.epoch, *reads == 1);
        (sight, state.script.resolution_microjoules, state.script.slow_us)
    });
    if slow_us > 0 {
        std::thread::sleep(Duration::from_micros(slow_us));
    }
    match sight {
        Sight::Error(status) => status,
        Sight::Counter { ticks, timestamp_ns } => {
            // SAFETY: this function's own contract.
            let whole =
                unsafe { put(counter, ticks) & put(resolution, factor) & put(timestamp, timestamp_ns) };
            if whole { SUCCESS } else { INVALID_ARGS }
        }
    }
}

/// One PCI bus for each device, from 0000:c1 on.
///
/// # Safety
/// `bdfid` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_pci_id_get(device: u32, bdfid: *mut u64) -> Status {
    running("rsmi_dev_pci_id_get", |state| {
        if device as usize >= state.script.devices.len() {
            return INPUT_OUT_OF_BOUNDS;
        }
        // SAFETY: this function's own contract.
        if unsafe { put(bdfid, (0xc1 + u64::from(device)) << 8) } { SUCCESS } else { INVALID_ARGS }
    })
}

/// `Stand-in GPU`, for every device.
///
/// # Safety
/// `name` is null or points to `len` bytes that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_name_get(device: u32, name: *mut c_char, len: usize) -> Status {
    const NAME: &CStr = c"Stand-in GPU";
    running("rsmi_dev_name_get", |state| {
        if device as usize >= state.script.devices.len() {
            return INPUT_OUT_OF_BOUNDS;
        }
        if name.is_null() || len < NAME.count_bytes() + 1 {
            return INVALID_ARGS;
        }
        // SAFETY: `name` has at least as many bytes as are copied (checked above, under this function's contract).
        unsafe { name.copy_from_nonoverlapping(NAME.as_ptr(), NAME.count_bytes() + 1) };
        SUCCESS
    })
}

/// `rsmi_version_t`.
#[repr(C)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
    pub build: *const c_char,
}

/// Says that this is the stand-in. Allowed before `rsmi_init`, as in the real library.
///
/// # Safety
/// `version` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_version_get(version: *mut Version) -> Status {
    let own = Version { major: 5, minor: 0, patch: 0, build: c"ampere stand-in".as_ptr() };
    // SAFETY: this function's own contract.
    if unsafe { put(version, own) } { SUCCESS } else { INVALID_ARGS }
}

/// Power of a device now, in microwatts; sensors other than 0 do not exist.
///
/// # Safety
/// `power` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_power_ave_get(device: u32, sensor: u32, power: *mut u64) -> Status {
    running("rsmi_dev_power_ave_get", |state| {
        let Some(this) = state.script.devices.get(device as usize) else { return INPUT_OUT_OF_BOUNDS };
        if sensor != 0 {
            return NOT_SUPPORTED;
        }
        // SAFETY: this function's own contract.
        if unsafe { put(power, (this.wave.watts(monotonic()) * 1e6) as u64) } {
            SUCCESS
        } else {
            INVALID_ARGS
        }
    })
}
