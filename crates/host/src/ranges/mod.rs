//! Ranges that programs mark for tools are recorded as frames.
//!
//! ```text
//! nvtx.rs    NVIDIA's NVTX, whose header loads this library by NVTX_INJECTION64_PATH      roctx.rs    wrappers of AMD's roctx
//! kokkos.rs  the hooks of Kokkos' tools                                                   itt.rs    Intel's ITT
//! ompt.rs    OpenMP's interface for tools                    started.rs    ranges that are started and ended, of all interfaces
//! ```
//!
//! Pushed and popped ranges nest on a thread, as frames do. Ranges that are started and ended may overlap, and end on another
//! thread: they are counted and timed, and are not frames.

pub mod itt;
pub mod kokkos;
mod nvtx;
pub mod ompt;
pub mod roctx;
pub mod started;

use crate::definitions::{self, INVALID};
use crate::functions::enter_new;
use crate::guard::{count_missed, inside, inside_or};
use crate::measurement::{self, StartedBy};
use crate::regions_by_key::{RegionsByKey, hash};
use crate::state::{State, state};
use crate::thread::{DOMAINS_MAX, MPI_KEYS_END, NAMED_KEY, Slot};
use scorep_abi::{AnyHandle, paradigm, region_type};
use std::borrow::Cow;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The domain of ranges for which the program names no domain.
const DEFAULT: usize = 0;
/// The domain of Kokkos' kernels, copies and fences.
const KOKKOS_WORK: usize = 1;
/// The domain of Kokkos' regions: a program that ends too many of them does not end a kernel.
const KOKKOS_REGIONS: usize = 2;
/// The domains of OpenMP's parallel regions, of waiting, of explicit tasks and of target regions.
const OPENMP_PARALLEL: usize = 3;
const OPENMP_WAITS: usize = 4;
const OPENMP_TASKS: usize = 5;
const OPENMP_TARGETS: usize = 6;
/// The domain of MPI_Pcontrol's phases.
pub const PHASES: usize = 7;
/// The last domain with a fixed number. The domains that a program makes follow.
const FIXED_DOMAINS_LAST: usize = PHASES;

/// The largest number of names that get a region of their own: some programs number their ranges.
const NAMES_MAX: usize = 4096;
const OTHER_RANGES: &str = "(other ranges)";
const NAME_BYTES_MAX: usize = 512;

/// The number of domains so far. Those beyond [`DOMAINS_MAX`] count as the default domain.
static DOMAINS: AtomicUsize = AtomicUsize::new(FIXED_DOMAINS_LAST);

static RANGES: RegionsByKey = RegionsByKey::new();
/// The region of all further names, once there are [`NAMES_MAX`].
static OTHER: AtomicU32 = AtomicU32::new(INVALID);

/// An interface by which programs mark ranges: its paradigm, and its name, which regions show in place of a source file.
#[derive(Clone, Copy)]
pub struct Interface {
    pub paradigm: i32,
    pub name: &'static str,
}

impl Interface {
    /// Returns the key of the region with this name, which is a hash, and the name, cut to the length that is recorded.
    fn known_by(self, name: &[u8]) -> (usize, &[u8]) {
        let name = &name[..name.len().min(NAME_BYTES_MAX)];
        (hash(self.paradigm as u64, name), name)
    }
}

/// Returns the number of a new domain.
fn new_domain() -> usize {
    let number = DOMAINS.fetch_add(1, Ordering::Relaxed) + 1;
    if number < DOMAINS_MAX { number } else { DEFAULT }
}

/// Opens a frame of a domain.
pub fn push(interface: Interface, domain: usize, name: &[u8]) {
    let (known_by, name) = interface.known_by(name);
    push_known(domain, known_by, || define(interface, known_by, name));
}

/// Opens a frame of a region that is ended by its name.
pub fn push_named(interface: Interface, name: &[u8]) {
    let (known_by, name) = interface.known_by(name);
    push_with(NAMED_KEY, known_by, || define(interface, known_by, name));
}

/// Opens a frame of the region with this key. If there is none, `define` returns a new one.
#[inline(always)]
fn push_known(domain: usize, known_by: usize, define: impl FnOnce() -> AnyHandle) {
    push_with(MPI_KEYS_END + domain, known_by, define);
}

#[inline(always)]
fn push_with(key: usize, known_by: usize, define: impl FnOnce() -> AnyHandle) {
    inside_or(count_missed, |slot| {
        if state() == State::Running && !slot.thread.get().is_null() {
            let region = known_region(known_by);
            if region != INVALID {
                // SAFETY: this thread's own state, which nothing else uses while the slot is busy.
                unsafe { &mut *slot.thread.get() }.enter(key, region);
                return;
            }
        }
        push_first(slot, key, define);
    });
}

/// Returns the region with this key, or that of all further names; [`INVALID`] if there is none.
fn known_region(known_by: usize) -> AnyHandle {
    match RANGES.get(known_by) {
        INVALID => OTHER.load(Ordering::Relaxed),
        region => region,
    }
}

/// Handles the first range of the process, of the thread, or with this name.
#[cold]
fn push_first(slot: &Slot, key: usize, define: impl FnOnce() -> AnyHandle) {
    let is_running = match state() {
        State::New => measurement::start(slot, StartedBy::Range),
        state => state == State::Running,
    };
    if is_running {
        enter_new(slot, key, define);
    }
}

fn define(interface: Interface, known_by: usize, name: &[u8]) -> AnyHandle {
    RANGES.get_or_define(known_by, |names| {
        let (name, of) = match (names < NAMES_MAX, name) {
            (true, b"") => (Cow::from("(range)"), interface),
            (true, name) => (String::from_utf8_lossy(name), interface),
            (false, _) => (Cow::from(OTHER_RANGES), Interface { paradigm: paradigm::USER, name: "" }),
        };
        let region = definitions::region(&name, "", of.name, 0, region_type::USER, of.paradigm);
        if names >= NAMES_MAX {
            OTHER.store(region, Ordering::Relaxed);
        }
        region
    })
}

/// Closes the innermost frame of a domain.
pub fn pop(domain: usize) {
    inside((), |slot| {
        if state() == State::Running && !slot.thread.get().is_null() {
            // SAFETY: this thread's own state, which nothing else uses while the slot is busy.
            unsafe { &mut *slot.thread.get() }.leave_range(MPI_KEYS_END + domain);
        }
    });
}

/// Ends the innermost open region with this name, and the frames inside it.
pub fn pop_named(interface: Interface, name: &[u8]) {
    let region = known_region(interface.known_by(name).0);
    inside((), |slot| {
        if region != INVALID && state() == State::Running && !slot.thread.get().is_null() {
            // SAFETY: this thread's own state, which nothing else uses while the slot is busy.
            unsafe { &mut *slot.thread.get() }.leave_named(region);
        }
    });
}

/// Marks a moment, by a region that ends at once.
pub fn mark_named(interface: Interface, name: &[u8]) {
    push_named(interface, name);
    pop_named(interface, name);
}

/// # Safety
/// `text` is null or a C string that lives during the call.
pub unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: the caller guarantees this.
    if text.is_null() { &[] } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}
