//! Score-P 8.4's plugin interfaces as Rust types. Substrate plugins: version 3, one callback table, one event array. Metric
//! plugins: [`metric`].
//!
//! Names follow Score-P's, in Rust's spelling. Layouts (sizes, offsets) are what a program compiled against the
//! real headers printed for x86-64; they are asserted below, at compile time, so that a change of a type here is an
//! error here and not in somebody's job. The types are shared by the plugin and by the embedded host, and hold no code.
#![forbid(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

mod layout;
pub mod metric;

/// Score-P's `struct SCOREP_Location`: opaque, handed through by pointer only.
#[repr(C)]
pub struct Location {
    _opaque: [u8; 0],
}

/// Any of Score-P's definition handles. 32 bits, valid in its own process only.
pub type AnyHandle = u32;

/// Substrate plugin version of Score-P 8.4.
pub const PLUGIN_VERSION: u32 = 3;

/// Number of events of Score-P 8.4 (`SCOREP_SUBSTRATES_NUM_EVENTS`).
pub const NUM_EVENTS: usize = 83;

/// An entry of the event array. Each event has its own argument list, so an entry is cast when it is stored or called.
pub type EventFunction = Option<unsafe extern "C" fn()>;

/// ENTER_REGION and EXIT_REGION (also ENABLE_RECORDING and DISABLE_RECORDING).
pub type RegionEvent =
    unsafe extern "C" fn(location: *mut Location, timestamp: u64, region: AnyHandle, metrics: *mut u64);

/// ENTER_REWIND_REGION.
pub type EnterRewindEvent = unsafe extern "C" fn(location: *mut Location, timestamp: u64, region: AnyHandle);

/// EXIT_REWIND_REGION.
pub type ExitRewindEvent =
    unsafe extern "C" fn(location: *mut Location, timestamp: u64, region: AnyHandle, do_rewind: bool);

/// CALLING_CONTEXT_ENTER and CALLING_CONTEXT_EXIT.
pub type CallingContextEvent = unsafe extern "C" fn(
    location: *mut Location,
    timestamp: u64,
    calling_context: AnyHandle,
    previous: AnyHandle,
    unwind_distance: u32,
    metrics: *mut u64,
);

/// SAMPLE. Arrives inside a signal handler.
pub type SampleEvent = unsafe extern "C" fn(
    location: *mut Location,
    timestamp: u64,
    calling_context: AnyHandle,
    previous: AnyHandle,
    unwind_distance: u32,
    interrupt_generator: AnyHandle,
    metrics: *mut u64,
);

/// PROGRAM_BEGIN.
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

/// PROGRAM_END.
pub type ProgramEndEvent = unsafe extern "C" fn(
    location: *mut Location,
    timestamp: u64,
    exit_status: i64,
    program_region: AnyHandle,
);

/// THREAD_FORK_JOIN_TASK_SWITCH.
pub type TaskSwitchEvent = unsafe extern "C" fn(
    location: *mut Location,
    timestamp: u64,
    metrics: *mut u64,
    paradigm: c_int,
    thread_team: AnyHandle,
    thread_id: u32,
    generation_number: u32,
    task: AnyHandle,
);

/// THREAD_FORK_JOIN_TASK_BEGIN and THREAD_FORK_JOIN_TASK_END.
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

/// Called back by the `metric_write_*` functions.
pub type WriteMetricsCallback = unsafe extern "C" fn(
    location: *mut Location,
    timestamp: u64,
    sampling_set: AnyHandle,
    values: *const u64,
);

/// What Score-P hands to `set_callbacks`. A later Score-P may hand over more, an older one less: a field counts only
/// if it lies inside the size given with it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Callbacks {
    pub get_experiment_dir_name: Option<unsafe extern "C" fn() -> *const c_char>,
    pub ipc_get_size: Option<unsafe extern "C" fn() -> c_int>,
    pub ipc_get_rank: Option<unsafe extern "C" fn() -> c_int>,
    pub ipc_send:
        Option<unsafe extern "C" fn(buf: *const c_void, count: c_int, datatype: c_int, dest: c_int) -> c_int>,
    pub ipc_recv:
        Option<unsafe extern "C" fn(buf: *mut c_void, count: c_int, datatype: c_int, source: c_int) -> c_int>,
    pub ipc_barrier: Option<unsafe extern "C" fn() -> c_int>,
    pub ipc_bcast:
        Option<unsafe extern "C" fn(buf: *mut c_void, count: c_int, datatype: c_int, root: c_int) -> c_int>,
    pub ipc_gather: Option<
        unsafe extern "C" fn(
            sendbuf: *const c_void,
            recvbuf: *mut c_void,
            count: c_int,
            datatype: c_int,
            root: c_int,
        ) -> c_int,
    >,
    pub ipc_gatherv: Option<
        unsafe extern "C" fn(
            sendbuf: *const c_void,
            sendcount: c_int,
            recvbuf: *mut c_void,
            recvcnts: *const c_int,
            datatype: c_int,
            root: c_int,
        ) -> c_int,
    >,
    pub ipc_allgather: Option<
        unsafe extern "C" fn(
            sendbuf: *const c_void,
            recvbuf: *mut c_void,
            count: c_int,
            datatype: c_int,
        ) -> c_int,
    >,
    pub ipc_reduce: Option<
        unsafe extern "C" fn(
            sendbuf: *const c_void,
            recvbuf: *mut c_void,
            count: c_int,
            datatype: c_int,
            operation: c_int,
            root: c_int,
        ) -> c_int,
    >,
    pub ipc_allreduce: Option<
        unsafe extern "C" fn(
            sendbuf: *const c_void,
            recvbuf: *mut c_void,
            count: c_int,
            datatype: c_int,
            operation: c_int,
        ) -> c_int,
    >,
    pub ipc_scatter: Option<
        unsafe extern "C" fn(
            sendbuf: *const c_void,
            recvbuf: *mut c_void,
            count: c_int,
            datatype: c_int,
            root: c_int,
        ) -> c_int,
    >,
    pub ipc_scatterv: Option<
        unsafe extern "C" fn(
            sendbuf: *const c_void,
            sendcounts: *const c_int,
            recvbuf: *mut c_void,
            recvcount: c_int,
            datatype: c_int,
            root: c_int,
        ) -> c_int,
    >,
    pub location_get_type: Option<unsafe extern "C" fn(location: *const Location) -> c_int>,
    pub location_get_name: Option<unsafe extern "C" fn(location: *const Location) -> *const c_char>,
    pub location_get_id: Option<unsafe extern "C" fn(location: *const Location) -> u32>,
    pub location_get_global_id: Option<unsafe extern "C" fn(location: *const Location) -> u64>,
    pub location_set_data:
        Option<unsafe extern "C" fn(location: *const Location, plugin_id: usize, data: *mut c_void)>,
    pub location_get_data:
        Option<unsafe extern "C" fn(location: *const Location, plugin_id: usize) -> *mut c_void>,
    pub calling_context_handle_get_region: Option<unsafe extern "C" fn(handle: AnyHandle) -> u32>,
    pub calling_context_handle_get_parent: Option<unsafe extern "C" fn(handle: AnyHandle) -> u32>,
    pub metric_handle_get_value_type: Option<unsafe extern "C" fn(handle: AnyHandle) -> c_int>,
    pub metric_handle_get_name: Option<unsafe extern "C" fn(handle: AnyHandle) -> *const c_char>,
    pub metric_handle_get_profiling_type: Option<unsafe extern "C" fn(handle: AnyHandle) -> c_int>,
    pub metric_handle_get_mode: Option<unsafe extern "C" fn(handle: AnyHandle) -> c_int>,
    pub metric_handle_get_source_type: Option<unsafe extern "C" fn(handle: AnyHandle) -> c_int>,
    pub paradigm_handle_get_class: Option<unsafe extern "C" fn(handle: AnyHandle) -> c_int>,
    pub paradigm_handle_get_name: Option<unsafe extern "C" fn(handle: AnyHandle) -> *const c_char>,
    pub paradigm_handle_get_type: Option<unsafe extern "C" fn(handle: AnyHandle) -> c_int>,
    pub parameter_handle_get_name: Option<unsafe extern "C" fn(handle: AnyHandle) -> *const c_char>,
    pub parameter_handle_get_type: Option<unsafe extern "C" fn(handle: AnyHandle) -> c_int>,
    pub region_handle_get_id: Option<unsafe extern "C" fn(handle: AnyHandle) -> u32>,
    pub region_handle_get_name: Option<unsafe extern "C" fn(handle: AnyHandle) -> *const c_char>,
    pub region_handle_get_canonical_name: Option<unsafe extern "C" fn(handle: AnyHandle) -> *const c_char>,
    pub region_handle_get_file_name: Option<unsafe extern "C" fn(handle: AnyHandle) -> *const c_char>,
    pub region_handle_get_begin_line: Option<unsafe extern "C" fn(handle: AnyHandle) -> u32>,
    pub region_handle_get_end_line: Option<unsafe extern "C" fn(handle: AnyHandle) -> u32>,
    pub region_handle_get_type: Option<unsafe extern "C" fn(handle: AnyHandle) -> c_int>,
    pub region_handle_get_paradigm_type: Option<unsafe extern "C" fn(handle: AnyHandle) -> c_int>,
    pub sampling_set_handle_get_number_of_metrics: Option<unsafe extern "C" fn(handle: AnyHandle) -> u8>,
    pub sampling_set_handle_get_metric_handles:
        Option<unsafe extern "C" fn(handle: AnyHandle) -> *const AnyHandle>,
    pub sampling_set_handle_get_metric_occurrence: Option<unsafe extern "C" fn(handle: AnyHandle) -> c_int>,
    pub sampling_set_handle_is_scoped: Option<unsafe extern "C" fn(handle: AnyHandle) -> bool>,
    pub sampling_set_handle_get_scope: Option<unsafe extern "C" fn(handle: AnyHandle) -> c_int>,
    pub sampling_set_handle_get_sampling_set_class: Option<unsafe extern "C" fn(handle: AnyHandle) -> c_int>,
    pub source_file_handle_get_name: Option<unsafe extern "C" fn(handle: AnyHandle) -> *const c_char>,
    pub string_handle_get: Option<unsafe extern "C" fn(handle: AnyHandle) -> *const c_char>,
    pub metric_write_strictly_synchronous_metrics: Option<
        unsafe extern "C" fn(location: *mut Location, timestamp: u64, cb: Option<WriteMetricsCallback>),
    >,
    pub metric_write_synchronous_metrics: Option<
        unsafe extern "C" fn(location: *mut Location, timestamp: u64, cb: Option<WriteMetricsCallback>),
    >,
    pub metric_write_asynchronous_metrics:
        Option<unsafe extern "C" fn(location: *mut Location, cb: Option<WriteMetricsCallback>)>,
    pub config_manifest_section_header:
        Option<unsafe extern "C" fn(out: *mut c_void, section: *const c_char)>,
    pub config_manifest_section_entry:
        Option<unsafe extern "C" fn(out: *mut c_void, file_name: *const c_char, format: *const c_char, ...)>,
}

impl Callbacks {
    /// A table without a single function.
    pub const EMPTY: Callbacks = Callbacks {
        get_experiment_dir_name: None,
        ipc_get_size: None,
        ipc_get_rank: None,
        ipc_send: None,
        ipc_recv: None,
        ipc_barrier: None,
        ipc_bcast: None,
        ipc_gather: None,
        ipc_gatherv: None,
        ipc_allgather: None,
        ipc_reduce: None,
        ipc_allreduce: None,
        ipc_scatter: None,
        ipc_scatterv: None,
        location_get_type: None,
        location_get_name: None,
        location_get_id: None,
        location_get_global_id: None,
        location_set_data: None,
        location_get_data: None,
        calling_context_handle_get_region: None,
        calling_context_handle_get_parent: None,
        metric_handle_get_value_type: None,
        metric_handle_get_name: None,
        metric_handle_get_profiling_type: None,
        metric_handle_get_mode: None,
        metric_handle_get_source_type: None,
        paradigm_handle_get_class: None,
        paradigm_handle_get_name: None,
        paradigm_handle_get_type: None,
        parameter_handle_get_name: None,
        parameter_handle_get_type: None,
        region_handle_get_id: None,
        region_handle_get_name: None,
        region_handle_get_canonical_name: None,
        region_handle_get_file_name: None,
        region_handle_get_begin_line: None,
        region_handle_get_end_line: None,
        region_handle_get_type: None,
        region_handle_get_paradigm_type: None,
        sampling_set_handle_get_number_of_metrics: None,
        sampling_set_handle_get_metric_handles: None,
        sampling_set_handle_get_metric_occurrence: None,
        sampling_set_handle_is_scoped: None,
        sampling_set_handle_get_scope: None,
        sampling_set_handle_get_sampling_set_class: None,
        source_file_handle_get_name: None,
        string_handle_get: None,
        metric_write_strictly_synchronous_metrics: None,
        metric_write_synchronous_metrics: None,
        metric_write_asynchronous_metrics: None,
        config_manifest_section_header: None,
        config_manifest_section_entry: None,
    };
}

/// What `SCOREP_SubstratePlugin_<name>_get_info` returns, by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SubstratePluginInfo {
    pub plugin_version: u32,
    pub init: Option<unsafe extern "C" fn() -> c_int>,
    pub assign_id: Option<unsafe extern "C" fn(plugin_id: usize)>,
    pub init_mpp: Option<unsafe extern "C" fn()>,
    pub finalize: Option<unsafe extern "C" fn()>,
    pub create_location: Option<unsafe extern "C" fn(location: *const Location, parent: *const Location)>,
    pub activate_cpu_location: Option<
        unsafe extern "C" fn(location: *const Location, parent: *const Location, fork_sequence_count: u32),
    >,
    pub deactivate_cpu_location:
        Option<unsafe extern "C" fn(location: *const Location, parent: *const Location)>,
    pub delete_location: Option<unsafe extern "C" fn(location: *const Location)>,
    pub pre_unify: Option<unsafe extern "C" fn()>,
    pub write_data: Option<unsafe extern "C" fn()>,
    pub core_task_create: Option<unsafe extern "C" fn(location: *const Location, task: u32)>,
    pub core_task_complete: Option<unsafe extern "C" fn(location: *const Location, task: u32)>,
    pub new_definition_handle: Option<unsafe extern "C" fn(handle: AnyHandle, handle_type: c_int)>,
    pub get_event_functions:
        Option<unsafe extern "C" fn(mode: c_int, functions: *mut *const EventFunction) -> u32>,
    pub set_callbacks: Option<unsafe extern "C" fn(callbacks: *const Callbacks, size: usize)>,
    pub get_requirement: Option<unsafe extern "C" fn(flag: c_int) -> bool>,
    pub dump_manifest: Option<unsafe extern "C" fn(manifest: *mut c_void, target_dir: *const c_char)>,
    /// For Score-P's future. Must be all `None`.
    pub undeclared: [Option<unsafe extern "C" fn()>; 99],
}

impl SubstratePluginInfo {
    /// The plugin version and nothing else.
    pub const EMPTY: SubstratePluginInfo = SubstratePluginInfo {
        plugin_version: PLUGIN_VERSION,
        init: None,
        assign_id: None,
        init_mpp: None,
        finalize: None,
        create_location: None,
        activate_cpu_location: None,
        deactivate_cpu_location: None,
        delete_location: None,
        pre_unify: None,
        write_data: None,
        core_task_create: None,
        core_task_complete: None,
        new_definition_handle: None,
        get_event_functions: None,
        set_callbacks: None,
        get_requirement: None,
        dump_manifest: None,
        undeclared: [None; 99],
    };
}

/// The function `SCOREP_SubstratePlugin_<name>_get_info`.
pub type GetInfo = unsafe extern "C" fn() -> SubstratePluginInfo;

/// Indices into the event array. `SCOREP_Substrates_EventType`.
pub mod event {
    pub const ENABLE_RECORDING: usize = 0;
    pub const DISABLE_RECORDING: usize = 1;
    pub const ON_TRACING_BUFFER_FLUSH_BEGIN: usize = 2;
    pub const ON_TRACING_BUFFER_FLUSH_END: usize = 3;
    pub const ENTER_REGION: usize = 4;
    pub const EXIT_REGION: usize = 5;
    pub const SAMPLE: usize = 6;
    pub const CALLING_CONTEXT_ENTER: usize = 7;
    pub const CALLING_CONTEXT_EXIT: usize = 8;
    pub const ENTER_REWIND_REGION: usize = 9;
    pub const EXIT_REWIND_REGION: usize = 10;
    pub const MPI_SEND: usize = 11;
    pub const MPI_RECV: usize = 12;
    pub const MPI_COLLECTIVE_BEGIN: usize = 13;
    pub const MPI_COLLECTIVE_END: usize = 14;
    pub const MPI_ISEND_COMPLETE: usize = 15;
    pub const MPI_IRECV_REQUEST: usize = 16;
    pub const MPI_REQUEST_TESTED: usize = 17;
    pub const MPI_REQUEST_CANCELLED: usize = 18;
    pub const MPI_ISEND: usize = 19;
    pub const MPI_IRECV: usize = 20;
    pub const RMA_WIN_CREATE: usize = 21;
    pub const RMA_WIN_DESTROY: usize = 22;
    pub const RMA_COLLECTIVE_BEGIN: usize = 23;
    pub const RMA_COLLECTIVE_END: usize = 24;
    pub const RMA_TRY_LOCK: usize = 25;
    pub const RMA_ACQUIRE_LOCK: usize = 26;
    pub const RMA_REQUEST_LOCK: usize = 27;
    pub const RMA_RELEASE_LOCK: usize = 28;
    pub const RMA_SYNC: usize = 29;
    pub const RMA_GROUP_SYNC: usize = 30;
    pub const RMA_PUT: usize = 31;
    pub const RMA_GET: usize = 32;
    pub const RMA_ATOMIC: usize = 33;
    pub const RMA_WAIT_CHANGE: usize = 34;
    pub const RMA_OP_COMPLETE_BLOCKING: usize = 35;
    pub const RMA_OP_COMPLETE_NON_BLOCKING: usize = 36;
    pub const RMA_OP_TEST: usize = 37;
    pub const RMA_OP_COMPLETE_REMOTE: usize = 38;
    pub const THREAD_ACQUIRE_LOCK: usize = 39;
    pub const THREAD_RELEASE_LOCK: usize = 40;
    pub const TRIGGER_COUNTER_INT64: usize = 41;
    pub const TRIGGER_COUNTER_UINT64: usize = 42;
    pub const TRIGGER_COUNTER_DOUBLE: usize = 43;
    pub const TRIGGER_PARAMETER_INT64: usize = 44;
    pub const TRIGGER_PARAMETER_UINT64: usize = 45;
    pub const TRIGGER_PARAMETER_STRING: usize = 46;
    pub const THREAD_FORK_JOIN_FORK: usize = 47;
    pub const THREAD_FORK_JOIN_JOIN: usize = 48;
    pub const THREAD_FORK_JOIN_TEAM_BEGIN: usize = 49;
    pub const THREAD_FORK_JOIN_TEAM_END: usize = 50;
    pub const THREAD_FORK_JOIN_TASK_CREATE: usize = 51;
    pub const THREAD_FORK_JOIN_TASK_SWITCH: usize = 52;
    pub const THREAD_FORK_JOIN_TASK_BEGIN: usize = 53;
    pub const THREAD_FORK_JOIN_TASK_END: usize = 54;
    pub const THREAD_CREATE_WAIT_CREATE: usize = 55;
    pub const THREAD_CREATE_WAIT_WAIT: usize = 56;
    pub const THREAD_CREATE_WAIT_BEGIN: usize = 57;
    pub const THREAD_CREATE_WAIT_END: usize = 58;
    pub const TRACK_ALLOC: usize = 59;
    pub const TRACK_REALLOC: usize = 60;
    pub const TRACK_FREE: usize = 61;
    pub const WRITE_POST_MORTEM_METRICS: usize = 62;
    pub const PROGRAM_BEGIN: usize = 63;
    pub const PROGRAM_END: usize = 64;
    pub const IO_CREATE_HANDLE: usize = 65;
    pub const IO_DESTROY_HANDLE: usize = 66;
    pub const IO_DUPLICATE_HANDLE: usize = 67;
    pub const IO_SEEK: usize = 68;
    pub const IO_CHANGE_STATUS_FLAGS: usize = 69;
    pub const IO_DELETE_FILE: usize = 70;
    pub const IO_OPERATION_BEGIN: usize = 71;
    pub const IO_OPERATION_ISSUED: usize = 72;
    pub const IO_OPERATION_TEST: usize = 73;
    pub const IO_OPERATION_COMPLETE: usize = 74;
    pub const IO_OPERATION_CANCELLED: usize = 75;
    pub const IO_ACQUIRE_LOCK: usize = 76;
    pub const IO_TRY_LOCK: usize = 77;
    pub const IO_RELEASE_LOCK: usize = 78;
    pub const MPI_NON_BLOCKING_COLLECTIVE_REQUEST: usize = 79;
    pub const MPI_NON_BLOCKING_COLLECTIVE_COMPLETE: usize = 80;
    pub const COMM_CREATE: usize = 81;
    pub const COMM_DESTROY: usize = 82;
}

/// Kinds of location. `SCOREP_LocationType`.
pub mod location_type {
    pub const CPU_THREAD: i32 = 0;
    pub const GPU: i32 = 1;
    pub const METRIC: i32 = 2;
    pub const INVALID: i32 = 4;
}

/// Kinds of definition handle. `SCOREP_HandleType`.
pub mod handle_type {
    pub const ANY: i32 = 0;
    pub const CALLING_CONTEXT: i32 = 1;
    pub const GROUP: i32 = 2;
    pub const INTERIM_COMMUNICATOR: i32 = 3;
    pub const INTERRUPT_GENERATOR: i32 = 4;
    pub const LOCATION: i32 = 5;
    pub const LOCATION_GROUP: i32 = 6;
    pub const LOCATION_PROPERTY: i32 = 7;
    pub const METRIC: i32 = 8;
    pub const PARADIGM: i32 = 9;
    pub const PARAMETER: i32 = 10;
    pub const REGION: i32 = 11;
    pub const RMA_WINDOW: i32 = 12;
    pub const SAMPLING_SET: i32 = 13;
    pub const SAMPLING_SET_RECORDER: i32 = 14;
    pub const SOURCE_CODE_LOCATION: i32 = 15;
    pub const SOURCE_FILE: i32 = 16;
    pub const STRING: i32 = 17;
    pub const SYSTEM_TREE_NODE: i32 = 18;
    pub const SYSTEM_TREE_NODE_PROPERTY: i32 = 19;
    pub const CARTESIAN_TOPOLOGY: i32 = 20;
    pub const CARTESIAN_COORDS: i32 = 21;
    pub const IO_FILE: i32 = 22;
    pub const IO_FILE_PROPERTY: i32 = 23;
    pub const IO_HANDLE: i32 = 24;
    pub const IO_PARADIGM: i32 = 25;
}

/// What a region is. `SCOREP_RegionType`.
pub mod region_type {
    pub const UNKNOWN: i32 = 0;
    pub const FUNCTION: i32 = 1;
    pub const LOOP: i32 = 2;
    pub const USER: i32 = 3;
    pub const CODE: i32 = 4;
    pub const PHASE: i32 = 5;
    pub const DYNAMIC: i32 = 6;
    pub const DYNAMIC_PHASE: i32 = 7;
    pub const DYNAMIC_LOOP: i32 = 8;
    pub const DYNAMIC_FUNCTION: i32 = 9;
    pub const DYNAMIC_LOOP_PHASE: i32 = 10;
    pub const COLL_ONE2ALL: i32 = 11;
    pub const COLL_ALL2ONE: i32 = 12;
    pub const COLL_ALL2ALL: i32 = 13;
    pub const COLL_OTHER: i32 = 14;
    pub const POINT2POINT: i32 = 15;
    pub const PARALLEL: i32 = 16;
    pub const SECTIONS: i32 = 17;
    pub const SECTION: i32 = 18;
    pub const WORKSHARE: i32 = 19;
    pub const SINGLE: i32 = 20;
    pub const MASTER: i32 = 21;
    pub const CRITICAL: i32 = 22;
    pub const ATOMIC: i32 = 23;
    pub const BARRIER: i32 = 24;
    pub const IMPLICIT_BARRIER: i32 = 25;
    pub const FLUSH: i32 = 26;
    pub const CRITICAL_SBLOCK: i32 = 27;
    pub const SINGLE_SBLOCK: i32 = 28;
    pub const WRAPPER: i32 = 29;
    pub const TASK: i32 = 30;
    pub const TASK_UNTIED: i32 = 31;
    pub const TASK_WAIT: i32 = 32;
    pub const TASK_CREATE: i32 = 33;
    pub const ORDERED: i32 = 34;
    pub const ORDERED_SBLOCK: i32 = 35;
    pub const ARTIFICIAL: i32 = 36;
    pub const RMA: i32 = 37;
    pub const THREAD_CREATE: i32 = 38;
    pub const THREAD_WAIT: i32 = 39;
    pub const ALLOCATE: i32 = 40;
    pub const DEALLOCATE: i32 = 41;
    pub const REALLOCATE: i32 = 42;
    pub const FILE_IO: i32 = 43;
    pub const FILE_IO_METADATA: i32 = 44;
    pub const KERNEL_LAUNCH: i32 = 45;
    pub const KERNEL: i32 = 46;
    pub const INVALID: i32 = 47;
}

/// The programming model a region belongs to. `SCOREP_ParadigmType`.
pub mod paradigm {
    pub const MEASUREMENT: i32 = 0;
    pub const USER: i32 = 1;
    pub const COMPILER: i32 = 2;
    pub const SAMPLING: i32 = 3;
    pub const MEMORY: i32 = 4;
    pub const LIBWRAP: i32 = 5;
    pub const MPI: i32 = 6;
    pub const SHMEM: i32 = 7;
    pub const OPENMP: i32 = 8;
    pub const PTHREAD: i32 = 9;
    pub const ORPHAN_THREAD: i32 = 10;
    pub const CUDA: i32 = 11;
    pub const OPENCL: i32 = 12;
    pub const OPENACC: i32 = 13;
    pub const IO: i32 = 14;
    pub const KOKKOS: i32 = 15;
    pub const HIP: i32 = 16;
    pub const INVALID: i32 = 17;
}

/// Recording on or off. `SCOREP_Substrates_Mode`.
pub mod mode {
    pub const RECORDING_ENABLED: i32 = 0;
    pub const RECORDING_DISABLED: i32 = 1;
}

/// What a substrate may ask of Score-P. `SCOREP_Substrates_RequirementFlag`.
pub mod requirement {
    pub const CREATE_EXPERIMENT_DIRECTORY: i32 = 0;
    pub const PREVENT_ASYNC_METRICS: i32 = 1;
    pub const PREVENT_PER_HOST_AND_ONCE_METRICS: i32 = 2;
}

/// Data types of the inter-process calls. `SCOREP_Ipc_Datatype`.
pub mod ipc_datatype {
    pub const BYTE: i32 = 0;
    pub const CHAR: i32 = 1;
    pub const UNSIGNED_CHAR: i32 = 2;
    pub const INT: i32 = 3;
    pub const UNSIGNED: i32 = 4;
    pub const INT32_T: i32 = 5;
    pub const UINT32_T: i32 = 6;
    pub const INT64_T: i32 = 7;
    pub const UINT64_T: i32 = 8;
    pub const DOUBLE: i32 = 9;
}

/// Reductions of the inter-process calls. `SCOREP_Ipc_Operation`.
pub mod ipc_operation {
    pub const BAND: i32 = 0;
    pub const BOR: i32 = 1;
    pub const MIN: i32 = 2;
    pub const MAX: i32 = 3;
    pub const SUM: i32 = 4;
}
