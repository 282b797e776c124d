//! Converts the kernel's times of samples (CLOCK_MONOTONIC) to ticks of the clock of the run's events.

use crate::sampling::clock::{SessionClock, Timer, best_reading};
use ampere_model::{Clocks, Timestamp};

/// Returns the timer that the variable SCOREP_TIMER selects, as Score-P and the embedded host do, so that all events have the
/// same clock.
fn timer() -> Timer {
    let wanted = std::env::var("SCOREP_TIMER").unwrap_or_default();
    match wanted.trim().to_ascii_lowercase().as_str() {
        "gettimeofday" => Timer::GetTimeOfDay,
        "clock_gettime" => Timer::MonotonicRaw,
        _ => Timer::usual(),
    }
}

/// Relates the kernel's clock to the clock of events.
pub(super) struct EventClock {
    began: Clocks,
    /// The clock, whose epoch is the last reading.
    clock: SessionClock,
}

impl EventClock {
    pub fn new() -> EventClock {
        let began = best_reading();
        EventClock { began, clock: SessionClock::calibrated(timer(), &began) }
    }

    /// Returns the time at which this was made, by all clocks.
    pub fn began(&self) -> Clocks {
        self.began
    }

    /// Reads both clocks. Returns the kernel's time.
    pub fn read(&mut self) -> u64 {
        self.clock = SessionClock::calibrated(self.clock.timer, &self.began);
        self.clock.epoch.monotonic_ns
    }

    /// Returns the kernel's time of the last reading.
    pub fn now(&self) -> u64 {
        self.clock.epoch.monotonic_ns
    }

    /// Converts a recent time of the kernel's clock, in nanoseconds, to ticks of the clock of events.
    pub fn at(&self, monotonic_ns: u64) -> Timestamp {
        let ticks =
            |ns: u64| (u128::from(ns) * u128::from(self.clock.ticks_per_second) / 1_000_000_000) as u64;
        let SessionClock { epoch, .. } = &self.clock;
        let read = self.clock.at(epoch);
        match epoch.monotonic_ns.checked_sub(monotonic_ns) {
            Some(ago) => read.saturating_sub(ticks(ago)),
            None => read.saturating_add(ticks(monotonic_ns - epoch.monotonic_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_time_of_the_kernel_becomes_the_same_moment_on_the_event_clock() {
        let mut clock = EventClock::new();
        std::thread::sleep(Duration::from_millis(60));
        clock.read();
        let before = Timer::usual().now();
        let reading = best_reading();
        let (sample, after) = (clock.at(reading.monotonic_ns), Timer::usual().now());
        let apart = clock.clock.seconds(before.saturating_sub(sample).max(sample.saturating_sub(after)));
        assert!(apart < 0.001, "{sample} is {apart} s outside of {before} to {after}");
        assert!(clock.at(reading.monotonic_ns - 1_000_000) < sample);
    }
}
