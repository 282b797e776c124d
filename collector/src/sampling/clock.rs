//! Determines the clock of the event timestamps and the length of its ticks.
//!
//! Score-P does not report either to a substrate plugin. Each process' log starts with a reading of every clock. The first event
//! came after that reading and before the present. Usually only one clock fits; otherwise the one nearest to the reading is
//! chosen.

use ampere_model::{Clocks, Timestamp};
use ampere_ring::Session;
use ampere_ring::clock::read_clocks;
use std::time::Duration;

/// Score-P's timers (`SCOREP_TIMER`), and the unit of their ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The processor's time stamp counter, whose rate is measured.
    Tsc,
    /// Microseconds since 1970 (`gettimeofday`).
    GetTimeOfDay,
    /// The clock `CLOCK_MONOTONIC_RAW`, in nanoseconds.
    MonotonicRaw,
    /// The clock `CLOCK_MONOTONIC`, in nanoseconds.
    Monotonic,
    /// The clock `CLOCK_REALTIME`, in nanoseconds.
    Realtime,
    /// A replayed trace's clock. The replay writes its current time to the session's page.
    Replayed,
}

impl Timer {
    /// Returns Score-P's default on this machine.
    pub fn usual() -> Timer {
        if ampere_ring::clock::ticks() == 0 { Timer::MonotonicRaw } else { Timer::Tsc }
    }

    /// Returns the timer's name in OTF2 and the manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Timer::Tsc => "tsc",
            Timer::GetTimeOfDay => "gettimeofday",
            Timer::MonotonicRaw => "clock_gettime (monotonic raw)",
            Timer::Monotonic => "clock_gettime (monotonic)",
            Timer::Realtime => "clock_gettime (realtime)",
            Timer::Replayed => "trace",
        }
    }

    /// Returns the timer with a name of [`Timer::as_str`].
    pub fn from_name(name: &str) -> Option<Timer> {
        use Timer::{GetTimeOfDay, Monotonic, MonotonicRaw, Realtime, Replayed, Tsc};
        let all = [Tsc, GetTimeOfDay, MonotonicRaw, Monotonic, Realtime, Replayed];
        all.into_iter().find(|timer| timer.as_str() == name)
    }

    /// Returns the timer's time at the moment of a reading.
    fn of(self, clocks: &Clocks) -> Timestamp {
        match self {
            // The epoch of a replayed clock has its ticks in this field.
            Timer::Tsc | Timer::Replayed => clocks.tsc,
            Timer::GetTimeOfDay => clocks.realtime_ns / 1000,
            Timer::MonotonicRaw => clocks.monotonic_raw_ns,
            Timer::Monotonic => clocks.monotonic_ns,
            Timer::Realtime => clocks.realtime_ns,
        }
    }

    /// Returns the timer's current time. For a replayed clock, only the session knows it: see [`SessionClock::now`].
    #[inline]
    pub fn now(self) -> Timestamp {
        match self {
            Timer::Tsc => ampere_ring::clock::ticks(),
            _ => self.of(&read_clocks()),
        }
    }
}

/// Returns the timer on which an event lies between `before` and `after`. If several do, the result is the one whose time at
/// `reading`, when the event's process started to write, is nearest to the event.
pub fn recognise(event: Timestamp, before: &Clocks, reading: &Clocks, after: &Clocks) -> Option<Timer> {
    let timers = [Timer::Tsc, Timer::GetTimeOfDay, Timer::MonotonicRaw, Timer::Monotonic, Timer::Realtime];
    let possible = timers.into_iter().filter(|timer| (timer.of(before)..=timer.of(after)).contains(&event));
    possible.min_by_key(|timer| timer.of(reading).abs_diff(event))
}

/// The clock of a session, which events, samples, attribution and trace share.
#[derive(Clone, Copy, Debug)]
pub struct SessionClock {
    /// The timer that its times come from.
    pub timer: Timer,
    /// The rate of the clock.
    pub ticks_per_second: u64,
    /// The ticks and the wall-clock time of one moment.
    pub epoch: Clocks,
    /// Whether the epoch's wall-clock time is known.
    dated: bool,
}

impl SessionClock {
    /// Makes a clock whose rate is measured now. `start` is a reading from at least [`CALIBRATION`] ago, or
    /// [`CALIBRATION_MIN`] if the run ends early; the older, the better.
    pub fn calibrated(timer: Timer, start: &Clocks) -> SessionClock {
        let now = best_reading();
        let ticks_per_second = match timer {
            Timer::Tsc => {
                let ticks = now.tsc.saturating_sub(start.tsc) as f64;
                let seconds = now.monotonic_ns.saturating_sub(start.monotonic_ns).max(1) as f64 / 1e9;
                ((ticks / seconds).round() as u64).max(1)
            }
            Timer::GetTimeOfDay => 1_000_000,
            _ => 1_000_000_000,
        };
        SessionClock { timer, ticks_per_second, epoch: now, dated: true }
    }

    /// Makes a replay's clock. `realtime_ns` is nanoseconds since 1970 at tick `first`, if known.
    pub fn replayed(ticks_per_second: u64, first: Timestamp, realtime_ns: Option<u64>) -> SessionClock {
        SessionClock {
            timer: Timer::Replayed,
            ticks_per_second,
            epoch: Clocks { tsc: first, realtime_ns: realtime_ns.unwrap_or(0), ..Clocks::default() },
            dated: realtime_ns.is_some(),
        }
    }

    /// Makes a clock that was calibrated before.
    pub fn saved(timer: Timer, ticks_per_second: u64, epoch: Clocks, dated: bool) -> SessionClock {
        SessionClock { timer, ticks_per_second, epoch, dated }
    }

    pub fn at(&self, clocks: &Clocks) -> Timestamp {
        self.timer.of(clocks)
    }

    /// Whether the session's wall-clock time is known.
    pub fn is_dated(&self) -> bool {
        self.dated
    }

    /// Returns the clock's current time.
    #[inline]
    pub fn now(&self, session: &Session) -> Timestamp {
        match self.timer {
            Timer::Replayed => session.replay_time(),
            timer => timer.now(),
        }
    }

    /// Whether this is the clock of a replay, in which all events before the current time have been written.
    pub fn is_replayed(&self) -> bool {
        self.timer == Timer::Replayed
    }

    pub fn ticks(&self, duration: Duration) -> u64 {
        (duration.as_secs_f64() * self.ticks_per_second as f64) as u64
    }

    pub fn seconds(&self, ticks: u64) -> f64 {
        ticks as f64 / self.ticks_per_second as f64
    }

    /// Returns nanoseconds since 1970 at a timestamp; `None` if a replayed trace has no date.
    pub fn realtime_ns(&self, time: Timestamp) -> Option<u64> {
        self.dated.then(|| self.realtime_ns_if_dated(time))
    }

    fn realtime_ns_if_dated(&self, time: Timestamp) -> u64 {
        let zero = self.timer.of(&self.epoch);
        let distance =
            |ticks: u64| (u128::from(ticks) * 1_000_000_000 / u128::from(self.ticks_per_second)) as u64;
        match time.checked_sub(zero) {
            Some(later) => self.epoch.realtime_ns.saturating_add(distance(later)),
            None => self.epoch.realtime_ns.saturating_sub(distance(zero - time)),
        }
    }
}

/// A rate that is measured over this time has an error of some 2 parts in a million: two readings take 50 ns each.
pub const CALIBRATION: Duration = Duration::from_millis(50);
/// The shortest time over which the rate of a run that ends early is measured. Over this time, the error of the rate adds up to
/// only 100 ns.
pub const CALIBRATION_MIN: Duration = Duration::from_millis(2);

/// Reads all clocks several times, and returns the reading that took the least time.
pub fn best_reading() -> Clocks {
    let timed = || {
        let begin = ampere_ring::clock::ticks();
        let mut clocks = read_clocks();
        let monotonic = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let end = ampere_ring::clock::ticks();
        clocks.tsc = begin + (end - begin) / 2;
        // The mean of two readings of the monotonic clock that enclose the others, without overflow.
        let second = monotonic.tv_sec as u64 * 1_000_000_000 + monotonic.tv_nsec as u64;
        clocks.monotonic_ns = clocks.monotonic_ns / 2 + second / 2 + (clocks.monotonic_ns & second & 1);
        (end - begin, clocks)
    };
    (0..16).map(|_| timed()).min_by_key(|(width, _)| *width).map_or_else(read_clocks, |(_, clocks)| clocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timer_of_score_p_is_recognised() {
        let before = read_clocks();
        std::thread::sleep(Duration::from_millis(2));
        let at = read_clocks();
        std::thread::sleep(Duration::from_millis(2));
        let after = read_clocks();
        assert_eq!(recognise(at.tsc, &before, &before, &after), Some(Timer::Tsc));
        assert_eq!(recognise(at.realtime_ns / 1000, &before, &before, &after), Some(Timer::GetTimeOfDay));
        assert_eq!(recognise(at.realtime_ns, &before, &before, &after), Some(Timer::Realtime));
        let raw = recognise(at.monotonic_raw_ns, &before, &before, &after);
        assert!(matches!(raw, Some(Timer::MonotonicRaw | Timer::Monotonic)), "{raw:?}");
        assert_eq!(recognise(12345, &before, &before, &after), None);
    }

    /// CLOCK_REALTIME can be stepped while a job runs. Only SCOREP_TIMER=gettimeofday depends on it.
    #[test]
    fn a_stepped_clock_changes_neither_the_timer_nor_its_rate() {
        const HOUR: i64 = 3_600_000_000_000;
        const MILLISECOND: u64 = 1_000_000;
        let later = |clocks: &Clocks, by: u64, step: i64| Clocks {
            tsc: clocks.tsc + 3 * by,
            monotonic_ns: clocks.monotonic_ns + by,
            monotonic_raw_ns: clocks.monotonic_raw_ns + by,
            realtime_ns: (clocks.realtime_ns + by).saturating_add_signed(step),
        };
        let before = Clocks {
            tsc: 900_000_000_000,
            monotonic_ns: 300_000_000_000,
            monotonic_raw_ns: 299_000_000_000,
            realtime_ns: 1_700_000_000_000_000_000,
        };
        for step in [-HOUR, HOUR] {
            let event = later(&before, 5 * MILLISECOND, 0);
            let (reading, after) =
                (later(&before, 2 * MILLISECOND, 0), later(&before, 9 * MILLISECOND, step));
            assert_eq!(recognise(event.tsc, &before, &reading, &after), Some(Timer::Tsc));
            let raw = recognise(event.monotonic_raw_ns, &before, &reading, &after);
            assert_eq!(raw, Some(Timer::MonotonicRaw));

            // The rate is measured by the monotonic clock, and all dates come from one reading: their distances are those of the
            // ticks.
            let start = best_reading();
            let stepped = Clocks { realtime_ns: start.realtime_ns.saturating_add_signed(step), ..start };
            std::thread::sleep(CALIBRATION);
            let (plain, other) = (
                SessionClock::calibrated(Timer::Tsc, &start),
                SessionClock::calibrated(Timer::Tsc, &stepped),
            );
            let difference = plain.ticks_per_second.abs_diff(other.ticks_per_second) as f64;
            assert!(difference < 1e-4 * plain.ticks_per_second as f64);
            let (first, last) = (plain.epoch.tsc, plain.epoch.tsc + 10 * plain.ticks_per_second);
            let apart = plain.realtime_ns(last).unwrap() - plain.realtime_ns(first).unwrap();
            assert_eq!(apart, 10_000_000_000);
        }
    }

    #[test]
    fn ticks_become_seconds() {
        let start = best_reading();
        std::thread::sleep(CALIBRATION);
        let clock = SessionClock::calibrated(Timer::Tsc, &start);
        // This thread may be interrupted between any two clocks.
        let wall = std::time::Instant::now;
        let before = wall();
        let begin = clock.timer.now();
        let begun = wall();
        std::thread::sleep(Duration::from_millis(200));
        let ending = wall();
        let end = clock.timer.now();
        let after = wall();
        let measured = clock.seconds(end - begin);
        let (least, most) = ((ending - begun).as_secs_f64(), (after - before).as_secs_f64());
        assert!(
            (0.999 * least..1.001 * most).contains(&measured),
            "{measured} s by ticks, {least} to {most} s by the wall clock"
        );
        let realtime = clock.realtime_ns(clock.timer.now()).unwrap();
        assert!(realtime.abs_diff(read_clocks().realtime_ns) < 20_000_000);
    }
}
