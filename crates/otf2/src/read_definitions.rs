//! Converts OTF2's definition records to [`Definitions`]. The conversion does not fail. If a record refers to something that is
//! missing in the trace, the result is an empty string or no reference.

use crate::call::UNDEFINED_U64;
use crate::call::global_def_reader::Records;
use crate::call::global_def_writer::{UINT64, Value};
use crate::definitions::{
    Attribute, CallingContext, ClockProperties, Comm, Definitions, Group, Location, LocationGroup,
    MetricClass, MetricInstance, MetricMember, Paradigm, Property, PropertyValue, Region, SystemTreeNode,
};
use crate::enums::{
    GroupType, LocationGroupType, LocationType, MetricBase, MetricMode, MetricOccurrence, MetricScope,
    MetricType, MetricValueType, ParadigmClass, ParadigmType, RecorderKind, RegionRole, SystemTreeDomain,
};
use crate::error::Error;
use crate::table::{CallingContextRef, LocationRef, MetricClassRef, Reference, Table};
use std::collections::{HashMap, HashSet};

struct Strings(HashMap<u32, String>);

impl Strings {
    fn of(&self, number: u32) -> String {
        self.0.get(&number).cloned().unwrap_or_default()
    }

    fn property(&self, name: u32, value: Value) -> Property {
        let value = match value {
            Value::String(text) => PropertyValue::String(self.of(text)),
            Value::U64(value) => PropertyValue::U64(value),
            Value::I64(value) => PropertyValue::I64(value),
            Value::F64(value) => PropertyValue::F64(value),
        };
        Property { name: self.of(name), value }
    }
}

/// Returns all strings except the empty one, in the order of their numbers, from 1 on.
///
/// # Errors
/// [`Error::Definitions`] unless string 0 is empty and the others are all different and numbered without gaps.
pub(crate) fn strings(records: &Records) -> Result<Vec<String>, Error> {
    let of = |number| records.strings.get(&number).cloned();
    let all: Vec<String> = (1..records.strings.len() as u32).map_while(of).collect();
    let distinct: HashSet<&String> = all.iter().collect();
    if of(0).is_some_and(|first| first.is_empty())
        && distinct.len() + 1 == records.strings.len()
        && !distinct.contains(&String::new())
    {
        return Ok(all);
    }
    Err(Error::Definitions("the strings are not numbered as this program numbers them".into()))
}

/// Converts the records to definitions.
pub(crate) fn definitions(mut records: Records) -> Definitions {
    let strings = Strings(std::mem::take(&mut records.strings));
    let mut definitions = Definitions { clock: clock(&records), ..Definitions::default() };
    places(&records, &strings, &mut definitions);
    metrics(&records, &strings, &mut definitions);
    definitions.paradigms = (records.paradigms.iter())
        .map(|record| Paradigm {
            paradigm: ParadigmType::from_raw(record.paradigm),
            name: strings.of(record.name),
            class: ParadigmClass::from_raw(record.class),
        })
        .collect();
    definitions.regions = table(records.regions.iter().map(|record| {
        let region = Region {
            name: strings.of(record.name),
            canonical_name: strings.of(record.canonical),
            description: strings.of(record.description),
            role: RegionRole::from_raw(record.role),
            paradigm: ParadigmType::from_raw(record.paradigm),
            flags: record.flags,
            source_file: strings.0.get(&record.file).cloned(),
            begin_line: record.begin_line,
            end_line: record.end_line,
        };
        (record.own.into(), region)
    }));
    definitions.groups = table(records.groups.into_iter().map(|record| {
        let group = Group {
            name: strings.of(record.name),
            kind: GroupType::from_raw(record.kind),
            paradigm: ParadigmType::from_raw(record.paradigm),
            flags: record.flags,
            members: record.members,
        };
        (record.own.into(), group)
    }));
    let whole_numbers = records.attributes.iter().filter(|record| record.kind == UINT64);
    definitions.attributes = table(whole_numbers.map(|record| {
        let (name, description) = (strings.of(record.name), strings.of(record.description));
        (record.own.into(), Attribute { name, description })
    }));
    definitions.comms = table(records.comms.iter().filter_map(|record| {
        let comm = Comm {
            name: strings.of(record.name),
            group: reference(record.group)?,
            parent: reference(record.parent),
            flags: record.flags,
        };
        Some((record.own.into(), comm))
    }));
    // The parent of a context must have been defined before it, so that there are no cycles.
    let mut defined = HashSet::new();
    definitions.calling_contexts = table(records.calling_contexts.iter().filter_map(|record| {
        let parent = reference(record.parent);
        let parent = parent.filter(|parent: &CallingContextRef| defined.contains(&parent.0));
        defined.insert(record.own);
        Some((record.own.into(), CallingContext { region: reference(record.region)?, parent }))
    }));
    definitions
}

fn clock(records: &Records) -> ClockProperties {
    let Some(clock) = records.clocks.first() else { return ClockProperties::default() };
    ClockProperties {
        timer_resolution: clock.resolution,
        global_offset: clock.offset,
        trace_length: clock.length,
        realtime_timestamp: (clock.realtime != UNDEFINED_U64).then_some(clock.realtime),
    }
}

fn places(records: &Records, strings: &Strings, definitions: &mut Definitions) {
    let nodes = &mut definitions.system_tree_nodes;
    *nodes = table(records.nodes.iter().map(|record| {
        let node = SystemTreeNode {
            name: strings.of(record.name),
            class_name: strings.of(record.class),
            parent: reference(record.parent),
            ..SystemTreeNode::default()
        };
        (record.own.into(), node)
    }));
    for record in &records.domains {
        if let Some(node) = reference(record.node).and_then(|node| nodes.get_mut(node)) {
            node.domains.push(SystemTreeDomain::from_raw(record.domain));
        }
    }
    for property in &records.node_properties {
        if let Some(node) = reference(property.of).and_then(|node| nodes.get_mut(node)) {
            node.properties.push(strings.property(property.name, property.value));
        }
    }
    let groups = &mut definitions.location_groups;
    *groups = table(records.location_groups.iter().map(|record| {
        let group = LocationGroup {
            name: strings.of(record.name),
            kind: LocationGroupType::from_raw(record.kind),
            system_tree_parent: reference(record.parent),
            creating_location_group: reference(record.creator),
            properties: Vec::new(),
        };
        (record.own.into(), group)
    }));
    for property in &records.group_properties {
        if let Some(group) = reference(property.of).and_then(|group| groups.get_mut(group)) {
            group.properties.push(strings.property(property.name, property.value));
        }
    }
    let locations = &mut definitions.locations;
    let is_thread = |kind| LocationType::from_raw(kind) == LocationType::CpuThread;
    let has_threads = records.locations.iter().any(|record| is_thread(record.kind));
    *locations = table(records.locations.iter().map(|record| {
        let location = Location {
            name: strings.of(record.name),
            kind: match LocationType::from_raw(record.kind) {
                // If no location has the type of threads, the writer states no types, and all locations are threads. Otherwise
                // a location without a type is a sensor.
                LocationType::Unknown if has_threads => LocationType::Metric,
                LocationType::Unknown => LocationType::CpuThread,
                kind => kind,
            },
            events: record.events,
            group: reference(record.group),
            properties: Vec::new(),
        };
        (record.own, location)
    }));
    for property in &records.location_properties {
        let location = LocationRef::of_number(property.of);
        if let Some(location) = location.and_then(|location| locations.get_mut(location)) {
            location.properties.push(strings.property(property.name, property.value));
        }
    }
}

fn metrics(records: &Records, strings: &Strings, definitions: &mut Definitions) {
    definitions.metric_members = table(records.members.iter().map(|record| {
        let member = MetricMember {
            name: strings.of(record.name),
            description: strings.of(record.description),
            kind: MetricType::from_raw(record.kind),
            mode: MetricMode::from_raw(record.mode),
            value_type: MetricValueType::from_raw(record.value),
            base: MetricBase::from_raw(record.base),
            exponent: record.exponent,
            unit: strings.of(record.unit),
        };
        (record.own.into(), member)
    }));
    definitions.metric_classes = table(records.classes.iter().map(|record| {
        let class = MetricClass {
            // Values belong to members by position, so a member without a definition keeps its place.
            members: record.members.iter().copied().map(crate::MetricMemberRef).collect(),
            occurrence: MetricOccurrence::from_raw(record.occurrence),
            recorder_kind: RecorderKind::from_raw(record.kind),
            recorders: Vec::new(),
        };
        (record.own.into(), class)
    }));
    for record in &records.recorders {
        let class = reference(record.class).and_then(|class| definitions.metric_classes.get_mut(class));
        if let (Some(class), Some(recorder)) = (class, LocationRef::of_number(record.recorder)) {
            class.recorders.push(recorder);
        }
    }
    definitions.metric_instances = table(records.instances.iter().map(|record| {
        let instance = MetricInstance {
            class: MetricClassRef(record.class),
            recorder: LocationRef(record.recorder),
            scope: MetricScope::from_raw(record.scope),
            scope_number: record.number,
        };
        (record.own.into(), instance)
    }));
}

fn reference<R: Reference>(number: u32) -> Option<R> {
    R::of_number(number.into())
}

/// Returns a table of the definitions, except those whose own number means "none" in OTF2.
fn table<R: Reference, T>(records: impl Iterator<Item = (u64, T)>) -> Table<R, T> {
    Table::of_entries(records.filter_map(|(own, value)| Some((R::of_number(own)?, value))).collect())
}
