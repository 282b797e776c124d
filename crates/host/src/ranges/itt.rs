//! Intel's ITT. Each library that marks tasks contains ITT's static part. It opens the library that INTEL_LIBITTNOTIFY64 names,
//! and passes its table of functions to `__itt_api_init`, for which the preloaded library answers with [`api_init`]. Tasks are
//! frames. Overlapped tasks and regions are counted and timed; frames of ITT are not recorded.

use super::{Interface, bytes, new_domain, pop, push, started};
use crate::guard::guarded;
use scorep_abi::paradigm;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_ulong, c_void};
use std::ptr::{null, with_exposed_provenance};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

const ITT: Interface = Interface { paradigm: paradigm::USER, name: "ITT" };

/// The structure `__itt_global`, as far as it is used.
#[repr(C)]
pub struct Global {
    magic: [u8; 8],
    version: [c_ulong; 3],
    counts: [c_long; 3],
    mutex: libc::pthread_mutex_t,
    library: *mut c_void,
    error_handler: *mut c_void,
    paths: *mut c_void,
    functions: *mut Function,
}

/// The structure `__itt_api_info`: a function that the program calls through `*called`.
#[repr(C)]
struct Function {
    name: *const c_char,
    called: *mut *const c_void,
    first: *const c_void,
    /// The static part's own version of the function, or null.
    own: *const c_void,
    group: c_int,
}

const MAGIC: [u8; 8] = [0xED, 0xAB, 0xAB, 0xEC, 0x0D, 0xEE, 0xDA, 0x30];
const VERSION_MAJOR: c_ulong = 3;
/// Up to this build, the static part has another table.
const OLD_BUILD: c_ulong = 20101001;

/// The structure `__itt_domain`.
#[repr(C)]
struct Domain {
    /// Whether the program calls functions with this domain.
    flags: c_int,
    name: *const c_char,
    wide_name: *const c_void,
    /// ITT reserves this field for the tool. Here, it is the number of the domain, or 0 if the domain has none yet.
    number: AtomicI32,
    rest: [*const c_void; 2],
}

#[repr(C)]
struct Id {
    parts: [u64; 3],
}

/// The structure `__itt_string_handle`.
#[repr(C)]
struct Text {
    text: *const c_char,
    rest: [*const c_void; 4],
}

/// The addresses of structures, by their names. They live as long as the process. All structures of one map have the same type.
type Kept = Mutex<Option<HashMap<CString, usize>>>;
static DOMAINS: Kept = Mutex::new(None);
static TEXTS: Kept = Mutex::new(None);

/// Sets the functions of a static part. Functions that are not recorded are set to the static part's own versions. After
/// this call, its versions of the two functions that create domains and strings would only return disabled ones, so ours
/// replace them.
///
/// # Safety
/// ITT's static part calls this with its own structure.
pub unsafe extern "C" fn api_init(global: *const Global, _groups: c_int) {
    // SAFETY: the caller guarantees this.
    let Some(global) = (unsafe { global.as_ref() }) else { return };
    let [major, _, build] = global.version;
    if global.magic != MAGIC || major != VERSION_MAJOR || build <= OLD_BUILD {
        return;
    }
    let mut function = global.functions;
    // SAFETY: the table ends with a function without a name, and each entry has a place for the called function.
    unsafe {
        while !(*function).name.is_null() {
            *(*function).called = match CStr::from_ptr((*function).name).to_bytes() {
                b"__itt_domain_create" => create_domain as *const c_void,
                b"__itt_string_handle_create" => create_text as *const c_void,
                b"__itt_task_begin" => begin as *const c_void,
                b"__itt_task_begin_fn" => begin_function as *const c_void,
                b"__itt_task_end" => end as *const c_void,
                b"__itt_task_begin_overlapped" | b"__itt_region_begin" => begin_overlapped as *const c_void,
                b"__itt_task_end_overlapped" | b"__itt_region_end" => end_overlapped as *const c_void,
                _ => (*function).own,
            };
            function = function.add(1);
        }
    }
}

/// Returns the structure with this name, and makes it if there is none. Null if the name is null.
///
/// # Safety
/// `name` is null or a C string, and all structures of `kept` have the type `T`.
unsafe fn keep<T>(kept: &Kept, name: *const c_char, make: impl FnOnce(*const c_char) -> T) -> *const T {
    if name.is_null() {
        return null();
    }
    guarded(null(), || {
        // SAFETY: the caller guarantees this.
        let name = unsafe { CStr::from_ptr(name) };
        let mut kept = kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let kept = kept.get_or_insert_default();
        if let Some(place) = kept.get(name) {
            return with_exposed_provenance(*place);
        }
        let made: *const T =
            Box::leak(Box::new(make(Box::leak(name.to_owned().into_boxed_c_str()).as_ptr())));
        kept.insert(name.to_owned(), made.expose_provenance());
        made
    })
}

unsafe extern "C" fn create_domain(name: *const c_char) -> *const Domain {
    let make =
        |name| Domain { flags: 1, name, wide_name: null(), number: AtomicI32::new(0), rest: [null(); 2] };
    // SAFETY: ITT's string, and nothing else is kept there.
    unsafe { keep(&DOMAINS, name, make) }
}

unsafe extern "C" fn create_text(text: *const c_char) -> *const Text {
    // SAFETY: as above.
    unsafe { keep(&TEXTS, text, |text| Text { text, rest: [null(); 4] }) }
}

/// Returns the number of a domain. Tasks of different domains nest independently of each other.
///
/// # Safety
/// `domain` is null or comes from the static part.
unsafe fn number(domain: *const Domain) -> usize {
    // SAFETY: the caller guarantees this.
    let Some(number) = (unsafe { domain.as_ref() }).map(|domain| &domain.number) else {
        return super::DEFAULT;
    };
    if number.load(Ordering::Relaxed) == 0 {
        // If another thread was faster, its number is kept.
        let _ = number.compare_exchange(0, new_domain() as i32, Ordering::Relaxed, Ordering::Relaxed);
    }
    number.load(Ordering::Relaxed) as usize
}

unsafe extern "C" fn begin(domain: *const Domain, _task: Id, _parent: Id, name: *const Text) {
    // SAFETY: these are handles of the static part, whose strings live as long as the process.
    unsafe { push(ITT, number(domain), name.as_ref().map_or(b"", |name| bytes(name.text))) };
}

/// Begins a task for which the program passes a function in place of a name. The function's name is not looked up while the
/// program runs.
unsafe extern "C" fn begin_function(domain: *const Domain, _task: Id, _parent: Id, _function: *const c_void) {
    // SAFETY: this is a handle of the static part.
    push(ITT, unsafe { number(domain) }, b"(task)");
}

unsafe extern "C" fn end(domain: *const Domain) {
    // SAFETY: this is a handle of the static part.
    pop(unsafe { number(domain) });
}

fn key(domain: *const Domain, id: &Id) -> usize {
    let [first, second, third] = id.parts;
    started::key(ITT, [domain.addr() as u64, first, second, third])
}

/// Begins a task or region that may overlap others, and that may end on another thread.
unsafe extern "C" fn begin_overlapped(domain: *const Domain, id: Id, _parent: Id, name: *const Text) {
    // SAFETY: these are handles of the static part, whose strings live as long as the process.
    let name = unsafe { name.as_ref().map_or(b"".as_slice(), |name| bytes(name.text)) };
    started::start(ITT, key(domain, &id), name);
}

unsafe extern "C" fn end_overlapped(domain: *const Domain, id: Id) {
    started::end(key(domain, &id));
}
