//! Work of ours in somebody's program that the program does not notice.
//!
//! **Writing that it is not killed for.** Who writes to a pipe that nobody reads gets SIGPIPE, and who writes beyond `ulimit -f` gets SIGXFSZ; both end a program that
//! has not asked for them. When it is we who write, in somebody's program, only the write may fail.
//!
//! **Calls that it does not see.** Almost every function of the C library changes errno, which the program may be just about
//! to look at; and many are points at which a thread that is to be cancelled is unwound, through frames that must not be.

//!
//! **Processes that have nothing of its.** See [`inherited`].

pub mod inherited;

use std::mem::MaybeUninit;

struct Unnoticed {
    errno: libc::c_int,
    cancel_state: libc::c_int,
}

/// POSIX's; 1 with glibc and musl. In no crate.
const PTHREAD_CANCEL_DISABLE: libc::c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

impl Unnoticed {
    fn begin() -> Unnoticed {
        // SAFETY: this thread's errno.
        let errno = unsafe { *libc::__errno_location() };
        let mut cancel_state = PTHREAD_CANCEL_DISABLE;
        // SAFETY: a valid state, and a variable for the one before.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut cancel_state) };
        Unnoticed { errno, cancel_state }
    }
}

impl Drop for Unnoticed {
    fn drop(&mut self) {
        // SAFETY: the state that this thread had, and its errno.
        unsafe {
            pthread_setcancelstate(self.cancel_state, std::ptr::null_mut());
            *libc::__errno_location() = self.errno;
        }
    }
}

/// Where this thread's stack is now.
#[inline(always)]
pub fn stack_address() -> usize {
    let address: usize;
    // SAFETY: reads a register. A variable's address would do, at the price of a frame on the stack.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("mov {}, rsp", out(reg) address, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let here = std::mem::MaybeUninit::<u8>::uninit();
        address = (&raw const here).addr();
    }
    address
}

/// Does something that the program does not notice: errno stays, and no cancellation
/// is met. One that came meanwhile is met at the program's own next such call. May be used in a signal handler.
pub fn unnoticed<T>(work: impl FnOnce() -> T) -> T {
    let _unnoticed = Unnoticed::begin();
    work()
}

/// Of a failed write; both go to the thread that wrote.
const OF_WRITING: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Does something that writes, and keeps from this thread what it would be sent for it. May be used in a signal handler.
pub fn quietly<T>(write: impl FnOnce() -> T) -> T {
    let held = Held::hold();
    let done = write();
    drop(held);
    done
}

/// Both signals are held back, and taken out when this goes.
struct Held {
    mask_before: libc::sigset_t,
    pending_before: libc::sigset_t,
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset makes it valid, sigaddset adds signals that exist.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

fn pending() -> libc::sigset_t {
    let mut set = set_of(&[]);
    // SAFETY: the set is ours to fill.
    unsafe { libc::sigpending(&mut set) };
    set
}

fn is_in(signal: libc::c_int, set: &libc::sigset_t) -> bool {
    // SAFETY: a valid set and a signal that exists.
    unsafe { libc::sigismember(set, signal) == 1 }
}

impl Held {
    fn hold() -> Option<Held> {
        let mut mask_before = set_of(&[]);
        // SAFETY: valid sets; only this thread's mask changes.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set_of(&OF_WRITING), &mut mask_before) };
        (failed == 0).then(|| Held { mask_before, pending_before: pending() })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let now = pending();
        for signal in OF_WRITING {
            // One that waited before is the program's.
            if is_in(signal, &now) && !is_in(signal, &self.pending_before) {
                let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                // SAFETY: a valid set and time; what it was sent for is not asked.
                unsafe { libc::sigtimedwait(&set_of(&[signal]), std::ptr::null_mut(), &at_once) };
            }
        }
        // SAFETY: the mask that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask_before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};
    use std::os::fd::AsRawFd;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    const WHICH: &str = "QUIET_TEST";

    fn write(fd: libc::c_int, bytes: &[u8]) -> Result<(), ErrorKind> {
        // SAFETY: a live buffer of that length.
        let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        if written < 0 { Err(Error::last_os_error().kind()) } else { Ok(()) }
    }

    /// In a process of its own: as this one is set up, and then as the variable says.
    fn child(which: &str) {
        // SAFETY: no other thread depends on these.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        }
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let file = tempfile::tempfile().unwrap();
        let limit = libc::rlimit { rlim_cur: 10, rlim_max: 10 };
        let small = [0u8; 10];
        match which {
            "pipe" => assert_eq!(quietly(|| write(writer.as_raw_fd(), b"a")), Err(ErrorKind::BrokenPipe)),
            "loud pipe" => _ = write(writer.as_raw_fd(), b"a"),
            "held pipe" => {
                // What the program has held back itself stays so, also when it is sent once more.
                let set = set_of(&[libc::SIGPIPE]);
                // SAFETY: valid sets.
                unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
                _ = write(writer.as_raw_fd(), b"a");
                _ = quietly(|| write(writer.as_raw_fd(), b"a"));
                assert!(is_in(libc::SIGPIPE, &pending()));
            }
            _ => {
                // SAFETY: a valid limit.
                unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
                write(file.as_raw_fd(), &small).unwrap();
                let failed = quietly(|| write(file.as_raw_fd(), &small));
                assert_eq!(failed, Err(ErrorKind::FileTooLarge));
                if which == "loud file" {
                    _ = write(file.as_raw_fd(), &small);
                }
            }
        }
        // Nothing is left behind that comes later.
        assert!(which == "held pipe" || OF_WRITING.iter().all(|signal| !is_in(*signal, &pending())));
        std::process::exit(0);
    }

    extern "C" fn thread(reached: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: nanosleep is a point of cancellation; the counter outlives this thread.
        unsafe {
            let reached = &*reached.cast::<std::sync::atomic::AtomicU32>();
            let moment = libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            libc::pthread_cancel(libc::pthread_self());
            unnoticed(|| libc::nanosleep(&moment, std::ptr::null_mut()));
            reached.store(1, std::sync::atomic::Ordering::SeqCst);
            libc::nanosleep(&moment, std::ptr::null_mut());
            reached.store(2, std::sync::atomic::Ordering::SeqCst);
        }
        std::ptr::null_mut()
    }

    #[test]
    fn who_is_to_be_cancelled_is_so_afterwards() {
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
    fn errno_stays() {
        // SAFETY: this thread's errno; a descriptor that nobody has.
        unsafe {
            *libc::__errno_location() = libc::EDOM;
            assert_eq!(unnoticed(|| libc::close(-1)), -1);
            assert_eq!(*libc::__errno_location(), libc::EDOM);
        }
    }

    #[test]
    fn nobody_dies_of_a_write() {
        if let Ok(which) = std::env::var(WHICH) {
            return child(&which);
        }
        let ways = [
            ("pipe", None),
            ("file", None),
            ("held pipe", None),
            ("loud pipe", Some(libc::SIGPIPE)),
            ("loud file", Some(libc::SIGXFSZ)),
        ];
        for (which, signal) in ways {
            let own = std::env::current_exe().unwrap();
            let ran =
                Command::new(own).args(["nobody_dies_of_a_write", "--nocapture"]).env(WHICH, which).output();
            let ran = ran.unwrap();
            assert_eq!(ran.status.signal(), signal, "{which}: {ran:?}");
            assert!(signal.is_some() || ran.status.success(), "{which}: {ran:?}");
        }
    }
}
