//! What a counter counts, and which other counters' joules are in its own: from the sampler into the summary, and through
//! the trace, so that both say the same.
//!
//! In a trace it is in properties of the location that has the samples: `ampere kind of <metric>` and `ampere parts of
//! <metric>`, the latter with the parts' metrics, by blanks.

use ampere_model::Device;
use otf2::{Definitions, LocationRef, Property, PropertyValue};
use serde::{Deserialize, Serialize};

const KIND: &str = "ampere kind of ";
const PARTS: &str = "ampere parts of ";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nature {
    /// "gpu", "cpu", "memory", "node"; empty where that is not known.
    pub kind: String,
    /// Metrics of the same node whose joules are also in this one's.
    pub contains: Vec<String>,
}

impl Nature {
    pub fn of_device(device: &Device) -> Nature {
        Nature { kind: device.kind.clone(), contains: device.contains.clone() }
    }

    /// What a trace says of a metric that a location has samples of. Nothing, if it is not one of ours.
    pub fn in_trace(definitions: &Definitions, location: LocationRef, metric: &str) -> Nature {
        let properties = definitions.locations.get(location).map_or(&[][..], |location| &location.properties);
        let text = |of: &str| {
            let named = |property: &&Property| property.name.strip_prefix(of) == Some(metric);
            match &properties.iter().find(named)?.value {
                PropertyValue::String(text) => Some(text.as_str()),
                _ => None,
            }
        };
        let parts = text(PARTS).unwrap_or_default().split(' ').filter(|part| !part.is_empty());
        Nature {
            kind: text(KIND).unwrap_or_default().to_owned(),
            contains: parts.map(str::to_owned).collect(),
        }
    }

    /// The properties that make [`Nature::in_trace`] find this again.
    pub fn properties(&self, metric: &str) -> Vec<Property> {
        let property = |of: &str, text: String| {
            let value = PropertyValue::String(text);
            (!matches!(&value, PropertyValue::String(text) if text.is_empty()))
                .then(|| Property { name: format!("{of}{metric}"), value })
        };
        let both = [property(KIND, self.kind.clone()), property(PARTS, self.contains.join(" "))];
        both.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use otf2::{Location, LocationType};

    #[test]
    fn what_goes_into_a_trace_comes_out() {
        let node = Nature {
            kind: "node".to_owned(),
            contains: vec![
                "rapl:::energy:package-0".to_owned(),
                "rocm_smi:::energy_count:device=0".to_owned(),
            ],
        };
        let gpu = Nature { kind: "gpu".to_owned(), contains: Vec::new() };
        let mut properties = node.properties("cray_pm:::energy:node");
        properties.extend(gpu.properties("rocm_smi:::energy_count:device=0"));
        properties.extend(Nature::default().properties("other"));
        assert_eq!(properties.len(), 3, "nothing is said where nothing is known");
        let mut definitions = Definitions::default();
        let location = Location {
            name: "ampere sampler".to_owned(),
            kind: LocationType::Metric,
            events: 0,
            group: None,
            properties,
        };
        definitions.locations.insert(LocationRef(7), location);
        let of = |metric| Nature::in_trace(&definitions, LocationRef(7), metric);
        assert_eq!(of("cray_pm:::energy:node"), node);
        assert_eq!(of("rocm_smi:::energy_count:device=0"), gpu);
        assert_eq!(of("other"), Nature::default());
        assert_eq!(Nature::in_trace(&definitions, LocationRef(8), "other"), Nature::default());
    }
}
