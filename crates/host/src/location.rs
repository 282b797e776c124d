//! Locations: the objects to which a `SCOREP_Location*` of this host points.

use scorep_abi::{Location, location_type};
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

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

/// The id of the next location.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Makes the location of the thread with this number; 0 is the master thread.
pub fn of_thread(number: usize) -> *mut Location {
    let name = if number == 0 { "Master thread".into() } else { format!("Pthread thread {number}") };
    new(CString::new(name).unwrap_or_default(), location_type::CPU_THREAD)
}

/// Makes a new location, which is never freed because the plugin keeps it. The first one of a process is a thread's.
pub fn new(name: CString, location_type: i32) -> *mut Location {
    let data = Box::new(LocationData {
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        name,
        location_type,
        active: AtomicBool::new(false),
        data: [const { AtomicPtr::new(null_mut()) }; PLUGINS_MAX],
    });
    Box::into_raw(data).cast()
}

/// Returns the host's data of a location that this host made.
pub fn data(location: *mut Location) -> &'static LocationData {
    // SAFETY: locations are leaked `LocationData`.
    unsafe { &*location.cast::<LocationData>() }
}
