//! The wrappers for x86-64.

use std::arch::naked_asm;

/// Makes the wrapper for one name. If [`DIRECT`](crate::mpi::DIRECT) has a function for the call's symbol, which is in the low 13
/// bits of the packed call, the wrapper jumps there, and the call is not recorded; otherwise it jumps to [`body`].
macro_rules! wrapper {
    ($name:ident, $variant:ident, $arguments:literal, $characters:literal) => {{
            /// # Safety
            /// Called with the arguments of the MPI function of this name.
            #[unsafe(naked)]
            unsafe extern "C" fn wrapper() {
                std::arch::naked_asm!(
                    ".cfi_startproc",
                    "mov r11, [rip + {direct} + 8 * ({call} & 0x1fff)]",
                    "test r11, r11",
                    "jz 2f",
                    "jmp r11",
                    "2:",
                    "mov r11d, {call}",
                    "jmp {body}",
                    ".cfi_endproc",
                    call = const packed!($name, $variant, $arguments, $characters),
                    direct = sym crate::mpi::DIRECT,
                    body = sym x86_64::body,
                )
            }
            wrapper as unsafe extern "C" fn()
        }};
}

/// The body of every wrapper. r11 holds the packed [`Call`](crate::mpi::call::Call).
///
/// The frame holds, from rbp down: rdi, rsi, rdx, rcx, r8, r9, r11, r10 (a static chain, should a caller use one), and after the
/// call the results rax, rdx, xmm0. [`messages`](crate::mpi::messages) reads the arguments and the results there. `enter` returns
/// the real function in rax, and in rdx whether the call is recorded.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn body() {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "sub rsp, 96",
        "mov [rbp - 8], rdi",
        "mov [rbp - 16], rsi",
        "mov [rbp - 24], rdx",
        "mov [rbp - 32], rcx",
        "mov [rbp - 40], r8",
        "mov [rbp - 48], r9",
        "mov [rbp - 56], r11",
        "mov [rbp - 64], r10",
        "mov edi, r11d",
        "mov rsi, rbp",
        "call {enter}",
        "mov r11, rax",
        "test rdx, rdx",
        "mov rdi, [rbp - 8]",
        "mov rsi, [rbp - 16]",
        "mov rdx, [rbp - 24]",
        "mov rcx, [rbp - 32]",
        "mov r8, [rbp - 40]",
        "mov r9, [rbp - 48]",
        "mov r10, [rbp - 64]",
        "jnz 2f",
        // Not recorded: remove the frame and jump.
        ".cfi_remember_state",
        "leave",
        ".cfi_def_cfa rsp, 8",
        // al = 0: no vector arguments, should the function be variadic.
        "xor eax, eax",
        "jmp r11",
        ".cfi_restore_state",
        // Recorded: copy the stack arguments, last first, on a stack that is 16-aligned at the call.
        "2:",
        // Byte 2 of r11, saved at rbp - 56: the number of stack words (bits 16 to 23 of the packed call).
        "movzx eax, byte ptr [rbp - 54]",
        "test al, 1",
        "jz 3f",
        "sub rsp, 8",
        "3:",
        "test eax, eax",
        "jz 5f",
        "4:",
        "push qword ptr [rbp + rax * 8 + 8]",
        "dec eax",
        "jnz 4b",
        "5:",
        "call r11",
        "lea rsp, [rbp - 96]",
        "mov [rbp - 72], rax",
        "mov [rbp - 80], rdx",
        "movsd [rbp - 88], xmm0",
        "mov edi, [rbp - 56]",
        "mov rsi, rbp",
        "call {leave}",
        "mov rax, [rbp - 72]",
        "mov rdx, [rbp - 80]",
        "movsd xmm0, [rbp - 88]",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        enter = sym crate::mpi::enter,
        leave = sym crate::mpi::leave,
    )
}
