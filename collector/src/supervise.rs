//! Who restarts a collector that was killed.
//!
//! One that ends by itself has said why, and would say it again. One that a signal has killed (out of memory, an
//! administrator, a mistake of ours) is replaced: nothing is lost by that, but the samples of a few milliseconds.

use ampere_ring::{CollectorState, Session};
use rustix::io::Errno;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// What kills a collector so often will kill the next one, too.
pub const MOST_RESTARTS: u32 = 5;

#[derive(Debug, Default)]
pub struct Restarts(u32);

impl Restarts {
    /// Whether another collector is to take the place of one that ended so. Counts it.
    pub fn is_another_due(&mut self, status: ExitStatus, session: &Session) -> bool {
        let killed = status.signal().is_some();
        let over = matches!(session.collector_state(), CollectorState::Finished | CollectorState::Failed);
        let due = killed && !over && !session.is_removed() && self.0 < MOST_RESTARTS;
        self.0 += u32::from(due);
        due
    }
}

/// Where a process was killed for its memory, there may be none for another one at first: then it is tried again a few times,
/// for as long as a program that waits for room in its ring does (`AMPERE_EVENTS=all`).
pub fn start_patiently<T>(mut start: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    let mut pause = Duration::from_millis(20);
    loop {
        match start() {
            Err(error) if may_pass(&error) && pause < Duration::from_secs(2) => std::thread::sleep(pause),
            started => return started,
        }
        pause *= 2;
    }
}

/// No memory, process or descriptor now.
fn may_pass(error: &std::io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE].contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_tried_again_and_other_things_are_not() {
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
