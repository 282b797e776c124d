//! The global definitions of a trace as plain data. Strings are written out here; OTF2's string table is made and
//! resolved where they are written and read.

use crate::table::{
    AttributeRef, CallingContextRef, CommRef, GroupRef, LocationGroupRef, LocationRef, MetricClassRef,
    MetricInstanceRef, MetricMemberRef, RegionRef, StringRef, SystemTreeNodeRef, Table,
};
use crate::words::{
    GroupType, LocationGroupType, LocationType, MetricBase, MetricMode, MetricOccurrence, MetricScope,
    MetricType, MetricValueType, ParadigmClass, ParadigmType, RecorderKind, RegionRole, SystemTreeDomain,
};

/// Everything that events refer to. What OTF2 can define beyond this (I/O, topologies, attributes that are no whole numbers) is
/// passed over when a trace is read.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Definitions {
    pub clock: ClockProperties,
    /// Those that events refer to. Fill with [`add_string`](Definitions::add_string). Written, and read by
    /// [`Trace::open_with_strings`](crate::Trace::open_with_strings) alone.
    pub strings: Vec<String>,
    pub paradigms: Vec<Paradigm>,
    pub system_tree_nodes: Table<SystemTreeNodeRef, SystemTreeNode>,
    pub location_groups: Table<LocationGroupRef, LocationGroup>,
    pub locations: Table<LocationRef, Location>,
    pub regions: Table<RegionRef, Region>,
    pub metric_members: Table<MetricMemberRef, MetricMember>,
    /// Fill with [`add_metric_class`](Definitions::add_metric_class), which numbers classes and instances together.
    pub metric_classes: Table<MetricClassRef, MetricClass>,
    /// Fill with [`add_metric_instance`](Definitions::add_metric_instance).
    pub metric_instances: Table<MetricInstanceRef, MetricInstance>,
    pub groups: Table<GroupRef, Group>,
    pub comms: Table<CommRef, Comm>,
    pub attributes: Table<AttributeRef, Attribute>,
    /// Read, and not written.
    pub calling_contexts: Table<CallingContextRef, CallingContext>,
}

/// A region, a place in it, and the context that called it: what unwinding and sampling find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CallingContext {
    pub region: RegionRef,
    /// One that is defined before it.
    pub parent: Option<CallingContextRef>,
}

impl Definitions {
    /// Adds a string that events refer to.
    pub fn add_string(&mut self, text: &str) -> StringRef {
        // 0 is the empty one.
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

    /// Adds a metric class under the next free number of classes and instances.
    pub fn add_metric_class(&mut self, class: MetricClass) -> MetricClassRef {
        let reference = MetricClassRef(self.next_metric());
        self.metric_classes.insert(reference, class);
        reference
    }

    /// Adds a metric instance under the next free number of classes and instances.
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

    /// Adds MPI_COMM_WORLD over these locations, one for each rank, in the order of the ranks, with the two groups that
    /// OTF2 wants for it: the locations that take part in MPI, and the ranks among them.
    pub fn add_mpi_world(&mut self, ranks: &[LocationRef]) -> CommRef {
        self.add_mpi_world_of(ranks, (0..ranks.len() as u64).collect())
    }

    /// As [`add_mpi_world`](Definitions::add_mpi_world), of these places among the locations, one for each rank. Where some are not in
    /// this archive, the first location comes once more at the end, and that is their place until archives are
    /// [joined](crate::JoinedDefinitions).
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

    /// Number of events that the locations claim to have.
    pub fn events(&self) -> u64 {
        self.locations.values().fold(0, |sum, location| sum.saturating_add(location.events))
    }
}

/// How the numbers in timestamps relate to time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockProperties {
    /// Ticks per second.
    pub timer_resolution: u64,
    /// A timestamp not after any in the trace, in ticks.
    pub global_offset: u64,
    /// Ticks between `global_offset` and the last timestamp.
    pub trace_length: u64,
    /// Nanoseconds since 1970 at `global_offset`.
    pub realtime_timestamp: Option<u64>,
}

impl Default for ClockProperties {
    /// Nanoseconds from zero.
    fn default() -> Self {
        ClockProperties {
            timer_resolution: 1_000_000_000,
            global_offset: 0,
            trace_length: 0,
            realtime_timestamp: None,
        }
    }
}

/// Says that the trace has something of this paradigm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Paradigm {
    pub paradigm: ParadigmType,
    /// For people.
    pub name: String,
    pub class: ParadigmClass,
}

/// A machine, a node, a socket, a device.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct SystemTreeNode {
    pub name: String,
    /// What it is, in a word of the writer's choice: Score-P has "machine", "node", "ROCm Device".
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
    /// For an accelerator: the process that uses it.
    pub creating_location_group: Option<LocationGroupRef>,
    pub properties: Vec<Property>,
}

/// A stream of events.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Location {
    pub name: String,
    pub kind: LocationType,
    /// Number of events. Where the archive that writes these definitions wrote the location, what it wrote is counted
    /// and goes into the trace instead of this.
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

/// The value of a property. OTF2's narrower numbers are widened; references to definitions are passed over.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum PropertyValue {
    String(String),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// A function, a kernel, a loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Region {
    /// Demangled, for people.
    pub name: String,
    /// As the linker knows it.
    pub canonical_name: String,
    pub description: String,
    pub role: RegionRole,
    pub paradigm: ParadigmType,
    /// `OTF2_RegionFlag`: 1 for dynamic, 2 for a phase.
    pub flags: u32,
    pub source_file: Option<String>,
    /// Zero for unknown.
    pub begin_line: u32,
    /// Zero for unknown.
    pub end_line: u32,
}

/// One quantity. Its values times `base` to the power of `exponent` are in `unit`.
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
    /// At most 255.
    pub members: Vec<MetricMemberRef>,
    pub occurrence: MetricOccurrence,
    pub recorder_kind: RecorderKind,
    /// Locations that record it, where the writer says so.
    pub recorders: Vec<LocationRef>,
}

/// A metric class recorded at one location on behalf of something else.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MetricInstance {
    pub class: MetricClassRef,
    pub recorder: LocationRef,
    pub scope: MetricScope,
    /// The number of the location, location group, system tree node or group that the values are about.
    pub scope_number: u64,
}

/// A list of locations, regions, metrics or ranks, as `kind` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Group {
    pub name: String,
    pub kind: GroupType,
    pub paradigm: ParadigmType,
    /// `OTF2_GroupFlag`: 1 if members are given as for the whole communication, not as ranks.
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

/// A communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Comm {
    pub name: String,
    pub group: GroupRef,
    pub parent: Option<CommRef>,
    /// `OTF2_CommFlag`.
    pub flags: u32,
}

/// A metric as an event names it: a class, directly or through an instance.
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
