//! Locations: what a `SCOREP_Location*` of this host points to.

use scorep_abi::{Location, location_type};
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr};

/// The number of plugins that can attach data to a location: there is one.
pub const PLUGINS_MAX: usize = 1;

/// The host's data of a location. A `SCOREP_Location*` points to it.
pub struct LocationData {
    /// The sequence number in this process.
    pub id: u32,
    /// The name: "Master thread", "Pthread thread 1" and so on.
    pub name: CString,
    /// A value of Score-P's enum `SCOREP_LocationType`.
    pub location_type: i32,
    /// Whether the location is activated and not yet deactivated.
    pub active: AtomicBool,
    /// The data that plugins have attached, by plugin id.
    pub data: [AtomicPtr<c_void>; PLUGINS_MAX],
}

/// Makes a new location, which is never freed because the plugin keeps it.
pub fn new(id: usize) -> *mut Location {
    let name = if id == 0 { "Master thread".into() } else { format!("Pthread thread {id}") };
    let data = Box::new(LocationData {
        id: id as u32,
        name: CString::new(name).unwrap_or_default(),
        location_type: location_type::CPU_THREAD,
        active: AtomicBool::new(false),
        data: [const { AtomicPtr::new(null_mut()) }; PLUGINS_MAX],
    });
    Box::into_raw(data).cast()
}

/// The host's data of a location that this host made.
pub fn data(location: *mut Location) -> &'static LocationData {
    // SAFETY: locations are leaked `LocationData`.
    unsafe { &*location.cast::<LocationData>() }
}
