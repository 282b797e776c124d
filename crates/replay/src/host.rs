//! A stand-in for Score-P: calls the plugin's C interface, and answers its questions about the locations and regions of a trace.
//! One thread makes all calls, so that the promises of [`scorep_abi::guarantees`] hold.

use ampere_model::Region;
use anyhow::{Context, bail};
use scorep_abi::{
    Callbacks, EventFunction, GetInfo, Location, ProgramBeginEvent, ProgramEndEvent, RegionEvent,
    SubstratePluginInfo, event, handle_type, location_type, mode,
};
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What a `SCOREP_Location*` points to. Never freed: the plugin may keep it.
pub struct HostLocation {
    id: u32,
    gpu: bool,
    name: CString,
    data: AtomicPtr<c_void>,
}

impl HostLocation {
    /// A new location, leaked.
    pub fn new(id: u32, gpu: bool, name: &str) -> &'static HostLocation {
        let data = AtomicPtr::new(null_mut());
        Box::leak(Box::new(HostLocation { id, gpu, name: c_text(name), data }))
    }

    fn raw(&'static self) -> *mut Location {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// What the plugin may ask about a region.
struct HostRegion {
    name: CString,
    canonical_name: CString,
    source_file: CString,
    begin_line: u32,
    end_line: u32,
    region_type: u8,
    paradigm: u8,
}

/// The process that is played. Set once, before the plugin is loaded.
struct PlayedProcess {
    rank: u32,
    size: u32,
    regions: HashMap<u32, HostRegion>,
}

static PROCESS: OnceLock<PlayedProcess> = OnceLock::new();

/// A C string: the text up to the first zero byte.
fn c_text(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

fn region(handle: u32) -> Option<&'static HostRegion> {
    PROCESS.get()?.regions.get(&handle)
}

fn of(location: *const Location) -> &'static HostLocation {
    // SAFETY: the plugin only has pointers to leaked HostLocations.
    unsafe { &*location.cast() }
}

unsafe extern "C" fn rank() -> c_int {
    PROCESS.get().map_or(0, |process| process.rank as c_int)
}

unsafe extern "C" fn size() -> c_int {
    PROCESS.get().map_or(1, |process| process.size as c_int)
}

unsafe extern "C" fn location_id(location: *const Location) -> u32 {
    of(location).id
}

unsafe extern "C" fn location_kind(location: *const Location) -> c_int {
    if of(location).gpu { location_type::GPU } else { location_type::CPU_THREAD }
}

unsafe extern "C" fn location_name(location: *const Location) -> *const c_char {
    of(location).name.as_ptr()
}

unsafe extern "C" fn set_data(location: *const Location, _plugin: usize, data: *mut c_void) {
    of(location).data.store(data, Ordering::Release);
}

unsafe extern "C" fn get_data(location: *const Location, _plugin: usize) -> *mut c_void {
    of(location).data.load(Ordering::Acquire)
}

unsafe extern "C" fn region_name(handle: u32) -> *const c_char {
    region(handle).map_or(null(), |region| region.name.as_ptr())
}

unsafe extern "C" fn region_canonical_name(handle: u32) -> *const c_char {
    region(handle).map_or(null(), |region| region.canonical_name.as_ptr())
}

unsafe extern "C" fn region_file(handle: u32) -> *const c_char {
    region(handle).map_or(null(), |region| region.source_file.as_ptr())
}

unsafe extern "C" fn region_begin(handle: u32) -> u32 {
    region(handle).map_or(0, |region| region.begin_line)
}

unsafe extern "C" fn region_end(handle: u32) -> u32 {
    region(handle).map_or(0, |region| region.end_line)
}

unsafe extern "C" fn region_kind(handle: u32) -> c_int {
    region(handle).map_or(0, |region| region.region_type.into())
}

unsafe extern "C" fn region_paradigm(handle: u32) -> c_int {
    region(handle).map_or(0, |region| region.paradigm.into())
}

static CALLBACKS: Callbacks = Callbacks {
    ipc_get_rank: Some(rank),
    ipc_get_size: Some(size),
    location_get_id: Some(location_id),
    location_get_type: Some(location_kind),
    location_get_name: Some(location_name),
    location_set_data: Some(set_data),
    location_get_data: Some(get_data),
    region_handle_get_name: Some(region_name),
    region_handle_get_canonical_name: Some(region_canonical_name),
    region_handle_get_file_name: Some(region_file),
    region_handle_get_begin_line: Some(region_begin),
    region_handle_get_end_line: Some(region_end),
    region_handle_get_type: Some(region_kind),
    region_handle_get_paradigm_type: Some(region_paradigm),
    ..Callbacks::EMPTY
};

/// The plugin, ready for events.
pub struct Plugin {
    info: SubstratePluginInfo,
    enter: RegionEvent,
    leave: RegionEvent,
    program_begin: Option<ProgramBeginEvent>,
    program_end: Option<ProgramEndEvent>,
}

/// Calls one of the plugin's functions, if it exists.
macro_rules! call {
    ($info:expr, $function:ident $(, $argument:expr)*) => {
        // SAFETY: the plugin's own function, called as Score-P calls it, by one thread.
        $info.$function.map(|function| unsafe { function($($argument),*) })
    };
}

impl Plugin {
    /// Loads the plugin and calls it as Score-P does up to the first location. Once per process.
    pub fn begin(
        path: &Path,
        rank: u32,
        size: u32,
        regions: impl Iterator<Item = Region>,
    ) -> anyhow::Result<Plugin> {
        let regions: HashMap<u32, HostRegion> = regions.map(|r| (r.handle.0, host_region(&r))).collect();
        let mut handles: Vec<u32> = regions.keys().copied().collect();
        handles.sort_unstable();
        if PROCESS.set(PlayedProcess { rank, size, regions }).is_err() {
            bail!("one process plays one process of a trace");
        }
        let info = load(path)?;
        call!(info, init);
        call!(info, set_callbacks, &CALLBACKS, size_of::<Callbacks>());
        let table = recording(&info);
        let function = |at: usize| table.get(at).copied().flatten();
        let (Some(enter), Some(leave)) = (function(event::ENTER_REGION), function(event::EXIT_REGION)) else {
            bail!("{} takes no events", path.display()); // it has said why
        };
        let (begin, end) = (function(event::PROGRAM_BEGIN), function(event::PROGRAM_END));
        // SAFETY: by Score-P's interface, these entries of the array have these types.
        let plugin = unsafe {
            Plugin {
                info,
                enter: std::mem::transmute::<unsafe extern "C" fn(), RegionEvent>(enter),
                leave: std::mem::transmute::<unsafe extern "C" fn(), RegionEvent>(leave),
                program_begin: begin
                    .map(|f| std::mem::transmute::<unsafe extern "C" fn(), ProgramBeginEvent>(f)),
                program_end: end.map(|f| std::mem::transmute::<unsafe extern "C" fn(), ProgramEndEvent>(f)),
            }
        };
        for handle in handles {
            call!(info, new_definition_handle, handle, handle_type::REGION);
        }
        call!(info, assign_id, 0);
        call!(info, init_mpp);
        Ok(plugin)
    }

    /// Announces a location.
    pub fn create_location(&self, location: &'static HostLocation) {
        call!(self.info, create_location, location.raw(), null());
    }

    /// PROGRAM_BEGIN on a location.
    pub fn program_begin(&self, location: &'static HostLocation, time: u64) {
        if let Some(begin) = self.program_begin {
            let pid = u64::from(std::process::id());
            // SAFETY: the plugin's own function; no program name and no arguments are given.
            unsafe { begin(location.raw(), time, 0, 0, null(), 0, pid, 0) };
        }
    }

    /// ENTER_REGION.
    #[inline]
    pub fn enter(&self, location: &'static HostLocation, time: u64, region: u32) {
        // SAFETY: the plugin's own function; no metrics are given.
        unsafe { (self.enter)(location.raw(), time, region, null_mut()) };
    }

    /// EXIT_REGION.
    #[inline]
    pub fn leave(&self, location: &'static HostLocation, time: u64, region: u32) {
        // SAFETY: as above.
        unsafe { (self.leave)(location.raw(), time, region, null_mut()) };
    }

    /// PROGRAM_END on a location, which ends what is open.
    pub fn program_end(&self, location: &'static HostLocation, time: u64) {
        if let Some(end) = self.program_end {
            // SAFETY: as above. INT64_MIN is an unknown exit status.
            unsafe { end(location.raw(), time, i64::MIN, 0) };
        }
    }

    /// Ends the measurement.
    pub fn finalize(&self) {
        call!(self.info, finalize);
    }
}

fn load(path: &Path) -> anyhow::Result<SubstratePluginInfo> {
    // SAFETY: the library's constructors are Rust's own.
    let library = unsafe { libloading::Library::new(path) };
    let library = library.with_context(|| format!("cannot load {}", path.display()))?;
    // Never closed: its functions may be called until the process ends.
    let library = Box::leak(Box::new(library));
    // SAFETY: by Score-P's interface, the symbol has this type.
    let entry = unsafe { library.get::<GetInfo>(b"SCOREP_SubstratePlugin_ampere_get_info\0") };
    let entry = entry.with_context(|| format!("{} is no plugin of ampere's", path.display()))?;
    // SAFETY: as above.
    Ok(unsafe { entry() })
}

/// Why a library cannot be used as a plugin.
#[derive(Debug, thiserror::Error)]
pub enum CannotLoad {
    /// The loader's own line.
    #[error("{0}")]
    Loader(String),
    /// The library lacks the function.
    #[error("it has no function {0}")]
    NoFunction(String),
}

/// Checks that the loader finds a library by this name, as Score-P looks for its plugins, and that it has the function. The
/// library stays loaded.
pub fn loads(file: &str, function: &str) -> Result<(), CannotLoad> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    let reason = |error: libloading::Error| {
        // The loader's own line is the error's source.
        let line = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        CannotLoad::Loader(line)
    };
    // SAFETY: Score-P would load this file in the same way; more cannot be checked.
    let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) }.map_err(reason)?;
    // SAFETY: the function is looked up and not called.
    let found = unsafe { library.get::<*const c_void>(function.as_bytes()) }.map(|_| ());
    let found = found.map_err(|_| CannotLoad::NoFunction(function.to_owned()));
    std::mem::forget(library);
    found
}

/// The plugin's event functions for enabled recording. Empty if it is inert.
fn recording(info: &SubstratePluginInfo) -> &'static [EventFunction] {
    let mut table: *const EventFunction = null();
    let length = call!(info, get_event_functions, mode::RECORDING_ENABLED, &mut table).unwrap_or(0);
    if table.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: the plugin's array of that length, which it keeps.
    unsafe { std::slice::from_raw_parts(table, length as usize) }
}

fn host_region(region: &Region) -> HostRegion {
    HostRegion {
        name: c_text(&region.name),
        canonical_name: c_text(&region.canonical_name),
        source_file: c_text(&region.source_file),
        begin_line: region.begin_line,
        end_line: region.end_line,
        region_type: region.region_type,
        paradigm: region.paradigm,
    }
}
