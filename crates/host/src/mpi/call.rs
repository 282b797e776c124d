//! The function that was called, and by which of its names, in one 32-bit number.

/// The symbol by which a function was called; each has a real function behind it.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Variant {
    /// `MPI_Send`.
    C = 0,
    /// `mpi_send_`: `mpif.h` and `use mpi`, from gfortran, ifx, flang, nvfortran.
    Fortran = 1,
    /// `mpi_send__`: the same with `-fsecond-underscore`.
    FortranTwo = 2,
    /// `mpi_send_f08_`: Open MPI's `use mpi_f08`.
    F08 = 3,
    /// `PMPI_Send`, and the others by that interface's names.
    ProfilingC = 4,
    /// `pmpi_send_`.
    ProfilingFortran = 5,
    /// `pmpi_send__`.
    ProfilingFortranTwo = 6,
    /// `pmpi_send_f08_`.
    ProfilingF08 = 7,
}

/// The number of variants.
pub const VARIANTS: usize = 8;
/// What [`Variant::ProfilingC`] and those after it have more than those before it.
pub const PROFILING: usize = 4;

/// Words of stack arguments of a function with so many C arguments, character arguments and this calling variant.
const fn stack_words(variant: Variant, arguments: u32, characters: u32) -> u32 {
    let total = match variant {
        Variant::C | Variant::ProfilingC => arguments,
        // The error code, and one hidden length for each character argument.
        _ => arguments + 1 + characters,
    };
    total.saturating_sub(6)
}

/// What a wrapper passes to the common body: see [`Call`].
pub const fn pack(function: u32, variant: Variant, arguments: u32, characters: u32) -> u32 {
    function | (variant as u32) << 10 | stack_words(variant, arguments, characters) << 16
}

/// One call: bits 0 to 9 the function, 10 to 12 the variant, 16 to 23 the words on the stack.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Call(pub u32);

impl Call {
    /// Index into `FUNCTIONS`.
    pub fn function(self) -> usize {
        (self.0 & 0x3ff) as usize
    }

    /// Index of the symbol: the variant, and in each the function.
    pub fn symbol(self) -> usize {
        (self.0 & 0x1fff) as usize
    }

    /// Whether it was called by its name in C.
    pub fn is_c(self) -> bool {
        self.0 >> 10 & 3 == Variant::C as u32
    }
}
