//! MPI_Pcontrol, by which a program switches recording off (level 0) and on (1), and numbers its phases (3 and more). The other
//! levels do nothing: 2 flushes the buffers of tools that have some, and negative ones mean different things to different tools.
//!
//! While recording is off, frames are tracked without events, so that frames that are entered before or after that time are
//! recorded correctly. The time itself is counted as a range of this interface. A phase is a frame of the calling thread,
//! which ends at the next call with level 0, 1, or 3 and more.

use crate::ranges::{Interface, PHASES, pop, push, started};
use ampere_model::NOT_RECORDED;
use scorep_abi::paradigm;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

const PCONTROL: Interface = Interface { paradigm: paradigm::MPI, name: NOT_RECORDED.0 };

/// The functions of the MPI library, in C and in Fortran. They are set before the wrappers are called.
static OWN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static OWN_FORTRAN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

static IS_OFF: AtomicBool = AtomicBool::new(false);
static IS_IN_PHASE: AtomicBool = AtomicBool::new(false);
/// The number of the range that stands for the time in which recording is off.
static OFF: AtomicU64 = AtomicU64::new(0);

/// Whether the program has switched recording off.
#[inline(always)]
pub fn is_off() -> bool {
    IS_OFF.load(Ordering::Relaxed)
}

/// Returns the wrapper of the function with this name, if it is MPI_Pcontrol in C or Fortran. `target` is the real function.
pub fn wrapper(name: &[u8], target: *mut c_void) -> Option<*mut c_void> {
    if name == b"MPI_Pcontrol" {
        OWN.store(target, Ordering::Release);
        return Some(in_c as *mut c_void);
    }
    const IN_FORTRAN: [&[u8]; 5] =
        [b"mpi_pcontrol", b"mpi_pcontrol_", b"mpi_pcontrol__", b"MPI_PCONTROL", b"mpi_pcontrol_f08_"];
    IN_FORTRAN.contains(&name).then(|| {
        OWN_FORTRAN.store(target, Ordering::Release);
        in_fortran as *mut c_void
    })
}

/// C's function has further arguments, which another tool may know. Those in registers are passed on.
extern "C" fn in_c(level: c_int, a: usize, b: usize, c: usize, d: usize, e: usize) -> c_int {
    control(level);
    type Own = extern "C" fn(c_int, usize, usize, usize, usize, usize) -> c_int;
    // SAFETY: this is MPI's function, which reads at most the arguments that the program has passed.
    unsafe { transmute::<*mut c_void, Own>(OWN.load(Ordering::Acquire))(level, a, b, c, d, e) }
}

/// # Safety
/// `level` is the address of an integer, as in Fortran.
unsafe extern "C" fn in_fortran(level: *const c_int) {
    // SAFETY: the caller guarantees this.
    control(unsafe { *level });
    type Own = extern "C" fn(*const c_int);
    // SAFETY: this is MPI's function, which has this type.
    unsafe { transmute::<*mut c_void, Own>(OWN_FORTRAN.load(Ordering::Acquire))(level) };
}

fn control(level: c_int) {
    const ON: c_int = 1;
    const PHASE_FIRST: c_int = 3;
    match level {
        0 => {
            end_phase();
            if !IS_OFF.swap(true, Ordering::Relaxed) {
                OFF.store(started::start_new(PCONTROL, NOT_RECORDED.1.as_bytes()), Ordering::Relaxed);
            }
        }
        ON => {
            end_phase();
            switch_on();
        }
        PHASE_FIRST.. => {
            end_phase();
            let mut name = [0; 24];
            let room = name.len();
            let mut rest = name.as_mut_slice();
            let used = write!(rest, "phase {level}").map_or(0, |()| room - rest.len());
            push(PCONTROL, PHASES, &name[..used]);
            IS_IN_PHASE.store(true, Ordering::Relaxed);
        }
        _ => {}
    }
}

/// Switches recording on. This is also called at the end of the measurement, for the time in which recording was off.
pub fn switch_on() {
    if IS_OFF.swap(false, Ordering::Relaxed) {
        started::end_numbered(PCONTROL, OFF.load(Ordering::Relaxed));
    }
}

fn end_phase() {
    if IS_IN_PHASE.swap(false, Ordering::Relaxed) {
        pop(PHASES);
    }
}
