//! Call paths of programs that are not instrumented. The kernel samples the stacks of everything that the command starts, and of
//! processes that others have started for it, once they are found; a thread of the collector makes enters and leaves of them, in logs
//! and rings like those that the plugin writes inside a process.
//!
//! ```text
//! mod.rs      the thread          clock.rs    the kernel's times as times of the run's events
//! writer.rs   stacks to logs and rings            quality.rs  what is to be said of the samples
//! ```

mod clock;
mod quality;
mod writer;

use ampere_model::Timestamp;
use ampere_ring::Session;
use ampere_ring::session::Command;
use ampere_stacks::{Options, Sampler, StacksError};
use clock::EventClock;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use writer::Writer;

/// How often the kernel's samples are fetched: while there are none, each time after twice as long.
const FETCH_PERIOD: Duration = Duration::from_millis(40);
const LONGEST_FETCH_PERIOD: Duration = Duration::from_millis(80);
/// What the kernel tells is known so long afterwards.
const TOLD_AFTER: Duration = Duration::from_millis(2);

/// Samples stacks until it is stopped.
pub(crate) struct StackSampling {
    thread: Option<JoinHandle<Ended>>,
    /// Processes to be sampled. It is dropped when the thread is to stop.
    found: Option<Sender<Found>>,
    /// Written to when there is something new for the thread.
    wake: Arc<OwnedFd>,
    reached: Arc<AtomicU64>,
}

/// What there is to say of the samples of a run.
#[derive(Default)]
pub(crate) struct Ended {
    pub notes: Vec<String>,
    /// Why the run is not complete.
    pub losses: Vec<String>,
    /// The CPU time from one sample to the next, if not all came that were to come.
    pub period: Option<Duration>,
}

/// A process that ran at this time.
struct Found {
    process: u32,
    /// It is about to become another program, and waits.
    command: Option<Command>,
    at: Instant,
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

/// Of the period that was asked for. Loops of programs take round times: samples in step with one would find it at the same place
/// each time.
const UNEVEN: f64 = 0.983;

impl StackSampling {
    /// Samples each thread about once in so much CPU time: what `launcher` starts from now on, and what is asked for.
    pub fn begin(
        session: &Path,
        launcher: Option<u32>,
        period: Duration,
    ) -> Result<StackSampling, StackSamplingError> {
        let period = period.mul_f64(UNEVEN);
        let mut sampler = Sampler::begin(&Options { period, kernel: true, ..Options::default() })?;
        launcher.map_or(Ok(()), |launcher| sampler.add_launcher(launcher))?;
        let session = Session::open(session)?;
        session.set_stacks_sampled();
        let writer = Writer::new(session, EventClock::begin(), period);
        let wake = Arc::new(
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?,
        );
        let reached = Arc::new(AtomicU64::new(writer.reached()));
        let (found, asked) = channel();
        let (woken, told) = (wake.clone(), reached.clone());
        let work = move || sample(writer, sampler, &asked, &woken, &told);
        let thread = std::thread::Builder::new().name("ampere-stacks".to_owned()).spawn(work)?;
        Ok(StackSampling { thread: Some(thread), found: Some(found), wake, reached })
    }

    /// Samples a process that runs, unless it is sampled because it was started by one that is.
    pub fn add(&self, process: u32) {
        self.tell(Found { process, command: None, at: Instant::now() });
    }

    /// Samples the program that a process becomes, and lets it begin.
    pub fn add_command(&self, command: Command) {
        self.tell(Found { process: command.pid, command: Some(command), at: Instant::now() });
    }

    fn tell(&self, found: Found) {
        let _ = self.found.as_ref().map(|thread| thread.send(found));
        self.wake();
    }

    fn wake(&self) {
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// All that was sampled before this time is in the rings.
    pub fn reached(&self) -> Timestamp {
        self.reached.load(Ordering::Acquire)
    }

    /// Writes what there is, and ends. Gives what the summary should say of it.
    pub fn stop(&mut self) -> Ended {
        let Some(thread) = self.thread.take() else { return Ended::default() };
        self.found = None;
        self.wake();
        let failed = |_| Ended {
            losses: vec!["the thread that samples stacks has failed".to_owned()],
            ..Ended::default()
        };
        thread.join().unwrap_or_else(failed)
    }
}

/// The thread. Gives what the summary should say.
fn sample(
    mut writer: Writer,
    mut sampler: Sampler,
    asked: &Receiver<Found>,
    woken: &OwnedFd,
    told: &AtomicU64,
) -> Ended {
    let mut pause = FETCH_PERIOD;
    let mut found = Vec::new();
    loop {
        let _ = rustix::io::read(woken, &mut [0; 8]);
        let is_last = loop {
            match asked.try_recv() {
                Ok(process) => found.push(process),
                Err(end) => break end == TryRecvError::Disconnected,
            }
        };
        let begun = Instant::now();
        let was_busy = writer.fetch(&mut sampler, is_last);
        told.store(writer.reached(), Ordering::Release);
        if is_last {
            told.store(u64::MAX, Ordering::Release);
            found
                .into_iter()
                .filter_map(|found| found.command)
                .for_each(|command| writer.release_command(&command));
            return writer.ended(&sampler);
        }
        // By now it is known which processes were started by one that is sampled. One at a time, so that no ring fills up.
        let due = found.iter().position(|found| found.at + TOLD_AFTER <= begun);
        if let Some(due) = due {
            let Found { process, command, .. } = found.swap_remove(due);
            match command {
                Some(command) => writer.add_command(&command, &mut sampler),
                None => writer.add(sampler.add_running(process)),
            }
            continue;
        }
        let is_busy = was_busy || !found.is_empty();
        pause = if is_busy { FETCH_PERIOD } else { (2 * pause).min(LONGEST_FETCH_PERIOD) };
        sampler.wait(if found.is_empty() { pause } else { TOLD_AFTER }, woken.as_fd());
    }
}

impl Drop for StackSampling {
    fn drop(&mut self) {
        self.stop();
    }
}
