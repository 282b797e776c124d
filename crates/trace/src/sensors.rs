//! Powers that a trace has beside energies: each is held against the counter of the same thing (`agreement.rs`).

use crate::index::node_of;
use ampere_model::Timestamp;
use ampere_timeline::attributor::Attributor;
use otf2::{Definitions, LocationRef, MetricBase, MetricClassRef, MetricMember, MetricRef, MetricValue};
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct TraceSensors {
    by_class: HashMap<MetricClassRef, Vec<Sensor>>,
}

struct Sensor {
    position: usize,
    /// The counter's metric.
    counter: String,
    which: &'static str,
    watts_per_unit: f64,
    /// Whose readings are taken, by node: each rank may record them.
    recorders: HashMap<String, LocationRef>,
}

impl TraceSensors {
    pub fn new(definitions: &Definitions) -> TraceSensors {
        let mut all = TraceSensors::default();
        for (reference, class) in definitions.metric_classes.iter() {
            for (position, member) in class.members.iter().enumerate() {
                let Some(member) = definitions.metric_members.get(*member) else { continue };
                let Some((counter, which, usual)) = sensor_of_metric(&member.name) else { continue };
                let watts_per_unit = watts_of(member).unwrap_or(usual);
                let sensor = Sensor { position, counter, which, watts_per_unit, recorders: HashMap::new() };
                all.by_class.entry(reference).or_default().push(sensor);
            }
        }
        all
    }

    /// What a location records of a metric.
    pub fn see(
        &mut self,
        attributor: &mut Attributor,
        definitions: &Definitions,
        location: LocationRef,
        time: Timestamp,
        (metric, values): (MetricRef, &[MetricValue]),
    ) {
        let Some(sensors) = self.by_class.get_mut(&metric.class) else { return };
        let node = node_of(definitions, location);
        for sensor in sensors {
            let is_its = |info: &ampere_timeline::attributor::DeviceInfo| {
                info.node == node && info.metric == sensor.counter
            };
            let mut devices = attributor.devices.iter_mut().filter(|device| is_its(&device.info));
            // Where several counters have this name, it is not known whose it is.
            let (Some(device), None) = (devices.next(), devices.next()) else { continue };
            if *sensor.recorders.entry(node.clone()).or_insert(location) != location {
                continue;
            }
            let value = match values.get(sensor.position) {
                Some(MetricValue::U64(value)) => *value as f64,
                Some(MetricValue::I64(value)) => *value as f64,
                Some(MetricValue::F64(value)) => *value,
                None => continue,
            };
            let watts =
                Some(value * sensor.watts_per_unit).filter(|watts| *watts >= 0.0 && watts.is_finite());
            device.sense(sensor.which, time, watts, attributor.ticks_per_second);
        }
    }
}

/// Watts in one unit of a metric, where it says its unit.
fn watts_of(member: &MetricMember) -> Option<f64> {
    let watts = match member.unit.trim() {
        "W" => 1.0,
        "mW" => 1e-3,
        "uW" | "µW" => 1e-6,
        _ => return None,
    };
    let base: f64 = if member.base == MetricBase::Binary { 2.0 } else { 10.0 };
    Some(watts * base.powi(member.exponent.clamp(-1000, 1000) as i32))
}

/// The power sensor that a metric of a trace is: the counter of the same GPU beside it, which power it is, and watts per unit where
/// the metric's unit says nothing.
fn sensor_of_metric(metric: &str) -> Option<(String, &'static str, f64)> {
    const SENSORS: [(&str, &str); 3] = [
        ("rocm_smi:::power_average:", "average"),
        ("rocm_smi:::average_socket_power:", "average"),
        ("rocm_smi:::current_socket_power:", "current"),
    ];
    let rocm_smi = SENSORS.iter().find_map(|(name, which)| {
        let (before, device) = metric.split_once(name)?;
        let device = device.split(':').next()?; // and not its sensor
        Some((format!("{before}rocm_smi:::energy_count:{device}"), *which, 1e-6))
    });
    rocm_smi.or_else(|| {
        let (before, what) = metric.split_once("craypm:")?;
        let of = what.strip_suffix("power").filter(|of| of.is_empty() || of.ends_with('_'))?;
        Some((format!("{before}craypm:{of}energy"), "current", 1.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_power_are_of_the_counter_beside_them() {
        for (metric, counter) in [
            ("rocm_smi:::power_average:device=2:sensor=0", Some("rocm_smi:::energy_count:device=2")),
            ("A2rocm_smi:::current_socket_power:device=0", Some("A2rocm_smi:::energy_count:device=0")),
            ("A2coretemp:::craypm:accel3_power", Some("A2coretemp:::craypm:accel3_energy")),
            ("A2coretemp:::craypm:power", Some("A2coretemp:::craypm:energy")),
            ("A2coretemp:::craypm:power_cap", None),
            ("rocm_smi:::power_cap:device=0", None),
        ] {
            assert_eq!(sensor_of_metric(metric).map(|(counter, ..)| counter).as_deref(), counter, "{metric}");
        }
    }
}
