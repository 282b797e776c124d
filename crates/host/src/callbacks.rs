//! What the plugin can ask of its host: Score-P's callback table.
//!
//! What this host does not have (calling contexts, metrics, parameters, sampling sets, the manifest) is null in the
//! table, and a plugin has to look.

use crate::definitions::{self, get_region};
use crate::thread::{LocationData, PLUGINS_MAX};
use crate::{ipc, measurement, mpi};
use scorep_abi::{AnyHandle, Callbacks, Location, location_type, paradigm, region_type};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

static TABLE: OnceLock<Callbacks> = OnceLock::new();

/// The table. The collective functions are in it only if every process is known to have this host (see [`ipc`]).
pub fn table() -> &'static Callbacks {
    TABLE.get_or_init(|| {
        let table = Callbacks {
            get_experiment_dir_name: Some(experiment_dir_name),
            ipc_get_size: Some(ipc_size),
            ipc_get_rank: Some(ipc_rank),
            location_get_type: Some(location_type_of),
            location_get_name: Some(location_name),
            location_get_id: Some(location_id),
            location_get_global_id: Some(location_global_id),
            location_set_data: Some(location_set_data),
            location_get_data: Some(location_get_data),
            paradigm_handle_get_name: None,
            region_handle_get_id: Some(region_id),
            region_handle_get_name: Some(region_name),
            region_handle_get_canonical_name: Some(region_canonical_name),
            region_handle_get_file_name: Some(region_file),
            region_handle_get_begin_line: Some(region_line),
            region_handle_get_end_line: Some(region_end_line),
            region_handle_get_type: Some(region_type_of),
            region_handle_get_paradigm_type: Some(region_paradigm),
            source_file_handle_get_name: Some(text),
            string_handle_get: Some(text),
            ..Callbacks::EMPTY
        };
        if ipc::wanted() { ipc::with_collectives(table) } else { table }
    })
}

unsafe extern "C" fn experiment_dir_name() -> *const c_char {
    measurement::experiment_directory().map_or(null(), CStr::as_ptr)
}

unsafe extern "C" fn ipc_size() -> c_int {
    mpi::SIZE.load(Ordering::Relaxed)
}

unsafe extern "C" fn ipc_rank() -> c_int {
    mpi::RANK.load(Ordering::Relaxed)
}

/// The location behind the pointer.
fn data(location: *const Location) -> Option<&'static LocationData> {
    // SAFETY: the only pointers that this host hands out as locations are leaked `LocationData`.
    unsafe { location.cast::<LocationData>().as_ref() }
}

unsafe extern "C" fn location_type_of(location: *const Location) -> c_int {
    data(location).map_or(location_type::INVALID, |data| data.location_type)
}

unsafe extern "C" fn location_name(location: *const Location) -> *const c_char {
    data(location).map_or(null(), |data| data.name.as_ptr())
}

unsafe extern "C" fn location_id(location: *const Location) -> u32 {
    data(location).map_or(u32::MAX, |data| data.id)
}

unsafe extern "C" fn location_global_id(location: *const Location) -> u64 {
    // Score-P would abort the application here. We give what rank 0 would have.
    if cfg!(debug_assertions) && !measurement::mpp_is_known() {
        crate::report::say(format_args!("the plugin asked for a global location id before init_mpp"));
    }
    let rank = mpi::RANK.load(Ordering::Relaxed) as u32;
    u64::from(data(location).map_or(u32::MAX, |data| data.id)) << 32 | u64::from(rank)
}

unsafe extern "C" fn location_set_data(location: *const Location, plugin: usize, value: *mut c_void) {
    if let Some(data) = data(location).filter(|_| plugin < PLUGINS_MAX) {
        // Release pairs with the Acquire below.
        data.data[plugin].store(value, Ordering::Release);
    }
}

unsafe extern "C" fn location_get_data(location: *const Location, plugin: usize) -> *mut c_void {
    match data(location) {
        Some(data) if plugin < PLUGINS_MAX => data.data[plugin].load(Ordering::Acquire),
        _ => null_mut(),
    }
}

unsafe extern "C" fn region_id(handle: AnyHandle) -> u32 {
    get_region(handle).map_or(u32::MAX, |region| region.id)
}

unsafe extern "C" fn region_name(handle: AnyHandle) -> *const c_char {
    get_region(handle).map_or(null(), |region| region.name.as_ptr())
}

unsafe extern "C" fn region_canonical_name(handle: AnyHandle) -> *const c_char {
    get_region(handle).map_or(null(), |region| region.canonical_name.as_ptr())
}

unsafe extern "C" fn region_file(handle: AnyHandle) -> *const c_char {
    get_region(handle).filter(|region| !region.file.is_empty()).map_or(null(), |region| region.file.as_ptr())
}

unsafe extern "C" fn region_line(handle: AnyHandle) -> u32 {
    get_region(handle).map_or(0, |region| region.line)
}

unsafe extern "C" fn region_end_line(_handle: AnyHandle) -> u32 {
    0
}

unsafe extern "C" fn region_type_of(handle: AnyHandle) -> c_int {
    get_region(handle).map_or(region_type::INVALID, |region| region.region_type)
}

unsafe extern "C" fn region_paradigm(handle: AnyHandle) -> c_int {
    get_region(handle).map_or(paradigm::INVALID, |region| region.paradigm)
}

unsafe extern "C" fn text(handle: AnyHandle) -> *const c_char {
    definitions::text(handle).map_or(null(), CStr::as_ptr)
}
