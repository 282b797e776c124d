//! The processor's time stamp counter, which Score-P's default timer reads, and the system's clocks.

use ampere_model::Clocks;

/// Ticks of the time stamp counter (x86-64) or of the virtual counter (AArch64); 0 on other processors.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, and Linux allows it.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: Linux allows reading the virtual counter.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        return ticks;
    }
    #[allow(unreachable_code)]
    0
}

/// Returns the current time by the clock of our own timestamps: [`ticks`], or nanoseconds of CLOCK_MONOTONIC_RAW on processors
/// without a counter.
#[inline]
pub fn usual() -> u64 {
    match ticks() {
        0 => nanoseconds(rustix::time::ClockId::MonotonicRaw),
        ticks => ticks,
    }
}

fn nanoseconds(id: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(id);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Reads all clocks, one after the other.
pub fn read_clocks() -> Clocks {
    Clocks {
        tsc: ticks(),
        monotonic_ns: nanoseconds(rustix::time::ClockId::Monotonic),
        monotonic_raw_ns: nanoseconds(rustix::time::ClockId::MonotonicRaw),
        realtime_ns: nanoseconds(rustix::time::ClockId::Realtime),
    }
}

/// One moment in time, by [`usual`] and by another clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time in ticks of [`usual`].
    pub usual: u64,
    /// The time in ticks of the other clock.
    pub other: u64,
}

impl Moment {
    /// Reads both clocks several times and takes the reading with the least uncertainty.
    pub fn now(mut other: impl FnMut() -> u64) -> Moment {
        let mut read = || {
            let before = usual();
            let other = other();
            let after = usual();
            // If the other reading is between ours, it is the same clock: nothing is rounded.
            let same = (before..=after).contains(&other);
            let usual = if same { other } else { before + after.saturating_sub(before) / 2 };
            (after.saturating_sub(before), Moment { usual, other })
        };
        let first = read();
        (0..7).map(|_| read()).fold(first, |best, new| if new.0 < best.0 { new } else { best }).1
    }

    /// Converts a time of [`usual`] to the other clock, linearly between two moments. `None` if it is before `begin`, or if
    /// the moments do not increase.
    pub fn convert(begin: Moment, end: Moment, usual: u64) -> Option<u64> {
        let ours = u128::from(end.usual.checked_sub(begin.usual).filter(|ticks| *ticks > 0)?);
        let others = u128::from(end.other.checked_sub(begin.other)?);
        let since = u128::from(usual.checked_sub(begin.usual)?);
        u64::try_from(u128::from(begin.other) + since * others / ours).ok()
    }
}

/// Returns the ticks per second of the clock from which a current timestamp comes; 0 if no clock fits. `then` is an earlier
/// reading of all clocks; an older one gives a better result. The function neither blocks nor allocates.
pub fn ticks_per_second(time: u64, then: &Clocks) -> u64 {
    let now = read_clocks();
    let is_from = |clock: fn(&Clocks) -> u64| (clock(then)..=clock(&now)).contains(&time);
    if is_from(|clocks| clocks.tsc) {
        let ticks = now.tsc.saturating_sub(then.tsc) as u128;
        let nanoseconds = now.monotonic_ns.saturating_sub(then.monotonic_ns).max(1) as u128;
        return (ticks * 1_000_000_000 / nanoseconds) as u64;
    }
    if is_from(|c| c.monotonic_ns) || is_from(|c| c.monotonic_raw_ns) || is_from(|c| c.realtime_ns) {
        return 1_000_000_000;
    }
    if is_from(|clocks| clocks.realtime_ns / 1000) { 1_000_000 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_clock_is_not_converted() {
        let (begin, end) = (Moment::now(usual), Moment::now(usual));
        assert_eq!(begin.usual, begin.other);
        for time in begin.usual..=end.usual.min(begin.usual + 1000) {
            assert_eq!(Moment::convert(begin, end, time), Some(time));
        }
    }

    #[test]
    fn another_clock_is_converted_linearly_between_two_moments() {
        let (begin, end) = (Moment { usual: 1000, other: 50 }, Moment { usual: 5000, other: 54 });
        let convert = |time| Moment::convert(begin, end, time);
        assert_eq!([1000, 1999, 2000, 5000].map(convert), [Some(50), Some(50), Some(51), Some(54)]);
        assert_eq!(convert(999), None, "before the first moment");
        assert_eq!(Moment::convert(begin, begin, 1000), None);
        let backwards = Moment { usual: 5000, other: 49 };
        assert_eq!(Moment::convert(begin, backwards, 2000), None, "a clock that was set back");
        let largest = Moment { usual: u64::MAX, other: u64::MAX };
        assert_eq!(Moment::convert(Moment { usual: 0, other: 0 }, largest, u64::MAX), Some(u64::MAX));
    }

    #[test]
    fn the_clock_of_a_timestamp_is_recognised() {
        let then = read_clocks();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let now = read_clocks();
        assert_eq!(ticks_per_second(now.realtime_ns, &then), 1_000_000_000);
        assert_eq!(ticks_per_second(now.monotonic_raw_ns, &then), 1_000_000_000);
        assert_eq!(ticks_per_second(now.realtime_ns / 1000, &then), 1_000_000);
        assert_eq!(ticks_per_second(17, &then), 0);
        if now.tsc > 0 {
            let expected = (now.tsc - then.tsc) as f64 / (now.monotonic_ns - then.monotonic_ns) as f64 * 1e9;
            let measured = ticks_per_second(now.tsc, &then) as f64;
            assert!((measured / expected - 1.0).abs() < 0.1, "{measured} and {expected}");
        }
    }
}
