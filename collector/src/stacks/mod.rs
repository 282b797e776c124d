//! Call paths of programs that are not instrumented. The kernel samples the stacks of everything that the command starts, and of
//! processes that others have started for it, once they are found; a thread of the collector makes enters and leaves of them, in logs
//! and rings like those that the plugin writes inside a process.
//!
//! ```text
//! mod.rs      the thread          clock.rs    the kernel's times as times of the run's events
//! writer.rs   stacks to logs and rings     unsampled.rs   times of threads and processes that are too short for a sample
//! not_seen.rs   CPU time of processes that are neither sampled nor recorded
//! ```

mod clock;
mod not_seen;
mod unsampled;
mod writer;

use ampere_counters::SharedRunCpu;
use ampere_model::Timestamp;
use ampere_ring::Session;
use ampere_ring::session::Command;
use ampere_stacks::{Options, Sampler, StacksError};
use clock::EventClock;
use not_seen::NotSeen;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
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
    thread: Option<JoinHandle<Said>>,
    /// Processes to be sampled. It is dropped when the thread is to stop.
    found: Option<Sender<Found>>,
    /// Written to when there is something new for the thread.
    wake: Arc<OwnedFd>,
    reached: Arc<AtomicU64>,
    /// Why no stacks are sampled: then it is only seen how much CPU time is in no function.
    pub failure: Option<StacksError>,
}

/// What the summary should say.
#[derive(Default)]
pub(crate) struct Said {
    pub notes: Vec<String>,
    /// More than a twentieth of the run's CPU time is in no function.
    pub is_loss: bool,
}

/// What is said of a process at this time.
struct Found {
    process: u32,
    what: What,
    at: Instant,
}

enum What {
    /// It runs.
    Runs,
    /// It is about to become another program, and waits.
    Becomes(Command),
    /// Its own functions are recorded from now on.
    Recorded,
    /// They are not any more.
    Unrecorded,
}

/// Why no stacks are sampled, in one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StackSamplingError {
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
        run: Option<SharedRunCpu>,
    ) -> Result<StackSampling, StackSamplingError> {
        let period = period.mul_f64(UNEVEN);
        let begun = Sampler::begin(&Options { period, kernel: true, ..Options::default() });
        let begun = begun.and_then(|mut sampler| {
            launcher.map_or(Ok(()), |launcher| sampler.add_launcher(launcher))?;
            Ok(sampler)
        });
        let (sampler, failure) = match begun {
            Ok(sampler) => (Some(sampler), None),
            Err(why) => (None, Some(why)),
        };
        let session = Session::open(session)?;
        if sampler.is_some() {
            session.set_stacks_sampled();
        }
        let why = failure.as_ref().map(|why| why.to_string());
        let not_seen = run.map(|run| NotSeen::of(run, launcher, why));
        let writer = Writer::new(session, EventClock::begin(), period, not_seen);
        let wake = Arc::new(
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?,
        );
        let reached = Arc::new(AtomicU64::new(writer.reached()));
        let (found, asked) = channel();
        let (woken, told) = (wake.clone(), reached.clone());
        let work = move || sample(writer, sampler, &asked, &woken, &told);
        let thread = std::thread::Builder::new().name("ampere-stacks".to_owned()).spawn(work)?;
        Ok(StackSampling { thread: Some(thread), found: Some(found), wake, reached, failure })
    }

    /// Samples a process that runs, unless it is sampled because it was started by one that is.
    pub fn add(&self, process: u32) {
        self.tell(process, What::Runs);
    }

    /// Samples the program that a process becomes, and lets it begin.
    pub fn add_command(&self, command: Command) {
        self.tell(command.pid, What::Becomes(command));
    }

    /// Its own functions are recorded from now on, or are not any more: then it is sampled.
    pub fn set_recorded(&self, process: u32, is_recorded: bool) {
        self.tell(process, if is_recorded { What::Recorded } else { What::Unrecorded });
    }

    fn tell(&self, process: u32, what: What) {
        let found = Found { process, what, at: Instant::now() };
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
    pub fn stop(&mut self) -> Said {
        let Some(thread) = self.thread.take() else { return Said::default() };
        self.found = None;
        self.wake();
        let failed = "the thread that samples stacks has failed".to_owned();
        thread.join().unwrap_or_else(|_| Said { notes: vec![failed], is_loss: true })
    }
}

/// The thread. Gives what the summary should say.
fn sample(
    mut writer: Writer,
    mut sampler: Option<Sampler>,
    asked: &Receiver<Found>,
    woken: &OwnedFd,
    told: &AtomicU64,
) -> Said {
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
        let was_busy = writer.fetch(sampler.as_mut(), is_last);
        told.store(writer.reached(), Ordering::Release);
        if is_last {
            told.store(u64::MAX, Ordering::Release);
            for found in found {
                if let What::Becomes(command) = found.what {
                    writer.release_command(&command);
                }
            }
            return writer.said(sampler.as_ref());
        }
        sampler.iter_mut().for_each(|sampler| writer.leave_recorded_alone(sampler));
        // By now it is known which processes were started by one that is sampled. One at a time, so that no ring fills up.
        let due = found.iter().position(|found| found.at + TOLD_AFTER <= begun);
        if let Some(due) = due {
            let Found { process, what, .. } = found.remove(due);
            match what {
                What::Becomes(command) => writer.add_command(&command, sampler.as_mut()),
                What::Runs if writer.is_recorded(process) => {}
                What::Runs => writer.add(process, sampler.as_mut()),
                What::Recorded => writer.set_recorded(process),
                What::Unrecorded => {
                    writer.set_unrecorded(process);
                    writer.add(process, sampler.as_mut());
                }
            }
            continue;
        }
        let is_busy = was_busy || !found.is_empty();
        pause = if is_busy { FETCH_PERIOD } else { (2 * pause).min(LONGEST_FETCH_PERIOD) };
        let longest = if found.is_empty() { pause } else { TOLD_AFTER };
        match &sampler {
            Some(sampler) => sampler.wait(longest, woken.as_fd()),
            None => wait(longest, woken),
        }
    }
}

fn wait(longest: Duration, until: &OwnedFd) {
    let mut until = [PollFd::new(until, PollFlags::IN)];
    let _ = poll(&mut until, Timespec::try_from(longest).ok().as_ref());
}

impl Drop for StackSampling {
    fn drop(&mut self) {
        self.stop();
    }
}
