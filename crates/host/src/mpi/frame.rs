//! The arguments of a wrapped call, and its result.

use std::ffi::c_int;

/// The number of arguments in registers, by the processor's calling convention.
pub const REGISTERS: usize = if cfg!(target_arch = "aarch64") { 8 } else { 6 };
/// The word of the frame that has the result, as `trampoline::body` keeps it.
const RESULT: isize = if cfg!(target_arch = "aarch64") { -12 } else { -9 };

/// The stack frame in which the wrapper's body keeps the arguments of a wrapped call from C and its result.
#[derive(Clone, Copy)]
pub struct Frame {
    address: *mut usize,
    /// Whether counts have 64 bits: the function's name ends in `_c`.
    has_large_counts: bool,
}

impl Frame {
    /// # Safety
    /// `address` is that of the frame of a wrapper's body that has called us.
    pub unsafe fn new(address: usize, has_large_counts: bool) -> Frame {
        Frame { address: address as *mut usize, has_large_counts }
    }

    /// Returns the address of an argument, counted from 0. Saved registers are below the frame's address, arguments on the
    /// stack above.
    fn place(self, at: usize) -> *mut usize {
        let words = if at < REGISTERS { -1 - at as isize } else { (at - REGISTERS + 2) as isize };
        // SAFETY: the place is within the body's frame, or among the caller's arguments, which belong to the called function.
        unsafe { self.address.offset(words) }
    }

    /// Returns an argument.
    pub fn word(self, at: usize) -> usize {
        // SAFETY: as above; the body has saved the registers, and the caller has written the arguments on the stack.
        unsafe { *self.place(at) }
    }

    /// Replaces an argument, before the real function is called.
    pub fn set(self, at: usize, value: usize) {
        // SAFETY: the place is an argument of this call.
        unsafe { *self.place(at) = value };
    }

    /// Returns an argument that is a number.
    pub fn int(self, at: usize) -> c_int {
        self.word(at) as c_int
    }

    /// Returns an argument that is a number of elements.
    pub fn count(self, at: usize) -> i64 {
        if self.has_large_counts { self.word(at) as i64 } else { self.int(at).into() }
    }

    /// Returns an element of an argument that is an array of numbers of elements.
    ///
    /// # Safety
    /// The argument is the address of an array with more than `at` elements.
    pub unsafe fn count_in(self, array: usize, at: usize) -> i64 {
        // SAFETY: by this function's contract.
        unsafe {
            match self.has_large_counts {
                true => *(self.word(array) as *const i64).add(at),
                false => (*(self.word(array) as *const c_int).add(at)).into(),
            }
        }
    }

    /// Returns the number that an argument points to.
    ///
    /// # Safety
    /// The argument is the address of a number.
    pub unsafe fn int_behind(self, at: usize) -> c_int {
        // SAFETY: by this function's contract.
        unsafe { *(self.word(at) as *const c_int) }
    }

    /// Whether the real function, which has returned, was successful.
    pub fn has_succeeded(self) -> bool {
        // SAFETY: the body keeps the result there, once there is one.
        unsafe { *self.address.offset(RESULT) as c_int == 0 }
    }
}
