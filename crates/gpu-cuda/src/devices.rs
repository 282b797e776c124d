//! Identifies the GPUs that are the program's devices.

use crate::library::driver;
use ampere_gpu::Device;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// The program's devices, by their numbers.
static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();

/// The size of the buffers for names that CUDA writes.
const TEXT_BYTES: usize = 256;

type Count = unsafe extern "C" fn(*mut c_int) -> c_int;
type Text = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
type Uuid = unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int;

/// The driver's functions that describe a device.
struct Driver {
    count: Count,
    address: Text,
    uuid: Uuid,
    name: Text,
}

/// Asks the driver for all devices. The driver must be initialised, and the caller must be a thread of the program.
pub fn find() {
    DEVICES.get_or_init(|| Driver::new().map_or(Vec::new(), |driver| driver.devices()));
}

/// Returns the device with this number.
pub fn of(number: u32) -> Device {
    let device = DEVICES.get().and_then(|devices| devices.get(number as usize));
    device.cloned().unwrap_or_default()
}

impl Driver {
    fn new() -> Option<Driver> {
        let function = |name: &CStr| {
            // SAFETY: this is a lookup by name in the driver.
            let found = unsafe { libc::dlsym(driver()?, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        // SAFETY: the driver's functions of these names have these types.
        unsafe {
            use std::mem::transmute;
            Some(Driver {
                count: transmute::<*mut c_void, Count>(function(c"cuDeviceGetCount")?),
                address: transmute::<*mut c_void, Text>(function(c"cuDeviceGetPCIBusId")?),
                uuid: transmute::<*mut c_void, Uuid>(function(c"cuDeviceGetUuid")?),
                name: transmute::<*mut c_void, Text>(function(c"cuDeviceGetName")?),
            })
        }
    }

    fn devices(&self) -> Vec<Device> {
        let mut count = 0;
        // SAFETY: the call writes one number.
        unsafe { (self.count)(&mut count) };
        (0..count).map(|number| self.device(number)).collect()
    }

    /// Returns a device. A part of a GPU (MIG) has its GPU's address.
    fn device(&self, number: c_int) -> Device {
        let text = |get: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int| {
            let mut text = [0; TEXT_BYTES];
            // SAFETY: the call writes at most this many bytes.
            let status = unsafe { get(text.as_mut_ptr().cast(), TEXT_BYTES as c_int, number) };
            let text = CStr::from_bytes_until_nul(&text).ok().filter(|_| status == 0);
            text.map_or(String::new(), |text| text.to_string_lossy().into_owned())
        };
        let mut bytes = [0; 16];
        // SAFETY: the call writes 16 bytes.
        let has_uuid = unsafe { (self.uuid)(&mut bytes, number) } == 0;
        Device {
            pci: text(self.address).to_ascii_lowercase(),
            uuid: if has_uuid { ampere_gpu::nvml_uuid(&bytes) } else { String::new() },
            model: text(self.name),
        }
    }
}
