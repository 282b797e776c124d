//! The part of rocprofiler-sdk's interface that ampere uses, as Rust types. `tests/layout.rs` compares sizes, offsets and values
//! with those of the real headers, of versions 0.4 (ROCm 6.2) to 1.0 (ROCm 7.0).
//!
//! Payloads and agents begin with their size, and grow at their end: a type here is the part that all versions have. Headers of
//! records and arguments of callbacks have no size. Versions differ in the argument of callbacks ([`CallbackRecord`]), and in
//! whether agents have a UUID and the runtimes that may see them.

use std::ffi::{c_char, c_int, c_void};

/// rocprofiler-sdk's ID of a context, buffer, agent or queue.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// `rocprofiler_status_t`.
pub type Status = c_int;

/// Declares the values of an enumeration by their names in C, and a table of them for the test.
macro_rules! values {
    ($($(#[$doc:meta])* $name:ident = $c_name:literal: $value:literal,)*) => {
        $($(#[$doc])* pub const $name: c_int = $value;)*
        /// The values that are used, by their names in C.
        pub const VALUES: &[(&str, i64)] = &[$(($c_name, $value)),*];
    };
}

values! {
    SUCCESS = "ROCPROFILER_STATUS_SUCCESS": 0,
    CATEGORY_TRACING = "ROCPROFILER_BUFFER_CATEGORY_TRACING": 1,
    /// Writers wait for room in a full buffer.
    POLICY_LOSSLESS = "ROCPROFILER_BUFFER_POLICY_LOSSLESS": 2,
    /// The agent is a GPU.
    AGENT_GPU = "ROCPROFILER_AGENT_TYPE_GPU": 2,
    AGENT_INFO_0 = "ROCPROFILER_AGENT_INFO_VERSION_0": 1,
    /// Before a call, or when a code object is loaded.
    PHASE_ENTER = "ROCPROFILER_CALLBACK_PHASE_ENTER": 1,
    PHASE_EXIT = "ROCPROFILER_CALLBACK_PHASE_EXIT": 2,
    CALLBACK_HIP_RUNTIME = "ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API": 5,
    CALLBACK_CODE_OBJECT = "ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT": 10,
    /// The operation by which a kernel of a code object gets its ID.
    CODE_OBJECT_KERNEL = "ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER": 2,
    BUFFER_MEMORY_COPY = "ROCPROFILER_BUFFER_TRACING_MEMORY_COPY": 10,
    BUFFER_KERNEL_DISPATCH = "ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH": 11,
    COPY_HOST_TO_HOST = "ROCPROFILER_MEMORY_COPY_HOST_TO_HOST": 1,
    COPY_HOST_TO_DEVICE = "ROCPROFILER_MEMORY_COPY_HOST_TO_DEVICE": 2,
    COPY_DEVICE_TO_HOST = "ROCPROFILER_MEMORY_COPY_DEVICE_TO_HOST": 3,
    COPY_DEVICE_TO_DEVICE = "ROCPROFILER_MEMORY_COPY_DEVICE_TO_DEVICE": 4,
    /// A request for the launch ID of a memory copy.
    REQUEST_MEMORY_COPY = "ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MEMORY_COPY": 10,
    /// A request for the launch ID of a kernel.
    REQUEST_KERNEL_DISPATCH = "ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_KERNEL_DISPATCH": 11,
}

/// A type's name in C, its size if it is the same in all versions, and its fields with their offsets.
pub type Layout = (&'static str, Option<usize>, &'static [(&'static str, usize)]);

/// Declares a structure and its layout by the names in C.
macro_rules! structure {
    ($(#[$doc:meta])* $name:ident = $c_name:literal, $size:expr;
     $($(#[$field_doc:meta])* $field:ident = $c_field:literal: $type:ty,)*) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }
        impl $name {
            /// The layout of this type.
            pub const LAYOUT: Layout = ($c_name, $size, &[$(($c_field, std::mem::offset_of!($name, $field))),*]);
        }
    };
}

structure! {
    /// A record in a buffer.
    RecordHeader = "rocprofiler_record_header_t", Some(size_of::<RecordHeader>());
    /// See `CATEGORY_TRACING`.
    category = "category": u32,
    /// See the constants `BUFFER_`.
    kind = "kind": u32,
    payload = "payload": *const c_void,
}

/// The IDs that link a kernel or a copy with the call that launched it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Correlation {
    /// rocprofiler-sdk's ID of the call.
    pub internal: u64,
    /// The ID that ampere has given the call.
    pub external: u64,
}

/// The IDs of a call, since version 1.0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Correlation1 {
    /// The part that older versions have as well.
    pub since_0: Correlation,
    /// The call that made this call.
    pub ancestor: u64,
}

structure! {
    /// The kernel that ran, and where it ran.
    DispatchInfo = "rocprofiler_kernel_dispatch_info_t", Some(size_of::<DispatchInfo>());
    /// The size of the structure without the part that is reserved.
    size = "size": u64,
    agent = "agent_id": Handle,
    queue = "queue_id": Handle,
    /// The kernel's ID, see [`KernelSymbol`].
    kernel = "kernel_id": u64,
    dispatch = "dispatch_id": u64,
    /// Sizes of memory segments, of workgroups and of the grid.
    sizes = "private_segment_size": [u32; 8],
    reserved = "reserved_padding": [u8; 56],
}

structure! {
    /// A kernel that has run.
    KernelDispatch = "rocprofiler_buffer_tracing_kernel_dispatch_record_t", Some(size_of::<KernelDispatch>());
    size = "size": u64,
    /// `BUFFER_KERNEL_DISPATCH`.
    kind = "kind": c_int,
    operation = "operation": c_int,
    /// The IDs that it has from its launch.
    correlation = "correlation_id": Correlation,
    thread = "thread_id": u64,
    /// Nanoseconds of `CLOCK_BOOTTIME`.
    start = "start_timestamp": u64,
    /// Nanoseconds of `CLOCK_BOOTTIME`.
    end = "end_timestamp": u64,
    info = "dispatch_info": DispatchInfo,
}

structure! {
    /// A copy that has been made.
    MemoryCopy = "rocprofiler_buffer_tracing_memory_copy_record_t", None;
    size = "size": u64,
    /// `BUFFER_MEMORY_COPY`.
    kind = "kind": c_int,
    /// See the constants `COPY_`.
    operation = "operation": c_int,
    /// The IDs that it has from its launch.
    correlation = "correlation_id": Correlation,
    thread = "thread_id": u64,
    /// Nanoseconds of `CLOCK_BOOTTIME`.
    start = "start_timestamp": u64,
    /// Nanoseconds of `CLOCK_BOOTTIME`.
    end = "end_timestamp": u64,
    to = "dst_agent_id": Handle,
    from = "src_agent_id": Handle,
    bytes = "bytes": u64,
}

structure! {
    /// A kernel of a code object.
    KernelSymbol = "rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t", None;
    size = "size": u64,
    /// The ID that its dispatches have.
    kernel = "kernel_id": u64,
    code_object = "code_object_id": u64,
    /// The name, a C string.
    name = "kernel_name": *const c_char,
}

structure! {
    /// A CPU or a GPU, or a part of a GPU.
    Agent = "rocprofiler_agent_v0_t", None;
    size = "size": u64,
    id = "id": Handle,
    /// See `AGENT_GPU`.
    agent_type = "type": c_int,
    counts = "cpu_cores_count": [u32; 21],
    vendor = "vendor_id": u16,
    device = "device_id": u16,
    /// The PCI address without the domain: bus, device and function, in 8, 5 and 3 bits. If the GPU is partitioned, the number of
    /// the part replaces the function.
    location = "location_id": u32,
    domain = "domain": u32,
    more_counts = "drm_render_minor": [u32; 15],
    memory = "local_mem_size": u64,
    /// The group of linked GPUs.
    hive = "hive_id": u64,
    /// The driver's ID of the GPU or the part.
    gpu = "gpu_id": u64,
    largest = "workgroup_max_dim": [u32; 6],
    lists = "mem_banks": [*const c_void; 3],
    /// The architecture, such as `gfx942`.
    name = "name": *const c_char,
    vendor_name = "vendor_name": *const c_char,
    /// The marketing name.
    product_name = "product_name": *const c_char,
    model_name = "model_name": *const c_char,
    /// The ID of the agent's node in the driver's topology.
    node = "node_id": u32,
    /// The agent's number among all agents.
    number = "logical_node_id": i32,
    /// The agent's number among the agents of its type.
    number_in_type = "logical_node_type_id": i32,
    /// The runtimes that may see it; unused in versions 0.4 and 0.5.
    visibility = "reserved_padding0": u32,
}

/// The minimum size of an agent that has a UUID (since version 0.6): the first 8 bytes of the UUID follow [`Agent`].
pub const AGENT_SIZE_WITH_UUID: u64 = size_of::<Agent>() as u64 + 8;

/// The argument of a callback, passed by value. `C` is [`Correlation`] before version 1.0, and [`Correlation1`] since.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CallbackRecord<C> {
    pub context: Handle,
    pub thread: u64,
    pub correlation: C,
    /// See the constants `CALLBACK_`.
    pub kind: c_int,
    pub operation: c_int,
    /// See the constants `PHASE_`.
    pub phase: c_int,
    /// The call's arguments, or a [`KernelSymbol`].
    pub payload: *const c_void,
}

impl<C> CallbackRecord<C> {
    /// The layout of this type.
    pub const LAYOUT: Layout = (
        "rocprofiler_callback_tracing_record_t",
        Some(size_of::<Self>()),
        &[
            ("context_id", std::mem::offset_of!(Self, context)),
            ("thread_id", std::mem::offset_of!(Self, thread)),
            ("correlation_id", std::mem::offset_of!(Self, correlation)),
            ("kind", std::mem::offset_of!(Self, kind)),
            ("operation", std::mem::offset_of!(Self, operation)),
            ("phase", std::mem::offset_of!(Self, phase)),
            ("payload", std::mem::offset_of!(Self, payload)),
        ],
    );
}

structure! {
    /// The result of `rocprofiler_configure`.
    Configuration = "rocprofiler_tool_configure_result_t", Some(size_of::<Configuration>());
    size = "size": usize,
    /// Called once; if it returns non-zero, the tool is disabled.
    initialize = "initialize": Option<unsafe extern "C" fn(finalize: *const c_void, data: *mut c_void) -> c_int>,
    /// Called before the program ends.
    finalize = "finalize": Option<unsafe extern "C" fn(data: *mut c_void)>,
    /// rocprofiler-sdk passes it to both functions.
    data = "tool_data": *mut c_void,
}

// SAFETY: the pointer is null in every value that this library makes.
unsafe impl Sync for Configuration {}

/// Returns the layouts of one version.
pub fn layouts(version: u32) -> Vec<Layout> {
    let (callback, correlation_bytes) = match version {
        ..10_000 => (CallbackRecord::<Correlation>::LAYOUT, size_of::<Correlation>()),
        10_000.. => (CallbackRecord::<Correlation1>::LAYOUT, size_of::<Correlation1>()),
    };
    vec![
        RecordHeader::LAYOUT,
        DispatchInfo::LAYOUT,
        KernelDispatch::LAYOUT,
        MemoryCopy::LAYOUT,
        KernelSymbol::LAYOUT,
        Agent::LAYOUT,
        callback,
        ("rocprofiler_correlation_id_t", Some(correlation_bytes), &[("internal", 0), ("external", 8)]),
        Configuration::LAYOUT,
        ("rocprofiler_context_id_t", Some(size_of::<Handle>()), &[]),
        ("rocprofiler_buffer_id_t", Some(size_of::<Handle>()), &[]),
        ("rocprofiler_user_data_t", Some(size_of::<u64>()), &[]),
        ("rocprofiler_tracing_operation_t", Some(size_of::<c_int>()), &[]),
    ]
}
