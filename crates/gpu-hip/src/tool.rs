//! The configuration, the thread that requests the buffered records, and the end of the measurement.

use crate::abi::{
    BUFFER_KERNEL_DISPATCH, BUFFER_MEMORY_COPY, CALLBACK_CODE_OBJECT, CALLBACK_HIP_RUNTIME,
    CODE_OBJECT_KERNEL, CallbackRecord, Correlation, Correlation1, Handle, PHASE_ENTER, PHASE_EXIT,
    POLICY_LOSSLESS, REQUEST_KERNEL_DISPATCH, REQUEST_MEMORY_COPY, RecordHeader, SUCCESS, Status,
};
use crate::calls::{self, COMMANDS, Calls};
use crate::devices::gpus;
use crate::library::{Callback, Library};
use crate::records::{Kernels, Streams};
use ampere_gpu::{Host, Losses, guarded, regularly};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The buffer's size: about 1,200 kernels. rocprofiler-sdk allocates two buffers, each 17 times as large.
const BUFFER_BYTES: usize = 256 * 1024;
/// A thread of rocprofiler-sdk delivers the buffer when it contains this number of bytes.
const WATERMARK_BYTES: usize = BUFFER_BYTES / 4;
/// The period, and the maximum number, of the last deliveries at the end, while records are missing.
const LAST_DELIVERIES_PERIOD: Duration = Duration::from_millis(2);
const LAST_DELIVERIES_MAX: usize = 50;
/// The number of readings of the clock from which the best is used.
const CLOCK_READINGS: usize = 5;

struct Tool {
    host: Host,
    version: u32,
    library: Library,
    calls: Calls,
    kernels: Kernels,
    losses: Losses,
    streams: Mutex<Option<Streams>>,
    /// The number of kernels and copies that were put into queues.
    launched: AtomicU64,
    buffer: AtomicU64,
    /// The id of the process that has started the measurement: a forked child has neither its threads nor its measurement.
    process: AtomicU32,
    /// Whether rocprofiler-sdk delivers no more records.
    is_ended: AtomicBool,
}

static TOOL: OnceLock<Tool> = OnceLock::new();

/// Finds rocprofiler-sdk's functions. Returns whether kernels can be recorded.
pub(crate) fn prepare(host: Host, version: u32) -> bool {
    let library = match Library::find() {
        Ok(library) => library,
        Err(missing) => {
            host.message(&format!("GPU kernels are not recorded: rocprofiler-sdk has no function {missing}"));
            return false;
        }
    };
    let tool = Tool {
        host,
        version,
        calls: Calls::find(&library),
        library,
        kernels: Kernels::default(),
        losses: Losses::new(scorep_abi::paradigm::HIP),
        streams: Mutex::new(None),
        launched: AtomicU64::new(0),
        buffer: AtomicU64::new(0),
        process: AtomicU32::new(0),
        is_ended: AtomicBool::new(false),
    };
    TOOL.set(tool).is_ok()
}

/// Called by rocprofiler-sdk to configure what it records.
///
/// # Safety
/// Called by rocprofiler-sdk after [`crate::rocprofiler_configure`].
pub(crate) unsafe extern "C" fn initialize(_finalize: *const c_void, _data: *mut c_void) -> c_int {
    guarded(-1, || {
        let Some(tool) = TOOL.get() else { return -1 };
        match tool.configure() {
            Ok(()) => 0,
            Err((function, status)) => {
                tool.host.message(&format!(
                    "GPU kernels are not recorded: {function} failed with status {status}"
                ));
                -1
            }
        }
    })
}

/// A call that failed, and its status.
type Failed = (&'static str, Status);

fn check(function: &'static str, status: Status) -> Result<(), Failed> {
    if status == SUCCESS { Ok(()) } else { Err((function, status)) }
}

impl Tool {
    fn configure(&self) -> Result<(), Failed> {
        let library = &self.library;
        let mut context = Handle::default();
        // SAFETY: a place for the number.
        check("rocprofiler_create_context", unsafe { (library.create_context)(&mut context) })?;
        let mut buffer = Handle::default();
        // Writers wait when the buffer is full. The policy that discards records loses every second buffer in version 1.0.
        // SAFETY: the callback lives as long as the process.
        check("rocprofiler_create_buffer", unsafe {
            (library.create_buffer)(
                context,
                BUFFER_BYTES,
                WATERMARK_BYTES,
                POLICY_LOSSLESS,
                delivered,
                null_mut(),
                &mut buffer,
            )
        })?;
        self.buffer.store(buffer.0, Ordering::Relaxed);
        for kind in [BUFFER_KERNEL_DISPATCH, BUFFER_MEMORY_COPY] {
            // SAFETY: no operations means all.
            let status = unsafe { (library.trace_into_buffer)(context, kind, std::ptr::null(), 0, buffer) };
            check("rocprofiler_configure_buffer_tracing_service", status)?;
        }
        self.trace_by_callback(context, CALLBACK_CODE_OBJECT, &[])?;
        let operations = self.calls.operations();
        if !operations.is_empty() {
            self.trace_by_callback(context, CALLBACK_HIP_RUNTIME, &operations)?;
        }
        let kinds = [REQUEST_KERNEL_DISPATCH, REQUEST_MEMORY_COPY];
        // SAFETY: the kinds are read during the call; the callback lives as long as the process.
        check("rocprofiler_configure_external_correlation_id_request_service", unsafe {
            (library.ask_for_numbers)(context, kinds.as_ptr(), kinds.len(), number_asked, null_mut())
        })?;
        // SAFETY: the context was made above.
        check("rocprofiler_start_context", unsafe { (library.start_context)(context) })
    }

    fn trace_by_callback(&self, context: Handle, kind: c_int, operations: &[c_int]) -> Result<(), Failed> {
        let callback = match self.version {
            ..10_000 => called::<Correlation> as Callback<Correlation> as *const c_void,
            10_000.. => called::<Correlation1> as Callback<Correlation1> as *const c_void,
        };
        let list = if operations.is_empty() { std::ptr::null() } else { operations.as_ptr() };
        // SAFETY: the operations are read during the call; the callback is the one for this version.
        let status = unsafe {
            (self.library.trace_by_callback)(context, kind, list, operations.len(), callback, null_mut())
        };
        check("rocprofiler_configure_callback_tracing_service", status)
    }

    /// Whether commands are recorded in this process. The first call of HIP starts the measurement.
    fn is_recording(&self) -> bool {
        match self.process.load(Ordering::Acquire) {
            0 => self.start(),
            _ => self.host.is_recording(),
        }
    }

    #[cold]
    fn start(&self) -> bool {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if self.process.load(Ordering::Acquire) != 0 {
            return self.host.is_recording();
        }
        let is_started = self.host.start(flush);
        if is_started {
            *streams = Some(Streams::new(gpus(&self.library), self.host.ticks_per_nanosecond()));
        }
        drop(streams);
        self.process.store(std::process::id(), Ordering::Release);
        if is_started {
            self.read_clock();
            // The collector knows from now on that there will be streams.
            self.losses.report(&self.host);
            regularly("ampere-hip", deliver_regularly);
        }
        is_started
    }

    fn read_clock(&self) {
        let reading = |_| {
            let mut time = 0;
            let before = self.host.now();
            // SAFETY: a place for the time.
            let status = unsafe { (self.library.time)(&mut time) };
            let after = self.host.now();
            (status == SUCCESS).then_some((before, time, after))
        };
        let best = (0..CLOCK_READINGS)
            .filter_map(reading)
            .min_by_key(|(before, _, after)| after.saturating_sub(*before));
        if let Some(reading) = best {
            self.with_streams(|streams| streams.read_clock(&self.host, reading, &self.losses));
        }
    }

    fn with_streams(&self, body: impl FnOnce(&mut Streams)) {
        if let Some(streams) = self.streams.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            body(streams);
        }
    }

    /// Asks rocprofiler-sdk to deliver the records in the buffer now.
    fn deliver(&self) {
        if self.is_ended.load(Ordering::Acquire) || self.process.load(Ordering::Acquire) != std::process::id()
        {
            return;
        }
        self.read_clock();
        self.with_streams(|streams| streams.remember(self.host.now()));
        // SAFETY: the buffer of `configure`.
        unsafe { (self.library.flush_buffer)(Handle(self.buffer.load(Ordering::Relaxed))) };
        self.with_streams(|streams| streams.report_known(&self.host));
        self.losses.report(&self.host);
    }

    /// Whether the records of some commands are still expected.
    fn is_waiting(&self) -> bool {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.as_ref().is_some_and(|streams| streams.has_less_than(self.launched.load(Ordering::Relaxed)))
    }

    /// Makes the last deliveries, and counts the commands whose records have not come. The runtime may notice the end of a
    /// command a moment later than the program that waits for it.
    fn end(&self) {
        if self.process.load(Ordering::Acquire) != std::process::id() {
            return;
        }
        self.deliver();
        for _ in 0..LAST_DELIVERIES_MAX {
            if self.is_ended.load(Ordering::Acquire) || !self.is_waiting() {
                break;
            }
            std::thread::sleep(LAST_DELIVERIES_PERIOD);
            self.deliver();
        }
        let launched = self.launched.load(Ordering::Relaxed);
        self.with_streams(|streams| self.losses.count(streams.missing(launched)));
        self.losses.report(&self.host);
    }
}

/// Delivers records regularly, until no more can come. Without this, they come only when the watermark is reached, and at the
/// end.
fn deliver_regularly() -> bool {
    let tool = TOOL.get().filter(|tool| !tool.is_ended.load(Ordering::Acquire));
    tool.map(Tool::deliver).is_some()
}

/// Called by the host before the measurement ends.
extern "C" fn flush() {
    guarded((), || TOOL.get().into_iter().for_each(Tool::end));
}

/// Called by rocprofiler-sdk before it ends, at the program's exit.
///
/// # Safety
/// Called by rocprofiler-sdk.
pub(crate) unsafe extern "C" fn finalize(_data: *mut c_void) {
    flush();
    guarded((), || {
        if let Some(tool) = TOOL.get() {
            tool.is_ended.store(true, Ordering::Release);
        }
    });
}

/// Receives a batch of records.
unsafe extern "C" fn delivered(
    _context: Handle,
    _buffer: Handle,
    headers: *const *const RecordHeader,
    count: usize,
    _data: *mut c_void,
    dropped: u64,
) {
    guarded((), || {
        let Some(tool) = TOOL.get() else { return };
        let mut streams = tool.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(streams) = streams.as_mut() else { return };
        if headers.is_null() {
            return;
        }
        // SAFETY: by the interface, `count` pointers to headers, which live during the call.
        unsafe {
            let headers = std::slice::from_raw_parts(headers, count);
            streams.take(&tool.host, &tool.kernels, &tool.losses, headers, dropped);
        }
    });
}

/// rocprofiler-sdk calls this when a call of HIP begins or ends, and when a kernel of a code object gets its ID.
unsafe extern "C" fn called<C>(record: CallbackRecord<C>, remembered: *mut u64, _data: *mut c_void) {
    guarded((), || {
        let Some(tool) = TOOL.get() else { return };
        match (record.kind, record.phase) {
            (CALLBACK_CODE_OBJECT, PHASE_ENTER) if record.operation == CODE_OBJECT_KERNEL => {
                // SAFETY: by the interface, the payload of this operation.
                unsafe { tool.kernels.add(record.payload.cast()) };
            }
            (CALLBACK_HIP_RUNTIME, PHASE_ENTER) => {
                let is_open = tool.is_recording() && tool.calls.enter(&tool.host, record.operation);
                if !remembered.is_null() {
                    // SAFETY: by the interface, a place that is ours from the call's start to its end.
                    unsafe { *remembered = is_open.into() };
                }
            }
            (CALLBACK_HIP_RUNTIME, PHASE_EXIT) if !remembered.is_null() => {
                // SAFETY: as above.
                tool.calls.leave(&tool.host, record.operation, unsafe { *remembered } == 1);
            }
            _ => {}
        }
    });
}

/// rocprofiler-sdk calls this when a kernel or a copy is put into a queue, to learn the number that its launch has here.
unsafe extern "C" fn number_asked(
    _thread: u64,
    _context: Handle,
    _kind: c_int,
    _operation: c_int,
    _internal: u64,
    number: *mut u64,
    _data: *mut c_void,
) -> c_int {
    guarded(1, || {
        let Some(tool) = TOOL.get().filter(|tool| tool.is_recording()) else { return 1 };
        tool.launched.fetch_add(1, Ordering::Relaxed);
        let launch = calls::launch();
        COMMANDS.put(launch);
        if launch == 0 || number.is_null() {
            return 1;
        }
        // SAFETY: by the interface, a place for the number.
        unsafe { *number = launch };
        0
    })
}
