//! The library that rocprofiler-sdk loads into HIP programs (`ROCP_TOOL_LIBRARIES`): kernels and copies become frames of GPU
//! streams, and HIP's calls become frames of the program's threads. `crates/gpu` explains what an adapter does.
//!
//! ```text
//! abi.rs      types of rocprofiler-sdk's interface
//! library.rs  its functions
//! devices.rs  GPUs, their PCI addresses and UUIDs
//! calls.rs    HIP's calls
//! records.rs  kernels and copies
//! tool.rs     the configuration, the thread that requests buffered records, the end
//! ```
#![warn(missing_docs)]

#[expect(missing_docs, reason = "the names are those of rocprofiler-sdk")]
pub mod abi;
mod calls;
mod devices;
mod library;
mod records;
mod tool;

use abi::Configuration;
use ampere_gpu::{Host, guarded};
use std::ffi::{c_char, c_void};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};

/// The versions whose interface is known: 0.4 is in ROCm 6.2. Later versions with major number 1 only add to the interface.
const VERSIONS: std::ops::Range<u32> = 400..20_000;

static CONFIGURATION: Configuration = Configuration {
    size: size_of::<Configuration>(),
    initialize: Some(tool::initialize),
    finalize: Some(tool::finalize),
    data: std::ptr::null_mut(),
};

/// Called by rocprofiler-sdk when the first ROCm runtime starts. Null leaves this library out.
///
/// # Safety
/// Called by rocprofiler-sdk. The text and the client's description are not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_configure(
    version: u32,
    _version_text: *const c_char,
    _priority: u32,
    _client: *mut c_void,
) -> *const Configuration {
    static IS_CALLED: AtomicBool = AtomicBool::new(false);
    guarded(null(), || {
        if IS_CALLED.swap(true, Ordering::Relaxed) {
            return null();
        }
        let Some(host) = Host::open("HIP") else { return null() };
        if !VERSIONS.contains(&version) {
            let [major, minor, patch] = [version / 10_000, version / 100 % 100, version % 100];
            host.message(&format!(
                "GPU kernels are not recorded: rocprofiler-sdk {major}.{minor}.{patch} is not known here (0.4 to 1.x are)"
            ));
            return null();
        }
        if tool::prepare(host, version) { &raw const CONFIGURATION } else { null() }
    })
}
