//! The wrappers for AArch64.

use std::arch::naked_asm;

/// Makes the wrapper for one name.
macro_rules! wrapper {
    ($name:ident, $variant:ident, $arguments:literal, $characters:literal) => {{
            /// # Safety
            /// Called with the arguments of the MPI function of this name.
            #[unsafe(naked)]
            unsafe extern "C" fn wrapper() {
                std::arch::naked_asm!(
                    ".cfi_startproc",
                    "adrp x16, {direct} + 8 * ({call} & 0x1fff)",
                    "ldr x16, [x16, :lo12:{direct} + 8 * ({call} & 0x1fff)]",
                    "cbz x16, 2f",
                    "br x16",
                    "2:",
                    "movz w17, {call} & 0xffff",
                    "movk w17, {call} >> 16, lsl 16",
                    "b {body}",
                    ".cfi_endproc",
                    call = const packed!($name, $variant, $arguments, $characters),
                    direct = sym crate::mpi::DIRECT,
                    body = sym aarch64::body,
                )
            }
            wrapper as unsafe extern "C" fn()
        }};
}

/// The body of every wrapper. w17 holds the packed [`Call`](crate::mpi::call::Call). Linkers' own code uses x16 and x17 between a
/// call and its function, so both are free here.
///
/// The frame holds, from x29 down: x0 to x7, w17, x15 and x18 (a static chain, should a caller use one), and after the call the
/// results x0, x1, d0. [`messages`](crate::mpi::messages) reads the arguments and the results there. `enter` returns the real
/// function in x0, and in x1 whether the call is recorded.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn body() {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "sub sp, sp, #112",
        "stp x1, x0, [x29, #-16]",
        "stp x3, x2, [x29, #-32]",
        "stp x5, x4, [x29, #-48]",
        "stp x7, x6, [x29, #-64]",
        "stp x15, x17, [x29, #-80]",
        "str x18, [x29, #-88]",
        "mov w0, w17",
        "mov x1, x29",
        "bl {enter}",
        "mov x16, x0",
        "cmp x1, #0",
        "ldp x1, x0, [x29, #-16]",
        "ldp x3, x2, [x29, #-32]",
        "ldp x5, x4, [x29, #-48]",
        "ldp x7, x6, [x29, #-64]",
        "ldr x15, [x29, #-80]",
        "ldr x18, [x29, #-88]",
        "b.ne 2f",
        // Not recorded: remove the frame and jump.
        ".cfi_remember_state",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "br x16",
        ".cfi_restore_state",
        // Recorded: copy the stack arguments to a stack that stays 16-aligned.
        "2:",
        "ldrb w9, [x29, #-70]",
        "add w10, w9, #1",
        "and x10, x10, #0xfe",
        "sub sp, sp, x10, lsl #3",
        "add x11, x29, #16",
        "mov x12, sp",
        "cbz w9, 4f",
        "3:",
        "ldr x13, [x11], #8",
        "str x13, [x12], #8",
        "subs w9, w9, #1",
        "b.ne 3b",
        "4:",
        "blr x16",
        "sub sp, x29, #112",
        "stp x1, x0, [x29, #-104]",
        "str d0, [x29, #-112]",
        "ldr w0, [x29, #-72]",
        "mov x1, x29",
        "bl {leave}",
        "ldp x1, x0, [x29, #-104]",
        "ldr d0, [x29, #-112]",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
        enter = sym crate::mpi::enter,
        leave = sym crate::mpi::leave,
    )
}
