//! AMD's roctx: wrappers that programs call in place of the library's functions.

use super::{DEFAULT, Interface, bytes, mark_named, pop, push, started};
use scorep_abi::paradigm;
use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

const ROCTX: Interface = Interface { paradigm: paradigm::HIP, name: "roctx" };

/// The library's own functions. They are set before the wrappers are called.
pub static PUSH: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
pub static POP: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
pub static MARK: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
pub static START: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
pub static STOP: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// The wrapper of `roctxRangePushA`.
///
/// # Safety
/// `message` is a C string, as roctx requires.
pub unsafe extern "C" fn push_range(message: *const c_char) -> c_int {
    // SAFETY: the caller guarantees this.
    push(ROCTX, DEFAULT, unsafe { bytes(message) });
    let own = PUSH.load(Ordering::Acquire);
    // SAFETY: this is roctx's function, which has this type.
    unsafe { transmute::<*mut c_void, extern "C" fn(*const c_char) -> c_int>(own)(message) }
}

pub extern "C" fn pop_range() -> c_int {
    pop(DEFAULT);
    let own = POP.load(Ordering::Acquire);
    // SAFETY: as above.
    unsafe { transmute::<*mut c_void, extern "C" fn() -> c_int>(own)() }
}

/// The wrapper of `roctxMarkA`.
///
/// # Safety
/// `message` is a C string, as roctx requires.
pub unsafe extern "C" fn mark(message: *const c_char) {
    // SAFETY: the caller guarantees this.
    mark_named(ROCTX, unsafe { bytes(message) });
    let own = MARK.load(Ordering::Acquire);
    // SAFETY: as above.
    unsafe { transmute::<*mut c_void, extern "C" fn(*const c_char)>(own)(message) }
}

/// The wrapper of `roctxRangeStartA`.
///
/// # Safety
/// `message` is a C string, as roctx requires.
pub unsafe extern "C" fn start_range(message: *const c_char) -> u64 {
    let own = START.load(Ordering::Acquire);
    // SAFETY: as above.
    let id = unsafe { transmute::<*mut c_void, extern "C" fn(*const c_char) -> u64>(own)(message) };
    // SAFETY: the caller guarantees this.
    started::start_numbered(ROCTX, id, unsafe { bytes(message) });
    id
}

pub extern "C" fn stop_range(id: u64) {
    started::end_numbered(ROCTX, id);
    let own = STOP.load(Ordering::Acquire);
    // SAFETY: as above.
    unsafe { transmute::<*mut c_void, extern "C" fn(u64)>(own)(id) };
}
