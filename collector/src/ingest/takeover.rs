//! A collector in the place of a dead one.
//!
//! What a run's figures are is a function of its records alone, and none of them is lost: those that the dead collector
//! had taken out of the rings are in the spool, the others still in the rings. So whoever takes over reads the spool again,
//! through the same streams and lanes into the same engine, and goes on with the rings where they were left.
//!
//! The program is not to wait for that: from the first round on, what comes into the rings is spooled as ever, and decoded
//! when its turn has come. Until then nothing is published, so that no counter in /metrics ever goes back.

use crate::ingest::process::{LiveLocation, State};
use crate::live::{BATCH, LiveRun, Mode};
use crate::sampling::clock::Timer;
use crate::sampling::sampler::{self, GoOn};
use ampere_model::{Definition, Device, Timestamp};
use ampere_report::summary::Summary;
use ampere_ring::{Kind, LogReader, RingConsumer, Session};

/// Batches that are decoded between two looks at the rings: some 50 ms.
const BATCHES_PER_ROUND: usize = 32;

/// Something that is read again.
#[derive(Clone, Copy)]
enum Again {
    Location(usize, usize),
    Samples,
}

impl LiveRun {
    /// Goes on from the manifest that an earlier collector has left: its clock, and its sampler's ring.
    pub(crate) fn go_on(&mut self) {
        let Some((clock, certain)) = self.options.manifest.clock() else { return };
        if self.attributor.is_none() {
            self.clock = Some(clock);
            self.clock_is_certain = certain;
            self.attributor = Some(ampere_timeline::attributor::Attributor::new(
                self.options.config.clone(),
                clock.ticks_per_second,
            ));
            self.go_on_sampling(clock.timer, clock.ticks_per_second);
        }
    }

    fn go_on_sampling(&mut self, timer: Timer, ticks_per_second: u64) {
        let directory = self.session.directory().to_owned();
        let ring = directory.join(sampler::RING_NAME);
        let lost = self.options.mode == Mode::RecoveryFromDisk;
        let opened = match lost {
            true => RingConsumer::of_missing_ring(&ring, self.spool.records(crate::live::SAMPLES_SPOOL)),
            false => RingConsumer::open(&ring),
        };
        let Ok(mut ring) = opened else {
            // It was killed before it had opened its counters.
            if self.options.mode == Mode::Collector {
                self.start_sampler(timer, None);
            }
            return;
        };
        self.sampled_before = devices_in(&directory.join(sampler::LOG_NAME));
        let written = ring.position() + ring.available().unwrap_or(0);
        self.predecessors_last = self.last_sample(&mut ring).unwrap_or(0);
        if self.options.mode == Mode::Collector {
            self.options.manifest.breaks.push(written);
            self.save_manifest();
        }
        let devices = self.sampled_before.clone();
        self.add_found(&devices, ring);
        if self.options.mode == Mode::Collector {
            self.start_sampler(timer, Some(GoOn { devices, ticks_per_second }));
        }
    }

    /// The time of the last sample that was taken: in the ring, or in the spool.
    fn last_sample(&self, ring: &mut RingConsumer) -> Option<Timestamp> {
        let mut records = Vec::new();
        let _ = ring.copy_out(&mut records, usize::MAX);
        let position = ring.position();
        if records.is_empty() && position > 0 {
            let spool = self.spool.open(crate::live::SAMPLES_SPOOL, position).ok().flatten()?;
            spool.read_back(position.saturating_sub(4), position, 4, &mut records).ok()?;
        }
        let samples = records.iter().rev().filter(|record| record.kind() == Some(Kind::Sample));
        samples.map(|record| record.word0).next()
    }

    /// The new sampler has opened its counters: those that were there before go on, others are new.
    pub(crate) fn go_on_with_devices(&mut self, found: &sampler::Found) {
        found.notes.iter().for_each(|line| self.note(line.clone()));
        let log = sampler::LOG_NAME;
        let _ = std::fs::copy(self.session.directory().join(log), self.spool.directory.join(log));
        let known = self.sampled_before.len();
        let new: Vec<Device> = found.devices.iter().filter(|d| d.index as usize >= known).cloned().collect();
        for before in &self.sampled_before.clone() {
            if found.devices.iter().all(|device| device.index != before.index) {
                self.is_incomplete = true;
                self.note(format!(
                    "{}: the collector that took over does not find it any more; its samples end there",
                    before.name
                ));
            }
        }
        let (metrics, devices, natures) = self.describe(&new);
        self.add_more_devices(metrics, devices, natures);
        if let Some(samples) = &mut self.samples {
            samples.numbers = found.devices.iter().map(|device| device.index as usize).collect();
        }
    }

    pub(crate) fn save_manifest(&mut self) {
        if let Err(why) = self.options.manifest.save(&self.spool.directory) {
            self.note(format!("{why}: were the collector killed, the run could not be recovered"));
        }
    }

    pub(crate) fn remember_clock(&mut self) {
        let Some(clock) = self.clock.filter(|_| self.options.replay.is_none()) else { return };
        self.options.manifest.set_clock(&clock, self.clock_is_certain);
        self.save_manifest();
    }

    /// Of processes that ended while nobody collected, everything is brought to disk: it is read in the order of time with
    /// the rest. What is open in those that did not end in order ends when they were last known to run.
    pub(crate) fn take_over_dead(&mut self) {
        if self.clock.is_none() || !self.clock_is_certain || std::mem::replace(&mut self.has_taken_over, true)
        {
            return;
        }
        for at in 0..self.processes.len() {
            if self.processes[at].state == State::Running && self.is_alive(at) {
                continue;
            }
            self.processes[at].read_log(&self.spool);
            self.tell_attributor();
            if self.processes[at].state == State::Running {
                self.set_ended(at);
            }
            let mut batch = std::mem::take(&mut self.batch);
            for location in &mut self.processes[at].locations {
                if location.spool.is_some() {
                    location.catching_up.get_or_insert(0);
                    while location.drain(&mut batch, BATCH).unwrap_or(0) > 0 {}
                }
            }
            self.batch = batch;
        }
    }

    fn is_alive(&self, process: usize) -> bool {
        self.options.mode == Mode::Collector && self.processes[process].is_alive()
    }

    /// All of a location has been read again: it may be that no more will come.
    fn end_if_over(&mut self, process: usize, location: usize) {
        let of = &mut self.processes[process];
        let live = &mut of.locations[location];
        // One that has just said goodbye may have written more than has been brought to disk.
        if live.catching_up.is_some() || live.waiting() > 0 {
            return;
        }
        if of.state == State::Running && live.may_go_on() && self.is_alive(process) {
            // It was closed by a collector that was about to end the run, and goes on.
            self.processes[process].locations[location].goes_on();
            return;
        }
        let of = &self.processes[process];
        if let Some(end) = of.locations[location].ended_at {
            self.close_location(process, location, end);
        } else if of.state != State::Running {
            let end = of.program_end.unwrap_or(self.predecessors_last);
            self.close_location(process, location, end);
        }
    }

    fn again(&self) -> impl Iterator<Item = (Again, Timestamp)> {
        let locations = self.processes.iter().enumerate().flat_map(|(process, of)| {
            let again = move |(at, location): (usize, &LiveLocation)| {
                location.index?; // the attributor gets to know it first
                location.catching_up.map(|_| (Again::Location(process, at), location.stream.last_time()))
            };
            of.locations.iter().enumerate().filter_map(again)
        });
        let samples = self.samples.iter().filter(|samples| samples.catching_up.is_some());
        locations.chain(samples.map(|samples| (Again::Samples, samples.stream.last_time())))
    }

    pub(crate) fn is_catching_up(&self) -> bool {
        self.again().next().is_some()
    }

    /// Decodes more of what earlier collectors have spooled, the streams that are furthest behind first, so that little
    /// waits in the lanes. `limit`: what is later may not have come yet.
    pub(crate) fn catch_up(&mut self, limit: Timestamp) {
        let mut batch = std::mem::take(&mut self.batch);
        for _ in 0..BATCHES_PER_ROUND {
            let Some((which, reached)) = self.again().min_by_key(|(_, reached)| *reached) else { break };
            self.watermark = self.watermark.max(reached.min(limit));
            self.advance(self.watermark);
            batch.clear();
            match which {
                Again::Location(process, location) => {
                    if self.processes[process].locations[location].read_again(&mut batch) {
                        self.decode(process, location, &batch);
                        self.pass_what_is_not_known(process, location);
                        self.end_if_over(process, location);
                    } else {
                        self.lose(process, location);
                    }
                }
                Again::Samples => self.read_samples_again(&mut batch),
            }
        }
        self.batch = batch;
    }

    /// All of it, for a run that is at its end.
    pub(crate) fn catch_up_to_the_end(&mut self) {
        while self.is_catching_up() {
            self.drain_samples();
            self.catch_up(Timestamp::MAX);
        }
    }

    /// Makes trace and summary of what is left of a run that is over. The error is one line.
    pub fn recover(mut self) -> Result<(Summary, Session), String> {
        self.read_definitions();
        if !self.clock_is_certain {
            self.find_clock();
        }
        self.take_over_dead();
        self.catch_up_to_the_end();
        if self.options.mode == Mode::RecoveryFromDisk && !self.options.manifest.is_drained {
            self.is_incomplete = true;
            let why = if self.options.manifest.has_ended {
                "the disk had no room for all records, and the shared memory that had the others is gone: they are lost"
            } else {
                "the shared memory of the run is gone: what was not yet on disk is lost"
            };
            self.note(why.to_owned());
        }
        let before = self.options.manifest.losses.clone();
        self.is_incomplete |= before.is_incomplete;
        before.notes.into_iter().for_each(|line| self.note(line));
        self.is_incomplete |= self.gaps().iter().any(|gap| gap.joules.is_none());
        if !self.options.manifest.has_ended {
            self.note("its collector was killed: ampere recover made this of what was left".to_owned());
        }
        self.finish(true)
    }

    fn read_samples_again(&mut self, batch: &mut Vec<ampere_ring::Record>) {
        let Some(samples) = &mut self.samples else { return };
        let (Some(at), Some(spool)) = (samples.catching_up, &mut samples.spool) else { return };
        let end = samples.ring.position();
        let count = spool.read_back(at, end, BATCH, batch).unwrap_or(0);
        let at = at + count as u64;
        samples.catching_up = (count > 0 && at < end).then_some(at);
        if count == 0 && at < end {
            self.note(format!("{} samples on disk cannot be read again", (end - at) / 2));
            self.is_incomplete = true;
        }
        self.take_samples(at - count as u64, batch);
    }

    /// The disk was full when an earlier collector read the rest: what was open ends where the records do, and what comes next
    /// is from the ring.
    fn pass_what_is_not_known(&mut self, process: usize, location: usize) {
        let live = &mut self.processes[process].locations[location];
        if live.catching_up.is_some() {
            return;
        }
        let (Some(known), read) = (live.known_until.take(), live.ring.position()) else { return };
        let (name, end) = (live.definition.name.clone(), live.stream.last_time());
        let group = self.processes[process].group();
        self.end_frames(process, location, end);
        self.is_incomplete = true;
        self.note(format!(
            "{group}, {name}: {} of {read} records are not on disk: they are lost",
            read - known
        ));
    }

    fn lose(&mut self, process: usize, location: usize) {
        let name = self.processes[process].locations[location].definition.name.clone();
        let group = self.processes[process].group();
        self.note(format!(
            "records of {group}, {name}, on disk cannot be read again: its figures are incomplete"
        ));
        self.is_incomplete = true;
    }

    /// Records that were read and not kept: the run goes on, with what was before missing.
    pub(crate) fn look_for_lost_beginnings(&mut self) {
        let locations = self.processes.iter_mut().flat_map(|process| &mut process.locations);
        let mut lost = false;
        for location in locations {
            lost |= std::mem::take(&mut location.beginning_is_lost);
        }
        if lost {
            self.is_incomplete = true;
            let now = ampere_report::clock_text::rfc3339(crate::sampling::clock::best_reading().realtime_ns);
            let what = match self.options.mode {
                Mode::Collector => format!("the collector was killed, and another one went on at {now}"),
                _ => "the collector was killed".to_owned(),
            };
            self.note(format!(
                "{what}: records are kept on disk only for a trace, so what had been measured before is lost"
            ));
        }
    }
}

impl LiveLocation {
    /// The next batch of what was read from the ring before. `false`: it cannot be had.
    fn read_again(&mut self, batch: &mut Vec<ampere_ring::Record>) -> bool {
        let (Some(at), Some(spool)) = (self.catching_up.take(), &mut self.spool) else { return false };
        let end = self.known_until.unwrap_or(self.ring.position());
        let count = spool.read_back(at, end, BATCH, batch);
        let at = at + *count.as_ref().unwrap_or(&0) as u64;
        self.catching_up = (count.is_ok() && at < end).then_some(at);
        count.is_ok()
    }
}

/// The devices that a sampler's log names.
pub fn devices_in(log: &std::path::Path) -> Vec<Device> {
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
