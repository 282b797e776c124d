//! Finding, loading and calling the substrate plugin.

use crate::communication;
use crate::messages::report;
use ampere_model::Counted;
use scorep_abi::{
    AnyHandle, Callbacks, EventFunction, GetInfo, Location, ProgramBeginEvent, ProgramEndEvent, RegionEvent,
    SubstratePluginInfo, event, mode,
};
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

const FILE: &str = "libscorep_substrate_ampere.so";
const ENTRY: &CStr = c"SCOREP_SubstratePlugin_ampere_get_info";

/// The plugin's functions. Set once, before the state becomes running.
static INFO: OnceLock<SubstratePluginInfo> = OnceLock::new();
static EVENTS: OnceLock<Events> = OnceLock::new();

/// The handle for an unknown program name: Score-P's "invalid" handle.
const NO_NAME: AnyHandle = 0;

/// An addition to Score-P's interface: reports to our plugin calls for which no event was sent. The location may be null.
type MissedCalls = unsafe extern "C" fn(location: *mut Location, calls: u64);
/// An addition to Score-P's interface: reports an unfinished event that was abandoned.
type EventWasAbandoned = unsafe extern "C" fn(location: *mut Location);
/// An addition to Score-P's interface: whether the stacks of the job's processes are sampled.
type StacksAreSampled = unsafe extern "C" fn() -> bool;

/// An addition to Score-P's interface: names the device of a GPU stream before its location is created.
type DefineStreamDevice =
    unsafe extern "C" fn(location: u32, pci: *const c_char, uuid: *const c_char, model: *const c_char);
/// An addition to Score-P's interface: reports the number of GPU commands that are not recorded, and the errors of GPU clocks.
type ReportGpuRecords = unsafe extern "C" fn(not_recorded: u64, clock_error: u64, clock_drift: u64);
/// An addition to Score-P's interface: announces that the next enter on the location is a launch, or a kernel, with this number.
type Correlation = unsafe extern "C" fn(location: *mut Location, id: u64);
/// An addition to Score-P's interface: reports that all events of the location before this time have been recorded.
type QuietUntil = unsafe extern "C" fn(location: *mut Location, time: u64);

/// An addition to Score-P's interface: returns a pointer to the count of this kind and name in the run's table, which is stored
/// as the bits of an `f64`. Null if there is none.
type WorkRow =
    unsafe extern "C" fn(kind: u32, name: *const u8, length: usize, may_open: bool) -> *mut AtomicU64;
/// An addition to Score-P's interface: opens the table of units of work and ranges if the run exists already.
type OpenWork = unsafe extern "C" fn();
/// An addition to Score-P's interface: reports a call whose units of work are not counted, or a range that is not counted.
type LeaveOut = unsafe extern "C" fn();

/// The plugin's functions for units of work and ranges. They do not need the plugin to be started.
struct Work {
    open: Option<OpenWork>,
    row: Option<WorkRow>,
    leave_out: Option<LeaveOut>,
    leave_out_range: Option<LeaveOut>,
}

static WORK: OnceLock<Work> = OnceLock::new();

/// The plugin's functions for GPUs.
struct Gpu {
    define_stream_device: Option<DefineStreamDevice>,
    report_records: Option<ReportGpuRecords>,
    correlation: Option<Correlation>,
    quiet_until: Option<QuietUntil>,
}

static GPU: OnceLock<Gpu> = OnceLock::new();

struct Events {
    missed_calls: Option<MissedCalls>,
    event_was_abandoned: Option<EventWasAbandoned>,
    stacks_are_sampled: Option<StacksAreSampled>,
    program_begin: Option<ProgramBeginEvent>,
    program_end: Option<ProgramEndEvent>,
}

unsafe extern "C" fn no_event(_location: *mut Location, _time: u64, _region: AnyHandle, _metrics: *mut u64) {}

/// The functions for the two events of the hot path. They are never null, so that an event need not check.
static ENTER: AtomicPtr<c_void> = AtomicPtr::new(no_event as *mut c_void);
static EXIT: AtomicPtr<c_void> = AtomicPtr::new(no_event as *mut c_void);

#[inline(always)]
pub fn enter(location: *mut Location, time: u64, region: AnyHandle) {
    // Relaxed: stored before the state became "running", which every caller has seen with Acquire.
    // SAFETY: the pointer is `no_event` or the plugin's function for this event, so it has this type.
    unsafe {
        let function: RegionEvent = std::mem::transmute(ENTER.load(Ordering::Relaxed));
        function(location, time, region, null_mut());
    }
}

#[inline(always)]
pub fn exit(location: *mut Location, time: u64, region: AnyHandle) {
    // SAFETY: as in `enter`.
    unsafe {
        let function: RegionEvent = std::mem::transmute(EXIT.load(Ordering::Relaxed));
        function(location, time, region, null_mut());
    }
}

/// Returns the path of this library.
fn own_path() -> Option<PathBuf> {
    let mut found =
        libc::Dl_info { dli_fname: null(), dli_fbase: null_mut(), dli_sname: null(), dli_saddr: null_mut() };
    // SAFETY: dladdr takes any address; the structure is ours.
    let known = unsafe { libc::dladdr(no_event as *const c_void, &mut found) };
    if known == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own string, which lives as long as this library is loaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Returns the plugin's file: the one that AMPERE_HOST_PLUGIN names, or else the one in `ampere-plugin` next to this library (in
/// an installation) or next to it (in a build). The error is the directory of this library.
fn find() -> Result<OsString, PathBuf> {
    if let Some(path) = std::env::var_os("AMPERE_HOST_PLUGIN").filter(|path| !path.is_empty()) {
        return Ok(path);
    }
    let own = own_path().unwrap_or_default();
    let here = own.parent().unwrap_or(Path::new("."));
    for candidate in [here.join("ampere-plugin").join(FILE), here.join(FILE)] {
        if candidate.exists() {
            return Ok(candidate.into_os_string());
        }
    }
    Err(here.to_owned())
}

/// Loads and initializes the plugin, and stores its event functions. Returns whether it succeeded; an error is reported, and the
/// plugin is unloaded again.
pub fn load(callbacks: &'static Callbacks) -> bool {
    let path = match find() {
        Ok(path) => path,
        Err(here) => {
            report(format_args!(
                "not measuring: {FILE} is neither in {} nor in ampere-plugin there; put it there or set AMPERE_HOST_PLUGIN to its path",
                here.display()
            ));
            return false;
        }
    };
    let shown = path.to_string_lossy().into_owned();
    let Some(library) = open(path) else { return false };
    let started = info_of(library, &shown).filter(|info| start(library, info, callbacks, &shown));
    let Some(info) = started else {
        close(library);
        return false;
    };
    let _ = INFO.set(info);
    true
}

fn open(path: OsString) -> Option<*mut c_void> {
    let path = CString::new(path.into_vec()).ok()?;
    // SAFETY: loading runs the library's constructors; it is the plugin that the user chose or installed with us.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        // SAFETY: dlerror returns null or a string that is valid until this thread's next dl call.
        let why = unsafe {
            let why = libc::dlerror();
            if why.is_null() { "unknown error".into() } else { CStr::from_ptr(why).to_string_lossy() }
        };
        report(format_args!(
            "not measuring: cannot load the plugin: {why}; check the path or AMPERE_HOST_PLUGIN"
        ));
        return None;
    }
    Some(library)
}

/// Returns the plugin's functions, if the library is ampere's plugin and has a version that this host supports.
fn info_of(library: *mut c_void, shown: &str) -> Option<SubstratePluginInfo> {
    // SAFETY: `library` is open.
    let entry = unsafe { libc::dlsym(library, ENTRY.as_ptr()) };
    if entry.is_null() {
        report(format_args!(
            "not measuring: {shown} is not ampere's plugin (it lacks {})",
            ENTRY.to_string_lossy()
        ));
        return None;
    }
    // SAFETY: the symbol of this name has this type, by Score-P's interface.
    let info = unsafe { std::mem::transmute::<*mut c_void, GetInfo>(entry)() };
    if info.plugin_version == 0 || info.plugin_version > scorep_abi::PLUGIN_VERSION {
        report(format_args!(
            "not measuring: {shown} has plugin version {}, this library supports versions up to {}; install both from the same release",
            info.plugin_version,
            scorep_abi::PLUGIN_VERSION
        ));
        return None;
    }
    Some(info)
}

/// Calls the plugin's first functions, as Score-P does and in its order.
fn start(
    library: *mut c_void,
    info: &SubstratePluginInfo,
    callbacks: &'static Callbacks,
    shown: &str,
) -> bool {
    // SAFETY: the functions are the plugin's, called as Score-P calls them and in its order. The first one, an addition to
    // Score-P's interface, announces this host to ampere's plugin.
    unsafe {
        let announce = libc::dlsym(library, c"ampere_is_called_by_the_embedded_host".as_ptr());
        if let Some(announce) = std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn()>>(announce) {
            announce();
        }
        if let Some(init) = info.init {
            let code = init();
            if code != 0 {
                report(format_args!("not measuring: the plugin {shown} could not start (code {code})"));
                return false;
            }
        }
        if let Some(set_callbacks) = info.set_callbacks {
            set_callbacks(callbacks, size_of::<Callbacks>());
        }
        if let Some(get) = info.get_event_functions {
            let mut functions: *const EventFunction = null();
            let count = get(mode::RECORDING_ENABLED, &mut functions) as usize;
            take_events(library, functions, count);
            let mut disabled: *const EventFunction = null();
            get(mode::RECORDING_DISABLED, &mut disabled);
        }
    }
    true
}

/// # Safety
/// `library` is open, and `functions` is null or has `count` entries.
unsafe fn take_events(library: *mut c_void, functions: *const EventFunction, count: usize) {
    let function = |index: usize| {
        // SAFETY: index is inside the array.
        if functions.is_null() || index >= count { None } else { unsafe { *functions.add(index) } }
    };
    if let Some(enter) = function(event::ENTER_REGION) {
        ENTER.store(enter as *mut c_void, Ordering::Relaxed);
    }
    if let Some(exit) = function(event::EXIT_REGION) {
        EXIT.store(exit as *mut c_void, Ordering::Relaxed);
    }
    // SAFETY: the entries of these indices have these types, by Score-P's interface, and so have the symbols of
    // these names; an Option of a function pointer has a pointer's size, and null is None.
    let events = unsafe {
        let missed_calls = libc::dlsym(library, c"ampere_missed_calls".as_ptr());
        let event_was_abandoned = libc::dlsym(library, c"ampere_event_was_abandoned".as_ptr());
        let stacks_are_sampled = libc::dlsym(library, c"ampere_stacks_are_sampled".as_ptr());
        Events {
            stacks_are_sampled: std::mem::transmute::<*mut c_void, Option<StacksAreSampled>>(
                stacks_are_sampled,
            ),
            missed_calls: std::mem::transmute::<*mut c_void, Option<MissedCalls>>(missed_calls),
            event_was_abandoned: std::mem::transmute::<*mut c_void, Option<EventWasAbandoned>>(
                event_was_abandoned,
            ),
            program_begin: std::mem::transmute::<EventFunction, Option<ProgramBeginEvent>>(function(
                event::PROGRAM_BEGIN,
            )),
            program_end: std::mem::transmute::<EventFunction, Option<ProgramEndEvent>>(function(
                event::PROGRAM_END,
            )),
        }
    };
    let _ = EVENTS.set(events);
    take_gpu(library);
    communication::take(library, function);
}

/// Takes the additions to Score-P's interface for GPUs, from an open library.
fn take_gpu(library: *mut c_void) {
    // SAFETY: `library` is open, and the symbols of these names have these types; see `take_events`.
    let gpu = unsafe {
        let define_stream_device = libc::dlsym(library, c"ampere_define_stream_device".as_ptr());
        let report_records = libc::dlsym(library, c"ampere_report_gpu_records".as_ptr());
        let correlation = libc::dlsym(library, c"ampere_plugin_correlation".as_ptr());
        let quiet_until = libc::dlsym(library, c"ampere_plugin_quiet_until".as_ptr());
        Gpu {
            define_stream_device: std::mem::transmute::<*mut c_void, Option<DefineStreamDevice>>(
                define_stream_device,
            ),
            report_records: std::mem::transmute::<*mut c_void, Option<ReportGpuRecords>>(report_records),
            correlation: std::mem::transmute::<*mut c_void, Option<Correlation>>(correlation),
            quiet_until: std::mem::transmute::<*mut c_void, Option<QuietUntil>>(quiet_until),
        }
    };
    let _ = GPU.set(gpu);
}

fn close(library: *mut c_void) {
    // SAFETY: the library was opened above, and nothing in it is used any more.
    unsafe { libc::dlclose(library) };
}

pub fn program_begin(location: *mut Location, time: u64, region: AnyHandle) {
    if let Some(function) = EVENTS.get().and_then(|events| events.program_begin) {
        // SAFETY: the plugin's own function; it gets pid and tid as from Score-P.
        unsafe {
            let (process, thread) = (libc::getpid() as u64, libc::syscall(libc::SYS_gettid) as u64);
            function(location, time, NO_NAME, 0, null(), region, process, thread);
        }
    }
}

/// Names the device of the stream whose location is created next with this id.
pub fn define_stream_device(location: u32, [pci, uuid, model]: [*const c_char; 3]) {
    if let Some(function) = GPU.get().and_then(|gpu| gpu.define_stream_device) {
        // SAFETY: the plugin's own function; the texts are null or C strings by the contract of the host's interface.
        unsafe { function(location, pci, uuid, model) };
    }
}

/// Reports the number of GPU commands that are not recorded so far, and the errors of GPU clocks.
pub fn report_gpu_records(not_recorded: u64, clock_error: u64, clock_drift: u64) {
    if let Some(function) = GPU.get().and_then(|gpu| gpu.report_records) {
        // SAFETY: the plugin's own function.
        unsafe { function(not_recorded, clock_error, clock_drift) };
    }
}

/// Gives the location's next enter the number of a launch, unless that is 0.
#[inline]
pub fn correlate(location: *mut Location, id: u64) {
    if id != 0
        && let Some(function) = GPU.get().and_then(|gpu| gpu.correlation)
    {
        // SAFETY: the plugin's own function, with a location that this thread writes to.
        unsafe { function(location, id) };
    }
}

/// Reports that all events of a GPU's location before this time have been recorded.
pub fn quiet_until(location: *mut Location, time: u64) {
    if let Some(function) = GPU.get().and_then(|gpu| gpu.quiet_until) {
        // SAFETY: the plugin's own function, with a location that this thread writes to.
        unsafe { function(location, time) };
    }
}

fn load_work() -> Work {
    let Some(library) = find().ok().and_then(open) else {
        return Work { open: None, row: None, leave_out: None, leave_out_range: None };
    };
    // SAFETY: `library` is open, and the symbols of these names have these types; see `take_events`.
    unsafe {
        let open = libc::dlsym(library, c"ampere_plugin_open_work".as_ptr());
        let row = libc::dlsym(library, c"ampere_plugin_work_row".as_ptr());
        let leave_out = libc::dlsym(library, c"ampere_plugin_leave_out_work".as_ptr());
        let leave_out_range = libc::dlsym(library, c"ampere_plugin_leave_out_range".as_ptr());
        Work {
            open: std::mem::transmute::<*mut c_void, Option<OpenWork>>(open),
            row: std::mem::transmute::<*mut c_void, Option<WorkRow>>(row),
            leave_out: std::mem::transmute::<*mut c_void, Option<LeaveOut>>(leave_out),
            leave_out_range: std::mem::transmute::<*mut c_void, Option<LeaveOut>>(leave_out_range),
        }
    }
}

/// Loads the plugin, and opens the run's table if the run exists already: a forked child cannot do so safely.
pub fn open_work() {
    if let Some(open) = WORK.get_or_init(load_work).open {
        // SAFETY: the plugin's own function.
        unsafe { open() };
    }
}

/// Returns a pointer to the count of this kind and name, which is stored as the bits of an `f64`; null if there is no room
/// for it, or no run. `may_open` means that the plugin and the run's table are opened if they are not open yet.
pub fn work_row(kind: Counted, name: &[u8], may_open: bool) -> *mut AtomicU64 {
    let work = if may_open { Some(WORK.get_or_init(load_work)) } else { WORK.get() };
    match work.and_then(|work| work.row) {
        // SAFETY: the plugin's own function, with a name that lives during the call.
        Some(row) => unsafe { row(kind as u32, name.as_ptr(), name.len(), may_open) },
        None => null_mut(),
    }
}

/// Reports a call whose units of work are left out of the counts.
#[cold]
pub fn leave_out_work() {
    if let Some(function) = WORK.get().and_then(|work| work.leave_out) {
        // SAFETY: the plugin's own function.
        unsafe { function() };
    }
}

/// Reports a range that is left out of the counts.
#[cold]
pub fn leave_out_range() {
    if let Some(function) = WORK.get().and_then(|work| work.leave_out_range) {
        // SAFETY: the plugin's own function.
        unsafe { function() };
    }
}

/// Reports calls that were not recorded.
pub fn missed_calls(location: *mut Location, calls: u64) {
    if let Some(function) = EVENTS.get().and_then(|events| events.missed_calls) {
        // SAFETY: the plugin's own function.
        unsafe { function(location, calls) };
    }
}

/// Reports that this thread abandoned an unfinished event.
pub fn event_was_abandoned(location: *mut Location) {
    if let Some(function) = EVENTS.get().and_then(|events| events.event_was_abandoned) {
        // SAFETY: the plugin's own function, with a location that this thread writes to.
        unsafe { function(location) };
    }
}

/// Whether the stacks of the job's processes are sampled.
pub fn stacks_are_sampled() -> bool {
    let function = EVENTS.get().and_then(|events| events.stacks_are_sampled);
    // SAFETY: the plugin's own function.
    function.is_some_and(|function| unsafe { function() })
}

/// Passes the plugin the program's end, as PROGRAM_END. Like Score-P, passes INT64_MIN for an unknown exit status.
pub fn program_end(location: *mut Location, time: u64, status: Option<i64>, region: AnyHandle) {
    if let Some(function) = EVENTS.get().and_then(|events| events.program_end) {
        // SAFETY: the plugin's own function.
        unsafe { function(location, time, status.unwrap_or(i64::MIN), region) };
    }
}

/// Calls a management function if the plugin has it.
macro_rules! call {
    ($function:ident ( $($argument:expr),* )) => {
        if let Some(function) = INFO.get().and_then(|info| info.$function) {
            // SAFETY: the plugin's own function, in Score-P's order, with pointers that live until finalize.
            unsafe { function($($argument),*) };
        }
    };
}

pub fn new_definition(handle: AnyHandle, kind: i32) {
    call!(new_definition_handle(handle, kind));
}

pub fn assign_id(id: usize) {
    call!(assign_id(id));
}

pub fn init_mpp() {
    call!(init_mpp());
}

pub fn create_location(location: *const Location, parent: *const Location) {
    call!(create_location(location, parent));
}

pub fn activate_location(location: *const Location, parent: *const Location) {
    call!(activate_cpu_location(location, parent, 0));
}

pub fn deactivate_location(location: *const Location, parent: *const Location) {
    call!(deactivate_cpu_location(location, parent));
}

pub fn delete_location(location: *const Location) {
    call!(delete_location(location));
}

pub fn finalize() {
    call!(finalize());
}
