//! The calls into libamd_smi.
//!
//! Signatures are those of `amd_smi/amdsmi.h` in ROCm 6.0 to 7. If a structure's layout differs between these, only fields that
//! are at the same offset in all are used. As with librocm_smi64, whose code it contains, **nothing is called after a failed
//! `amdsmi_init`**: [`Loaded::init`] consumes the loaded library and returns a [`Library`] only on success.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;

use super::status::{INPUT_OUT_OF_BOUNDS, NO_PERM, NOT_SUPPORTED, status};
use crate::Gauge;
use crate::amd::gauges::GaugeFunctions;
use crate::amd::{DEVICES_MAX, Energy, Gpus, pci_address};
use crate::vendor::{CallError, LoadError, Symbols, lock};

/// `amdsmi_socket_handle` or `amdsmi_processor_handle`: opaque, and valid while the library is initialised.
type Handle = *mut c_void;

type InitFn = unsafe extern "C" fn(init_flags: u64) -> u32;
type ShutDownFn = unsafe extern "C" fn() -> u32;
type SocketsFn = unsafe extern "C" fn(count: *mut u32, handles: *mut Handle) -> u32;
type ProcessorsFn = unsafe extern "C" fn(socket: Handle, count: *mut u32, handles: *mut Handle) -> u32;
type EnergyFn = unsafe extern "C" fn(
    processor: Handle,
    energy_accumulator: *mut u64,
    counter_resolution: *mut f32,
    timestamp: *mut u64,
) -> u32;
type BdfFn = unsafe extern "C" fn(processor: Handle, bdfid: *mut u64) -> u32;
type AsicFn = unsafe extern "C" fn(processor: Handle, info: *mut RawAsic) -> u32;
type VersionFn = unsafe extern "C" fn(version: *mut RawVersion) -> u32;

/// The header's name is `AMDSMI_INIT_AMD_GPUS`.
const INIT_AMD_GPUS: u64 = 1 << 1;

/// `amdsmi_version_t`: year, major, minor and release until ROCm 6.x, then without the year. The pointer has the same offset in
/// both, and its text has the whole version.
#[repr(C)]
struct RawVersion {
    numbers: [u32; 4],
    build: *const c_char,
}

/// `amdsmi_asic_info_t`: the market name comes first, with 64 or 256 bytes; the rest has grown from release to release, to about
/// 500 bytes in ROCm 7. This has room for much more.
#[repr(C, align(8))]
struct RawAsic([u8; 4096]);

/// The library's functions. All required ones are looked up before any is called.
struct Functions {
    init: InitFn,
    shut_down: ShutDownFn,
    sockets: SocketsFn,
    processors: ProcessorsFn,
    energy: EnergyFn,
    bdf: Option<BdfFn>,
    asic: Option<AsicFn>,
    version: Option<VersionFn>,
    gauges: GaugeFunctions<Handle>,
}

/// The library after loading, before it is initialised.
pub(crate) struct Loaded(Functions);

/// The initialised library, with the handles of its GPUs. It is shut down when dropped.
pub(crate) struct Library {
    functions: Functions,
    processors: Vec<Handle>,
}

// SAFETY: a handle identifies one of the library's objects and is not bound to a thread; the library itself is called by one
// thread at a time (lock).
unsafe impl Send for Library {}

impl Loaded {
    /// Loads the library and looks up its functions without calling any.
    pub fn open(path: &Path) -> Result<Loaded, LoadError> {
        // SAFETY: the library is libamd_smi by its file name or because the user has named it as that; its initialisers set up
        // C++ statics.
        let library = unsafe { Symbols::open(path) }?;
        // SAFETY: the types are those of amdsmi.h for these names.
        let functions = unsafe {
            Functions {
                init: library.get("amdsmi_init")?,
                shut_down: library.get("amdsmi_shut_down")?,
                sockets: library.get("amdsmi_get_socket_handles")?,
                processors: library.get("amdsmi_get_processor_handles")?,
                energy: library.get("amdsmi_get_energy_count")?,
                bdf: library.get("amdsmi_get_gpu_bdf_id").ok(),
                asic: library.get("amdsmi_get_gpu_asic_info").ok(),
                version: library.get("amdsmi_get_lib_version").ok(),
                gauges: GaugeFunctions::of_amdsmi(&library),
            }
        };
        library.keep();
        Ok(Loaded(functions))
    }

    /// Calls `amdsmi_init`, and returns the handles of all GPUs, in the library's order. An error names the function that failed.
    /// After an error, nothing can be called.
    pub fn init(self) -> Result<Library, (&'static str, CallError)> {
        let ended = |error| ("amdsmi_init", error);
        {
            let _guard = lock().map_err(ended)?;
            // SAFETY: the function may be called at any time (it counts its callers).
            check(unsafe { (self.0.init)(INIT_AMD_GPUS) }).map_err(ended)?;
        }
        let mut library = Library { functions: self.0, processors: Vec::new() };
        let sockets = library.sockets().map_err(|error| ("amdsmi_get_socket_handles", error))?;
        for socket in sockets {
            let more =
                library.processors_of(socket).map_err(|error| ("amdsmi_get_processor_handles", error))?;
            library.processors.extend(more);
        }
        if let Some(version) = library.raw_version() {
            library.functions.gauges.without_power_before_rocm_6(version.numbers);
        }
        Ok(library)
    }
}

impl Library {
    /// Returns the number of GPUs.
    pub fn handles(&self) -> u32 {
        self.processors.len() as u32
    }

    fn sockets(&self) -> Result<Vec<Handle>, CallError> {
        let _guard = lock()?;
        list(|count, handles| {
            // SAFETY: the library is initialised, not ended; `handles` is null or has room for `count`, see `list`.
            unsafe { (self.functions.sockets)(count, handles) }
        })
    }

    fn processors_of(&self, socket: Handle) -> Result<Vec<Handle>, CallError> {
        let _guard = lock()?;
        list(|count, handles| {
            // SAFETY: as above, and `socket` is a handle that the library gave.
            unsafe { (self.functions.processors)(socket, count, handles) }
        })
    }

    fn raw_version(&self) -> Option<RawVersion> {
        let version = self.functions.version?;
        let mut raw = RawVersion { numbers: [0; 4], build: std::ptr::null() };
        let _guard = lock().ok()?;
        // SAFETY: the library is initialised, not ended, and `raw` is a local as large as the header's, of any release.
        check(unsafe { version(&mut raw) }).ok()?;
        Some(raw)
    }

    fn processor(&self, device: u32) -> Result<Handle, CallError> {
        let handle = self.processors.get(device as usize).copied();
        handle.ok_or(CallError::Status(status(INPUT_OUT_OF_BOUNDS)))
    }
}

/// Gets a list of handles with two calls of the library: for their number, and for the handles. At most [`DEVICES_MAX`] handles
/// are requested.
fn list(call: impl Fn(*mut u32, *mut Handle) -> u32) -> Result<Vec<Handle>, CallError> {
    let mut count = 0;
    check(call(&mut count, std::ptr::null_mut()))?;
    let mut handles = vec![std::ptr::null_mut(); count.min(DEVICES_MAX) as usize];
    if handles.is_empty() {
        return Ok(handles);
    }
    let mut count = handles.len() as u32;
    check(call(&mut count, handles.as_mut_ptr()))?;
    handles.truncate(count as usize);
    handles.retain(|handle| !handle.is_null());
    Ok(handles)
}

impl Gpus for Library {
    const SOURCE: &'static str = super::NAME;
    const FUNCTION: &'static str = "amdsmi_get_energy_count";
    const NOT_SUPPORTED: u32 = NOT_SUPPORTED;
    const NO_PERMISSION: u32 = NO_PERM;

    fn energy(&self, device: u32) -> Result<Energy, CallError> {
        let processor = self.processor(device)?;
        let _guard = lock()?;
        let mut raw = 0;
        let mut resolution = 0.0;
        let mut timestamp = 0;
        // SAFETY: the library is initialised (else there is no Library), not ended (lock), the handle is the library's, and the
        // three pointers are to locals of the header's types.
        check(unsafe { (self.functions.energy)(processor, &mut raw, &mut resolution, &mut timestamp) })?;
        Ok(Energy { raw, resolution_microjoules: resolution, timestamp })
    }

    fn model(&self, device: u32) -> Option<String> {
        let asic = self.functions.asic?;
        let processor = self.processor(device).ok()?;
        let _guard = lock().ok()?;
        let mut info = RawAsic([0; 4096]);
        // SAFETY: the library is initialised, not ended, the handle is the library's, and `info` is larger than any release's
        // structure.
        check(unsafe { asic(processor, &mut info) }).ok()?;
        let text = CStr::from_bytes_until_nul(&info.0).ok()?.to_string_lossy().trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    fn pci(&self, device: u32) -> Option<String> {
        let bdf = self.functions.bdf?;
        let processor = self.processor(device).ok()?;
        let _guard = lock().ok()?;
        let mut id = 0;
        // SAFETY: the library is initialised, not ended, the handle is the library's, and `id` is a local.
        check(unsafe { bdf(processor, &mut id) }).ok()?;
        Some(pci_address(id))
    }

    fn version(&self) -> String {
        let Some(raw) = self.raw_version() else { return super::NAME.to_owned() };
        if raw.build.is_null() {
            let [a, b, c, _] = raw.numbers;
            return format!("amdsmi {a}.{b}.{c}");
        }
        // SAFETY: not null, and by the header a C string; it is a literal of the library, which stays loaded.
        let build = unsafe { CStr::from_ptr(raw.build) };
        format!("amdsmi {}", build.to_string_lossy())
    }

    fn gauges(&self) -> &[Gauge] {
        self.functions.gauges.known()
    }

    fn gauge(&self, device: u32, gauge: Gauge) -> Option<f64> {
        let processor = self.processor(device).ok()?;
        let _guard = lock().ok()?;
        // SAFETY: the library is initialised (else there is no Library), not ended (lock), and the handle is the library's.
        unsafe { self.functions.gauges.ask(processor, gauge) }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let Ok(_guard) = lock() else { return };
        // SAFETY: the library is initialised by this value and not yet shut down for it; not ended. Its status changes nothing.
        unsafe { (self.functions.shut_down)() };
    }
}

fn check(code: u32) -> Result<(), CallError> {
    if code == 0 { Ok(()) } else { Err(CallError::Status(status(code))) }
}
