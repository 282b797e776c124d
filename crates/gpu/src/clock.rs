//! Converts times of a device's clock to ticks of the run's clock.
//!
//! A reading of the device's clock between two readings of the run's clock is an anchor. The best anchor of each of the last
//! periods is kept; the line through the oldest and the newest of them follows the drift.

use std::collections::VecDeque;

/// The number of anchors that are kept, each the best one of its period.
const ANCHORS_MAX: usize = 16;
/// The length of a period, in nanoseconds of the device.
const PERIOD: u64 = 500_000_000;
/// The number of short periods at the start, which make the drift known early.
const SHORT_PERIODS: usize = 6;
/// The length of a short period.
const SHORT_PERIOD: u64 = 50_000_000;
/// Two anchors that are closer to each other than this show no drift.
const DRIFT_SPAN_MIN: u64 = 200_000_000;
/// A larger drift counts as an error of the readings.
const DRIFT_MAX: f64 = 1e-3;
/// A drift that is usual for clocks.
const DRIFT_LIKELY: f64 = 50e-6;
/// The least error of the rate between anchors.
const RATE_ERROR: f64 = 5e-6;

/// A device time within this distance of the last one for which an anchor was chosen is converted by the same anchor. Another one
/// would be better by at most 10 ns, or by 100 ns while the drift is not known.
const SAME_ANCHOR: u64 = 1_000_000;

/// A reading of a device's clock.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    /// Nanoseconds of the device.
    device: u64,
    /// The middle between the readings of the run's clock before and after it, in ticks.
    ticks: u64,
    /// Half the distance between those two, in ticks.
    error: u64,
}

impl Anchor {
    /// Whether the two readings differ by more than their errors and a drift of [`DRIFT_MAX`] explain. `rate` is in ticks per
    /// nanosecond.
    fn contradicts(&self, other: &Anchor, rate: f64) -> bool {
        let by_device = (other.device as f64 - self.device as f64) * rate;
        let by_run = other.ticks as f64 - self.ticks as f64;
        (by_device - by_run).abs() > (self.error + other.error) as f64 + by_device.abs() * DRIFT_MAX
    }
}

/// The relation of a device's clock, in nanoseconds, to the run's clock, in ticks.
#[derive(Debug)]
pub struct DeviceClock {
    nominal: f64,
    anchors: VecDeque<Anchor>,
    /// The largest error of a time that was converted, in ticks.
    worst: f64,
    /// The line by which the last time was converted, unless an anchor was added since.
    line: Option<Line>,
}

/// A line through the anchor that is the best one for the time `device`.
#[derive(Clone, Copy, Debug)]
struct Line {
    anchor: Anchor,
    rate: f64,
    device: u64,
}

impl DeviceClock {
    /// Returns a clock without anchors. `ticks_per_nanosecond` is the rate of the run's clock, as far as it is known.
    pub fn new(ticks_per_nanosecond: f64) -> DeviceClock {
        DeviceClock { nominal: ticks_per_nanosecond, anchors: VecDeque::new(), worst: 0.0, line: None }
    }

    /// Returns the rate of the run's clock, in ticks per nanosecond.
    pub fn nominal(&self) -> f64 {
        self.nominal
    }

    /// Sets a better value of the rate of the run's clock.
    pub fn set_rate(&mut self, ticks_per_nanosecond: f64) {
        self.nominal = ticks_per_nanosecond;
        self.line = None;
    }

    /// Processes a reading of the device's clock in nanoseconds, and readings of the run's clock in ticks before and after it.
    /// Returns whether a new period begins. The caller should then report the clock's state and look for a better reading.
    pub fn add(&mut self, before: u64, device: u64, after: u64) -> bool {
        let Some(width) = after.checked_sub(before) else { return false };
        let new = Anchor { device, ticks: before + width / 2, error: width.div_ceil(2) };
        self.line = None;
        let is_full = self.anchors.len() == ANCHORS_MAX;
        let period = if self.anchors.len() <= SHORT_PERIODS { SHORT_PERIOD } else { PERIOD };
        match self.anchors.back_mut() {
            // The device's clock was set, for example by a reset.
            Some(last) if last.contradicts(&new, self.nominal) => self.anchors.clear(),
            Some(last) if device < last.device.saturating_add(period) => {
                // A reading may come late, after those of a later period.
                if new.error < last.error && device.saturating_add(period) > last.device {
                    *last = new;
                }
                return false;
            }
            _ if is_full => _ = self.anchors.pop_front(),
            _ => {}
        }
        self.anchors.push_back(new);
        true
    }

    /// Returns the rate of the run's clock between the oldest and the newest anchor, in ticks per nanosecond of the device, with
    /// its relative error. Returns `None` if the anchors are too close to each other, or contradict a possible drift.
    fn measured_rate(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.anchors.front()?, self.anchors.back()?);
        let span = last.device.checked_sub(first.device).filter(|span| *span >= DRIFT_SPAN_MIN)?;
        let rate = (last.ticks as f64 - first.ticks as f64) / span as f64;
        let error = (first.error + last.error) as f64 / (last.ticks.abs_diff(first.ticks)) as f64;
        (self.drift_of(rate) <= DRIFT_MAX).then_some((rate, error))
    }

    fn drift_of(&self, rate: f64) -> f64 {
        (rate / self.nominal - 1.0).abs()
    }

    /// Returns the rate of the run's clock, in ticks per nanosecond of the device, and its error as a fraction.
    fn rate(&self) -> (f64, f64) {
        match self.measured_rate() {
            // An inexact drift is still used if its error is at most half of it.
            Some((rate, error)) if error <= RATE_ERROR.max(self.drift_of(rate) / 2.0) => {
                (rate, error.max(RATE_ERROR))
            }
            _ => (self.nominal, DRIFT_LIKELY),
        }
    }

    /// Converts a time to ticks, by the anchor that gives the least error. Returns `None` if the clock has no anchor.
    pub fn ticks(&mut self, device: u64) -> Option<u64> {
        let Line { anchor, rate, .. } = match self.line {
            Some(line) if device.abs_diff(line.device) < SAME_ANCHOR => line,
            _ => self.line_at(device)?,
        };
        let distance = (device.abs_diff(anchor.device) as f64 * rate).round() as u64;
        Some(match device >= anchor.device {
            true => anchor.ticks.saturating_add(distance),
            false => anchor.ticks.saturating_sub(distance),
        })
    }

    fn line_at(&mut self, device: u64) -> Option<Line> {
        let (rate, rate_error) = self.rate();
        let error =
            |anchor: &Anchor| anchor.error as f64 + device.abs_diff(anchor.device) as f64 * rate * rate_error;
        let anchor = *self.anchors.iter().min_by(|a, b| error(a).total_cmp(&error(b)))?;
        self.worst = self.worst.max(error(&anchor));
        let line = Line { anchor, rate, device };
        self.line = Some(line);
        Some(line)
    }

    /// Returns the largest error of the times that were converted so far, in nanoseconds.
    pub fn error(&self) -> u64 {
        (self.worst / self.nominal).ceil() as u64
    }

    /// Returns the drift of the device's clock against the nominal rate of the run's clock, in parts of 10^9, or 0 while it is
    /// not known to within [`RATE_ERROR`].
    pub fn drift(&self) -> u64 {
        match self.measured_rate() {
            Some((rate, error)) if error <= RATE_ERROR => (self.drift_of(rate) * 1e9).round() as u64,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device whose clock runs faster than the run's by `drift`.
    fn device(drift: f64) -> impl Fn(u64) -> u64 {
        move |ticks| 5_000_000_000 + (ticks as f64 / 3.0 * (1.0 + drift)) as u64
    }

    /// Reads the clock for the `step`th time, one every 10 ms, with an uncertain delay. Returns the run's time before the
    /// reading.
    fn read(clock: &mut DeviceClock, device_at: &impl Fn(u64) -> u64, step: u64) -> u64 {
        let before = 900 + step * 30_000_000;
        let delay = 3000 + step * 7919 % 60_000;
        clock.add(before, device_at(before + delay / 2), before + delay);
        before
    }

    fn played(drift: f64, seconds: u64) -> (DeviceClock, impl Fn(u64) -> u64) {
        let (mut clock, device_at) = (DeviceClock::new(3.0), device(drift));
        for step in 0..seconds * 100 {
            read(&mut clock, &device_at, step);
        }
        (clock, device_at)
    }

    #[test]
    fn a_drifting_clock_is_followed_within_its_stated_error() {
        for drift in [0.0, 50e-6, -50e-6] {
            let (mut clock, device_at) = played(drift, 20);
            // Kernels of the last second, and of the next one.
            for ticks in (57_000_000_000..63_000_000_000).step_by(1_000_000_000) {
                let found = clock.ticks(device_at(ticks)).unwrap();
                assert!(found.abs_diff(ticks) <= 3 * clock.error(), "{drift}: {found} is not {ticks}");
            }
            assert!(clock.error() < 10_000, "{} ns", clock.error());
            let shown = clock.drift() as f64 / 1e9;
            assert!((shown - f64::abs(drift)).abs() < 2e-6, "{shown}");
        }
    }

    /// The worst readings have an error of 10 us, and the best ones of 0.5 us.
    #[test]
    fn times_are_exact_to_10_us_from_the_start() {
        for drift in [50e-6, -50e-6] {
            let mut worst = 0;
            let (mut clock, device_at) = (DeviceClock::new(3.0), device(drift));
            for step in 0..300 {
                let read = read(&mut clock, &device_at, step);
                worst = worst.max(clock.ticks(device_at(read)).unwrap().abs_diff(read));
            }
            assert!(worst <= 3 * 10_000, "{drift}: {worst} ticks");
        }
    }

    #[test]
    fn a_clock_that_jumps_back_or_ahead_by_less_than_a_period_starts_anew() {
        for (by, step) in [(-100_000_000, 1), (100_000_000, 1), (-2_000_000, 30), (2_000_000, 30)] {
            let (mut clock, device_at) = played(50e-6, 3);
            let set_at = |ticks| device_at(ticks).wrapping_add_signed(by);
            let ticks = 9_000_000_000 + step * 30_000_000;
            clock.add(ticks - 1500, set_at(ticks), ticks + 1500);
            let later = ticks + 30_000_000;
            assert!(clock.ticks(set_at(later)).unwrap().abs_diff(later) <= 3 * 10_000, "{by}");
        }
    }

    /// A command that was queued long ago and has just completed.
    #[test]
    fn a_late_reading_changes_nothing() {
        let (mut clock, device_at) = played(50e-6, 10);
        let drift = clock.drift();
        clock.add(3_000_000_000, device_at(3_000_000_005), 3_000_000_010);
        assert_eq!(clock.drift(), drift);
        assert_eq!(clock.anchors.len(), ANCHORS_MAX);
    }

    #[test]
    fn a_reset_device_starts_anew() {
        let (mut clock, _) = played(0.0, 3);
        assert!(clock.ticks(2000) < Some(10_000_000_000));
        clock.add(10_000_000_000, 1000, 10_000_000_300);
        assert_eq!(clock.ticks(2000), Some(10_000_000_150 + 3000));
        assert_eq!(clock.drift(), 0);
    }

    /// Readings 0.3 s apart whose errors hide a part of the drift: here the measured rate is too large by 10 parts in a million.
    #[test]
    fn the_error_of_a_rate_that_is_not_exact_is_counted() {
        let (mut clock, device_at) = (DeviceClock::new(3.0), device(-50e-6));
        for (ticks, late) in [(0, 9000), (900_000_000, 0)] {
            clock.add(ticks, device_at(ticks + late), ticks + 9000);
        }
        let found = clock.ticks(device_at(9_000_000_000)).unwrap();
        assert!(found.abs_diff(9_000_000_000) > 3 * 10_000, "{found}");
        assert!(found.abs_diff(9_000_000_000) <= 3 * clock.error(), "{found}: {} ns", clock.error());
    }

    #[test]
    fn a_clock_without_anchors_has_no_time() {
        assert_eq!(DeviceClock::new(1.0).ticks(5), None);
    }
}
