//! `libampere_opencl.so`: a layer of OpenCL's loader that sees kernels and copies.
//!
//! The loader (ocl-icd from 2.3.1 on, Khronos' from 2021 on) opens the libraries in `OPENCL_LAYERS` and gives each the table of
//! functions behind it. This layer replaces the functions that make queues and enqueue commands. Queues are made with profiling,
//! and every command gets an event, whose times are read in a callback when the command completes. The program's queries of its
//! own queues and events are answered as if there were no layer.
//!
//! ```text
//! lib.rs         the functions that the loader calls
//! abi.rs         OpenCL's functions
//! calls.rs       the functions that are replaced
//! devices.rs     the PCI address and the UUID of a device
//! host_times.rs  which of the system's clocks is the device's
//! queues.rs      queues, and the commands that run on them
//! ```
//!
//! Limits: commands enqueued through functions obtained from clGetExtensionFunctionAddress are not recorded, nor are commands
//! that a kernel enqueues on the device.

mod abi;
mod calls;
mod devices;
mod host_times;
mod queues;

use abi::{ENTRIES, Table};
use ampere_gpu::{Host, guarded};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::null;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

const CL_SUCCESS: i32 = 0;
const CL_INVALID_VALUE: i32 = -30;
const CL_LAYER_API_VERSION: u32 = 0x4240;
const CL_LAYER_NAME: u32 = 0x4241;
const CL_LAYER_API_VERSION_100: u32 = 100;
const NAME: &[u8] = b"ampere\0";

/// The state of the layer, once the loader has initialised it.
struct Layer {
    host: Host,
    /// The functions behind this layer.
    target: Table,
}

// SAFETY: `target` has pointers to OpenCL's functions, which any thread may call.
unsafe impl Send for Layer {}
// SAFETY: as above.
unsafe impl Sync for Layer {}

static LAYER: OnceLock<Layer> = OnceLock::new();

fn layer() -> Option<&'static Layer> {
    LAYER.get()
}

/// Answers the loader's queries about this layer.
///
/// # Safety
/// The loader calls this: `value` has room for `size` bytes or is null, `size_needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetLayerInfo(
    what: u32,
    size: usize,
    value: *mut c_void,
    size_needed: *mut usize,
) -> i32 {
    let version = CL_LAYER_API_VERSION_100.to_ne_bytes();
    let answer: &[u8] = match what {
        CL_LAYER_API_VERSION => &version,
        CL_LAYER_NAME => NAME,
        _ => return CL_INVALID_VALUE,
    };
    if !value.is_null() {
        if size < answer.len() {
            return CL_INVALID_VALUE;
        }
        // SAFETY: by the caller, there is room.
        unsafe { answer.as_ptr().copy_to_nonoverlapping(value.cast(), answer.len()) };
    }
    // SAFETY: by the caller, the pointer is null or valid.
    if let Some(needed) = unsafe { size_needed.as_mut() } {
        *needed = answer.len();
    }
    CL_SUCCESS
}

/// The table that the loader gets from [`clInitLayer`].
struct Dispatch(UnsafeCell<Table>);

// SAFETY: the table is written once, before the loader gets it.
unsafe impl Sync for Dispatch {}

static DISPATCH: Dispatch = Dispatch(UnsafeCell::new([null(); ENTRIES]));
static IS_INITIALISED: AtomicBool = AtomicBool::new(false);

/// Initialises the layer with the functions behind it. If nothing is to be recorded, or if the loader has already initialised the
/// layer, it gets the table of these functions back unchanged.
///
/// # Safety
/// The loader calls this: `target` has `entries` functions, and the results can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clInitLayer(
    entries: u32,
    target: *const *const c_void,
    entries_of_layer: *mut u32,
    table: *mut *const *const c_void,
) -> i32 {
    if target.is_null() || table.is_null() || entries_of_layer.is_null() {
        return CL_INVALID_VALUE;
    }
    // SAFETY: the caller guarantees this.
    unsafe {
        *entries_of_layer = entries;
        *table = target;
    }
    if IS_INITIALISED.swap(true, Ordering::AcqRel) {
        return CL_SUCCESS;
    }
    guarded((), || {
        let Some(host) = Host::open("OpenCL") else { return };
        let mut functions = [null(); ENTRIES];
        let known = (entries as usize).min(ENTRIES);
        // SAFETY: by the caller, the target has at least this many entries.
        functions[..known].copy_from_slice(unsafe { std::slice::from_raw_parts(target, known) });
        if LAYER.set(Layer { host, target: functions }).is_err() || abi::lacks_needed_functions(&functions) {
            return;
        }
        for (place, ours) in calls::replaced() {
            if !functions[place].is_null() {
                functions[place] = ours;
            }
        }
        // SAFETY: this is done once, and the loader gets the address afterwards.
        unsafe {
            *DISPATCH.0.get() = functions;
            *entries_of_layer = known as u32;
            *table = DISPATCH.0.get().cast();
        }
    });
    CL_SUCCESS
}
