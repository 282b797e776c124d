//! rocprofiler-sdk's functions. This library does not link it: the runtime that loads this library has loaded it before.

use crate::abi::{CallbackRecord, Handle, RecordHeader, Status};
use std::ffi::{CStr, c_char, c_int, c_void};

/// A callback. Its arguments are the record, a place to keep a number from a call's start to its end, and the data of the
/// configuration.
pub type Callback<C> = unsafe extern "C" fn(CallbackRecord<C>, *mut u64, *mut c_void);
/// Receives a batch of records, and the number of records that were dropped since the start.
pub type BufferCallback =
    unsafe extern "C" fn(Handle, Handle, *const *const RecordHeader, usize, *mut c_void, u64);
/// Returns our number for a command. Its arguments are the thread, the context, the kind of command, the operation,
/// rocprofiler-sdk's own ID, and the place for ours.
pub type RequestCallback =
    unsafe extern "C" fn(u64, Handle, c_int, c_int, u64, *mut u64, *mut c_void) -> c_int;
/// Receives a kind and one of its operations.
pub type OperationCallback = unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int;
/// Receives the version, the agents, their number, and the caller's data.
pub type AgentsCallback = unsafe extern "C" fn(c_int, *const *const c_void, usize, *mut c_void) -> Status;

/// Declares the functions, with their names in C.
macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $name:literal: fn($($argument:ty),*);)*) => {
        /// The functions that are used.
        #[derive(Clone, Copy)]
        pub struct Library {
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($argument),*) -> Status,)*
        }

        impl Library {
            /// Finds all functions. The error is the name of one that is missing.
            pub fn find() -> Result<Library, &'static str> {
                let library = handle();
                $(
                    let name: &'static CStr = $name;
                    // SAFETY: `library` is open or RTLD_DEFAULT.
                    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
                    let missing = || name.to_str().unwrap_or_default();
                    // SAFETY: the function of this name in rocprofiler-sdk has this type.
                    let $field = unsafe {
                        std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($argument),*) -> Status>>(found)
                    }
                    .ok_or_else(missing)?;
                )*
                Ok(Library { $($field),* })
            }
        }
    };
}

functions! {
    /// Makes a context, which is still without services.
    create_context = c"rocprofiler_create_context": fn(*mut Handle);
    /// Starts the services of a context.
    start_context = c"rocprofiler_start_context": fn(Handle);
    /// Makes a buffer: context, bytes, watermark in bytes, policy, callback, data, and a place for the buffer's number.
    create_buffer = c"rocprofiler_create_buffer":
        fn(Handle, usize, usize, c_int, BufferCallback, *mut c_void, *mut Handle);
    /// Delivers the records in a buffer, and returns when that is done.
    flush_buffer = c"rocprofiler_flush_buffer": fn(Handle);
    /// Puts records of a kind into a buffer: context, kind, operations and their number, buffer.
    trace_into_buffer = c"rocprofiler_configure_buffer_tracing_service": fn(Handle, c_int, *const c_int, usize, Handle);
    /// Calls a function for a kind: context, kind, operations and their number, callback, data.
    trace_by_callback = c"rocprofiler_configure_callback_tracing_service":
        fn(Handle, c_int, *const c_int, usize, *const c_void, *mut c_void);
    /// Asks a function for the numbers of launches: context, kinds and their number, callback, data.
    ask_for_numbers = c"rocprofiler_configure_external_correlation_id_request_service":
        fn(Handle, *const c_int, usize, RequestCallback, *mut c_void);
    /// Calls a function for all operations of a kind.
    each_operation = c"rocprofiler_iterate_callback_tracing_kind_operations":
        fn(c_int, OperationCallback, *mut c_void);
    /// The name of an operation.
    operation_name = c"rocprofiler_query_callback_tracing_kind_operation_name":
        fn(c_int, c_int, *mut *const c_char, *mut u64);
    /// Calls a function with all agents: version, callback, size of an agent, data.
    agents = c"rocprofiler_query_available_agents": fn(c_int, AgentsCallback, usize, *mut c_void);
    /// The present time, by the clock that all records use.
    time = c"rocprofiler_get_timestamp": fn(*mut u64);
}

/// Returns a handle of the loaded rocprofiler-sdk, or else of the program's global scope.
fn handle() -> *mut c_void {
    for name in [c"librocprofiler-sdk.so", c"librocprofiler-sdk.so.1", c"librocprofiler-sdk.so.0"] {
        // SAFETY: nothing is loaded that is not loaded already.
        let open = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !open.is_null() {
            return open;
        }
    }
    libc::RTLD_DEFAULT
}
