//! What a test of CPU time has to know about this machine.

/// Returns the seconds for which the hypervisor ran something else on this machine's CPUs. Context switches do not show this
/// time, but the kernel leaves it out of its count of CPU time, from which the joules of all processes follow.
pub fn stolen() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").expect("the kernel's counts");
    stat.split_ascii_whitespace().nth(8).and_then(|ticks| ticks.parse::<f64>().ok()).expect("ticks") / 100.0
}

/// Returns the most seconds that may have been stolen since [`stolen`] returned `before`: the kernel shows whole hundredths of a
/// second, so there may be one more than it shows, unless it has never shown any.
pub fn stolen_since(before: f64) -> f64 {
    match stolen() {
        0.0 => 0.0,
        stolen => stolen - before + 0.01,
    }
}

/// Returns the CPU time that this thread has used.
pub fn of_this_thread() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
