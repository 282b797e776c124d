//! Gauges over a whole run: figures other than energy that devices report.

use serde::{Deserialize, Serialize};

/// A gauge's values over the run, in `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverTheRun {
    /// "power_watts", "temperature_celsius", "busy_ratio", "memory_used_bytes" or "memory_size_bytes".
    pub quantity: String,
    /// Distinguishes gauges of one kind, such as "edge" among the temperatures.
    pub which: String,
    /// The number of readings that succeeded.
    pub readings: u64,
    /// The smallest value that was read.
    pub min: f64,
    /// The mean of all readings, equally weighted.
    pub mean: f64,
    /// The largest value that was read.
    pub max: f64,
}

impl OverTheRun {
    /// Returns the text for people: `edge 41.0 C (40.0 to 43.0)`.
    pub fn text(&self) -> String {
        let (name, scale, unit, digits) = match self.quantity.as_str() {
            "power_watts" => (format!("{} power", self.which), 1.0, "W", 1),
            "temperature_celsius" => (self.which.clone(), 1.0, "C", 1),
            "busy_ratio" => ("busy".to_owned(), 100.0, "%", 0),
            "memory_used_bytes" => ("memory used".to_owned(), 1e-9, "GB", 2),
            _ => ("memory".to_owned(), 1e-9, "GB", 2),
        };
        let [mean, min, max] = [self.mean, self.min, self.max].map(|value| value * scale);
        if min == max {
            return format!("{name} {mean:.digits$} {unit}");
        }
        format!("{name} {mean:.digits$} {unit} ({min:.digits$} to {max:.digits$})")
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GaugeReading {
    /// The quantity and its unit: `power_watts`, `temperature_celsius`, `busy_ratio`, `memory_used_bytes`, `memory_size_bytes`.
    pub quantity: String,
    /// The kind of power (`average`, `current`, `usage`) or the sensor (`edge`, `junction`, `memory`, `gpu`); else empty.
    pub which: String,
    /// The value, in the quantity's unit.
    pub value: f64,
}
