//! A stand-in for Score-P, which loads the real plugin and calls it through its C interface. It runs in a child process (see
//! `plugin_interface.rs`), so that a crash does not end the test.

use scorep_abi::{
    Callbacks, CallingContextEvent, EventFunction, GetInfo, Location, ProgramBeginEvent, ProgramEndEvent,
    RegionEvent, SampleEvent, SubstratePluginInfo, event, handle_type, location_type, mode,
};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// Our version of Score-P's `struct SCOREP_Location`. It is never freed.
pub struct HostLocation {
    id: AtomicU32,
    kind: c_int,
    name: CString,
    data: AtomicPtr<c_void>,
}

impl HostLocation {
    pub fn new(id: u32, kind: c_int) -> &'static HostLocation {
        HostLocation::named(id, kind, &format!("location {id}"))
    }

    pub fn named(id: u32, kind: c_int, name: &str) -> &'static HostLocation {
        let name = CString::new(name).expect("no zero byte");
        Box::leak(Box::new(HostLocation {
            id: AtomicU32::new(id),
            kind,
            name,
            data: AtomicPtr::new(null_mut()),
        }))
    }

    /// Puts another location at the address of this one, which was deleted.
    pub fn becomes(&self, id: u32) {
        self.id.store(id, Ordering::Relaxed);
    }

    /// Whether the plugin has attached data to it.
    pub fn has_data(&self) -> bool {
        !self.data.load(Ordering::Relaxed).is_null()
    }

    fn raw(&'static self) -> *mut Location {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

static MPP_IS_KNOWN: AtomicBool = AtomicBool::new(false);
static RANK: AtomicU32 = AtomicU32::new(0);
static SIZE: AtomicU32 = AtomicU32::new(1);

/// Ends the process, as Score-P does if a plugin calls the function too early.
fn abort_unless_mpp_is_known(what: &str) {
    if !MPP_IS_KNOWN.load(Ordering::Relaxed) {
        eprintln!("[Score-P] {what} was called before the MPP was initialized: aborting");
        std::process::abort();
    }
}

unsafe extern "C" fn rank() -> c_int {
    abort_unless_mpp_is_known("SCOREP_Ipc_GetRank");
    RANK.load(Ordering::Relaxed) as c_int
}

unsafe extern "C" fn size() -> c_int {
    abort_unless_mpp_is_known("SCOREP_Ipc_GetSize");
    SIZE.load(Ordering::Relaxed) as c_int
}

/// Must never be called: a call that is too early ends the job.
unsafe extern "C" fn global_id(_location: *const Location) -> u64 {
    eprintln!("[Score-P] SCOREP_Location_GetGlobalId was called: aborting");
    std::process::abort();
}

fn of(location: *const Location) -> &'static HostLocation {
    // SAFETY: all locations that the plugin gets are leaked HostLocations.
    unsafe { &*location.cast() }
}

unsafe extern "C" fn location_id(location: *const Location) -> u32 {
    of(location).id.load(Ordering::Relaxed)
}

unsafe extern "C" fn location_type(location: *const Location) -> c_int {
    of(location).kind
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

/// Names that are requested in signal handlers are made in advance.
const NAMES_MAX: u32 = 10_000;
static NAMES: OnceLock<Vec<CString>> = OnceLock::new();

fn names() -> &'static [CString] {
    let name = |handle| CString::new(format!("region_{handle}")).expect("no zero byte");
    NAMES.get_or_init(|| (0..NAMES_MAX).map(name).collect())
}

/// Sets the names of the regions from region 0 on. It is called once in a process, before the plugin is loaded.
pub fn set_names(names: &[Vec<u8>]) {
    let names = names.iter().map(|name| CString::new(name.clone()).expect("no zero byte")).collect();
    assert!(NAMES.set(names).is_ok(), "names are set once");
}

unsafe extern "C" fn region_name(handle: u32) -> *const c_char {
    names().get(handle as usize).map_or(null(), |name| name.as_ptr())
}

/// The region and the parent of each calling context. The first entry is unused.
static CONTEXTS: OnceLock<Vec<(u32, u32)>> = OnceLock::new();

/// Sets the region and the parent of the calling contexts 1, 2, ... It is called once in a process.
pub fn set_contexts(contexts: &[(u32, u32)]) {
    let contexts = [(0, 0)].iter().chain(contexts).copied().collect();
    assert!(CONTEXTS.set(contexts).is_ok(), "contexts are set once");
}

/// Looks a context up. An invalid handle ends the process, as in Score-P.
fn context(handle: u32) -> (u32, u32) {
    if handle == 0 {
        std::process::abort();
    }
    CONTEXTS.get().expect("contexts")[handle as usize]
}

unsafe extern "C" fn context_region(handle: u32) -> u32 {
    context(handle).0
}

unsafe extern "C" fn context_parent(handle: u32) -> u32 {
    context(handle).1
}

unsafe extern "C" fn no_name(_handle: u32) -> *const c_char {
    null()
}

unsafe extern "C" fn no_line(_handle: u32) -> u32 {
    0
}

unsafe extern "C" fn no_type(_handle: u32) -> c_int {
    1
}

/// Returns all functions that the plugin needs, and those that it must not call.
pub fn callbacks() -> Callbacks {
    Callbacks {
        ipc_get_rank: Some(rank),
        ipc_get_size: Some(size),
        location_get_id: Some(location_id),
        location_get_type: Some(location_type),
        location_get_name: Some(location_name),
        location_get_global_id: Some(global_id),
        location_set_data: Some(set_data),
        location_get_data: Some(get_data),
        region_handle_get_name: Some(region_name),
        region_handle_get_canonical_name: Some(no_name),
        region_handle_get_file_name: Some(no_name),
        region_handle_get_begin_line: Some(no_line),
        region_handle_get_end_line: Some(no_line),
        region_handle_get_type: Some(no_type),
        region_handle_get_paradigm_type: Some(no_type),
        calling_context_handle_get_region: Some(context_region),
        calling_context_handle_get_parent: Some(context_parent),
        ..Callbacks::EMPTY
    }
}

pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Works for five milliseconds, long enough for a few samples.
pub fn work() {
    let begun = now();
    while now() < begun + 5_000_000 {}
}

/// The plugin as Score-P sees it. Several threads may use it.
pub struct Plugin {
    library: &'static libloading::Library,
    info: SubstratePluginInfo,
    events: [EventFunction; event::COMM_DESTROY + 1],
}

impl Plugin {
    /// Loads the plugin without calling any function of it.
    pub fn load() -> Plugin {
        // SAFETY: this is the plugin under test; its constructors are those of Rust. It is never closed.
        let library = unsafe { libloading::Library::new(crate::jobs::plugin()).expect("the plugin") };
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        // SAFETY: the symbol has this type by Score-P's interface.
        let info = unsafe {
            let entry =
                library.get::<GetInfo>(b"SCOREP_SubstratePlugin_ampere_get_info\0").expect("the entry");
            entry()
        };
        Plugin { library, info, events: [None; event::COMM_DESTROY + 1] }
    }

    pub fn init(&self) -> c_int {
        // SAFETY: this is the plugin's own function, as are all below.
        unsafe { self.info.init.expect("init")() }
    }

    pub fn set_callbacks(&self, callbacks: Callbacks, size: usize) {
        // The table has more room than it needs, filled with zeros, because a later Score-P passes a longer one.
        let room: &'static mut [u64] = Box::leak(vec![0u64; 256].into_boxed_slice());
        let table = room.as_mut_ptr().cast::<Callbacks>();
        assert!(size <= 2048 && std::mem::size_of::<Callbacks>() <= 2048);
        // SAFETY: the table is large enough, aligned, and never freed.
        unsafe {
            table.write(callbacks);
            self.info.set_callbacks.expect("set_callbacks")(table, size);
        }
    }

    pub fn set_no_callbacks(&self) {
        // SAFETY: as above. The test passes NULL on purpose.
        unsafe { self.info.set_callbacks.expect("set_callbacks")(null(), 0) };
    }

    /// Gets the event functions of both modes, and keeps those for recording.
    pub fn get_event_functions(&mut self) {
        for recording in [mode::RECORDING_DISABLED, mode::RECORDING_ENABLED] {
            let mut functions = null();
            // SAFETY: as above; the plugin sets the array and returns its length.
            let count = unsafe { self.info.get_event_functions.expect("events")(recording, &mut functions) };
            self.events = [None; event::COMM_DESTROY + 1];
            for at in 0..(count as usize).min(self.events.len()) {
                // SAFETY: the index is inside the array.
                self.events[at] = unsafe { *functions.add(at) };
            }
        }
    }

    pub fn assign_id(&self) {
        // SAFETY: as above.
        unsafe { self.info.assign_id.expect("assign_id")(0) };
    }

    pub fn init_mpp(&self, rank: u32, size: u32) {
        RANK.store(rank, Ordering::Relaxed);
        SIZE.store(size, Ordering::Relaxed);
        MPP_IS_KNOWN.store(true, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { self.info.init_mpp.expect("init_mpp")() };
    }

    pub fn define_region(&self, handle: u32) {
        // SAFETY: as above.
        unsafe { self.info.new_definition_handle.expect("definitions")(handle, handle_type::REGION) };
    }

    pub fn create_location(&self, location: &'static HostLocation) {
        // SAFETY: as above.
        unsafe { self.info.create_location.expect("create_location")(location.raw(), null()) };
    }

    pub fn delete_location(&self, location: &'static HostLocation) {
        // SAFETY: as above.
        unsafe { self.info.delete_location.expect("delete_location")(location.raw()) };
    }

    pub fn enter(&self, location: &'static HostLocation, region: u32) {
        self.region(event::ENTER_REGION, location, region);
    }

    pub fn leave(&self, location: &'static HostLocation, region: u32) {
        self.region(event::EXIT_REGION, location, region);
    }

    fn region(&self, number: usize, location: &'static HostLocation, region: u32) {
        self.region_at(number, location, now(), region);
    }

    fn region_at(&self, number: usize, location: &'static HostLocation, time: u64, region: u32) {
        if let Some(function) = self.events[number] {
            // SAFETY: the entry has this type by Score-P's interface; metricValues is NULL without metrics.
            unsafe {
                let function: RegionEvent = std::mem::transmute(function);
                function(location.raw(), time, region, null_mut());
            }
        }
    }

    /// Gives a correlation id to the next enter of the location, as the embedded host does.
    pub fn correlate(&self, location: &'static HostLocation, id: u64) {
        type Correlate = unsafe extern "C" fn(*const Location, u64);
        // SAFETY: the plugin exports the function with this type.
        unsafe {
            let correlate =
                self.library.get::<Correlate>(b"ampere_plugin_correlation\0").expect("the function");
            correlate(location.raw(), id);
        }
    }

    /// Records what ran on a GPU's stream, with the id of its launch, or 0.
    pub fn ran(&self, stream: &'static HostLocation, (begin, end): (u64, u64), region: u32, id: u64) {
        self.correlate(stream, id);
        self.region_at(event::ENTER_REGION, stream, begin, region);
        self.region_at(event::EXIT_REGION, stream, end, region);
    }

    /// Enters a context, in place of `enter`, when unwinding is on. `distance` is Score-P's unwind distance. Returns the time
    /// of the event.
    pub fn context_enter(&self, location: &'static HostLocation, context: u32, distance: u32) -> u64 {
        self.context(event::CALLING_CONTEXT_ENTER, location, context, distance)
    }

    pub fn context_leave(&self, location: &'static HostLocation, context: u32) -> u64 {
        self.context(event::CALLING_CONTEXT_EXIT, location, context, 1)
    }

    fn context(&self, number: usize, location: &'static HostLocation, context: u32, distance: u32) -> u64 {
        let time = now();
        if let Some(function) = self.events[number] {
            // SAFETY: as above.
            unsafe {
                let function: CallingContextEvent = std::mem::transmute(function);
                function(location.raw(), time, context, 0, distance, null_mut());
            }
        }
        time
    }

    /// Records a sample that finds the thread in this context.
    pub fn sample(&self, location: &'static HostLocation, context: u32, distance: u32) -> u64 {
        let time = now();
        if let Some(function) = self.events[event::SAMPLE] {
            // SAFETY: as above.
            unsafe {
                let function: SampleEvent = std::mem::transmute(function);
                function(location.raw(), time, context, 0, distance, 0, null_mut());
            }
        }
        time
    }

    pub fn program_begin(&self, location: &'static HostLocation) {
        if let Some(function) = self.events[event::PROGRAM_BEGIN] {
            // SAFETY: as above.
            unsafe {
                let function: ProgramBeginEvent = std::mem::transmute(function);
                function(location.raw(), now(), 0, 0, null(), 0, u64::from(std::process::id()), 0);
            }
        }
    }

    pub fn program_end(&self, location: &'static HostLocation) {
        if let Some(function) = self.events[event::PROGRAM_END] {
            // SAFETY: as above. INT64_MIN is Score-P's value for an unknown status.
            unsafe {
                let function: ProgramEndEvent = std::mem::transmute(function);
                function(location.raw(), now(), i64::MIN, 0);
            }
        }
    }

    pub fn finalize(&self) {
        // SAFETY: as above.
        unsafe { self.info.finalize.expect("finalize")() };
    }

    /// Makes all calls up to the first event in Score-P's order, with regions 1 to 3 and the main location.
    pub fn begin() -> (Plugin, &'static HostLocation) {
        names();
        let mut plugin = Plugin::load();
        assert_eq!(plugin.init(), 0);
        plugin.set_callbacks(callbacks(), std::mem::size_of::<Callbacks>());
        plugin.get_event_functions();
        (1..=3).for_each(|handle| plugin.define_region(handle));
        plugin.assign_id();
        let main = HostLocation::new(0, location_type::CPU_THREAD);
        plugin.create_location(main);
        plugin.program_begin(main);
        (plugin, main)
    }

    /// Calls region 2 `calls` times, with some work in the first call.
    pub fn calls(&self, location: &'static HostLocation, calls: usize) {
        for call in 0..calls {
            self.enter(location, 2);
            if call == 0 {
                work();
            }
            self.leave(location, 2);
        }
    }

    pub fn end(&self, main: &'static HostLocation) {
        self.program_end(main);
        self.finalize();
    }
}
