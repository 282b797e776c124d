//! Definition handles: strings, source files, regions.
//!
//! Made under one lock, read without any: the plugin asks for a definition from inside `new_definition_handle`, while
//! the lock is held. A definition is never changed nor freed.

use crate::plugin;
use scorep_abi::{AnyHandle, handle_type};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Score-P's "invalid" handle; also the answer when the table is full.
pub const INVALID: AnyHandle = 0;

const CHUNK: usize = 1024;
const CHUNKS: usize = 1024;

/// What a handle stands for.
pub enum Definition {
    /// A string.
    String { text: CString },
    /// A source file.
    SourceFile { name: CString },
    /// A region.
    Region(Region),
}

/// A region as the plugin sees it.
pub struct Region {
    /// Sequence number among the regions.
    pub id: u32,
    /// As a person would write it.
    pub name: CString,
    /// As the linker knows it.
    pub canonical_name: CString,
    /// Empty when unknown.
    pub file: CString,
    /// 0 when unknown.
    pub line: u32,
    /// `SCOREP_RegionType`.
    pub region_type: i32,
    /// `SCOREP_ParadigmType`.
    pub paradigm: i32,
}

type Chunk = [AtomicPtr<Definition>; CHUNK];

static TABLE: [AtomicPtr<Chunk>; CHUNKS] = [const { AtomicPtr::new(null_mut()) }; CHUNKS];
static NEXT: AtomicU32 = AtomicU32::new(1);
static MAKING: Mutex<Option<Making>> = Mutex::new(None);

#[derive(Default)]
struct Making {
    files: HashMap<CString, AnyHandle>,
    regions: u32,
}

/// The definition behind a handle.
pub fn get(handle: AnyHandle) -> Option<&'static Definition> {
    let index = handle as usize;
    // Acquire, both: pairs with the Release stores in `add`.
    let chunk = TABLE.get(index / CHUNK)?.load(Ordering::Acquire);
    // SAFETY: chunks and definitions are leaked when made, and published whole.
    let definition = unsafe { chunk.as_ref() }?[index % CHUNK].load(Ordering::Acquire);
    // SAFETY: as above.
    unsafe { definition.as_ref() }
}

/// Stores a definition and tells the plugin. The caller holds `MAKING`.
fn add(definition: Definition, kind: i32) -> AnyHandle {
    let handle = NEXT.load(Ordering::Relaxed);
    let Some(place) = TABLE.get(handle as usize / CHUNK) else { return INVALID };
    if place.load(Ordering::Relaxed).is_null() {
        let chunk: Box<Chunk> = Box::new([const { AtomicPtr::new(null_mut()) }; CHUNK]);
        // Release pairs with the Acquire in `get`.
        place.store(Box::leak(chunk), Ordering::Release);
    }
    // SAFETY: stored just now or earlier, never freed.
    let chunk = unsafe { &*place.load(Ordering::Relaxed) };
    chunk[handle as usize % CHUNK].store(Box::leak(Box::new(definition)), Ordering::Release);
    NEXT.store(handle + 1, Ordering::Relaxed);
    plugin::new_definition(handle, kind);
    handle
}

/// Whether no more can be defined.
pub fn is_full() -> bool {
    NEXT.load(Ordering::Relaxed) as usize >= CHUNK * CHUNKS
}

fn c_string(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// Defines a string.
pub fn string(text: &str) -> AnyHandle {
    let _making = MAKING.lock();
    add(Definition::String { text: c_string(text) }, handle_type::STRING)
}

/// Defines a region, and its strings and its source file before it, as Score-P does.
pub fn region(
    name: &str,
    canonical_name: &str,
    file: &str,
    line: u32,
    region_type: i32,
    paradigm: i32,
) -> AnyHandle {
    let Ok(mut making) = MAKING.lock() else { return INVALID };
    let making = making.get_or_insert_default();
    let (name, canonical_name, file) = (c_string(name), c_string(canonical_name), c_string(file));
    add(Definition::String { text: name.clone() }, handle_type::STRING);
    if canonical_name != name {
        add(Definition::String { text: canonical_name.clone() }, handle_type::STRING);
    }
    if !file.is_empty() && !making.files.contains_key(&file) {
        add(Definition::String { text: file.clone() }, handle_type::STRING);
        let handle = add(Definition::SourceFile { name: file.clone() }, handle_type::SOURCE_FILE);
        making.files.insert(file.clone(), handle);
    }
    let id = making.regions;
    making.regions += 1;
    let region = Region { id, name, canonical_name, file, line, region_type, paradigm };
    add(Definition::Region(region), handle_type::REGION)
}

/// The text of a string, or the name of a source file or a region.
pub fn text(handle: AnyHandle) -> Option<&'static CStr> {
    Some(match get(handle)? {
        Definition::String { text } => text,
        Definition::SourceFile { name } => name,
        Definition::Region(region) => &region.name,
    })
}

/// The region behind a handle.
pub fn get_region(handle: AnyHandle) -> Option<&'static Region> {
    match get(handle)? {
        Definition::Region(region) => Some(region),
        _ => None,
    }
}
