//! Regions and their handles.
//!
//! Regions are made under a lock and read without one: the plugin asks for a region from inside `new_definition_handle`,
//! while the lock is held. A region is neither changed nor freed.

use crate::plugin;
use scorep_abi::{AnyHandle, handle_type};
use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Score-P's "invalid" handle. It also stands for a region that could not be defined.
pub const INVALID: AnyHandle = 0;
/// The handle for functions that are not to be recorded: their frames are tracked, but have no events.
pub const FILTERED: AnyHandle = AnyHandle::MAX;

/// The bit of a region whose frame was entered while the program had switched recording off.
pub const WHILE_OFF: AnyHandle = 1 << 31;

/// Whether a frame of this region has events: it is neither INVALID nor FILTERED, and was not entered while recording was off.
#[inline(always)]
pub fn is_recorded(region: AnyHandle) -> bool {
    region.wrapping_sub(1) < WHILE_OFF - 1
}

const CHUNK: usize = 1024;
const CHUNKS: usize = 1024;
/// The largest number of regions.
pub const REGIONS_MAX: usize = CHUNK * CHUNKS;

/// A region as the plugin sees it.
pub struct Region {
    /// The name, demangled if it is a function's.
    pub name: CString,
    /// The name that the linker uses.
    pub canonical_name: CString,
    /// The source file, empty if it is not known.
    pub file: CString,
    /// The line in the source file, 0 if it is not known.
    pub line: u32,
    /// A value of Score-P's enum `SCOREP_RegionType`.
    pub region_type: i32,
    /// A value of Score-P's enum `SCOREP_ParadigmType`.
    pub paradigm: i32,
}

type Chunk = [AtomicPtr<Region>; CHUNK];

static TABLE: [AtomicPtr<Chunk>; CHUNKS] = [const { AtomicPtr::new(null_mut()) }; CHUNKS];
static NEXT: AtomicU32 = AtomicU32::new(1);
static DEFINING: Mutex<()> = Mutex::new(());

pub fn get_region(handle: AnyHandle) -> Option<&'static Region> {
    let index = handle as usize;
    // Both loads acquire, which pairs with the Release stores in `region`.
    let chunk = TABLE.get(index / CHUNK)?.load(Ordering::Acquire);
    // SAFETY: chunks and regions are leaked, and published when they are complete.
    let region = unsafe { chunk.as_ref() }?[index % CHUNK].load(Ordering::Acquire);
    // SAFETY: as above.
    unsafe { region.as_ref() }
}

/// Whether no further region can be defined.
pub fn is_full() -> bool {
    NEXT.load(Ordering::Relaxed) as usize >= REGIONS_MAX
}

/// Defines a region and passes it to the plugin. Returns [`INVALID`] if the table is full.
pub fn region(
    name: &str,
    canonical_name: &str,
    file: &str,
    line: u32,
    region_type: i32,
    paradigm: i32,
) -> AnyHandle {
    let Ok(_defining) = DEFINING.lock() else { return INVALID };
    let handle = NEXT.load(Ordering::Relaxed);
    let Some(place) = TABLE.get(handle as usize / CHUNK) else { return INVALID };
    if place.load(Ordering::Relaxed).is_null() {
        let chunk: Box<Chunk> = Box::new([const { AtomicPtr::new(null_mut()) }; CHUNK]);
        // Release pairs with the Acquire in `get_region`.
        place.store(Box::leak(chunk), Ordering::Release);
    }
    let c_string = |text: &str| CString::new(text).unwrap_or_default();
    let region = Region {
        name: c_string(name),
        canonical_name: c_string(canonical_name),
        file: c_string(file),
        line,
        region_type,
        paradigm,
    };
    // SAFETY: the chunk was stored above or earlier, and is never freed.
    let chunk = unsafe { &*place.load(Ordering::Relaxed) };
    // Release pairs with the Acquire in `get_region`.
    chunk[handle as usize % CHUNK].store(Box::leak(Box::new(region)), Ordering::Release);
    NEXT.store(handle + 1, Ordering::Relaxed);
    plugin::new_definition(handle, handle_type::REGION);
    handle
}
