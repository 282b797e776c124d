//! Reads the node's energy counters, in a thread of the collector, into a ring of its own.
//!
//! It runs in the collector and not in the application, so the user's program has no vendor's library and no extra thread. It is
//! the node's only reader (the libraries do not allow more), and continues to sample while ranks start and end.
//!
//! A reading becomes a sample when the counter has changed. A counter that changes every 15 ms is read 15 times in that time
//! at the default period. If each reading were a sample, all energy of the 15 ms would be charged to the function that ran in the
//! last of them. An unchanged counter is sampled once a second. `read_schedule.rs` decides when a counter is read.
//!
//! Between the readings, about once a second, the devices' gauges are read (`gauges.rs`).
//!
//! A counter that cannot be read is reported once and tried again from time to time; when it can be read again, sampling
//! continues.

pub use crate::sampling::predecessor::{LOG_NAME, RING_NAME};
pub use crate::sampling::sampler_figures::{DeviceFigures, SamplerFigures};
pub use crate::sampling::sampler_thread::{Found, SamplerError, SamplerOptions};

use crate::sampling::clock::Timer;
use crate::sampling::gauges::PowerReading;
use crate::sampling::sampler_thread::{GpuUsers, Reports, SamplerThread, lock};
use ampere_model::Device;
use crossbeam_channel::Receiver;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A sampler that has not ended after this time is assumed to hang in a reading: the driver of a lost device may never return.
const STOP_LIMIT: Duration = Duration::from_secs(2);
/// The maximum number of power readings that wait to be taken: half a minute of eight GPUs with two powers each.
const POWERS_MAX: usize = 512;
/// The maximum number of messages that wait to be taken.
const NEWS_MAX: usize = 64;

/// The collector's side of the sampler, which runs in a thread of its own.
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    found: Receiver<Result<Found, SamplerError>>,
    news: Receiver<String>,
    powers: Receiver<PowerReading>,
    work: Receiver<Device>,
    is_calm: Arc<AtomicBool>,
    users: Arc<Mutex<GpuUsers>>,
    /// The sampler's figures about itself.
    pub figures: Arc<SamplerFigures>,
}

impl Sampler {
    /// Starts a thread that opens the counters and samples all their devices. This function does not wait for the opening, which
    /// can take a second, because the application's rings must be drained in that time. The sampler's ring and log are made in
    /// `directory`.
    pub fn start(directory: &Path, timer: Timer, options: SamplerOptions) -> Result<Sampler, SamplerError> {
        let (stop, is_calm) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let figures = Arc::new(SamplerFigures::default());
        let (found_sender, found) = crossbeam_channel::bounded(1);
        let (news_sender, news) = crossbeam_channel::bounded(NEWS_MAX);
        let users = Arc::new(Mutex::new(GpuUsers::new()));
        let (power_sender, powers) = crossbeam_channel::bounded(POWERS_MAX);
        let (work_sender, work) = crossbeam_channel::unbounded();
        let reports = Reports {
            figures: figures.clone(),
            news: news_sender,
            powers: power_sender,
            is_calm: is_calm.clone(),
            users: users.clone(),
            work: work_sender,
        };
        let (stopped, directory) = (stop.clone(), directory.to_owned());
        let body = move || match SamplerThread::open(&directory, timer, options, reports) {
            Ok((mut thread, found)) => {
                // The command starts when the counters have been found, so its first joules come after a reading.
                thread.read_first();
                let _ = found_sender.send(Ok(found));
                thread.run(&stopped);
            }
            Err(why) => {
                let _ = found_sender.send(Err(why));
            }
        };
        let thread = std::thread::Builder::new()
            .name("ampere-sampler".to_owned())
            .spawn(body)
            .map_err(SamplerError::Thread)?;
        Ok(Sampler { stop, thread: Some(thread), found, news, powers, work, is_calm, users, figures })
    }

    /// Returns what was found, once, when the counters are open and the ring can be read.
    pub fn found(&self) -> Option<Result<Found, SamplerError>> {
        self.found.try_recv().ok()
    }

    /// Waits until the counters are open or cannot be opened, or for at most this time.
    pub fn wait_until_found(&self, longest: Duration) {
        let mut select = crossbeam_channel::Select::new();
        select.recv(&self.found);
        let _ = select.ready_timeout(longest);
    }

    /// Returns the next message about a counter, if there is one.
    pub fn news(&self) -> Option<String> {
        self.news.try_recv().ok()
    }

    pub fn power(&self) -> Option<PowerReading> {
        self.powers.try_recv().ok()
    }

    /// Returns the next series of units of work, ranges or events that was counted for the first time.
    pub fn work(&self) -> Option<Device> {
        self.work.try_recv().ok()
    }

    /// Returns the PCI addresses of the GPUs that a process used when their libraries were last asked.
    pub fn gpus_of(&self, pid: u32) -> BTreeSet<String> {
        let users = lock(&self.users);
        users.iter().filter(|(_, pids)| pids.contains(&pid)).map(|(pci, _)| pci.clone()).collect()
    }

    /// Sets whether nothing is recorded: estimates are updated less often then.
    pub fn set_calm(&self, is_calm: bool) {
        self.is_calm.store(is_calm, Ordering::Relaxed);
    }

    /// Takes a last sample of every device and ends the thread. Returns `false` if a vendor's library does not return from a
    /// reading: the thread is abandoned then.
    #[must_use]
    pub fn stop(&mut self) -> bool {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return true };
        let begun = Instant::now();
        while !thread.is_finished() {
            thread.thread().unpark();
            if begun.elapsed() > STOP_LIMIT {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let _ = thread.join();
        true
    }
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
