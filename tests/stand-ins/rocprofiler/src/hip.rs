//! Wraps HIP's table of functions, and makes records of its commands.

use crate::abi::*;
use crate::{
    Asked, BEGIN, Called, Context, END, PUT, RECORDS, SPENT, buffer, shown, timed, version, with, word,
};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

/// The calls by their operations' numbers. The first number does not stand for a call.
pub(crate) const NAMES: [&CStr; 9] = [
    c"none",
    c"hipGetLastError",
    c"hipMalloc",
    c"hipFree",
    c"hipMemcpyAsync",
    c"hipLaunchKernel",
    c"hipStreamSynchronize",
    c"hipDeviceSynchronize",
    c"hipDeviceReset",
];

/// The table in `tests/programs/amdhip64.c`, the stand-in for HIP, which calls each function when the event in its name occurs.
#[repr(C)]
pub(crate) struct Table {
    begin: extern "C" fn(operation: c_int) -> u64,
    end: extern "C" fn(operation: c_int, number: u64),
    /// A kernel of this name was loaded.
    load: unsafe extern "C" fn(name: *const c_char) -> u64,
    /// A command was put into a queue.
    put: extern "C" fn(kind: c_int, operation: c_int) -> u64,
    /// A command has run.
    done: extern "C" fn(command: *const Command),
}

/// A command that has run.
#[repr(C)]
pub(crate) struct Command {
    kind: c_int,
    operation: c_int,
    agent: u64,
    queue: u64,
    kernel: u64,
    ticket: u64,
    start: u64,
    end: u64,
}

/// Prints how long the tools' functions took.
pub(crate) fn print_times() {
    if word("timed").is_some() {
        let calls: f64 = [BEGIN, PUT, END].iter().map(|which| SPENT[*which].mean()).sum();
        let (done, records) = (DONE.load(Ordering::Relaxed), SPENT[RECORDS].mean());
        eprintln!(
            "stand-in: {done} commands, {calls:.0} ns of calls and {records:.0} ns of records for each"
        );
    }
}

/// # Safety
/// `table` is HIP's.
pub(crate) unsafe fn wrap(table: *mut Table) {
    // SAFETY: this function's contract.
    unsafe { *table = Table { begin, end, load, put, done } };
}

fn contexts() -> Vec<Context> {
    with(|state| state.contexts.iter().filter(|context| context.is_started).cloned().collect())
}

fn thread() -> u64 {
    // SAFETY: takes no argument.
    unsafe { libc::gettid() as u64 }
}

thread_local! {
    /// The number of the call that this thread is in, and the value that the tool has stored for it.
    static CALL: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

static NEXT: AtomicU64 = AtomicU64::new(1);
/// Number of commands that were put into queues, and that have run.
static LAUNCHED: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);

/// Waits for up to 0.2 s until all commands have run, as the real library does when the program ends.
pub(crate) fn settle() {
    for _ in 0..40 {
        if DONE.load(Ordering::Acquire) == LAUNCHED.load(Ordering::Acquire) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn call_back(kind: c_int, operation: c_int, phase: c_int, payload: *const c_void) {
    let (internal, mut remembered) = CALL.get();
    for context in contexts() {
        for (wanted, operations, callback, data) in &context.callbacks {
            if *wanted != kind || !operations.is_empty() && !operations.contains(&operation) {
                continue;
            }
            let context = Handle(1);
            let thread = thread();
            let data = *data as *mut c_void;
            let since_0 = Correlation { internal, external: 0 };
            // SAFETY: the tool's callback for this version.
            timed(if phase == PHASE_ENTER { BEGIN } else { END }, 1, || unsafe {
                if version() < 10_000 {
                    let run = std::mem::transmute::<usize, Called<Correlation>>(*callback);
                    let correlation = since_0;
                    run(
                        CallbackRecord { context, thread, correlation, kind, operation, phase, payload },
                        &mut remembered,
                        data,
                    );
                } else {
                    let run = std::mem::transmute::<usize, Called<Correlation1>>(*callback);
                    let correlation = Correlation1 { since_0, ancestor: 0 };
                    run(
                        CallbackRecord { context, thread, correlation, kind, operation, phase, payload },
                        &mut remembered,
                        data,
                    );
                }
            });
        }
    }
    CALL.set((internal, remembered));
}

extern "C" fn begin(operation: c_int) -> u64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    CALL.set((number, 0));
    call_back(CALLBACK_HIP_RUNTIME, operation, PHASE_ENTER, std::ptr::null());
    number
}

extern "C" fn end(operation: c_int, _number: u64) {
    call_back(CALLBACK_HIP_RUNTIME, operation, PHASE_EXIT, std::ptr::null());
    CALL.set((0, 0));
}

unsafe extern "C" fn load(name: *const c_char) -> u64 {
    let kernel = NEXT.fetch_add(1, Ordering::Relaxed);
    // The real structure is longer.
    #[repr(C)]
    struct Whole(KernelSymbol, [u64; 8]);
    let symbol = KernelSymbol { size: size_of::<Whole>() as u64, kernel, code_object: 1, name };
    let whole = Whole(symbol, [0; 8]);
    call_back(CALLBACK_CODE_OBJECT, CODE_OBJECT_KERNEL, PHASE_ENTER, (&raw const whole).cast());
    kernel
}

/// Asks the tool for the number of the launch.
extern "C" fn put(kind: c_int, operation: c_int) -> u64 {
    LAUNCHED.fetch_add(1, Ordering::AcqRel);
    let (request, asked_operation) = match kind {
        BUFFER_KERNEL_DISPATCH => (REQUEST_KERNEL_DISPATCH, 1),
        _ => (REQUEST_MEMORY_COPY, operation),
    };
    let mut number = 0;
    for context in contexts() {
        let Some((kinds, asked, data)) = &context.asked else { continue };
        let asked: Asked = *asked;
        let thread = thread();
        if kinds.contains(&request) {
            // SAFETY: the tool's callback.
            timed(PUT, 1, || unsafe {
                asked(
                    thread,
                    Handle(1),
                    request,
                    asked_operation,
                    CALL.get().0,
                    &mut number,
                    *data as *mut c_void,
                );
            });
        }
    }
    number
}

extern "C" fn done(command: *const Command) {
    // SAFETY: HIP passes a command that lives during the call.
    let command = unsafe { &*command };
    let correlation = Correlation { internal: 0, external: command.ticket };
    let (start, end) = (shown(command.start), shown(command.end));
    let (kind, thread) = (command.kind, thread());
    let record = match kind {
        BUFFER_KERNEL_DISPATCH => {
            // SAFETY: zero is a value of all fields.
            let mut info: DispatchInfo = unsafe { std::mem::zeroed() };
            info.size = 72;
            info.agent = Handle(command.agent);
            info.queue = Handle(command.queue);
            info.kernel = command.kernel;
            let size = size_of::<KernelDispatch>() as u64;
            words(&KernelDispatch { size, kind, operation: 2, correlation, thread, start, end, info })
        }
        _ => {
            let (to, from) = match command.operation {
                COPY_DEVICE_TO_HOST => (Handle(crate::CPU), Handle(command.agent)),
                _ => (Handle(command.agent), Handle(crate::CPU)),
            };
            let size = size_of::<MemoryCopy>() as u64;
            let operation = command.operation;
            words(&MemoryCopy { size, kind, operation, correlation, thread, start, end, to, from, bytes: 64 })
        }
    };
    for context in contexts() {
        for (wanted, buffer) in &context.buffers {
            if *wanted == kind {
                buffer::put(*buffer, kind, record.clone());
            }
        }
    }
    DONE.fetch_add(1, Ordering::AcqRel);
}

fn words<T: Copy>(record: &T) -> Vec<u64> {
    // SAFETY: records consist of fields without gaps, and their size is a multiple of 8.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(record).cast::<u64>(), size_of::<T>() / 8) }
        .to_vec()
}
