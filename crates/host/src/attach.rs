//! The functions that the preloaded library (`crates/preload`) calls: it opens this library, attaches to it, and asks for
//! wrappers.

use crate::functions;
use crate::gpu::cupti;
use crate::guard::guarded;
use crate::mpi::{pcontrol, wrappers};
use crate::preloaded::{self, Offer};
use crate::ranges::{itt, kokkos, ompt, roctx};
use ampere_gpu::is_scorep_linked;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

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
    // SAFETY: the caller guarantees this.
    let offer = unsafe { offer.as_ref() }?;
    guarded(None, || {
        if is_scorep_linked() || ampere_model::is_switched_off() {
            return None;
        }
        // The program may close its standard error before the measurement starts, and open another file in its place.
        ampere_signal_safety::remember_standard_error();
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
        b"roctxRangePushA" => keep(&roctx::PUSH, target, roctx::push_range as *mut c_void),
        b"roctxRangePop" => keep(&roctx::POP, target, roctx::pop_range as *mut c_void),
        b"roctxMarkA" => keep(&roctx::MARK, target, roctx::mark as *mut c_void),
        b"roctxRangeStartA" => keep(&roctx::START, target, roctx::start_range as *mut c_void),
        b"roctxRangeStop" => keep(&roctx::STOP, target, roctx::stop_range as *mut c_void),
        _ if name.starts_with(b"kokkosp_") => kokkos::hook(name, target),
        b"__itt_api_init" if target.is_null() => itt::api_init as *mut c_void,
        b"ompt_start_tool" if target.is_null() => ompt::start_tool as *mut c_void,
        b"cuptiSubscribe" => keep(&cupti::SUBSCRIBE, target, cupti::subscribe as *mut c_void),
        b"cuptiSubscribe_v2" => keep(&cupti::SUBSCRIBE_V2, target, cupti::subscribe_v2 as *mut c_void),
        _ => pcontrol::wrapper(name, target).unwrap_or_else(|| wrappers::wrapper(name, target)),
    }
}

/// Keeps the real function for its wrapper, and returns the wrapper.
fn keep(place: &AtomicPtr<c_void>, target: *mut c_void, wrapper: *mut c_void) -> *mut c_void {
    place.store(target, Ordering::Release);
    wrapper
}
