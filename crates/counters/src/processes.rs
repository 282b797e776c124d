//! Which GPUs a process uses, as their drivers tell.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The kernel's first pid namespace. Drivers' numbers of processes are that one's: elsewhere they mean other processes.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// The GPUs that a process uses, as the driver tells.
#[derive(Debug, PartialEq, Eq)]
pub enum UsedGpus {
    /// It has not opened AMD's driver.
    None,
    /// Its driver tells nothing of it now.
    Unknown,
    /// These: PCI addresses, as `0000:c1:00.0`.
    At(BTreeSet<String>),
}

impl UsedGpus {
    /// With what another driver tells: PCI addresses.
    pub fn and(self, more: &BTreeSet<String>) -> UsedGpus {
        match self {
            used if more.is_empty() => used,
            UsedGpus::At(gpus) => UsedGpus::At(&gpus | more),
            UsedGpus::None | UsedGpus::Unknown => UsedGpus::At(more.clone()),
        }
    }
}

/// Whether a pid is the same process to drivers. `root`: where `proc` is.
pub(crate) fn pids_are_the_kernels(root: &Path) -> bool {
    fs::read_link(root.join("proc/self/ns/pid")).is_ok_and(|space| space == Path::new(FIRST_NAMESPACE))
}
