//! A called MPI function and the name by which it was called, in one 32-bit number.

/// The kind of symbol by which a function was called. The MPI library has a function for each of these symbols.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Variant {
    /// A name as in C: `MPI_Send`.
    C = 0,
    /// A name as in `mpif.h` and `use mpi`, from gfortran, ifx, flang and nvfortran: `mpi_send_`.
    Fortran = 1,
    /// A name as in `mpif.h` and `use mpi` with `-fsecond-underscore`: `mpi_send__`.
    FortranTwo = 2,
    /// A name as in Open MPI's `use mpi_f08`: `mpi_send_f08_`.
    F08 = 3,
    /// A name of the profiling interface, as in C: `PMPI_Send`.
    ProfilingC = 4,
    /// A Fortran name of the profiling interface: `pmpi_send_`.
    ProfilingFortran = 5,
    /// A Fortran name of the profiling interface with `-fsecond-underscore`: `pmpi_send__`.
    ProfilingFortranTwo = 6,
    /// A name of Open MPI's profiling interface for `use mpi_f08`: `pmpi_send_f08_`.
    ProfilingF08 = 7,
}

/// The number of [`Variant`]s.
pub const VARIANTS: usize = 8;
/// The difference between a variant's number and that of its profiling counterpart.
pub const PROFILING: usize = 4;

/// Returns the number of words on the stack for a function with this number of C arguments and of character arguments,
/// by its variant.
const fn stack_words(variant: Variant, arguments: u32, characters: u32) -> u32 {
    let total = match variant {
        Variant::C | Variant::ProfilingC => arguments,
        // The error code, and one hidden length for each character argument.
        _ => arguments + 1 + characters,
    };
    total.saturating_sub(super::frame::REGISTERS as u32)
}

/// Returns the number that a wrapper passes to the common body: a [`Call`].
pub const fn pack(function: u32, variant: Variant, arguments: u32, characters: u32) -> u32 {
    function | (variant as u32) << 10 | stack_words(variant, arguments, characters) << 16
}

/// One call: bits 0 to 9 are the function, bits 10 to 12 the variant, bits 16 to 23 the number of words on the stack.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Call(pub u32);

impl Call {
    /// Returns the function's index into `FUNCTIONS`.
    pub fn function(self) -> usize {
        (self.0 & 0x3ff) as usize
    }

    /// Returns the index of the symbol, by variant and then by function.
    pub fn symbol(self) -> usize {
        (self.0 & 0x1fff) as usize
    }

    /// Whether the function was called by its name in C.
    pub fn is_c(self) -> bool {
        self.0 >> 10 & 3 == Variant::C as u32
    }

    /// Whether the function was called by a name of the profiling interface.
    pub fn is_profiling(self) -> bool {
        self.0 >> 10 & PROFILING as u32 != 0
    }
}
