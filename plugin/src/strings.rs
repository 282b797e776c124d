//! C strings from Score-P.

use std::ffi::{CStr, c_char};

/// Returns the bytes of a C string; NULL gives an empty slice.
///
/// # Safety
/// `text` is NULL or a NUL-terminated string that lives as long as the bytes are used.
pub unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: by this function's contract.
    if text.is_null() { &[] } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}

/// Returns a C string as an owned text; NULL gives an empty text.
///
/// # Safety
/// `text` is NULL or a NUL-terminated string that lives during the call.
pub unsafe fn owned(text: *const c_char) -> String {
    // SAFETY: by this function's contract.
    String::from_utf8_lossy(unsafe { bytes(text) }).into_owned()
}
