//! The MPI library behind the wrappers: its functions, and its idea of MPI_COMM_WORLD.

use super::call::Call;
use super::table::{FUNCTIONS, Function};

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A handle of an MPI library outside of the global scope, such as one that a Python module loaded.
static HIDDEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

fn next(name: &CStr) -> *mut c_void {
    // SAFETY: a lookup by name after this library: other tools that wrap MPI stay in the chain.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// A symbol of the MPI library, or null. `name` must not be one that this library exports.
fn symbol(name: &CStr) -> *mut c_void {
    let found = next(name);
    if found.is_null() { hidden(name) } else { found }
}

/// A symbol of an MPI library that was loaded out of the global scope.
fn hidden(name: &CStr) -> *mut c_void {
    let mut handle = HIDDEN.load(Ordering::Acquire);
    if handle.is_null() {
        handle = search();
        if handle.is_null() {
            return null_mut();
        }
        HIDDEN.store(handle, Ordering::Release);
    }
    // SAFETY: an open handle, never closed.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

/// Looks through every loaded object for one that has, or depends on, an MPI library.
fn search() -> *mut c_void {
    unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _size: usize, names: *mut c_void) -> c_int {
        // SAFETY: the loader's structure, and the vector given below.
        let (info, names) = unsafe { (&*info, &mut *names.cast::<Vec<CString>>()) };
        if !info.dlpi_name.is_null() {
            // SAFETY: the loader's string, alive during the call.
            let name = unsafe { CStr::from_ptr(info.dlpi_name) };
            if !name.is_empty() {
                names.push(name.to_owned());
            }
        }
        0
    }
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: `collect` gets the vector back as its last argument.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut names).cast()) };
    for name in names {
        // SAFETY: only names an object that is loaded already; that keeps it from being unloaded.
        unsafe {
            let handle = libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() {
                continue;
            }
            if !libc::dlsym(handle, c"PMPI_Init".as_ptr()).is_null() {
                return handle;
            }
            libc::dlclose(handle);
        }
    }
    null_mut()
}

/// Whether this process has had an MPI library from its start, so that MPI_Init can be expected.
pub fn is_loaded() -> bool {
    !next(c"PMPI_Init").is_null()
}

/// The names of a symbol: as exported, and as the library's own profiling interface has it.
fn names(call: Call) -> (CString, CString) {
    let row = &FUNCTIONS[call.function()];
    let tail = ["", "_", "__", "_f08_"][call.variant()];
    let stem = if call.variant() == 0 { row.name } else { row.lower };
    let prefix = if call.variant() == 0 { "P" } else { "p" };
    let name = |prefix: &str| CString::new(format!("{prefix}{stem}{tail}")).unwrap_or_default();
    (name(""), name(prefix))
}

/// The real function behind a wrapper. Never null.
pub fn find(call: Call) -> *mut c_void {
    let (name, profiling) = names(call);
    for candidate in [next(&name), next(&profiling), hidden(&profiling)] {
        if !candidate.is_null() {
            return candidate;
        }
    }
    missing(call)
}

/// Stands in for a function that no library has: a program without MPI that finds our symbol gets an error and no crash.
pub fn missing(call: Call) -> *mut c_void {
    extern "C" fn error() -> c_int {
        // MPI_ERR_OTHER of Open MPI; any value but 0 is an error in all of them.
        16
    }
    unsafe extern "C" fn no(flag: *mut c_int) -> c_int {
        // SAFETY: the argument of MPI_Initialized and MPI_Finalized.
        unsafe { flag.write(0) };
        0
    }
    let function = call.function();
    if function == Function::MPI_Initialized as usize || function == Function::MPI_Finalized as usize {
        no as *mut c_void
    } else {
        error as *mut c_void
    }
}

/// MPI_COMM_WORLD, as an argument: the address of an object in Open MPI, a number in the MPICH family.
///
/// The object is looked up from the front of the global scope: a program that is not position-independent has its own copy of
/// it, which the library uses as well.
fn world() -> usize {
    const OPEN_MPI: &CStr = c"ompi_mpi_comm_world";
    const MPICH: usize = 0x4400_0000;
    // SAFETY: a lookup by name.
    let mut address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, OPEN_MPI.as_ptr()) };
    if address.is_null() {
        address = hidden(OPEN_MPI);
    }
    if address.is_null() { MPICH } else { address as usize }
}

type OneFlag = unsafe extern "C" fn(flag: *mut c_int) -> c_int;
type OneOfComm = unsafe extern "C" fn(communicator: usize, value: *mut c_int) -> c_int;

fn flag(name: &CStr) -> Option<bool> {
    let function = symbol(name);
    if function.is_null() {
        return None;
    }
    let mut value = 0;
    // SAFETY: both functions asked for have this type in every MPI library, and may be called at any time.
    let code = unsafe { std::mem::transmute::<*mut c_void, OneFlag>(function)(&mut value) };
    (code == 0).then_some(value != 0)
}

/// Rank and size in MPI_COMM_WORLD, if MPI is up.
pub fn rank_and_size() -> Option<(c_int, c_int)> {
    if flag(c"PMPI_Initialized") != Some(true) || flag(c"PMPI_Finalized") != Some(false) {
        return None;
    }
    let of_world = |name: &CStr| {
        let function = symbol(name);
        let mut value = 0;
        // SAFETY: both functions asked for have this type at the level of the calling convention, in Open MPI (a
        // pointer) and in the MPICH family (a 32-bit number in the same register).
        let found = !function.is_null()
            && unsafe { std::mem::transmute::<*mut c_void, OneOfComm>(function)(world(), &mut value) == 0 };
        found.then_some(value)
    };
    Some((of_world(c"PMPI_Comm_rank")?, of_world(c"PMPI_Comm_size")?))
}
