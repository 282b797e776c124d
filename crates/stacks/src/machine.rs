//! The registers of each architecture: those that the kernel records, and those that DWARF's rules restore.

/// A register by its number in DWARF.
pub(crate) type Register = u8;

#[cfg(target_arch = "x86_64")]
mod registers {
    use super::Register;

    /// The kernel's number of each recorded register, ascending, and DWARF's: bx, bp, sp, ip, r10, r12 to r15.
    pub(crate) const RECORDED: [(u8, Register); 9] =
        [(1, 3), (6, 6), (7, SP), (8, RETURN), (18, 10), (20, 12), (21, 13), (22, 14), (23, 15)];
    /// The registers that a frame's rules restore: those that functions preserve, and last the return address.
    pub(crate) const RESTORED: [Register; 7] = [3, 6, 12, 13, 14, 15, RETURN];
    pub(crate) const COUNT: usize = 17;
    pub(crate) const FRAME: Register = 6;
    pub(crate) const SP: Register = 7;
    /// DWARF's register for the return address; for the innermost frame, it is the instruction pointer.
    pub(crate) const RETURN: Register = 16;
    pub(crate) const PC: Register = RETURN;
    /// The return address is on the stack from the first instruction on.
    pub(crate) const RETURN_IN_REGISTER: bool = false;
    pub(crate) const CODE_MASK: u64 = u64::MAX;
    /// The vendor whose extensions of DWARF's call frame instructions the tables may contain.
    pub(crate) const VENDOR: gimli::Vendor = gimli::Vendor::Default;
    /// The offset from the stack pointer to the frame's address in the code that Python generates around its functions (8
    /// bytes, and the return address). `None` if that code has a frame pointer.
    pub(crate) const PYTHON_FRAME: Option<i32> = Some(16);
}

#[cfg(target_arch = "aarch64")]
mod registers {
    use super::Register;

    /// The kernel's number of each recorded register, ascending, and DWARF's: x19 to x30, sp, pc.
    pub(crate) const RECORDED: [(u8, Register); 14] = [
        (19, 19),
        (20, 20),
        (21, 21),
        (22, 22),
        (23, 23),
        (24, 24),
        (25, 25),
        (26, 26),
        (27, 27),
        (28, 28),
        (29, FRAME),
        (30, RETURN),
        (31, SP),
        (32, PC),
    ];
    /// The registers that a frame's rules restore: those that functions preserve, and last the return address.
    pub(crate) const RESTORED: [Register; 12] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, FRAME, RETURN];
    pub(crate) const COUNT: usize = 33;
    pub(crate) const FRAME: Register = 29;
    pub(crate) const SP: Register = 31;
    pub(crate) const RETURN: Register = 30;
    pub(crate) const PC: Register = 32;
    /// A function that calls no other has its return address only in a register.
    pub(crate) const RETURN_IN_REGISTER: bool = true;
    /// Removes the signature of a signed pointer.
    pub(crate) const CODE_MASK: u64 = (1 << 48) - 1;
    /// The vendor's extension states where return addresses are signed, for code that signs them.
    pub(crate) const VENDOR: gimli::Vendor = gimli::Vendor::AArch64;
    pub(crate) const PYTHON_FRAME: Option<i32> = None;
}

pub(crate) use registers::*;

/// Returns the kernel's mask of the recorded registers.
pub(crate) fn mask() -> u64 {
    RECORDED.iter().fold(0, |mask, (bit, _)| mask | 1 << bit)
}

/// The index of the stack pointer in the recorded registers.
pub(crate) const SP_RECORDED: usize = {
    let mut index = 0;
    while RECORDED[index].1 != SP {
        index += 1;
    }
    index
};
