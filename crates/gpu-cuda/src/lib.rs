//! Sees the kernels of CUDA programs: `libampere_cuda.so`.
//!
//! CUDA's driver loads this library in `cuInit`, by `CUDA_INJECTION64_PATH`. It opens the libcupti that fits the program's CUDA,
//! and asks it for records of kernels, copies and memsets, and for callbacks of the calls that launch them, wait and allocate. It
//! is not linked with NVIDIA's libraries.
//!
//! | file | subject |
//! | --- | --- |
//! | `library.rs` | finding the libcupti that fits |
//! | `cupti.rs` | its functions and types |
//! | `calls.rs` | calls of the program, as frames of its threads |
//! | `records.rs` | records, as frames of GPU locations |
//! | `clock.rs` | the clock that CUPTI converts the devices' times to |
//! | `devices.rs` | identifying the GPU of a device |
//!
//! CUPTI serves one tool at a time. If another tool uses it already, this library does nothing. If the program's own profiler
//! starts later, as PyTorch's does, the host first calls [`leave_to_program`], so that the profiler finds CUPTI free.
//!
//! Limits: versions before CUDA 11.6 have no clock that can be replaced, and are left alone; work that is still running when the
//! program ends is counted as not recorded; a program that ends by `_exit` or a signal loses the records of the last
//! quarter of a second.
#![warn(missing_docs)]

mod calls;
mod clock;
#[allow(missing_docs)]
pub mod cupti;
mod devices;
mod library;
mod records;

use ampere_gpu::{Host, Losses, guarded, regularly};
use cupti::{Cupti, FLUSH_FORCED, MULTIPLE_SUBSCRIBERS, SUCCESS, Status, Subscriber, VERSION_MIN, kind};
use scorep_abi::paradigm;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The error of kernel times, in nanoseconds, as measured on an H100.
const CLOCK_ERROR: u64 = 1300;

/// The time between two deliveries of records by CUPTI, in milliseconds.
const FLUSH_PERIOD: u32 = 250;

/// The kinds of records that are requested.
const KINDS: [u32; 4] = [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMCPY2, kind::MEMSET];

static HOST: OnceLock<Host> = OnceLock::new();
static CUPTI: OnceLock<Cupti> = OnceLock::new();
static LOSSES: Losses = Losses::new(paradigm::CUDA);
/// The handle of this library's subscription to CUPTI; null if there is none.
static SUBSCRIBER: AtomicPtr<std::ffi::c_void> = AtomicPtr::new(std::ptr::null_mut());

/// CUDA's driver calls this in `cuInit`. The result lets CUDA continue.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    guarded((), || {
        if let Some(host) = Host::open("CUDA")
            && let Err(why) = attach(host)
        {
            host.message(&format!("CUDA kernels are not recorded: {why}"));
        }
    });
    1
}

/// The reason why CUDA's work is not recorded.
#[derive(Debug)]
enum Refused {
    /// There is no libcupti. Contains the file that was looked for.
    NoLibrary(String),
    /// The library lacks a function. Contains the function's name.
    Lacks(&'static str),
    /// The library is too old. Contains its version.
    TooOld(u32),
    /// Another tool uses CUPTI in this process.
    InUse,
    /// A function failed. Contains its name and the error.
    Failed(&'static str, String),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, to: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Refused::NoLibrary(file) => write!(
                to,
                "there is no {file} where the program's CUDA is; CUDA_HOME/extras/CUPTI and PyPI's nvidia-cuda-cupti have \
                 it: add its directory to LD_LIBRARY_PATH"
            ),
            Refused::Lacks(function) => {
                write!(to, "this libcupti has no {function}: CUDA 11.6 or later is needed")
            }
            Refused::TooOld(version) => {
                write!(to, "this libcupti has version {version}: CUDA 11.6 or later is needed")
            }
            Refused::InUse => {
                write!(
                    to,
                    "another tool, such as Nsight Systems or a profiler of the program's own, uses CUPTI"
                )
            }
            Refused::Failed(function, error) => write!(to, "{function}: {error}"),
        }
    }
}

fn attach(host: Host) -> Result<(), Refused> {
    let library = library::open().map_err(|missing| Refused::NoLibrary(missing.0))?;
    // SAFETY: the library is libcupti.
    let cupti = unsafe { Cupti::new(library) }.map_err(Refused::Lacks)?;
    let version = cupti.version();
    if version < VERSION_MIN {
        return Err(Refused::TooOld(version));
    }
    clock::start(host);
    let cupti = CUPTI.get_or_init(|| cupti);
    let _ = HOST.set(host);
    LOSSES.raise_clock_error_to(CLOCK_ERROR);
    let mut subscriber: Subscriber = std::ptr::null_mut();
    // SAFETY: the callback has the required type and lives as long as the process.
    let status = unsafe { (cupti.subscribe)(&mut subscriber, calls::on_call, std::ptr::null_mut()) };
    if status == MULTIPLE_SUBSCRIBERS {
        return Err(Refused::InUse);
    }
    let done = |function, status: Status| match status {
        SUCCESS => Ok(()),
        _ => Err(Refused::Failed(function, cupti.text(status))),
    };
    done("cuptiSubscribe", status)?;
    SUBSCRIBER.store(subscriber, Ordering::Release);
    // SAFETY: functions of the required types, which live as long as the process.
    let prepared = unsafe {
        done("cuptiActivityRegisterTimestampCallback", (cupti.register_clock)(clock::now)).and_then(|()| {
            let status = (cupti.register_callbacks)(records::on_request, records::on_complete);
            done("cuptiActivityRegisterCallbacks", status)
        })
    };
    if prepared.is_err() {
        leave(cupti);
        return prepared;
    }
    for kind in KINDS {
        // Kinds that this version does not have are left out.
        // SAFETY: the function takes a number.
        unsafe { (cupti.enable)(kind) };
    }
    // SAFETY: the function takes a number.
    unsafe { (cupti.flush_period)(FLUSH_PERIOD) };
    calls::enable(cupti, subscriber);
    host.set_release_cupti(leave_to_program);
    Ok(())
}

/// Starts the measurement, at the first call that matters. Returns the host if events are recorded.
fn start() -> Option<&'static Host> {
    static IS_STARTED: OnceLock<bool> = OnceLock::new();
    let host = HOST.get()?;
    let start = || {
        devices::find();
        let is_started = host.start(flush);
        if is_started {
            regularly("ampere-cuda", records::report_known);
        }
        is_started
    };
    IS_STARTED.get_or_init(start).then_some(host)
}

/// Delivers the records that CUPTI still has, before the measurement ends.
extern "C" fn flush() {
    guarded((), || {
        if let Some(cupti) = CUPTI.get()
            && !SUBSCRIBER.load(Ordering::Acquire).is_null()
        {
            // SAFETY: the function takes a number.
            unsafe { (cupti.flush_all)(FLUSH_FORCED) };
        }
    });
}

/// Leaves CUPTI, because the program itself is about to subscribe to it.
extern "C" fn leave_to_program() {
    guarded((), || {
        if let (Some(cupti), Some(host)) = (CUPTI.get(), HOST.get())
            && leave(cupti)
        {
            host.message(
                "CUDA kernels are not recorded from here on: a profiler of the program's own uses CUPTI",
            );
        }
    });
}

/// Releases CUPTI, so that another tool can use it. Returns whether this library had it.
fn leave(cupti: &Cupti) -> bool {
    let subscriber = SUBSCRIBER.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if subscriber.is_null() {
        return false;
    }
    // SAFETY: numbers, and this library's own subscriber.
    unsafe {
        (cupti.flush_all)(FLUSH_FORCED);
        for kind in KINDS {
            (cupti.disable)(kind);
        }
        (cupti.flush_period)(0);
        (cupti.register_clock)(clock::wall);
        (cupti.unsubscribe)(subscriber);
    }
    true
}

/// Returns our number of a launch, made from CUPTI's number; 0 if the launch has none.
fn correlation(number: u32) -> u64 {
    if number == 0 { 0 } else { (paradigm::CUDA as u64) << 56 | u64::from(number) }
}
