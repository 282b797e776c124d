//! Writes the events that were counted with stack samples: a metric of each location of samples for each event.

use super::{SampledFrames, Task, TracedRun};
use ampere_model::{SAMPLED_EVENTS, STACK_EVENTS};
use ampere_timeline::topology::visible::variable;
use otf2::{
    Definitions, LocationRef, MetricBase, MetricClass, MetricClassRef, MetricMember, MetricMode,
    MetricOccurrence, MetricType, MetricValueType, RecorderKind,
};
use std::collections::{BTreeMap, HashMap};

/// Defines the metrics, and gives each task of a location of samples their classes, by the numbers of the events.
pub(super) fn define(definitions: &mut Definitions, run: &TracedRun, numbers: &[u32], tasks: &mut [Task]) {
    let mut events = HashMap::<LocationRef, Vec<&str>>::new();
    for (at, process) in run.processes.iter().enumerate() {
        let Some(names) = variable(process.environment, STACK_EVENTS) else { continue };
        let sampled = process.locations.iter().filter(|location| location.samples != SampledFrames::None);
        for location in sampled {
            events.insert(super::reference(location.definition.id, numbers[at]), names.split(',').collect());
        }
    }
    let mut recorders = BTreeMap::<&str, Vec<LocationRef>>::new();
    for task in tasks.iter() {
        for name in events.get(&task.reference).into_iter().flatten() {
            recorders.entry(*name).or_default().push(task.reference);
        }
    }
    let classes: BTreeMap<&str, MetricClassRef> =
        recorders.into_iter().map(|(name, recorders)| (name, class(definitions, name, recorders))).collect();
    for task in tasks {
        let names = events.get(&task.reference).into_iter().flatten();
        task.events = names.map(|name| classes[name]).collect();
    }
}

fn class(definitions: &mut Definitions, name: &str, recorders: Vec<LocationRef>) -> MetricClassRef {
    let member = definitions.metric_members.push(MetricMember {
        name: format!("{SAMPLED_EVENTS}{name}"),
        description: "how often the event has happened in this thread since its last sample; the innermost function has caused it"
            .to_owned(),
        kind: MetricType::Other,
        mode: MetricMode::RelativeLast,
        value_type: MetricValueType::U64,
        base: MetricBase::Decimal,
        exponent: 0,
        unit: "1".to_owned(),
    });
    definitions.add_metric_class(MetricClass {
        members: vec![member],
        occurrence: MetricOccurrence::Asynchronous,
        recorder_kind: RecorderKind::Cpu,
        recorders,
    })
}
