//! Powers that a trace has in addition to energies: each is compared with the counter of the same device (`agreement.rs`).

use crate::index::number;
use crate::places::node_of;
use crate::series::scaled;
use ampere_model::{Quantity, Timestamp, power_sensor_of_name, quantity_of_unit};
use ampere_timeline::attributor::{Attributor, DeviceInfo};
use otf2::{Definitions, LocationRef, MetricClassRef, MetricRef, MetricValue};
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct TraceSensors {
    by_class: HashMap<MetricClassRef, Vec<Sensor>>,
    /// The node of each location that has recorded some of these powers.
    nodes: HashMap<LocationRef, String>,
}

struct Sensor {
    position: usize,
    counter: String,
    which: &'static str,
    watts_per_unit: f64,
    /// For each node, the location whose readings are taken, because each rank may record them.
    recorders: HashMap<String, LocationRef>,
}

impl TraceSensors {
    pub fn new(definitions: &Definitions) -> TraceSensors {
        let mut all = TraceSensors::default();
        for (reference, class) in definitions.metric_classes.iter() {
            for (position, member) in class.members.iter().enumerate() {
                let Some(member) = definitions.metric_members.get(*member) else { continue };
                let Some(named) = power_sensor_of_name(&member.name) else { continue };
                let watts_per_unit = match quantity_of_unit(&member.unit) {
                    Some(Quantity::Power(watts)) => scaled(watts, member),
                    _ => named.watts_per_unit,
                };
                let sensor = Sensor {
                    position,
                    counter: named.counter,
                    which: named.which,
                    watts_per_unit,
                    recorders: HashMap::new(),
                };
                all.by_class.entry(reference).or_default().push(sensor);
            }
        }
        all
    }

    /// Processes the readings in an event.
    pub fn read(
        &mut self,
        attributor: &mut Attributor,
        definitions: &Definitions,
        location: LocationRef,
        time: Timestamp,
        (metric, values): (MetricRef, &[MetricValue]),
    ) {
        let Some(sensors) = self.by_class.get_mut(&metric.class) else { return };
        let node = self.nodes.entry(location).or_insert_with(|| node_of(definitions, location));
        for sensor in sensors {
            let is_counter_of_sensor =
                |info: &DeviceInfo| info.node == *node && info.metric == sensor.counter;
            let mut devices =
                attributor.devices.iter_mut().filter(|device| is_counter_of_sensor(&device.info));
            // If several counters have this name, it is unknown to which of them the sensor belongs.
            let (Some(device), None) = (devices.next(), devices.next()) else { continue };
            if *sensor.recorders.entry(node.clone()).or_insert(location) != location {
                continue;
            }
            let Some(value) = values.get(sensor.position) else { continue };
            let watts = Some(number(*value) * sensor.watts_per_unit)
                .filter(|watts| *watts >= 0.0 && watts.is_finite());
            device.read_power_sensor(sensor.which, time, watts, attributor.ticks_per_second);
        }
    }
}
