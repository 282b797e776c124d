//! AMD's roctx: functions of the same names come first in a program that is linked with it, and call the library's own.

use super::{DEFAULT, Interface, bytes, pop, push};
use scorep_abi::paradigm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

const ROCTX: Interface = Interface { paradigm: paradigm::HIP, name: "roctx" };

static PUSH: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static POP: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// The library's own function. Null: this process has none.
fn next(name: &CStr, known: &AtomicPtr<c_void>) -> *mut c_void {
    let mut next = known.load(Ordering::Relaxed);
    if next.is_null() {
        // SAFETY: a lookup by name after this library.
        next = ampere_signal_safety::preserving_thread_state(|| unsafe {
            libc::dlsym(libc::RTLD_NEXT, name.as_ptr())
        });
        known.store(next, Ordering::Relaxed);
    }
    next
}

/// # Safety
/// As roctx's: a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn roctxRangePushA(message: *const c_char) -> c_int {
    // SAFETY: by the caller.
    push(ROCTX, DEFAULT, unsafe { bytes(message) });
    let next = next(c"roctxRangePushA", &PUSH);
    if next.is_null() {
        return -1;
    }
    // SAFETY: roctx's function of this name has this type.
    unsafe { transmute::<*mut c_void, extern "C" fn(*const c_char) -> c_int>(next)(message) }
}

/// As roctx's.
#[unsafe(no_mangle)]
pub extern "C" fn roctxRangePop() -> c_int {
    pop(DEFAULT);
    let next = next(c"roctxRangePop", &POP);
    if next.is_null() {
        return -1;
    }
    // SAFETY: roctx's function of this name has this type.
    unsafe { transmute::<*mut c_void, extern "C" fn() -> c_int>(next)() }
}
