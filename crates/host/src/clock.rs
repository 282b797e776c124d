//! The timestamps of events: Score-P's three timers. As in Score-P, `SCOREP_TIMER` chooses one.
//!
//! `tsc` (the default): raw ticks of the time stamp counter (x86-64) or of the virtual counter (AArch64). `clock_gettime`:
//! nanoseconds of CLOCK_MONOTONIC_RAW. `gettimeofday`: microseconds since the epoch. Where the counter may stop or change its
//! rate, the default is `clock_gettime`.

use std::sync::atomic::{AtomicU8, Ordering};

#[derive(Clone, Copy)]
#[repr(u8)]
enum Timer {
    Tsc,
    ClockGettime,
    Gettimeofday,
}

static TIMER: AtomicU8 = AtomicU8::new(Timer::Tsc as u8);

/// Chooses the timer, once, before the first event.
pub fn choose() {
    static CHOICE: std::sync::Once = std::sync::Once::new();
    CHOICE.call_once(choose_once);
}

fn choose_once() {
    let wanted = std::env::var("SCOREP_TIMER").unwrap_or_default();
    let timer = match wanted.trim().to_ascii_lowercase().as_str() {
        "gettimeofday" => Timer::Gettimeofday,
        "clock_gettime" => Timer::ClockGettime,
        "tsc" if HAS_COUNTER => Timer::Tsc,
        other => {
            if !other.is_empty() {
                crate::messages::report(format_args!(
                    "SCOREP_TIMER={other} is unknown (tsc, clock_gettime, gettimeofday); using the default"
                ));
            }
            if tsc_is_steady() { Timer::Tsc } else { Timer::ClockGettime }
        }
    };
    // Relaxed: other threads see it through the state, which is published later.
    TIMER.store(timer as u8, Ordering::Relaxed);
}

/// Whether the processor has a counter that programs can read.
const HAS_COUNTER: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

fn tsc_is_steady() -> bool {
    if !cfg!(target_arch = "x86_64") {
        // AArch64 defines that the virtual counter has a constant rate and never stops.
        return HAS_COUNTER;
    }
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.contains("constant_tsc") && line.contains("nonstop_tsc"))
}

/// Returns the present time in the timer's ticks.
#[inline(always)]
pub fn now() -> u64 {
    let timer = TIMER.load(Ordering::Relaxed);
    #[cfg(target_arch = "x86_64")]
    if timer == Timer::Tsc as u8 {
        // SAFETY: every x86-64 has the instruction, and Linux allows it.
        return unsafe { std::arch::x86_64::_rdtsc() };
    }
    #[cfg(target_arch = "aarch64")]
    if timer == Timer::Tsc as u8 {
        let ticks: u64;
        // SAFETY: Linux allows reading the virtual counter.
        unsafe {
            std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
        };
        return ticks;
    }
    slow(timer)
}

#[cold]
fn slow(timer: u8) -> u64 {
    if timer == Timer::Gettimeofday as u8 {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: the call writes the given structure.
        unsafe { libc::gettimeofday(&mut time, std::ptr::null_mut()) };
        return time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the given structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
