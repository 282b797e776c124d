//! The functions that the preloaded library (`crates/preload`) calls: it opens this library, attaches to it, and asks for
//! wrappers.

use crate::functions;
use crate::gpu::cupti;
use crate::guard::guarded;
use crate::measurement::is_scorep_linked;
use crate::mpi::wrappers;
use crate::preloaded::{self, Offer};
use crate::ranges::roctx;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::Ordering;

/// Returns the wrapper of a function, or null. Except for the function hooks, which replace the function, the wrapper calls
/// `target`, the definition that the program uses now: after a library was closed, it may be a different one. This is called
/// under the loader's lock, and neither allocates nor calls the loader.
type Wrap = unsafe extern "C" fn(name: *const c_char, target: *mut c_void) -> *mut c_void;

/// The preloaded library calls this once. `None` means that nothing in this process is to be measured.
///
/// # Safety
/// `offer` comes from the preloaded library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ampere_host_attach(offer: *const Offer) -> Option<Wrap> {
    // SAFETY: by the caller.
    let offer = unsafe { offer.as_ref() }?;
    guarded(None, || {
        if is_scorep_linked() || ampere_model::is_switched_off() {
            return None;
        }
        preloaded::take(offer);
        Some(wrap as Wrap)
    })
}

unsafe extern "C" fn wrap(name: *const c_char, target: *mut c_void) -> *mut c_void {
    // SAFETY: the name is that of an object's symbol.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    match name {
        b"__cyg_profile_func_enter" => functions::on_enter as *mut c_void,
        b"__cyg_profile_func_exit" => functions::on_exit as *mut c_void,
        b"roctxRangePushA" => {
            roctx::PUSH.store(target, Ordering::Release);
            roctx::push_range as *mut c_void
        }
        b"roctxRangePop" => {
            roctx::POP.store(target, Ordering::Release);
            roctx::pop_range as *mut c_void
        }
        b"cuptiSubscribe" => {
            cupti::SUBSCRIBE.store(target, Ordering::Release);
            cupti::subscribe as *mut c_void
        }
        b"cuptiSubscribe_v2" => {
            cupti::SUBSCRIBE_V2.store(target, Ordering::Release);
            cupti::subscribe_v2 as *mut c_void
        }
        _ => wrappers::wrapper(name, target),
    }
}
