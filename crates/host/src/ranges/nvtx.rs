//! NVIDIA's NVTX, version 3: a program that uses its header loads the library that NVTX_INJECTION64_PATH names, and asks it for
//! functions.

use super::{DEFAULT, DOMAINS_MAX, Interface, bytes, mark_named, new_domain, pop, push, started};
use crate::guard::guarded;
use crate::preloaded;
use scorep_abi::paradigm;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;

const NVTX: Interface = Interface { paradigm: paradigm::CUDA, name: "NVTX" };

/// NVTX's number for the table of callbacks.
const CALLBACKS: u32 = 1;
/// NVTX's numbers for the modules whose functions we set.
const CORE: c_int = 1;
const CORE2: c_int = 5;
/// The result of functions that do not return the depth of ranges.
const NO_DEPTH: c_int = -2;

/// NVTX's structure `NvtxExportTableCallbacks`, as far as it is used.
#[repr(C)]
struct ExportedCallbacks {
    bytes: usize,
    functions_of: Option<unsafe extern "C" fn(c_int, *mut *mut *mut Function, *mut c_uint) -> c_int>,
}

type Function = *const c_void;

/// NVTX's structure `nvtxEventAttributes_t` in version 2.
#[repr(C)]
struct Attributes {
    version: u16,
    bytes: u16,
    category: u32,
    colour_type: i32,
    colour: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

const ASCII: i32 = 1;
const UNICODE: i32 = 2;
const REGISTERED: i32 = 3;

/// Registered strings, which live as long as the process. Their addresses are the handles that NVTX gets.
static REGISTERED_STRINGS: Mutex<Option<HashMap<CString, usize>>> = Mutex::new(None);

/// Called once by each library that contains NVTX. Returns 1, or 0 if the library's ranges are not recorded.
///
/// # Safety
/// NVTX calls this with its own function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(
    export: Option<unsafe extern "C" fn(u32) -> *const c_void>,
) -> c_int {
    let Some(export) = export.filter(|_| preloaded::is_taken()) else { return 0 };
    guarded(0, || {
        // SAFETY: NVTX's function; the table with this number has this type, if there is one.
        let callbacks = unsafe { export(CALLBACKS).cast::<ExportedCallbacks>().as_ref() };
        let functions_of = callbacks
            .filter(|table| table.bytes >= size_of::<ExportedCallbacks>())
            .and_then(|table| table.functions_of);
        let Some(functions_of) = functions_of else { return 0 };
        let core: [(usize, Function); 11] = [
            (1, mark_attributes as Function),
            (2, mark_text as Function),
            (3, mark_wide as Function),
            (4, start_attributes as Function),
            (5, start_text as Function),
            (6, start_wide as Function),
            (7, end_range as Function),
            (8, push_attributes as Function),
            (9, push_text as Function),
            (10, push_wide as Function),
            (11, pop_range as Function),
        ];
        let domains: [(usize, Function); 9] = [
            (1, mark_in_domain as Function),
            (2, start_in_domain as Function),
            (3, end_in_domain as Function),
            (4, push_in_domain as Function),
            (5, pop_in_domain as Function),
            (10, register_text as Function),
            (11, register_wide as Function),
            (12, create_domain as Function),
            (13, create_domain as Function),
        ];
        // SAFETY: NVTX's function, and functions of the types that it needs in these places.
        c_int::from(unsafe { set(functions_of, CORE, &core) && set(functions_of, CORE2, &domains) })
    })
}

/// Sets functions of a module, each by its index. Returns `false` if the module has fewer functions.
unsafe fn set(
    functions_of: unsafe extern "C" fn(c_int, *mut *mut *mut Function, *mut c_uint) -> c_int,
    module: c_int,
    functions: &[(usize, Function)],
) -> bool {
    let (mut table, mut places) = (null_mut(), 0);
    // SAFETY: both live during the call.
    let is_there = unsafe { functions_of(module, &mut table, &mut places) } != 0 && !table.is_null();
    if !is_there || functions.iter().any(|(place, _)| *place >= places as usize) {
        return false;
    }
    for (place, function) in functions {
        // SAFETY: the table has `places` entries, each of which is null or the address where NVTX keeps the function that it
        // calls.
        if let Some(kept) = unsafe { (*table.add(*place)).as_mut() } {
            *kept = *function;
        }
    }
    true
}

/// Calls `each` with the message of an event, if there is one.
///
/// # Safety
/// `event` is null or comes from NVTX.
unsafe fn with_message(event: *const Attributes, each: impl FnOnce(&[u8])) {
    // SAFETY: the caller guarantees this.
    let Some(event) = (unsafe { event.as_ref() }) else { return };
    if usize::from(event.bytes) < size_of::<Attributes>() {
        return;
    }
    match event.message_type {
        // SAFETY: messages of these types are C strings; the handle of a registered string is the address of ours.
        ASCII | REGISTERED => each(unsafe { bytes(event.message.cast()) }),
        // SAFETY: messages of this type are strings of wide characters.
        UNICODE => unsafe { with_characters(event.message.cast(), each) },
        _ => each(b""),
    }
}

/// # Safety
/// `text` is null or a string of wide characters.
unsafe fn with_characters(text: *const libc::wchar_t, each: impl FnOnce(&[u8])) {
    // SAFETY: the caller guarantees this.
    let (utf8, used) = unsafe { to_utf8(text) };
    each(&utf8[..used]);
}

/// Returns the text as UTF-8, with the number of bytes in use, which is smaller than the array.
///
/// # Safety
/// `text` is null or a string of wide characters.
unsafe fn to_utf8(mut text: *const libc::wchar_t) -> ([u8; super::NAME_BYTES_MAX], usize) {
    let (mut utf8, mut used) = ([0; super::NAME_BYTES_MAX], 0);
    // SAFETY: `text` never moves past the string's end.
    while let Some(&wide) = unsafe { text.as_ref() }.filter(|wide| **wide != 0) {
        let character = char::from_u32(wide as u32).unwrap_or(char::REPLACEMENT_CHARACTER);
        if used + character.len_utf8() >= utf8.len() {
            break;
        }
        used += character.encode_utf8(&mut utf8[used..]).len();
        // SAFETY: this character was not the end.
        text = unsafe { text.add(1) };
    }
    (utf8, used)
}

/// Returns the number of a domain, from NVTX's handle: we hand out numbers as if they were addresses.
fn number(domain: *const c_void) -> usize {
    domain.addr().min(DOMAINS_MAX - 1)
}

fn mark(name: &[u8]) {
    mark_named(NVTX, name);
}

unsafe extern "C" fn mark_attributes(event: *const Attributes) {
    // SAFETY: NVTX's event.
    unsafe { with_message(event, mark) };
}

unsafe extern "C" fn mark_in_domain(_domain: *const c_void, event: *const Attributes) {
    // SAFETY: NVTX's event.
    unsafe { with_message(event, mark) };
}

unsafe extern "C" fn mark_text(text: *const c_char) {
    // SAFETY: NVTX's string.
    mark(unsafe { bytes(text) });
}

unsafe extern "C" fn mark_wide(text: *const libc::wchar_t) {
    // SAFETY: NVTX's string.
    unsafe { with_characters(text, mark) };
}

/// # Safety
/// `event` is null or comes from NVTX.
unsafe extern "C" fn start_attributes(event: *const Attributes) -> u64 {
    let mut id = 0;
    // SAFETY: the caller guarantees this.
    unsafe { with_message(event, |name| id = started::start_new(NVTX, name)) };
    id
}

unsafe extern "C" fn start_in_domain(_domain: *const c_void, event: *const Attributes) -> u64 {
    // SAFETY: NVTX's event.
    unsafe { start_attributes(event) }
}

unsafe extern "C" fn start_text(text: *const c_char) -> u64 {
    // SAFETY: NVTX's string.
    started::start_new(NVTX, unsafe { bytes(text) })
}

unsafe extern "C" fn start_wide(text: *const libc::wchar_t) -> u64 {
    let mut id = 0;
    // SAFETY: NVTX's string.
    unsafe { with_characters(text, |name| id = started::start_new(NVTX, name)) };
    id
}

extern "C" fn end_range(range: u64) {
    started::end_numbered(NVTX, range);
}

extern "C" fn end_in_domain(_domain: *const c_void, range: u64) {
    end_range(range);
}

unsafe extern "C" fn push_attributes(event: *const Attributes) -> c_int {
    // SAFETY: NVTX's event.
    unsafe { with_message(event, |name| push(NVTX, DEFAULT, name)) };
    NO_DEPTH
}

unsafe extern "C" fn push_in_domain(domain: *const c_void, event: *const Attributes) -> c_int {
    // SAFETY: NVTX's event.
    unsafe { with_message(event, |name| push(NVTX, number(domain), name)) };
    NO_DEPTH
}

unsafe extern "C" fn push_text(text: *const c_char) -> c_int {
    // SAFETY: NVTX's string.
    push(NVTX, DEFAULT, unsafe { bytes(text) });
    NO_DEPTH
}

unsafe extern "C" fn push_wide(text: *const libc::wchar_t) -> c_int {
    // SAFETY: NVTX's string.
    unsafe { with_characters(text, |name| push(NVTX, DEFAULT, name)) };
    NO_DEPTH
}

extern "C" fn pop_range() -> c_int {
    pop(DEFAULT);
    NO_DEPTH
}

extern "C" fn pop_in_domain(domain: *const c_void) -> c_int {
    pop(number(domain));
    NO_DEPTH
}

/// Makes a domain. Ranges of different domains nest independently of each other.
extern "C" fn create_domain(_name: *const c_void) -> *const c_void {
    std::ptr::without_provenance(new_domain())
}

/// Registers a string of wide characters. Its handle is that of the same string in UTF-8.
unsafe extern "C" fn register_wide(domain: *const c_void, text: *const libc::wchar_t) -> *const c_void {
    if text.is_null() {
        return null();
    }
    // SAFETY: NVTX's string; the bytes behind the text are zero.
    unsafe { register_text(domain, to_utf8(text).0.as_ptr().cast()) }
}

unsafe extern "C" fn register_text(_domain: *const c_void, text: *const c_char) -> *const c_void {
    if text.is_null() {
        return null();
    }
    guarded(null(), || {
        // SAFETY: NVTX's string.
        let text = unsafe { CStr::from_ptr(text) };
        let Ok(mut strings) = REGISTERED_STRINGS.lock() else { return null() };
        let strings = strings.get_or_insert_default();
        let place = match strings.get(text) {
            Some(place) => *place,
            None => {
                let kept: &'static CStr = Box::leak(text.to_owned().into_boxed_c_str());
                let place = kept.as_ptr().expose_provenance();
                strings.insert(text.to_owned(), place);
                place
            }
        };
        std::ptr::with_exposed_provenance(place)
    })
}
