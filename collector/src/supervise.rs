//! Restarts a collector that was killed.
//!
//! A collector that ends by itself has reported why, and another one would end for the same reason. One that a signal has killed
//! (out of memory, an administrator, a defect) is replaced: only the samples of a few milliseconds are lost.

use ampere_ring::{CollectorState, Session};
use rustix::io::Errno;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// After this many restarts, the next collector would probably be killed, too.
pub const RESTARTS_MAX: u32 = 5;

/// The number of restarts of a collector.
#[derive(Debug, Default)]
pub struct Restarts(u32);

impl Restarts {
    /// Whether a collector that ended with this status is to be replaced. If so, counts the restart.
    pub fn is_another_due(&mut self, status: ExitStatus, session: &Session) -> bool {
        let killed = status.signal().is_some();
        let over = matches!(session.collector_state(), CollectorState::Finished | CollectorState::Failed);
        let due = killed && !over && !session.is_removed() && self.0 < RESTARTS_MAX;
        self.0 += u32::from(due);
        due
    }
}

/// Starts a process, and retries while memory, processes or descriptors are short, as they may be when a collector was killed
/// because memory was short. It retries for as long as a program waits for space in its ring (`AMPERE_EVENTS=all`).
pub fn start_patiently<T>(mut start: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    let mut pause = Duration::from_millis(20);
    loop {
        match start() {
            Err(error) if is_shortage(&error) && pause < Duration::from_secs(2) => std::thread::sleep(pause),
            started => return started,
        }
        pause *= 2;
    }
}

/// Whether memory, processes or descriptors are short.
fn is_shortage(error: &std::io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE].contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shortages_are_tried_again() {
        let tries = |errno: Errno, passes_after: u32| {
            let mut tries = 0;
            let started = start_patiently(|| {
                tries += 1;
                if tries > passes_after { Ok(()) } else { Err(std::io::Error::from(errno)) }
            });
            (tries, started.is_ok())
        };
        assert_eq!(tries(Errno::AGAIN, 2), (3, true));
        assert_eq!(tries(Errno::NOMEM, 1), (2, true));
        assert_eq!(tries(Errno::NOENT, 1), (1, false));
        assert_eq!(tries(Errno::NOMEM, u32::MAX), (8, false));
    }
}
