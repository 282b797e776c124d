//! The stand-ins for vendors' libraries: `tests/stand-ins`. The table of what a script may say is in `script/src/script.rs`.

use crate::artifact;
use std::process::Command;

/// Lets ampere read GPUs of the stand-in for librocm_smi64 alone, which follow `script`.
pub fn with_rocm_smi<'a>(command: &'a mut Command, script: &str) -> &'a mut Command {
    command
        .env("AMPERE_COUNTERS", "rocm_smi")
        .env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"))
        .env("STAND_IN_ROCM_SMI", script)
}
