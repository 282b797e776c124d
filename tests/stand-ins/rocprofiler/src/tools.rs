//! Finds, configures and ends tools as version 1.0 does.

use crate::abi::{Configuration, Handle};
use crate::{version, with};
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Mutex, Once};

type Configure = unsafe extern "C" fn(u32, *const c_char, u32, *mut c_void) -> *const Configuration;

static CONFIGURED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn function(library: *mut c_void) -> Option<Configure> {
    // SAFETY: the library is open; the function of this name has this type.
    unsafe {
        let found = libc::dlsym(library, c"rocprofiler_configure".as_ptr());
        std::mem::transmute::<*mut c_void, Option<Configure>>(found)
    }
}

/// Returns the parts of `ROCP_TOOL_LIBRARIES`. As in version 1.0, the last one is lost if there is a colon.
fn named() -> Vec<String> {
    let text = std::env::var("ROCP_TOOL_LIBRARIES").unwrap_or_default();
    if text.is_empty() {
        return Vec::new();
    }
    let mut parts: Vec<String> = text.split(':').map(str::to_owned).collect();
    if parts.len() > 1 {
        parts.pop();
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn find() -> Vec<Configure> {
    let mut found: Vec<Configure> = Vec::new();
    for file in named() {
        let name = CString::new(file.as_str()).unwrap_or_default();
        // SAFETY: a library that the variable names.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LOCAL | libc::RTLD_LAZY) };
        if library.is_null() {
            eprintln!("stand-in rocprofiler: [ROCP_TOOL_LIBRARIES] error dlopening '{file}'");
            std::process::abort();
        }
        found.extend(function(library));
    }
    found.extend(function(libc::RTLD_DEFAULT));
    let mut unique: Vec<Configure> = Vec::new();
    for tool in found {
        if unique.iter().all(|other| *other as usize != tool as usize) {
            unique.push(tool);
        }
    }
    unique
}

/// # Safety
/// `id` has room for a client's description.
unsafe fn configure(tool: Configure, priority: u32) -> Option<Configuration> {
    let mut client = [24u64, 0, u64::from(priority)];
    // SAFETY: a tool's function, with what it expects.
    let made = unsafe { tool(version(), c"stand-in".as_ptr(), priority, client.as_mut_ptr().cast()) };
    // SAFETY: by the interface, null or a configuration.
    unsafe { made.as_ref() }.copied()
}

fn initialise() {
    with(|state| state.initialised = -1);
    // SAFETY: the function lives as long as the process.
    unsafe { libc::atexit(end) };
    for (priority, tool) in (0..).zip(find()) {
        // SAFETY: a tool's function.
        let Some(configuration) = (unsafe { configure(tool, priority) }) else { continue };
        let first = with(|state| state.contexts.len());
        // SAFETY: the tool's own functions and data.
        let is_used = configuration
            .initialize
            .is_some_and(|run| unsafe { run(std::ptr::null(), configuration.data) } == 0);
        if !is_used {
            with(|state| state.contexts.truncate(first));
        } else if let Some(finalise) = configuration.finalize {
            crate::lock(&CONFIGURED).push(finalise as usize);
        }
    }
    with(|state| state.initialised = 1);
}

extern "C" fn end() {
    crate::hip::settle();
    for tool in std::mem::take(&mut *crate::lock(&CONFIGURED)) {
        // SAFETY: a tool's function of this type, see `initialise`.
        let finalise = unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void)>(tool) };
        // SAFETY: as above; our tools have no data.
        unsafe { finalise(std::ptr::null_mut()) };
    }
    with(|state| state.is_finalised = true);
    crate::hip::print_times();
}

/// Called by rocprofiler-register with a runtime's table.
///
/// # Safety
/// `tables` has `count` tables, of this library's HIP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_set_api_table(
    _name: *const c_char,
    _version: u64,
    _instance: u64,
    tables: *mut *mut c_void,
    count: u64,
) -> c_int {
    static ONCE: Once = Once::new();
    ONCE.call_once(initialise);
    if count > 0 && with(|state| state.contexts.iter().any(|context| context.is_started)) {
        // SAFETY: this function's contract.
        unsafe { crate::hip::wrap((*tables).cast()) };
    }
    0
}

/// A tool may ask to be configured before a runtime is loaded. ampere's tool does not.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_force_configure(_configure: Handle) -> c_int {
    16
}
