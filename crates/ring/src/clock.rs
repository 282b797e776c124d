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

/// Reads all clocks, one right after the other.
pub fn read_clocks() -> Clocks {
    let read = |id| {
        let time = rustix::time::clock_gettime(id);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    Clocks {
        tsc: ticks(),
        monotonic_ns: read(rustix::time::ClockId::Monotonic),
        monotonic_raw_ns: read(rustix::time::ClockId::MonotonicRaw),
        realtime_ns: read(rustix::time::ClockId::Realtime),
    }
}

/// Ticks per second of the clock that a time of now is from; `then` is an earlier reading, the longer ago the better.
/// 0: of none of them. No memory is taken and nothing is waited for.
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
    fn a_time_tells_its_clock() {
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
