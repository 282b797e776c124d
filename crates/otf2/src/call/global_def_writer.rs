//! OTF2's writer of global definitions.

use super::check;
use crate::error::Otf2Error;
use otf2_sys as sys;
use std::ffi::CStr;
use std::ptr::NonNull;

/// The writer exists only in `Archive::write_global_definitions`, which closes it afterwards.
pub(crate) struct GlobalDefWriter {
    handle: NonNull<sys::OTF2_GlobalDefWriter>,
}

/// OTF2's type of unsigned 64-bit numbers.
pub(crate) const UINT64: u8 = sys::OTF2_TYPE_UINT64 as u8;

/// A value of a property, with strings as references.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    String(u32),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    fn split(self) -> (sys::OTF2_Type, sys::OTF2_AttributeValue) {
        let (kind, value) = match self {
            Value::String(string_ref) => {
                (sys::OTF2_TYPE_STRING, sys::OTF2_AttributeValue { stringRef: string_ref })
            }
            Value::U64(uint64) => (sys::OTF2_TYPE_UINT64, sys::OTF2_AttributeValue { uint64 }),
            Value::I64(int64) => (sys::OTF2_TYPE_INT64, sys::OTF2_AttributeValue { int64 }),
            Value::F64(float64) => (sys::OTF2_TYPE_DOUBLE, sys::OTF2_AttributeValue { float64 }),
        };
        (kind as sys::OTF2_Type, value)
    }
}

/// Defines calls with plain numbers: the arguments are those of the C function after the handle.
macro_rules! plain {
    ($($name:ident = $function:ident($($argument:ident: $kind:ty),* $(,)?);)*) => { $(
        #[allow(clippy::too_many_arguments)]
        pub(crate) fn $name(&self, $($argument: $kind),*) -> Result<(), Otf2Error> {
            // SAFETY: the handle is open while self exists; all other arguments are numbers.
            check(unsafe { sys::$function(self.handle.as_ptr(), $($argument),*) })
        }
    )* };
}

impl GlobalDefWriter {
    pub(super) fn new(handle: NonNull<sys::OTF2_GlobalDefWriter>) -> GlobalDefWriter {
        GlobalDefWriter { handle }
    }

    plain! {
        clock_properties = OTF2_GlobalDefWriter_WriteClockProperties(
            resolution: u64, offset: u64, length: u64, realtime: u64);
        paradigm = OTF2_GlobalDefWriter_WriteParadigm(paradigm: u8, name: u32, class: u8);
        system_tree_node = OTF2_GlobalDefWriter_WriteSystemTreeNode(own: u32, name: u32, class: u32, parent: u32);
        system_tree_node_domain = OTF2_GlobalDefWriter_WriteSystemTreeNodeDomain(node: u32, domain: u8);
        location_group = OTF2_GlobalDefWriter_WriteLocationGroup(
            own: u32, name: u32, kind: u8, parent: u32, creator: u32);
        location = OTF2_GlobalDefWriter_WriteLocation(own: u64, name: u32, kind: u8, events: u64, group: u32);
        region = OTF2_GlobalDefWriter_WriteRegion(
            own: u32, name: u32, canonical: u32, description: u32, role: u8, paradigm: u8, flags: u32, file: u32,
            begin: u32, end: u32);
        metric_member = OTF2_GlobalDefWriter_WriteMetricMember(
            own: u32, name: u32, description: u32, kind: u8, mode: u8, value: u8, base: u8, exponent: i64, unit: u32);
        metric_instance = OTF2_GlobalDefWriter_WriteMetricInstance(
            own: u32, class: u32, recorder: u64, kind: u8, scope: u64);
        metric_class_recorder = OTF2_GlobalDefWriter_WriteMetricClassRecorder(class: u32, recorder: u64);
        attribute = OTF2_GlobalDefWriter_WriteAttribute(own: u32, name: u32, description: u32, kind: u8);
        comm = OTF2_GlobalDefWriter_WriteComm(own: u32, name: u32, group: u32, parent: u32, flags: u32);
    }

    pub(crate) fn string(&self, own: u32, text: &CStr) -> Result<(), Otf2Error> {
        // SAFETY: the handle is open while self exists; the text is copied.
        check(unsafe { sys::OTF2_GlobalDefWriter_WriteString(self.handle.as_ptr(), own, text.as_ptr()) })
    }

    /// Writes a metric class. Members after the 255th are left out, because OTF2 has no room for them.
    pub(crate) fn metric_class(
        &self,
        own: u32,
        members: &[u32],
        occurrence: u8,
        kind: u8,
    ) -> Result<(), Otf2Error> {
        let count = members.len().min(255) as u8;
        // SAFETY: the handle is open while self exists; there are at least `count` members, which are copied.
        check(unsafe {
            sys::OTF2_GlobalDefWriter_WriteMetricClass(
                self.handle.as_ptr(),
                own,
                count,
                members.as_ptr(),
                occurrence,
                kind,
            )
        })
    }

    pub(crate) fn group(
        &self,
        own: u32,
        name: u32,
        kind: u8,
        paradigm: u8,
        flags: u32,
        members: &[u64],
    ) -> Result<(), Otf2Error> {
        let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
        // SAFETY: the handle is open while self exists; there are at least `count` members, which are copied.
        check(unsafe {
            sys::OTF2_GlobalDefWriter_WriteGroup(
                self.handle.as_ptr(),
                own,
                name,
                kind,
                paradigm,
                flags,
                count,
                members.as_ptr(),
            )
        })
    }

    pub(crate) fn location_property(&self, location: u64, name: u32, value: Value) -> Result<(), Otf2Error> {
        let (kind, value) = value.split();
        // SAFETY: the handle is open while self exists; `kind` is the type of the value.
        check(unsafe {
            sys::OTF2_GlobalDefWriter_WriteLocationProperty(self.handle.as_ptr(), location, name, kind, value)
        })
    }

    pub(crate) fn location_group_property(
        &self,
        group: u32,
        name: u32,
        value: Value,
    ) -> Result<(), Otf2Error> {
        let (kind, value) = value.split();
        // SAFETY: see location_property.
        check(unsafe {
            sys::OTF2_GlobalDefWriter_WriteLocationGroupProperty(
                self.handle.as_ptr(),
                group,
                name,
                kind,
                value,
            )
        })
    }

    pub(crate) fn system_tree_node_property(
        &self,
        node: u32,
        name: u32,
        value: Value,
    ) -> Result<(), Otf2Error> {
        let (kind, value) = value.split();
        // SAFETY: see location_property.
        check(unsafe {
            sys::OTF2_GlobalDefWriter_WriteSystemTreeNodeProperty(
                self.handle.as_ptr(),
                node,
                name,
                kind,
                value,
            )
        })
    }
}
