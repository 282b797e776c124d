//! The clock that CUPTI uses for timestamps: the run's clock, converted to nanoseconds.
//!
//! CUPTI converts the timestamps of devices to a clock that it reads through a callback of ours. That clock must count
//! nanoseconds, while the run's clock counts ticks. The conversion rate need not be exact, because the same rate is used to
//! convert back.

use ampere_gpu::Host;
use std::sync::OnceLock;

/// A linear function of the run's clock.
struct Scale {
    host: Host,
    /// The ticks at the start.
    ticks: u64,
    /// The time at the start by the wall clock, which CUPTI uses by default, in nanoseconds.
    nanoseconds: u64,
    /// Nanoseconds per tick, times 2^32.
    rate: u128,
    /// Ticks per nanosecond, times 2^48: in a day, less than a tick is lost by rounding.
    inverse: u128,
}

/// With more than 4096 ticks in a nanosecond, products would be too large.
const RATE_MIN: u128 = 1 << 20;

static SCALE: OnceLock<Scale> = OnceLock::new();

/// Starts the clock that CUPTI is given in place of the wall clock.
pub fn start(host: Host) {
    let rate = ((4_294_967_296.0 / host.ticks_per_nanosecond().max(1e-6)) as u128).max(RATE_MIN);
    let (ticks, nanoseconds) = (host.now(), wall());
    SCALE.get_or_init(|| Scale { host, ticks, nanoseconds, rate, inverse: (1 << 80) / rate });
}

/// Returns the time for CUPTI.
pub extern "C" fn now() -> u64 {
    SCALE.get().map_or(0, |scale| scale.nanoseconds_at(scale.host.now()))
}

/// Returns the wall clock, which CUPTI uses by default.
pub extern "C" fn wall() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as u64
}

/// Returns the time in the run's ticks; 0 for a time before the start.
pub fn ticks(nanoseconds: u64) -> u64 {
    SCALE.get().map_or(0, |scale| scale.ticks_at(nanoseconds))
}

/// Returns the number of ticks in a time.
pub fn ticks_in(nanoseconds: u64) -> u64 {
    SCALE.get().map_or(u64::MAX, |scale| ((u128::from(nanoseconds) * scale.inverse) >> 48) as u64)
}

/// Returns the nanoseconds in a number of ticks.
pub fn nanoseconds_in(ticks: u64) -> u64 {
    SCALE.get().map_or(0, |scale| ((u128::from(ticks) * scale.rate) >> 32) as u64)
}

impl Scale {
    fn nanoseconds_at(&self, ticks: u64) -> u64 {
        let since = u128::from(ticks.saturating_sub(self.ticks));
        self.nanoseconds + ((since * self.rate) >> 32) as u64
    }

    fn ticks_at(&self, nanoseconds: u64) -> u64 {
        let Some(since) = nanoseconds.checked_sub(self.nanoseconds) else { return 0 };
        self.ticks + ((u128::from(since) * self.inverse) >> 48) as u64
    }
}
