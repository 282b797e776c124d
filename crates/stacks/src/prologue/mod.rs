//! Unwinds code without unwind tables, such as hand-written assembly. The effect of a function on the stack is found from its
//! first instructions. A return address is recognised by the call instruction before it. There is a file for each architecture,
//! which decodes the instructions.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use crate::machine::{self, RESTORED, Register};
use crate::rules::UNSAVED;

/// The maximum number of bytes of a function that are examined.
pub(crate) const CODE_BYTES: u64 = 128;
/// The maximum length of a call instruction.
pub(crate) const CALL_BYTES: u64 = 8;

/// The kind of call instruction before an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    None,
    /// A call of the function at this address.
    Of(u64),
    /// A call of a function whose address is in a register or in memory.
    OfValue,
}

/// The effect of a function on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prologue {
    /// The frame's address is this register's value plus `offset`.
    pub(crate) register: Register,
    pub(crate) offset: i32,
    /// Where registers are saved, in words from the frame's address, or `UNSAVED`.
    pub(crate) saved: [i16; RESTORED.len()],
    /// Whether the function has a frame pointer.
    pub(crate) has_frame_pointer: bool,
    /// Whether the function has changed the stack pointer.
    pub(crate) has_frame: bool,
}

impl Prologue {
    /// Sets where a register is saved, in bytes from the frame's address.
    fn save(&mut self, register: Register, offset: i32) {
        let slot = RESTORED.iter().position(|restored| *restored == register);
        if let Some(slot) = slot.filter(|slot| self.saved[*slot] == UNSAVED && offset % 8 == 0) {
            self.saved[slot] = i16::try_from(offset / 8).unwrap_or(UNSAVED);
        }
    }

    /// Returns where the return address is, in words from the frame's address; `None` if it is still in its register.
    pub(crate) fn return_place(&self) -> Option<i16> {
        let slot = RESTORED.iter().position(|register| *register == machine::RETURN)?;
        Some(self.saved[slot]).filter(|place| *place != UNSAVED)
    }
}
