//! Score-P 8.4's plugin interfaces as Rust types. The interface for substrate plugins is version 3, with one callback table and
//! one event array. The interface for metric plugins is in [`metric`]. [`guarantees`] lists Score-P's promises to plugins.
//!
//! Names follow Score-P's, in Rust's spelling. Sizes, offsets and values are those that `tests/print_abi.c` prints when it is
//! compiled against the real headers on x86-64 (`tests/scorep-8.4-abi.json`). Sizes and offsets are asserted at compile time, so
//! that a wrong type is an error here and not in a user's job. The plugin and the embedded host share these types.
#![forbid(unsafe_code)]

mod c;
pub mod guarantees;
pub mod metric;

use c::{c_enum, c_struct};
use std::ffi::{c_char, c_int, c_void};

/// `struct SCOREP_Location`: opaque, passed on by pointer only.
#[repr(C)]
pub struct Location {
    _opaque: [u8; 0],
}

/// A handle of a definition of any kind.
pub type AnyHandle = u32;

/// The version of Score-P 8.4's interface for substrate plugins.
pub const PLUGIN_VERSION: u32 = 3;

/// The number of events of Score-P 8.4 (`SCOREP_SUBSTRATES_NUM_EVENTS`).
pub const NUM_EVENTS: usize = 83;

/// An entry of the event array. Each event has an argument list of its own, so an entry is cast when it is stored or called.
pub type EventFunction = Option<unsafe extern "C" fn()>;

/// A function of Score-P's interface that neither our plugin nor our host uses.
pub type Unused = Option<unsafe extern "C" fn()>;

/// The functions for ENTER_REGION, EXIT_REGION, ENABLE_RECORDING and DISABLE_RECORDING.
pub type RegionEvent =
    unsafe extern "C" fn(location: *mut Location, timestamp: u64, region: AnyHandle, metrics: *mut u64);

/// The functions for CALLING_CONTEXT_ENTER and CALLING_CONTEXT_EXIT.
pub type CallingContextEvent = unsafe extern "C" fn(
    location: *mut Location,
    timestamp: u64,
    calling_context: AnyHandle,
    previous: AnyHandle,
    unwind_distance: u32,
    metrics: *mut u64,
);

/// The function for SAMPLE, which is called inside a signal handler.
pub type SampleEvent = unsafe extern "C" fn(
    location: *mut Location,
    timestamp: u64,
    calling_context: AnyHandle,
    previous: AnyHandle,
    unwind_distance: u32,
    interrupt_generator: AnyHandle,
    metrics: *mut u64,
);

pub type ProgramBeginEvent = unsafe extern "C" fn(
    location: *mut Location,
    timestamp: u64,
    program_name: AnyHandle,
    number_of_arguments: u32,
    arguments: *const AnyHandle,
    program_region: AnyHandle,
    process_id: u64,
    thread_id: u64,
);

pub type ProgramEndEvent = unsafe extern "C" fn(
    location: *mut Location,
    timestamp: u64,
    exit_status: i64,
    program_region: AnyHandle,
);

/// The functions for THREAD_FORK_JOIN_TASK_BEGIN and THREAD_FORK_JOIN_TASK_END.
pub type TaskRegionEvent = unsafe extern "C" fn(
    location: *mut Location,
    timestamp: u64,
    region: AnyHandle,
    metrics: *mut u64,
    paradigm: c_int,
    thread_team: AnyHandle,
    thread_id: u32,
    generation_number: u32,
    task: AnyHandle,
);

/// The functions for MPI_SEND and MPI_RECV; `rank` is the other side's.
pub type MpiMessageEvent = unsafe extern "C" fn(
    location: *mut Location,
    timestamp: u64,
    rank: c_int,
    communicator: AnyHandle,
    tag: u32,
    bytes: u64,
);

/// The functions for MPI_ISEND and MPI_IRECV.
pub type MpiMessageRequestEvent = unsafe extern "C" fn(
    location: *mut Location,
    timestamp: u64,
    rank: c_int,
    communicator: AnyHandle,
    tag: u32,
    bytes: u64,
    request: u64,
);

/// The functions for MPI_ISEND_COMPLETE, MPI_IRECV_REQUEST, MPI_REQUEST_TESTED, MPI_REQUEST_CANCELLED and
/// MPI_NON_BLOCKING_COLLECTIVE_REQUEST.
pub type MpiRequestEvent = unsafe extern "C" fn(location: *mut Location, timestamp: u64, request: u64);

pub type MpiCollectiveBeginEvent = unsafe extern "C" fn(location: *mut Location, timestamp: u64);

pub type MpiCollectiveEndEvent = unsafe extern "C" fn(
    location: *mut Location,
    timestamp: u64,
    communicator: AnyHandle,
    root: c_int,
    collective_type: c_int,
    bytes_sent: u64,
    bytes_received: u64,
);

pub type MpiCollectiveCompleteEvent = unsafe extern "C" fn(
    location: *mut Location,
    timestamp: u64,
    communicator: AnyHandle,
    root: c_int,
    collective_type: c_int,
    bytes_sent: u64,
    bytes_received: u64,
    request: u64,
);

/// The functions for COMM_CREATE and COMM_DESTROY.
pub type CommEvent = unsafe extern "C" fn(location: *mut Location, timestamp: u64, communicator: AnyHandle);

pub type ThreadForkEvent = unsafe extern "C" fn(
    location: *mut Location,
    timestamp: u64,
    paradigm: c_int,
    threads: u32,
    fork_sequence_count: u32,
);

pub type ThreadJoinEvent = unsafe extern "C" fn(location: *mut Location, timestamp: u64, paradigm: c_int);

c_struct! {
    /// The table that Score-P passes to `set_callbacks`. A later version of Score-P may pass a longer one, an earlier version a
    /// shorter one. A field is valid only if it lies within the size that is passed with the table.
    Callbacks = "SCOREP_SubstratePluginCallbacks", 424 bytes {
        0 get_experiment_dir_name: Unused = None, "SCOREP_GetExperimentDirName";
        8 ipc_get_size: Option<unsafe extern "C" fn() -> c_int> = None, "SCOREP_Ipc_GetSize";
        16 ipc_get_rank: Option<unsafe extern "C" fn() -> c_int> = None, "SCOREP_Ipc_GetRank";
        24 ipc_send: Unused = None, "SCOREP_Ipc_Send";
        32 ipc_recv: Unused = None, "SCOREP_Ipc_Recv";
        40 ipc_barrier: Unused = None, "SCOREP_Ipc_Barrier";
        48 ipc_bcast: Unused = None, "SCOREP_Ipc_Bcast";
        56 ipc_gather: Unused = None, "SCOREP_Ipc_Gather";
        64 ipc_gatherv: Unused = None, "SCOREP_Ipc_Gatherv";
        72 ipc_allgather: Unused = None, "SCOREP_Ipc_Allgather";
        80 ipc_reduce: Unused = None, "SCOREP_Ipc_Reduce";
        88 ipc_allreduce: Unused = None, "SCOREP_Ipc_Allreduce";
        96 ipc_scatter: Unused = None, "SCOREP_Ipc_Scatter";
        104 ipc_scatterv: Unused = None, "SCOREP_Ipc_Scatterv";
        112 location_get_type: Option<unsafe extern "C" fn(location: *const Location) -> c_int> = None, "SCOREP_Location_GetType";
        120 location_get_name: Option<unsafe extern "C" fn(location: *const Location) -> *const c_char> = None, "SCOREP_Location_GetName";
        128 location_get_id: Option<unsafe extern "C" fn(location: *const Location) -> u32> = None, "SCOREP_Location_GetId";
        136 location_get_global_id: Option<unsafe extern "C" fn(location: *const Location) -> u64> = None, "SCOREP_Location_GetGlobalId";
        144 location_set_data: Option<unsafe extern "C" fn(location: *const Location, plugin_id: usize, data: *mut c_void)> = None, "SCOREP_Location_SetData";
        152 location_get_data: Option<unsafe extern "C" fn(location: *const Location, plugin_id: usize) -> *mut c_void> = None, "SCOREP_Location_GetData";
        160 calling_context_handle_get_region: Option<unsafe extern "C" fn(handle: AnyHandle) -> u32> = None, "SCOREP_CallingContextHandle_GetRegion";
        168 calling_context_handle_get_parent: Option<unsafe extern "C" fn(handle: AnyHandle) -> u32> = None, "SCOREP_CallingContextHandle_GetParent";
        176 metric_handle_get_value_type: Unused = None, "SCOREP_MetricHandle_GetValueType";
        184 metric_handle_get_name: Unused = None, "SCOREP_MetricHandle_GetName";
        192 metric_handle_get_profiling_type: Unused = None, "SCOREP_MetricHandle_GetProfilingType";
        200 metric_handle_get_mode: Unused = None, "SCOREP_MetricHandle_GetMode";
        208 metric_handle_get_source_type: Unused = None, "SCOREP_MetricHandle_GetSourceType";
        216 paradigm_handle_get_class: Unused = None, "SCOREP_ParadigmHandle_GetClass";
        224 paradigm_handle_get_name: Unused = None, "SCOREP_ParadigmHandle_GetName";
        232 paradigm_handle_get_type: Unused = None, "SCOREP_ParadigmHandle_GetType";
        240 parameter_handle_get_name: Unused = None, "SCOREP_ParameterHandle_GetName";
        248 parameter_handle_get_type: Unused = None, "SCOREP_ParameterHandle_GetType";
        256 region_handle_get_id: Unused = None, "SCOREP_RegionHandle_GetId";
        264 region_handle_get_name: Option<unsafe extern "C" fn(handle: AnyHandle) -> *const c_char> = None, "SCOREP_RegionHandle_GetName";
        272 region_handle_get_canonical_name: Option<unsafe extern "C" fn(handle: AnyHandle) -> *const c_char> = None, "SCOREP_RegionHandle_GetCanonicalName";
        280 region_handle_get_file_name: Option<unsafe extern "C" fn(handle: AnyHandle) -> *const c_char> = None, "SCOREP_RegionHandle_GetFileName";
        288 region_handle_get_begin_line: Option<unsafe extern "C" fn(handle: AnyHandle) -> u32> = None, "SCOREP_RegionHandle_GetBeginLine";
        296 region_handle_get_end_line: Option<unsafe extern "C" fn(handle: AnyHandle) -> u32> = None, "SCOREP_RegionHandle_GetEndLine";
        304 region_handle_get_type: Option<unsafe extern "C" fn(handle: AnyHandle) -> c_int> = None, "SCOREP_RegionHandle_GetType";
        312 region_handle_get_paradigm_type: Option<unsafe extern "C" fn(handle: AnyHandle) -> c_int> = None, "SCOREP_RegionHandle_GetParadigmType";
        320 sampling_set_handle_get_number_of_metrics: Unused = None, "SCOREP_SamplingSetHandle_GetNumberOfMetrics";
        328 sampling_set_handle_get_metric_handles: Unused = None, "SCOREP_SamplingSetHandle_GetMetricHandles";
        336 sampling_set_handle_get_metric_occurrence: Unused = None, "SCOREP_SamplingSetHandle_GetMetricOccurrence";
        344 sampling_set_handle_is_scoped: Unused = None, "SCOREP_SamplingSetHandle_IsScoped";
        352 sampling_set_handle_get_scope: Unused = None, "SCOREP_SamplingSetHandle_GetScope";
        360 sampling_set_handle_get_sampling_set_class: Unused = None, "SCOREP_SamplingSetHandle_GetSamplingSetClass";
        368 source_file_handle_get_name: Unused = None, "SCOREP_SourceFileHandle_GetName";
        376 string_handle_get: Option<unsafe extern "C" fn(handle: AnyHandle) -> *const c_char> = None, "SCOREP_StringHandle_Get";
        384 metric_write_strictly_synchronous_metrics: Unused = None, "SCOREP_Metric_WriteStrictlySynchronousMetrics";
        392 metric_write_synchronous_metrics: Unused = None, "SCOREP_Metric_WriteSynchronousMetrics";
        400 metric_write_asynchronous_metrics: Unused = None, "SCOREP_Metric_WriteAsynchronousMetrics";
        408 config_manifest_section_header: Unused = None, "SCOREP_ConfigManifestSectionHeader";
        416 config_manifest_section_entry: Unused = None, "SCOREP_ConfigManifestSectionEntry";
    }
}

c_struct! {
    /// The structure that `SCOREP_SubstratePlugin_<name>_get_info` returns by value.
    SubstratePluginInfo = "SCOREP_SubstratePluginInfo", 936 bytes {
        0 plugin_version: u32 = PLUGIN_VERSION, "plugin_version";
        8 init: Option<unsafe extern "C" fn() -> c_int> = None, "init";
        16 assign_id: Option<unsafe extern "C" fn(plugin_id: usize)> = None, "assign_id";
        24 init_mpp: Option<unsafe extern "C" fn()> = None, "init_mpp";
        32 finalize: Option<unsafe extern "C" fn()> = None, "finalize";
        40 create_location: Option<unsafe extern "C" fn(location: *const Location, parent: *const Location)> = None, "create_location";
        48 activate_cpu_location: Option< unsafe extern "C" fn(location: *const Location, parent: *const Location, fork_sequence_count: u32), > = None, "activate_cpu_location";
        56 deactivate_cpu_location: Option<unsafe extern "C" fn(location: *const Location, parent: *const Location)> = None, "deactivate_cpu_location";
        64 delete_location: Option<unsafe extern "C" fn(location: *const Location)> = None, "delete_location";
        72 pre_unify: Unused = None, "pre_unify";
        80 write_data: Unused = None, "write_data";
        88 core_task_create: Unused = None, "core_task_create";
        96 core_task_complete: Unused = None, "core_task_complete";
        104 new_definition_handle: Option<unsafe extern "C" fn(handle: AnyHandle, handle_type: c_int)> = None, "new_definition_handle";
        112 get_event_functions: Option<unsafe extern "C" fn(mode: c_int, functions: *mut *const EventFunction) -> u32> = None, "get_event_functions";
        120 set_callbacks: Option<unsafe extern "C" fn(callbacks: *const Callbacks, size: usize)> = None, "set_callbacks";
        128 get_requirement: Option<unsafe extern "C" fn(flag: c_int) -> bool> = None, "get_requirement";
        136 dump_manifest: Unused = None, "dump_manifest";
        144 undeclared: [Unused; 99] = [None; 99], "undeclared";
    }
}

/// The entry point of a plugin, `SCOREP_SubstratePlugin_<name>_get_info`.
pub type GetInfo = unsafe extern "C" fn() -> SubstratePluginInfo;

c_enum! {
    /// Indices into the event array.
    event: usize = "SCOREP_Substrates_EventType", "SCOREP_EVENT_" {
        ENABLE_RECORDING = 0,
        DISABLE_RECORDING = 1,
        ENTER_REGION = 4,
        EXIT_REGION = 5,
        SAMPLE = 6,
        CALLING_CONTEXT_ENTER = 7,
        CALLING_CONTEXT_EXIT = 8,
        MPI_SEND = 11,
        MPI_RECV = 12,
        MPI_COLLECTIVE_BEGIN = 13,
        MPI_COLLECTIVE_END = 14,
        MPI_ISEND_COMPLETE = 15,
        MPI_IRECV_REQUEST = 16,
        MPI_REQUEST_TESTED = 17,
        MPI_REQUEST_CANCELLED = 18,
        MPI_ISEND = 19,
        MPI_IRECV = 20,
        THREAD_FORK_JOIN_FORK = 47,
        THREAD_FORK_JOIN_JOIN = 48,
        THREAD_FORK_JOIN_TASK_BEGIN = 53,
        THREAD_FORK_JOIN_TASK_END = 54,
        PROGRAM_BEGIN = 63,
        PROGRAM_END = 64,
        MPI_NON_BLOCKING_COLLECTIVE_REQUEST = 79,
        MPI_NON_BLOCKING_COLLECTIVE_COMPLETE = 80,
        COMM_CREATE = 81,
        COMM_DESTROY = 82,
    }
}

/// The data that Score-P stores with the definition of an MPI communicator: `scorep_mpi_comm_definition_payload` of Score-P 8,
/// which is not part of the plugin interface. `SCOREP_InterimCommunicatorHandle_GetPayload` returns its address.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MpiCommunicator {
    /// The number of processes; in an inter-communicator, of those on this side.
    pub size: u32,
    /// This process's rank in the communicator.
    pub rank: u32,
    /// In an inter-communicator, the number of processes on the other side, with a flag. Otherwise 0.
    pub remote_size: u32,
    /// The rank in MPI_COMM_WORLD of the communicator's rank 0.
    pub root: u32,
    /// Together with `root`, identifies the communicator: it is the same in all of its processes.
    pub id: u32,
}

/// Type of the function `SCOREP_InterimCommunicatorHandle_GetPayload`.
pub type GetPayload = unsafe extern "C" fn(handle: AnyHandle) -> *const MpiCommunicator;

c_enum! {
    /// The kind of a location: a CPU thread, a GPU stream, or metrics.
    location_type: i32 = "SCOREP_LocationType", "SCOREP_LOCATION_TYPE_" {
        CPU_THREAD = 0,
        GPU = 1,
        METRIC = 2,
        INVALID ("SCOREP_INVALID_LOCATION_TYPE") = 4,
    }
}

c_enum! {
    /// The kind of definition that a handle is for.
    handle_type: i32 = "SCOREP_HandleType", "SCOREP_HANDLE_TYPE_" {
        REGION = 11,
    }
}

c_enum! {
    /// The kind of code that a region stands for.
    region_type: i32 = "SCOREP_RegionType", "SCOREP_REGION_" {
        UNKNOWN = 0,
        FUNCTION = 1,
        LOOP = 2,
        USER = 3,
        CODE = 4,
        PHASE = 5,
        DYNAMIC = 6,
        DYNAMIC_PHASE = 7,
        DYNAMIC_LOOP = 8,
        DYNAMIC_FUNCTION = 9,
        DYNAMIC_LOOP_PHASE = 10,
        COLL_ONE2ALL = 11,
        COLL_ALL2ONE = 12,
        COLL_ALL2ALL = 13,
        COLL_OTHER = 14,
        POINT2POINT = 15,
        PARALLEL = 16,
        SECTIONS = 17,
        SECTION = 18,
        WORKSHARE = 19,
        SINGLE = 20,
        MASTER = 21,
        CRITICAL = 22,
        ATOMIC = 23,
        BARRIER = 24,
        IMPLICIT_BARRIER = 25,
        FLUSH = 26,
        CRITICAL_SBLOCK = 27,
        SINGLE_SBLOCK = 28,
        WRAPPER = 29,
        TASK = 30,
        TASK_UNTIED = 31,
        TASK_WAIT = 32,
        TASK_CREATE = 33,
        ORDERED = 34,
        ORDERED_SBLOCK = 35,
        ARTIFICIAL = 36,
        RMA = 37,
        THREAD_CREATE = 38,
        THREAD_WAIT = 39,
        ALLOCATE = 40,
        DEALLOCATE = 41,
        REALLOCATE = 42,
        FILE_IO = 43,
        FILE_IO_METADATA = 44,
        KERNEL_LAUNCH = 45,
        KERNEL = 46,
        INVALID ("SCOREP_INVALID_REGION_TYPE") = 47,
    }
}

c_enum! {
    /// The programming model that a region belongs to.
    paradigm: i32 = "SCOREP_ParadigmType", "SCOREP_PARADIGM_" {
        MEASUREMENT = 0,
        USER = 1,
        COMPILER = 2,
        SAMPLING = 3,
        MEMORY = 4,
        LIBWRAP = 5,
        MPI = 6,
        SHMEM = 7,
        OPENMP = 8,
        PTHREAD = 9,
        ORPHAN_THREAD = 10,
        CUDA = 11,
        OPENCL = 12,
        OPENACC = 13,
        IO = 14,
        KOKKOS = 15,
        HIP = 16,
        INVALID ("SCOREP_INVALID_PARADIGM_TYPE") = 17,
    }
}

c_enum! {
    /// The kind of a collective operation.
    collective: i32 = "SCOREP_CollectiveType", "SCOREP_COLLECTIVE_" {
        BARRIER = 0,
        BROADCAST = 1,
        GATHER = 2,
        GATHERV = 3,
        SCATTER = 4,
        SCATTERV = 5,
        ALLGATHER = 6,
        ALLGATHERV = 7,
        ALLTOALL = 8,
        ALLTOALLV = 9,
        ALLTOALLW = 10,
        ALLREDUCE = 11,
        REDUCE = 12,
        REDUCE_SCATTER = 13,
        REDUCE_SCATTER_BLOCK = 14,
        SCAN = 15,
        EXSCAN = 16,
        CREATE_HANDLE = 17,
        DESTROY_HANDLE = 18,
        ALLOCATE = 19,
        DEALLOCATE = 20,
        CREATE_HANDLE_AND_ALLOCATE = 21,
        DESTROY_HANDLE_AND_DEALLOCATE = 22,
    }
}

/// Values in place of the rank of a collective operation's root (`SCOREP_INVALID_ROOT_RANK`, `SCOREP_MPI_ROOT`,
/// `SCOREP_MPI_PROC_NULL`).
pub mod root {
    /// The operation has no root.
    pub const NONE: i32 = -1;
    /// In an inter-communicator, the root is this process.
    pub const THIS_PROCESS: i32 = -2;
    /// In an inter-communicator, the root is another process in the group of this process.
    pub const THIS_GROUP: i32 = -3;
}

c_enum! {
    /// Whether recording is on or off.
    mode: i32 = "SCOREP_Substrates_Mode", "SCOREP_SUBSTRATES_" {
        RECORDING_ENABLED = 0,
        RECORDING_DISABLED = 1,
    }
}
