//! HIP's calls as frames of the program's threads.

use crate::abi::{CALLBACK_HIP_RUNTIME, SUCCESS};
use crate::library::Library;
use ampere_gpu::{Host, next_correlation};
use scorep_abi::{paradigm, region_type};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

/// What a call does, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Launch,
    /// Copies or sets memory, often by a kernel.
    Copy,
    /// Waits, or gets or returns memory.
    Other,
}

/// Returns what a call of this name does; `None` for calls that are not recorded.
fn what(name: &str) -> Option<What> {
    let begins = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    let is_launch = name.contains("Launch") && name != "hipLaunchHostFunc" && !name.contains("Graph");
    if is_launch || name.starts_with("hipGraphLaunch") {
        Some(What::Launch)
    } else if begins(&["hipMemcpy", "hipMemset", "hipDrvMemcpy", "hipMemPrefetch"]) {
        Some(What::Copy)
    } else if name.trim_end_matches("_spt").ends_with("Synchronize")
        || begins(&[
            "hipMalloc",
            "hipFree",
            "hipHostMalloc",
            "hipHostAlloc",
            "hipHostFree",
            "hipExtMalloc",
            "hipMemAlloc",
        ])
    {
        Some(What::Other)
    } else {
        None
    }
}

/// A call that is recorded.
struct Call {
    name: String,
    what: What,
    /// 0 until the first call.
    region: AtomicU32,
}

/// The calls that are recorded, by their operations' numbers, which differ between versions.
pub(crate) struct Calls(Vec<Option<Call>>);

thread_local! {
    /// The number of the launch or copy that this thread is in; 0 if it is in none.
    static LAUNCH: Cell<u64> = const { Cell::new(0) };
}

/// The largest number of operations that is believed.
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

    /// A call begins. Returns whether its frame has to be closed.
    pub fn enter(&self, host: &Host, operation: c_int) -> bool {
        let Some(call) = self.get(operation) else { return false };
        let number = if call.what == What::Other { 0 } else { next_correlation(paradigm::HIP) };
        LAUNCH.set(number);
        host.enter(call.region(host), number)
    }

    /// A call ends. `is_open` is what [`enter`](Self::enter) returned for it.
    pub fn leave(&self, host: &Host, operation: c_int, is_open: bool) {
        LAUNCH.set(0);
        if let Some(call) = self.get(operation).filter(|_| is_open) {
            host.leave(call.region(host));
        }
    }

    fn get(&self, operation: c_int) -> Option<&Call> {
        self.0.get(usize::try_from(operation).ok()?)?.as_ref()
    }
}

impl Call {
    fn region(&self, host: &Host) -> u32 {
        match self.region.load(Ordering::Relaxed) {
            0 => {
                let region_type = match self.what {
                    What::Launch => region_type::KERNEL_LAUNCH,
                    What::Copy | What::Other => region_type::FUNCTION,
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
    if let Some(what) = what(&name) {
        if calls.0.len() <= number {
            calls.0.resize_with(number + 1, || None);
        }
        calls.0[number] = Some(Call { name, what, region: AtomicU32::new(0) });
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_copies_waits_and_memory_are_recorded_and_nothing_else() {
        let launches = [
            "hipLaunchKernel",
            "hipExtLaunchKernel",
            "hipModuleLaunchKernel",
            "hipExtModuleLaunchKernel",
            "hipLaunchCooperativeKernel",
            "hipLaunchCooperativeKernelMultiDevice",
            "hipLaunchKernel_spt",
            "hipLaunchKernelExC",
            "hipGraphLaunch",
            "hipGraphLaunch_spt",
        ];
        let copies =
            ["hipMemcpy", "hipMemcpyAsync", "hipMemcpy2DToArray", "hipMemsetD32Async", "hipDrvMemcpy3D"];
        let others = [
            "hipDeviceSynchronize",
            "hipStreamSynchronize_spt",
            "hipMalloc",
            "hipMallocAsync",
            "hipFree",
            "hipHostMalloc",
            "hipFreeHost",
            "hipHostFree",
        ];
        let not_recorded = [
            "hipGetLastError",
            "hipSetDevice",
            "hipGraphAddMemcpyNode",
            "hipGraphAddKernelNode",
            "hipGraphKernelNodeSetParams",
            "hipDrvGraphAddMemcpyNode",
            "hipLaunchHostFunc",
            "hipEventRecord",
            "hipGetDeviceFlags",
        ];
        let of = |names: &[&str]| names.iter().map(|name| what(name)).collect::<Vec<_>>();
        assert_eq!(of(&launches), [Some(What::Launch); 10]);
        assert_eq!(of(&copies), [Some(What::Copy); 5]);
        assert_eq!(of(&others), [Some(What::Other); 8]);
        assert_eq!(of(&not_recorded), [None; 9]);
    }
}
