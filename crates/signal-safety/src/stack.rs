//! The stack on which a thread runs.

/// Returns the current stack address of this thread, an even number.
#[inline(always)]
pub fn stack_address() -> usize {
    let address: usize;
    // SAFETY: reads a register. (Taking a variable's address would require a stack frame.)
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("mov {}, rsp", out(reg) address, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let here = std::mem::MaybeUninit::<u64>::uninit();
        address = (&raw const here).addr();
    }
    address
}

/// Whether this thread is in a signal handler on an alternate stack. Stack addresses cannot be compared there, and there may be
/// too little space for any other work.
#[inline(never)]
pub fn is_on_alternate_stack() -> bool {
    let mut stack = std::mem::MaybeUninit::<libc::stack_t>::uninit();
    // SAFETY: the call sets no new stack; the kernel fills the structure if it returns 0.
    unsafe {
        libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) == 0
            && stack.assume_init_ref().ss_flags & libc::SS_ONSTACK != 0
    }
}
