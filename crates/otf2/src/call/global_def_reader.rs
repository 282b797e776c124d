//! Reads global definitions into records of plain numbers, in the order of the file. `read_definitions.rs` interprets them.

use super::global_def_writer::Value;
use super::reader::Reader;
use super::{check, copy, failure, forget_message};
use crate::error::Otf2Error;
use otf2_sys as sys;
use std::collections::HashMap;
use std::ffi::{c_char, c_void};

/// The records. A field such as `name`, `parent` or `group` is the reference of another definition, and `own` that of the record
/// itself.
#[derive(Default)]
pub(crate) struct Records {
    pub strings: HashMap<u32, String>,
    pub clocks: Vec<Clock>,
    pub paradigms: Vec<Paradigm>,
    pub nodes: Vec<Node>,
    pub domains: Vec<Domain>,
    pub location_groups: Vec<LocationGroup>,
    pub locations: Vec<Location>,
    pub regions: Vec<Region>,
    pub members: Vec<Member>,
    pub classes: Vec<Class>,
    pub recorders: Vec<Recorder>,
    pub instances: Vec<Instance>,
    pub groups: Vec<Group>,
    pub comms: Vec<Comm>,
    pub attributes: Vec<Attribute>,
    pub calling_contexts: Vec<CallingContext>,
    pub node_properties: Vec<Property<u32>>,
    pub group_properties: Vec<Property<u32>>,
    pub location_properties: Vec<Property<u64>>,
}

pub(crate) struct Class {
    pub own: u32,
    pub members: Vec<u32>,
    pub occurrence: u8,
    pub kind: u8,
}

pub(crate) struct Group {
    pub own: u32,
    pub name: u32,
    pub kind: u8,
    pub paradigm: u8,
    pub flags: u32,
    pub members: Vec<u64>,
}

pub(crate) struct Property<R> {
    /// The definition that has the property.
    pub of: R,
    pub name: u32,
    pub value: Value,
}

/// Reads the global definitions. Returns them and their number.
pub(crate) fn read(reader: &Reader) -> Result<(Records, u64), Otf2Error> {
    forget_message();
    let mut records = Records::default();
    let user_data: *mut c_void = (&raw mut records).cast();
    let mut number = 0;
    // SAFETY: the reader is open; the definition reader is used only if not null and closed once; the callbacks have the types
    // that their setters require; and `records` outlives the reading, during which only the callbacks access it.
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
        let read = check(registered).and_then(|()| {
            check(sys::OTF2_Reader_ReadAllGlobalDefinitions(archive, definitions, &mut number))
        });
        sys::OTF2_Reader_CloseGlobalDefReader(archive, definitions);
        read?;
    }
    Ok((records, number))
}

macro_rules! register {
    ($($set:ident = $callback:ident;)*) => {
        /// # Safety
        /// `callbacks` must be a table that OTF2 made, and be used with `Records` as user data.
        unsafe fn register(callbacks: *mut sys::OTF2_GlobalDefReaderCallbacks) {
            // SAFETY: see the function's contract.
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
/// Must be called only in a callback that OTF2 calls during [`read`], with its user data.
unsafe fn records<'a>(user_data: *mut c_void) -> &'a mut Records {
    // SAFETY: the user data is the records of `read`, which nothing else accesses until it returns.
    unsafe { &mut *user_data.cast() }
}

/// Defines records whose fields are all numbers, and the callbacks that add them to their lists.
macro_rules! plain {
    ($($name:ident = $record:ident { $($argument:ident: $kind:ty),* } in $list:ident;)*) => { $(
        #[allow(dead_code)]
        pub(crate) struct $record {
            $(pub $argument: $kind,)*
        }

        #[allow(clippy::too_many_arguments)]
        unsafe extern "C" fn $name(user_data: *mut c_void, $($argument: $kind),*) -> sys::OTF2_CallbackCode {
            // SAFETY: registered in read and called by OTF2 only.
            unsafe { records(user_data) }.$list.push($record { $($argument),* });
            sys::OTF2_CALLBACK_SUCCESS
        }
    )* };
}

plain! {
    on_clock = Clock { resolution: u64, offset: u64, length: u64, realtime: u64 } in clocks;
    on_paradigm = Paradigm { paradigm: u8, name: u32, class: u8 } in paradigms;
    on_node = Node { own: u32, name: u32, class: u32, parent: u32 } in nodes;
    on_domain = Domain { node: u32, domain: u8 } in domains;
    on_location_group = LocationGroup { own: u32, name: u32, kind: u8, parent: u32, creator: u32 } in location_groups;
    on_location = Location { own: u64, name: u32, kind: u8, events: u64, group: u32 } in locations;
    on_region = Region {
        own: u32, name: u32, canonical: u32, description: u32, role: u8, paradigm: u8, flags: u32, file: u32,
        begin_line: u32, end_line: u32
    } in regions;
    on_member = Member {
        own: u32, name: u32, description: u32, kind: u8, mode: u8, value: u8, base: u8, exponent: i64, unit: u32
    } in members;
    on_recorder = Recorder { class: u32, recorder: u64 } in recorders;
    on_instance = Instance { own: u32, class: u32, recorder: u64, scope: u8, number: u64 } in instances;
    on_comm = Comm { own: u32, name: u32, group: u32, parent: u32, flags: u32 } in comms;
    on_attribute = Attribute { own: u32, name: u32, description: u32, kind: u8 } in attributes;
    on_calling_context = CallingContext { own: u32, region: u32, place: u32, parent: u32 } in calling_contexts;
}

/// Defines the callbacks for properties.
macro_rules! properties {
    ($($name:ident($kind:ty) = $list:ident;)*) => { $(
        unsafe extern "C" fn $name(
            user_data: *mut c_void,
            of: $kind,
            name: u32,
            kind: sys::OTF2_Type,
            value: sys::OTF2_AttributeValue,
        ) -> sys::OTF2_CallbackCode {
            // SAFETY: registered in read and called only by OTF2, with a value of the type `kind`.
            let (records, value) = unsafe { (records(user_data), property_value(kind, value)) };
            if let Some(value) = value {
                records.$list.push(Property { of, name, value });
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
/// `kind` must be the type of the value.
unsafe fn property_value(kind: sys::OTF2_Type, value: sys::OTF2_AttributeValue) -> Option<Value> {
    // SAFETY: see the function's contract; all fields are numbers, for which any bits are valid.
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
    // SAFETY: registered in read and called only by OTF2, with `count` members.
    let (records, members) = unsafe { (records(user_data), list(members, count.into())) };
    records.classes.push(Class { own, members, occurrence, kind });
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
    // SAFETY: registered in read and called only by OTF2, with `count` members.
    let (records, members) = unsafe { (records(user_data), list(members, count as usize)) };
    records.groups.push(Group { own, name, kind, paradigm, flags, members });
    sys::OTF2_CALLBACK_SUCCESS
}

/// # Safety
/// There must be `count` elements, or the pointer must be null.
unsafe fn list<T: Copy>(elements: *const T, count: usize) -> Vec<T> {
    if elements.is_null() || count == 0 {
        return Vec::new();
    }
    // SAFETY: see the function's contract.
    unsafe { std::slice::from_raw_parts(elements, count) }.to_vec()
}
