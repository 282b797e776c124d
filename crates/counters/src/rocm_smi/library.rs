//! The calls into librocm_smi64. All `unsafe` of this crate is in this file.
//!
//! Signatures are those of `rocm_smi/rocm_smi.h` (5.2.3; the same functions are in 6 and 7). Three rules:
//!
//! - **Nothing is called after a failed `rsmi_init`**: 5.2.3 segfaults then. [`Loaded`] has no other call than
//!   [`Loaded::init`], which consumes it and gives a [`Library`] on success only.
//! - **One call at a time**: not thread-safe before ROCm 7.2. Every call holds [`CALLS`].
//! - **Nothing is called once the process ends.** The library keeps its devices in C++ statics. Exit handlers run last
//!   in, first out, so a measurement system that finishes in an exit handler of its own finds those statics destroyed,
//!   and 5.2.3 segfaults. [`Library::watch_for_exit`] therefore registers a handler after the library's: it runs before
//!   them and ends all calls.
//!
//! The library is never unloaded: it may have threads, exit handlers and copies of our pointers.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use super::Status;

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

/// `rsmi_version_t`.
#[repr(C)]
struct RawVersion {
    major: u32,
    minor: u32,
    patch: u32,
    build: *const c_char,
}

/// Held during every call into the library.
static CALLS: Mutex<()> = Mutex::new(());

/// Set by the exit handler, which then waits for `CALLS`; looked at by every call while it holds `CALLS`. So a call
/// either sees it, or holds the lock for as long as the handler waits.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Why a file could not be used as the library.
#[derive(Debug)]
pub(super) enum LoadError {
    /// `dlopen` said no, with this text.
    Open(String),
    /// It lacks a function that is needed.
    Symbol(&'static str),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Open(text) => f.write_str(text),
            LoadError::Symbol(name) => write!(f, "it has no function {name}"),
        }
    }
}

/// Why a call gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    Status(Status),
    Ended,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Status(status) => status.fmt(f),
            CallError::Ended => f.write_str("the process is ending"),
        }
    }
}

/// `rsmi_version_get`'s answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Version {
    pub numbers: [u32; 3],
    pub build: String,
}

/// `rsmi_dev_energy_count_get`'s answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Energy {
    pub raw: u64,
    pub resolution_microjoules: f32,
    /// Nanoseconds; 0 where the driver has none.
    pub timestamp: u64,
}

/// The functions. All required ones are looked up before any is called.
struct Functions {
    init: InitFn,
    shut_down: ShutDownFn,
    count: CountFn,
    energy: EnergyFn,
    pci: Option<PciFn>,
    name: Option<NameFn>,
    version: Option<VersionFn>,
}

/// Loaded, not initialised.
pub(super) struct Loaded(Functions);

/// Initialised; shut down when dropped.
pub(super) struct Library(Functions);

impl Loaded {
    /// Loads the library and looks up its functions; calls none.
    pub fn open(path: &Path) -> Result<Loaded, LoadError> {
        use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
        // SAFETY: loading runs the file's initialisers. The file is librocm_smi64 by name, or one that the user named
        // for this purpose; its initialisers set up C++ statics. There is no way to check more.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(open_error)?;
        // SAFETY: the types are those of rocm_smi.h for these names.
        let functions = unsafe {
            Functions {
                init: required(&library, "rsmi_init")?,
                shut_down: required(&library, "rsmi_shut_down")?,
                count: required(&library, "rsmi_num_monitor_devices")?,
                energy: required(&library, "rsmi_dev_energy_count_get")?,
                pci: required(&library, "rsmi_dev_pci_id_get").ok(),
                name: required(&library, "rsmi_dev_name_get").ok(),
                version: required(&library, "rsmi_version_get").ok(),
            }
        };
        // Never unloaded, so the function pointers are good for ever.
        std::mem::forget(library);
        Ok(Loaded(functions))
    }

    /// `rsmi_init`. After a failure there is nothing left to call.
    pub fn init(self) -> Result<Library, CallError> {
        let _one = lock()?;
        // SAFETY: rsmi_init may be called at any time (it counts its callers); flags 0: AMD devices only.
        check(unsafe { (self.0.init)(0) })?;
        Ok(Library(self.0))
    }
}

impl Library {
    /// `rsmi_num_monitor_devices`.
    pub fn device_count(&self) -> Result<u32, CallError> {
        let _one = lock()?;
        let mut count = 0;
        // SAFETY: initialised (else there is no Library), not ended (lock), and `count` is a local.
        check(unsafe { (self.0.count)(&mut count) })?;
        Ok(count)
    }

    /// `rsmi_dev_energy_count_get`.
    pub fn energy(&self, device: u32) -> Result<Energy, CallError> {
        let _one = lock()?;
        let mut raw = 0;
        let mut timestamp = 0;
        // Two floats: ROCm before 4.5 has no such argument and writes its 8-byte time stamp here.
        let mut resolution = AlignedFloats([0.0; 2]);
        // SAFETY: initialised, not ended, and the three point to locals of the header's types or larger. An index that
        // is out of bounds, as after a device has gone, is answered with a status.
        check(unsafe { (self.0.energy)(device, &mut raw, resolution.0.as_mut_ptr(), &mut timestamp) })?;
        Ok(Energy { raw, resolution_microjoules: resolution.0[0], timestamp })
    }

    /// `rsmi_dev_pci_id_get`, as `0000:c1:00.0`.
    pub fn pci(&self, device: u32) -> Option<String> {
        let pci = self.0.pci?;
        let _one = lock().ok()?;
        let mut id = 0;
        // SAFETY: initialised, not ended, and `id` is a local.
        check(unsafe { pci(device, &mut id) }).ok()?;
        Some(format!("{:04x}:{:02x}:{:02x}.{:x}", id >> 32, id >> 8 & 0xff, id >> 3 & 0x1f, id & 7))
    }

    /// `rsmi_dev_name_get`. `None` also for an empty name.
    pub fn name(&self, device: u32) -> Option<String> {
        let name = self.0.name?;
        let _one = lock().ok()?;
        let mut bytes = [0u8; 256];
        // The last byte is kept from the library, so that there is an end whatever it writes.
        // SAFETY: initialised, not ended, and the library may write `len` bytes, all of them ours.
        check(unsafe { name(device, bytes.as_mut_ptr().cast(), bytes.len() - 1) }).ok()?;
        let text = CStr::from_bytes_until_nul(&bytes).ok()?.to_string_lossy().trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// `rsmi_version_get`.
    pub fn version(&self) -> Option<Version> {
        let version = self.0.version?;
        let _one = lock().ok()?;
        let mut raw = RawVersion { major: 0, minor: 0, patch: 0, build: std::ptr::null() };
        // SAFETY: initialised, not ended, and `raw` is a local with the header's layout.
        check(unsafe { version(&mut raw) }).ok()?;
        let build = if raw.build.is_null() {
            String::new()
        } else {
            // SAFETY: not null, and by the header a C string; it is a literal of the library, which stays loaded.
            unsafe { CStr::from_ptr(raw.build) }.to_string_lossy().into_owned()
        };
        Some(Version { numbers: [raw.major, raw.minor, raw.patch], build })
    }

    /// Ends all calls when the process ends, before the library's own exit handlers run. To be called when every
    /// function that will be called later has been called once, since the library makes some of its statics on first
    /// use. False if there is no room for another handler; then nothing may be read.
    pub fn watch_for_exit(&self) -> bool {
        // SAFETY: `at_exit` does not unwind, and it stays loaded: glibc runs the handlers of a shared object when that
        // is unloaded, and not later.
        unsafe { libc::atexit(at_exit) == 0 }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let Ok(_one) = lock() else { return };
        // SAFETY: initialised by this value and not yet shut down for it; not ended. Its status changes nothing.
        unsafe { (self.0.shut_down)() };
    }
}

/// Room for a float, aligned and sized for the 8 bytes that an old library may write.
#[repr(C, align(8))]
struct AlignedFloats([f32; 2]);

/// Looks up `name`.
///
/// # Safety
/// `F` is the type of the function of that name.
unsafe fn required<F: Copy>(
    library: &libloading::os::unix::Library,
    name: &'static str,
) -> Result<F, LoadError> {
    // SAFETY: the caller's.
    let symbol = unsafe { library.get::<F>(name) };
    symbol.map(|symbol| *symbol).map_err(|_| LoadError::Symbol(name))
}

/// `dlopen`'s own text, which libloading keeps one level down.
fn open_error(error: libloading::Error) -> LoadError {
    LoadError::Open(match std::error::Error::source(&error) {
        Some(inner) => inner.to_string(),
        None => error.to_string(),
    })
}

fn check(status: u32) -> Result<(), CallError> {
    if status == 0 { Ok(()) } else { Err(CallError::Status(Status(status))) }
}

/// The right to make one call.
fn lock() -> Result<MutexGuard<'static, ()>, CallError> {
    let guard = CALLS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if ENDED.load(Ordering::SeqCst) { Err(CallError::Ended) } else { Ok(guard) }
}

/// Runs when the process ends: no call starts from here on, and one that is under way is waited for. Not for ever: a
/// process that hangs at its end, say because a signal handler within a call called `exit`, is worse than the risk.
extern "C" fn at_exit() {
    ENDED.store(true, Ordering::SeqCst);
    for _ in 0..1000 {
        match CALLS.try_lock() {
            Ok(_) | Err(TryLockError::Poisoned(_)) => return,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
