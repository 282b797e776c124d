//! ampere's own interface, which the header `interface/ampere.h` finds by the variable AMPERE_INTERFACE: regions, marks, units of
//! work, and ranges across threads.
//!
//! Regions need the preloaded library. Units of work and ranges do not: they are also counted in a process that Score-P measures.

use crate::ranges::{Interface, bytes, mark_named, pop_named, push_named, started};
use crate::{counts, guard, preloaded};
use scorep_abi::paradigm;
use std::ffi::{c_char, c_uint};
use std::ptr::null;

const OWN: Interface = Interface { paradigm: paradigm::USER, name: "ampere.h" };

/// `struct ampere_functions` of the header. Functions may only be appended.
#[repr(C)]
pub struct Functions {
    region_begin: unsafe extern "C" fn(*const c_char),
    region_end: unsafe extern "C" fn(*const c_char),
    mark: unsafe extern "C" fn(*const c_char),
    work: unsafe extern "C" fn(*const c_char, f64),
    range_start: unsafe extern "C" fn(*const c_char) -> u64,
    range_end: extern "C" fn(u64),
}

static FUNCTIONS: Functions = Functions { region_begin, region_end, mark, work, range_start, range_end };
/// The functions in a process whose regions cannot be recorded.
static ONLY_COUNTS: Functions = Functions {
    region_begin: no_region,
    region_end: no_region,
    mark: no_region,
    work,
    range_start,
    range_end,
};

/// Returns the functions; null if nothing is measured in this process, or for a version that is not known.
#[unsafe(no_mangle)]
pub extern "C" fn ampere_interface(version: c_uint) -> *const Functions {
    const VERSION: c_uint = 1;
    if version != VERSION || guard::guarded(true, ampere_model::is_switched_off) {
        return null();
    }
    counts::prepare();
    if preloaded::is_taken() { &FUNCTIONS } else { &ONLY_COUNTS }
}

/// Returns the number of functions in [`Functions`]. A library without this function has the first four.
#[unsafe(no_mangle)]
pub extern "C" fn ampere_interface_functions() -> c_uint {
    (size_of::<Functions>() / size_of::<usize>()) as c_uint
}

unsafe extern "C" fn no_region(_name: *const c_char) {}

unsafe extern "C" fn region_begin(name: *const c_char) {
    // SAFETY: the header's functions get C strings, or null.
    push_named(OWN, unsafe { bytes(name) });
}

unsafe extern "C" fn region_end(name: *const c_char) {
    // SAFETY: as above.
    pop_named(OWN, unsafe { bytes(name) });
}

unsafe extern "C" fn mark(name: *const c_char) {
    // SAFETY: as above.
    mark_named(OWN, unsafe { bytes(name) });
}

unsafe extern "C" fn work(name: *const c_char, units: f64) {
    // SAFETY: as above.
    counts::work(unsafe { bytes(name) }, units);
}

unsafe extern "C" fn range_start(name: *const c_char) -> u64 {
    // SAFETY: as above.
    started::start_new(OWN, unsafe { bytes(name) })
}

extern "C" fn range_end(range: u64) {
    started::end_numbered(OWN, range);
}
