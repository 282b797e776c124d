//! Calls of CUDA's runtime and driver, as frames of the calling thread.

use crate::cupti::{API_ENTER, CallbackData, Cupti, DRIVER_API, RUNTIME_API, Subscriber};
use crate::{HOST, correlation, start};
use ampere_gpu::{CallKind, Expected, Launches, Pending, guarded};
use scorep_abi::{paradigm, region_type};
use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of API functions are below this, in both domains.
const FUNCTIONS_MAX: usize = 2048;

/// For each function, its region, and whether the device's records carry the number of the call; 0 before the function's first
/// call.
static FUNCTIONS: [[AtomicU64; FUNCTIONS_MAX]; 2] =
    [const { [const { AtomicU64::new(0) }; FUNCTIONS_MAX] }; 2];
const HAS_RECORDS: u64 = 1 << 32;
/// With [`HAS_RECORDS`]: the function copies or sets memory.
const COPIES: u64 = 1 << 33;
/// With [`HAS_RECORDS`]: the function launches a graph.
const LAUNCHES_GRAPH: u64 = 1 << 34;

/// The times of the latest launches, by CUPTI's IDs.
pub static LAUNCHES: Launches = Launches::new();

/// The launches whose records have not come, by CUPTI's IDs, extended by [`number`].
pub static PENDING: Pending = Pending::new();

/// The number after the largest one so far.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Extends CUPTI's ID of a launch, which wraps around at 2^32, to 64 bits.
pub fn number(correlation: u32) -> u64 {
    let next = NEXT.load(Ordering::Relaxed);
    next.wrapping_add_signed((correlation.wrapping_sub(next as u32) as i32).into())
}

/// Returns a number that is larger than those of all launches so far.
pub fn next_number() -> u64 {
    NEXT.load(Ordering::Relaxed)
}

thread_local! {
    /// Whether this thread is in a recorded call. Calls inside it are not recorded, because functions of the runtime call those
    /// of the driver.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Enables the callbacks for the functions whose calls are recorded.
pub fn enable(cupti: &Cupti, subscriber: Subscriber) {
    for domain in [DRIVER_API, RUNTIME_API] {
        for id in 1..FUNCTIONS_MAX as u32 {
            let is_wanted = cupti.callback_name(domain, id).is_some_and(|name| call_of(name).is_some());
            if is_wanted {
                // SAFETY: the subscriber is valid.
                unsafe { (cupti.enable_callback)(1, subscriber, domain, id) };
            }
        }
    }
}

/// Returns the kind of the function of this name; `None` if it is not recorded.
fn call_of(name: &CStr) -> Option<CallKind> {
    let name = name.to_str().ok()?.trim_start_matches('_');
    let function = name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu"))?;
    CallKind::of(function)
}

/// CUPTI calls this at the entry and the exit of each function that is enabled.
///
/// # Safety
/// CUPTI is the caller.
pub unsafe extern "C" fn on_call(_: *mut c_void, domain: u32, id: u32, data: *const CallbackData) {
    // SAFETY: CUPTI's structure, valid during the callback.
    let Some(data) = (unsafe { data.as_ref() }) else { return };
    let index = (domain.wrapping_sub(DRIVER_API) as usize, id as usize);
    let Some(function) = FUNCTIONS.get(index.0).and_then(|functions| functions.get(index.1)) else { return };
    if data.kept.is_null() {
        return;
    }
    if data.site == API_ENTER {
        let is_recorded = !IS_INSIDE.get() && enter(function, data);
        IS_INSIDE.set(IS_INSIDE.get() || is_recorded);
        // SAFETY: room for a number, by CUPTI.
        unsafe { data.kept.write(is_recorded.into()) };
    } else {
        // SAFETY: as above; the callback at the entry has written it.
        let is_recorded = unsafe { data.kept.replace(0) } == 1;
        if is_recorded && let Some(host) = HOST.get() {
            IS_INSIDE.set(false);
            let known = function.load(Ordering::Relaxed);
            host.leave(known as u32);
            // SAFETY: by CUPTI, the result of the function, which is a number, or null.
            if known & HAS_RECORDS != 0 && unsafe { data.result.as_ref() }.is_some_and(|result| *result != 0)
            {
                PENDING.expect_no_more(number(data.correlation));
            }
        }
    }
}

/// Opens the frame of a call. Returns whether it is recorded.
fn enter(function: &AtomicU64, data: &CallbackData) -> bool {
    let Some(host) = HOST.get() else { return false };
    let mut known = function.load(Ordering::Relaxed);
    if known == 0 {
        // SAFETY: CUPTI's text, or null.
        known = guarded(0, || unsafe { define(data) });
        function.store(known, Ordering::Relaxed);
    }
    if known & HAS_RECORDS == 0 {
        return known != 0 && host.enter(known as u32, 0);
    }
    let number = number(data.correlation);
    PENDING.put(
        number,
        match known & (COPIES | LAUNCHES_GRAPH) {
            0 => Expected::One,
            COPIES => Expected::AtMostOne,
            _ => Expected::Any,
        },
    );
    NEXT.fetch_max(number + 1, Ordering::Relaxed);
    let is_recorded = host.enter(known as u32, correlation(data.correlation));
    LAUNCHES.add(data.correlation.into(), host.now());
    is_recorded
}

/// Defines the function at its first call. Returns its region with the flags above; 0 if it is not recorded.
///
/// # Safety
/// The function's name is a C string or null.
#[cold]
unsafe fn define(data: &CallbackData) -> u64 {
    let Some(host) = start().filter(|_| !data.function.is_null()) else { return 0 };
    // SAFETY: the caller guarantees this.
    let name = unsafe { CStr::from_ptr(data.function) };
    let Some(call) = call_of(name) else { return 0 };
    let kind = if call == CallKind::Launch { region_type::KERNEL_LAUNCH } else { region_type::FUNCTION };
    let name = name.to_bytes();
    let plain = name.strip_prefix(b"__").unwrap_or(name);
    let region = host.region(plain, kind, paradigm::CUDA);
    let records = match call {
        _ if region == 0 => 0,
        CallKind::Launch if plain.windows(5).any(|part| part == b"Graph") => HAS_RECORDS | LAUNCHES_GRAPH,
        CallKind::Launch => HAS_RECORDS,
        CallKind::Transfer => HAS_RECORDS | COPIES,
        CallKind::Other => 0,
    };
    u64::from(region) | records
}
