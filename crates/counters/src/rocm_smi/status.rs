//! The status codes `rsmi_status_t`.

use crate::vendor::Status;

pub(super) const NOT_SUPPORTED: u32 = 2;
pub(super) const PERMISSION: u32 = 4;

/// Returns the status with the header's name, without `RSMI_STATUS_`.
pub(super) fn status(code: u32) -> Status {
    const NAMES: [&str; 18] = [
        "SUCCESS",
        "INVALID_ARGS",
        "NOT_SUPPORTED",
        "FILE_ERROR",
        "PERMISSION",
        "OUT_OF_RESOURCES",
        "INTERNAL_EXCEPTION",
        "INPUT_OUT_OF_BOUNDS",
        "INIT_ERROR",
        "NOT_YET_IMPLEMENTED",
        "NOT_FOUND",
        "INSUFFICIENT_SIZE",
        "INTERRUPT",
        "UNEXPECTED_SIZE",
        "NO_DATA",
        "UNEXPECTED_DATA",
        "BUSY",
        "REFCOUNT_OVERFLOW",
    ];
    Status { code, name: NAMES.get(code as usize).copied().unwrap_or("UNKNOWN_ERROR") }
}
