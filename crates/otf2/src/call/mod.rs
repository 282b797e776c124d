//! The calls into the C library. All of this crate's unsafe code is in this folder, and its interface is safe.
//!
//! Errors: OTF2 prints its messages to stderr unless a callback is registered. Ours keeps the first message of the thread, and
//! the wrappers here turn it into an [`Otf2Error`]. The registration applies to the whole process.
//!
//! Panics: no callback here runs code of the user, and none can panic. Running out of memory aborts.

use crate::error::{Error, Otf2Error};
use otf2_sys as sys;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Once;

pub(crate) mod archive;
pub(crate) mod batch;
mod communication;
mod communication_events;
pub(crate) mod global_def_reader;
pub(crate) mod global_def_writer;
mod local_definitions;
mod memory;
pub(crate) mod other_events;
pub(crate) mod reader;

pub(crate) const SUCCESS: sys::OTF2_ErrorCode = sys::OTF2_SUCCESS;
pub(crate) const OUT_OF_FILES: sys::OTF2_ErrorCode = sys::OTF2_ERROR_EMFILE;

/// OTF2's values for "no reference".
pub(crate) const UNDEFINED_U32: u32 = u32::MAX;
pub(crate) const UNDEFINED_U64: u64 = u64::MAX;

thread_local! {
    /// The first message since a message was last taken.
    static FIRST: RefCell<Option<(sys::OTF2_ErrorCode, String)>> = const { RefCell::new(None) };
}

/// Registers the callback for OTF2's messages. Must be called before anything that can fail.
pub(crate) fn capture_messages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: on_message has the required type, is never unloaded, and uses no user data.
        unsafe { sys::OTF2_Error_RegisterCallback(Some(on_message), std::ptr::null_mut()) };
    });
    forget_message();
}

// A `va_list` is passed as a pointer: on x86-64 because it is an array, on AArch64 because it is a structure of more than 16
// bytes. What it points to differs, and is not read here: it is only passed on to vsnprintf.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
type VaList = *mut sys::__va_list_tag;

unsafe extern "C" fn on_message(
    _user_data: *mut c_void,
    _file: *const c_char,
    _line: u64,
    _function: *const c_char,
    code: sys::OTF2_ErrorCode,
    format: *const c_char,
    arguments: VaList,
) -> sys::OTF2_ErrorCode {
    // Negative codes are warnings and notes of deprecation.
    if code <= SUCCESS {
        return code;
    }
    let _ = FIRST.try_with(|first| {
        let Ok(mut first) = first.try_borrow_mut() else { return };
        if first.is_some() {
            return;
        }
        let mut text = [0_u8; 512];
        if !format.is_null() {
            // SAFETY: format and arguments are from OTF2 and belong together; text has the given length, within which
            // vsnprintf writes a terminating zero.
            unsafe { sys::vsnprintf(text.as_mut_ptr().cast(), text.len() as _, format, arguments) };
        }
        let text = CStr::from_bytes_until_nul(&text).map(|text| text.to_string_lossy().into_owned());
        *first = Some((code, text.unwrap_or_default()));
    });
    code
}

/// Drops the message that was kept.
pub(crate) fn forget_message() {
    FIRST.with(|first| *first.borrow_mut() = None);
}

/// Returns the first message since the last call of this function or of [`forget_message`].
pub(crate) fn take_message() -> Option<Otf2Error> {
    FIRST.with(|first| first.borrow_mut().take()).map(|(code, message)| describe(code, &message))
}

fn describe(code: sys::OTF2_ErrorCode, message: &str) -> Otf2Error {
    // SAFETY: both take any number and return a string that is part of the library.
    let (name, description) =
        unsafe { (sys::OTF2_Error_GetName(code), sys::OTF2_Error_GetDescription(code)) };
    let (name, description) = (copy(name), copy(description));
    let text = if message.is_empty() { description } else { format!("{description}: {message}") };
    Otf2Error { code, name, text: text.split_whitespace().collect::<Vec<_>>().join(" ") }
}

/// Returns the error of a call that returned `code`, which is not success.
#[cold]
pub(crate) fn failure(code: sys::OTF2_ErrorCode) -> Otf2Error {
    take_message().unwrap_or_else(|| describe(code, ""))
}

#[inline]
pub(crate) fn check(code: sys::OTF2_ErrorCode) -> Result<(), Otf2Error> {
    if code == SUCCESS { Ok(()) } else { Err(failure(code)) }
}

/// Adds a description of the failed action to an error of OTF2.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Doing<T> for Result<T, Otf2Error> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Otf2 { doing: what(), source })
    }
}

/// Returns a copy of a string of the library; empty for a null pointer.
///
/// Must be called only with a null pointer or with a C string that lives during the call.
fn copy(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: see above; the function is private to this folder, whose callers pass strings that OTF2 returned.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}

/// Returns a path as a C string. No file has a path with a zero byte.
pub(crate) fn c_path(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::NotFound(path.to_owned()))
}
