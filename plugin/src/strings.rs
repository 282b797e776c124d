//! C strings from Score-P.

use std::ffi::{CStr, c_char};

/// How long a C string is; 0 for NULL.
///
/// # Safety
/// `text` is NULL or a NUL-terminated string that lives during the call.
pub unsafe fn bytes(text: *const c_char) -> usize {
    // SAFETY: by this function's contract.
    if text.is_null() { 0 } else { unsafe { CStr::from_ptr(text) }.count_bytes() }
}

/// Owned text of a C string; empty for NULL.
///
/// # Safety
/// `text` is NULL or a NUL-terminated string that lives during the call.
pub unsafe fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by this function's contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
