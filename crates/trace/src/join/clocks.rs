//! Relates the clocks of the nodes. Only the time of day is common to them, and it is only as exact as each node's setting of it.

use otf2::ClockProperties;

/// Readings at the start and the end must be at least this far apart to yield a clock's rate; otherwise its nominal resolution is
/// used.
const APART_MIN_NS: u64 = 1_000_000_000;
/// Clocks whose drift stays below this during a run cannot be distinguished from clocks without drift, because the nodes' times
/// of day are less exact. Durations then stay as they were recorded.
const DRIFT_SECONDS: f64 = 1e-4;

/// The clock of an archive, related to the time of day.
pub struct Clock {
    properties: ClockProperties,
    line: Option<Line>,
}

/// The time of day as a linear function of the clock's ticks.
struct Line {
    ticks: u64,
    ns: u64,
    ns_per_tick: f64,
}

impl Clock {
    /// Relates a clock to the time of day. `readings` are pairs of ticks and nanoseconds since 1970, in ascending order.
    pub fn of(properties: &ClockProperties, readings: &[[u64; 2]]) -> Clock {
        let nominal = 1e9 / properties.timer_resolution.max(1) as f64;
        let of_trace = properties.realtime_timestamp.map(|ns| [properties.global_offset, ns]);
        let first = readings.first().copied().or(of_trace);
        let line = first.map(|[ticks, ns]| {
            let apart = readings.last().filter(|last| last[0] > ticks && last[1] >= ns + APART_MIN_NS);
            let measured = apart.map(|last| (last[1] - ns) as f64 / (last[0] - ticks) as f64);
            Line { ticks, ns, ns_per_tick: measured.unwrap_or(nominal) }
        });
        Clock { properties: properties.clone(), line }
    }

    /// Extends this clock's archive to include that of another clock. Returns the start and the end of the other archive, at
    /// least one tick apart, in its own ticks, each with the offset that converts it to this clock. If a time of day is missing,
    /// both archives start together.
    pub fn take_in(&mut self, other: &Clock) -> Vec<(u64, i64)> {
        let (properties, others) = (&mut self.properties, &other.properties);
        let (begin, end) = (others.global_offset, others.global_offset.saturating_add(others.trace_length));
        let offset = |time: u64| match (&self.line, &other.line) {
            (Some(own), Some(other)) => i128::from(own.ticks_at(other.ns_at(time))) - i128::from(time),
            _ => i128::from(properties.global_offset) - i128::from(begin),
        };
        let (mut first, mut last) = (offset(begin), offset(end));
        if (last - first).unsigned_abs() as f64 <= DRIFT_SECONDS * properties.timer_resolution as f64 {
            let mean = first + (last - first) / 2;
            (first, last) = (mean, mean);
        }
        let added = |time: u64, offset: i128| u64::try_from(i128::from(time) + offset).unwrap_or(0);
        let own_end = properties.global_offset.saturating_add(properties.trace_length);
        let (new_begin, new_end) =
            (added(begin, first).min(properties.global_offset), added(end, last).max(own_end));
        let earlier = u128::from(properties.global_offset - new_begin) * 1_000_000_000;
        let earlier = (earlier / u128::from(properties.timer_resolution.max(1))) as u64;
        properties.realtime_timestamp = properties.realtime_timestamp.map(|ns| ns.saturating_sub(earlier));
        (properties.global_offset, properties.trace_length) = (new_begin, new_end - new_begin);
        let as_offset = |offset: i128| i64::try_from(offset).unwrap_or(0);
        vec![(begin, as_offset(first)), (end.max(begin + 1), as_offset(last))]
    }

    /// Returns the properties of the clock, including all archives that were taken in.
    pub fn properties(self) -> ClockProperties {
        self.properties
    }
}

impl Line {
    fn ns_at(&self, ticks: u64) -> i128 {
        let since = (i128::from(ticks) - i128::from(self.ticks)) as f64;
        i128::from(self.ns) + (since * self.ns_per_tick).round() as i128
    }

    fn ticks_at(&self, ns: i128) -> i64 {
        let since = (ns - i128::from(self.ns)) as f64;
        (i128::from(self.ticks) + (since / self.ns_per_tick).round() as i128) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 1_700_000_000_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    fn clock(ticks_per_second: u64, begin: u64, length: u64, realtime: Option<u64>) -> ClockProperties {
        ClockProperties {
            timer_resolution: ticks_per_second,
            global_offset: begin,
            trace_length: length,
            realtime_timestamp: realtime,
        }
    }

    /// The other clock has the same rate and another origin, and its archive starts two seconds earlier.
    #[test]
    fn an_archive_that_begins_earlier_makes_the_whole_longer() {
        let mut whole = Clock::of(&clock(SECOND, 50 * SECOND, 5 * SECOND, Some(DAY)), &[]);
        let other = Clock::of(&clock(SECOND, 7, 4 * SECOND, Some(DAY - 2 * SECOND)), &[]);
        let offset = (48 * SECOND) as i64 - 7;
        assert_eq!(whole.take_in(&other), [(7, offset), (7 + 4 * SECOND, offset)]);
        assert_eq!(whole.properties(), clock(SECOND, 48 * SECOND, 7 * SECOND, Some(DAY - 2 * SECOND)));
    }

    /// Both clocks claim the same resolution, but one has 20 more ticks in a million.
    #[test]
    fn the_rate_is_measured_between_the_first_and_the_last_reading() {
        let hour = 3600 * SECOND;
        let properties = clock(SECOND, 0, hour, Some(DAY));
        let readings = [[0, DAY], [hour, DAY + hour]];
        let fast = hour + hour / 50_000;
        let other = Clock::of(&clock(SECOND, 0, fast, Some(DAY)), &[[0, DAY], [fast, DAY + hour]]);
        let mut whole = Clock::of(&properties, &readings);
        assert_eq!(whole.take_in(&other), [(0, 0), (fast, -((hour / 50_000) as i64))]);
        assert_eq!(whole.properties(), properties);
    }

    #[test]
    fn a_drift_that_the_clocks_are_too_inexact_to_show_is_ignored() {
        let minute = 60 * SECOND;
        let of = |rate: u64| {
            let ticks = minute + rate;
            Clock::of(&clock(SECOND, 0, minute, None), &[[0, DAY], [ticks, DAY + minute]])
        };
        let offsets = |rate: u64| of(0).take_in(&of(rate));
        assert_eq!(offsets(90_000)[0].1, offsets(90_000)[1].1);
        assert_ne!(offsets(110_000)[0].1, offsets(110_000)[1].1);
    }

    #[test]
    fn clocks_of_another_resolution() {
        let mut whole = Clock::of(&clock(2 * SECOND, 100, 20 * SECOND, Some(DAY)), &[]);
        let other = Clock::of(&clock(SECOND, 1000, 10 * SECOND, Some(DAY)), &[]);
        assert_eq!(whole.take_in(&other), [(1000, -900), (1000 + 10 * SECOND, 10 * SECOND as i64 - 900)]);
    }

    #[test]
    fn without_a_time_of_day_both_begin_together() {
        let mut whole = Clock::of(&clock(SECOND, 100, 10, Some(DAY)), &[]);
        let other = Clock::of(&clock(SECOND, 1000, 20, None), &[]);
        assert_eq!(whole.take_in(&other), [(1000, -900), (1020, -900)]);
        assert_eq!(whole.properties().trace_length, 20);
    }
}
