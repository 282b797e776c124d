//! The host's interface for adapters: C types, because an adapter and the host are different libraries.

use std::ffi::{c_char, c_void};

/// The version of this interface. The host returns no table for any other.
pub const VERSION: u32 = 2;

/// The name of the host's function [`GetInterface`].
pub const ENTRY: &std::ffi::CStr = c"ampere_host_gpu";

/// The host's function that returns its table. It returns null if nothing in this process is to be recorded, or if the host has
/// another version.
pub type GetInterface = unsafe extern "C" fn(version: u32) -> *const Interface;

/// A handle of a region. 0 stands for no region: its frames are not recorded.
pub type RegionHandle = u32;

/// A GPU location of the host. Null stands for no location: its frames are not recorded.
pub type LocationHandle = *mut c_void;

/// The functions of the host. Any thread may call them, but not a signal handler. None unwinds.
#[repr(C)]
pub struct Interface {
    /// Starts the measurement of this process if it has not started. `flush` is called once before the measurement ends, in the
    /// thread that ends it, and may call the other functions. Returns whether events are recorded.
    pub start: unsafe extern "C" fn(flush: extern "C" fn()) -> bool,
    /// Whether events are recorded now. None are recorded before the start, after the end, or in a forked child.
    pub is_recording: unsafe extern "C" fn() -> bool,
    /// The present time in ticks of the run's clock.
    pub now: unsafe extern "C" fn() -> u64,
    /// Defines a GPU location.
    pub define_location: unsafe extern "C" fn(*const Location) -> LocationHandle,
    /// Returns the region with these properties, which it defines if there is none.
    pub region: unsafe extern "C" fn(*const Region) -> RegionHandle,
    /// Opens a frame of the calling thread at the present time, for a call of the runtime. `correlation` links kernels with the
    /// call that launches them; 0 means that it launches none. Returns whether the frame is recorded; if so, it must be closed.
    pub enter: unsafe extern "C" fn(region: RegionHandle, correlation: u64) -> bool,
    /// Closes the frame of the calling thread with this region at the present time.
    pub leave: unsafe extern "C" fn(region: RegionHandle),
    /// Records frames of a GPU location, which begin in time order and do not overlap. Returns whether they are recorded.
    pub record: unsafe extern "C" fn(location: LocationHandle, frames: *const Frame, count: usize) -> bool,
    /// Reports that all frames of a GPU location that begin before this time, in ticks of the run's clock, have been recorded.
    /// Live figures up to this time need not wait for the location.
    pub quiet_until: unsafe extern "C" fn(location: LocationHandle, time: u64),
    /// Reports losses and clock errors of an adapter. Every call replaces the adapter's previous report.
    pub report_quality: unsafe extern "C" fn(*const Quality),
    /// Sets a function that releases CUPTI, which serves one tool at a time. The host calls it when the program subscribes to
    /// CUPTI.
    pub set_release_cupti: unsafe extern "C" fn(release: extern "C" fn()),
    /// Writes one line for the user, if this process is the first of its node.
    pub message: unsafe extern "C" fn(text: *const u8, bytes: usize),
}

/// A GPU location. Texts are C strings, which live during the call; null or empty if they are not known.
#[repr(C)]
pub struct Location {
    /// The name, such as `HIP[0:2]`.
    pub name: *const c_char,
    /// The device's PCI address, such as `0000:c1:00.0`.
    pub pci: *const c_char,
    /// The device's UUID, such as `GPU-a70564cccd47836c`, as the counters' libraries write it.
    pub uuid: *const c_char,
    /// The device's model, as the driver names it.
    pub model: *const c_char,
}

/// The definition of a region: a kernel, or a function of the runtime.
#[repr(C)]
pub struct Region {
    /// The name as the runtime has it. Mangled names are demangled by the host. UTF-8, without a final zero.
    pub name: *const u8,
    /// The number of bytes of the name.
    pub bytes: usize,
    /// A value of [`scorep_abi::region_type`].
    pub region_type: i32,
    /// A value of [`scorep_abi::paradigm`].
    pub paradigm: i32,
}

/// A kernel, a copy or another command that has run on a GPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When it began, in ticks of the run's clock.
    pub begin: u64,
    /// When it ended, in ticks of the run's clock.
    pub end: u64,
    /// The number of its launch, as passed to [`Interface::enter`]; 0 if it is not known.
    pub correlation: u64,
    /// The region of the kernel or copy.
    pub region: RegionHandle,
}

/// Losses and clock errors of an adapter in this process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// The adapter's value of [`scorep_abi::paradigm`].
    pub paradigm: i32,
    /// The number of kernels, copies and other commands that are not recorded.
    pub not_recorded: u64,
    /// The largest error of a device's clock against the run's, in nanoseconds; 0 if no times were converted.
    pub clock_error: u64,
    /// The largest drift of a device's clock against the run's, in parts of 10^9; 0 if it is not known.
    pub clock_drift: u64,
}
