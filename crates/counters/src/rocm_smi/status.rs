//! `rsmi_status_t`.

use std::fmt;

/// A status of librocm_smi64, `rsmi_status_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

impl Status {
    pub const NOT_SUPPORTED: Status = Status(2);
    pub const PERMISSION: Status = Status(4);

    /// The header's name without `RSMI_STATUS_`.
    pub fn name(self) -> &'static str {
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
        NAMES.get(self.0 as usize).copied().unwrap_or("UNKNOWN_ERROR")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}
