//! OTF2's enumerations, with OTF2's names.
//!
//! A file from a newer library may contain values that are not known here. They are kept as `Unrecognized`, so that reading does
//! not fail and writing writes the same value.

/// An enumeration over one of OTF2's 8-bit types. The first variant is the default.
macro_rules! otf2_enum {
    ($(#[$meta:meta])* $name:ident { $first:ident = $first_raw:literal, $($variant:ident = $raw:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)]
        pub enum $name {
            #[default]
            $first,
            $($variant,)*
            /// A value that this version does not know.
            Unrecognized(u8),
        }

        impl $name {
            /// All values that have a name.
            pub const ALL: &'static [$name] = &[$name::$first, $($name::$variant),*];

            /// Returns the value that has this number in OTF2.
            pub fn from_raw(raw: u8) -> $name {
                match raw {
                    $first_raw => $name::$first,
                    $($raw => $name::$variant,)*
                    other => $name::Unrecognized(other),
                }
            }

            /// Returns the number in OTF2.
            pub fn to_raw(self) -> u8 {
                match self {
                    $name::$first => $first_raw,
                    $($name::$variant => $raw,)*
                    $name::Unrecognized(raw) => raw,
                }
            }
        }
    };
}

otf2_enum! {
    /// The kind of a node of the system tree (`OTF2_SystemTreeDomain`).
    SystemTreeDomain {
        Machine = 0, SharedMemory = 1, Numa = 2, Socket = 3, Cache = 4, Core = 5, Pu = 6, AcceleratorDevice = 7,
        NetworkingDevice = 8,
    }
}

otf2_enum! {
    /// The kind of a group of locations (`OTF2_LocationGroupType`).
    LocationGroupType { Unknown = 0, Process = 1, Accelerator = 2 }
}

otf2_enum! {
    /// The kind of a location (`OTF2_LocationType`).
    LocationType { Unknown = 0, CpuThread = 1, AcceleratorStream = 2, Metric = 3 }
}

otf2_enum! {
    /// The purpose of a region (`OTF2_RegionRole`).
    RegionRole {
        Unknown = 0, Function = 1, Wrapper = 2, Loop = 3, Code = 4, Parallel = 5, Sections = 6, Section = 7,
        Workshare = 8, Single = 9, SingleSblock = 10, Master = 11, Critical = 12, CriticalSblock = 13, Atomic = 14,
        Barrier = 15, ImplicitBarrier = 16, Flush = 17, Ordered = 18, OrderedSblock = 19, Task = 20, TaskCreate = 21,
        TaskWait = 22, CollOne2All = 23, CollAll2One = 24, CollAll2All = 25, CollOther = 26, FileIo = 27,
        Point2Point = 28, Rma = 29, DataTransfer = 30, Artificial = 31, ThreadCreate = 32, ThreadWait = 33,
        TaskUntied = 34, Allocate = 35, Deallocate = 36, Reallocate = 37, FileIoMetadata = 38,
    }
}

otf2_enum! {
    /// A programming model (`OTF2_Paradigm`).
    ParadigmType {
        Unknown = 0, User = 1, Compiler = 2, OpenMp = 3, Mpi = 4, Cuda = 5, MeasurementSystem = 6, Pthread = 7,
        Hmpp = 8, OmpSs = 9, Hardware = 10, Gaspi = 11, Upc = 12, Shmem = 13, WinThread = 14, QtThread = 15,
        AceThread = 16, TbbThread = 17, OpenAcc = 18, OpenCl = 19, Mtapi = 20, Sampling = 21, None = 22, Hip = 23,
        Kokkos = 24,
    }
}

otf2_enum! {
    /// The kind of parallelism of a paradigm (`OTF2_ParadigmClass`).
    ParadigmClass { Process = 0, ThreadForkJoin = 1, ThreadCreateWait = 2, Accelerator = 3 }
}

otf2_enum! {
    /// The source of a metric (`OTF2_MetricType`).
    MetricType { Other = 0, Papi = 1, Rusage = 2, User = 3 }
}

otf2_enum! {
    /// The meaning of a metric's values and the time for which they are valid (`OTF2_MetricMode`): accumulated since the start,
    /// absolute, or relative to the previous value; valid since the start, at that point, since the last point, or until the
    /// next.
    MetricMode {
        AccumulatedStart = 0, AccumulatedPoint = 16, AccumulatedLast = 32, AccumulatedNext = 48, AbsolutePoint = 17,
        AbsoluteLast = 33, AbsoluteNext = 49, RelativePoint = 18, RelativeLast = 34, RelativeNext = 50,
    }
}

otf2_enum! {
    /// The type of a metric's values: the three values of `OTF2_Type` that are used for metrics.
    MetricValueType { U64 = 4, I64 = 8, F64 = 10 }
}

otf2_enum! {
    /// The base of the exponent of a metric's values (`OTF2_Base`).
    MetricBase { Binary = 0, Decimal = 1 }
}

otf2_enum! {
    /// The relation of a metric's samples to enters and leaves (`OTF2_MetricOccurrence`).
    MetricOccurrence { SynchronousStrict = 0, Synchronous = 1, Asynchronous = 2 }
}

otf2_enum! {
    /// The kind of location that records a metric (`OTF2_RecorderKind`).
    RecorderKind { Unknown = 0, Abstract = 1, Cpu = 2, Gpu = 3 }
}

otf2_enum! {
    /// The kind of system part to which a metric instance applies (`OTF2_MetricScope`).
    MetricScope { Location = 0, LocationGroup = 1, SystemTreeNode = 2, Group = 3 }
}

otf2_enum! {
    /// The kind of members of a group (`OTF2_GroupType`).
    GroupType { Unknown = 0, Locations = 1, Regions = 2, Metric = 3, CommLocations = 4, CommGroup = 5, CommSelf = 6 }
}

otf2_enum! {
    /// The kind of a collective operation (`OTF2_CollectiveOp`).
    CollectiveOp {
        Barrier = 0, Bcast = 1, Gather = 2, Gatherv = 3, Scatter = 4, Scatterv = 5, Allgather = 6, Allgatherv = 7,
        Alltoall = 8, Alltoallv = 9, Alltoallw = 10, Allreduce = 11, Reduce = 12, ReduceScatter = 13, Scan = 14,
        Exscan = 15, ReduceScatterBlock = 16, CreateHandle = 17, DestroyHandle = 18, Allocate = 19, Deallocate = 20,
        CreateHandleAndAllocate = 21, DestroyHandleAndDeallocate = 22,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use otf2_sys as sys;

    macro_rules! agrees {
        ($($word:expr => $constant:ident),* $(,)?) => {
            $(assert_eq!(u32::from($word.to_raw()), sys::$constant, stringify!($constant));)*
        };
    }

    #[test]
    fn the_numbers_are_those_of_the_header() {
        agrees! {
            SystemTreeDomain::Machine => OTF2_SYSTEM_TREE_DOMAIN_MACHINE,
            SystemTreeDomain::NetworkingDevice => OTF2_SYSTEM_TREE_DOMAIN_NETWORKING_DEVICE,
            LocationGroupType::Accelerator => OTF2_LOCATION_GROUP_TYPE_ACCELERATOR,
            LocationType::AcceleratorStream => OTF2_LOCATION_TYPE_ACCELERATOR_STREAM,
            LocationType::Metric => OTF2_LOCATION_TYPE_METRIC,
            RegionRole::Barrier => OTF2_REGION_ROLE_BARRIER,
            RegionRole::FileIoMetadata => OTF2_REGION_ROLE_FILE_IO_METADATA,
            ParadigmType::Mpi => OTF2_PARADIGM_MPI,
            ParadigmType::Sampling => OTF2_PARADIGM_SAMPLING,
            ParadigmType::Kokkos => OTF2_PARADIGM_KOKKOS,
            ParadigmClass::Accelerator => OTF2_PARADIGM_CLASS_ACCELERATOR,
            MetricType::User => OTF2_METRIC_TYPE_USER,
            MetricMode::AccumulatedStart => OTF2_METRIC_ACCUMULATED_START,
            MetricMode::AccumulatedPoint => OTF2_METRIC_ACCUMULATED_POINT,
            MetricMode::AccumulatedLast => OTF2_METRIC_ACCUMULATED_LAST,
            MetricMode::AccumulatedNext => OTF2_METRIC_ACCUMULATED_NEXT,
            MetricMode::AbsolutePoint => OTF2_METRIC_ABSOLUTE_POINT,
            MetricMode::AbsoluteLast => OTF2_METRIC_ABSOLUTE_LAST,
            MetricMode::AbsoluteNext => OTF2_METRIC_ABSOLUTE_NEXT,
            MetricMode::RelativePoint => OTF2_METRIC_RELATIVE_POINT,
            MetricMode::RelativeLast => OTF2_METRIC_RELATIVE_LAST,
            MetricMode::RelativeNext => OTF2_METRIC_RELATIVE_NEXT,
            MetricValueType::U64 => OTF2_TYPE_UINT64,
            MetricValueType::I64 => OTF2_TYPE_INT64,
            MetricValueType::F64 => OTF2_TYPE_DOUBLE,
            MetricBase::Decimal => OTF2_BASE_DECIMAL,
            MetricOccurrence::Asynchronous => OTF2_METRIC_ASYNCHRONOUS,
            RecorderKind::Gpu => OTF2_RECORDER_KIND_GPU,
            MetricScope::Group => OTF2_SCOPE_GROUP,
            GroupType::CommSelf => OTF2_GROUP_TYPE_COMM_SELF,
            CollectiveOp::Alltoallw => OTF2_COLLECTIVE_OP_ALLTOALLW,
            CollectiveOp::ReduceScatter => OTF2_COLLECTIVE_OP_REDUCE_SCATTER,
            CollectiveOp::ReduceScatterBlock => OTF2_COLLECTIVE_OP_REDUCE_SCATTER_BLOCK,
            CollectiveOp::DestroyHandleAndDeallocate => OTF2_COLLECTIVE_OP_DESTROY_HANDLE_AND_DEALLOCATE,
        }
    }

    #[test]
    fn every_raw_value_is_kept() {
        for raw in 0..=u8::MAX {
            assert_eq!(RegionRole::from_raw(raw).to_raw(), raw);
            assert_eq!(MetricMode::from_raw(raw).to_raw(), raw);
            assert_eq!(MetricValueType::from_raw(raw).to_raw(), raw);
        }
        for &role in RegionRole::ALL {
            assert_eq!(RegionRole::from_raw(role.to_raw()), role);
        }
    }
}
