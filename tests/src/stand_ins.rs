//! The stand-ins for vendors' libraries in `tests/stand-ins`. `scripted-counters/src/script.rs` has the table of a script's
//! entries.

use crate::artifact;
use std::process::Command;

/// Makes ampere read only the GPUs of the stand-in for librocm_smi64, which follow `script`.
pub fn with_rocm_smi<'a>(command: &'a mut Command, script: &str) -> &'a mut Command {
    command
        .env("AMPERE_COUNTERS", "rocm_smi")
        .env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"))
        .env("STAND_IN_ROCM_SMI", script)
}
