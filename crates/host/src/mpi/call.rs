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
}

/// The number of variants.
pub const VARIANTS: usize = 4;

/// Words of stack arguments of a function with so many C arguments, character arguments and this calling variant.
const fn stack_words(variant: Variant, arguments: u32, characters: u32) -> u32 {
    let total = match variant {
        Variant::C => arguments,
        // The error code, and one hidden length for each character argument.
        _ => arguments + 1 + characters,
    };
    total.saturating_sub(6)
}

/// What a wrapper passes to the common body: see [`Call`].
pub const fn pack(function: u32, variant: Variant, arguments: u32, characters: u32) -> u32 {
    function | (variant as u32) << 10 | stack_words(variant, arguments, characters) << 16
}

/// One call: bits 0 to 9 the function, 10 and 11 the variant, 16 to 23 the words on the stack.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Call(pub u32);

impl Call {
    /// Index into `FUNCTIONS`.
    pub fn function(self) -> usize {
        (self.0 & 0x3ff) as usize
    }

    /// Index of the symbol: variants times functions.
    pub fn symbol(self) -> usize {
        (self.0 & 0xfff) as usize
    }

    /// Index of the variant.
    pub fn variant(self) -> usize {
        (self.0 >> 10 & 3) as usize
    }
}
