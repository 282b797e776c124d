//! Reads when a trace's locations used CPU time, from the metric [`CPU_TIME`] that each of them records, and when other jobs
//! used it.

use crate::index::{CPU_TIME, number};
use crate::series::scaled;
use ampere_model::{OTHER_JOBS_CPU_TIME, Timestamp};
use otf2::{Definitions, LocationRef, LocationType, MetricClassRef, MetricMemberRef, MetricRef, MetricValue};
use std::collections::{HashMap, HashSet};

/// The CPU times of a trace's locations, as far as they have been read.
#[derive(Default)]
pub(crate) struct CpuTimes {
    /// The metric's position among the members of a class, and the seconds of one unit.
    by_class: HashMap<MetricClassRef, (usize, f64)>,
    /// The metric of other jobs' CPU time, with its position in the class.
    other_jobs: HashMap<MetricClassRef, usize>,
    /// For each location whose events have not ended, the time up to which its CPU time is known.
    known_until: HashMap<LocationRef, Timestamp>,
}

impl CpuTimes {
    /// Starts with the locations that `has_events` selects.
    pub fn new(definitions: &Definitions, mut has_events: impl FnMut(LocationRef) -> bool) -> CpuTimes {
        let mut times =
            CpuTimes { other_jobs: classes_with(definitions, OTHER_JOBS_CPU_TIME), ..CpuTimes::default() };
        for (reference, at) in classes_with(definitions, CPU_TIME) {
            let class = definitions.metric_classes.get(reference);
            let member = class.and_then(|class| definitions.metric_members.get(class.members[at]));
            times.by_class.extend(member.map(|member| (reference, (at, scaled(1.0, member)))));
        }
        if times.are_known() {
            let threads =
                definitions.locations.iter().filter(|(_, location)| location.kind == LocationType::CpuThread);
            // Ampere's own traces record which locations have the metric.
            let classes = times.by_class.keys().filter_map(|class| definitions.metric_classes.get(*class));
            let recorders: HashSet<_> = classes.flat_map(|class| &class.recorders).copied().collect();
            let is_recorder = |location: &LocationRef| recorders.is_empty() || recorders.contains(location);
            let threads = threads.map(|(reference, _)| reference).filter(is_recorder);
            let threads = threads.filter(|reference| has_events(*reference));
            times.known_until = threads.map(|reference| (reference, 0)).collect();
        }
        times
    }

    /// Whether the trace has the metric.
    pub fn are_known(&self) -> bool {
        !self.by_class.is_empty()
    }

    /// Returns the seconds that a location has used up to this event's time, if the event is a value of the metric.
    pub fn read(
        &mut self,
        location: LocationRef,
        time: Timestamp,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> Option<f64> {
        let (position, seconds_per_unit) = self.by_class.get(&metric.class)?;
        let value = number(*values.get(*position)?);
        self.known_until.entry(location).and_modify(|until| *until = time);
        Some(value * seconds_per_unit)
    }

    /// Returns the seconds that other jobs have used, if the event is a value of the metric for them.
    pub fn read_other_jobs(&self, metric: MetricRef, values: &[MetricValue]) -> Option<f64> {
        let value = values.get(*self.other_jobs.get(&metric.class)?)?;
        Some(number(*value) * 1e-9)
    }

    /// Records that a location has no more events.
    pub fn end(&mut self, location: LocationRef) {
        self.known_until.remove(&location);
    }

    /// Returns the time up to which the CPU times of all locations are known. Locations without a value since `waits_since` are
    /// assumed to have used no CPU time after their last value.
    pub fn known_until(&self, waits_since: Timestamp) -> Timestamp {
        let known = self.known_until.values().copied().filter(|until| *until >= waits_since);
        known.min().unwrap_or(Timestamp::MAX)
    }
}

/// Returns the classes with a metric of this name, and its position among their members.
pub(crate) fn classes_with(definitions: &Definitions, name: &str) -> HashMap<MetricClassRef, usize> {
    let is_it = |member: &MetricMemberRef| {
        definitions.metric_members.get(*member).is_some_and(|member| member.name == name)
    };
    let classes = definitions.metric_classes.iter();
    classes.filter_map(|(class, found)| Some((class, found.members.iter().position(is_it)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use otf2::{MetricClass, MetricMember};

    #[test]
    fn a_thread_that_waits_for_long_holds_back_no_other() {
        let mut definitions = Definitions::default();
        let member = MetricMember { name: CPU_TIME.to_owned(), ..MetricMember::default() };
        let members = vec![definitions.metric_members.push(member)];
        let locations = [1, 2].map(LocationRef);
        let class = MetricClass { members, recorders: locations.to_vec(), ..MetricClass::default() };
        let class = definitions.add_metric_class(class);
        for location in locations {
            let thread = otf2::Location { kind: LocationType::CpuThread, ..otf2::Location::default() };
            definitions.locations.insert(location, thread);
        }
        let mut times = CpuTimes::new(&definitions, |_| true);
        for (location, time) in [(1, 10), (2, 20), (2, 5000)] {
            let metric = MetricRef::from(class);
            times.read(LocationRef(location), time, metric, &[MetricValue::U64(0)]);
        }
        assert_eq!([0, 10, 11, 5001].map(|since| times.known_until(since)), [10, 10, 5000, Timestamp::MAX]);
    }
}
