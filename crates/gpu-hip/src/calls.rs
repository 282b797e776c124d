//! HIP's calls as frames of the program's threads.

use crate::abi::{CALLBACK_HIP_RUNTIME, SUCCESS};
use crate::library::Library;
use ampere_gpu::{CallKind, Commands, Host, Launches, next_correlation};
use scorep_abi::{paradigm, region_type};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

/// A call that is recorded.
struct Recorded {
    name: String,
    call: CallKind,
    /// 0 until the first call.
    region: AtomicU32,
}

/// The calls that are recorded, by their operations' numbers, which differ between versions.
pub(crate) struct Calls(Vec<Option<Recorded>>);

/// The commands that are not recorded yet.
pub(crate) static COMMANDS: Commands = Commands::new();

/// The times of the latest launches.
pub(crate) static LAUNCHES: Launches = Launches::new();

thread_local! {
    /// The number of the launch or copy that this thread is in; 0 if it is in none.
    static LAUNCH: Cell<u64> = const { Cell::new(0) };
}

/// Operations with larger numbers are ignored.
const OPERATIONS_MAX: usize = 10_000;

impl Calls {
    /// Asks rocprofiler-sdk for the names of all calls.
    pub fn find(library: &Library) -> Calls {
        let mut found = (library, Calls(Vec::new()));
        // SAFETY: `collect` gets what it expects, and is called before this call returns.
        unsafe { (library.each_operation)(CALLBACK_HIP_RUNTIME, collect, (&raw mut found).cast()) };
        found.1
    }

    /// Returns the numbers of the operations that are recorded.
    pub fn operations(&self) -> Vec<c_int> {
        (0..).zip(&self.0).filter_map(|(number, call)| call.as_ref().map(|_| number)).collect()
    }

    /// Handles the start of a call. Returns whether its frame has to be closed.
    pub fn enter(&self, host: &Host, operation: c_int) -> bool {
        let Some(recorded) = self.get(operation) else { return false };
        let number = if recorded.call == CallKind::Other { 0 } else { next_correlation(paradigm::HIP) };
        LAUNCH.set(number);
        if number != 0 {
            COMMANDS.put(number);
        }
        let is_open = host.enter(recorded.region(host), number);
        if number != 0 {
            LAUNCHES.add(number, host.now());
        }
        is_open
    }

    /// Handles the end of a call. `is_open` is what [`enter`](Self::enter) returned for this call.
    pub fn leave(&self, host: &Host, operation: c_int, is_open: bool) {
        let number = LAUNCH.replace(0);
        if number != 0 {
            COMMANDS.recorded(number);
        }
        if let Some(recorded) = self.get(operation).filter(|_| is_open) {
            host.leave(recorded.region(host));
        }
    }

    fn get(&self, operation: c_int) -> Option<&Recorded> {
        self.0.get(usize::try_from(operation).ok()?)?.as_ref()
    }
}

impl Recorded {
    fn region(&self, host: &Host) -> u32 {
        match self.region.load(Ordering::Relaxed) {
            0 => {
                let region_type = match self.call {
                    CallKind::Launch => region_type::KERNEL_LAUNCH,
                    CallKind::Transfer | CallKind::Other => region_type::FUNCTION,
                };
                let region = host.region(self.name.as_bytes(), region_type, paradigm::HIP);
                self.region.store(region, Ordering::Relaxed);
                region
            }
            region => region,
        }
    }
}

/// Returns the number of the launch that the calling thread is in.
pub(crate) fn launch() -> u64 {
    LAUNCH.get()
}

unsafe extern "C" fn collect(kind: c_int, operation: c_int, data: *mut c_void) -> c_int {
    // SAFETY: `find` passes this, and nothing else uses it now.
    let (library, calls) = unsafe { &mut *data.cast::<(&Library, Calls)>() };
    let mut name: *const c_char = std::ptr::null();
    // SAFETY: the function's own contract; the length is not asked for.
    let status = unsafe { (library.operation_name)(kind, operation, &mut name, std::ptr::null_mut()) };
    let Some(number) = usize::try_from(operation).ok().filter(|number| *number < OPERATIONS_MAX) else {
        return 0;
    };
    if status != SUCCESS || name.is_null() {
        return 0;
    }
    // SAFETY: by the interface, a literal of rocprofiler-sdk.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    if let Some(call) = name.strip_prefix("hip").and_then(CallKind::of) {
        if calls.0.len() <= number {
            calls.0.resize_with(number + 1, || None);
        }
        calls.0[number] = Some(Recorded { name, call, region: AtomicU32::new(0) });
    }
    0
}
