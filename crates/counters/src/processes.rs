//! The GPUs that a process uses, according to their drivers.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The kernel's first pid namespace. Drivers use its pids. In other namespaces, the same pids mean other processes.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// The GPUs that a process uses, according to the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum UsedGpus {
    /// The process has not opened AMD's driver.
    None,
    /// The driver has no information about the process at present.
    Unknown,
    /// The GPUs at these PCI addresses, such as `0000:c1:00.0`.
    At(BTreeSet<String>),
}

impl UsedGpus {
    /// Adds the PCI addresses that another driver reports.
    pub fn and(self, more: &BTreeSet<String>) -> UsedGpus {
        match self {
            used if more.is_empty() => used,
            UsedGpus::At(gpus) => UsedGpus::At(&gpus | more),
            UsedGpus::None | UsedGpus::Unknown => UsedGpus::At(more.clone()),
        }
    }
}

/// Whether drivers use the pids of this process' namespace. `root` is the directory of `proc`.
pub(crate) fn pids_are_the_kernels(root: &Path) -> bool {
    fs::read_link(root.join("proc/self/ns/pid")).is_ok_and(|space| space == Path::new(FIRST_NAMESPACE))
}
