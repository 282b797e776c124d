//! What a test of CPU time has to know of this machine.

use ampere_stacks::{Options, Sampler};

/// Whether the kernel reports context switches to this user.
pub fn is_permitted() -> bool {
    Sampler::begin(&Options::default()).is_ok()
}

/// Returns the seconds in which this machine's hypervisor ran something else on its CPUs, in hundredths. They are between two
/// switches, but not in the kernel's count of CPU time, which decides the joules of all processes together.
pub fn stolen() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").expect("the kernel's counts");
    stat.split_ascii_whitespace().nth(8).and_then(|ticks| ticks.parse::<f64>().ok()).expect("ticks") / 100.0
}
