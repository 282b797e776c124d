//! The functions that are replaced in the loader's table.

use crate::abi::{self, Handle, clGetCommandQueueInfo, clGetEventInfo, clGetKernelInfo, place};
use crate::host_times::HostTimes;
use crate::queues::{self, Asked, LOSSES, Launch};
use crate::{CL_INVALID_VALUE, CL_SUCCESS, layer};
use ampere_gpu::{Host, guarded, next_correlation};
use scorep_abi::{paradigm, region_type};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

const CL_PROFILING_INFO_NOT_AVAILABLE: i32 = -7;
const CL_QUEUE_REFERENCE_COUNT: u32 = 0x1092;
const CL_QUEUE_PROPERTIES: u64 = 0x1093;
const CL_QUEUE_PROPERTIES_ARRAY: u32 = 0x1098;
const CL_QUEUE_PROFILING_ENABLE: u64 = 2;
const CL_QUEUE_ON_DEVICE: u64 = 4;
const CL_EVENT_COMMAND_QUEUE: u32 = 0x11D0;
const CL_KERNEL_FUNCTION_NAME: u32 = 0x1190;
/// A list of properties that is longer than this is not changed.
const PROPERTIES_MAX: usize = 64;

/// A region that is defined when it is first used.
struct LazyRegion {
    name: &'static str,
    region_type: i32,
    handle: AtomicU32,
}

impl LazyRegion {
    const fn new(name: &'static str, region_type: i32) -> LazyRegion {
        LazyRegion { name, region_type, handle: AtomicU32::new(0) }
    }

    fn region(&self, host: &Host) -> u32 {
        match self.handle.load(Ordering::Relaxed) {
            0 => {
                let region = host.region(self.name.as_bytes(), self.region_type, paradigm::OPENCL);
                self.handle.store(region, Ordering::Relaxed);
                region
            }
            known => known,
        }
    }
}

/// Returns the host, while events are recorded.
fn recording() -> Option<Host> {
    layer().map(|layer| layer.host).filter(Host::is_recording)
}

/// Runs a call as a frame of the calling thread.
fn framed<T>(call: &LazyRegion, run: impl FnOnce() -> T) -> T {
    let frame = guarded(None, || {
        let host = recording()?;
        let region = call.region(&host);
        host.enter(region, 0).then_some((host, region))
    });
    let result = run();
    if let Some((host, region)) = frame {
        guarded((), || host.leave(region));
    }
    result
}

/// A command that is being enqueued.
struct Enqueued {
    host: Host,
    queue: std::sync::Arc<queues::Queue>,
    /// The region of the call, if the call is a frame of the calling thread.
    call: Option<u32>,
    /// The region of the command.
    region: u32,
    correlation: u64,
    host_times: Option<HostTimes>,
    before: u64,
}

/// Runs a call that enqueues a command, as a frame of the calling thread, and has the command recorded when it completes.
/// `event` is the program's place for the event, or null; `run` gets the place to be used.
fn enqueue<T>(
    call: &LazyRegion,
    queue: Handle,
    command: impl FnOnce(&Host) -> u32,
    event: *mut Handle,
    has_succeeded: impl FnOnce(&T) -> bool,
    run: impl FnOnce(*mut Handle) -> T,
) -> T {
    let started = guarded(None, || {
        let host = recording()?;
        let Some(queue) = queues::of(queue) else {
            LOSSES.count(1);
            return None;
        };
        let (region, of_call) = (command(&host), call.region(&host));
        let correlation = next_correlation(paradigm::OPENCL);
        let call = host.enter(of_call, correlation).then_some(of_call);
        let host_times = HostTimes::wanted(&host);
        let before = queue.call_begins(&host);
        Some(Enqueued { host, queue, call, region, correlation, host_times, before })
    });
    let Some(started) = started else { return run(event) };
    let mut own: Handle = null_mut();
    let is_ours = event.is_null();
    let place = if is_ours { &raw mut own } else { event };
    let result = run(place);
    guarded((), || {
        let Enqueued { host, queue, call, region, correlation, host_times, before } = started;
        let after = host.now();
        if let Some(call) = call {
            host.leave(call);
        }
        if has_succeeded(&result) {
            // SAFETY: the call has succeeded, so it has written the event.
            let event = unsafe { *place };
            let launch = Launch { region, correlation, called: (before, after), host_times };
            queues::follow(queue.clone(), event, is_ours, launch);
        }
        queue.call_ends(before);
    });
    result
}

fn is_success(code: &i32) -> bool {
    *code == CL_SUCCESS
}

/// Returns the region of a kernel by its name.
fn kernel_region(host: &Host, kernel: Handle) -> u32 {
    queues::kernel(kernel, || {
        let name = abi::text(clGetKernelInfo, kernel, CL_KERNEL_FUNCTION_NAME);
        host.region(&name, region_type::KERNEL, paradigm::OPENCL)
    })
}

/// Functions that enqueue a command and return an error code. The arguments between the queue and the event are passed on.
macro_rules! commands {
    ($($name:ident($($argument:ident: $type:ty),*) = $call:ident, $region:expr;)*) => {
        $(
            #[allow(non_snake_case, clippy::too_many_arguments)]
            unsafe extern "C" fn $name(queue: Handle, $($argument: $type,)* event: *mut Handle) -> i32 {
                static CALL: LazyRegion = LazyRegion::new(stringify!($name), region_type::$call);
                let run = |event| {
                    // SAFETY: the program's arguments, and a place for the event that lives during the call.
                    unsafe { abi::$name(queue, $($argument,)* event) }
                };
                enqueue(&CALL, queue, $region, event, is_success, run)
            }
        )*
    };
}

/// Makes a function that returns the region of commands other than kernels: copies, fills, maps and migrations.
macro_rules! copy {
    ($name:literal) => {{
        static COMMAND: LazyRegion = LazyRegion::new($name, region_type::RMA);
        |host: &Host| COMMAND.region(host)
    }};
}

type List = *const Handle;
type Sizes = *const usize;

commands! {
    clEnqueueReadBuffer(buffer: Handle, blocking: u32, offset: usize, size: usize, to: *mut c_void, waits: u32, list: List) = FUNCTION, copy!("[OpenCL read]");
    clEnqueueWriteBuffer(buffer: Handle, blocking: u32, offset: usize, size: usize, from: *const c_void, waits: u32, list: List) = FUNCTION, copy!("[OpenCL write]");
    clEnqueueCopyBuffer(from: Handle, to: Handle, from_offset: usize, to_offset: usize, size: usize, waits: u32, list: List) = FUNCTION, copy!("[OpenCL copy]");
    clEnqueueReadImage(image: Handle, blocking: u32, origin: Sizes, region: Sizes, row: usize, slice: usize, to: *mut c_void, waits: u32, list: List) = FUNCTION, copy!("[OpenCL read]");
    clEnqueueWriteImage(image: Handle, blocking: u32, origin: Sizes, region: Sizes, row: usize, slice: usize, from: *const c_void, waits: u32, list: List) = FUNCTION, copy!("[OpenCL write]");
    clEnqueueCopyImage(from: Handle, to: Handle, from_origin: Sizes, to_origin: Sizes, region: Sizes, waits: u32, list: List) = FUNCTION, copy!("[OpenCL copy]");
    clEnqueueCopyImageToBuffer(from: Handle, to: Handle, origin: Sizes, region: Sizes, offset: usize, waits: u32, list: List) = FUNCTION, copy!("[OpenCL copy]");
    clEnqueueCopyBufferToImage(from: Handle, to: Handle, offset: usize, origin: Sizes, region: Sizes, waits: u32, list: List) = FUNCTION, copy!("[OpenCL copy]");
    clEnqueueUnmapMemObject(object: Handle, mapped: *mut c_void, waits: u32, list: List) = FUNCTION, copy!("[OpenCL unmap]");
    clEnqueueNDRangeKernel(kernel: Handle, dimensions: u32, offset: Sizes, global: Sizes, local: Sizes, waits: u32, list: List) = KERNEL_LAUNCH, |host: &Host| kernel_region(host, kernel);
    clEnqueueTask(kernel: Handle, waits: u32, list: List) = KERNEL_LAUNCH, |host: &Host| kernel_region(host, kernel);
    clEnqueueReadBufferRect(buffer: Handle, blocking: u32, origin: Sizes, host: Sizes, region: Sizes, row: usize, slice: usize, host_row: usize, host_slice: usize, to: *mut c_void, waits: u32, list: List) = FUNCTION, copy!("[OpenCL read]");
    clEnqueueWriteBufferRect(buffer: Handle, blocking: u32, origin: Sizes, host: Sizes, region: Sizes, row: usize, slice: usize, host_row: usize, host_slice: usize, from: *const c_void, waits: u32, list: List) = FUNCTION, copy!("[OpenCL write]");
    clEnqueueCopyBufferRect(from: Handle, to: Handle, from_origin: Sizes, to_origin: Sizes, region: Sizes, from_row: usize, from_slice: usize, to_row: usize, to_slice: usize, waits: u32, list: List) = FUNCTION, copy!("[OpenCL copy]");
    clEnqueueFillBuffer(buffer: Handle, pattern: *const c_void, pattern_size: usize, offset: usize, size: usize, waits: u32, list: List) = FUNCTION, copy!("[OpenCL fill]");
    clEnqueueFillImage(image: Handle, colour: *const c_void, origin: Sizes, region: Sizes, waits: u32, list: List) = FUNCTION, copy!("[OpenCL fill]");
    clEnqueueMigrateMemObjects(objects: u32, of: List, flags: u64, waits: u32, list: List) = FUNCTION, copy!("[OpenCL migrate]");
    clEnqueueSVMMemcpy(blocking: u32, to: *mut c_void, from: *const c_void, size: usize, waits: u32, list: List) = FUNCTION, copy!("[OpenCL copy]");
    clEnqueueSVMMemFill(to: *mut c_void, pattern: *const c_void, pattern_size: usize, size: usize, waits: u32, list: List) = FUNCTION, copy!("[OpenCL fill]");
    clEnqueueSVMMap(blocking: u32, flags: u64, address: *mut c_void, size: usize, waits: u32, list: List) = FUNCTION, copy!("[OpenCL map]");
    clEnqueueSVMUnmap(address: *mut c_void, waits: u32, list: List) = FUNCTION, copy!("[OpenCL unmap]");
    clEnqueueSVMMigrateMem(pointers: u32, of: *const *const c_void, sizes: Sizes, flags: u64, waits: u32, list: List) = FUNCTION, copy!("[OpenCL migrate]");
}

/// Functions that enqueue a command and return the address of mapped memory, or null.
macro_rules! maps {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            #[allow(non_snake_case, clippy::too_many_arguments)]
            unsafe extern "C" fn $name(
                queue: Handle,
                $($argument: $type,)*
                event: *mut Handle,
                code: *mut i32,
            ) -> *mut c_void {
                static CALL: LazyRegion = LazyRegion::new(stringify!($name), region_type::FUNCTION);
                let run = |event| {
                    // SAFETY: the program's arguments, and a place for the event that lives during the call.
                    unsafe { abi::$name(queue, $($argument,)* event, code) }
                };
                enqueue(&CALL, queue, copy!("[OpenCL map]"), event, |mapped: &*mut c_void| !mapped.is_null(), run)
            }
        )*
    };
}

maps! {
    clEnqueueMapBuffer(buffer: Handle, blocking: u32, flags: u64, offset: usize, size: usize, waits: u32, list: List);
    clEnqueueMapImage(image: Handle, blocking: u32, flags: u64, origin: Sizes, region: Sizes, row: *mut usize, slice: *mut usize, waits: u32, list: List);
}

/// Functions whose calls are frames.
macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $region_type:ident;)*) => {
        $(
            #[allow(non_snake_case)]
            unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                static CALL: LazyRegion = LazyRegion::new(stringify!($name), region_type::$region_type);
                // SAFETY: the program's arguments.
                framed(&CALL, || unsafe { abi::$name($($argument),*) })
            }
        )*
    };
}

calls! {
    clFinish(queue: Handle) -> i32 = FUNCTION;
    clFlush(queue: Handle) -> i32 = FUNCTION;
    clWaitForEvents(events: u32, list: List) -> i32 = FUNCTION;
    clBuildProgram(program: Handle, devices: u32, list: List, options: *const c_void, notify: *const c_void, data: *mut c_void) -> i32 = FUNCTION;
    clCreateBuffer(context: Handle, flags: u64, size: usize, host: *mut c_void, code: *mut i32) -> Handle = ALLOCATE;
    clSVMAlloc(context: Handle, flags: u64, size: usize, alignment: u32) -> *mut c_void = ALLOCATE;
    clReleaseMemObject(object: Handle) -> i32 = DEALLOCATE;
}

/// Makes a queue with profiling, or, if that is refused, as the program asked.
///
/// # Safety
/// `make` makes a queue of `device` with these bits of CL_QUEUE_PROPERTIES, and sets `code`.
unsafe fn create(
    device: Handle,
    code: *mut i32,
    asked: Asked,
    make: impl Fn(u64, *mut i32) -> Handle,
) -> Handle {
    let is_seen = asked.bits & CL_QUEUE_ON_DEVICE == 0
        && guarded(false, || layer().is_some_and(|layer| queues::start(&layer.host)));
    if !is_seen {
        return make(asked.bits, code);
    }
    let mut own_code = CL_SUCCESS;
    let mut queue = make(asked.bits | CL_QUEUE_PROFILING_ENABLE, &mut own_code);
    let has_times = !queue.is_null();
    if !has_times {
        queue = make(asked.bits, &mut own_code);
    }
    // SAFETY: the program's pointer is null or valid.
    if let Some(code) = unsafe { code.as_mut() } {
        *code = own_code;
    }
    if !queue.is_null() {
        guarded((), || {
            let has_changed = has_times && asked.bits & CL_QUEUE_PROFILING_ENABLE == 0;
            queues::add(queue, device, has_changed.then_some(asked), has_times);
        });
    }
    queue
}

#[allow(non_snake_case)]
unsafe extern "C" fn clCreateCommandQueue(
    context: Handle,
    device: Handle,
    properties: u64,
    code: *mut i32,
) -> Handle {
    // SAFETY: the program's arguments.
    let make = |bits, code: *mut i32| unsafe { abi::clCreateCommandQueue(context, device, bits, code) };
    // SAFETY: as above.
    unsafe { create(device, code, Asked { bits: properties, list: Vec::new() }, make) }
}

#[allow(non_snake_case)]
unsafe extern "C" fn clCreateCommandQueueWithProperties(
    context: Handle,
    device: Handle,
    properties: *const u64,
    code: *mut i32,
) -> Handle {
    // SAFETY: the program's arguments.
    let Some(list) = (unsafe { list_of(properties) }) else {
        // SAFETY: as above.
        return unsafe { abi::clCreateCommandQueueWithProperties(context, device, properties, code) };
    };
    let bits = list.chunks_exact(2).find(|pair| pair[0] == CL_QUEUE_PROPERTIES).map_or(0, |pair| pair[1]);
    let asked = Asked { bits, list: list.clone() };
    let make = |bits: u64, code: *mut i32| {
        let is_as_asked = bits == asked.bits;
        let mut changed = vec![CL_QUEUE_PROPERTIES, bits];
        changed.extend(list.chunks_exact(2).filter(|pair| pair[0] != CL_QUEUE_PROPERTIES).flatten());
        changed.push(0);
        let properties = if is_as_asked { properties } else { changed.as_ptr() };
        // SAFETY: the program's arguments; the list lives during the call.
        unsafe { abi::clCreateCommandQueueWithProperties(context, device, properties, code) }
    };
    // SAFETY: as above.
    unsafe { create(device, code, Asked { bits, list: asked.list.clone() }, make) }
}

/// Returns a list of pairs with its final 0; empty if it is null. `None` if it is too long to be changed.
///
/// # Safety
/// The list is null or ends with a 0.
unsafe fn list_of(properties: *const u64) -> Option<Vec<u64>> {
    let mut list = Vec::new();
    while !properties.is_null() {
        // SAFETY: the final 0 has not been read yet.
        let name = unsafe { *properties.add(list.len()) };
        list.push(name);
        if name == 0 {
            break;
        }
        // SAFETY: each name has a value.
        list.push(unsafe { *properties.add(list.len()) });
        if list.len() > PROPERTIES_MAX {
            return None;
        }
    }
    Some(list)
}

#[allow(non_snake_case)]
unsafe extern "C" fn clReleaseCommandQueue(queue: Handle) -> i32 {
    guarded((), || {
        let references = abi::property::<u32>(clGetCommandQueueInfo, queue, CL_QUEUE_REFERENCE_COUNT);
        if references == Some(1) {
            queues::forget(queue);
        }
    });
    // SAFETY: the program's argument.
    unsafe { abi::clReleaseCommandQueue(queue) }
}

#[allow(non_snake_case)]
unsafe extern "C" fn clReleaseKernel(kernel: Handle) -> i32 {
    guarded((), || queues::forget_kernel(kernel));
    // SAFETY: the program's argument.
    unsafe { abi::clReleaseKernel(kernel) }
}

/// Answers queries with the properties that the program asked for.
mod answers {
    use super::*;

    /// Writes an answer as OpenCL does.
    ///
    /// # Safety
    /// `value` has room for `size` bytes or is null; `needed` is null or valid.
    unsafe fn answer(bytes: &[u8], size: usize, value: *mut c_void, needed: *mut usize) -> i32 {
        if !value.is_null() {
            if size < bytes.len() {
                return CL_INVALID_VALUE;
            }
            // SAFETY: the caller guarantees this.
            unsafe { bytes.as_ptr().copy_to_nonoverlapping(value.cast(), bytes.len()) };
        }
        // SAFETY: the caller guarantees this.
        if let Some(needed) = unsafe { needed.as_mut() } {
            *needed = bytes.len();
        }
        CL_SUCCESS
    }

    #[allow(non_snake_case)]
    pub unsafe extern "C" fn clGetCommandQueueInfo(
        queue: Handle,
        what: u32,
        size: usize,
        value: *mut c_void,
        needed: *mut usize,
    ) -> i32 {
        let answered = guarded(None, || {
            let known = queues::of(queue)?;
            let asked = known.asked.as_ref()?;
            let bytes: Vec<u8> = match what {
                _ if u64::from(what) == CL_QUEUE_PROPERTIES => asked.bits.to_ne_bytes().to_vec(),
                CL_QUEUE_PROPERTIES_ARRAY => asked.list.iter().flat_map(|word| word.to_ne_bytes()).collect(),
                _ => return None,
            };
            // SAFETY: the program's pointers.
            Some(unsafe { answer(&bytes, size, value, needed) })
        });
        // SAFETY: the program's arguments.
        answered.unwrap_or_else(|| unsafe { abi::clGetCommandQueueInfo(queue, what, size, value, needed) })
    }

    /// A program that has not asked for profiling gets no times.
    #[allow(non_snake_case)]
    pub unsafe extern "C" fn clGetEventProfilingInfo(
        event: Handle,
        what: u32,
        size: usize,
        value: *mut c_void,
        needed: *mut usize,
    ) -> i32 {
        let has_none = guarded(false, || {
            let queue = abi::property::<usize>(clGetEventInfo, event, CL_EVENT_COMMAND_QUEUE);
            let queue = queue.and_then(|queue| queues::of(std::ptr::without_provenance_mut(queue)));
            queue.is_some_and(|queue| queue.asked.is_some())
        });
        if has_none {
            return CL_PROFILING_INFO_NOT_AVAILABLE;
        }
        // SAFETY: the program's arguments.
        unsafe { abi::clGetEventProfilingInfo(event, what, size, value, needed) }
    }
}

/// Returns the replaced functions and their places.
pub fn replaced() -> impl Iterator<Item = (usize, *const c_void)> {
    macro_rules! table {
        ($($name:ident)*) => { [$((place::$name, $name as *const c_void)),*] };
    }
    let own = table! {
        clEnqueueReadBuffer clEnqueueWriteBuffer clEnqueueCopyBuffer clEnqueueReadImage clEnqueueWriteImage
        clEnqueueCopyImage clEnqueueCopyImageToBuffer clEnqueueCopyBufferToImage clEnqueueUnmapMemObject
        clEnqueueNDRangeKernel clEnqueueTask clEnqueueReadBufferRect clEnqueueWriteBufferRect
        clEnqueueCopyBufferRect clEnqueueFillBuffer clEnqueueFillImage clEnqueueMigrateMemObjects
        clEnqueueSVMMemcpy clEnqueueSVMMemFill clEnqueueSVMMap clEnqueueSVMUnmap clEnqueueSVMMigrateMem
        clEnqueueMapBuffer clEnqueueMapImage clFinish clFlush clWaitForEvents clBuildProgram clCreateBuffer
        clSVMAlloc clReleaseMemObject clCreateCommandQueue clCreateCommandQueueWithProperties
        clReleaseCommandQueue clReleaseKernel
    };
    let answers = [
        (place::clGetCommandQueueInfo, answers::clGetCommandQueueInfo as *const c_void),
        (place::clGetEventProfilingInfo, answers::clGetEventProfilingInfo as *const c_void),
    ];
    own.into_iter().chain(answers)
}
