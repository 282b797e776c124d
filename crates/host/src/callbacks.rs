//! The functions that the plugin can call: the entries of Score-P's callback table that our plugin needs under this host.
//! The others are NULL, including those that the plugin uses only for events that this host does not send, such as calling
//! contexts.

use crate::definitions::get_region;
use crate::location::{LocationData, PLUGINS_MAX};
use crate::ranks;
use scorep_abi::{AnyHandle, Callbacks, Location, location_type, paradigm, region_type};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering;

pub static TABLE: Callbacks = Callbacks {
    ipc_get_size: Some(ipc_size),
    ipc_get_rank: Some(ipc_rank),
    location_get_type: Some(location_type_of),
    location_get_name: Some(location_name),
    location_get_id: Some(location_id),
    location_set_data: Some(location_set_data),
    location_get_data: Some(location_get_data),
    region_handle_get_name: Some(region_name),
    region_handle_get_canonical_name: Some(region_canonical_name),
    region_handle_get_file_name: Some(region_file),
    region_handle_get_begin_line: Some(region_line),
    region_handle_get_end_line: Some(region_end_line),
    region_handle_get_type: Some(region_type_of),
    region_handle_get_paradigm_type: Some(region_paradigm),
    ..Callbacks::EMPTY
};

unsafe extern "C" fn ipc_size() -> c_int {
    ranks::SIZE.load(Ordering::Relaxed)
}

unsafe extern "C" fn ipc_rank() -> c_int {
    ranks::RANK.load(Ordering::Relaxed)
}

/// Returns the host's data behind a location pointer.
fn data(location: *const Location) -> Option<&'static LocationData> {
    // SAFETY: all pointers that this host hands out as locations point to leaked `LocationData`.
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
