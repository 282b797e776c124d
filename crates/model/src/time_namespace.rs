//! Converts times since boot in a time namespace, where the kernel adds a number of seconds to them.

use std::sync::OnceLock;

/// The unit in which the kernel counts start times of processes.
const TICKS_PER_SECOND: i64 = 100;

/// Converts a start time that this process reads in /proc to that of the whole machine.
pub fn ticks_since_boot(read: u64) -> u64 {
    static AHEAD: OnceLock<i64> = OnceLock::new();
    let ahead = AHEAD.get_or_init(|| {
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        ticks_ahead(&offsets)
    });
    // 0 is not a start time.
    (read as i64).saturating_sub(*ahead).max(1) as u64
}

/// Returns the offset in ticks. The line of the file has three words: `boottime`, seconds and nanoseconds.
fn ticks_ahead(offsets: &str) -> i64 {
    let numbers = offsets.lines().find_map(|line| line.trim_start().strip_prefix("boottime"));
    let mut numbers =
        numbers.unwrap_or_default().split_whitespace().map_while(|word| word.parse::<i64>().ok());
    let (seconds, nanoseconds) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    seconds.saturating_mul(TICKS_PER_SECOND) + nanoseconds / (1_000_000_000 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace_is_known() {
        assert_eq!(ticks_ahead(""), 0);
        assert_eq!(ticks_ahead("monotonic           0         0\nboottime            0         0\n"), 0);
        assert_eq!(ticks_ahead("monotonic  5  0\nboottime   1000  500000000\n"), 100_050);
        assert_eq!(ticks_ahead("boottime   -30  0\n"), -3000);
        // Whether this process has an offset depends on where the tests run, so only this can be checked.
        assert!(ticks_since_boot(u64::MAX / 4) > 0);
    }
}
