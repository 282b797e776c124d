//! What the collector itself costs. Source: /proc/self/stat and /proc/self/status.

/// CPU seconds, user and system, of the whole process so far.
pub fn cpu_seconds() -> f64 {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return 0.0 };
    let after_command = stat.rfind(')').map_or("", |at| &stat[at + 1..]);
    let mut fields = after_command.split_ascii_whitespace().skip(11);
    let mut next = || fields.next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    let ticks = next() + next();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Bytes: (peak, now).
pub fn resident_bytes() -> (u64, u64) {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return (0, 0) };
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    (field("VmHWM:").unwrap_or(0) * 1024, field("VmRSS:").unwrap_or(0) * 1024)
}
