//! A device's power sensor, integrated: it is compared with the device's counter ([`crate::agreement`]).

use crate::curve::Curve;
use ampere_attribution::Increase;
use ampere_model::Timestamp;

/// The energy that a power sensor shows.
#[derive(Debug)]
pub struct PowerSensor {
    /// The kind of power: `average`, `current` or `usage`.
    pub which: String,
    ticks_per_second: u64,
    last: Option<(Timestamp, f64)>,
    pub(crate) energy: Curve,
}

impl PowerSensor {
    /// Makes a sensor that has no readings yet.
    pub fn new(which: &str, ticks_per_second: u64) -> PowerSensor {
        let ticks_per_second = ticks_per_second.max(1);
        PowerSensor {
            which: which.to_owned(),
            ticks_per_second,
            last: None,
            energy: Curve::new(ticks_per_second),
        }
    }

    /// Processes a reading; `None` if it failed. The power between two readings is their mean.
    pub fn read(&mut self, time: Timestamp, watts: Option<f64>) {
        let Some(watts) = watts else { return self.last = None };
        let increase = match self.last {
            Some((before, _)) if time < before => return,
            Some((before, then)) => {
                let seconds = (time - before) as f64 / self.ticks_per_second as f64;
                Increase::Joules((then + watts) / 2.0 * seconds)
            }
            // This is also the case after readings that failed: the values of the sensor in that time are not known.
            None => Increase::Reset,
        };
        self.energy.add_sample(time, increase);
        self.last = Some((time, watts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_is_integrated_while_it_can_be_read() {
        let mut sensor = PowerSensor::new("average", 1000);
        for (time, watts) in
            [(0, Some(100.0)), (1000, Some(300.0)), (2000, None), (3000, Some(50.0)), (5000, Some(50.0))]
        {
            sensor.read(time, watts);
        }
        assert!(sensor.energy.between(0, 1000).is_some_and(|joules| (joules - 200.0).abs() < 1e-9));
        assert_eq!(sensor.energy.between(0, 2000), None);
        assert!(sensor.energy.between(3000, 5000).is_some_and(|joules| (joules - 100.0).abs() < 1e-9));
    }
}
