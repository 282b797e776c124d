//! A stand-in for `librocprofiler-sdk.so`. The stand-in for `libamdhip64.so` (`tests/programs/amdhip64.c`) calls it as the real
//! HIP does: through rocprofiler-register, and a table of functions.
//!
//! It behaves like version 1.0. It finds tools in the same way: the last part of `ROCP_TOOL_LIBRARIES` is lost if there is a
//! colon, and the program is aborted if a library cannot be opened. A separate thread delivers a buffer when its watermark is
//! reached or when the tool asks for it. Writers wait while a lossless buffer is full. The types are those of
//! `crates/gpu-hip/src/abi.rs`, which a test compares with the real headers.
//!
//! ```text
//! tools.rs   how tools are found, configured and ended
//! hip.rs     HIP's table of functions, callbacks and records
//! buffer.rs  buffers, and the thread that delivers them
//! ```
//!
//! The variable `STAND_IN_ROCPROFILER` has words, separated by blanks. `STAND_IN_GPUS` is the number of GPUs.
//!
//! | word | meaning |
//! | --- | --- |
//! | `version=400` | the version that tools get |
//! | `reversed` | the records of a batch are delivered in the opposite order |
//! | `dropped=7` | 7 records count as dropped |
//! | `without=NAME` | the function of this name fails |
//! | `partitions` | all GPUs are parts of one |
//! | `swapped` | the GPUs have another order than that of the counters |
//! | `drift=50` | the clock of all records gains 50 us in a second |
//! | `interrupted` | three of four readings of that clock take 0.1 ms |
//! | `timed` | prints how long the tools' functions took for a call and for a record |

#[allow(dead_code)]
#[path = "../../../../crates/gpu-hip/src/abi.rs"]
mod abi;
mod buffer;
mod hip;
#[path = "../../stopwatch.rs"]
mod stopwatch;
mod tools;

use abi::*;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use stopwatch::Stopwatch;

const ERROR: Status = 1;
const ERROR_FINALIZED: Status = 21;
const ERROR_LOCKED: Status = 16;

type Callback = unsafe extern "C" fn();
type Called<C> = unsafe extern "C" fn(CallbackRecord<C>, *mut u64, *mut c_void);
type Asked = unsafe extern "C" fn(u64, Handle, c_int, c_int, u64, *mut u64, *mut c_void) -> c_int;

/// The configuration that the tools have made. Each tool has one context, as ampere's tool does.
#[derive(Default)]
struct State {
    /// 0 before, -1 during and 1 after the configuration.
    initialised: c_int,
    is_finalised: bool,
    contexts: Vec<Context>,
}

#[derive(Clone, Default)]
struct Context {
    is_started: bool,
    /// Callbacks by kind, with the operations that are wanted (all if there are none), and their data.
    callbacks: Vec<(c_int, Vec<c_int>, usize, usize)>,
    /// Buffers by kind.
    buffers: Vec<(c_int, u64)>,
    /// The kinds of launches for which the tool gives numbers, the callback that gives them, and its data.
    asked: Option<(Vec<c_int>, Asked, usize)>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<T>(body: impl FnOnce(&mut State) -> T) -> T {
    body(lock(&STATE).get_or_insert_default())
}

/// Returns the value of a word of the variable, which is empty for a word without `=`; `None` if the variable lacks the word.
fn word(name: &str) -> Option<String> {
    let all = std::env::var("STAND_IN_ROCPROFILER").unwrap_or_default();
    all.split_whitespace().find_map(|word| {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        (key == name).then(|| value.to_owned())
    })
}

fn version() -> u32 {
    static VERSION: OnceLock<u32> = OnceLock::new();
    *VERSION.get_or_init(|| word("version").and_then(|text| text.parse().ok()).unwrap_or(10_000))
}

/// The times of the tools' functions for the start of a call, for a command that is put into a queue, for the end of a call, and
/// for records.
static SPENT: [Stopwatch; 4] = [const { Stopwatch::new() }; 4];
const BEGIN: usize = 0;
const PUT: usize = 1;
const END: usize = 2;
const RECORDS: usize = 3;

/// Runs a tool's function, and measures it if that is wanted.
fn timed<T>(which: usize, events: usize, run: impl FnOnce() -> T) -> T {
    static IS_WANTED: OnceLock<bool> = OnceLock::new();
    if *IS_WANTED.get_or_init(|| word("timed").is_some()) { SPENT[which].time(events, run) } else { run() }
}

fn is_without(function: &str) -> bool {
    word("without").is_some_and(|name| name == function)
}

fn change(context: Handle, body: impl FnOnce(&mut Context)) -> Status {
    with(|state| match state.contexts.get_mut((context.0 as usize).wrapping_sub(1)) {
        Some(_) if state.initialised != -1 => ERROR_LOCKED,
        Some(context) => {
            body(context);
            SUCCESS
        }
        None => ERROR,
    })
}

/// # Safety
/// `id` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_create_context(id: *mut Handle) -> Status {
    with(|state| {
        state.contexts.push(Context::default());
        // SAFETY: this function's contract.
        unsafe { *id = Handle(state.contexts.len() as u64) };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_start_context(context: Handle) -> Status {
    change(context, |context| context.is_started = true)
}

/// # Safety
/// `operations` is null or has `count` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_configure_callback_tracing_service(
    context: Handle,
    kind: c_int,
    operations: *const c_int,
    count: usize,
    callback: Callback,
    data: *mut c_void,
) -> Status {
    if is_without("rocprofiler_configure_callback_tracing_service") {
        return ERROR;
    }
    // SAFETY: this function's contract.
    let wanted = unsafe { list(operations, count) };
    change(context, |context| context.callbacks.push((kind, wanted, callback as usize, data as usize)))
}

/// # Safety
/// Operations are not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_configure_buffer_tracing_service(
    context: Handle,
    kind: c_int,
    _operations: *const c_int,
    _count: usize,
    buffer: Handle,
) -> Status {
    change(context, |context| context.buffers.push((kind, buffer.0)))
}

/// # Safety
/// `kinds` has `count` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_configure_external_correlation_id_request_service(
    context: Handle,
    kinds: *const c_int,
    count: usize,
    callback: Asked,
    data: *mut c_void,
) -> Status {
    // SAFETY: this function's contract.
    let wanted = unsafe { list(kinds, count) };
    change(context, |context| context.asked = Some((wanted, callback, data as usize)))
}

/// # Safety
/// `first` is null or has `count` numbers.
unsafe fn list(first: *const c_int, count: usize) -> Vec<c_int> {
    if first.is_null() {
        return Vec::new();
    }
    // SAFETY: this function's contract.
    unsafe { std::slice::from_raw_parts(first, count) }.to_vec()
}

fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The time that the clock of all records shows at a time of the system's clock.
pub(crate) fn shown(time: u64) -> u64 {
    static DRIFT: OnceLock<(u64, f64)> = OnceLock::new();
    let (start, drift) =
        DRIFT.get_or_init(|| (now(), word("drift").and_then(|text| text.parse().ok()).unwrap_or(0.0)));
    time.saturating_add_signed(((time as f64 - *start as f64) * drift * 1e-6) as i64)
}

/// # Safety
/// `time` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_get_timestamp(time: *mut u64) -> Status {
    static READINGS: AtomicU64 = AtomicU64::new(0);
    // SAFETY: this function's contract.
    unsafe { *time = shown(now()) };
    if word("interrupted").is_some() && !READINGS.fetch_add(1, Ordering::Relaxed).is_multiple_of(4) {
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    SUCCESS
}

/// # Safety
/// `callback` takes the data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_iterate_callback_tracing_kind_operations(
    kind: c_int,
    callback: unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int,
    data: *mut c_void,
) -> Status {
    if kind != CALLBACK_HIP_RUNTIME {
        return ERROR;
    }
    for number in 1..hip::NAMES.len() as c_int {
        // SAFETY: this function's contract.
        if unsafe { callback(kind, number, data) } != 0 {
            break;
        }
    }
    SUCCESS
}

/// # Safety
/// `name` and `length` are null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_query_callback_tracing_kind_operation_name(
    _kind: c_int,
    operation: c_int,
    name: *mut *const c_char,
    length: *mut u64,
) -> Status {
    let Some(text) = hip::NAMES.get(operation as usize) else { return ERROR };
    // SAFETY: this function's contract.
    unsafe {
        if !name.is_null() {
            *name = text.as_ptr();
        }
        if !length.is_null() {
            *length = text.count_bytes() as u64;
        }
    }
    SUCCESS
}

/// An agent as the versions since 0.6 have it.
#[repr(C)]
struct WholeAgent {
    agent: Agent,
    uuid: [u8; 16],
}

/// The numbers of agents: a CPU, and the GPUs.
const CPU: u64 = 100;
pub(crate) const GPU: u64 = 101;

/// # Safety
/// `callback` takes the data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_query_available_agents(
    version: c_int,
    callback: unsafe extern "C" fn(c_int, *const *const c_void, usize, *mut c_void) -> Status,
    size: usize,
    data: *mut c_void,
) -> Status {
    const NAME: &CStr = c"Stand-in MI300A";
    let whole = if self::version() < 600 { size_of::<Agent>() } else { size_of::<WholeAgent>() };
    if size > whole {
        return ERROR;
    }
    let gpus: u32 = std::env::var("STAND_IN_GPUS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (has_parts, is_swapped) = (word("partitions").is_some(), word("swapped").is_some());
    let agent = |id: u64, agent_type, number: u32| {
        let bus = 0xc1 + if is_swapped { gpus - 1 - number } else { number };
        // SAFETY: zero is a value of all fields.
        let mut made: WholeAgent = unsafe { std::mem::zeroed() };
        made.agent.size = whole as u64;
        made.agent.id = Handle(id);
        made.agent.agent_type = agent_type;
        // The addresses of the GPUs of the stand-ins for counters.
        made.agent.location = if has_parts { 0xc1 << 8 | number } else { bus << 8 };
        made.agent.number_in_type = number as i32;
        made.agent.product_name = NAME.as_ptr();
        made.uuid[0] = 7 + number as u8;
        Box::leak(Box::new(made))
    };
    let mut all = vec![agent(CPU, 1, 0)];
    all.extend((0..gpus).map(|number| agent(GPU + u64::from(number), AGENT_GPU, number)));
    let pointers: Vec<*const c_void> = all.iter().map(|agent| std::ptr::from_ref(&**agent).cast()).collect();
    // SAFETY: this function's contract.
    unsafe { callback(version, pointers.as_ptr(), pointers.len(), data) }
}
