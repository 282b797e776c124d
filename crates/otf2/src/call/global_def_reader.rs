//! Reads global definitions into lists of plain numbers, in the order of the file. What they mean is made out elsewhere.

use super::global_def_writer::Value;
use super::reader::Reader;
use super::{check, copy, failure, forget_message};
use crate::error::Otf2Error;
use otf2_sys as sys;
use std::collections::HashMap;
use std::ffi::{c_char, c_void};

/// Own, name, canonical name, description, role, paradigm, flags, file, begin, end.
pub(crate) type RegionRecord = (u32, u32, u32, u32, u8, u8, u32, u32, u32, u32);

/// Own, name, description, kind, mode, value type, base, exponent, unit.
pub(crate) type MemberRecord = (u32, u32, u32, u8, u8, u8, u8, i64, u32);

/// The records, each with the arguments of its C callback after the user data.
#[derive(Default)]
pub(crate) struct Records {
    pub strings: HashMap<u32, String>,
    /// Resolution, offset, length, real time.
    pub clocks: Vec<(u64, u64, u64, u64)>,
    /// Paradigm, name, class.
    pub paradigms: Vec<(u8, u32, u8)>,
    /// Own, name, class, parent.
    pub nodes: Vec<(u32, u32, u32, u32)>,
    /// Node, domain.
    pub domains: Vec<(u32, u8)>,
    /// Own, name, kind, system tree parent, creator.
    pub location_groups: Vec<(u32, u32, u8, u32, u32)>,
    /// Own, name, kind, events, group.
    pub locations: Vec<(u64, u32, u8, u64, u32)>,
    pub regions: Vec<RegionRecord>,
    pub members: Vec<MemberRecord>,
    /// Own, members, occurrence, recorder kind.
    pub classes: Vec<(u32, Vec<u32>, u8, u8)>,
    /// Class, recorder.
    pub recorders: Vec<(u32, u64)>,
    /// Own, class, recorder, scope, number in that scope.
    pub instances: Vec<(u32, u32, u64, u8, u64)>,
    /// Own, name, kind, paradigm, flags, members.
    pub groups: Vec<(u32, u32, u8, u8, u32, Vec<u64>)>,
    /// Own, name, group, parent, flags.
    pub comms: Vec<(u32, u32, u32, u32, u32)>,
    /// Own, name, description, type.
    pub attributes: Vec<(u32, u32, u32, u8)>,
    /// Own, region, source code location, parent.
    pub calling_contexts: Vec<(u32, u32, u32, u32)>,
    /// Of what, name, value.
    pub node_properties: Vec<(u32, u32, Value)>,
    pub group_properties: Vec<(u32, u32, Value)>,
    pub location_properties: Vec<(u64, u32, Value)>,
}

/// Reads the global definitions and returns them with their number.
pub(crate) fn read(reader: &Reader) -> Result<(Records, u64), Otf2Error> {
    forget_message();
    let mut records = Records::default();
    let user_data: *mut c_void = (&raw mut records).cast();
    let mut number = 0;
    // SAFETY: the reader is open; the definition reader is used only if not null and closed once; the callbacks have the
    // types that their setters want, and records outlives the reading, during which only the callbacks touch it.
    unsafe {
        let archive = reader.handle();
        let definitions = sys::OTF2_Reader_GetGlobalDefReader(archive);
        if definitions.is_null() {
            return Err(failure(sys::OTF2_ERROR_INVALID_DATA));
        }
        let callbacks = sys::OTF2_GlobalDefReaderCallbacks_New();
        if callbacks.is_null() {
            return Err(failure(sys::OTF2_ERROR_MEM_FAULT));
        }
        register(callbacks);
        let registered =
            sys::OTF2_Reader_RegisterGlobalDefCallbacks(archive, definitions, callbacks, user_data);
        sys::OTF2_GlobalDefReaderCallbacks_Delete(callbacks);
        check(registered)?;
        let read = check(sys::OTF2_Reader_ReadAllGlobalDefinitions(archive, definitions, &mut number));
        sys::OTF2_Reader_CloseGlobalDefReader(archive, definitions);
        read?;
    }
    Ok((records, number))
}

macro_rules! register {
    ($($set:ident = $callback:ident;)*) => {
        /// # Safety
        /// The table is one that OTF2 made, and is used with `Records` as user data.
        unsafe fn register(callbacks: *mut sys::OTF2_GlobalDefReaderCallbacks) {
            // SAFETY: as the function's own contract.
            unsafe { $(sys::$set(callbacks, Some($callback));)* }
        }
    };
}

register! {
    OTF2_GlobalDefReaderCallbacks_SetStringCallback = on_string;
    OTF2_GlobalDefReaderCallbacks_SetClockPropertiesCallback = on_clock;
    OTF2_GlobalDefReaderCallbacks_SetParadigmCallback = on_paradigm;
    OTF2_GlobalDefReaderCallbacks_SetSystemTreeNodeCallback = on_node;
    OTF2_GlobalDefReaderCallbacks_SetSystemTreeNodeDomainCallback = on_domain;
    OTF2_GlobalDefReaderCallbacks_SetSystemTreeNodePropertyCallback = on_node_property;
    OTF2_GlobalDefReaderCallbacks_SetLocationGroupCallback = on_location_group;
    OTF2_GlobalDefReaderCallbacks_SetLocationGroupPropertyCallback = on_group_property;
    OTF2_GlobalDefReaderCallbacks_SetLocationCallback = on_location;
    OTF2_GlobalDefReaderCallbacks_SetLocationPropertyCallback = on_location_property;
    OTF2_GlobalDefReaderCallbacks_SetRegionCallback = on_region;
    OTF2_GlobalDefReaderCallbacks_SetMetricMemberCallback = on_member;
    OTF2_GlobalDefReaderCallbacks_SetMetricClassCallback = on_class;
    OTF2_GlobalDefReaderCallbacks_SetMetricClassRecorderCallback = on_recorder;
    OTF2_GlobalDefReaderCallbacks_SetMetricInstanceCallback = on_instance;
    OTF2_GlobalDefReaderCallbacks_SetGroupCallback = on_group;
    OTF2_GlobalDefReaderCallbacks_SetCommCallback = on_comm;
    OTF2_GlobalDefReaderCallbacks_SetAttributeCallback = on_attribute;
    OTF2_GlobalDefReaderCallbacks_SetCallingContextCallback = on_calling_context;
}

/// # Safety
/// Only within a callback that OTF2 calls during [`read`], with its user data.
unsafe fn records<'a>(user_data: *mut c_void) -> &'a mut Records {
    // SAFETY: the user data is the records of `read`, which nothing else touches until it returns.
    unsafe { &mut *user_data.cast() }
}

/// Callbacks whose arguments are all numbers: they are kept as they are.
macro_rules! plain {
    ($($name:ident($($argument:ident: $kind:ty),*) = $list:ident;)*) => { $(
        #[allow(clippy::too_many_arguments)]
        unsafe extern "C" fn $name(user_data: *mut c_void, $($argument: $kind),*) -> sys::OTF2_CallbackCode {
            // SAFETY: registered in read and called by OTF2 only.
            unsafe { records(user_data) }.$list.push(($($argument),*));
            sys::OTF2_CALLBACK_SUCCESS
        }
    )* };
}

plain! {
    on_clock(resolution: u64, offset: u64, length: u64, realtime: u64) = clocks;
    on_paradigm(paradigm: u8, name: u32, class: u8) = paradigms;
    on_node(own: u32, name: u32, class: u32, parent: u32) = nodes;
    on_domain(node: u32, domain: u8) = domains;
    on_location_group(own: u32, name: u32, kind: u8, parent: u32, creator: u32) = location_groups;
    on_location(own: u64, name: u32, kind: u8, events: u64, group: u32) = locations;
    on_region(
        own: u32, name: u32, canonical: u32, description: u32, role: u8, paradigm: u8, flags: u32, file: u32,
        begin: u32, end: u32
    ) = regions;
    on_member(
        own: u32, name: u32, description: u32, kind: u8, mode: u8, value: u8, base: u8, exponent: i64, unit: u32
    ) = members;
    on_recorder(class: u32, recorder: u64) = recorders;
    on_instance(own: u32, class: u32, recorder: u64, scope: u8, number: u64) = instances;
    on_comm(own: u32, name: u32, group: u32, parent: u32, flags: u32) = comms;
    on_attribute(own: u32, name: u32, description: u32, kind: u8) = attributes;
    on_calling_context(own: u32, region: u32, place: u32, parent: u32) = calling_contexts;
}

/// Callbacks with the value of a property.
macro_rules! properties {
    ($($name:ident($kind:ty) = $list:ident;)*) => { $(
        unsafe extern "C" fn $name(
            user_data: *mut c_void,
            of: $kind,
            name: u32,
            kind: sys::OTF2_Type,
            value: sys::OTF2_AttributeValue,
        ) -> sys::OTF2_CallbackCode {
            // SAFETY: registered in read and called by OTF2 only, with a value of the type that it names.
            let (records, value) = unsafe { (records(user_data), property_value(kind, value)) };
            if let Some(value) = value {
                records.$list.push((of, name, value));
            }
            sys::OTF2_CALLBACK_SUCCESS
        }
    )* };
}

properties! {
    on_node_property(u32) = node_properties;
    on_group_property(u32) = group_properties;
    on_location_property(u64) = location_properties;
}

/// # Safety
/// The value's active field is the one that `kind` names.
unsafe fn property_value(kind: sys::OTF2_Type, value: sys::OTF2_AttributeValue) -> Option<Value> {
    // SAFETY: as the function's own contract; all fields are numbers, which any bits are good for.
    unsafe {
        Some(match u32::from(kind) {
            sys::OTF2_TYPE_STRING => Value::String(value.stringRef),
            sys::OTF2_TYPE_UINT8 => Value::U64(value.uint8.into()),
            sys::OTF2_TYPE_UINT16 => Value::U64(value.uint16.into()),
            sys::OTF2_TYPE_UINT32 => Value::U64(value.uint32.into()),
            sys::OTF2_TYPE_UINT64 => Value::U64(value.uint64),
            sys::OTF2_TYPE_INT8 => Value::I64(value.int8.into()),
            sys::OTF2_TYPE_INT16 => Value::I64(value.int16.into()),
            sys::OTF2_TYPE_INT32 => Value::I64(value.int32.into()),
            sys::OTF2_TYPE_INT64 => Value::I64(value.int64),
            sys::OTF2_TYPE_FLOAT => Value::F64(value.float32.into()),
            sys::OTF2_TYPE_DOUBLE => Value::F64(value.float64),
            _ => return None,
        })
    }
}

unsafe extern "C" fn on_string(
    user_data: *mut c_void,
    own: u32,
    text: *const c_char,
) -> sys::OTF2_CallbackCode {
    // SAFETY: registered in read and called by OTF2 only.
    unsafe { records(user_data) }.strings.insert(own, copy(text));
    sys::OTF2_CALLBACK_SUCCESS
}

unsafe extern "C" fn on_class(
    user_data: *mut c_void,
    own: u32,
    count: u8,
    members: *const u32,
    occurrence: u8,
    kind: u8,
) -> sys::OTF2_CallbackCode {
    // SAFETY: registered in read and called by OTF2 only, with `count` members.
    let (records, members) = unsafe { (records(user_data), list(members, count.into())) };
    records.classes.push((own, members, occurrence, kind));
    sys::OTF2_CALLBACK_SUCCESS
}

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn on_group(
    user_data: *mut c_void,
    own: u32,
    name: u32,
    kind: u8,
    paradigm: u8,
    flags: u32,
    count: u32,
    members: *const u64,
) -> sys::OTF2_CallbackCode {
    // SAFETY: registered in read and called by OTF2 only, with `count` members.
    let (records, members) = unsafe { (records(user_data), list(members, count as usize)) };
    records.groups.push((own, name, kind, paradigm, flags, members));
    sys::OTF2_CALLBACK_SUCCESS
}

/// # Safety
/// There are `count` elements, or none at all and the pointer is null.
unsafe fn list<T: Copy>(elements: *const T, count: usize) -> Vec<T> {
    if elements.is_null() || count == 0 {
        return Vec::new();
    }
    // SAFETY: as the function's own contract.
    unsafe { std::slice::from_raw_parts(elements, count) }.to_vec()
}
