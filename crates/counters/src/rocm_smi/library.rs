//! The calls into librocm_smi64.
//!
//! Signatures are those of `rocm_smi/rocm_smi.h` (5.2.3; the same functions are in 6 and 7). **Nothing is called after a failed
//! `rsmi_init`**: 5.2.3 segfaults then. [`Loaded`] has no other call than [`Loaded::init`], which consumes it and returns a
//! [`Library`] only on success. What applies to every vendor's library is in [`crate::vendor`].
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::path::Path;

use super::status::{NOT_SUPPORTED, PERMISSION, status};
use crate::Gauge;
use crate::amd::gauges::GaugeFunctions;
use crate::amd::{Energy, Gpus, pci_address};
use crate::vendor::{CallError, LoadError, Symbols, lock};

type InitFn = unsafe extern "C" fn(init_flags: u64) -> u32;
type ShutDownFn = unsafe extern "C" fn() -> u32;
type CountFn = unsafe extern "C" fn(num_devices: *mut u32) -> u32;
type EnergyFn = unsafe extern "C" fn(
    dv_ind: u32,
    power: *mut u64,
    counter_resolution: *mut f32,
    timestamp: *mut u64,
) -> u32;
type PciFn = unsafe extern "C" fn(dv_ind: u32, bdfid: *mut u64) -> u32;
type NameFn = unsafe extern "C" fn(dv_ind: u32, name: *mut c_char, len: usize) -> u32;
type VersionFn = unsafe extern "C" fn(version: *mut RawVersion) -> u32;

/// The structure `rsmi_version_t` of the header.
#[repr(C)]
struct RawVersion {
    major: u32,
    minor: u32,
    patch: u32,
    build: *const c_char,
}

/// The library's functions. All required ones are looked up before any is called.
struct Functions {
    init: InitFn,
    shut_down: ShutDownFn,
    count: CountFn,
    energy: EnergyFn,
    pci: Option<PciFn>,
    name: Option<NameFn>,
    version: Option<VersionFn>,
    gauges: GaugeFunctions<u32>,
}

/// The library after loading, before it is initialised.
pub(crate) struct Loaded(Functions);

/// The initialised library. It is shut down when dropped.
pub(crate) struct Library(Functions);

impl Loaded {
    /// Loads the library and looks up its functions without calling any.
    pub fn open(path: &Path) -> Result<Loaded, LoadError> {
        // SAFETY: the library is librocm_smi64 by its file name or because the user has named it as that; its initialisers set up
        // C++ statics.
        let library = unsafe { Symbols::open(path) }?;
        // SAFETY: the types are those of rocm_smi.h for these names.
        let functions = unsafe {
            Functions {
                init: library.get("rsmi_init")?,
                shut_down: library.get("rsmi_shut_down")?,
                count: library.get("rsmi_num_monitor_devices")?,
                energy: library.get("rsmi_dev_energy_count_get")?,
                pci: library.get("rsmi_dev_pci_id_get").ok(),
                name: library.get("rsmi_dev_name_get").ok(),
                version: library.get("rsmi_version_get").ok(),
                gauges: GaugeFunctions::of_rocm_smi(&library),
            }
        };
        // The library is never unloaded, so the function pointers stay valid.
        library.keep();
        Ok(Loaded(functions))
    }

    /// Calls `rsmi_init`. After a failure nothing can be called.
    pub fn init(self) -> Result<Library, CallError> {
        let _guard = lock()?;
        // SAFETY: rsmi_init may be called at any time (it counts its callers); flags 0: AMD devices only.
        check(unsafe { (self.0.init)(0) })?;
        Ok(Library(self.0))
    }
}

impl Library {
    /// Calls `rsmi_num_monitor_devices`.
    pub fn device_count(&self) -> Result<u32, CallError> {
        let _guard = lock()?;
        let mut count = 0;
        // SAFETY: the library is initialised (else there is no Library), not ended (lock), and `count` is a local.
        check(unsafe { (self.0.count)(&mut count) })?;
        Ok(count)
    }
}

impl Gpus for Library {
    const SOURCE: &'static str = super::NAME;
    const FUNCTION: &'static str = "rsmi_dev_energy_count_get";
    const NOT_SUPPORTED: u32 = NOT_SUPPORTED;
    const NO_PERMISSION: u32 = PERMISSION;

    fn energy(&self, device: u32) -> Result<Energy, CallError> {
        let _guard = lock()?;
        let mut raw = 0;
        let mut timestamp = 0;
        // Room for two floats: ROCm before 4.5 lacks this argument and writes its 8-byte time stamp here.
        let mut resolution = AlignedFloats([0.0; 2]);
        // SAFETY: the library is initialised, not ended, and the three pointers are to locals of the header's types or larger.
        // An index that is out of bounds, as after a device has gone, is answered with a status.
        check(unsafe { (self.0.energy)(device, &mut raw, resolution.0.as_mut_ptr(), &mut timestamp) })?;
        Ok(Energy { raw, resolution_microjoules: resolution.0[0], timestamp })
    }

    /// Calls `rsmi_dev_name_get`. Returns `None` also for an empty name.
    fn model(&self, device: u32) -> Option<String> {
        let name = self.0.name?;
        let _guard = lock().ok()?;
        let mut bytes = [0u8; 256];
        // The library may not write the last byte, so that a zero always ends the text.
        // SAFETY: the library is initialised, not ended, and may write `len` bytes, all of them ours.
        check(unsafe { name(device, bytes.as_mut_ptr().cast(), bytes.len() - 1) }).ok()?;
        let text = CStr::from_bytes_until_nul(&bytes).ok()?.to_string_lossy().trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    fn pci(&self, device: u32) -> Option<String> {
        let pci = self.0.pci?;
        let _guard = lock().ok()?;
        let mut id = 0;
        // SAFETY: the library is initialised, not ended, and `id` is a local.
        check(unsafe { pci(device, &mut id) }).ok()?;
        Some(pci_address(id))
    }

    fn version(&self) -> String {
        let mut raw = RawVersion { major: 0, minor: 0, patch: 0, build: std::ptr::null() };
        let Some(version) = self.0.version else { return super::NAME.to_owned() };
        let Ok(_guard) = lock() else { return super::NAME.to_owned() };
        // SAFETY: the library is initialised, not ended, and `raw` is a local with the header's layout.
        if check(unsafe { version(&mut raw) }).is_err() {
            return super::NAME.to_owned();
        }
        let build = if raw.build.is_null() {
            String::new()
        } else {
            // SAFETY: not null, and by the header a C string; it is a literal of the library, which stays loaded.
            unsafe { CStr::from_ptr(raw.build) }.to_string_lossy().into_owned()
        };
        let text = format!("rocm_smi {}.{}.{} {build}", raw.major, raw.minor, raw.patch);
        text.trim_end().to_owned()
    }

    fn gauges(&self) -> &[Gauge] {
        self.0.gauges.known()
    }

    fn gauge(&self, device: u32, gauge: Gauge) -> Option<f64> {
        let _guard = lock().ok()?;
        // SAFETY: the library is initialised (else there is no Library), and not ended (lock).
        unsafe { self.0.gauges.ask(device, gauge) }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let Ok(_guard) = lock() else { return };
        // SAFETY: the library is initialised by this value and not yet shut down for it; not ended. Its status changes nothing.
        unsafe { (self.0.shut_down)() };
    }
}

/// Room for a float, aligned and sized for the 8 bytes that an old library may write.
#[repr(C, align(8))]
struct AlignedFloats([f32; 2]);

fn check(code: u32) -> Result<(), CallError> {
    if code == 0 { Ok(()) } else { Err(CallError::Status(status(code))) }
}
