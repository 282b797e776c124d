//! CPU time and memory of the collector, from its CPU clock, /proc/self/statm and /proc/self/status.

use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

/// Returns the user and system CPU time of the whole process so far.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Returns the resident memory. Every snapshot has it, so it is read from the file that the kernel generates fastest, which
/// stays open.
pub fn resident_bytes() -> u64 {
    static STATM: LazyLock<Option<File>> = LazyLock::new(|| File::open("/proc/self/statm").ok());
    let mut bytes = [0; 128];
    let length = STATM.as_ref().and_then(|file| file.read_at(&mut bytes, 0).ok()).unwrap_or(0);
    let statm = String::from_utf8_lossy(&bytes[..length]);
    let pages = statm.split_ascii_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// Returns the greatest resident memory so far.
pub fn peak_resident_bytes() -> u64 {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let field = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    field.unwrap_or(0) * 1024
}
