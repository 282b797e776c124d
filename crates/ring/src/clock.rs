//! The processor's own counter, which Score-P's default timer reads, and the system's clocks beside it.

use ampere_model::Clocks;

/// Ticks of the time stamp counter (x86-64), of the virtual counter (AArch64), or 0 where there is neither.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has it; Linux lets programs read it.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: Linux lets programs read the virtual counter.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        return ticks;
    }
    #[allow(unreachable_code)]
    0
}

/// The clock that is good for anything: [`ticks`], or CLOCK_MONOTONIC_RAW's nanoseconds where there are none.
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

/// Reads all clocks, one right after the other.
pub fn read_clocks() -> Clocks {
    Clocks {
        tsc: ticks(),
        monotonic_ns: nanoseconds(rustix::time::ClockId::Monotonic),
        monotonic_raw_ns: nanoseconds(rustix::time::ClockId::MonotonicRaw),
        realtime_ns: nanoseconds(rustix::time::ClockId::Realtime),
    }
}

/// One moment, by [`usual`] and by somebody else's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub usual: u64,
    pub other: u64,
}

impl Moment {
    /// Reads both clocks, several times, and takes the reading that leaves the least doubt.
    pub fn now(mut other: impl FnMut() -> u64) -> Moment {
        let mut read = || {
            let before = usual();
            let other = other();
            let after = usual();
            // The other clock is ours if it read between our two readings: then nothing is converted, nothing rounded.
            let same = (before..=after).contains(&other);
            let usual = if same { other } else { before + after.saturating_sub(before) / 2 };
            (after.saturating_sub(before), Moment { usual, other })
        };
        let first = read();
        (0..7).map(|_| read()).fold(first, |best, new| if new.0 < best.0 { new } else { best }).1
    }

    /// The other clock's time at a time of ours between two moments. `None` if there is no time between them.
    pub fn convert(begin: Moment, end: Moment, usual: u64) -> Option<u64> {
        let ours = u128::from(end.usual.checked_sub(begin.usual).filter(|ticks| *ticks > 0)?);
        let others = u128::from(end.other.checked_sub(begin.other)?);
        let since = u128::from(usual.checked_sub(begin.usual)?);
        u64::try_from(u128::from(begin.other) + since * others / ours).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_clock_is_recognised_as_the_same() {
        let (begin, end) = (Moment::now(usual), Moment::now(usual));
        assert_eq!(begin.usual, begin.other);
        for time in begin.usual..=end.usual.min(begin.usual + 1000) {
            assert_eq!(Moment::convert(begin, end, time), Some(time));
        }
    }

    #[test]
    fn another_clock_is_a_straight_line_between_two_moments() {
        let (begin, end) = (Moment { usual: 1000, other: 50 }, Moment { usual: 5000, other: 54 });
        let convert = |time| Moment::convert(begin, end, time);
        assert_eq!([1000, 1999, 2000, 5000].map(convert), [Some(50), Some(50), Some(51), Some(54)]);
        assert_eq!(convert(999), None, "before the beginning nothing is known");
        assert_eq!(Moment::convert(begin, begin, 1000), None);
        let backwards = Moment { usual: 5000, other: 49 };
        assert_eq!(Moment::convert(begin, backwards, 2000), None, "a clock that was set back");
        let largest = Moment { usual: u64::MAX, other: u64::MAX };
        assert_eq!(Moment::convert(Moment { usual: 0, other: 0 }, largest, u64::MAX), Some(u64::MAX));
    }
}
