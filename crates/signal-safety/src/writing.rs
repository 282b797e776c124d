//! Writing that a program is not killed for. Who writes to a pipe that nobody reads gets SIGPIPE, and who writes beyond `ulimit -f`
//! gets SIGXFSZ; both end a program that has not asked for them. When it is we who write, only the write may fail.

use std::mem::MaybeUninit;

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

pub(crate) fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
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
