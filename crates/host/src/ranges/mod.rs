//! Ranges that programs mark with NVTX or roctx are recorded as frames.
//!
//! ```text
//! nvtx.rs    NVIDIA's NVTX, whose header loads this library by NVTX_INJECTION64_PATH      roctx.rs    wrappers of AMD's roctx
//! ```
//!
//! Pushed and popped ranges nest on a thread, as frames do. Ranges that are started and stopped are not recorded: they may
//! overlap, and end on another thread.

mod nvtx;
pub mod roctx;

use crate::definitions::{self, INVALID};
use crate::functions::enter_new;
use crate::guard::{count_missed, inside, inside_or};
use crate::measurement::{self, StartedBy};
use crate::regions_by_key::{RegionsByKey, hash};
use crate::state::{State, state};
use crate::thread::{DOMAINS_MAX, MPI_KEYS_END, Slot};
use scorep_abi::{AnyHandle, region_type};
use std::ffi::{CStr, c_char};

/// The domain of ranges for which the program names no domain.
const DEFAULT: usize = 0;

/// The largest number of names that get a region of their own: some programs number their ranges.
const NAMES_MAX: usize = 4096;
const OTHER_RANGES: &CStr = c"(other ranges)";
const NAME_BYTES_MAX: usize = 512;

static RANGES: RegionsByKey = RegionsByKey::new();

/// An interface by which programs mark ranges: its paradigm, and its name, which regions show in place of a source file.
#[derive(Clone, Copy)]
struct Interface {
    paradigm: i32,
    name: &'static str,
}

fn push(interface: Interface, domain: usize, name: &[u8]) {
    let name = &name[..name.len().min(NAME_BYTES_MAX)];
    let (key, known_by) = (MPI_KEYS_END + domain, hash(interface.paradigm as u64, name));
    inside_or(count_missed, |slot| {
        if state() == State::Running && !slot.thread.get().is_null() {
            let region = RANGES.get(known_by);
            if region != INVALID {
                // SAFETY: this thread's own state, which nothing else uses while the slot is busy.
                unsafe { &mut *slot.thread.get() }.enter(key, region);
                return;
            }
        }
        push_first(slot, key, || define(interface, known_by, name));
    });
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
        let name = if names < NAMES_MAX { name } else { OTHER_RANGES.to_bytes() };
        let name = if name.is_empty() { b"(range)" } else { name };
        let name = String::from_utf8_lossy(name);
        definitions::region(&name, "", interface.name, 0, region_type::USER, interface.paradigm)
    })
}

fn pop(domain: usize) {
    inside((), |slot| {
        if state() == State::Running && !slot.thread.get().is_null() {
            // SAFETY: this thread's own state, which nothing else uses while the slot is busy.
            unsafe { &mut *slot.thread.get() }.leave_range(MPI_KEYS_END + domain);
        }
    });
}

/// # Safety
/// `text` is null or a C string that lives during the call.
unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: by the caller.
    if text.is_null() { &[] } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}
