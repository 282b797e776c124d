//! The wrappers for x86-64: one naked function for each name, all of which jump to one body.
//!
//! Every argument of a wrapped MPI function is of integer or pointer class, so six of them are in registers and the rest on the
//! stack, and no wrapper needs to know any types: it saves the registers, calls [`enter`](super::enter), and hands the same
//! registers and a copy of the stack arguments to the real function. The table gives the exact number of words on the stack: no
//! word beyond the caller's own arguments is read.
//!
//! If the call is not recorded (nothing is measured, or the call is from inside MPI) the body removes its frame and *jumps*: the
//! real function sees the caller's stack as if it had been called directly. If no call will be recorded any more, for example
//! with `AMPERE_DISABLE=1`, the wrapper itself jumps from the second call on: that costs as much as a call through the PLT.
//!
//! The call frame information keeps debuggers, `backtrace()` and C++ exceptions working through a wrapper.
//! [`enter`](super::enter) closes frames that an exception or a `longjmp` has left open.

use super::call::{VARIANTS, Variant, pack};
use super::table::mpi_functions;
use std::arch::naked_asm;

const _: () = assert!(super::table::FUNCTIONS.len() <= 1024);

/// Makes the wrapper for one name.
macro_rules! wrapper {
    ($name:ident, $variant:ident, $arguments:literal, $characters:literal) => {{
            /// # Safety
            /// Called with the arguments of the MPI function of this name.
            #[unsafe(naked)]
            unsafe extern "C" fn wrapper() {
                naked_asm!(
                    ".cfi_startproc",
                    "mov r11, [rip + {direct} + 8 * ({call} & 0x1fff)]",
                    "test r11, r11",
                    "jz 2f",
                    "jmp r11",
                    "2:",
                    "mov r11d, {call}",
                    "jmp {body}",
                    ".cfi_endproc",
                    call = const pack(
                        super::table::Function::$name as u32,
                        Variant::$variant,
                        $arguments,
                        $characters
                    ),
                    direct = sym super::DIRECT,
                    body = sym body,
                )
            }
            wrapper as unsafe extern "C" fn()
        }};
}

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

/// The body of every wrapper. r11 holds the packed [`Call`](super::call::Call).
///
/// The frame holds, from rbp down: rdi, rsi, rdx, rcx, r8, r9, r11, r10 (a static chain, should a caller use one), and after the
/// call the results rax, rdx, xmm0. [`messages`](super::messages) reads the arguments and the results there. `enter` returns
/// the real function in rax, and in rdx whether the call is recorded.
#[unsafe(naked)]
unsafe extern "C" fn body() {
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
        "xor eax, eax",
        "jmp r11",
        ".cfi_restore_state",
        // Recorded: copy the stack arguments, last first, on a stack that is 16-aligned at the call.
        "2:",
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
        enter = sym super::enter,
        leave = sym super::leave,
    )
}
