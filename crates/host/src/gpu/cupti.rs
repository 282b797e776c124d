//! Wraps the program's own subscriptions to CUPTI. CUPTI serves one tool at a time, so our adapter releases it first.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// CUPTI's own functions. They are set before the wrappers are called.
pub static SUBSCRIBE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
pub static SUBSCRIBE_V2: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// The adapter's function that releases CUPTI, an `extern "C" fn()`; null if there is none.
pub static RELEASE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

type Subscribe = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> c_int;
type SubscribeV2 = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut c_void) -> c_int;

fn leave() {
    let leave = RELEASE.load(Ordering::Acquire);
    if !leave.is_null() {
        // SAFETY: this is the adapter's function, which has this type.
        unsafe { transmute::<*mut c_void, extern "C" fn()>(leave)() }
    }
}

/// The wrapper of `cuptiSubscribe`.
///
/// # Safety
/// The caller must keep to the rules of CUPTI's function.
pub unsafe extern "C" fn subscribe(
    subscriber: *mut c_void,
    callback: *mut c_void,
    data: *mut c_void,
) -> c_int {
    leave();
    // SAFETY: this is CUPTI's function, which has this type.
    unsafe {
        transmute::<*mut c_void, Subscribe>(SUBSCRIBE.load(Ordering::Acquire))(subscriber, callback, data)
    }
}

/// The wrapper of `cuptiSubscribe_v2`.
///
/// # Safety
/// The caller must keep to the rules of CUPTI's function.
pub unsafe extern "C" fn subscribe_v2(
    subscriber: *mut c_void,
    callback: *mut c_void,
    data: *mut c_void,
    parameters: *mut c_void,
) -> c_int {
    leave();
    let own = SUBSCRIBE_V2.load(Ordering::Acquire);
    // SAFETY: this is CUPTI's function, which has this type.
    unsafe { transmute::<*mut c_void, SubscribeV2>(own)(subscriber, callback, data, parameters) }
}
