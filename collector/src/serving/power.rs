//! Computes the current power of each device: joules divided by the time between samples. The samples' own timestamps are used,
//! so a sample that arrives late does not change the power.

use ampere_model::Timestamp;
use std::collections::VecDeque;

/// A device's power is unknown when its last sample is older than this many windows.
const STALE_WINDOWS: u64 = 5;

/// The recent samples of each device.
#[derive(Debug, Default)]
pub struct Power {
    /// For each device: the times of samples in ticks, and the joules until then.
    devices: Vec<VecDeque<(Timestamp, f64)>>,
}

impl Power {
    /// Forgets the samples of all devices.
    pub fn clear(&mut self) {
        self.devices.clear();
    }

    /// Adds a device's last sample; a sample that was added before is ignored. Averages are over `window` ticks, or over the time
    /// between two samples if that is longer.
    pub fn add_sample(&mut self, device: usize, time: Timestamp, joules: f64, window: u64) {
        if self.devices.len() <= device {
            self.devices.resize_with(device + 1, VecDeque::new);
        }
        let samples = &mut self.devices[device];
        if samples.back().is_some_and(|(last, _)| *last >= time) {
            return;
        }
        samples.push_back((time, joules));
        while samples.len() > 2 && time - samples[1].0 >= window {
            samples.pop_front();
        }
    }

    /// Returns the joules per tick; `None` before the second sample, and if the last one is too old.
    pub fn per_tick(&self, device: usize, now: Timestamp, window: u64) -> Option<f64> {
        let samples = self.devices.get(device)?;
        let ((from, before), (to, after)) = (samples.front()?, samples.back()?);
        let is_known =
            to > from && now.saturating_sub(*to) <= window.max(to - from).saturating_mul(STALE_WINDOWS);
        is_known.then(|| (after - before) / (to - from) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1000;

    #[test]
    fn power_is_joules_divided_by_the_time_between_samples() {
        let mut power = Power::default();
        assert_eq!(power.per_tick(0, 0, SECOND), None);
        power.add_sample(0, 100, 1.0, SECOND);
        assert_eq!(power.per_tick(0, 100, SECOND), None, "one sample gives no power");
        // The device uses 2 J per tick and is sampled every 100 ticks, then not for 3 s.
        for time in (200..2000).step_by(100) {
            power.add_sample(0, time, 1.0 + 2.0 * (time - 100) as f64, SECOND);
            assert_eq!(power.per_tick(0, time + 50, SECOND), Some(2.0));
        }
        assert_eq!(power.per_tick(0, 4900, SECOND), Some(2.0), "a late sample does not lower it");
        power.add_sample(0, 4900, 1.0 + 2.0 * 4800.0, SECOND);
        assert_eq!(power.per_tick(0, 4900, SECOND), Some(2.0));
        assert_eq!(power.per_tick(0, 50_000, SECOND), None, "the last sample is too old");
    }

    #[test]
    fn power_is_an_average_over_the_last_window() {
        let mut power = Power::default();
        for time in (0..5000u64).step_by(100) {
            let joules = if time <= 3000 { time as f64 } else { 3000.0 + 5.0 * (time - 3000) as f64 };
            power.add_sample(0, time, joules, SECOND);
        }
        assert_eq!(power.per_tick(0, 5000, SECOND), Some(5.0));
    }

    #[test]
    fn the_power_of_a_slow_counter_is_that_between_its_samples() {
        let mut power = Power::default();
        for time in [0, 3000, 6000] {
            power.add_sample(0, time, time as f64, SECOND);
        }
        assert_eq!(power.per_tick(0, 7000, SECOND), Some(1.0));
    }
}
