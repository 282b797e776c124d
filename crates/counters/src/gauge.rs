//! Gauges: figures other than energy that a device reports. They are shown as the device reports them, and never attributed.

/// A figure that a device reports. Values are in base units: watts, degrees Celsius, a part of 1, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Gauge {
    /// Power as a mean over a short time that the device chooses.
    AveragePower,
    /// The power at this moment.
    CurrentPower,
    /// Power as NVML reports it: on some models at this moment, on others a mean over a second.
    Power,
    /// The temperature at the edge of the die.
    EdgeTemperature,
    /// The temperature at the hottest place of the die.
    JunctionTemperature,
    MemoryTemperature,
    /// The temperature of a device with a single sensor.
    Temperature,
    /// The fraction of the time in which the device computes, according to its report.
    Busy,
    /// The used part of the device's own memory.
    MemoryUsed,
    MemorySize,
}

/// The quantity that a gauge measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quantity {
    Power,
    Temperature,
    Busy,
    MemoryUsed,
    MemorySize,
}

/// Below absolute zero, or above what any chip survives, a value is not a temperature.
const CELSIUS: std::ops::RangeInclusive<f64> = -273.15..=1000.0;

impl Gauge {
    /// Returns the quantity that the gauge measures.
    pub fn quantity(self) -> Quantity {
        match self {
            Gauge::AveragePower | Gauge::CurrentPower | Gauge::Power => Quantity::Power,
            Gauge::EdgeTemperature
            | Gauge::JunctionTemperature
            | Gauge::MemoryTemperature
            | Gauge::Temperature => Quantity::Temperature,
            Gauge::Busy => Quantity::Busy,
            Gauge::MemoryUsed => Quantity::MemoryUsed,
            Gauge::MemorySize => Quantity::MemorySize,
        }
    }

    /// Returns which power or which sensor it is, such as `average` or `junction`. Empty if a device has only one.
    pub fn which(self) -> &'static str {
        match self {
            Gauge::AveragePower => "average",
            Gauge::CurrentPower => "current",
            Gauge::Power => "usage",
            Gauge::EdgeTemperature => "edge",
            Gauge::JunctionTemperature => "junction",
            Gauge::MemoryTemperature => "memory",
            Gauge::Temperature => "gpu",
            Gauge::Busy | Gauge::MemoryUsed | Gauge::MemorySize => "",
        }
    }

    /// Returns a value if it is possible. For a figure that a device does not have, libraries return all bits set.
    pub(crate) fn possible(self, value: f64) -> Option<f64> {
        let possible = match self.quantity() {
            // 65535 W means that the power is not known; no device draws that much.
            Quantity::Power => (0.0..65_535.0).contains(&value),
            Quantity::Temperature => CELSIUS.contains(&value),
            Quantity::Busy => (0.0..=1.0).contains(&value),
            Quantity::MemoryUsed | Quantity::MemorySize => value >= 0.0 && value < u64::MAX as f64,
        };
        possible.then_some(value)
    }
}

impl Quantity {
    /// Returns the name with its unit, as in the summary: `power_watts`.
    pub fn as_str(self) -> &'static str {
        match self {
            Quantity::Power => "power_watts",
            Quantity::Temperature => "temperature_celsius",
            Quantity::Busy => "busy_ratio",
            Quantity::MemoryUsed => "memory_used_bytes",
            Quantity::MemorySize => "memory_size_bytes",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_values_are_rejected() {
        for (gauge, bad) in [
            (Gauge::AveragePower, 65_535.0),
            (Gauge::CurrentPower, f64::from(u32::MAX)),
            (Gauge::Power, -1.0),
            (Gauge::EdgeTemperature, -274.0),
            (Gauge::Temperature, 65_535.0),
            (Gauge::Busy, 655.35),
            (Gauge::Busy, f64::NAN),
            (Gauge::MemoryUsed, u64::MAX as f64),
        ] {
            assert_eq!(gauge.possible(bad), None, "{gauge:?} {bad}");
        }
        // A large power and a low temperature are possible.
        for (gauge, good) in
            [(Gauge::CurrentPower, 12_000.0), (Gauge::EdgeTemperature, -5.0), (Gauge::Busy, 1.0)]
        {
            assert_eq!(gauge.possible(good), Some(good), "{gauge:?}");
        }
    }
}
