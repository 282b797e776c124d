//! Reads files that the measured program has chosen: files that it maps, its maps of functions, its memory. Such a file may be on
//! a mount that never answers. Therefore each step that reads one runs in a separate thread. A step that does not return in time
//! is abandoned, and the sampler continues without its result.

use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A step that takes longer is abandoned.
const LIMIT: Duration = Duration::from_secs(3);
/// After this many abandoned steps, no such files are read any more, because each of these steps has delayed sampling and still
/// occupies a thread.
const ABANDONED_MAX: u32 = 4;

type Step = Box<dyn FnOnce() + Send>;

/// The thread that runs the steps, and the counts of steps without a result.
struct Steps {
    thread: Mutex<Option<Sender<Step>>>,
    abandoned: AtomicU32,
    refused: AtomicU32,
}

static STEPS: Steps = Steps::new();

/// Runs a step and returns its result; `None` if it does not return in time, or if too many earlier steps did not.
pub fn in_time<T: Send + 'static>(step: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    STEPS.take(LIMIT, step)
}

/// Notes about abandoned steps, for the results.
pub fn notes() -> Vec<String> {
    STEPS.notes()
}

impl Steps {
    const fn new() -> Steps {
        Steps { thread: Mutex::new(None), abandoned: AtomicU32::new(0), refused: AtomicU32::new(0) }
    }

    fn take<T: Send + 'static>(
        &self,
        limit: Duration,
        step: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if self.abandoned.load(Ordering::Relaxed) >= ABANDONED_MAX {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let (done, result) = channel();
        let step: Step = Box::new(move || drop(done.send(step())));
        let steps = match thread.take() {
            Some(steps) => steps,
            None => start()?,
        };
        steps.send(step).ok()?;
        match result.recv_timeout(limit) {
            Ok(result) => {
                *thread = Some(steps);
                Some(result)
            }
            // The thread ends when the step returns.
            Err(RecvTimeoutError::Timeout) => {
                self.abandoned.fetch_add(1, Ordering::Relaxed);
                None
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    fn notes(&self) -> Vec<String> {
        let [abandoned, refused] =
            [&self.abandoned, &self.refused].map(|count| count.load(Ordering::Relaxed));
        if abandoned == 0 {
            return Vec::new();
        }
        let more = match refused {
            0 => String::new(),
            refused => format!("; {refused} further steps were not tried"),
        };
        vec![format!(
            "reading files or memory of the measured program took more than {} s, {abandoned} times, for example on a mount that does \
             not answer: names of functions and call paths may be missing{more}",
            LIMIT.as_secs()
        )]
    }
}

fn start() -> Option<Sender<Step>> {
    let (steps, taken): (Sender<Step>, Receiver<Step>) = channel();
    let work = move || taken.into_iter().for_each(|step| step());
    std::thread::Builder::new().name("ampere-foreign".to_owned()).spawn(work).ok()?;
    Some(steps)
}

/// Reads at most `bytes_max` bytes of a file, with the timeout.
pub fn read(path: impl AsRef<Path>, bytes_max: u64) -> io::Result<Vec<u8>> {
    let path = path.as_ref().to_owned();
    let read = move || {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(bytes_max).read_to_end(&mut bytes).map(|_| bytes)
    };
    in_time(read).unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn a_step_that_does_not_return_is_abandoned_counted_and_reported() {
        let steps = Steps::new();
        let in_time = |value: u32| steps.take(LIMIT, move || value);
        assert_eq!((in_time(7), steps.notes()), (Some(7), Vec::new()));
        assert!(read("/proc/self/maps", 100).is_ok_and(|bytes| bytes.len() == 100));
        // A panic ends the wait at once.
        assert_eq!(steps.take(LIMIT, || -> u32 { panic!("on purpose") }), None);
        assert_eq!(in_time(8), Some(8));
        let (stop, stopped) = channel::<()>();
        let stopped = Arc::new(Mutex::new(stopped));
        let begun = Instant::now();
        for round in 1..=ABANDONED_MAX {
            let stopped = stopped.clone();
            let step = move || drop(stopped.lock().map(|stopped| stopped.recv()));
            assert!(steps.take(Duration::from_millis(20), step).is_none());
            assert!(steps.notes()[0].contains(&format!("{round} times")), "{:?}", steps.notes());
            assert_eq!(in_time(9).is_some(), round < ABANDONED_MAX);
        }
        assert!(
            steps.notes()[0].contains("1 further steps") && begun.elapsed() < LIMIT,
            "{:?}",
            steps.notes()
        );
        drop(stop);
    }
}
