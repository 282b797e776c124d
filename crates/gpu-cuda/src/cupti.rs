//! CUPTI's functions and types, as far as they are used.
//!
//! Newer versions add fields at the end of records. The fields here have had their places since CUDA 9; `tests/layout.rs`
//! compares them with the headers of CUDA 12 and 13.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;

/// The first version with `cuptiActivityRegisterTimestampCallback`: that of CUDA 11.6.
pub const VERSION_MIN: u32 = 17;

/// `CUptiResult`.
pub type Status = c_int;
pub const SUCCESS: Status = 0;
pub const MULTIPLE_SUBSCRIBERS: Status = 39;

/// `CUpti_SubscriberHandle`.
pub type Subscriber = *mut c_void;

/// `CUpti_CallbackDomain`.
pub const DRIVER_API: u32 = 1;
pub const RUNTIME_API: u32 = 2;

/// `CUpti_ApiCallbackSite`.
pub const API_ENTER: u32 = 0;
pub const API_EXIT: u32 = 1;

/// `CUpti_ActivityFlag`.
pub const FLUSH_FORCED: u32 = 1;

/// `CUpti_ActivityKind`.
pub mod kind {
    pub const MEMCPY: u32 = 1;
    pub const MEMSET: u32 = 2;
    pub const CONCURRENT_KERNEL: u32 = 10;
    pub const MEMCPY2: u32 = 22;
}

/// The constants above by their names in C.
pub const VALUES: &[(&str, i64)] = &[
    ("CUPTI_SUCCESS", SUCCESS as i64),
    ("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", MULTIPLE_SUBSCRIBERS as i64),
    ("CUPTI_CB_DOMAIN_DRIVER_API", DRIVER_API as i64),
    ("CUPTI_CB_DOMAIN_RUNTIME_API", RUNTIME_API as i64),
    ("CUPTI_API_ENTER", API_ENTER as i64),
    ("CUPTI_API_EXIT", API_EXIT as i64),
    ("CUPTI_ACTIVITY_FLAG_FLUSH_FORCED", FLUSH_FORCED as i64),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", kind::MEMCPY as i64),
    ("CUPTI_ACTIVITY_KIND_MEMSET", kind::MEMSET as i64),
    ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", kind::CONCURRENT_KERNEL as i64),
    ("CUPTI_ACTIVITY_KIND_MEMCPY2", kind::MEMCPY2 as i64),
    ("CUPTI_ACTIVITY_MEMCPY_KIND_HTOD", 1),
    ("CUPTI_ACTIVITY_MEMCPY_KIND_DTOH", 2),
    ("CUPTI_ACTIVITY_MEMCPY_KIND_HTOA", 3),
    ("CUPTI_ACTIVITY_MEMCPY_KIND_ATOH", 4),
    ("CUPTI_ACTIVITY_MEMCPY_KIND_ATOA", 5),
    ("CUPTI_ACTIVITY_MEMCPY_KIND_ATOD", 6),
    ("CUPTI_ACTIVITY_MEMCPY_KIND_DTOA", 7),
    ("CUPTI_ACTIVITY_MEMCPY_KIND_DTOD", 8),
    ("CUPTI_ACTIVITY_MEMCPY_KIND_HTOH", 9),
    ("CUPTI_ACTIVITY_MEMCPY_KIND_PTOP", 10),
];

/// The names of regions of copies, by `CUpti_ActivityMemcpyKind`.
pub const COPIES: [&str; 11] = [
    "[CUDA memcpy]",
    "[CUDA memcpy HtoD]",
    "[CUDA memcpy DtoH]",
    "[CUDA memcpy HtoA]",
    "[CUDA memcpy AtoH]",
    "[CUDA memcpy AtoA]",
    "[CUDA memcpy AtoD]",
    "[CUDA memcpy DtoA]",
    "[CUDA memcpy DtoD]",
    "[CUDA memcpy HtoH]",
    "[CUDA memcpy PtoP]",
];

/// `CUpti_CallbackData`.
#[repr(C)]
pub struct CallbackData {
    pub site: u32,
    pub function: *const c_char,
    _parameters: *const c_void,
    /// The number that the function returns; null or undefined at the entry.
    pub result: *const c_int,
    _symbol: *const c_char,
    _context: *mut c_void,
    _context_id: u32,
    /// Room for one number that the callback at the exit gets from the one at the entry.
    pub kept: *mut u64,
    pub correlation: u32,
}

/// `CUpti_ActivityMemset`.
#[repr(C)]
pub struct Memset {
    pub kind: u32,
    _value: u32,
    _bytes: u64,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub correlation: u32,
}

/// `CUpti_ActivityMemcpy`.
#[repr(C)]
pub struct Memcpy {
    pub kind: u32,
    pub copy_kind: u8,
    _kinds: [u8; 3],
    _bytes: u64,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub correlation: u32,
}

/// `CUpti_ActivityMemcpyPtoP`, of copies between devices.
#[repr(C)]
pub struct MemcpyBetween {
    pub kind: u32,
    pub copy_kind: u8,
    _kinds: [u8; 3],
    _bytes: u64,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    _both_ends: [u32; 4],
    pub correlation: u32,
}

/// `CUpti_ActivityKernel`.
#[repr(C)]
pub struct Kernel {
    pub kind: u32,
    _configuration: [u32; 3],
    pub start: u64,
    pub end: u64,
    _completed: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    _grid_and_memory: [u32; 10],
    pub correlation: u32,
    _grid_id: i64,
    pub name: *const c_char,
}

/// A structure's names in C, from the oldest to the newest that is known, and its fields' names in C with their offsets.
pub type Layout = (&'static [&'static str], &'static [(&'static str, usize)]);

/// The structures above.
pub const LAYOUTS: &[Layout] = &[
    (
        &["CUpti_CallbackData"],
        &[
            ("callbackSite", offset_of!(CallbackData, site)),
            ("functionName", offset_of!(CallbackData, function)),
            ("functionReturnValue", offset_of!(CallbackData, result)),
            ("correlationData", offset_of!(CallbackData, kept)),
            ("correlationId", offset_of!(CallbackData, correlation)),
        ],
    ),
    (
        &["CUpti_ActivityMemset", "CUpti_ActivityMemset4", "CUpti_ActivityMemset5"],
        &[
            ("kind", offset_of!(Memset, kind)),
            ("start", offset_of!(Memset, start)),
            ("end", offset_of!(Memset, end)),
            ("deviceId", offset_of!(Memset, device)),
            ("contextId", offset_of!(Memset, context)),
            ("streamId", offset_of!(Memset, stream)),
            ("correlationId", offset_of!(Memset, correlation)),
        ],
    ),
    (
        &["CUpti_ActivityMemcpy", "CUpti_ActivityMemcpy6", "CUpti_ActivityMemcpy7"],
        &[
            ("kind", offset_of!(Memcpy, kind)),
            ("copyKind", offset_of!(Memcpy, copy_kind)),
            ("start", offset_of!(Memcpy, start)),
            ("end", offset_of!(Memcpy, end)),
            ("deviceId", offset_of!(Memcpy, device)),
            ("contextId", offset_of!(Memcpy, context)),
            ("streamId", offset_of!(Memcpy, stream)),
            ("correlationId", offset_of!(Memcpy, correlation)),
        ],
    ),
    (
        &["CUpti_ActivityMemcpyPtoP", "CUpti_ActivityMemcpyPtoP4"],
        &[
            ("kind", offset_of!(MemcpyBetween, kind)),
            ("copyKind", offset_of!(MemcpyBetween, copy_kind)),
            ("start", offset_of!(MemcpyBetween, start)),
            ("end", offset_of!(MemcpyBetween, end)),
            ("deviceId", offset_of!(MemcpyBetween, device)),
            ("contextId", offset_of!(MemcpyBetween, context)),
            ("streamId", offset_of!(MemcpyBetween, stream)),
            ("correlationId", offset_of!(MemcpyBetween, correlation)),
        ],
    ),
    (
        &["CUpti_ActivityKernel4", "CUpti_ActivityKernel9", "CUpti_ActivityKernel13"],
        &[
            ("kind", offset_of!(Kernel, kind)),
            ("start", offset_of!(Kernel, start)),
            ("end", offset_of!(Kernel, end)),
            ("deviceId", offset_of!(Kernel, device)),
            ("contextId", offset_of!(Kernel, context)),
            ("streamId", offset_of!(Kernel, stream)),
            ("correlationId", offset_of!(Kernel, correlation)),
            ("name", offset_of!(Kernel, name)),
        ],
    ),
];

/// A callback of API calls.
pub type OnCall = unsafe extern "C" fn(*mut c_void, domain: u32, id: u32, *const CallbackData);
/// Asks for a buffer, its size, and the largest number of records in it (0: any).
pub type OnRequest = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Gives back a buffer, with its size and the number of bytes that hold records.
pub type OnComplete = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
/// Returns the time in nanoseconds.
pub type Clock = unsafe extern "C" fn() -> u64;

/// Declares the functions as fields of [`Cupti`], which are looked up by their names.
macro_rules! functions {
    ($($field:ident = $name:literal: fn($($argument:ty),*);)*) => {
        /// CUPTI's functions.
        pub struct Cupti {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> Status,)*
        }

        impl Cupti {
            /// Looks up the functions. The error is the name of one that is missing.
            ///
            /// # Safety
            /// `library` is a handle of CUPTI.
            pub unsafe fn new(library: *mut c_void) -> Result<Cupti, &'static str> {
                Ok(Cupti {
                    $($field: {
                        // SAFETY: this is a lookup by name in the open library.
                        let found = unsafe { libc::dlsym(library, concat!($name, "\0").as_ptr().cast()) };
                        if found.is_null() {
                            return Err($name);
                        }
                        // SAFETY: CUPTI's function of this name has this type.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> Status>(found) }
                    },)*
                })
            }
        }
    };
}

functions! {
    get_version = "cuptiGetVersion": fn(*mut u32);
    get_result_string = "cuptiGetResultString": fn(Status, *mut *const c_char);
    subscribe = "cuptiSubscribe": fn(*mut Subscriber, OnCall, *mut c_void);
    unsubscribe = "cuptiUnsubscribe": fn(Subscriber);
    enable_callback = "cuptiEnableCallback": fn(u32, Subscriber, u32, u32);
    get_callback_name = "cuptiGetCallbackName": fn(u32, u32, *mut *const c_char);
    register_callbacks = "cuptiActivityRegisterCallbacks": fn(OnRequest, OnComplete);
    register_clock = "cuptiActivityRegisterTimestampCallback": fn(Clock);
    enable = "cuptiActivityEnable": fn(u32);
    disable = "cuptiActivityDisable": fn(u32);
    flush_all = "cuptiActivityFlushAll": fn(u32);
    flush_period = "cuptiActivityFlushPeriod": fn(u32);
    next_record = "cuptiActivityGetNextRecord": fn(*mut u8, usize, *mut *const u32);
    get_dropped = "cuptiActivityGetNumDroppedRecords": fn(*mut c_void, u32, *mut usize);
}

impl Cupti {
    /// Returns the version; 0 if it is not known.
    pub fn version(&self) -> u32 {
        let mut version = 0;
        // SAFETY: the call writes one number.
        unsafe { (self.get_version)(&mut version) };
        version
    }

    /// Returns an error's text, such as `CUPTI_ERROR_NOT_INITIALIZED`.
    pub fn text(&self, status: Status) -> String {
        let mut text = std::ptr::null();
        // SAFETY: the call writes one pointer, to a constant text.
        match unsafe { (self.get_result_string)(status, &mut text) } {
            // SAFETY: the text that CUPTI has written.
            SUCCESS if !text.is_null() => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
            _ => format!("error {status} of CUPTI"),
        }
    }

    /// Returns the name of an API function, such as `cudaLaunchKernel_v7000`.
    pub fn callback_name(&self, domain: u32, id: u32) -> Option<&'static CStr> {
        let mut name = std::ptr::null();
        // SAFETY: the call writes one pointer, to a constant text.
        let status = unsafe { (self.get_callback_name)(domain, id, &mut name) };
        // SAFETY: the text that CUPTI has written; CUPTI is never unloaded.
        (status == SUCCESS && !name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
    }
}
