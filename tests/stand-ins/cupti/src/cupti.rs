//! The functions that a tool calls.

use crate::gpu::{Buffer, Kind, Work, gpu};
use crate::stopwatch::Stopwatch;
use crate::{entry, now};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

const SUCCESS: c_int = 0;
const INVALID_PARAMETER: c_int = 1;
const MAX_LIMIT_REACHED: c_int = 12;
const MULTIPLE_SUBSCRIBERS: c_int = 39;

pub const DRIVER: u32 = 1;
pub const RUNTIME: u32 = 2;
const ENTER: u32 = 0;
const EXIT: u32 = 1;

/// The functions that have callbacks, with their numbers.
const FUNCTIONS: [(u32, u32, &std::ffi::CStr, &std::ffi::CStr); 11] = [
    (RUNTIME, 20, c"cudaMalloc_v3020", c"cudaMalloc"),
    (RUNTIME, 22, c"cudaFree_v3020", c"cudaFree"),
    (RUNTIME, 31, c"cudaMemcpy_v3020", c"cudaMemcpy"),
    (RUNTIME, 41, c"cudaMemcpyAsync_v3020", c"cudaMemcpyAsync"),
    (RUNTIME, 51, c"cudaMemsetAsync_v3020", c"cudaMemsetAsync"),
    (RUNTIME, 131, c"cudaStreamSynchronize_v3020", c"cudaStreamSynchronize"),
    (RUNTIME, 164, c"cudaDeviceReset_v3020", c"cudaDeviceReset"),
    (RUNTIME, 165, c"cudaDeviceSynchronize_v3020", c"cudaDeviceSynchronize"),
    (RUNTIME, 211, c"cudaLaunchKernel_v7000", c"cudaLaunchKernel"),
    (DRIVER, 307, c"cuLaunchKernel", c"cuLaunchKernel"),
    (RUNTIME, 3, c"cudaGetDeviceCount_v3020", c"cudaGetDeviceCount"),
];

/// The sizes of the three types of records: `CUpti_ActivityKernel10`, `CUpti_ActivityMemcpy6`, `CUpti_ActivityMemset4`.
pub const RECORD_BYTES: usize = 216;
const COPY_BYTES: usize = 96;
const MEMSET_BYTES: usize = 88;

#[repr(C)]
pub struct CallbackData {
    site: u32,
    function: *const c_char,
    parameters: *const c_void,
    result: *mut c_void,
    symbol: *const c_char,
    context: *mut c_void,
    context_id: u32,
    kept: *mut u64,
    correlation: u32,
}

type OnCall = unsafe extern "C" fn(*mut c_void, u32, u32, *const CallbackData);
type OnRequest = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type OnComplete = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
type Clock = unsafe extern "C" fn() -> u64;

struct Tool {
    on_call: Option<(OnCall, usize)>,
    on_request: Option<OnRequest>,
    on_complete: Option<OnComplete>,
    clock: Option<Clock>,
    kinds: Vec<u32>,
}

static TOOL: Mutex<Tool> =
    Mutex::new(Tool { on_call: None, on_request: None, on_complete: None, clock: None, kinds: Vec::new() });
/// Bit n: callbacks of FUNCTIONS[n] are enabled.
static ENABLED: AtomicU32 = AtomicU32::new(0);
static PERIOD: AtomicU64 = AtomicU64::new(0);
static NEXT_CORRELATION: AtomicU32 = AtomicU32::new(1);

/// The times of the tool's functions for launches: at the start and the end of a call of the driver, and of one of the runtime.
static CALLS: [Stopwatch; 4] = [const { Stopwatch::new() }; 4];
/// The times for records: of the functions that give and take buffers.
static RECORDS: [Stopwatch; 2] = [const { Stopwatch::new() }; 2];
const LAUNCHES: [u32; 2] = [307, 211];

fn is_timed() -> bool {
    static IS_WANTED: OnceLock<bool> = OnceLock::new();
    *IS_WANTED.get_or_init(|| entry("timed") > 0)
}

/// Prints how long the tool's functions took.
pub extern "C" fn print_times() {
    if is_timed() {
        let mean = |all: &[Stopwatch]| all.iter().map(Stopwatch::mean).sum::<f64>();
        let (calls, records) = (mean(&CALLS), mean(&RECORDS));
        eprintln!("stand-in: {calls:.0} ns of calls and {records:.0} ns of records for each");
    }
}

fn tool() -> std::sync::MutexGuard<'static, Tool> {
    TOOL.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn index_of(domain: u32, id: u32) -> Option<usize> {
    FUNCTIONS.iter().position(|known| (known.0, known.1) == (domain, id))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetVersion(version: *mut u32) -> c_int {
    let wanted = entry("version") as u32;
    // SAFETY: the caller's number.
    unsafe { version.write(if wanted > 0 { wanted } else { 130_000 }) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetResultString(status: c_int, text: *mut *const c_char) -> c_int {
    let name = if status == MULTIPLE_SUBSCRIBERS {
        c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
    } else {
        c"CUPTI_ERROR_UNKNOWN"
    };
    // SAFETY: the caller's pointer.
    unsafe { text.write(name.as_ptr()) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiSubscribe(
    subscriber: *mut *mut c_void,
    on_call: OnCall,
    data: *mut c_void,
) -> c_int {
    let mut tool = tool();
    if tool.on_call.is_some() || entry("busy") > 0 {
        return MULTIPLE_SUBSCRIBERS;
    }
    tool.on_call = Some((on_call, data as usize));
    // SAFETY: the caller's pointer.
    unsafe { subscriber.write(std::ptr::from_ref(&TOOL).cast_mut().cast()) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiUnsubscribe(_: *mut c_void) -> c_int {
    tool().on_call = None;
    ENABLED.store(0, Ordering::Relaxed);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiEnableCallback(enable: u32, _: *mut c_void, domain: u32, id: u32) -> c_int {
    let Some(index) = index_of(domain, id) else { return INVALID_PARAMETER };
    match enable {
        0 => ENABLED.fetch_and(!(1 << index), Ordering::Relaxed),
        _ => ENABLED.fetch_or(1 << index, Ordering::Relaxed),
    };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetCallbackName(domain: u32, id: u32, name: *mut *const c_char) -> c_int {
    let Some(index) = index_of(domain, id) else { return INVALID_PARAMETER };
    // SAFETY: the caller's pointer.
    unsafe { name.write(FUNCTIONS[index].2.as_ptr()) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityRegisterCallbacks(request: OnRequest, complete: OnComplete) -> c_int {
    let mut tool = tool();
    tool.on_request = Some(request);
    tool.on_complete = Some(complete);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityRegisterTimestampCallback(clock: Clock) -> c_int {
    tool().clock = Some(clock);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnable(kind: u32) -> c_int {
    tool().kinds.push(kind);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisable(kind: u32) -> c_int {
    tool().kinds.retain(|known| *known != kind);
    SUCCESS
}

/// Sets the period at which a thread of CUPTI delivers complete buffers, and starts the thread.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushPeriod(milliseconds: u32) -> c_int {
    static IS_STARTED: AtomicBool = AtomicBool::new(false);
    PERIOD.store(u64::from(milliseconds) * 1_000_000, Ordering::Relaxed);
    if milliseconds > 0 && !IS_STARTED.swap(true, Ordering::Relaxed) {
        std::thread::spawn(|| {
            let mut last = now();
            loop {
                std::thread::sleep(std::time::Duration::from_millis(5));
                let period = PERIOD.load(Ordering::Relaxed);
                let is_due = period > 0 && now() - last >= period;
                if is_due {
                    last = now();
                }
                deliver(|buffer, now| buffer.is_complete(now) && (is_due || buffer.is_full()));
            }
        });
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushAll(flag: u32) -> c_int {
    deliver(|buffer, now| flag != 0 || buffer.is_complete(now));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNumDroppedRecords(
    _: *mut c_void,
    _: u32,
    dropped: *mut usize,
) -> c_int {
    // SAFETY: the caller's number.
    unsafe { dropped.write(std::mem::take(&mut gpu().dropped)) };
    SUCCESS
}

/// Returns the next record of a buffer. The kind of a record determines its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNextRecord(
    buffer: *mut u8,
    valid: usize,
    record: *mut *mut u8,
) -> c_int {
    // SAFETY: the caller's buffer and pointer.
    unsafe {
        let next = if (*record).is_null() { buffer } else { (*record).add(size_of_kind(*(*record).cast())) };
        if next.addr() >= buffer.addr() + valid {
            return MAX_LIMIT_REACHED;
        }
        record.write(next);
    }
    SUCCESS
}

fn size_of_kind(kind: u32) -> usize {
    match kind {
        1 => COPY_BYTES,
        2 => MEMSET_BYTES,
        _ => RECORD_BYTES,
    }
}

/// Calls the tool before and after the body of a CUDA function. A nested call has the correlation id of the outermost one.
pub fn around<T>(domain: u32, id: u32, outer: Option<u32>, body: impl FnOnce(u32) -> T) -> T {
    let correlation = outer.unwrap_or_else(|| NEXT_CORRELATION.fetch_add(1, Ordering::Relaxed));
    let index = index_of(domain, id).filter(|index| ENABLED.load(Ordering::Relaxed) & 1 << index != 0);
    let Some(index) = index else { return body(correlation) };
    let on_call = tool().on_call;
    let Some((on_call, data)) = on_call else { return body(correlation) };
    let mut kept = 0;
    let mut call = CallbackData {
        site: ENTER,
        function: FUNCTIONS[index].3.as_ptr(),
        parameters: std::ptr::null(),
        result: std::ptr::null_mut(),
        symbol: std::ptr::null(),
        context: std::ptr::null_mut(),
        context_id: gpu().context,
        kept: &mut kept,
        correlation,
    };
    let run = |call: &CallbackData| {
        // SAFETY: the tool's function, which gets its own data.
        let run = || unsafe { on_call(data as *mut c_void, domain, id, call) };
        match is_timed() && LAUNCHES.contains(&id) {
            true => CALLS[(2 * (domain - DRIVER) + call.site) as usize].time(1, run),
            false => run(),
        }
    };
    run(&call);
    let result = body(correlation);
    call.site = EXIT;
    run(&call);
    result
}

/// Records work, if the tool wants it.
pub fn record(work: Work) {
    let kind = match work.kind {
        Kind::Kernel => 10,
        Kind::Copy(_) => 1,
        Kind::Memset => 2,
    };
    let request = {
        let tool = tool();
        if !tool.kinds.contains(&kind) {
            return;
        }
        tool.on_request
    };
    if gpu().record(work) {
        return;
    }
    let Some(request) = request else { return };
    let mut memory = std::ptr::null_mut();
    let mut bytes = 0;
    let mut records_max = 0;
    let begun = Instant::now();
    // SAFETY: the tool's function.
    unsafe { request(&mut memory, &mut bytes, &mut records_max) };
    if is_timed() {
        RECORDS[0].add(begun, records_max);
    }
    let mut gpu = gpu();
    if memory.is_null() || bytes < RECORD_BYTES {
        gpu.dropped += 1;
        return;
    }
    gpu.buffers.push(Buffer { memory, bytes, records_max, work: Vec::new() });
    gpu.record(work);
}

/// Passes the buffers back to the tool in their order, up to the first for which `is_wanted` is false.
fn deliver(is_wanted: impl Fn(&Buffer, u64) -> bool) {
    // One thread at a time, so that buffers stay in their order.
    static DELIVERING: Mutex<()> = Mutex::new(());
    let _guard = DELIVERING.lock();
    let (complete, clock) = {
        let tool = tool();
        (tool.on_complete, tool.clock)
    };
    loop {
        let buffer = {
            let (mut gpu, now) = (gpu(), now());
            match gpu.buffers.first() {
                Some(buffer) if is_wanted(buffer, now) => gpu.buffers.remove(0),
                _ => return,
            }
        };
        let valid = write(&buffer, clock);
        if let Some(complete) = complete {
            // SAFETY: the tool's function, with the buffer that it has given.
            let run = || unsafe { complete(std::ptr::null_mut(), 0, buffer.memory, buffer.bytes, valid) };
            if is_timed() {
                RECORDS[1].time(buffer.work.len(), run)
            } else {
                run()
            };
        }
    }
}

/// The time by this library's clock and by the tool's, read as close to each other as possible.
fn both_clocks(clock: Option<Clock>) -> (u64, u64) {
    let pair = || {
        let before = now();
        // SAFETY: the tool's function.
        let tools_now = clock.map_or(before, |clock| unsafe { clock() });
        (now() - before, before, tools_now)
    };
    let (width, before, tools_now) = std::iter::repeat_with(pair).take(50).min().unwrap_or_default();
    (before + width / 2, tools_now)
}

/// Writes the records. Work that has not ended has no times.
fn write(buffer: &Buffer, clock: Option<Clock>) -> usize {
    let early = entry("early_us") * 1000;
    let mut work = buffer.work.clone();
    if entry("reverse") > 0 {
        work.reverse();
    }
    let (now, tools_now) = both_clocks(clock);
    let time = |at: u64| if at == 0 { 0 } else { tools_now.wrapping_sub(now.wrapping_sub(at)) - early };
    let mut at = 0;
    for work in work {
        let is_over = work.start.max(work.end) <= now;
        let (start, end) = if is_over { (time(work.start), time(work.end)) } else { (0, 0) };
        // SAFETY: `Buffer::is_full` has left room for this record.
        let record = unsafe { buffer.memory.add(at) };
        let put = |offset: usize, bytes: &[u8]| {
            // SAFETY: as above.
            unsafe { record.add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        };
        let (kind, place, correlation_at) = match work.kind {
            Kind::Kernel => (10_u32, 40, 92),
            Kind::Copy(_) => (1, 32, 44),
            Kind::Memset => (2, 32, 44),
        };
        let bytes = size_of_kind(kind);
        // SAFETY: as above.
        unsafe { record.write_bytes(0, bytes) };
        put(0, &kind.to_ne_bytes());
        put(16, &start.to_ne_bytes());
        put(24, &end.to_ne_bytes());
        for (number, value) in [work.device, work.context, work.stream].into_iter().enumerate() {
            put(place + 4 * number, &value.to_ne_bytes());
        }
        put(correlation_at, &work.correlation.to_ne_bytes());
        match work.kind {
            Kind::Kernel => put(104, &work.name.addr().to_ne_bytes()),
            Kind::Copy(kind) => put(4, &[kind]),
            Kind::Memset => {}
        }
        at += bytes;
    }
    at
}
