//! Divides the nodes of a trace into shares that are attributed independently. Nodes stay in one share if metrics that are recorded
//! on one may be about the other.

use crate::index::recorded_metrics;
use crate::places::{Place, node_of, nodes_of, stated_node};
use otf2::{Definitions, LocationRef, Trace};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The names of some of a trace's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share(BTreeSet<String>);

impl Share {
    /// Whether a location is on one of these nodes.
    pub(crate) fn has(&self, definitions: &Definitions, location: LocationRef) -> bool {
        self.0.contains(&node_of(definitions, location))
    }
}

/// Divides a trace's nodes into at least one and at most `limit` shares with similar numbers of events. The result is
/// deterministic.
///
/// # Errors
/// The file is not a trace.
pub fn shares_of(trace: &Path, limit: usize) -> anyhow::Result<Vec<Share>> {
    Ok(split(Trace::open(trace)?.definitions(), limit))
}

pub(crate) fn split(definitions: &Definitions, limit: usize) -> Vec<Share> {
    let mut together = Together::default();
    for (reference, location) in definitions.locations.iter() {
        together.add(node_of(definitions, reference), location.events);
    }
    // Any location may record a metric whose name states a node.
    if recorded_metrics(definitions).any(|metric| stated_node(definitions, &metric.name).is_some()) {
        (1..together.events.len()).for_each(|group| together.unite(0, group));
    }
    // If there is only one node, metrics that are recorded outside of it are about this node.
    let nodes = nodes_of(definitions);
    if let (Some(only), 1) = (nodes.first(), nodes.len()) {
        let (only, outside) = (together.add(only.clone(), 0), together.add(String::new(), 0));
        together.unite(only, outside);
    }
    // Values that are recorded through an instance may be about another node than the recorder's.
    for (reference, instance) in definitions.metric_instances.iter() {
        let own = together.add(node_of(definitions, instance.recorder), 0);
        let about = together.add(Place::new(definitions, instance.recorder, Some(reference), "").node, 0);
        together.unite(own, about);
    }
    let mut all = together.by_events();
    let count = limit.min(all.len()).max(1);
    let mut shares = vec![(0u64, BTreeSet::new()); count];
    for (events, nodes) in all.drain(..) {
        if let Some((sum, share)) = shares.iter_mut().min_by_key(|(sum, _)| *sum) {
            *sum = sum.saturating_add(events.max(1));
            share.extend(nodes);
        }
    }
    shares.into_iter().map(|(_, nodes)| Share(nodes)).collect()
}

/// Groups of nodes that cannot be divided.
#[derive(Default)]
struct Together {
    /// The number of each node's group, by the node's name.
    groups: BTreeMap<String, usize>,
    /// The number of events of each group.
    events: Vec<u64>,
}

impl Together {
    fn add(&mut self, node: String, events: u64) -> usize {
        let group = *self.groups.entry(node).or_insert_with(|| {
            self.events.push(0);
            self.events.len() - 1
        });
        self.events[group] = self.events[group].saturating_add(events);
        group
    }

    fn unite(&mut self, into: usize, group: usize) {
        if into != group {
            self.events[into] = self.events[into].saturating_add(std::mem::take(&mut self.events[group]));
            self.groups.values_mut().filter(|of| **of == group).for_each(|of| *of = into);
        }
    }

    /// Returns the groups with their numbers of events, the largest first.
    fn by_events(self) -> Vec<(u64, Vec<String>)> {
        let mut by_group: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for (node, group) in self.groups {
            by_group.entry(group).or_default().push(node);
        }
        let mut all: Vec<_> =
            by_group.into_iter().map(|(group, nodes)| (self.events[group], nodes)).collect();
        all.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use otf2::{Location, LocationGroup, LocationGroupType, SystemTreeNode};

    fn definitions(nodes: &[(&str, u64)]) -> Definitions {
        let mut all = Definitions::default();
        for (number, (name, events)) in nodes.iter().enumerate() {
            let known = all.system_tree_nodes.iter().find(|(_, node)| node.name == *name).map(|(at, _)| at);
            let node = known.unwrap_or_else(|| {
                all.system_tree_nodes.push(SystemTreeNode {
                    name: (*name).to_owned(),
                    class_name: "node".to_owned(),
                    ..SystemTreeNode::default()
                })
            });
            let group = all.location_groups.push(LocationGroup {
                kind: LocationGroupType::Process,
                system_tree_parent: Some(node),
                ..LocationGroup::default()
            });
            let location = Location { group: Some(group), events: *events, ..Location::default() };
            all.locations.insert(LocationRef(number as u64), location);
        }
        all
    }

    fn names(shares: &[Share]) -> Vec<Vec<&str>> {
        shares.iter().map(|share| share.0.iter().map(String::as_str).collect()).collect()
    }

    #[test]
    fn shares_have_similar_numbers_of_events() {
        let all = definitions(&[("a", 5), ("b", 9), ("c", 4), ("d", 1), ("a", 1)]);
        assert_eq!(names(&split(&all, 1)), [["a", "b", "c", "d"]]);
        assert_eq!(names(&split(&all, 2)), [vec!["b", "d"], vec!["a", "c"]]);
        assert_eq!(split(&all, 9).len(), 4);
        assert_eq!(split(&Definitions::default(), 3).len(), 1);
    }

    #[test]
    fn a_stream_stays_with_its_process() {
        let mut all = definitions(&[("a", 5), ("b", 9), ("c", 7)]);
        let (process, other) = (all.locations.get(LocationRef(0)), all.locations.get(LocationRef(1)));
        let (process, other) = (process.and_then(|l| l.group), other.and_then(|l| l.group));
        let parent = other.and_then(|group| all.location_groups.get(group)?.system_tree_parent);
        let context = all.location_groups.push(LocationGroup {
            kind: LocationGroupType::Accelerator,
            system_tree_parent: parent,
            creating_location_group: process,
            ..LocationGroup::default()
        });
        let stream = Location { group: Some(context), events: 1, ..Location::default() };
        all.locations.insert(LocationRef(9), stream);
        assert_eq!(names(&split(&all, 3)), [["b"], ["c"], ["a"]]);
        assert_eq!(node_of(&all, LocationRef(9)), "a", "it is on the node of its process");
    }
}
