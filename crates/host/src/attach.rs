//! What the preloaded library (`crates/preload`) calls: it opens this one, and asks for wrappers.

use crate::measurement::{guarded, scorep_is_here};
use crate::ranges::roctx;
use crate::{functions, mpi, tls};
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// What the preloaded library gives.
#[repr(C)]
pub struct Offer {
    /// Where each thread's record is, from the thread pointer.
    slot_offset: isize,
    /// Treats objects that the program has opened since the last time.
    look_again: extern "C" fn(),
}

/// Gives the wrapper of a function, or null, and lets it call what lies at this address: the one definition that the program has, which
/// may be another one after a library was closed. It is called under the loader's lock, and neither allocates nor calls the loader.
type Wrap = unsafe extern "C" fn(name: *const c_char, target: *mut c_void) -> *mut c_void;

static LOOK_AGAIN: OnceLock<extern "C" fn()> = OnceLock::new();

/// `None`: nothing of this process is to be measured.
///
/// # Safety
/// An offer of the preloaded library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ampere_host_attach(offer: *const Offer) -> Option<Wrap> {
    // SAFETY: by the caller.
    let offer = unsafe { offer.as_ref() }?;
    guarded(None, || {
        if scorep_is_here() || ampere_model::is_switched_off() {
            return None;
        }
        tls::place(offer.slot_offset);
        let _ = LOOK_AGAIN.set(offer.look_again);
        Some(wrap as Wrap)
    })
}

/// Functions of objects that the program has opened meanwhile are wrapped, too. Takes the loader's lock for a moment.
pub fn look_again() {
    if let Some(look) = LOOK_AGAIN.get() {
        look();
    }
}

unsafe extern "C" fn wrap(name: *const c_char, target: *mut c_void) -> *mut c_void {
    // SAFETY: a name of an object's symbol.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    match name {
        b"__cyg_profile_func_enter" => functions::entered as *mut c_void,
        b"__cyg_profile_func_exit" => functions::left as *mut c_void,
        b"roctxRangePushA" => {
            roctx::PUSH.store(target, Ordering::Release);
            roctx::push_range as *mut c_void
        }
        b"roctxRangePop" => {
            roctx::POP.store(target, Ordering::Release);
            roctx::pop_range as *mut c_void
        }
        _ => mpi::wrapper(name, target),
    }
}
