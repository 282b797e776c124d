//! A stack of our own for work that needs much stack: a thread of the program may have little more than it needs itself.
//!
//! The start of the host, definitions of regions and unwinding take tens of kilobytes, more than a stack of 16 KiB has. A stack
//! is mapped for each use and unmapped afterwards: such uses are rare, and a signal handler may nest them.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::alloc;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use std::ffi::c_void;

/// The size of a stack, enough to demangle the most deeply nested name. Only the used part is committed.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const SIZE: usize = 1 << 20;
/// The size of the guard at the lower end, which the kernel rounds up to a page.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const GUARD: usize = 4096;

/// Runs `body`, which must not panic, on a stack of our own, or on the current one if there is no memory for another.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(never)]
pub fn on_own<T, F: FnOnce() -> T>(body: F) -> T {
    extern "C" fn work<T, F: FnOnce() -> T>(work: *mut c_void) {
        // SAFETY: this is the variable below, which nothing else uses in the meantime.
        let (body, result) = unsafe { &mut *work.cast::<(Option<F>, Option<T>)>() };
        *result = body.take().map(|body| body());
    }
    let stack = alloc::map(SIZE);
    if stack.is_null() {
        return body();
    }
    let mut body_and_result: (Option<F>, Option<T>) = (Some(body), None);
    // SAFETY: the stack is ours alone, its top is aligned to a page, and `work` takes this variable.
    unsafe {
        libc::mprotect(stack.cast(), GUARD, libc::PROT_NONE);
        switch(stack.add(SIZE), work::<T, F>, (&raw mut body_and_result).cast());
        alloc::unmap(stack, SIZE);
    }
    // There is a result: a panic in `work`, which cannot unwind, would have ended the process.
    body_and_result.1.unwrap_or_else(|| std::process::abort())
}

/// On processors other than x86-64 and AArch64, runs `body` on the current stack.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn on_own<T>(body: impl FnOnce() -> T) -> T {
    body()
}

/// Calls `work` on this stack. The call frame information lets an unwinder pass through to the program's frames.
///
/// # Safety
/// `top` is the aligned upper end of an unused stack, and `work` may be called with `data`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn switch(top: *mut u8, work: extern "C" fn(*mut c_void), data: *mut c_void) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls `work` on this stack. The call frame information lets an unwinder pass through to the program's frames.
///
/// # Safety
/// `top` is the aligned upper end of an unused stack, and `work` may be called with `data`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn switch(top: *mut u8, work: extern "C" fn(*mut c_void), data: *mut c_void) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov sp, x0",
        "mov x0, x2",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    )
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;

    /// Recurses until the stack has grown down to an address.
    #[inline(never)]
    fn deep(until: usize) -> usize {
        let room = std::hint::black_box([until; 100]);
        if (&raw const room).addr() < until { 1 } else { deep(until) + room[99] / until }
    }

    #[test]
    fn the_stack_is_another_one_and_of_full_size() {
        let here = 0u8;
        let (there, depth) = on_own(|| {
            let there = 0u8;
            let there = (&raw const there).addr();
            (there, deep(there - SIZE / 4 * 3))
        });
        assert!((&raw const here).addr().abs_diff(there) > SIZE / 2);
        assert!((100..1000).contains(&depth), "{depth}");
        assert_eq!(on_own(|| on_own(|| 7)), 7);
    }

    #[test]
    fn panics_are_caught_on_the_stack() {
        let caught = on_own(|| std::panic::catch_unwind(|| panic!("as asked")).is_err());
        assert!(caught);
    }
}
