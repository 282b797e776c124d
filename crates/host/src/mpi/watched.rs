//! The functions that test for completion without waiting, such as MPI_Test, in a run with stack samples. The samples show how
//! long these functions take, so their calls are not recorded, but the requests that they complete are.
//!
//! A waiting program calls them tens of millions of times a second. So the wrapper jumps to a function here, which calls the
//! real function at once, reads no time, and looks up only requests that are complete.
#![allow(non_snake_case)] // the names of MPI

use super::call::{Call, Variant};
use super::completions::{complete, not_recorded};
use super::library::Library;
use super::requests::{self, Place};
use super::state::STATUS_BYTES;
use super::table::Function;
use super::{TARGETS, attach, messages};
use crate::guard::inside;
use crate::state::{State, state};
use crate::thread::Thread;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

/// The index in [`TARGETS`] of an MPI function's name in C, or of its profiling name.
const fn symbol(function: Function, variant: Variant) -> usize {
    (variant as usize) << 10 | function as usize
}

/// Makes the functions to which wrappers jump. Samples of stacks show a call of MPI by the name of one of these functions, from
/// which the collector finds MPI's name.
macro_rules! watch {
    ($($name:ident $watched:ident $profiling:ident $body:ident ($($argument:ident: $type:ty),*);)*) => {
        $(
            /// # Safety
            /// Called as the MPI function of this name.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $watched($($argument: $type),*) -> c_int {
                // SAFETY: by this function's contract.
                unsafe { $body::<{ symbol(Function::$name, Variant::C) }>($($argument),*) }
            }

            /// # Safety
            /// Called as the MPI function of this name.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $profiling($($argument: $type),*) -> c_int {
                // SAFETY: by this function's contract.
                unsafe { $body::<{ symbol(Function::$name, Variant::ProfilingC) }>($($argument),*) }
            }
        )*

        /// Returns the function to which the wrapper of this call jumps, if its requests are watched.
        pub fn function_for(call: Call) -> Option<*mut c_void> {
            Some(match call.symbol() {
                $(
                    at if at == symbol(Function::$name, Variant::C) => $watched as *mut c_void,
                    at if at == symbol(Function::$name, Variant::ProfilingC) => $profiling as *mut c_void,
                )*
                _ => return None,
            })
        }
    };
}

watch! {
    MPI_Test ampere_watched_MPI_Test ampere_watched_PMPI_Test
        test (request: usize, flag: *mut c_int, status: usize);
    MPI_Testany ampere_watched_MPI_Testany ampere_watched_PMPI_Testany
        test_any (count: c_int, requests: usize, index: *mut c_int, flag: *mut c_int, status: usize);
    MPI_Testall ampere_watched_MPI_Testall ampere_watched_PMPI_Testall
        test_all (count: c_int, requests: usize, flag: *mut c_int, statuses: usize);
    MPI_Testsome ampere_watched_MPI_Testsome ampere_watched_PMPI_Testsome
        test_some (count: c_int, requests: usize, completed: *mut c_int, indices: *mut c_int, statuses: usize);
    MPI_Request_get_status ampere_watched_MPI_Request_get_status ampere_watched_PMPI_Request_get_status
        ask (request: usize, flag: *mut c_int, status: usize);
    MPI_Improbe ampere_watched_MPI_Improbe ampere_watched_PMPI_Improbe
        find (source: c_int, tag: c_int, communicator: usize, flag: *mut c_int, message: usize, status: usize);
}

/// Returns the real function of a symbol.
///
/// # Safety
/// `F` is its type.
#[inline]
unsafe fn real<F: Copy>(symbol: usize) -> F {
    // SAFETY: by this function's contract; Acquire pairs with the Release of `wrapper`.
    unsafe { std::mem::transmute_copy(&TARGETS[symbol].load(Ordering::Acquire)) }
}

/// Calls `body` with the calling thread, if its events are recorded.
#[cold]
fn with_thread<T: Copy>(otherwise: T, body: impl FnOnce(&mut Thread) -> T) -> T {
    inside(otherwise, |slot| {
        if state() != State::Running || slot.thread.get().is_null() && !attach(slot) {
            return otherwise;
        }
        // SAFETY: this thread's own state, which nothing else uses while the slot is busy.
        body(unsafe { &mut *slot.thread.get() })
    })
}

/// The largest number of requests whose handles are kept on the stack.
const ON_STACK_MAX: usize = 16;
type Status = [u64; STATUS_BYTES / 8];
/// A status that has not been filled in.
const STATUS: Status = [0; 4];

/// Returns the address of the status to pass: the program's, or ours if it passes none.
#[inline]
fn status_to_pass(library: &Library, given: usize, own: &mut Status) -> usize {
    if library.is_ignored(given) { own.as_mut_ptr() as usize } else { given }
}

/// The requests of a call, before the real function replaces them by MPI_REQUEST_NULL.
enum Saved {
    Few([usize; ON_STACK_MAX]),
    /// The handles are in the thread's memory.
    Many,
    /// There is no memory for the handles.
    None,
}

impl Saved {
    /// # Safety
    /// `requests` is the address of an array of `count` requests.
    #[inline]
    unsafe fn of(library: &Library, count: c_int, requests: usize) -> Saved {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: by this function's contract.
        let handle = |at| unsafe { library.handle_in(requests, at) };
        if count > ON_STACK_MAX {
            let is_saved = with_thread(false, |thread| {
                if !thread.call.places.resize(count) {
                    not_recorded(thread.location);
                    return false;
                }
                thread.call.next_id = requests::coming_id();
                let handles = thread.call.places.handles().iter_mut().enumerate();
                handles.for_each(|(at, saved)| *saved = handle(at));
                true
            });
            return if is_saved { Saved::Many } else { Saved::None };
        }
        let mut handles = [0; ON_STACK_MAX];
        handles.iter_mut().take(count).enumerate().for_each(|(at, saved)| *saved = handle(at));
        Saved::Few(handles)
    }

    /// Returns the address of the statuses to pass: the program's, or ours if it passes none.
    #[inline]
    fn statuses(&self, library: &Library, given: usize, own: &mut [Status; ON_STACK_MAX]) -> usize {
        match self {
            _ if !library.is_ignored(given) => given,
            Saved::Few(_) => own.as_mut_ptr() as usize,
            Saved::Many => with_thread(given, |thread| thread.call.places.statuses()),
            Saved::None => given,
        }
    }

    /// Records that a request is complete.
    #[cold]
    fn complete(&self, library: &Library, at: c_int, status: usize) {
        let Ok(at) = usize::try_from(at) else { return };
        with_thread((), |thread| {
            let place: Option<Place> = match self {
                Saved::Few(handles) => handles.get(at).map(|handle| requests::find(*handle)),
                Saved::Many => {
                    let handle = thread.call.places.handles().get(at).copied();
                    handle.map(|handle| requests::find_below(handle, thread.call.next_id))
                }
                Saved::None => None,
            };
            if let Some(place) = place.filter(|place| *place != requests::NOWHERE) {
                let is_kept = false;
                // SAFETY: MPI has filled in the status.
                complete(thread.location, place, &unsafe { library.received(status) }, is_kept);
            }
        });
    }
}

type Test = unsafe extern "C-unwind" fn(usize, *mut c_int, usize) -> c_int;

/// # Safety
/// Called as MPI_Test.
#[inline(always)]
unsafe fn test<const SYMBOL: usize>(request: usize, flag: *mut c_int, status: usize) -> c_int {
    // SAFETY: the arguments are the program's, with a status of ours if it passes none.
    unsafe {
        let real: Test = real(SYMBOL);
        let Some(library) = Library::get() else { return real(request, flag, status) };
        let mut own = STATUS;
        let handle = library.handle_in(request, 0);
        let status = status_to_pass(library, status, &mut own);
        let code = real(request, flag, status);
        if code == 0 && *flag != 0 {
            let mut handles = [0; ON_STACK_MAX];
            handles[0] = handle;
            Saved::Few(handles).complete(library, 0, status);
        }
        code
    }
}

/// # Safety
/// Called as MPI_Request_get_status, which takes the request by value and does not free it.
#[inline(always)]
unsafe fn ask<const SYMBOL: usize>(request: usize, flag: *mut c_int, status: usize) -> c_int {
    // SAFETY: as in `test`.
    unsafe {
        let real: Test = real(SYMBOL);
        let Some(library) = Library::get() else { return real(request, flag, status) };
        let mut own = STATUS;
        let status = status_to_pass(library, status, &mut own);
        let code = real(request, flag, status);
        if code == 0 && *flag != 0 {
            with_thread((), |thread| {
                let place = requests::find(library.handle(request));
                let is_kept = true;
                complete(thread.location, place, &library.received(status), is_kept);
            });
        }
        code
    }
}

type TestAny = unsafe extern "C-unwind" fn(c_int, usize, *mut c_int, *mut c_int, usize) -> c_int;

/// # Safety
/// Called as MPI_Testany.
#[inline(always)]
unsafe fn test_any<const SYMBOL: usize>(
    count: c_int,
    requests: usize,
    index: *mut c_int,
    flag: *mut c_int,
    status: usize,
) -> c_int {
    // SAFETY: as in `test`.
    unsafe {
        let real: TestAny = real(SYMBOL);
        let Some(library) = Library::get() else { return real(count, requests, index, flag, status) };
        let saved = Saved::of(library, count, requests);
        let mut own = STATUS;
        let status = status_to_pass(library, status, &mut own);
        let code = real(count, requests, index, flag, status);
        if code == 0 && *flag != 0 {
            saved.complete(library, *index, status);
        }
        code
    }
}

type TestAll = unsafe extern "C-unwind" fn(c_int, usize, *mut c_int, usize) -> c_int;

/// # Safety
/// Called as MPI_Testall.
#[inline(always)]
unsafe fn test_all<const SYMBOL: usize>(
    count: c_int,
    requests: usize,
    flag: *mut c_int,
    statuses: usize,
) -> c_int {
    // SAFETY: as in `test`.
    unsafe {
        let real: TestAll = real(SYMBOL);
        let Some(library) = Library::get() else { return real(count, requests, flag, statuses) };
        let saved = Saved::of(library, count, requests);
        let mut own = [STATUS; ON_STACK_MAX];
        let passed = saved.statuses(library, statuses, &mut own);
        let code = real(count, requests, flag, passed);
        // The statuses are still ignored if there is no memory for ours.
        if code == 0 && *flag != 0 && !library.is_ignored(passed) {
            for at in 0..count {
                saved.complete(library, at, passed + at as usize * library.status_bytes());
            }
        }
        code
    }
}

type TestSome = unsafe extern "C-unwind" fn(c_int, usize, *mut c_int, *mut c_int, usize) -> c_int;

/// # Safety
/// Called as MPI_Testsome.
#[inline(always)]
unsafe fn test_some<const SYMBOL: usize>(
    count: c_int,
    requests: usize,
    completed: *mut c_int,
    indices: *mut c_int,
    statuses: usize,
) -> c_int {
    // SAFETY: as in `test`; MPI has written the number of indices that it returns.
    unsafe {
        let real: TestSome = real(SYMBOL);
        let Some(library) = Library::get() else {
            return real(count, requests, completed, indices, statuses);
        };
        let saved = Saved::of(library, count, requests);
        let mut own = [STATUS; ON_STACK_MAX];
        let given = saved.statuses(library, statuses, &mut own);
        let code = real(count, requests, completed, indices, given);
        if code == 0 && !library.is_ignored(given) {
            for nth in 0..usize::try_from(*completed).unwrap_or(0) {
                saved.complete(library, *indices.add(nth), given + nth * library.status_bytes());
            }
        }
        code
    }
}

type Find = unsafe extern "C-unwind" fn(c_int, c_int, usize, *mut c_int, usize, usize) -> c_int;

/// # Safety
/// Called as MPI_Improbe.
#[inline(always)]
unsafe fn find<const SYMBOL: usize>(
    source: c_int,
    tag: c_int,
    communicator: usize,
    flag: *mut c_int,
    message: usize,
    status: usize,
) -> c_int {
    // SAFETY: as in `test`.
    unsafe {
        let real: Find = real(SYMBOL);
        let code = real(source, tag, communicator, flag, message, status);
        if code == 0
            && *flag != 0
            && let Some(library) = Library::get().filter(|library| !library.is_proc_null(source))
        {
            let handle = library.handle_in(message, 0);
            with_thread((), |_| messages::keep_found_message(library, communicator, handle));
        }
        code
    }
}
