//! The power of each device, for who looks at it live: joules by the time that its samples are about, not by the time at
//! which they came. A collector that was held up, or samples that come late, change nothing of it.

use ampere_model::Timestamp;
use std::collections::VecDeque;

/// So many windows after its last sample a device's power is not known any more.
const STALE_WINDOWS: u64 = 5;

#[derive(Debug, Default)]
pub struct Power {
    /// By device: the times of samples, and the joules until then.
    devices: Vec<VecDeque<(Timestamp, f64)>>,
}

impl Power {
    pub fn clear(&mut self) {
        self.devices.clear();
    }

    /// A device's last sample, as often as it is looked at. Averages are over `window` ticks, or from one sample to the next.
    pub fn see(&mut self, device: usize, time: Timestamp, joules: f64, window: u64) {
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

    /// Joules a tick; `None` before the second sample, and when the last one is long ago.
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
    fn it_is_joules_by_the_time_of_the_samples() {
        let mut power = Power::default();
        assert_eq!(power.per_tick(0, 0, SECOND), None);
        power.see(0, 100, 1.0, SECOND);
        assert_eq!(power.per_tick(0, 100, SECOND), None, "one sample is no power");
        // 2 J a tick, looked at every 100 ticks; then not for 3 s.
        for time in (200..2000).step_by(100) {
            power.see(0, time, 1.0 + 2.0 * (time - 100) as f64, SECOND);
            assert_eq!(power.per_tick(0, time + 50, SECOND), Some(2.0));
        }
        assert_eq!(power.per_tick(0, 4900, SECOND), Some(2.0), "late is not less");
        power.see(0, 4900, 1.0 + 2.0 * 4800.0, SECOND);
        assert_eq!(power.per_tick(0, 4900, SECOND), Some(2.0));
        assert_eq!(power.per_tick(0, 50_000, SECOND), None, "nobody knows what it draws now");
    }

    #[test]
    fn it_is_of_the_last_second() {
        let mut power = Power::default();
        for time in (0..5000u64).step_by(100) {
            let joules = if time <= 3000 { time as f64 } else { 3000.0 + 5.0 * (time - 3000) as f64 };
            power.see(0, time, joules, SECOND);
        }
        assert_eq!(power.per_tick(0, 5000, SECOND), Some(5.0));
    }

    #[test]
    fn a_slow_counter_has_the_power_between_its_samples() {
        let mut power = Power::default();
        for time in [0, 3000, 6000] {
            power.see(0, time, time as f64, SECOND);
        }
        assert_eq!(power.per_tick(0, 7000, SECOND), Some(1.0));
    }
}
