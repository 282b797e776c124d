//! CPU time that no reading of a process has shown, because the process ended first. The sum that the kernel adds to its parent
//! has steps of 10 ms, so up to 20 ms of it become known late, or with the time of another process. A clock of all processes
//! together shows it at once, but includes the time that a hypervisor took from the CPUs.

use std::time::{Duration, Instant};

/// Returns the CPU time of all processes of the run together, in nanoseconds.
pub type TotalClock = Box<dyn Fn() -> Option<u64> + Send>;

/// The time spent on reading the clock is at most the whole time divided by this.
const READ_SHARE: u32 = 200;
/// The difference of the clocks over a longer interval is not used, because too much of it may have another cause.
const INTERVAL_MAX: Duration = Duration::from_millis(200);
/// If no process has ended, a difference of at most the interval's CPU time divided by this is attributed to another cause.
const DIFFERENCE_SHARE: u64 = 16;

pub(crate) struct LateTime {
    clock: TotalClock,
    /// The clock at the last reading, and the time that the processes' own clocks showed then.
    last: (u64, u64),
    read: Instant,
    took: Duration,
    has_ended: bool,
    ns: u64,
    /// The part of `ns` that the last call of `update` has added.
    new_ns: u64,
}

impl LateTime {
    /// `clock` starts at 0 when counting starts.
    pub fn new(clock: TotalClock) -> LateTime {
        let (read, took) = (Instant::now(), Duration::ZERO);
        LateTime { clock, last: (0, 0), read, took, has_ended: false, ns: 0, new_ns: 0 }
    }

    /// Reads the clock. `direct_ns` is the time that the processes' own clocks have shown, `known_ns` the other time that is
    /// known. `has_ended`: a process has ended since the last call.
    pub fn update(&mut self, direct_ns: u64, known_ns: u64, has_ended: bool) {
        self.has_ended |= has_ended;
        self.new_ns = 0;
        let begun = Instant::now();
        let passed = begun - self.read;
        if passed >= self.took * READ_SHARE
            && let Some(clock) = (self.clock)()
        {
            let (clock_before, direct_before) = std::mem::replace(&mut self.last, (clock, direct_ns));
            let (all, direct) = (clock.saturating_sub(clock_before), direct_ns.saturating_sub(direct_before));
            let late = all.saturating_sub(direct);
            let is_late = self.has_ended || late > all / DIFFERENCE_SHARE;
            if is_late && passed <= INTERVAL_MAX {
                self.new_ns = late;
                self.ns += late;
            }
            // The clock of a process that was not seen before is now read, and shows time that was counted as late until now.
            self.ns = self.ns.saturating_sub(direct.saturating_sub(all));
            (self.read, self.took, self.has_ended) = (begun, begun.elapsed(), false);
        }
        self.ns = self.ns.max(known_ns);
    }

    /// Limits the time to `ns_max` plus the time that the last call of `update` has added. That part is not limited, because a
    /// process may have ended after its parent's sum was read.
    pub fn limit(&mut self, ns_max: u64) {
        self.ns = self.ns.min(ns_max.saturating_add(self.new_ns));
    }

    pub fn ns(&self) -> u64 {
        self.ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    const MS: u64 = 1_000_000;

    /// Repeats an attempt until it took less time than the interval over which the clocks are compared.
    fn in_time<T>(attempt: impl Fn() -> T) -> T {
        let attempts = (0..100).map(|_| (Instant::now(), attempt()));
        let mut in_time = attempts.filter(|(begun, _)| begun.elapsed() < INTERVAL_MAX);
        in_time.next().expect("an attempt in time").1
    }

    /// Returns the time after each reading: the clock, the sum of the processes' own clocks, and whether a process has ended.
    fn after(readings: &[(u64, u64, bool)]) -> Vec<u64> {
        in_time(|| read_all(readings))
    }

    fn read_all(readings: &[(u64, u64, bool)]) -> Vec<u64> {
        let shown = Arc::new(AtomicU64::new(0));
        let clock = shown.clone();
        let mut late = LateTime::new(Box::new(move || Some(clock.load(Ordering::Relaxed))));
        let each = readings.iter().map(|(clock, direct, has_ended)| {
            shown.store(*clock, Ordering::Relaxed);
            // The clock is read only a small part of the time.
            let before = late.last;
            let begun = Instant::now();
            while late.last == before && begun.elapsed() < INTERVAL_MAX {
                std::thread::sleep(Duration::from_millis(1));
                late.update(*direct, 0, *has_ended);
            }
            late.ns()
        });
        each.collect()
    }

    #[test]
    fn the_last_time_of_an_ended_process_counts_at_once() {
        assert_eq!(after(&[(10 * MS, 10 * MS, false), (25 * MS, 24 * MS, true)]), [0, MS]);
        let limited = in_time(|| {
            let mut late = LateTime::new(Box::new(|| Some(MS)));
            std::thread::sleep(Duration::from_millis(1));
            late.update(0, 0, true);
            late.limit(0);
            late.ns()
        });
        assert_eq!(limited, MS, "the time that was added last is not limited");
    }

    #[test]
    fn time_that_a_hypervisor_took_does_not_count() {
        assert_eq!(after(&[(100 * MS, 99 * MS, false), (200 * MS, 196 * MS, false)]), [0, 0]);
    }

    #[test]
    fn a_process_that_is_found_late_counts_once() {
        assert_eq!(after(&[(20 * MS, 10 * MS, false), (40 * MS, 40 * MS, false)]), [10 * MS, 0]);
    }

    #[test]
    fn the_time_is_at_least_that_of_the_parents_sums() {
        let mut late = LateTime::new(Box::new(|| Some(0)));
        late.update(0, 7, false);
        assert_eq!(late.ns(), 7);
        late.limit(5);
        assert_eq!(late.ns(), 5);
    }
}
