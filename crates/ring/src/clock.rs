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
