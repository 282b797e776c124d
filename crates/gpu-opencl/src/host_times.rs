//! Finds out which of the system's clocks a runtime uses for the time at which a command is queued.
//!
//! A command is queued during the call that enqueues it. This already relates the device's clock to the run's, with an error as
//! large as the call's duration: some microseconds, or a millisecond if a kernel is compiled. But most runtimes read one of the
//! system's clocks for the time of queueing. If that time lies within the call by one of these clocks, that clock is the
//! device's, and a reading of it has an error of only some nanoseconds. The clocks are compared again in each period of the
//! device's clock ([`DeviceClock`](ampere_gpu::DeviceClock)), because two of them may be close to each other, and drift.

use ampere_gpu::Host;
use std::sync::atomic::{AtomicU32, Ordering};

const CLOCKS: [libc::clockid_t; 4] =
    [libc::CLOCK_MONOTONIC_RAW, libc::CLOCK_MONOTONIC, libc::CLOCK_BOOTTIME, libc::CLOCK_REALTIME];
/// A call that takes longer than this, in nanoseconds, does not show which clock the runtime uses.
const CALL_MAX: f64 = 1e7;
/// Clocks that differ by less than this, in nanoseconds, count as the same clock. If a call fits another clock as well, it is
/// unknown which one the runtime uses.
const DIFFERENCE_MAX: f64 = 1000.0;

/// The number of calls of each period that may read the clocks. Several are needed, because a long call does not show which clock
/// the runtime uses.
const TRIES: u32 = 256;

/// The number of the next calls that are to read the system's clocks.
static WANTED: AtomicU32 = AtomicU32::new(TRIES);

/// The times of the system's clocks in nanoseconds, each with the run's time before and after it in ticks.
#[derive(Clone, Copy, Debug)]
pub struct HostTimes([(u64, u64, u64); CLOCKS.len()]);

impl HostTimes {
    /// Reads the clocks if a reading is still needed.
    pub fn wanted(host: &Host) -> Option<HostTimes> {
        let is_wanted = WANTED.load(Ordering::Relaxed) > 0
            && WANTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        is_wanted.then(|| HostTimes(CLOCKS.map(|clock| (host.now(), time_of(clock), host.now()))))
    }

    /// Makes the next calls read the clocks, because a new period has begun.
    pub fn want() {
        WANTED.store(TRIES, Ordering::Relaxed);
    }

    /// Lets no further call read the clocks, because the period has a good reading.
    pub fn want_no_more() {
        WANTED.store(0, Ordering::Relaxed);
    }

    /// Returns the reading of the clock according to which the command was queued during the call; `None` if this is true for
    /// no clock, or for several different ones. `queued` is the time that the runtime gives, in nanoseconds. The call returned
    /// at `returned`, in ticks.
    pub fn reading_of(&self, queued: u64, returned: u64, rate: f64) -> Option<(u64, u64, u64)> {
        let is_during_call = |(read, time, _): &(u64, u64, u64)| {
            let call = returned.saturating_sub(*read) as f64 / rate;
            call <= CALL_MAX && (0.0..=call).contains(&(queued as f64 - *time as f64))
        };
        let mut readings = self.0.into_iter().filter(is_during_call);
        let first = readings.next()?;
        // Whether the time between the two readings by the system's clocks differs from the time by the run's clock.
        let differ = |other: &(u64, u64, u64)| {
            let by_clocks = other.1 as f64 - first.1 as f64;
            (by_clocks - (other.0 as f64 - first.0 as f64) / rate).abs() > DIFFERENCE_MAX
        };
        (!readings.any(|other| differ(&other))).then_some(first)
    }
}

fn time_of(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the given structure.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_found_if_its_time_of_queueing_lies_within_the_call() {
        let clocks = HostTimes([(100, 5000, 110), (110, 7000, 120), (120, 7100, 130), (130, 90_000, 140)]);
        let found = |queued, returned| clocks.reading_of(queued, returned, 1.0).map(|(_, time, _)| time);
        assert_eq!(found(7050, 200), Some(7000));
        assert_eq!(found(7150, 200), Some(7100));
        assert_eq!(found(5300, 200), None, "after the call");
        assert_eq!(found(4999, 200), None, "before the call");
        assert_eq!(found(7050, 20_000_000), None, "too long a call");
        assert_eq!(found(8000, 4000), None, "by two clocks that differ");
    }
}
