//! Reads the events that were counted with stack samples: the metrics [`SAMPLED_EVENTS`] of a trace's locations.

use ampere_model::SAMPLED_EVENTS;
use otf2::{Definitions, MetricClassRef, MetricRef, MetricValue};
use std::collections::HashMap;

/// For each class of metrics that counts an event: the position of the count among the class's values, and the event's name.
#[derive(Default)]
pub(crate) struct SampledEvents(HashMap<MetricClassRef, (usize, String)>);

impl SampledEvents {
    pub fn new(definitions: &Definitions) -> SampledEvents {
        let mut names = HashMap::new();
        for (reference, class) in definitions.metric_classes.iter() {
            let members = class.members.iter().map(|member| definitions.metric_members.get(*member));
            let found = members
                .enumerate()
                .find_map(|(at, member)| Some((at, member?.name.strip_prefix(SAMPLED_EVENTS)?.to_owned())));
            names.extend(found.map(|found| (reference, found)));
        }
        SampledEvents(names)
    }

    /// Returns the name of the event, and how often it has happened since the thread's last sample, if the metric counts a
    /// sampled event.
    pub fn read(&self, metric: MetricRef, values: &[MetricValue]) -> Option<(&str, u64)> {
        let (position, name) = self.0.get(&metric.class)?;
        match values.get(*position)? {
            MetricValue::U64(count) => Some((name, *count)),
            _ => None,
        }
    }
}
