//! The energy of a power that is read at intervals: the mean of two readings, times the time between them.

use std::time::{Duration, Instant};

use crate::LastReading;

/// The value at which counters that ampere computes itself start. It is not 0, because a counter at 0 may be that of a sleeping
/// device.
pub(crate) const FIRST_NANOJOULES: u64 = 1_000_000_000;

/// After a gap, the energy begins again at a value that is lower than the last one by at least this.
const STEP_NANOJOULES: u64 = FIRST_NANOJOULES / 1000;

pub(crate) struct Integral {
    /// The time of the last reading, and its microwatts.
    last: Option<(Instant, u64)>,
    /// Twice the energy in femtojoules, which are microwatts times nanoseconds.
    twice_femtojoules: u128,
    /// Whether `last` was read by an earlier collector, which has ended. Then the time since `last` counts, however long it is.
    bridges: bool,
}

impl Default for Integral {
    fn default() -> Integral {
        Integral::starting_at(FIRST_NANOJOULES)
    }
}

impl Integral {
    fn starting_at(nanojoules: u64) -> Integral {
        Integral { last: None, twice_femtojoules: u128::from(nanojoules) * 2_000_000, bridges: false }
    }

    /// Continues after a process that has ended, at the power that it read last.
    pub fn resume(last: LastReading, now: Instant) -> Integral {
        let then = now.checked_sub(last.ago).map(|then| (then, (last.watts.max(0.0) * 1e6) as u64));
        Integral { last: then, bridges: true, ..Integral::starting_at(last.nanojoules) }
    }

    /// Whether more than `interval_max` has passed since the last reading, so that the energy since then is not known.
    pub fn has_gap(&self, now: Instant, interval_max: Duration) -> bool {
        let is_long = |(then, _)| now.saturating_duration_since(then) > interval_max;
        !self.bridges && self.last.is_some_and(is_long)
    }

    /// Adds a reading, and returns the nanojoules so far. If more than `interval_max` has passed since the last reading, the
    /// energy begins again at a lower value, as after a reset of a counter: otherwise the interval would have 0 J.
    pub fn add(&mut self, now: Instant, microwatts: u64, interval_max: Duration) -> u64 {
        if self.has_gap(now, interval_max) {
            let so_far = self.nanojoules();
            let lower = so_far.saturating_sub(STEP_NANOJOULES).min(FIRST_NANOJOULES);
            *self = Integral::starting_at(if lower >= STEP_NANOJOULES { lower } else { FIRST_NANOJOULES });
        }
        self.bridges = false;
        if let Some((before, then)) = self.last.replace((now, microwatts)) {
            let passed = now.saturating_duration_since(before);
            self.twice_femtojoules += (u128::from(then) + u128::from(microwatts)) * passed.as_nanos();
        }
        self.nanojoules()
    }

    fn nanojoules(&self) -> u64 {
        (self.twice_femtojoules / 2_000_000) as u64
    }

    /// Returns the time of the last reading, and its microwatts.
    pub fn last(&self) -> Option<(Instant, u64)> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL_MAX: Duration = Duration::from_secs(2);

    #[test]
    fn the_integral_of_an_ended_process_continues_over_the_gap() {
        let now = Instant::now();
        let last = LastReading { nanojoules: 7_000_000_000, watts: 100.0, ago: Duration::from_secs(10) };
        let mut integral = Integral::resume(last, now);
        // The expected energy is that of 10 s at (100 W + 200 W) / 2.
        assert_eq!(integral.add(now, 200_000_000, INTERVAL_MAX), 1_507_000_000_000);
        // This happens only once: a later interval of that length is a gap like any other.
        let later = now + Duration::from_secs(10);
        assert_eq!(integral.add(later, 200_000_000, INTERVAL_MAX), 1_000_000_000);
        let mut integral = Integral::resume(LastReading { ago: Duration::ZERO, ..last }, now);
        assert_eq!(integral.add(now, 200_000_000, INTERVAL_MAX), 7_000_000_000);
        assert_eq!(integral.add(later, 200_000_000, INTERVAL_MAX), 1_000_000_000);
    }

    #[test]
    fn energy_is_the_mean_power_times_the_time() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut integral = Integral::default();
        let mut add = |ms, watts: u64| integral.add(at(ms), watts * 1_000_000, INTERVAL_MAX);
        assert_eq!(add(0, 100), 1_000_000_000);
        assert_eq!(add(10, 100), 2_000_000_000);
        assert_eq!(add(20, 300), 4_000_000_000);
        // Energy of a long pause is neither invented nor 0.
        assert_eq!(add(60_000, 300), 1_000_000_000);
        assert_eq!(add(60_010, 300), 4_000_000_000);
        assert_eq!(add(120_000, 300), 1_000_000_000);
        assert_eq!(add(180_000, 300), 999_000_000);
    }
}
