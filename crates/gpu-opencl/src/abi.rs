//! OpenCL's functions by their places in the loader's table (`cl_icd_dispatch` in CL/cl_icd.h).

use crate::layer;
use std::ffi::c_void;
use std::ptr::null_mut;

/// A context, device, queue, kernel, event or buffer.
pub type Handle = *mut c_void;

/// The number of functions in the table of OpenCL 3.0.
pub const ENTRIES: usize = 149;

/// The functions by their places. A function that is not there is null.
pub type Table = [*const c_void; ENTRIES];

/// Declares functions that call the entries of the table behind this layer, and the indices of these entries.
macro_rules! functions {
    ($($place:literal $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            /// # Safety
            /// The arguments are as OpenCL's specification requires, and the layer is initialised.
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub unsafe fn $name($($argument: $type),*) -> $result {
                let function = layer().map_or(std::ptr::null(), |layer| layer.target[$place]);
                // SAFETY: the entry with this index has this type. Replaced functions are called only if they are there, the
                // marker is checked by its caller, and the others were checked by `lacks_needed_functions`.
                unsafe {
                    std::mem::transmute::<*const c_void, unsafe extern "C" fn($($type),*) -> $result>(function)(
                        $($argument),*
                    )
                }
            }
        )*

        /// The indices of all functions that are called or replaced, by their names.
        pub mod place {
            $(
                #[allow(non_upper_case_globals, missing_docs)]
                pub const $name: usize = $place;
            )*

            /// All of them, for comparison with the header.
            #[cfg(test)]
            pub const ALL: &[(&str, usize)] = &[$((stringify!($name), $place)),*];
        }
    };
}

type List = *const Handle;
type Sizes = *const usize;

functions! {
    3 clGetDeviceInfo(device: Handle, what: u32, size: usize, value: *mut c_void, needed: *mut usize) -> i32;
    9 clCreateCommandQueue(context: Handle, device: Handle, properties: u64, code: *mut i32) -> Handle;
    11 clReleaseCommandQueue(queue: Handle) -> i32;
    12 clGetCommandQueueInfo(queue: Handle, what: u32, size: usize, value: *mut c_void, needed: *mut usize) -> i32;
    14 clCreateBuffer(context: Handle, flags: u64, size: usize, host: *mut c_void, code: *mut i32) -> Handle;
    18 clReleaseMemObject(object: Handle) -> i32;
    30 clBuildProgram(program: Handle, devices: u32, list: List, options: *const c_void, notify: *const c_void, data: *mut c_void) -> i32;
    37 clReleaseKernel(kernel: Handle) -> i32;
    39 clGetKernelInfo(kernel: Handle, what: u32, size: usize, value: *mut c_void, needed: *mut usize) -> i32;
    41 clWaitForEvents(events: u32, list: List) -> i32;
    42 clGetEventInfo(event: Handle, what: u32, size: usize, value: *mut c_void, needed: *mut usize) -> i32;
    43 clRetainEvent(event: Handle) -> i32;
    44 clReleaseEvent(event: Handle) -> i32;
    45 clGetEventProfilingInfo(event: Handle, what: u32, size: usize, value: *mut c_void, needed: *mut usize) -> i32;
    46 clFlush(queue: Handle) -> i32;
    47 clFinish(queue: Handle) -> i32;
    48 clEnqueueReadBuffer(queue: Handle, buffer: Handle, blocking: u32, offset: usize, size: usize, to: *mut c_void, waits: u32, list: List, event: *mut Handle) -> i32;
    49 clEnqueueWriteBuffer(queue: Handle, buffer: Handle, blocking: u32, offset: usize, size: usize, from: *const c_void, waits: u32, list: List, event: *mut Handle) -> i32;
    50 clEnqueueCopyBuffer(queue: Handle, from: Handle, to: Handle, from_offset: usize, to_offset: usize, size: usize, waits: u32, list: List, event: *mut Handle) -> i32;
    51 clEnqueueReadImage(queue: Handle, image: Handle, blocking: u32, origin: Sizes, region: Sizes, row: usize, slice: usize, to: *mut c_void, waits: u32, list: List, event: *mut Handle) -> i32;
    52 clEnqueueWriteImage(queue: Handle, image: Handle, blocking: u32, origin: Sizes, region: Sizes, row: usize, slice: usize, from: *const c_void, waits: u32, list: List, event: *mut Handle) -> i32;
    53 clEnqueueCopyImage(queue: Handle, from: Handle, to: Handle, from_origin: Sizes, to_origin: Sizes, region: Sizes, waits: u32, list: List, event: *mut Handle) -> i32;
    54 clEnqueueCopyImageToBuffer(queue: Handle, from: Handle, to: Handle, origin: Sizes, region: Sizes, offset: usize, waits: u32, list: List, event: *mut Handle) -> i32;
    55 clEnqueueCopyBufferToImage(queue: Handle, from: Handle, to: Handle, offset: usize, origin: Sizes, region: Sizes, waits: u32, list: List, event: *mut Handle) -> i32;
    56 clEnqueueMapBuffer(queue: Handle, buffer: Handle, blocking: u32, flags: u64, offset: usize, size: usize, waits: u32, list: List, event: *mut Handle, code: *mut i32) -> *mut c_void;
    57 clEnqueueMapImage(queue: Handle, image: Handle, blocking: u32, flags: u64, origin: Sizes, region: Sizes, row: *mut usize, slice: *mut usize, waits: u32, list: List, event: *mut Handle, code: *mut i32) -> *mut c_void;
    58 clEnqueueUnmapMemObject(queue: Handle, object: Handle, mapped: *mut c_void, waits: u32, list: List, event: *mut Handle) -> i32;
    59 clEnqueueNDRangeKernel(queue: Handle, kernel: Handle, dimensions: u32, offset: Sizes, global: Sizes, local: Sizes, waits: u32, list: List, event: *mut Handle) -> i32;
    60 clEnqueueTask(queue: Handle, kernel: Handle, waits: u32, list: List, event: *mut Handle) -> i32;
    81 clSetEventCallback(event: Handle, status: i32, function: extern "C" fn(Handle, i32, *mut c_void), data: *mut c_void) -> i32;
    86 clEnqueueReadBufferRect(queue: Handle, buffer: Handle, blocking: u32, origin: Sizes, host: Sizes, region: Sizes, row: usize, slice: usize, host_row: usize, host_slice: usize, to: *mut c_void, waits: u32, list: List, event: *mut Handle) -> i32;
    87 clEnqueueWriteBufferRect(queue: Handle, buffer: Handle, blocking: u32, origin: Sizes, host: Sizes, region: Sizes, row: usize, slice: usize, host_row: usize, host_slice: usize, from: *const c_void, waits: u32, list: List, event: *mut Handle) -> i32;
    88 clEnqueueCopyBufferRect(queue: Handle, from: Handle, to: Handle, from_origin: Sizes, to_origin: Sizes, region: Sizes, from_row: usize, from_slice: usize, to_row: usize, to_slice: usize, waits: u32, list: List, event: *mut Handle) -> i32;
    102 clEnqueueFillBuffer(queue: Handle, buffer: Handle, pattern: *const c_void, pattern_size: usize, offset: usize, size: usize, waits: u32, list: List, event: *mut Handle) -> i32;
    103 clEnqueueFillImage(queue: Handle, image: Handle, colour: *const c_void, origin: Sizes, region: Sizes, waits: u32, list: List, event: *mut Handle) -> i32;
    104 clEnqueueMigrateMemObjects(queue: Handle, objects: u32, list_of_objects: List, flags: u64, waits: u32, list: List, event: *mut Handle) -> i32;
    105 clEnqueueMarkerWithWaitList(queue: Handle, waits: u32, list: List, event: *mut Handle) -> i32;
    123 clCreateCommandQueueWithProperties(context: Handle, device: Handle, properties: *const u64, code: *mut i32) -> Handle;
    126 clSVMAlloc(context: Handle, flags: u64, size: usize, alignment: u32) -> *mut c_void;
    129 clEnqueueSVMMemcpy(queue: Handle, blocking: u32, to: *mut c_void, from: *const c_void, size: usize, waits: u32, list: List, event: *mut Handle) -> i32;
    130 clEnqueueSVMMemFill(queue: Handle, to: *mut c_void, pattern: *const c_void, pattern_size: usize, size: usize, waits: u32, list: List, event: *mut Handle) -> i32;
    131 clEnqueueSVMMap(queue: Handle, blocking: u32, flags: u64, address: *mut c_void, size: usize, waits: u32, list: List, event: *mut Handle) -> i32;
    132 clEnqueueSVMUnmap(queue: Handle, address: *mut c_void, waits: u32, list: List, event: *mut Handle) -> i32;
    139 clEnqueueSVMMigrateMem(queue: Handle, pointers: u32, addresses: *const *const c_void, sizes: Sizes, flags: u64, waits: u32, list: List, event: *mut Handle) -> i32;
}

/// Whether functions are missing that the layer calls itself: those of OpenCL 1.1.
pub fn lacks_needed_functions(table: &Table) -> bool {
    [
        place::clGetDeviceInfo,
        place::clGetCommandQueueInfo,
        place::clGetKernelInfo,
        place::clGetEventInfo,
        place::clRetainEvent,
        place::clReleaseEvent,
        place::clGetEventProfilingInfo,
        place::clSetEventCallback,
    ]
    .iter()
    .any(|place| table[*place].is_null())
}

/// Asks for a property of fixed size by one of OpenCL's functions. `None` if it is not known.
pub fn property<T: Copy>(
    ask: unsafe fn(Handle, u32, usize, *mut c_void, *mut usize) -> i32,
    of: Handle,
    what: u32,
) -> Option<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the object is the program's, and there is room for a value of this size. Callers ask for numbers, handles and
    // structures of numbers, of which arbitrary bytes are a value.
    unsafe {
        let code = ask(of, what, size_of::<T>(), value.as_mut_ptr().cast(), null_mut());
        (code == crate::CL_SUCCESS).then(|| value.assume_init())
    }
}

/// Asks for a text by one of OpenCL's functions. Empty if it is not known.
pub fn text(
    ask: unsafe fn(Handle, u32, usize, *mut c_void, *mut usize) -> i32,
    of: Handle,
    what: u32,
) -> Vec<u8> {
    const BYTES_MAX: usize = 1 << 16;
    let mut needed = 0;
    // SAFETY: as in `property`: the size alone is asked for.
    let code = unsafe { ask(of, what, 0, null_mut(), &mut needed) };
    if code != crate::CL_SUCCESS || needed > BYTES_MAX {
        return Vec::new();
    }
    let mut bytes = vec![0u8; needed];
    // SAFETY: as in `property`; there is room for the size that was asked for.
    let code = unsafe { ask(of, what, bytes.len(), bytes.as_mut_ptr().cast(), null_mut()) };
    if code != crate::CL_SUCCESS {
        return Vec::new();
    }
    bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Compares the places with the header's by a C program that prints them.
    #[test]
    fn the_places_are_those_of_the_header() {
        let directory = std::env::temp_dir().join(format!("ampere-opencl-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (source, program) = (directory.join("places.c"), directory.join("places"));
        let print = |(name, _): &(&str, usize)| {
            format!("printf(\"{name} %zu\\n\", offsetof(cl_icd_dispatch, {name}) / sizeof(void *));\n")
        };
        let text: String = place::ALL.iter().map(print).collect();
        let text = format!(
            "#define CL_TARGET_OPENCL_VERSION 300\n#include <CL/cl_icd.h>\n#include <stddef.h>\n#include <stdio.h>\n\
             int main(void) {{ {text} printf(\"entries %zu\\n\", sizeof(cl_icd_dispatch) / sizeof(void *)); return 0; }}\n"
        );
        std::fs::write(&source, text).unwrap();
        let compiled = Command::new("cc").arg("-o").arg(&program).arg(&source).output();
        if !compiled.is_ok_and(|done| done.status.success()) {
            let _ = std::fs::remove_dir_all(&directory);
            println!("skipped: no OpenCL headers");
            return;
        }
        let printed = Command::new(&program).output().unwrap().stdout;
        let _ = std::fs::remove_dir_all(&directory);
        let ours: Vec<String> = place::ALL
            .iter()
            .map(|(name, place)| format!("{name} {place}"))
            .chain([format!("entries {ENTRIES}")])
            .collect();
        assert_eq!(String::from_utf8_lossy(&printed).lines().collect::<Vec<_>>(), ours);
    }
}
