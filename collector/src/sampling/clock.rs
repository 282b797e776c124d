//! Which clock event timestamps come from, and how long its ticks are.
//!
//! Score-P tells a substrate plugin neither. Each process' log begins with a reading of every clock; the first event
//! came after that reading and before now, on exactly one of them.

use ampere_model::{Clocks, Timestamp};
use ampere_ring::Session;
use ampere_ring::clock::read_clocks;
use std::time::Duration;

/// Score-P's timers (`SCOREP_TIMER`), and the unit of their ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The processor's counter. Its rate is measured.
    Tsc,
    /// Microseconds since the epoch.
    GetTimeOfDay,
    /// Nanoseconds of one of the system's clocks.
    MonotonicRaw,
    Monotonic,
    Realtime,
    /// A replayed trace's: no clock of this machine. The replay says what time it is, in the session's page.
    Told,
}

impl Timer {
    /// Score-P's default on this machine.
    pub fn usual() -> Timer {
        if ampere_ring::clock::ticks() == 0 { Timer::MonotonicRaw } else { Timer::Tsc }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Timer::Tsc => "tsc",
            Timer::GetTimeOfDay => "gettimeofday",
            Timer::MonotonicRaw => "clock_gettime (monotonic raw)",
            Timer::Monotonic => "clock_gettime (monotonic)",
            Timer::Realtime => "clock_gettime (realtime)",
            Timer::Told => "trace",
        }
    }

    pub fn from_name(name: &str) -> Option<Timer> {
        use Timer::{GetTimeOfDay, Monotonic, MonotonicRaw, Realtime, Told, Tsc};
        let all = [Tsc, GetTimeOfDay, MonotonicRaw, Monotonic, Realtime, Told];
        all.into_iter().find(|timer| timer.as_str() == name)
    }

    /// What the timer would say at the moment of a reading.
    fn of(self, clocks: &Clocks) -> Timestamp {
        match self {
            // A told clock's epoch has its ticks there.
            Timer::Tsc | Timer::Told => clocks.tsc,
            Timer::GetTimeOfDay => clocks.realtime_ns / 1000,
            Timer::MonotonicRaw => clocks.monotonic_raw_ns,
            Timer::Monotonic => clocks.monotonic_ns,
            Timer::Realtime => clocks.realtime_ns,
        }
    }

    /// What the timer says now. Of a told one only the session knows: see [`SessionClock::now`].
    #[inline]
    pub fn now(self) -> Timestamp {
        match self {
            Timer::Tsc => ampere_ring::clock::ticks(),
            _ => self.of(&read_clocks()),
        }
    }
}

/// The timer whose reading lies between those of `before` and `after`; of several, the one that was nearest to the event
/// at `reading`, when its process began to write.
pub fn recognise(event: Timestamp, before: &Clocks, reading: &Clocks, after: &Clocks) -> Option<Timer> {
    let timers = [Timer::Tsc, Timer::GetTimeOfDay, Timer::MonotonicRaw, Timer::Monotonic, Timer::Realtime];
    let possible = timers.into_iter().filter(|timer| (timer.of(before)..=timer.of(after)).contains(&event));
    possible.min_by_key(|timer| timer.of(reading).abs_diff(event))
}

/// The clock of a session: fixed once, the same for events, samples, attribution and trace.
#[derive(Clone, Copy, Debug)]
pub struct SessionClock {
    pub timer: Timer,
    pub ticks_per_second: u64,
    /// Ticks and wall-clock time of one moment.
    pub epoch: Clocks,
    /// Whether the epoch's wall-clock time is known.
    dated: bool,
}

impl SessionClock {
    /// `start` is a reading of at least [`CALIBRATION`] ago: the longer, the better.
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

    /// A replay's. `realtime_ns`: nanoseconds since 1970 at tick `first`, where that is known.
    pub fn told(ticks_per_second: u64, first: Timestamp, realtime_ns: Option<u64>) -> SessionClock {
        SessionClock {
            timer: Timer::Told,
            ticks_per_second,
            epoch: Clocks { tsc: first, realtime_ns: realtime_ns.unwrap_or(0), ..Clocks::default() },
            dated: realtime_ns.is_some(),
        }
    }

    /// As it was calibrated once.
    pub fn remembered(timer: Timer, ticks_per_second: u64, epoch: Clocks, dated: bool) -> SessionClock {
        SessionClock { timer, ticks_per_second, epoch, dated }
    }

    /// The time of a reading.
    pub fn at(&self, clocks: &Clocks) -> Timestamp {
        self.timer.of(clocks)
    }

    pub fn is_dated(&self) -> bool {
        self.dated
    }

    #[inline]
    pub fn now(&self, session: &Session) -> Timestamp {
        match self.timer {
            Timer::Told => session.told_time(),
            timer => timer.now(),
        }
    }

    /// Whether time is what a replay says it is: then everything before it has been written already.
    pub fn is_told(&self) -> bool {
        self.timer == Timer::Told
    }

    pub fn ticks(&self, duration: Duration) -> u64 {
        (duration.as_secs_f64() * self.ticks_per_second as f64) as u64
    }

    pub fn seconds(&self, ticks: u64) -> f64 {
        ticks as f64 / self.ticks_per_second as f64
    }

    /// Nanoseconds since 1970 of a timestamp; `None` for a replayed trace that does not say.
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

/// A rate measured over this long is right to some 2 parts in a million: two readings of 50 ns each.
pub const CALIBRATION: Duration = Duration::from_millis(50);

/// The reading, of several, whose counter and clock were read closest together.
pub fn best_reading() -> Clocks {
    let timed = || {
        let begin = ampere_ring::clock::ticks();
        let mut clocks = read_clocks();
        let monotonic = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let end = ampere_ring::clock::ticks();
        clocks.tsc = begin + (end - begin) / 2;
        // Halfway as well: the first reading of the monotonic clock and the second one enclose the rest.
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

    /// CLOCK_REALTIME can be stepped while a job runs. Only who measures by it (SCOREP_TIMER=gettimeofday) sees that.
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

            // The rate of ticks is by the monotonic clock, and all dates are by one reading: they are as far apart as ticks are.
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
        let (ticks, wall) = (clock.timer.now(), std::time::Instant::now());
        std::thread::sleep(Duration::from_millis(200));
        let measured = clock.seconds(clock.timer.now() - ticks);
        let expected = wall.elapsed().as_secs_f64();
        assert!(
            (measured - expected).abs() < 1e-3 * expected,
            "{measured} s by ticks, {expected} s by the wall"
        );
        let realtime = clock.realtime_ns(clock.timer.now()).unwrap();
        assert!(realtime.abs_diff(read_clocks().realtime_ns) < 20_000_000);
    }
}
