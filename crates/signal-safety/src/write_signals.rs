//! Writes without SIGPIPE (a pipe without a reader) and SIGXFSZ (beyond `ulimit -f`), which end a program that does not handle
//! them. A failed write of ours must only return an error.

use std::mem::MaybeUninit;

/// The signals of a failed write; both go to the thread that wrote.
const WRITE_SIGNALS: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Runs `write` with these signals suppressed: a failed write only returns its error. Async-signal-safe.
pub fn without_write_signals<T>(write: impl FnOnce() -> T) -> T {
    let _blocked = Blocked::block();
    write()
}

/// Blocks both signals. When it is dropped, it discards those that have arrived in the meantime and restores the mask.
struct Blocked {
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

impl Blocked {
    fn block() -> Option<Blocked> {
        let mut mask_before = set_of(&[]);
        // SAFETY: valid sets; only this thread's mask changes.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set_of(&WRITE_SIGNALS), &mut mask_before) };
        (failed == 0).then(|| Blocked { mask_before, pending_before: pending() })
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let now = pending();
        for signal in WRITE_SIGNALS {
            // A signal that was pending before belongs to the program.
            if is_in(signal, &now) && !is_in(signal, &self.pending_before) {
                let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                // SAFETY: a valid set and time; no information about the signal is wanted.
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

    const WHICH: &str = "WRITE_SIGNALS_TEST";

    fn write(fd: libc::c_int, bytes: &[u8]) -> Result<(), ErrorKind> {
        // SAFETY: a live buffer of that length.
        let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        if written < 0 { Err(Error::last_os_error().kind()) } else { Ok(()) }
    }

    /// Runs the test in a process of its own.
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
            "pipe" => assert_eq!(
                without_write_signals(|| write(writer.as_raw_fd(), b"a")),
                Err(ErrorKind::BrokenPipe)
            ),
            "pipe, plainly" => _ = write(writer.as_raw_fd(), b"a"),
            "blocked pipe" => {
                // A signal that the program has blocked and that is pending stays pending.
                let set = set_of(&[libc::SIGPIPE]);
                // SAFETY: valid sets.
                unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
                _ = write(writer.as_raw_fd(), b"a");
                _ = without_write_signals(|| write(writer.as_raw_fd(), b"a"));
                assert!(is_in(libc::SIGPIPE, &pending()));
            }
            _ => {
                // SAFETY: a valid limit.
                unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
                write(file.as_raw_fd(), &small).unwrap();
                let failed = without_write_signals(|| write(file.as_raw_fd(), &small));
                assert_eq!(failed, Err(ErrorKind::FileTooLarge));
                if which == "file, plainly" {
                    _ = write(file.as_raw_fd(), &small);
                }
            }
        }
        // No signal is still pending.
        assert!(which == "blocked pipe" || WRITE_SIGNALS.iter().all(|signal| !is_in(*signal, &pending())));
        std::process::exit(0);
    }

    #[test]
    fn a_failed_write_raises_no_signal() {
        if let Ok(which) = std::env::var(WHICH) {
            return child(&which);
        }
        let ways = [
            ("pipe", None),
            ("file", None),
            ("blocked pipe", None),
            ("pipe, plainly", Some(libc::SIGPIPE)),
            ("file, plainly", Some(libc::SIGXFSZ)),
        ];
        for (which, signal) in ways {
            let own = std::env::current_exe().unwrap();
            let ran = Command::new(own)
                .args(["a_failed_write_raises_no_signal", "--nocapture"])
                .env(WHICH, which)
                .output();
            let ran = ran.unwrap();
            assert_eq!(ran.status.signal(), signal, "{which}: {ran:?}");
            assert!(signal.is_some() || ran.status.success(), "{which}: {ran:?}");
        }
    }
}
