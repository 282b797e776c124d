//! The global definitions of a trace as plain data. They contain the strings themselves; OTF2's string table is made when they
//! are written, and resolved when they are read.

use crate::enums::{
    GroupType, LocationGroupType, LocationType, MetricBase, MetricMode, MetricOccurrence, MetricScope,
    MetricType, MetricValueType, ParadigmClass, ParadigmType, RecorderKind, RegionRole, SystemTreeDomain,
};
use crate::table::{
    AttributeRef, CallingContextRef, CommRef, GroupRef, LocationGroupRef, LocationRef, MetricClassRef,
    MetricInstanceRef, MetricMemberRef, RegionRef, StringRef, SystemTreeNodeRef, Table,
};

/// Everything that events refer to. OTF2's other definitions (I/O, topologies, attributes that are not whole numbers) are
/// ignored when a trace is read.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Definitions {
    pub clock: ClockProperties,
    /// The strings that events refer to. Fill with [`add_string`](Definitions::add_string). Only
    /// [`Trace::open_with_strings`](crate::Trace::open_with_strings) reads them.
    pub strings: Vec<String>,
    pub paradigms: Vec<Paradigm>,
    pub system_tree_nodes: Table<SystemTreeNodeRef, SystemTreeNode>,
    pub location_groups: Table<LocationGroupRef, LocationGroup>,
    pub locations: Table<LocationRef, Location>,
    pub regions: Table<RegionRef, Region>,
    pub metric_members: Table<MetricMemberRef, MetricMember>,
    /// Fill with [`add_metric_class`](Definitions::add_metric_class), which numbers classes and instances together.
    pub metric_classes: Table<MetricClassRef, MetricClass>,
    /// The instances of metric classes. Fill with [`add_metric_instance`](Definitions::add_metric_instance).
    pub metric_instances: Table<MetricInstanceRef, MetricInstance>,
    pub groups: Table<GroupRef, Group>,
    pub comms: Table<CommRef, Comm>,
    pub attributes: Table<AttributeRef, Attribute>,
    /// The calling contexts, which are read but not written.
    pub calling_contexts: Table<CallingContextRef, CallingContext>,
}

/// A region and the context that called it, as unwinding and sampling find them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CallingContext {
    pub region: RegionRef,
    /// The calling context of the caller, which is defined before this one.
    pub parent: Option<CallingContextRef>,
}

impl Definitions {
    /// Adds a string that events refer to.
    pub fn add_string(&mut self, text: &str) -> StringRef {
        // String 0 is the empty one.
        if text.is_empty() {
            return StringRef(0);
        }
        let known = self.strings.iter().position(|known| known == text);
        let at = known.unwrap_or_else(|| {
            self.strings.push(text.to_owned());
            self.strings.len() - 1
        });
        StringRef(at as u32 + 1)
    }

    /// Adds a metric class under the next number that neither a class nor an instance has.
    pub fn add_metric_class(&mut self, class: MetricClass) -> MetricClassRef {
        let reference = MetricClassRef(self.next_metric());
        self.metric_classes.insert(reference, class);
        reference
    }

    /// Adds a metric instance under the next number that neither a class nor an instance has.
    pub fn add_metric_instance(&mut self, instance: MetricInstance) -> MetricInstanceRef {
        let reference = MetricInstanceRef(self.next_metric());
        self.metric_instances.insert(reference, instance);
        reference
    }

    fn next_metric(&self) -> u32 {
        let class = self.metric_classes.last().map_or(0, |last| last.0 + 1);
        let instance = self.metric_instances.last().map_or(0, |last| last.0 + 1);
        class.max(instance)
    }

    /// Adds MPI_COMM_WORLD with these locations, one for each rank, in the order of the ranks, with the two groups that OTF2
    /// requires for it: the locations that take part in MPI, and the ranks among them.
    pub fn add_mpi_world(&mut self, ranks: &[LocationRef]) -> CommRef {
        self.add_mpi_world_of(ranks, (0..ranks.len() as u64).collect())
    }

    /// Like [`add_mpi_world`](Definitions::add_mpi_world), but `members` has, for each rank, its index in `ranks`. If some ranks
    /// are not in this archive, the caller repeats the first location at the end of `ranks`; the index of that repetition stands
    /// for these ranks until archives are [joined](crate::JoinedDefinitions).
    pub fn add_mpi_world_of(&mut self, ranks: &[LocationRef], members: Vec<u64>) -> CommRef {
        self.groups.push(Group {
            name: "MPI locations".into(),
            kind: GroupType::CommLocations,
            paradigm: ParadigmType::Mpi,
            flags: 0,
            members: ranks.iter().map(|location| location.0).collect(),
        });
        let group = self.groups.push(Group {
            name: "MPI_COMM_WORLD".into(),
            kind: GroupType::CommGroup,
            paradigm: ParadigmType::Mpi,
            flags: 0,
            members,
        });
        self.comms.push(Comm { name: "MPI_COMM_WORLD".into(), group, parent: None, flags: 0 })
    }

    /// Returns the number of events in all locations, according to their definitions.
    pub fn events(&self) -> u64 {
        self.locations.values().fold(0, |sum, location| sum.saturating_add(location.events))
    }
}

/// The relation between timestamps and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockProperties {
    /// The number of ticks per second.
    pub timer_resolution: u64,
    /// A timestamp, in ticks, that no other timestamp in the trace precedes.
    pub global_offset: u64,
    /// The number of ticks between `global_offset` and the last timestamp.
    pub trace_length: u64,
    /// Nanoseconds since 1970 at `global_offset`.
    pub realtime_timestamp: Option<u64>,
}

impl Default for ClockProperties {
    /// Returns a clock of nanoseconds that starts at zero.
    fn default() -> Self {
        ClockProperties {
            timer_resolution: 1_000_000_000,
            global_offset: 0,
            trace_length: 0,
            realtime_timestamp: None,
        }
    }
}

/// A paradigm that occurs in the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Paradigm {
    pub paradigm: ParadigmType,
    pub name: String,
    pub class: ParadigmClass,
}

/// A part of the system: a machine, a node, a socket or a device.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct SystemTreeNode {
    pub name: String,
    /// The kind of node, as a word that the writer chooses. Score-P uses "machine", "node", "ROCm Device".
    pub class_name: String,
    pub parent: Option<SystemTreeNodeRef>,
    pub domains: Vec<SystemTreeDomain>,
    pub properties: Vec<Property>,
}

/// A process, or the context of an accelerator.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct LocationGroup {
    pub name: String,
    pub kind: LocationGroupType,
    pub system_tree_parent: Option<SystemTreeNodeRef>,
    /// The process that uses an accelerator.
    pub creating_location_group: Option<LocationGroupRef>,
    pub properties: Vec<Property>,
}

/// A stream of events, such as a thread.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Location {
    pub name: String,
    pub kind: LocationType,
    /// The number of events. For a location that [`ArchiveWriter`](crate::ArchiveWriter) has written or taken over, the
    /// writer's count is written instead.
    pub events: u64,
    pub group: Option<LocationGroupRef>,
    pub properties: Vec<Property>,
}

/// A named value of a location, a location group or a system tree node.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Property {
    pub name: String,
    pub value: PropertyValue,
}

/// The value of a property. OTF2's narrower numbers are widened; references to definitions are ignored.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum PropertyValue {
    String(String),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// A region of code, such as a function, a kernel or a loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Region {
    /// The demangled name of the region.
    pub name: String,
    /// The name that the linker uses.
    pub canonical_name: String,
    pub description: String,
    pub role: RegionRole,
    pub paradigm: ParadigmType,
    /// `OTF2_RegionFlag`: 1 for dynamic, 2 for a phase.
    pub flags: u32,
    pub source_file: Option<String>,
    /// The first line; 0 if it is not known.
    pub begin_line: u32,
    /// The last line; 0 if it is not known.
    pub end_line: u32,
}

/// One quantity. A value multiplied by `base` to the power of `exponent` is the quantity in `unit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct MetricMember {
    pub name: String,
    pub description: String,
    pub kind: MetricType,
    pub mode: MetricMode,
    pub value_type: MetricValueType,
    pub base: MetricBase,
    pub exponent: i64,
    pub unit: String,
}

/// Quantities that are recorded together: a metric event has one value for each member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MetricClass {
    /// The members, at most 255.
    pub members: Vec<MetricMemberRef>,
    pub occurrence: MetricOccurrence,
    pub recorder_kind: RecorderKind,
    /// The locations that record it, if the writer has named them.
    pub recorders: Vec<LocationRef>,
}

/// A metric class that one location records for another part of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MetricInstance {
    pub class: MetricClassRef,
    pub recorder: LocationRef,
    pub scope: MetricScope,
    /// The number of the location, location group, system tree node or group to which the values apply.
    pub scope_number: u64,
}

/// A list of locations, regions, metrics or ranks, depending on `kind`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Group {
    pub name: String,
    pub kind: GroupType,
    pub paradigm: ParadigmType,
    /// `OTF2_GroupFlag`: 1 if the ranks in events are indices into the group of kind `CommLocations`, and need no translation.
    pub flags: u32,
    pub members: Vec<u64>,
}

/// An attribute that events may have, whose values are whole numbers of 64 bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Attribute {
    pub name: String,
    pub description: String,
}

/// A communicator: a group whose members communicate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Comm {
    pub name: String,
    pub group: GroupRef,
    pub parent: Option<CommRef>,
    /// The flags of `OTF2_CommFlag`.
    pub flags: u32,
}

/// A metric that an event refers to: a class, directly or through an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub struct MetricRef {
    pub class: MetricClassRef,
    pub instance: Option<MetricInstanceRef>,
}

impl From<MetricClassRef> for MetricRef {
    fn from(class: MetricClassRef) -> Self {
        MetricRef { class, instance: None }
    }
}

/// One value of a metric event.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum MetricValue {
    U64(u64),
    I64(i64),
    F64(f64),
}
