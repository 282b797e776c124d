//! The functions that a program calls: those of CUDA's driver, and those of its runtime, which calls the driver.

use crate::cupti::{DRIVER, RUNTIME, around, record};
use crate::gpu::{DEFAULT_STREAM, FIRST_STREAM, Kind, Work, gpu, gpus};
use crate::{cupti, entry, now, read_clock};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{Once, OnceLock};

/// The structure that a program passes as the function of a kernel: the kernel's name, and how long it takes.
#[repr(C)]
pub struct Kernel {
    name: *const c_char,
    nanoseconds: u64,
}

#[repr(C)]
pub struct Dim3([c_uint; 3]);

/// Loads the tool that `CUDA_INJECTION64_PATH` names, once.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_: c_uint) -> c_int {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function lives as long as the process.
        unsafe { libc::atexit(cupti::print_times) };
        let Some(tool) = std::env::var_os("CUDA_INJECTION64_PATH") else { return };
        let Ok(tool) = CString::new(tool.into_encoded_bytes()) else { return };
        // SAFETY: loads a tool and calls its function, as the driver does.
        unsafe {
            let library = libc::dlopen(tool.as_ptr(), libc::RTLD_NOW);
            let start = if library.is_null() {
                library
            } else {
                libc::dlsym(library, c"InitializeInjection".as_ptr())
            };
            if !start.is_null() {
                std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(start)();
            }
        }
    });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller's number.
    unsafe { version.write(13_000) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    // SAFETY: the caller's number.
    unsafe { count.write(gpus() as c_int) };
    0
}

/// Returns the address that the stand-in for NVML gives to the same device. Parts of a GPU have the GPU's address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(text: *mut c_char, bytes: c_int, device: c_int) -> c_int {
    let number = if entry("swapped") > 0 { gpus() as c_int - 1 - device } else { device };
    let bus = if entry("mig") > 0 { 0xC1 } else { 0xC1 + number };
    let address = CString::new(format!("0000:{bus:02X}:00.0")).unwrap_or_default();
    // SAFETY: the caller's buffer.
    unsafe { put(text, bytes, &address) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(text: *mut c_char, bytes: c_int, _: c_int) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { put(text, bytes, c"Stand-in GPU") }
}

unsafe fn put(text: *mut c_char, bytes: c_int, own: &CStr) -> c_int {
    let own = own.to_bytes_with_nul();
    if own.len() > bytes as usize {
        return 1;
    }
    // SAFETY: there is room, as checked.
    unsafe { text.copy_from_nonoverlapping(own.as_ptr().cast(), own.len()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { uuid.write([0x11 + device as u8; 16]) };
    0
}

/// The number of a stream: the handle itself.
fn stream_of(stream: *mut c_void) -> u32 {
    if stream.is_null() { DEFAULT_STREAM } else { stream.addr() as u32 }
}

fn wait_until(time: u64) {
    loop {
        let left = time.saturating_sub(now());
        if left == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_nanos(left));
    }
}

fn enqueue(kind: Kind, name: *const c_char, nanoseconds: u64, stream: *mut c_void, correlation: u32) -> u64 {
    let stream = stream_of(stream);
    let (context, (start, end)) = {
        let mut gpu = gpu();
        (gpu.context, gpu.enqueue(stream, nanoseconds))
    };
    let device = if stream == DEFAULT_STREAM { 0 } else { (stream - FIRST_STREAM + 1) % gpus() };
    record(Work { kind, name, start, end, device, context, stream, correlation });
    end
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceCount(count: *mut c_int) -> c_int {
    cuInit(0);
    // SAFETY: the caller's number.
    around(RUNTIME, 3, None, |_| unsafe { count.write(1) });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMalloc(memory: *mut *mut c_void, bytes: usize) -> c_int {
    cuInit(0);
    // SAFETY: the caller's pointer.
    around(RUNTIME, 20, None, |_| unsafe { memory.write(libc::calloc(1, bytes)) });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaFree(memory: *mut c_void) -> c_int {
    cuInit(0);
    // SAFETY: memory of `cudaMalloc`.
    around(RUNTIME, 22, None, |_| unsafe { libc::free(memory) });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamCreate(stream: *mut *mut c_void) -> c_int {
    cuInit(0);
    let mut gpu = gpu();
    gpu.streams_made += 1;
    let number = FIRST_STREAM - 1 + gpu.streams_made;
    // SAFETY: the caller's pointer.
    unsafe { stream.write(std::ptr::without_provenance_mut(number as usize)) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(kernel: *const Kernel, stream: *mut c_void) -> c_int {
    cuInit(0);
    launch(kernel, stream, None);
    0
}

fn launch(kernel: *const Kernel, stream: *mut c_void, outer: Option<u32>) {
    around(DRIVER, 307, outer, |correlation| {
        // SAFETY: the program's kernel, which lives for ever.
        let (kernel, text) = unsafe { (&*kernel, CStr::from_ptr((*kernel).name)) };
        let name = gpu().name(text.to_bytes());
        static LAUNCH_US: OnceLock<u64> = OnceLock::new();
        let cpu_time = || read_clock(libc::CLOCK_THREAD_CPUTIME_ID);
        let ready = cpu_time() + LAUNCH_US.get_or_init(|| entry("launch_us")) * 1000;
        while cpu_time() < ready {}
        enqueue(Kind::Kernel, name, kernel.nanoseconds, stream, correlation);
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaLaunchKernel(
    kernel: *const Kernel,
    _: Dim3,
    _: Dim3,
    _: *mut *mut c_void,
    _: usize,
    stream: *mut c_void,
) -> c_int {
    cuInit(0);
    around(RUNTIME, 211, None, |correlation| launch(kernel, stream, Some(correlation)));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyAsync(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: c_int,
    stream: *mut c_void,
) -> c_int {
    cuInit(0);
    around(RUNTIME, 41, None, |correlation| {
        // SAFETY: the program's memory.
        unsafe { to.cast::<u8>().copy_from(from.cast(), bytes) };
        enqueue(Kind::Copy(kind as u8), std::ptr::null(), bytes as u64, stream, correlation);
    });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemsetAsync(
    to: *mut c_void,
    value: c_int,
    bytes: usize,
    stream: *mut c_void,
) -> c_int {
    cuInit(0);
    around(RUNTIME, 51, None, |correlation| {
        // SAFETY: the program's memory.
        unsafe { to.cast::<u8>().write_bytes(value as u8, bytes) };
        enqueue(Kind::Memset, std::ptr::null(), bytes as u64, stream, correlation);
    });
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceSynchronize() -> c_int {
    cuInit(0);
    around(RUNTIME, 165, None, |_| {
        let free = gpu().free_at(None);
        wait_until(free);
    });
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamSynchronize(stream: *mut c_void) -> c_int {
    cuInit(0);
    around(RUNTIME, 131, None, |_| {
        let free = gpu().free_at(Some(stream_of(stream)));
        wait_until(free);
    });
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceReset() -> c_int {
    cuInit(0);
    around(RUNTIME, 164, None, |_| {
        let free = gpu().free_at(None);
        wait_until(free);
        gpu().reset();
    });
    0
}
