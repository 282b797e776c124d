//! Memory for OTF2's writers: at most one chunk for each open file, so that writing needs constant memory.
//!
//! OTF2 requests a chunk when it opens a file and whenever a chunk is full. If the second chunk is refused, it flushes the first
//! (the flush callback below agrees), frees all chunks and requests one again.

use otf2_sys as sys;
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;

pub(super) static MEMORY: sys::OTF2_MemoryCallbacks =
    sys::OTF2_MemoryCallbacks { otf2_allocate: Some(allocate), otf2_free_all: Some(free_all) };

/// Without a callback after the flush, no BufferFlush event is written: these flushes do not disturb a measurement.
pub(super) static FLUSH: sys::OTF2_FlushCallbacks =
    sys::OTF2_FlushCallbacks { otf2_pre_flush: Some(pre_flush), otf2_post_flush: None };

/// The chunk of one file.
struct Chunk {
    memory: *mut u8,
    layout: Layout,
    lent: bool,
}

/// OTF2 reserves one byte at the end of a chunk but writes two when it closes an event file.
const PADDING: usize = 64;

unsafe extern "C" fn allocate(
    _user_data: *mut c_void,
    _file_type: sys::OTF2_FileType,
    _location: sys::OTF2_LocationRef,
    per_buffer: *mut *mut c_void,
    size: u64,
) -> *mut c_void {
    let null = std::ptr::null_mut();
    // SAFETY: per_buffer is a field of OTF2's buffer: null at first, and otherwise what this function stored there and
    // free_all has not removed; nothing else reads it, and a buffer is used by one thread at a time.
    unsafe {
        if (*per_buffer).is_null() {
            let Ok(size) = usize::try_from(size) else { return null };
            let Ok(layout) = Layout::from_size_align(size.saturating_add(PADDING), 64) else { return null };
            let memory = alloc(layout);
            if memory.is_null() {
                return null;
            }
            *per_buffer = Box::into_raw(Box::new(Chunk { memory, layout, lent: true })).cast();
            return memory.cast();
        }
        let chunk = &mut *(*per_buffer).cast::<Chunk>();
        if chunk.lent {
            return null;
        }
        chunk.lent = true;
        chunk.memory.cast()
    }
}

unsafe extern "C" fn free_all(
    _user_data: *mut c_void,
    _file_type: sys::OTF2_FileType,
    _location: sys::OTF2_LocationRef,
    per_buffer: *mut *mut c_void,
    last: bool,
) {
    // SAFETY: see allocate. After the last call OTF2 does not use the chunk any more, and the pointer is set to null.
    unsafe {
        if (*per_buffer).is_null() {
            return;
        }
        if last {
            let chunk = Box::from_raw((*per_buffer).cast::<Chunk>());
            *per_buffer = std::ptr::null_mut();
            dealloc(chunk.memory, chunk.layout);
        } else {
            (*(*per_buffer).cast::<Chunk>()).lent = false;
        }
    }
}

unsafe extern "C" fn pre_flush(
    _user_data: *mut c_void,
    _file_type: sys::OTF2_FileType,
    _location: sys::OTF2_LocationRef,
    _caller_data: *mut c_void,
    _last: bool,
) -> sys::OTF2_FlushType {
    sys::OTF2_FLUSH as sys::OTF2_FlushType
}
