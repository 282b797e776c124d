//! Preserves errno and the cancellation state. Almost every function of the C library may change errno, which the program may be
//! about to read. Many functions are cancellation points, at which a cancelled thread is unwound through frames that must not be
//! unwound.

struct ThreadState {
    errno: libc::c_int,
    cancel_state: libc::c_int,
}

/// POSIX's constant; 1 with glibc and musl. The crate `libc` lacks it.
const PTHREAD_CANCEL_DISABLE: libc::c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

impl ThreadState {
    /// Saves the thread's state and disables cancellation.
    fn save() -> ThreadState {
        // SAFETY: this thread's errno.
        let errno = unsafe { *libc::__errno_location() };
        let mut cancel_state = PTHREAD_CANCEL_DISABLE;
        // SAFETY: a valid state, and a variable for the one before.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut cancel_state) };
        ThreadState { errno, cancel_state }
    }
}

impl Drop for ThreadState {
    fn drop(&mut self) {
        // SAFETY: the state that this thread had, and its errno.
        unsafe {
            pthread_setcancelstate(self.cancel_state, std::ptr::null_mut());
            *libc::__errno_location() = self.errno;
        }
    }
}

/// Runs `work` so that the program does not notice it: errno is preserved, and a cancelled thread is not cancelled here but at
/// the program's own next cancellation point. Async-signal-safe.
pub fn preserving_thread_state<T>(work: impl FnOnce() -> T) -> T {
    let _saved = ThreadState::save();
    work()
}

/// Sleeps for `duration` or until a signal has been handled. This is not a cancellation point, errno is preserved, and a handler
/// may leave it by `longjmp`.
pub fn sleep(duration: std::time::Duration) {
    let time = libc::timespec {
        tv_sec: duration.as_secs() as libc::time_t,
        tv_nsec: duration.subsec_nanos() as libc::c_long,
    };
    // SAFETY: a valid time; and this thread's errno, which the call sets if it is interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        libc::syscall(libc::SYS_nanosleep, &time, std::ptr::null_mut::<libc::timespec>());
        *libc::__errno_location() = errno;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn thread(reached: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: nanosleep is a cancellation point; the counter outlives this thread.
        unsafe {
            let reached = &*reached.cast::<std::sync::atomic::AtomicU32>();
            let moment = libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            libc::pthread_cancel(libc::pthread_self());
            preserving_thread_state(|| libc::nanosleep(&moment, std::ptr::null_mut()));
            reached.store(1, std::sync::atomic::Ordering::SeqCst);
            libc::nanosleep(&moment, std::ptr::null_mut());
            reached.store(2, std::sync::atomic::Ordering::SeqCst);
        }
        std::ptr::null_mut()
    }

    #[test]
    fn a_cancelled_thread_is_cancelled_afterwards() {
        let reached = std::sync::atomic::AtomicU32::new(0);
        // SAFETY: the thread is waited for.
        unsafe {
            let mut id = std::mem::zeroed();
            let argument = (&raw const reached).cast_mut().cast();
            assert_eq!(libc::pthread_create(&mut id, std::ptr::null(), thread, argument), 0);
            assert_eq!(libc::pthread_join(id, std::ptr::null_mut()), 0);
        }
        assert_eq!(reached.into_inner(), 1);
    }

    #[test]
    fn errno_is_preserved() {
        // SAFETY: this thread's errno; a descriptor that is not open.
        unsafe {
            *libc::__errno_location() = libc::EDOM;
            assert_eq!(preserving_thread_state(|| libc::close(-1)), -1);
            assert_eq!(*libc::__errno_location(), libc::EDOM);
        }
    }
}
