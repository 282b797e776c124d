//! The kernel's times of samples (CLOCK_MONOTONIC) as ticks of the clock that events have where it is not chosen otherwise.

use crate::sampling::clock::{SessionClock, Timer, best_reading};
use ampere_model::{Clocks, Timestamp};

/// What Score-P and the embedded host choose, by the same variable: events of both have one clock.
fn timer() -> Timer {
    let wanted = std::env::var("SCOREP_TIMER").unwrap_or_default();
    match wanted.trim().to_ascii_lowercase().as_str() {
        "gettimeofday" => Timer::GetTimeOfDay,
        "clock_gettime" => Timer::MonotonicRaw,
        _ => Timer::usual(),
    }
}

/// Knows both clocks.
pub(super) struct EventClock {
    began: Clocks,
    /// Its epoch is the last look.
    clock: SessionClock,
}

impl EventClock {
    pub fn begin() -> EventClock {
        let began = best_reading();
        EventClock { began, clock: SessionClock::calibrated(timer(), &began) }
    }

    /// When this was begun, by all clocks.
    pub fn began(&self) -> Clocks {
        self.began
    }

    /// Looks at both clocks. Gives the kernel's time of it.
    pub fn look(&mut self) -> u64 {
        self.clock = SessionClock::calibrated(self.clock.timer, &self.began);
        self.clock.epoch.monotonic_ns
    }

    /// The kernel's time of the last look.
    pub fn now(&self) -> u64 {
        self.clock.epoch.monotonic_ns
    }

    /// A time that is not long ago.
    pub fn at(&self, monotonic_ns: u64) -> Timestamp {
        let ticks =
            |ns: u64| (u128::from(ns) * u128::from(self.clock.ticks_per_second) / 1_000_000_000) as u64;
        let SessionClock { epoch, .. } = &self.clock;
        let looked = self.clock.at(epoch);
        match epoch.monotonic_ns.checked_sub(monotonic_ns) {
            Some(ago) => looked.saturating_sub(ticks(ago)),
            None => looked.saturating_add(ticks(monotonic_ns - epoch.monotonic_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_time_of_the_kernel_is_the_time_of_an_event_at_once() {
        let mut clock = EventClock::begin();
        std::thread::sleep(Duration::from_millis(60));
        clock.look();
        let reading = best_reading();
        let (event, sample) = (Timer::usual().now(), clock.at(reading.monotonic_ns));
        let apart = clock.clock.seconds(event.abs_diff(sample));
        assert!(apart < 0.001, "{apart} s");
        assert!(clock.at(reading.monotonic_ns - 1_000_000) < sample);
    }
}
