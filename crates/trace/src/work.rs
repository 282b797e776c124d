//! The units of work and the ranges in a trace: the metrics of [`Counted`], each alone in its class.

use crate::index::number;
use crate::places::node_of;
use ampere_model::Counted;
use ampere_timeline::work::CountedWork;
use otf2::{Definitions, LocationRef, MetricRef, MetricValue};

/// Returns the name of the metric, if it is one of [`Counted`].
pub(crate) fn metric_of(definitions: &Definitions, metric: MetricRef) -> Option<&str> {
    let [member] = definitions.metric_classes.get(metric.class)?.members.as_slice() else { return None };
    let name = definitions.metric_members.get(*member)?.name.as_str();
    Counted::of_metric(name).map(|_| name)
}

/// Adds the units of an event to `work`, if its metric counts units.
pub(crate) fn read(
    work: &mut CountedWork,
    definitions: &Definitions,
    location: LocationRef,
    metric: MetricRef,
    values: &[MetricValue],
) {
    if let ([units], Some(name)) = (values, metric_of(definitions, metric)) {
        work.count(name, &node_of(definitions, location), number(*units));
    }
}
