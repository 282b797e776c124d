//! Kokkos: the hooks of its interface for tools. Kokkos opens the library that KOKKOS_TOOLS_LIBS names, and looks up each hook by
//! its name; the preloaded library answers with the functions of this file. If the program uses another tool, each of them calls
//! that tool's hook, and hooks that the tool lacks stay absent: Kokkos behaves as with that tool alone.

use super::{Interface, KOKKOS_REGIONS, KOKKOS_WORK, NAME_BYTES_MAX, bytes, pop, push, started};
use crate::plugin;
use scorep_abi::paradigm;
use std::ffi::{c_char, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

const KOKKOS: Interface = Interface { paradigm: paradigm::KOKKOS, name: "Kokkos" };

/// Kokkos' structure with the name of a memory space.
#[derive(Clone, Copy)]
#[repr(C)]
struct Space {
    name: [u8; 64],
}

/// The first field of Kokkos' structure with the needs of a tool.
#[repr(C)]
struct Settings {
    requires_global_fencing: bool,
}

/// The numbers of the pairs of hooks. Those around kernels and fences, the first four, have the same types.
const FOR: usize = 0;
const REDUCE: usize = 1;
const SCAN: usize = 2;
const FENCE: usize = 3;
const COPY: usize = 4;
const REGION: usize = 5;
/// The creation and destruction of a section, which may overlap others.
const SECTION: usize = 6;
/// The start and the stop of a section.
const SECTION_RUN: usize = 7;
const PAIRS: usize = 8;

/// The numbers of the names of sections, by the sections' numbers.
static SECTIONS: started::Table = started::Table::new();
static LAST_SECTION: AtomicU32 = AtomicU32::new(0);

/// The hooks of another tool, two for each pair. Each is [`UNKNOWN`] until Kokkos looks it up, and null if there is no such hook.
static OTHERS: [[AtomicPtr<c_void>; 2]; PAIRS] = [const { [const { AtomicPtr::new(UNKNOWN) }; 2] }; PAIRS];
const UNKNOWN: *mut c_void = std::ptr::without_provenance_mut(1);

type Begin = unsafe extern "C" fn(*const c_char, u32, *mut u64);
type End = unsafe extern "C" fn(u64);
type BeginCopy =
    unsafe extern "C" fn(Space, *const c_char, *const c_void, Space, *const c_char, *const c_void, u64);
type BeginRegion = unsafe extern "C" fn(*const c_char);
type CreateSection = unsafe extern "C" fn(*const c_char, *mut u32);
type OfSection = unsafe extern "C" fn(u32);
type Plain = unsafe extern "C" fn();

/// Returns our hook of this name, or null if there is none. `other` is the hook of the program's own tool, or null. A tool may
/// open further tools, as Kokkos does; only the hooks of the first tool, which Kokkos itself calls, are wrapped by ours.
pub fn hook(name: &[u8], other: *mut c_void) -> *mut c_void {
    let ((pair, side), ours) = match name {
        b"kokkosp_begin_parallel_for" => ((FOR, 0), begin::<FOR> as Begin as *mut c_void),
        b"kokkosp_end_parallel_for" => ((FOR, 1), end::<FOR> as End as *mut c_void),
        b"kokkosp_begin_parallel_reduce" => ((REDUCE, 0), begin::<REDUCE> as Begin as *mut c_void),
        b"kokkosp_end_parallel_reduce" => ((REDUCE, 1), end::<REDUCE> as End as *mut c_void),
        b"kokkosp_begin_parallel_scan" => ((SCAN, 0), begin::<SCAN> as Begin as *mut c_void),
        b"kokkosp_end_parallel_scan" => ((SCAN, 1), end::<SCAN> as End as *mut c_void),
        b"kokkosp_begin_fence" => ((FENCE, 0), begin::<FENCE> as Begin as *mut c_void),
        b"kokkosp_end_fence" => ((FENCE, 1), end::<FENCE> as End as *mut c_void),
        b"kokkosp_begin_deep_copy" => ((COPY, 0), begin_copy as BeginCopy as *mut c_void),
        b"kokkosp_end_deep_copy" => ((COPY, 1), end_copy as Plain as *mut c_void),
        b"kokkosp_push_profile_region" => ((REGION, 0), begin_region as BeginRegion as *mut c_void),
        b"kokkosp_pop_profile_region" => ((REGION, 1), end_region as Plain as *mut c_void),
        b"kokkosp_create_profile_section" => ((SECTION, 0), create_section as CreateSection as *mut c_void),
        b"kokkosp_destroy_profile_section" => ((SECTION, 1), destroy_section as OfSection as *mut c_void),
        b"kokkosp_start_profile_section" => ((SECTION_RUN, 0), start_section as OfSection as *mut c_void),
        b"kokkosp_stop_profile_section" => ((SECTION_RUN, 1), stop_section as OfSection as *mut c_void),
        b"kokkosp_request_tool_settings" if other.is_null() => return settings as *mut c_void,
        _ => return null_mut(),
    };
    let known = OTHERS[pair][side].compare_exchange(UNKNOWN, other, Ordering::AcqRel, Ordering::Acquire);
    if known.is_ok() || known == Err(other) { ours } else { null_mut() }
}

/// Returns the other tool's hook, if there is one.
fn other(pair: usize, side: usize) -> Option<*mut c_void> {
    let hook = OTHERS[pair][side].load(Ordering::Acquire);
    Some(hook).filter(|hook| !hook.is_null() && *hook != UNKNOWN)
}

/// Asks for no fences: without this hook, Kokkos would wait for the device before and after each kernel.
unsafe extern "C" fn settings(_count: u32, settings: *mut Settings) {
    // SAFETY: Kokkos' structure.
    if let Some(settings) = unsafe { settings.as_mut() } {
        settings.requires_global_fencing = false;
    }
}

unsafe extern "C" fn begin<const PAIR: usize>(name: *const c_char, device: u32, id: *mut u64) {
    if let Some(other) = other(PAIR, 0) {
        // SAFETY: the hook of this name has this type, and gets what Kokkos passes.
        unsafe { transmute::<*mut c_void, Begin>(other)(name, device, id) };
    }
    // SAFETY: Kokkos' string.
    push(KOKKOS, KOKKOS_WORK, unsafe { bytes(name) });
}

unsafe extern "C" fn end<const PAIR: usize>(id: u64) {
    pop(KOKKOS_WORK);
    if let Some(other) = other(PAIR, 1) {
        // SAFETY: as above.
        unsafe { transmute::<*mut c_void, End>(other)(id) };
    }
}

/// Kokkos names the two arrays of a copy, but not the copy.
unsafe extern "C" fn begin_copy(
    to: Space,
    to_label: *const c_char,
    to_data: *const c_void,
    from: Space,
    from_label: *const c_char,
    from_data: *const c_void,
    size: u64,
) {
    if let Some(other) = other(COPY, 0) {
        // SAFETY: as above.
        unsafe {
            transmute::<*mut c_void, BeginCopy>(other)(
                to, to_label, to_data, from, from_label, from_data, size,
            )
        };
    }
    let (mut name, mut used) = ([0; NAME_BYTES_MAX], 0);
    // SAFETY: Kokkos' strings.
    let (to, from) = unsafe { (bytes(to_label), bytes(from_label)) };
    for part in [b"deep_copy(", to, b", ", from, b")"] {
        let part = &part[..part.len().min(name.len() - used)];
        name[used..][..part.len()].copy_from_slice(part);
        used += part.len();
    }
    push(KOKKOS, KOKKOS_WORK, &name[..used]);
}

unsafe extern "C" fn end_copy() {
    pop(KOKKOS_WORK);
    if let Some(other) = other(COPY, 1) {
        // SAFETY: as above.
        unsafe { transmute::<*mut c_void, Plain>(other)() };
    }
}

unsafe extern "C" fn begin_region(name: *const c_char) {
    if let Some(other) = other(REGION, 0) {
        // SAFETY: as above.
        unsafe { transmute::<*mut c_void, BeginRegion>(other)(name) };
    }
    // SAFETY: Kokkos' string.
    push(KOKKOS, KOKKOS_REGIONS, unsafe { bytes(name) });
}

unsafe extern "C" fn end_region() {
    pop(KOKKOS_REGIONS);
    if let Some(other) = other(REGION, 1) {
        // SAFETY: as above.
        unsafe { transmute::<*mut c_void, Plain>(other)() };
    }
}

fn section_key(id: u32) -> usize {
    started::key(KOKKOS, [u64::from(id), 0, 0, 0])
}

/// Calls the other tool's hook for a section, if there is one.
fn pass_section_on(pair: usize, side: usize, id: u32) {
    if let Some(other) = other(pair, side) {
        // SAFETY: as above.
        unsafe { transmute::<*mut c_void, OfSection>(other)(id) };
    }
}

/// Kokkos leaves it to the tool to number the sections.
unsafe extern "C" fn create_section(name: *const c_char, id: *mut u32) {
    match other(SECTION, 0) {
        // SAFETY: as above.
        Some(other) => unsafe { transmute::<*mut c_void, CreateSection>(other)(name, id) },
        // SAFETY: Kokkos' variable.
        None => unsafe { *id = LAST_SECTION.fetch_add(1, Ordering::Relaxed) + 1 },
    }
    // SAFETY: Kokkos' variable and string.
    let (key, name) = unsafe { (section_key(*id), bytes(name)) };
    let _ = SECTIONS.take(key);
    if !SECTIONS.put(key, started::number_of(KOKKOS, name), 0) {
        plugin::leave_out_range();
    }
}

unsafe extern "C" fn destroy_section(id: u32) {
    let _ = SECTIONS.take(section_key(id));
    pass_section_on(SECTION, 1, id);
}

unsafe extern "C" fn start_section(id: u32) {
    pass_section_on(SECTION_RUN, 0, id);
    if let Some(number) = SECTIONS.get(section_key(id)) {
        started::start_of(section_key(id), number);
    }
}

unsafe extern "C" fn stop_section(id: u32) {
    started::end(section_key(id));
    pass_section_on(SECTION_RUN, 1, id);
}
