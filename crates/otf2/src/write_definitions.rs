//! Converts [`Definitions`] to OTF2's definition records, each after those that it refers to; a string is written before its
//! first use.

use crate::call::global_def_writer::{GlobalDefWriter, UINT64, Value};
use crate::call::{UNDEFINED_U32, UNDEFINED_U64};
use crate::definitions::{Definitions, Property, PropertyValue};
use crate::error::{Error, Otf2Error};
use crate::table::{Reference, Table};
use std::collections::HashMap;
use std::ffi::CString;

/// The reason why definitions were not written. The caller adds the file.
pub(crate) enum Failure {
    Otf2(Otf2Error),
    Other(Error),
}

impl From<Otf2Error> for Failure {
    fn from(error: Otf2Error) -> Failure {
        Failure::Otf2(error)
    }
}

/// OTF2's string table. A string is written when it is first used.
struct Strings<'a> {
    writer: &'a GlobalDefWriter,
    numbers: HashMap<String, u32>,
}

impl Strings<'_> {
    fn of(&mut self, text: &str) -> Result<u32, Otf2Error> {
        if let Some(&number) = self.numbers.get(text) {
            return Ok(number);
        }
        let number = self.numbers.len() as u32;
        // OTF2's strings end at the first zero byte.
        let written = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
        self.writer.string(number, &written)?;
        self.numbers.insert(text.to_owned(), number);
        Ok(number)
    }

    fn of_option(&mut self, text: Option<&str>) -> Result<u32, Otf2Error> {
        text.map_or(Ok(UNDEFINED_U32), |text| self.of(text))
    }

    fn of_property(&mut self, property: &Property) -> Result<(u32, Value), Otf2Error> {
        let name = self.of(&property.name)?;
        let value = match &property.value {
            PropertyValue::String(text) => Value::String(self.of(text)?),
            PropertyValue::U64(value) => Value::U64(*value),
            PropertyValue::I64(value) => Value::I64(*value),
            PropertyValue::F64(value) => Value::F64(*value),
        };
        Ok((name, value))
    }
}

/// Writes all definitions. `written` returns the number of events of a location if the archive has written it.
pub(crate) fn write(
    definitions: &Definitions,
    written: impl Fn(u64) -> Option<u64>,
    writer: &GlobalDefWriter,
) -> Result<(), Otf2Error> {
    let mut strings = Strings { writer, numbers: HashMap::new() };
    // Some tools expect string 0 to be empty.
    strings.of("")?;
    for text in &definitions.strings {
        strings.of(text)?;
    }
    let clock = &definitions.clock;
    writer.clock_properties(
        clock.timer_resolution,
        clock.global_offset,
        clock.trace_length,
        clock.realtime_timestamp.unwrap_or(UNDEFINED_U64),
    )?;
    for paradigm in &definitions.paradigms {
        let name = strings.of(&paradigm.name)?;
        writer.paradigm(paradigm.paradigm.to_raw(), name, paradigm.class.to_raw())?;
    }
    places(definitions, written, writer, &mut strings)?;
    regions(definitions, writer, &mut strings)?;
    metrics(definitions, writer, &mut strings)?;
    for (own, group) in definitions.groups.iter() {
        let name = strings.of(&group.name)?;
        let (kind, paradigm) = (group.kind.to_raw(), group.paradigm.to_raw());
        writer.group(own.0, name, kind, paradigm, group.flags, &group.members)?;
    }
    for (own, attribute) in definitions.attributes.iter() {
        let (name, description) = (strings.of(&attribute.name)?, strings.of(&attribute.description)?);
        writer.attribute(own.0, name, description, UINT64)?;
    }
    for (own, comm) in definitions.comms.iter() {
        let name = strings.of(&comm.name)?;
        writer.comm(
            own.0,
            name,
            comm.group.0,
            comm.parent.map_or(UNDEFINED_U32, |parent| parent.0),
            comm.flags,
        )?;
    }
    Ok(())
}

fn regions(
    definitions: &Definitions,
    writer: &GlobalDefWriter,
    strings: &mut Strings<'_>,
) -> Result<(), Otf2Error> {
    for (own, region) in definitions.regions.iter() {
        let name = strings.of(&region.name)?;
        let canonical = strings.of(&region.canonical_name)?;
        let description = strings.of(&region.description)?;
        let file = strings.of_option(region.source_file.as_deref())?;
        writer.region(
            own.0,
            name,
            canonical,
            description,
            region.role.to_raw(),
            region.paradigm.to_raw(),
            region.flags,
            file,
            region.begin_line,
            region.end_line,
        )?;
    }
    Ok(())
}

fn places(
    definitions: &Definitions,
    written: impl Fn(u64) -> Option<u64>,
    writer: &GlobalDefWriter,
    strings: &mut Strings<'_>,
) -> Result<(), Otf2Error> {
    for (own, node) in definitions.system_tree_nodes.iter() {
        let (name, class) = (strings.of(&node.name)?, strings.of(&node.class_name)?);
        writer.system_tree_node(own.0, name, class, node.parent.map_or(UNDEFINED_U32, |parent| parent.0))?;
        for domain in &node.domains {
            writer.system_tree_node_domain(own.0, domain.to_raw())?;
        }
        for property in &node.properties {
            let (name, value) = strings.of_property(property)?;
            writer.system_tree_node_property(own.0, name, value)?;
        }
    }
    for (own, group) in definitions.location_groups.iter() {
        let name = strings.of(&group.name)?;
        let parent = group.system_tree_parent.map_or(UNDEFINED_U32, |parent| parent.0);
        let creator = group.creating_location_group.map_or(UNDEFINED_U32, |creator| creator.0);
        writer.location_group(own.0, name, group.kind.to_raw(), parent, creator)?;
        for property in &group.properties {
            let (name, value) = strings.of_property(property)?;
            writer.location_group_property(own.0, name, value)?;
        }
    }
    for (own, location) in definitions.locations.iter() {
        let name = strings.of(&location.name)?;
        let events = written(own.0).unwrap_or(location.events);
        let group = location.group.map_or(UNDEFINED_U32, |group| group.0);
        writer.location(own.0, name, location.kind.to_raw(), events, group)?;
        for property in &location.properties {
            let (name, value) = strings.of_property(property)?;
            writer.location_property(own.0, name, value)?;
        }
    }
    Ok(())
}

fn metrics(
    definitions: &Definitions,
    writer: &GlobalDefWriter,
    strings: &mut Strings<'_>,
) -> Result<(), Otf2Error> {
    for (own, member) in definitions.metric_members.iter() {
        let name = strings.of(&member.name)?;
        let description = strings.of(&member.description)?;
        let unit = strings.of(&member.unit)?;
        writer.metric_member(
            own.0,
            name,
            description,
            member.kind.to_raw(),
            member.mode.to_raw(),
            member.value_type.to_raw(),
            member.base.to_raw(),
            member.exponent,
            unit,
        )?;
    }
    for (own, class) in definitions.metric_classes.iter() {
        let members: Vec<u32> = class.members.iter().map(|member| member.0).collect();
        writer.metric_class(own.0, &members, class.occurrence.to_raw(), class.recorder_kind.to_raw())?;
        for recorder in &class.recorders {
            writer.metric_class_recorder(own.0, recorder.0)?;
        }
    }
    for (own, instance) in definitions.metric_instances.iter() {
        let scope = instance.scope.to_raw();
        writer.metric_instance(own.0, instance.class.0, instance.recorder.0, scope, instance.scope_number)?;
    }
    Ok(())
}

/// Finds what OTF2 would write but readers would fail at: references to definitions that do not exist, numbers that are both a
/// class and an instance, classes with too many members, and a clock without a resolution.
pub(crate) fn validate(definitions: &Definitions) -> Result<(), Error> {
    let d = definitions;
    if d.clock.timer_resolution == 0 {
        return Err(Error::Definitions("the timer resolution is zero ticks per second".into()));
    }
    for (own, node) in d.system_tree_nodes.iter() {
        defined(&d.system_tree_nodes, node.parent, || {
            format!("parent of system tree node {own} ({})", node.name)
        })?;
    }
    for (own, group) in d.location_groups.iter() {
        let what = |what| move || format!("{what} of location group {own} ({})", group.name);
        defined(&d.system_tree_nodes, group.system_tree_parent, what("system tree parent"))?;
        defined(&d.location_groups, group.creating_location_group, what("creating location group"))?;
    }
    for (own, location) in d.locations.iter() {
        defined(&d.location_groups, location.group, || {
            format!("group of location {own} ({})", location.name)
        })?;
    }
    for (own, class) in d.metric_classes.iter() {
        if class.members.len() > usize::from(u8::MAX) {
            return Err(Error::TooManyValues(class.members.len()));
        }
        for &member in &class.members {
            defined(&d.metric_members, Some(member), || format!("member of metric class {own}"))?;
        }
        for &recorder in &class.recorders {
            defined(&d.locations, Some(recorder), || format!("recorder of metric class {own}"))?;
        }
    }
    for (own, instance) in d.metric_instances.iter() {
        if d.metric_classes.iter().any(|(class, _)| class.0 == own.0) {
            return Err(Error::Definitions(format!("metric {own} is both a class and an instance")));
        }
        defined(&d.metric_classes, Some(instance.class), || format!("class of metric instance {own}"))?;
        defined(&d.locations, Some(instance.recorder), || format!("recorder of metric instance {own}"))?;
    }
    for (own, comm) in d.comms.iter() {
        defined(&d.groups, Some(comm.group), || format!("group of communicator {own} ({})", comm.name))?;
        defined(&d.comms, comm.parent, || format!("parent of communicator {own} ({})", comm.name))?;
    }
    Ok(())
}

fn defined<R: Reference, T>(
    table: &Table<R, T>,
    reference: Option<R>,
    what: impl Fn() -> String,
) -> Result<(), Error> {
    match reference {
        Some(reference) if !table.contains(reference) => {
            Err(Error::Definitions(format!("the {} is {}, which is not defined", what(), reference.number())))
        }
        _ => Ok(()),
    }
}
