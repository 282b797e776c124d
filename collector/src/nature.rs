//! What a counter counts, and which other counters' joules are in its own: from the sampler into the summary, and through
//! the trace, so that both say the same.
//!
//! In a trace it is in properties of the location that has the samples: `ampere kind of <metric>`, `ampere parts of
//! <metric>`, with the parts' metrics, by blanks, and `ampere range of <metric>`, with the value at which it starts again.

use crate::topology::metric_number;
use ampere_model::{Device, cray_device};
use otf2::{Definitions, LocationRef, Property, PropertyValue};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

const KIND: &str = "ampere kind of ";
const PARTS: &str = "ampere parts of ";
const RANGE: &str = "ampere range of ";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nature {
    /// "gpu", "cpu", "memory", "node"; empty where that is not known.
    pub kind: String,
    /// Metrics of the same node whose joules are also in this one's.
    pub contains: Vec<String>,
    /// Its raw values start again at 0 there.
    #[serde(default)]
    pub wraps_at: Option<u64>,
}

impl Nature {
    pub fn of_device(device: &Device) -> Nature {
        Nature { kind: device.kind.clone(), contains: device.contains.clone(), wraps_at: device.wraps_at }
    }

    /// What a trace says of a metric that a location has samples of; in one that is not ours, what its name says.
    /// `metrics`: names of all that are devices.
    pub fn in_trace(
        definitions: &Definitions,
        location: LocationRef,
        metric: &str,
        metrics: &BTreeSet<String>,
    ) -> Nature {
        let properties = definitions.locations.get(location).map_or(&[][..], |location| &location.properties);
        let text = |of: &str| {
            let named = |property: &&Property| property.name.strip_prefix(of) == Some(metric);
            match &properties.iter().find(named)?.value {
                PropertyValue::String(text) => Some(text.as_str()),
                _ => None,
            }
        };
        let (kind, parts) = (text(KIND), text(PARTS));
        if kind.is_none() && parts.is_none() {
            return Nature::by_name(metric, metrics);
        }
        let parts = parts.unwrap_or_default().split(' ').filter(|part| !part.is_empty());
        Nature {
            kind: kind.unwrap_or_default().to_owned(),
            contains: parts.map(str::to_owned).collect(),
            wraps_at: text(RANGE).and_then(|range| range.parse().ok()),
        }
    }

    /// Cray's counter of the node has everything in it; that of an accelerator has what the GPU's own counter shows.
    fn by_name(metric: &str, metrics: &BTreeSet<String>) -> Nature {
        let named = |kind: &str| Nature { kind: kind.to_owned(), ..Nature::default() };
        let Some((device, _)) = cray_device(metric) else {
            return named(if is_amd_gpu(metric) { "gpu" } else { "" });
        };
        let others = metrics.iter().filter(|other| *other != metric);
        let (kind, contains): (_, Vec<String>) = match device.strip_prefix("accel") {
            Some(number) => {
                let gpus = others.filter(|other| {
                    is_amd_gpu(other) && accelerator_of(other, metrics) == number.parse().ok()
                });
                ("gpu", gpus.cloned().collect())
            }
            None if device == "node" => ("node", others.cloned().collect()),
            None => (device, Vec::new()),
        };
        Nature { contains, ..named(kind) }
    }

    /// The properties that make [`Nature::in_trace`] find this again.
    pub fn properties(&self, metric: &str) -> Vec<Property> {
        let property = |of: &str, text: String| {
            let value = PropertyValue::String(text);
            (!matches!(&value, PropertyValue::String(text) if text.is_empty()))
                .then(|| Property { name: format!("{of}{metric}"), value })
        };
        let range = self.wraps_at.map_or_else(String::new, |range| range.to_string());
        let all = [
            property(KIND, self.kind.clone()),
            property(PARTS, self.contains.join(" ")),
            property(RANGE, range),
        ];
        all.into_iter().flatten().collect()
    }
}

fn is_amd_gpu(metric: &str) -> bool {
    metric.contains("rocm_smi:::") && metric_number(metric).is_some()
}

/// The accelerator that a GPU is counted in, in their common order: two dies of one package are numbered one after the other. Which
/// is which is not told, but every GPU is in one of them, so that a sum is right in any case.
fn accelerator_of(gpu: &str, metrics: &BTreeSet<String>) -> Option<u32> {
    let numbers =
        || metrics.iter().filter(|metric| is_amd_gpu(metric)).filter_map(|metric| metric_number(metric));
    let accelerators = metrics.iter().filter_map(|metric| cray_device(metric)?.0.strip_prefix("accel"));
    let accelerators = accelerators.collect::<BTreeSet<_>>().len();
    let only_even = numbers().all(|number| number % 2 == 0) && numbers().any(|number| number > 0);
    let dies = only_even || numbers().any(|number| number as usize >= accelerators);
    metric_number(gpu).map(|number| if dies { number / 2 } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;
    use otf2::{Location, LocationType};

    #[test]
    fn no_joule_of_crays_counters_is_in_two_of_them() {
        let cray = |name: &str| format!("A2coretemp:::craypm:{name}");
        let gpu = |number: u32| format!("A2rocm_smi:::energy_count:device={number}");
        let of = |name: &str, all: &[String]| {
            let nature = Nature::by_name(name, &all.iter().cloned().collect());
            (nature.kind, nature.contains)
        };
        let mut all: Vec<String> = [0, 2, 4, 6].map(gpu).to_vec();
        all.extend(
            ["accel0_energy", "accel1_energy", "accel2_energy", "accel3_energy", "cpu_energy"].map(cray),
        );
        assert_eq!(of(&cray("accel1_energy"), &all), ("gpu".to_owned(), vec![gpu(2)]));
        assert_eq!(of(&cray("cpu_energy"), &all), ("cpu".to_owned(), Vec::new()));
        assert_eq!(of(&gpu(2), &all), ("gpu".to_owned(), Vec::new()));
        let parts = all.len();
        all.push(cray("energy"));
        let (kind, contains) = of(&cray("energy"), &all);
        assert_eq!((kind.as_str(), contains.len()), ("node", parts));
        // Of one die each.
        let all = [gpu(0), gpu(1), cray("accel0_energy"), cray("accel1_energy")];
        assert_eq!(of(&cray("accel1_energy"), &all).1, [gpu(1)]);
    }

    #[test]
    fn what_goes_into_a_trace_comes_out() {
        let node = Nature {
            kind: "node".to_owned(),
            contains: vec![
                "rapl:::energy:package-0".to_owned(),
                "rocm_smi:::energy_count:device=0".to_owned(),
            ],
            wraps_at: None,
        };
        let gpu = Nature { kind: "gpu".to_owned(), contains: Vec::new(), wraps_at: Some(1 << 32) };
        let mut properties = node.properties("cray_pm:::energy:node");
        properties.extend(gpu.properties("rocm_smi:::energy_count:device=0"));
        properties.extend(Nature::default().properties("other"));
        assert_eq!(properties.len(), 4, "nothing is said where nothing is known");
        let mut definitions = Definitions::default();
        let location = Location {
            name: "ampere sampler".to_owned(),
            kind: LocationType::Metric,
            events: 0,
            group: None,
            properties,
        };
        definitions.locations.insert(LocationRef(7), location);
        let metrics = BTreeSet::new();
        let of = |metric| Nature::in_trace(&definitions, LocationRef(7), metric, &metrics);
        assert_eq!(of("cray_pm:::energy:node"), node);
        assert_eq!(of("rocm_smi:::energy_count:device=0"), gpu);
        assert_eq!(of("other"), Nature::default());
        assert_eq!(Nature::in_trace(&definitions, LocationRef(8), "other", &metrics), Nature::default());
    }
}
