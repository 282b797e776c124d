//! The wrappers: one naked function for each name, all of which jump to one body.
//!
//! Every argument of a wrapped MPI function is of integer or pointer class, so the first six (x86-64) or eight (AArch64) are in
//! registers and the rest on the stack, and no wrapper needs to know any types. A wrapper saves the registers, calls
//! [`enter`](super::enter), and hands the same registers and a copy of the stack arguments to the real function. The table gives
//! the exact number of words on the stack: no word beyond the caller's own arguments is read.
//!
//! If the call is not recorded (nothing is measured, or the call is from inside MPI) the body removes its frame and *jumps*: the
//! real function sees the caller's stack as if it had been called directly. If no call will be recorded any more, for example
//! with `AMPERE_DISABLE=1`, the wrapper itself jumps from the second call on: that costs as much as a call through the PLT.
//!
//! The call frame information keeps debuggers, `backtrace()` and C++ exceptions working through a wrapper.
//! [`enter`](super::enter) closes frames that an exception or a `longjmp` has left open.

use super::call::VARIANTS;
use super::table::mpi_functions;

const _: () = assert!(super::table::FUNCTIONS.len() <= 1024);

/// Packs the number that a wrapper passes to the body.
macro_rules! packed {
    ($name:ident, $variant:ident, $arguments:literal, $characters:literal) => {
        $crate::mpi::call::pack(
            $crate::mpi::table::Function::$name as u32,
            $crate::mpi::call::Variant::$variant,
            $arguments,
            $characters,
        )
    };
}

#[cfg(target_arch = "aarch64")]
#[macro_use]
mod aarch64;
#[cfg(target_arch = "x86_64")]
#[macro_use]
mod x86_64;

macro_rules! make_wrappers {
    ($($name:ident $lower:literal $suffix:literal $arguments:literal $characters:literal $region_type:ident;)*) => {
        /// The wrappers of every function, by variant.
        pub static WRAPPERS: &[[unsafe extern "C" fn(); VARIANTS]] = &[
            $([
                wrapper!($name, C, $arguments, $characters),
                wrapper!($name, Fortran, $arguments, $characters),
                wrapper!($name, FortranTwo, $arguments, $characters),
                wrapper!($name, F08, $arguments, $characters),
                wrapper!($name, ProfilingC, $arguments, $characters),
                wrapper!($name, ProfilingFortran, $arguments, $characters),
                wrapper!($name, ProfilingFortranTwo, $arguments, $characters),
                wrapper!($name, ProfilingF08, $arguments, $characters),
            ]),*
        ];
    };
}

mpi_functions!(make_wrappers);
