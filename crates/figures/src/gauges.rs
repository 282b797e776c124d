//! Gauges over a whole run: figures other than energy that devices report.

use ampere_model::Timestamp;
use ampere_timeline::curve::Curve;
use serde::{Deserialize, Serialize};

/// A device runs at its power limit if its power is at least this fraction of it.
pub const AT_LIMIT_PART: f64 = 0.98;

/// A gauge's values over the run, in `summary.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverTheRun {
    /// "power_watts", "temperature_celsius", "busy_ratio", "memory_used_bytes", "memory_size_bytes", "clock_hertz",
    /// "power_limit_watts" or "throttled_ratio".
    pub quantity: String,
    /// Distinguishes gauges of one kind, such as "edge" among the temperatures and "thermal" among the causes of throttling.
    pub which: String,
    /// The number of readings that succeeded.
    pub readings: u64,
    /// The smallest value that was read.
    pub min: f64,
    /// The mean of all readings, equally weighted.
    pub mean: f64,
    /// The largest value that was read.
    pub max: f64,
    /// For a power limit: the fraction of the time in which the power was at least [`AT_LIMIT_PART`] of it, reading by reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_limit_ratio: Option<f64>,
    /// The values over time of a clock, a power limit or throttling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<GaugeCurve>,
}

/// The values of a gauge over time. Each one applies until the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GaugeCurve {
    /// Seconds since the device's first sample.
    pub seconds: Vec<f64>,
    /// The means of the readings; `None` if none succeeded. Successive equal values are stored once.
    pub values: Vec<Option<f64>>,
}

impl GaugeCurve {
    /// Makes a curve of a gauge's readings. `energy` is the energy of its device. Returns `None` if no reading succeeded, or
    /// if the device has no sample.
    pub fn new(readings: &[(Timestamp, Option<f64>)], energy: &Curve) -> Option<GaugeCurve> {
        let (begin, _) = energy.span()?;
        let mut curve = GaugeCurve::default();
        for (time, value) in readings {
            if curve.values.last() != Some(value) {
                let seconds = energy.seconds(time.saturating_sub(begin));
                curve.seconds.push((seconds * 1000.0).round() / 1000.0);
                curve.values.push(*value);
            }
        }
        curve.values.iter().any(Option::is_some).then_some(curve)
    }
}

/// Returns the fraction of the time in which a device's power was at its limit, reading by reading of the limit; `None` if that
/// is known for no time.
pub fn at_limit_ratio(limits: &[(Timestamp, Option<f64>)], energy: &Curve) -> Option<f64> {
    let end = energy.span()?.1;
    let ends = limits.iter().skip(1).map(|(time, _)| *time).chain([end]);
    let (mut at_limit, mut known) = (0.0, 0.0);
    for ((from, limit), to) in limits.iter().zip(ends) {
        let Some((limit, joules)) = limit.zip(energy.between(*from, to)) else { continue };
        let seconds = energy.seconds(to - from);
        known += seconds;
        if joules >= AT_LIMIT_PART * limit * seconds {
            at_limit += seconds;
        }
    }
    (known > 0.0).then(|| at_limit / known)
}

impl OverTheRun {
    /// Returns the text for people: `edge 41.0 C (40.0 to 43.0)`.
    pub fn text(&self) -> String {
        let (name, scale, unit, digits) = match self.quantity.as_str() {
            "power_watts" => (format!("{} power", self.which), 1.0, "W", 1),
            "temperature_celsius" => (self.which.clone(), 1.0, "C", 1),
            "busy_ratio" => ("busy".to_owned(), 100.0, "%", 0),
            "memory_used_bytes" => ("memory used".to_owned(), 1e-9, "GB", 2),
            "clock_hertz" => ("clock".to_owned(), 1e-9, "GHz", 2),
            "power_limit_watts" => ("power limit".to_owned(), 1.0, "W", 1),
            "throttled_ratio" => (format!("{} throttling", self.which), 100.0, "%", 0),
            _ => ("memory".to_owned(), 1e-9, "GB", 2),
        };
        let [mean, min, max] = [self.mean, self.min, self.max].map(|value| value * scale);
        let range = if min == max { String::new() } else { format!(" ({min:.digits$} to {max:.digits$})") };
        let at_limit = self.at_limit_ratio.filter(|ratio| *ratio > 0.0).map_or_else(String::new, |ratio| {
            let [ratio, part] = [ratio, AT_LIMIT_PART].map(|part| 100.0 * part);
            format!(", for {ratio:.0} % of the time at {part:.0} % of it or more")
        });
        format!("{name} {mean:.digits$} {unit}{range}{at_limit}")
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GaugeReading {
    /// The quantity and its unit, as in [`OverTheRun::quantity`].
    pub quantity: String,
    /// The kind of power (`average`, `current`, `usage`), the sensor (`edge`, `junction`, `memory`, `gpu`) or the cause of
    /// throttling (`thermal`, `power`); else empty.
    pub which: String,
    /// The value, in the quantity's unit.
    pub value: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_attribution::Increase;

    /// Returns the energy of a device that draws each power for one second of 1000 ticks.
    fn energy(watts: &[f64]) -> Curve {
        let mut curve = Curve::new(1000);
        curve.add_sample(5000, Increase::First);
        for (at, watts) in (1u64..).zip(watts) {
            curve.add_sample(5000 + 1000 * at, Increase::Joules(*watts));
        }
        curve
    }

    #[test]
    fn a_device_is_at_its_limit_from_98_percent_of_it() {
        let energy = energy(&[225.0, 220.6, 220.4, 100.0, 225.0]);
        let limits = |watts: [Option<f64>; 5]| {
            let times = [5000, 6000, 7000, 8000, 9000];
            times.into_iter().zip(watts).collect::<Vec<_>>()
        };
        assert_eq!(at_limit_ratio(&limits([Some(225.0); 5]), &energy), Some(0.6));
        // A limit that was lowered during the run is reached later; where it could not be read, nothing is known.
        let lowered = limits([None, Some(225.0), Some(225.0), Some(100.0), Some(100.0)]);
        assert_eq!(at_limit_ratio(&lowered, &energy), Some(0.75));
        assert_eq!(at_limit_ratio(&limits([None; 5]), &energy), None);
        assert_eq!(at_limit_ratio(&limits([Some(225.0); 5]), &Curve::new(1000)), None);
    }

    #[test]
    fn equal_values_in_a_row_are_one_point_of_the_curve() {
        let readings = [(5100, Some(2e9)), (6100, Some(2e9)), (7100, None), (8100, Some(1e9))];
        let curve = GaugeCurve::new(&readings, &energy(&[1.0; 5])).expect("readings");
        assert_eq!(curve.seconds, [0.1, 2.1, 3.1]);
        assert_eq!(curve.values, [Some(2e9), None, Some(1e9)]);
        assert_eq!(GaugeCurve::new(&[(5100, None)], &energy(&[1.0])), None);
    }

    #[test]
    fn clocks_limits_and_throttling_have_their_own_words() {
        let text = |quantity: &str, which: &str, [min, mean, max]: [f64; 3], at_limit_ratio| {
            let (quantity, which) = (quantity.to_owned(), which.to_owned());
            OverTheRun { quantity, which, min, mean, max, at_limit_ratio, ..OverTheRun::default() }.text()
        };
        assert_eq!(text("clock_hertz", "", [1.2e9, 1.7e9, 2.1e9], None), "clock 1.70 GHz (1.20 to 2.10)");
        assert_eq!(
            text("throttled_ratio", "thermal", [0.0, 0.28, 1.0], None),
            "thermal throttling 28 % (0 to 100)"
        );
        assert_eq!(
            text("power_limit_watts", "", [225.0; 3], Some(0.6)),
            "power limit 225.0 W, for 60 % of the time at 98 % of it or more"
        );
        assert_eq!(text("power_limit_watts", "", [225.0; 3], Some(0.0)), "power limit 225.0 W");
    }
}
