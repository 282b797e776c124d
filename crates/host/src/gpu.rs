//! GPUs: records the kernels, copies and runtime calls that adapters (`crates/gpu`) report.
//!
//! Streams are locations without a thread: whichever thread has a batch of records writes them, under the stream's lock.

use crate::definitions::{self, INVALID};
use crate::functions::enter_new;
use crate::guard::{count_missed, guarded, inside, inside_or, on_own_stack_uninterrupted};
use crate::measurement::{self, StartedBy};
use crate::messages::report;
use crate::regions_by_key::{RegionsByKey, hash};
use crate::state::{State, state};
use crate::thread::RANGE_KEYS_END;
use crate::{clock, location, plugin, preloaded, symbols, threads};
use ampere_gpu::interface::{
    Frame, Interface, Location, LocationHandle, Quality, Region, RegionHandle, VERSION,
};
use scorep_abi::{location_type, paradigm};
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};

pub mod cupti;

/// The largest number of names that get a region of their own: some programs generate kernels while they run.
const NAMES_MAX: usize = 1 << 16;
const OTHER_KERNELS: &str = "(other kernels)";
/// A longer name is cut: a definition has room for names of this length.
const NAME_BYTES_MAX: usize = 1 << 14;
/// The largest number of streams. Each has a ring in shared memory.
const STREAMS_MAX: usize = 1024;

static REGIONS: RegionsByKey = RegionsByKey::new();
static GPUS: Mutex<Gpus> =
    Mutex::new(Gpus { flushes: Vec::new(), streams: Vec::new(), quality: Vec::new(), has_refused: false });

struct Gpus {
    /// The adapters' functions that deliver the records that are still in buffers.
    flushes: Vec<extern "C" fn()>,
    streams: Vec<&'static Stream>,
    quality: Vec<Quality>,
    has_refused: bool,
}

/// A GPU location. Under the lock, one thread at a time writes to it.
struct Stream(Mutex<*mut scorep_abi::Location>);

// SAFETY: the location is used under the lock, and lives as long as the process.
unsafe impl Sync for Stream {}
// SAFETY: as above.
unsafe impl Send for Stream {}

fn gpus() -> MutexGuard<'static, Gpus> {
    GPUS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Gives an adapter the host's functions; see [`ampere_gpu::interface::GetInterface`].
#[unsafe(no_mangle)]
pub extern "C" fn ampere_host_gpu(version: u32) -> *const Interface {
    static INTERFACE: Interface = Interface {
        start,
        is_recording,
        now,
        define_location,
        region,
        enter,
        leave,
        record,
        quiet_until,
        report_quality,
        set_release_cupti,
        message,
    };
    guarded(null(), || {
        if version != VERSION {
            report(format_args!(
                "GPU kernels are not recorded: their library has version {version} of the interface, and the host {VERSION}; install both from the same release"
            ));
            return null();
        }
        if !preloaded::is_taken() || matches!(state(), State::Ended | State::Inert) {
            return null();
        }
        if ampere_gpu::is_scorep_linked() {
            return null();
        }
        // Adapters convert times before the measurement starts.
        clock::choose();
        &INTERFACE
    })
}

unsafe extern "C" fn start(flush: extern "C" fn()) -> bool {
    inside(false, |slot| {
        let is_running = state() == State::Running || measurement::start(slot, StartedBy::Gpu);
        if is_running {
            guarded((), || {
                let mut gpus = gpus();
                let is_known = gpus.flushes.iter().any(|&known| std::ptr::fn_addr_eq(known, flush));
                if !is_known {
                    gpus.flushes.push(flush);
                }
            });
        }
        is_running
    })
}

unsafe extern "C" fn is_recording() -> bool {
    state() == State::Running
}

unsafe extern "C" fn now() -> u64 {
    clock::now()
}

/// # Safety
/// As in [`Interface`].
unsafe extern "C" fn define_location(definition: *const Location) -> LocationHandle {
    inside(null_mut(), |_| {
        on_own_stack_uninterrupted(null_mut(), || {
            // SAFETY: the caller guarantees this.
            let Location { name, pci, uuid, model } = unsafe { &*definition };
            if state() != State::Running {
                return null_mut();
            }
            let mut gpus = gpus();
            if gpus.streams.len() == STREAMS_MAX {
                if !std::mem::replace(&mut gpus.has_refused, true) {
                    report(format_args!("more than {STREAMS_MAX} GPU streams: the others are not recorded"));
                }
                return null_mut();
            }
            // SAFETY: by the caller, a C string.
            let name = unsafe { CStr::from_ptr(*name) }.to_owned();
            let location = location::new(name, location_type::GPU);
            plugin::define_stream_device(location::data(location).id, [*pci, *uuid, *model]);
            plugin::create_location(location, threads::master());
            let stream: &'static Stream = Box::leak(Box::new(Stream(Mutex::new(location))));
            gpus.streams.push(stream);
            std::ptr::from_ref(stream).cast_mut().cast()
        })
    })
}

/// # Safety
/// As in [`Interface`].
unsafe extern "C" fn region(definition: *const Region) -> RegionHandle {
    // SAFETY: the caller guarantees this.
    let Region { name, bytes, region_type, paradigm } = unsafe { &*definition };
    // SAFETY: by the caller; a name that is cut in the middle of a character is made valid below.
    let name = unsafe { std::slice::from_raw_parts(*name, (*bytes).min(NAME_BYTES_MAX)) };
    let (region_type, paradigm) = (*region_type, *paradigm);
    let known_by = hash((region_type as u64) << 32 ^ paradigm as u64, name);
    let known = REGIONS.get(known_by);
    if known != INVALID {
        return known;
    }
    inside(INVALID, |_| {
        on_own_stack_uninterrupted(INVALID, || {
            if state() != State::Running || definitions::is_full() {
                return INVALID;
            }
            REGIONS.get_or_define(known_by, |names| define_region(region_type, paradigm, name, names))
        })
    })
}

fn define_region(region_type: i32, paradigm: i32, name: &[u8], names: usize) -> RegionHandle {
    let name = String::from_utf8_lossy(name);
    // The names of HIP kernels end with this suffix.
    let canonical = name.strip_suffix(".kd").unwrap_or(&name);
    let canonical = if names < NAMES_MAX { canonical } else { OTHER_KERNELS };
    let shown = if canonical.is_empty() { "(kernel)".to_owned() } else { symbols::demangle(canonical) };
    definitions::region(&shown, canonical, interface_of(paradigm), 0, region_type, paradigm)
}

/// Returns the name of the interface, which regions show in place of a source file, as regions of MPI functions do.
fn interface_of(of: i32) -> &'static str {
    match of {
        paradigm::CUDA => "CUDA",
        paradigm::HIP => "HIP",
        _ => "OpenCL",
    }
}

/// The key of a call's frame.
fn key(region: RegionHandle) -> usize {
    RANGE_KEYS_END + region as usize
}

unsafe extern "C" fn enter(region: RegionHandle, correlation: u64) -> bool {
    let missed = |slot: &_| {
        count_missed(slot);
        false
    };
    inside_or(missed, |slot| {
        if state() != State::Running || region == INVALID {
            return false;
        }
        // SAFETY: this thread's own state, which nothing else uses while the slot is busy.
        match unsafe { slot.thread.get().as_mut() } {
            Some(thread) => {
                plugin::correlate(thread.location, correlation);
                thread.enter(key(region), region);
                true
            }
            None => {
                enter_new(slot, key(region), || {
                    // SAFETY: as above; the thread has its location by now.
                    if let Some(thread) = unsafe { slot.thread.get().as_ref() } {
                        plugin::correlate(thread.location, correlation);
                    }
                    region
                });
                !slot.thread.get().is_null()
            }
        }
    })
}

unsafe extern "C" fn leave(region: RegionHandle) {
    inside((), |slot| {
        if state() == State::Running && !slot.thread.get().is_null() {
            // SAFETY: as in `enter`.
            unsafe { &mut *slot.thread.get() }.leave(key(region));
        }
    });
}

/// # Safety
/// As in [`Interface`].
unsafe extern "C" fn record(location: LocationHandle, frames: *const Frame, count: usize) -> bool {
    inside(false, |_| {
        // SAFETY: by the caller, the handle is one of `define_location`, and there are this many frames.
        let (stream, frames) =
            unsafe { (&*location.cast::<Stream>(), std::slice::from_raw_parts(frames, count)) };
        let location = stream.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // The end of the measurement takes the lock after the state has changed.
        let is_recorded = state() == State::Running;
        for frame in frames.iter().filter(|frame| is_recorded && frame.region != INVALID) {
            plugin::correlate(*location, frame.correlation);
            plugin::enter(*location, frame.begin, frame.region);
            plugin::exit(*location, frame.end, frame.region);
        }
        is_recorded
    })
}

/// # Safety
/// As in [`Interface`].
unsafe extern "C" fn quiet_until(location: LocationHandle, time: u64) {
    inside((), |_| {
        // SAFETY: by the caller, the handle is one of `define_location`.
        let location = unsafe { &*location.cast::<Stream>() }.0.lock();
        let location = location.unwrap_or_else(|poisoned| poisoned.into_inner());
        if state() == State::Running {
            plugin::quiet_until(*location, time);
        }
    });
}

/// # Safety
/// As in [`Interface`].
unsafe extern "C" fn report_quality(quality: *const Quality) {
    inside((), |_| {
        guarded((), || {
            // SAFETY: the caller guarantees this.
            let quality = unsafe { *quality };
            if state() != State::Running {
                return;
            }
            let mut gpus = gpus();
            if gpus.quality.contains(&quality) {
                return;
            }
            gpus.quality.retain(|known| known.paradigm != quality.paradigm);
            gpus.quality.push(quality);
            let all = || gpus.quality.iter();
            plugin::report_gpu_records(
                all().map(|of| of.not_recorded).sum(),
                all().map(|of| of.clock_error).max().unwrap_or(0),
                all().map(|of| of.clock_drift).max().unwrap_or(0),
            );
        });
    });
}

unsafe extern "C" fn set_release_cupti(release: extern "C" fn()) {
    cupti::RELEASE.store(release as *mut c_void, Ordering::Release);
}

/// # Safety
/// As in [`Interface`].
unsafe extern "C" fn message(text: *const u8, bytes: usize) {
    inside((), |_| {
        guarded((), || {
            // SAFETY: the caller guarantees this.
            let text = unsafe { std::slice::from_raw_parts(text, bytes) };
            report(format_args!("{}", String::from_utf8_lossy(text)));
        });
    });
}

/// Lets the adapters deliver the records that are still in buffers. The caller is not inside the host, and the measurement is
/// running.
pub fn flush() {
    // The lock is not held during the calls, because the adapters call the host.
    let flushes = std::mem::take(&mut gpus().flushes);
    flushes.iter().for_each(|flush| flush());
}

/// Waits until no thread records frames of a stream, and returns the streams' locations. The caller has changed the state
/// before, so no further frames are recorded.
pub fn end() -> Vec<*mut scorep_abi::Location> {
    let streams = std::mem::take(&mut gpus().streams);
    let location = |stream: &&Stream| *stream.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    streams.iter().map(location).collect()
}
