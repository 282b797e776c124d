//! Reads counters and gauges, and finds out which clock the timestamps come from.
//!
//! ```text
//! sampler.rs        the sampler, as the collector uses it      sampler_thread.rs   its thread, which reads the counters
//! read_schedule.rs  when a counter is read next                sampler_figures.rs  what it counts about itself
//! samples.rs        samples from the sampler's ring to the engine
//! gauges.rs         what devices report other than their energy
//! clock.rs          the clock of the timestamps, and the length of its ticks
//! work.rs           units of work that processes count, as samples
//! predecessor.rs    takes over the ring of a killed collector's sampler
//! counters_only.rs  a collector that only samples, for Score-P's trace
//! ```

pub mod clock;
pub mod counters_only;
pub mod gauges;
pub mod predecessor;
pub(crate) mod read_schedule;
pub mod sampler;
mod sampler_figures;
mod sampler_thread;
pub(crate) mod samples;
mod work;

use crate::live_timeline::LiveTimeline;
use crate::notes::Notes;
use crate::options::{Mode, Options};
use crate::run_directory::files::PRIVATE_FILE_MODE;
use crate::stacks::StackSampling;
use ampere_attribution::Policy;
use ampere_counters::SharedRunCpu;
use ampere_figures::summary::StacksOverhead;
use ampere_model::text::plural;
use ampere_model::{Counted, Definition, Device, Timestamp};
use ampere_ring::work::{ROWS_MAX, WorkTable};
use ampere_ring::{Kind, LogReader, RingConsumer};
use ampere_timeline::gaps::Gaps;
use ampere_trace::spool::SpoolDirectory;
use clock::Timer;
use predecessor::Predecessor;
use sampler::{DeviceFigures, Sampler, SamplerOptions};
use samples::{FoundSeries, SAMPLES_SPOOL, Samples};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The sampler of a run, its ring as a stream, and the state that an earlier collector's sampler has left.
pub(crate) struct Sampling {
    directory: PathBuf,
    pub sampler: Option<Sampler>,
    pub samples: Option<Samples>,
    /// When the sampler was started, by its timer, and when it was stopped.
    started: Option<(Timer, Timestamp)>,
    stopped: Option<Timestamp>,
    /// The devices that an earlier collector has sampled, in the order of their numbers.
    sampled_before: Vec<Device>,
    /// The time of the last sample of the earlier collector.
    pub predecessors_last: Timestamp,
    pub stacks: Option<StackSampling>,
    /// The cost of sampling stacks for the program, known after it has ended.
    pub stacks_overhead: Option<StacksOverhead>,
    /// The CPU time of processes whose time is in their parents' rows, known after the program has ended.
    pub given_to_parents: Duration,
}

impl Sampling {
    pub fn new(session: &Path) -> Sampling {
        Sampling {
            directory: session.to_owned(),
            sampler: None,
            samples: None,
            started: None,
            stopped: None,
            sampled_before: Vec::new(),
            predecessors_last: 0,
            stacks: None,
            stacks_overhead: None,
            given_to_parents: Duration::ZERO,
        }
    }

    /// Starts the sampler. `predecessor` is the sampler of a killed collector, whose ring is continued.
    pub fn start(
        &mut self,
        timer: Timer,
        predecessor: Option<Predecessor>,
        options: &Options,
        run_cpu: Option<SharedRunCpu>,
        notes: &mut Notes,
    ) {
        let config = &options.config;
        notes.extend(config.left_out.iter().map(|why| format!("{why}; it is ignored")));
        let settings = config.sources.clone();
        let (period, gauges) = (config.sampler.period, config.sampler.gauges.0);
        let other_jobs = config.attribution.other_jobs;
        let by_cpu_time = config.attribution.policy.is_none_or(|policy| policy == Policy::Active);
        let options =
            SamplerOptions { period, gauges, settings, predecessor, run_cpu, other_jobs, by_cpu_time };
        match Sampler::start(&self.directory, timer, options) {
            Ok(sampler) => (self.sampler, self.started) = (Some(sampler), Some((timer, timer.now()))),
            Err(why) => notes.add_loss(format!("no energy is sampled: {why}")),
        }
    }

    /// Stops the sampler. Returns `false` if it does not end.
    pub fn stop(&mut self, notes: &mut Notes) -> bool {
        self.stopped = self.stopped.or(self.started.map(|(timer, _)| timer.now()));
        let has_stopped = self.sampler.as_mut().is_none_or(Sampler::stop);
        if !has_stopped {
            notes.add_loss("a counter's library no longer answers: its last samples are lost");
        }
        if let Ok(Some(table)) = WorkTable::open(&self.directory) {
            note_left_out(&table, notes);
        }
        has_stopped
    }

    /// Returns the ticks before the first and after the last reading of a sampler that has ended, and those for which it ran.
    /// `None` if there is no reading.
    pub fn unread_ticks(&self) -> Option<(u64, u64)> {
        let ((_, started), stopped) = (self.started?, self.stopped?);
        let (first, last) = self.samples.as_ref()?.span?;
        let unread = first.saturating_sub(started) + stopped.saturating_sub(last);
        Some((unread, stopped.saturating_sub(started)))
    }

    /// Discards all samples so far, because their times are from another clock. All of them are older than the first event.
    /// Returns `false` if the sampler does not end; a new one would not end either.
    pub fn forget(&mut self, notes: &mut Notes) -> bool {
        self.samples = None;
        let has_stopped = self.stop(notes);
        (self.sampler, self.started, self.stopped) = (None, None, None);
        self.sampled_before.clear();
        has_stopped
    }

    /// Opens the ring of a replay, whose metrics are known before it starts.
    pub fn begin_replay(
        &mut self,
        found: Vec<FoundSeries>,
        spool: &SpoolDirectory,
        timeline: &mut LiveTimeline,
    ) -> Result<(), ampere_ring::Error> {
        let ring = RingConsumer::open(&self.directory.join(sampler::RING_NAME))?;
        let mut samples = Samples::new(ring, spool);
        samples.add_devices(found, timeline);
        self.samples = Some(samples);
        Ok(())
    }

    /// Continues the ring of a killed collector's sampler.
    pub fn take_over(
        &mut self,
        options: &mut Options,
        spool: &SpoolDirectory,
        run_cpu: Option<SharedRunCpu>,
        timeline: &mut LiveTimeline,
        notes: &mut Notes,
    ) {
        let ring = self.directory.join(sampler::RING_NAME);
        let opened = match options.mode {
            Mode::RecoveryFromDisk => RingConsumer::of_missing_ring(&ring, spool.records(SAMPLES_SPOOL)),
            _ => RingConsumer::open(&ring),
        };
        let continues = options.mode == Mode::Collector;
        let timer = timeline.clock.timer;
        let Ok(mut ring) = opened else {
            // The collector was killed before it had opened its counters.
            if continues {
                self.start(timer, None, options, run_cpu, notes);
            }
            return;
        };
        self.sampled_before = devices_in(&self.directory.join(sampler::LOG_NAME));
        let written = ring.position() + ring.available().unwrap_or(0);
        self.predecessors_last = last_sample(spool, &mut ring).unwrap_or(0);
        if continues {
            options.manifest.progress.breaks.push(written);
            options.save_manifest(spool, notes);
        }
        let devices = self.sampled_before.clone();
        timeline.pipeline.gaps = Gaps::new(options.manifest.progress.breaks.clone());
        let mut samples = Samples::new(ring, spool);
        samples.add_devices(found_series(&devices, options), timeline);
        self.samples = Some(samples);
        if continues {
            let predecessor = Predecessor { devices, ticks_per_second: timeline.clock.ticks_per_second };
            self.start(timer, Some(predecessor), options, run_cpu, notes);
        }
    }

    /// Processes the sampler's news: its notes, the powers that devices report, the counters that it has opened, and the work
    /// that was counted for the first time. Makes devices of the last two.
    pub fn find_devices(
        &mut self,
        options: &Options,
        spool: &SpoolDirectory,
        timeline: &mut LiveTimeline,
        notes: &mut Notes,
    ) {
        while let Some(line) = self.sampler.as_ref().and_then(Sampler::news) {
            notes.add(line);
        }
        self.take_powers(timeline);
        self.take_found(options, spool, timeline, notes);
        // In a short run, the devices and the first work are found at once. The devices have the first numbers.
        self.take_work(options, spool, timeline);
    }

    /// Makes devices of the counters that the sampler has opened, if it has just done so.
    fn take_found(
        &mut self,
        options: &Options,
        spool: &SpoolDirectory,
        timeline: &mut LiveTimeline,
        notes: &mut Notes,
    ) {
        let Some(found) = self.sampler.as_ref().and_then(Sampler::found) else { return };
        let opened = found.and_then(|found| {
            if self.samples.is_some() {
                return Ok((found, None));
            }
            let ring = RingConsumer::open(&self.directory.join(sampler::RING_NAME));
            Ok((found, Some(ring?)))
        });
        let (found, ring) = match opened {
            Ok(both) => both,
            Err(why) => {
                notes.add_loss(format!("no energy is sampled: {why}"));
                return;
            }
        };
        match found.is_incomplete {
            true => found.notes.into_iter().for_each(|note| notes.add_loss(note)),
            false => notes.extend(found.notes),
        }
        self.copy_log(spool);
        let new = match ring {
            Some(ring) => {
                timeline.pipeline.gaps = Gaps::new(options.manifest.progress.breaks.clone());
                self.samples = Some(Samples::new(ring, spool));
                found.devices.clone()
            }
            None => self.new_devices(&found.devices, notes),
        };
        if let Some(samples) = &mut self.samples {
            samples.add_devices(found_series(&new, options), timeline);
            samples.numbers = found.devices.iter().map(|device| device.index as usize).collect();
        }
    }

    /// Copies the sampler's log to the directory from which the run can be recovered.
    fn copy_log(&self, spool: &SpoolDirectory) {
        let log = sampler::LOG_NAME;
        let _ = ampere_owned::open_own(&self.directory.join(log)).and_then(|mut of_session| {
            let mut copy = ampere_owned::create(&spool.directory.join(log), PRIVATE_FILE_MODE)?;
            std::io::copy(&mut of_session, &mut copy)
        });
    }

    /// Adds the series of work that was counted for the first time.
    fn take_work(&mut self, options: &Options, spool: &SpoolDirectory, timeline: &mut LiveTimeline) {
        let (Some(sampler), Some(samples)) = (&self.sampler, &mut self.samples) else { return };
        let new: Vec<Device> = std::iter::from_fn(|| sampler.work()).collect();
        if !new.is_empty() {
            samples.add_devices(found_series(&new, options), timeline);
            self.copy_log(spool);
        }
    }

    /// Returns the devices that an earlier collector has not sampled.
    fn new_devices(&self, found: &[Device], notes: &mut Notes) -> Vec<Device> {
        let are_devices =
            self.sampled_before.iter().filter(|before| Counted::of_metric(&before.metric).is_none());
        for before in are_devices {
            if found.iter().all(|device| device.index != before.index) {
                notes.add_loss(format!(
                    "{}: the collector that took over no longer finds this device; its samples end there",
                    before.name
                ));
            }
        }
        let known = self.sampled_before.len();
        found.iter().filter(|device| device.index as usize >= known).cloned().collect()
    }

    /// Adds the powers that devices report, to compare them with their counters.
    fn take_powers(&self, timeline: &mut LiveTimeline) {
        let (Some(sampler), Some(samples)) = (&self.sampler, &self.samples) else { return };
        let attributor = &mut timeline.pipeline.attributor;
        let ticks_per_second = attributor.ticks_per_second;
        while let Some(reading) = sampler.power() {
            let number = samples.numbers.get(reading.device);
            let device = number.and_then(|number| samples.device(*number));
            if let Some(device) = device {
                let device = &mut attributor.devices[device];
                device.read_power_sensor(reading.which, reading.time, reading.watts, ticks_per_second);
            }
        }
    }

    /// Returns the sampler's figures about its devices, by the attributor's numbers.
    pub fn figures(&self, devices: usize) -> Vec<Option<&DeviceFigures>> {
        let mut all = vec![None; devices];
        let (Some(sampler), Some(samples)) = (&self.sampler, &self.samples) else { return all };
        for (figures, number) in sampler.figures.devices().iter().zip(&samples.numbers) {
            if let Some(device) = samples.device(*number) {
                all[device] = Some(figures);
            }
        }
        all
    }
}

fn found_series(devices: &[Device], options: &Options) -> Vec<FoundSeries> {
    devices.iter().map(|device| FoundSeries::sampled(&options.manifest.node, device)).collect()
}

/// Returns the time of the last sample that was taken, in the ring or in the spool.
fn last_sample(spool: &SpoolDirectory, ring: &mut RingConsumer) -> Option<Timestamp> {
    let mut records = Vec::new();
    let _ = ring.copy_out(&mut records, usize::MAX);
    let position = ring.position();
    if records.is_empty() && position > 0 {
        let spool = spool.open(SAMPLES_SPOOL, position)?;
        spool.read_back(position.saturating_sub(4), position, 4, &mut records).ok()?;
    }
    let samples = records.iter().rev().filter(|record| record.kind() == Some(Kind::Sample));
    samples.map(|record| record.word0).next()
}

/// Returns the devices that are defined in a sampler's log.
pub fn devices_in(log: &Path) -> Vec<Device> {
    let mut devices = Vec::new();
    if let Ok(Some(mut log)) = LogReader::open(log) {
        let _ = log.read_new(|definition| {
            if let Definition::Device(device) = definition {
                devices.push(device);
            }
        });
    }
    devices
}

/// Adds notes about calls and ranges that processes could not count.
fn note_left_out(table: &WorkTable, notes: &mut Notes) {
    if table.left_out() > 0 {
        notes.add(format!(
            "units of work of {} are not counted: their number was not finite and more than 0, a signal handler counted with a \
             new name, or there were more than {ROWS_MAX} names",
            plural(table.left_out(), "call")
        ));
    }
    if table.ranges_left_out() > 0 {
        notes.add(format!(
            "{} that were started and ended are not counted: a process had thousands open, a signal handler started one with a new \
             name, or there were too many names",
            plural(table.ranges_left_out(), "range")
        ));
    }
}
