//! What a test of CPU time has to know about this machine.

use ampere_stacks::{Options, Sampler};

/// Whether the kernel reports context switches to this user.
pub fn is_permitted() -> bool {
    Sampler::begin(&Options::default()).is_ok()
}

/// Returns the seconds, to a hundredth, for which the hypervisor ran something else on this machine's CPUs. Context switches
/// do not show this time, but the kernel leaves it out of its count of CPU time, from which the joules of all processes follow.
pub fn stolen() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").expect("the kernel's counts");
    stat.split_ascii_whitespace().nth(8).and_then(|ticks| ticks.parse::<f64>().ok()).expect("ticks") / 100.0
}
