//! From OTF2's definition records to [`Definitions`]. Nothing here fails: what a record refers to and the trace lacks is
//! an empty string or no reference.

use crate::call::UNDEFINED_U64;
use crate::call::global_def_reader::{MemberRecord, Records};
use crate::call::global_def_writer::{UINT64, Value};
use crate::definitions::{
    Attribute, CallingContext, ClockProperties, Comm, Definitions, Group, Location, LocationGroup,
    MetricClass, MetricInstance, MetricMember, Paradigm, Property, PropertyValue, Region, SystemTreeNode,
};
use crate::error::Error;
use crate::table::{CallingContextRef, LocationRef, MetricClassRef, Reference, Table};
use crate::words::{
    GroupType, LocationGroupType, LocationType, MetricBase, MetricMode, MetricOccurrence, MetricScope,
    MetricType, MetricValueType, ParadigmClass, ParadigmType, RecorderKind, RegionRole, SystemTreeDomain,
};
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

/// All strings but the empty one, by their numbers from 1 on, if there is each once.
pub(crate) fn strings(records: &Records) -> Result<Vec<String>, Error> {
    let of = |number| records.strings.get(&number).cloned();
    let all: Vec<String> = (1..records.strings.len() as u32).map_while(of).collect();
    let different: HashSet<&String> = all.iter().collect();
    if of(0).is_some_and(|first| first.is_empty())
        && different.len() + 1 == records.strings.len()
        && !different.contains(&String::new())
    {
        return Ok(all);
    }
    Err(Error::Definitions("the strings are numbered as another program does".into()))
}

/// Makes sense of the records.
pub(crate) fn definitions(mut records: Records) -> Definitions {
    let strings = Strings(std::mem::take(&mut records.strings));
    let mut definitions = Definitions { clock: clock(&records), ..Definitions::default() };
    places(&records, &strings, &mut definitions);
    metrics(records.members, records.classes, records.instances, &strings, &mut definitions);
    for (class, recorder) in records.recorders {
        let class = reference(class).and_then(|class| definitions.metric_classes.get_mut(class));
        if let (Some(class), Some(recorder)) = (class, LocationRef::of_number(recorder)) {
            class.recorders.push(recorder);
        }
    }
    definitions.paradigms = (records.paradigms.iter())
        .map(|&(paradigm, name, class)| Paradigm {
            paradigm: ParadigmType::from_raw(paradigm),
            name: strings.of(name),
            class: ParadigmClass::from_raw(class),
        })
        .collect();
    definitions.regions = table(records.regions.iter().map(|record| {
        let &(own, name, canonical, description, role, paradigm, flags, file, begin_line, end_line) = record;
        let region = Region {
            name: strings.of(name),
            canonical_name: strings.of(canonical),
            description: strings.of(description),
            role: RegionRole::from_raw(role),
            paradigm: ParadigmType::from_raw(paradigm),
            flags,
            source_file: strings.0.get(&file).cloned(),
            begin_line,
            end_line,
        };
        (own.into(), region)
    }));
    definitions.groups =
        table(records.groups.into_iter().map(|(own, name, kind, paradigm, flags, members)| {
            let kind = GroupType::from_raw(kind);
            let paradigm = ParadigmType::from_raw(paradigm);
            (own.into(), Group { name: strings.of(name), kind, paradigm, flags, members })
        }));
    let whole_numbers = records.attributes.iter().filter(|(_, _, _, kind)| *kind == UINT64);
    definitions.attributes = table(whole_numbers.map(|&(own, name, description, _)| {
        (own.into(), Attribute { name: strings.of(name), description: strings.of(description) })
    }));
    definitions.comms = table(records.comms.iter().filter_map(|&(own, name, group, parent, flags)| {
        let comm =
            Comm { name: strings.of(name), group: reference(group)?, parent: reference(parent), flags };
        Some((own.into(), comm))
    }));
    // Only what was defined before can be a parent: the way up ends.
    let mut before = HashSet::new();
    definitions.calling_contexts =
        table(records.calling_contexts.iter().filter_map(|&(own, region, _, parent)| {
            let parent = reference(parent).filter(|parent: &CallingContextRef| before.contains(&parent.0));
            before.insert(own);
            Some((own.into(), CallingContext { region: reference(region)?, parent }))
        }));
    definitions
}

fn clock(records: &Records) -> ClockProperties {
    let Some(&(timer_resolution, global_offset, trace_length, realtime)) = records.clocks.first() else {
        return ClockProperties::default();
    };
    let realtime_timestamp = (realtime != UNDEFINED_U64).then_some(realtime);
    ClockProperties { timer_resolution, global_offset, trace_length, realtime_timestamp }
}

fn places(records: &Records, strings: &Strings, definitions: &mut Definitions) {
    definitions.system_tree_nodes = table(records.nodes.iter().map(|&(own, name, class, parent)| {
        let (name, class_name) = (strings.of(name), strings.of(class));
        (
            own.into(),
            SystemTreeNode { name, class_name, parent: reference(parent), ..SystemTreeNode::default() },
        )
    }));
    for &(node, domain) in &records.domains {
        if let Some(node) = reference(node).and_then(|node| definitions.system_tree_nodes.get_mut(node)) {
            node.domains.push(SystemTreeDomain::from_raw(domain));
        }
    }
    for &(node, name, value) in &records.node_properties {
        if let Some(node) = reference(node).and_then(|node| definitions.system_tree_nodes.get_mut(node)) {
            node.properties.push(strings.property(name, value));
        }
    }
    definitions.location_groups = table(records.location_groups.iter().map(|record| {
        let &(own, name, kind, parent, creator) = record;
        let group = LocationGroup {
            name: strings.of(name),
            kind: LocationGroupType::from_raw(kind),
            system_tree_parent: reference(parent),
            creating_location_group: reference(creator),
            properties: Vec::new(),
        };
        (own.into(), group)
    }));
    for &(group, name, value) in &records.group_properties {
        if let Some(group) = reference(group).and_then(|group| definitions.location_groups.get_mut(group)) {
            group.properties.push(strings.property(name, value));
        }
    }
    definitions.locations = table(records.locations.iter().map(|&(own, name, kind, events, group)| {
        let kind = LocationType::from_raw(kind);
        let group = reference(group);
        (own, Location { name: strings.of(name), kind, events, group, properties: Vec::new() })
    }));
    for &(location, name, value) in &records.location_properties {
        let location = LocationRef::of_number(location);
        if let Some(location) = location.and_then(|location| definitions.locations.get_mut(location)) {
            location.properties.push(strings.property(name, value));
        }
    }
}

fn metrics(
    members: Vec<MemberRecord>,
    classes: Vec<(u32, Vec<u32>, u8, u8)>,
    instances: Vec<(u32, u32, u64, u8, u64)>,
    strings: &Strings,
    definitions: &mut Definitions,
) {
    definitions.metric_members = table(members.into_iter().map(|record| {
        let (own, name, description, kind, mode, value, base, exponent, unit) = record;
        let member = MetricMember {
            name: strings.of(name),
            description: strings.of(description),
            kind: MetricType::from_raw(kind),
            mode: MetricMode::from_raw(mode),
            value_type: MetricValueType::from_raw(value),
            base: MetricBase::from_raw(base),
            exponent,
            unit: strings.of(unit),
        };
        (own.into(), member)
    }));
    definitions.metric_classes = table(classes.into_iter().map(|(own, members, occurrence, kind)| {
        let class = MetricClass {
            // Values belong to members by position, so that a member without a definition keeps its place.
            members: members.into_iter().map(crate::MetricMemberRef).collect(),
            occurrence: MetricOccurrence::from_raw(occurrence),
            recorder_kind: RecorderKind::from_raw(kind),
            recorders: Vec::new(),
        };
        (own.into(), class)
    }));
    definitions.metric_instances =
        table(instances.into_iter().map(|(own, class, recorder, scope, scope_number)| {
            let scope = MetricScope::from_raw(scope);
            let class = MetricClassRef(class);
            (own.into(), MetricInstance { class, recorder: LocationRef(recorder), scope, scope_number })
        }));
}

fn reference<R: Reference>(number: u32) -> Option<R> {
    R::of_number(number.into())
}

/// A definition whose own number is OTF2's "none" cannot be referred to.
fn table<R: Reference, T>(records: impl Iterator<Item = (u64, T)>) -> Table<R, T> {
    Table::of_entries(records.filter_map(|(own, value)| Some((R::of_number(own)?, value))).collect())
}
