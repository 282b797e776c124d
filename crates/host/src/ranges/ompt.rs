//! OpenMP's interface for tools (OMPT), of LLVM's OpenMP library and those derived from it. OpenMP's library opens the libraries
//! that OMP_TOOL_LIBRARIES names, one of which is the preloaded library, and looks up `ompt_start_tool` in each. The wrapper of
//! `dlsym` in the preloaded library answers with [`start_tool`].
//!
//! A parallel region is a frame of the thread that encounters it and of the threads that take part. Explicit tasks, target
//! regions, and waiting at barriers and for tasks are frames, too. The library keeps a number for each parallel region and
//! task, which we set.

use super::{
    Interface, OPENMP_PARALLEL, OPENMP_TARGETS, OPENMP_TASKS, OPENMP_WAITS, RANGES, pop, push, push_known,
};
use crate::regions_by_key::hash;
use crate::state::{State, state};
use crate::{definitions, symbols};
use scorep_abi::{AnyHandle, paradigm, region_type};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr::null;
use std::sync::atomic::{AtomicU64, Ordering};

const OPENMP: Interface = Interface { paradigm: paradigm::OPENMP, name: "OpenMP" };

/// `ompt_data_t`: a number that we attach to a parallel region or a task.
type Data = AtomicU64;
type Lookup = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type SetCallback = unsafe extern "C" fn(c_int, *const c_void) -> c_int;

/// `ompt_start_tool_result_t`.
#[repr(C)]
pub struct Tool {
    initialize: unsafe extern "C" fn(Lookup, c_int, *const Data) -> c_int,
    finalize: extern "C" fn(*const Data),
    data: Data,
}

static TOOL: Tool = Tool { initialize, finalize, data: AtomicU64::new(0) };

/// The kinds of regions. Regions of different kinds may have the same code address.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    region_type: i32,
}
const PARALLEL: Kind = Kind { name: "omp parallel", region_type: region_type::PARALLEL };
const TASK: Kind = Kind { name: "omp task", region_type: region_type::TASK };
const TARGET: Kind = Kind { name: "omp target", region_type: region_type::USER };

/// Bits of an explicit task's number. The others are the address of its code.
const EXPLICIT: u64 = 1 << 63;
const STARTED: u64 = 1 << 62;
/// The number of an implicit task that has a frame.
const TAKES_PART: u64 = 1;

const SCOPE_BEGIN: c_int = 1;
const SCOPE_END: c_int = 2;
const FLAG_INITIAL: c_int = 1;
const FLAG_EXPLICIT: c_int = 4;
const TASK_COMPLETE: c_int = 1;
const TASK_YIELD: c_int = 2;
const TASK_CANCEL: c_int = 3;
const TASK_DETACH: c_int = 4;
const TASK_SWITCH: c_int = 7;

/// Returns the tool, unless nothing is to be recorded here.
pub extern "C" fn start_tool(_version: c_uint, _library: *const c_char) -> *const Tool {
    if matches!(state(), State::Ended | State::Inert) { null() } else { &raw const TOOL }
}

/// Registers the callbacks. Returns nonzero, which keeps the tool active, if the library can register callbacks at all.
unsafe extern "C" fn initialize(lookup: Lookup, _device: c_int, _data: *const Data) -> c_int {
    // SAFETY: the library's function with this name has this type.
    let set = unsafe { transmute::<*mut c_void, Option<SetCallback>>(lookup(c"ompt_set_callback".as_ptr())) };
    let Some(set) = set else { return 0 };
    let callbacks: [(c_int, *const c_void); 7] = [
        (3, parallel_begin as *const c_void),
        (4, parallel_end as *const c_void),
        (5, task_create as *const c_void),
        (6, task_schedule as *const c_void),
        (7, implicit_task as *const c_void),
        (16, wait as *const c_void),
        (33, target as *const c_void),
    ];
    for (number, callback) in callbacks {
        // SAFETY: the callback with this number has this type. A library that lacks the event does not call it.
        unsafe { set(number, callback) };
    }
    1
}

extern "C" fn finalize(_data: *const Data) {}

/// Opens a frame of the region that the program enters at this return address.
fn enter(kind: Kind, domain: usize, code: u64) {
    let known_by = hash(OPENMP.paradigm as u64 | (domain as u64) << 32, &code.to_ne_bytes());
    push_known(domain, known_by, || define(kind, known_by, code));
}

fn define(kind: Kind, known_by: usize, code: u64) -> AnyHandle {
    // `locate` takes the loader's lock, so it is called before `get_or_define` takes its lock. The call is before its
    // return address.
    let place = symbols::locate((code as usize).saturating_sub(1));
    RANGES.get_or_define(known_by, |_| {
        let symbol = symbols::resolve(place);
        let file = symbol.file.rsplit('/').next().unwrap_or_default();
        let name = match symbol.line {
            0 => format!("{} in {}", kind.name, symbol.name),
            line => format!("{} in {}, {file}:{line}", kind.name, symbol.name),
        };
        definitions::region(&name, "", &symbol.file, symbol.line, kind.region_type, OPENMP.paradigm)
    })
}

/// # Safety
/// `data` is null or comes from the library.
unsafe fn number(data: *const Data) -> u64 {
    // SAFETY: the caller guarantees this.
    unsafe { data.as_ref() }.map_or(0, |data| data.load(Ordering::Relaxed))
}

/// # Safety
/// The same as for [`number`].
unsafe fn set_number(data: *const Data, number: u64) {
    // SAFETY: the caller guarantees this.
    if let Some(data) = unsafe { data.as_ref() } {
        data.store(number, Ordering::Relaxed);
    }
}

unsafe extern "C" fn parallel_begin(
    _task: *const Data,
    _frame: *const c_void,
    parallel: *const Data,
    _threads: c_uint,
    _flags: c_int,
    code: *const c_void,
) {
    // SAFETY: this pointer comes from the library.
    unsafe { set_number(parallel, code.addr() as u64) };
    enter(PARALLEL, OPENMP_PARALLEL, code.addr() as u64);
}

extern "C" fn parallel_end(_parallel: *const Data, _task: *const Data, _flags: c_int, _code: *const c_void) {
    pop(OPENMP_PARALLEL);
}

/// The thread that encounters a parallel region has number 0 in it, and its frame is already open.
unsafe extern "C" fn implicit_task(
    end_point: c_int,
    parallel: *const Data,
    task: *const Data,
    _threads: c_uint,
    index: c_uint,
    flags: c_int,
) {
    // SAFETY: this pointer comes from the library.
    unsafe {
        if end_point == SCOPE_BEGIN && index > 0 && flags & FLAG_INITIAL == 0 && !parallel.is_null() {
            set_number(task, TAKES_PART);
            enter(PARALLEL, OPENMP_PARALLEL, number(parallel));
        } else if end_point == SCOPE_END && number(task) == TAKES_PART {
            set_number(task, 0);
            pop(OPENMP_PARALLEL);
        }
    }
}

unsafe extern "C" fn task_create(
    _task: *const Data,
    _frame: *const c_void,
    new: *const Data,
    flags: c_int,
    _dependences: c_int,
    code: *const c_void,
) {
    if flags & FLAG_EXPLICIT != 0 {
        // SAFETY: this pointer comes from the library.
        unsafe { set_number(new, EXPLICIT | code.addr() as u64 & !(EXPLICIT | STARTED)) };
    }
}

/// A task that is started while another one waits is a frame inside that of the other: the library calls it from there. An untied
/// task that gives up its thread is entered again when it continues.
unsafe extern "C" fn task_schedule(before: *const Data, status: c_int, next: *const Data) {
    // SAFETY: this pointer comes from the library.
    let [from, to] = unsafe { [number(before), number(next)] };
    let starts = to & (EXPLICIT | STARTED) == EXPLICIT;
    let ends = match status {
        TASK_COMPLETE | TASK_CANCEL | TASK_DETACH => true,
        TASK_YIELD | TASK_SWITCH => !starts,
        _ => return,
    };
    if ends && from & (EXPLICIT | STARTED) == EXPLICIT | STARTED {
        // SAFETY: as above.
        unsafe { set_number(before, from & !STARTED) };
        pop(OPENMP_TASKS);
    }
    if starts {
        // SAFETY: as above.
        unsafe { set_number(next, to | STARTED) };
        enter(TASK, OPENMP_TASKS, to & !EXPLICIT);
    }
}

unsafe extern "C" fn wait(
    kind: c_int,
    end_point: c_int,
    _parallel: *const Data,
    _task: *const Data,
    _code: *const c_void,
) {
    let name: &[u8] = match kind {
        1 | 3 => b"omp barrier wait",
        5 => b"omp taskwait wait",
        6 => b"omp taskgroup wait",
        7 => b"omp reduction wait",
        _ => b"omp implicit barrier wait",
    };
    match end_point {
        SCOPE_BEGIN => push(OPENMP, OPENMP_WAITS, name),
        SCOPE_END => pop(OPENMP_WAITS),
        _ => {}
    }
}

unsafe extern "C" fn target(
    _kind: c_int,
    end_point: c_int,
    _device: c_int,
    _task: *const Data,
    _target_task: *const Data,
    _target: *const Data,
    code: *const c_void,
) {
    match end_point {
        SCOPE_BEGIN => enter(TARGET, OPENMP_TARGETS, code.addr() as u64),
        SCOPE_END => pop(OPENMP_TARGETS),
        _ => {}
    }
}
