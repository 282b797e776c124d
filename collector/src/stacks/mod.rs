//! Call paths of programs that are not instrumented. The kernel samples the stacks of everything that the command starts; a thread
//! of the collector makes enters and leaves of them, in logs and rings like those that the plugin writes inside a process.
//!
//! ```text
//! mod.rs      the thread          clock.rs    the kernel's times as times of the run's events
//! writer.rs   stacks to logs and rings
//! ```

mod clock;
mod writer;

use ampere_model::Timestamp;
use ampere_ring::Session;
use ampere_stacks::{Options, Sampler, StacksError};
use clock::EventClock;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use writer::Writer;

/// How often the kernel's samples are fetched: while there are none, each time after twice as long.
const FETCH_PERIOD: Duration = Duration::from_millis(10);
const LONGEST_FETCH_PERIOD: Duration = Duration::from_millis(80);

/// Samples stacks until it is stopped.
pub(crate) struct StackSampling {
    thread: Option<JoinHandle<Vec<String>>>,
    /// Written to when it is to stop.
    end: Arc<OwnedFd>,
    reached: Arc<AtomicU64>,
}

/// Why no stacks are sampled, in one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StackSamplingError {
    #[error(transparent)]
    Sampler(#[from] StacksError),
    #[error(transparent)]
    Session(#[from] ampere_ring::Error),
    #[error("cannot start the thread that samples stacks: {0}")]
    Thread(#[from] std::io::Error),
}

impl StackSampling {
    /// Samples what `launcher` starts from now on, each thread once in so much CPU time.
    pub fn begin(
        session: &Path,
        launcher: u32,
        period: Duration,
    ) -> Result<StackSampling, StackSamplingError> {
        let mut sampler = Sampler::begin(launcher, &Options { period, kernel: true, ..Options::default() })?;
        let mut writer = Writer::new(Session::open(session)?, EventClock::begin(), period);
        let end = Arc::new(
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?,
        );
        let reached = Arc::new(AtomicU64::new(writer.reached()));
        let (ends, told) = (end.clone(), reached.clone());
        let work = move || {
            let mut pause = FETCH_PERIOD;
            loop {
                let is_last = rustix::io::read(&*ends, &mut [0; 8]).is_ok();
                let found = writer.fetch(&mut sampler, is_last);
                told.store(writer.reached(), Ordering::Release);
                if is_last {
                    told.store(u64::MAX, Ordering::Release);
                    return writer.notes(&sampler);
                }
                pause = if found { FETCH_PERIOD } else { (2 * pause).min(LONGEST_FETCH_PERIOD) };
                sampler.wait(pause, ends.as_fd());
            }
        };
        let thread = std::thread::Builder::new().name("ampere-stacks".to_owned()).spawn(work)?;
        Ok(StackSampling { thread: Some(thread), end, reached })
    }

    /// All that was sampled before this time is in the rings.
    pub fn reached(&self) -> Timestamp {
        self.reached.load(Ordering::Acquire)
    }

    /// Writes what there is, and ends. Gives what the summary should say of it.
    pub fn stop(&mut self) -> Vec<String> {
        let Some(thread) = self.thread.take() else { return Vec::new() };
        let _ = rustix::io::write(&*self.end, &1u64.to_ne_bytes());
        thread.join().unwrap_or_else(|_| vec!["the thread that samples stacks has failed".to_owned()])
    }
}

impl Drop for StackSampling {
    fn drop(&mut self) {
        self.stop();
    }
}
