//! Gauges: figures other than energy that a device reports. They are shown as the device reports them, and never attributed.

/// A figure that a device reports. Values are in base units: watts, degrees Celsius, fractions of 1, bytes, hertz.
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
    /// The clock of a GPU's compute units, or the mean clock of a package's CPUs.
    Clock,
    /// The power that the device may draw at most, as it is set at present.
    PowerLimit,
    /// The part of the time since the last reading in which the clock was lowered because of a temperature: 0 or 1 if the device
    /// only reports its present state.
    ThermalThrottling,
    /// Like [`Gauge::ThermalThrottling`], because of a limit of power or current.
    PowerThrottling,
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
    Clock,
    PowerLimit,
    Throttling,
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
            Gauge::Clock => Quantity::Clock,
            Gauge::PowerLimit => Quantity::PowerLimit,
            Gauge::ThermalThrottling | Gauge::PowerThrottling => Quantity::Throttling,
        }
    }

    /// Returns which power, sensor or cause it is, such as `average`, `junction` or `thermal`. Empty for a quantity that only one
    /// gauge measures.
    pub fn which(self) -> &'static str {
        match self {
            Gauge::AveragePower => "average",
            Gauge::CurrentPower => "current",
            Gauge::Power => "usage",
            Gauge::EdgeTemperature => "edge",
            Gauge::JunctionTemperature => "junction",
            Gauge::MemoryTemperature => "memory",
            Gauge::Temperature => "gpu",
            Gauge::ThermalThrottling => "thermal",
            Gauge::PowerThrottling => "power",
            Gauge::Busy | Gauge::MemoryUsed | Gauge::MemorySize | Gauge::Clock | Gauge::PowerLimit => "",
        }
    }

    /// Returns a value if it is possible. For a figure that a device does not have, libraries return all bits set.
    pub(crate) fn possible(self, value: f64) -> Option<f64> {
        let possible = match self.quantity() {
            // 65535 W means that the power is not known; no device draws that much.
            Quantity::Power => (0.0..65_535.0).contains(&value),
            // Without a limit, drivers report 0 or a very large number.
            Quantity::PowerLimit => value > 0.0 && value < 65_535.0,
            // A GPU that is off reports 0. Clocks of 65535 MHz mean that the clock is not known.
            Quantity::Clock => value > 0.0 && value < 65_535e6,
            Quantity::Temperature => CELSIUS.contains(&value),
            Quantity::Busy | Quantity::Throttling => (0.0..=1.0).contains(&value),
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
            Quantity::Clock => "clock_hertz",
            Quantity::PowerLimit => "power_limit_watts",
            Quantity::Throttling => "throttled_ratio",
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
            (Gauge::Clock, 0.0),
            (Gauge::Clock, 65_535e6),
            (Gauge::PowerLimit, 0.0),
            (Gauge::ThermalThrottling, 1.5),
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
