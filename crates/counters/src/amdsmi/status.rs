//! The status codes `amdsmi_status_t`.

use crate::vendor::Status;

pub(super) const NOT_SUPPORTED: u32 = 2;
pub(super) const NO_PERM: u32 = 10;
pub(super) const INPUT_OUT_OF_BOUNDS: u32 = 17;

/// Returns the status with the header's name, without `AMDSMI_STATUS_`.
pub(super) fn status(code: u32) -> Status {
    let name = match code {
        0 => "SUCCESS",
        1 => "INVAL",
        2 => "NOT_SUPPORTED",
        3 => "NOT_YET_IMPLEMENTED",
        4 => "FAIL_LOAD_MODULE",
        5 => "FAIL_LOAD_SYMBOL",
        6 => "DRM_ERROR",
        7 => "API_FAILED",
        8 => "TIMEOUT",
        9 => "RETRY",
        10 => "NO_PERM",
        11 => "INTERRUPT",
        12 => "IO",
        13 => "ADDRESS_FAULT",
        14 => "FILE_ERROR",
        15 => "OUT_OF_RESOURCES",
        16 => "INTERNAL_EXCEPTION",
        17 => "INPUT_OUT_OF_BOUNDS",
        18 => "INIT_ERROR",
        19 => "REFCOUNT_OVERFLOW",
        30 => "BUSY",
        31 => "NOT_FOUND",
        32 => "NOT_INIT",
        33 => "NO_SLOT",
        34 => "DRIVER_NOT_LOADED",
        40 => "NO_DATA",
        41 => "INSUFFICIENT_SIZE",
        42 => "UNEXPECTED_SIZE",
        43 => "UNEXPECTED_DATA",
        _ => "UNKNOWN_ERROR",
    };
    Status { code, name }
}
