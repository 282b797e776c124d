//! Call paths of programs that are not instrumented. The kernel samples the stacks of everything that the command starts, and of
//! the run's processes that something else has started, such as a daemon of the batch system, once they are found. A thread of
//! the collector converts the samples to enters and leaves, in logs and rings like those that the plugin writes inside a process.
//!
//! ```text
//! mod.rs        the thread                              clock.rs           converts the kernel's times to times of events
//! writer.rs     converts samples to records             process.rs         the records of one process and its threads
//! sink.rs       collects what the sampler passes on     cpu_intervals.rs   times on a CPU that are too short for a sample
//! quality.rs    notes about the samples                 unsampled_processes.rs   CPU time without samples or records
//! event_sums.rs the sums of events that are counted in threads, such as instructions
//! cpu_times.rs  when threads were on a CPU, as records of CPU time
//! budget.rs     what samples cost the program, and their period
//! handover.rs   what a collector that replaces a killed one must know of the CPU times
//! ```

mod budget;
mod clock;
mod cpu_intervals;
mod cpu_times;
mod event_sums;
mod handover;
mod process;
mod quality;
mod sink;
mod unsampled_processes;
mod writer;

use ampere_counters::SharedRunCpu;
use ampere_figures::summary::StacksOverhead;
use ampere_model::{CountedEvent, Timestamp};
use ampere_ring::Session;
use ampere_ring::session::Command;
use ampere_settings::StackPeriod;
use ampere_stacks::{NotCounted, Options, Sampler, StacksError, countable};
use budget::Periods;
use clock::EventClock;
use event_sums::EventSums;
pub(crate) use event_sums::notes_of_not_counted;
pub(crate) use process::is_log_of_samples;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use unsampled_processes::UnsampledProcesses;
use writer::Writer;

/// The interval at which the kernel's samples are fetched after a program has started. It is short, because some facts about a
/// program can be found only while the program runs. Then the interval is doubled up to the maximum. A ring that is half full is
/// fetched at once.
const FETCH_PERIOD: Duration = Duration::from_millis(40);
const FETCH_PERIOD_MAX: Duration = Duration::from_millis(100);
/// The time after which the kernel has certainly written its record of something that has happened, so that the next fetch
/// finds it.
const RECORD_DELAY: Duration = Duration::from_millis(2);

pub(crate) struct StackSampling {
    thread: Option<JoinHandle<SamplingReport>>,
    /// Requests to the thread. The sender is dropped when the thread is to stop.
    requests: Option<Sender<Request>>,
    /// Wakes the thread when there is a new request.
    wake: Arc<OwnedFd>,
    watermark: Arc<AtomicU64>,
    /// The reason why neither stacks are sampled nor switches recorded, although they should be.
    pub failure: Option<StacksError>,
    /// Whether stacks are to be sampled, and whether they are being sampled.
    pub wants_samples: bool,
    pub has_samples: bool,
    /// The source of the times at which threads are on a CPU; `None` if they are not recorded.
    pub activity: Option<Activity>,
    /// The events that are to be counted and cannot be.
    pub not_counted: Vec<NotCounted>,
    pub began: Instant,
}

/// The source of the times at which threads are on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// The kernel reports each switch.
    Switches,
    /// The kernel's count of the CPU time of each thread is read at intervals.
    Schedstat,
    /// There is no source.
    None,
}

impl Activity {
    fn of(sampler: Option<&Sampler>) -> Activity {
        match sampler {
            Some(_) => Activity::Switches,
            None if cpu_times::counted(std::process::id(), std::process::id()).is_some() => {
                Activity::Schedstat
            }
            None => Activity::None,
        }
    }

    /// Returns its name in the summary.
    pub fn as_str(self) -> &'static str {
        match self {
            Activity::Switches => "switches",
            Activity::Schedstat => "schedstat",
            Activity::None => "none",
        }
    }
}

/// The data about the samples for the summary.
#[derive(Default)]
pub(crate) struct SamplingReport {
    pub notes: Vec<String>,
    /// The reasons for which the run is not complete.
    pub losses: Vec<String>,
    /// The actual CPU time between two samples, if some samples are missing.
    pub period: Option<Duration>,
    /// The cost of samples and records of switches for the program.
    pub overhead: Option<StacksOverhead>,
    /// The CPU time of processes that have no rows and whose time is in their parents' rows.
    pub given_to_parents: Duration,
}

struct Request {
    process: u32,
    kind: RequestKind,
    at: Instant,
}

enum RequestKind {
    /// The process is running, and is to be sampled.
    Running,
    /// Like `Running`, for a process that ran before this collector replaced a killed one.
    TakenOver,
    /// The process waits until the program that it becomes can be sampled.
    Command(Command),
    /// Whether the process records its own functions from now on.
    Recorded(bool),
}

/// The reason why no stacks are sampled, in one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StackSamplingError {
    #[error(transparent)]
    Session(#[from] ampere_ring::Error),
    #[error("cannot start the thread that samples stacks: {0}")]
    Thread(#[from] std::io::Error),
}

/// The factor by which the requested period is changed. Loops of programs often take round times: samples in step with a loop
/// would always find it at the same place.
const UNEVEN_FACTOR: f64 = 0.983;

impl StackSampling {
    /// Samples the processes that `launcher` starts from now on, and those that are requested, each thread once per `period` of
    /// its CPU time. `events` are counted in the sampled threads. The times at which a thread is on a CPU are recorded if
    /// `records_cpu_times`. `run` counts the CPU time of the run's processes, to find those that are not sampled.
    pub fn begin(
        session: &Path,
        launcher: Option<u32>,
        period: StackPeriod,
        events: &[CountedEvent],
        records_cpu_times: bool,
        run: Option<SharedRunCpu>,
    ) -> Result<StackSampling, StackSamplingError> {
        let options = Options { kernel: true, cpu_times: records_cpu_times, ..Options::default() };
        let sample_cost = if period == StackPeriod::Off { None } else { budget::sample_cost(&options) };
        let chosen = budget::period(period, sample_cost);
        let wants_samples = chosen.is_some();
        let periods = Periods::new(chosen.unwrap_or(options.period), period);
        let (events, mut not_counted) = countable(if wants_samples { events } else { &[] }, &options);
        let names: Vec<String> = events.iter().map(|event| event.name.clone()).collect();
        let options = Options { period: periods.now, samples: wants_samples, events, ..options };
        let begun = Sampler::begin(&options);
        let begun = begun.and_then(|mut sampler| {
            launcher.map_or(Ok(()), |launcher| sampler.add_launcher(launcher))?;
            Ok(sampler)
        });
        let (sampler, failure) = match begun {
            Ok(sampler) => (Some(sampler), None),
            Err(why) => (None, Some(why)),
        };
        let session = Session::open(session)?;
        let has_samples = wants_samples && sampler.is_some();
        if has_samples {
            session.set_stacks_sampled();
        }
        let why = failure.as_ref().map(|why| why.to_string());
        let unsampled = run.filter(|_| wants_samples).map(|run| UnsampledProcesses::of(run, launcher, why));
        let activity = records_cpu_times.then(|| Activity::of(sampler.as_ref()));
        if sampler.is_none() {
            not_counted.clear();
        }
        let clock = EventClock::new();
        let mut writer =
            Writer::new(session, clock, (periods, sample_cost), unsampled, has_samples, records_cpu_times);
        writer.count(EventSums::new(names));
        let wake = Arc::new(
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?,
        );
        let watermark = Arc::new(AtomicU64::new(writer.watermark()));
        let (requests, received) = channel();
        let (woken, written) = (wake.clone(), watermark.clone());
        let work = move || sample(writer, sampler, &received, &woken, &written);
        let thread = std::thread::Builder::new().name("ampere-stacks".to_owned()).spawn(work)?;
        let (thread, requests) = (Some(thread), Some(requests));
        Ok(StackSampling {
            thread,
            requests,
            wake,
            watermark,
            failure,
            wants_samples,
            has_samples,
            activity,
            not_counted,
            began: Instant::now(),
        })
    }

    /// Samples a process that is running, unless it is sampled already because a sampled process has started it.
    pub fn add(&self, process: u32) {
        self.request(process, RequestKind::Running);
    }

    /// Samples a process that was running before this collector replaced a killed one.
    pub fn take_over(&self, process: u32) {
        self.request(process, RequestKind::TakenOver);
    }

    /// Samples the program that a process executes next, and lets it start.
    pub fn add_command(&self, command: Command) {
        self.request(command.pid, RequestKind::Command(command));
    }

    /// Sets whether a process records its own functions.
    pub fn set_recorded(&self, process: u32, is_recorded: bool) {
        self.request(process, RequestKind::Recorded(is_recorded));
    }

    fn request(&self, process: u32, kind: RequestKind) {
        let request = Request { process, kind, at: Instant::now() };
        let _ = self.requests.as_ref().map(|thread| thread.send(request));
        self.wake();
    }

    fn wake(&self) {
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// Returns the time before which all samples are in the rings.
    pub fn watermark(&self) -> Timestamp {
        self.watermark.load(Ordering::Acquire)
    }

    /// Writes all samples and ends the thread. Returns what the summary reports.
    pub fn stop(&mut self) -> SamplingReport {
        let Some(thread) = self.thread.take() else { return SamplingReport::default() };
        self.requests = None;
        self.wake();
        let failed = "the thread that samples stacks has failed".to_owned();
        thread.join().unwrap_or_else(|_| SamplingReport { losses: vec![failed], ..SamplingReport::default() })
    }
}

/// Runs in the thread. Returns what the summary reports.
fn sample(
    mut writer: Writer,
    mut sampler: Option<Sampler>,
    received: &Receiver<Request>,
    woken: &OwnedFd,
    watermark: &AtomicU64,
) -> SamplingReport {
    let mut pause = FETCH_PERIOD;
    let mut waiting: Vec<Request> = Vec::new();
    loop {
        let _ = rustix::io::read(woken, &mut [0; 8]);
        let is_last = loop {
            match received.try_recv() {
                Ok(request) => {
                    if matches!(request.kind, RequestKind::TakenOver) {
                        writer.expect(request.process);
                    }
                    waiting.push(request);
                }
                Err(end) => break end == TryRecvError::Disconnected,
            }
        };
        writer.is_taking_over = waiting.iter().any(|request| matches!(request.kind, RequestKind::TakenOver));
        let begun = Instant::now();
        let has_started = writer.fetch(sampler.as_mut(), is_last);
        watermark.store(writer.watermark(), Ordering::Release);
        if is_last {
            watermark.store(u64::MAX, Ordering::Release);
            for request in waiting {
                if let RequestKind::Command(command) = request.kind {
                    writer.release_command(&command);
                }
            }
            return writer.report(sampler.as_ref());
        }
        if let Some(sampler) = &mut sampler {
            writer.lengthen_period(sampler);
        }
        // By now it is known which processes were started by a sampled one. Requests are handled for a limited time, so that no
        // ring fills up in the meantime.
        let due = waiting.iter().take_while(|request| request.at + RECORD_DELAY <= begun).count();
        if due > 0 {
            let fetched = Instant::now();
            let handled = waiting.extract_if(..due, |_| fetched.elapsed() < FETCH_PERIOD_MAX);
            for Request { process, kind, .. } in handled {
                match kind {
                    RequestKind::Command(command) => writer.add_command(&command, sampler.as_mut()),
                    RequestKind::Running | RequestKind::TakenOver => writer.add(process, sampler.as_mut()),
                    RequestKind::Recorded(is_recorded) => writer.set_recorded(process, is_recorded),
                }
            }
            continue;
        }
        let is_busy = has_started || !waiting.is_empty();
        pause = if is_busy { FETCH_PERIOD } else { (2 * pause).min(FETCH_PERIOD_MAX) };
        let longest = if waiting.is_empty() { pause } else { RECORD_DELAY };
        match &sampler {
            Some(sampler) => sampler.wait(longest, woken.as_fd()),
            None => wait(longest, woken),
        }
    }
}

fn wait(longest: Duration, woken: &OwnedFd) {
    let mut woken = [PollFd::new(woken, PollFlags::IN)];
    let _ = poll(&mut woken, Timespec::try_from(longest).ok().as_ref());
}

impl Drop for StackSampling {
    fn drop(&mut self) {
        self.stop();
    }
}
