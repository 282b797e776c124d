//! What a run is found to consist of: processes, the clock that they go by, and the devices that are sampled.

use crate::ingest::growth;
use crate::ingest::process::Process;
use crate::live::{LiveRun, RANKS, SAMPLES_SPOOL, Samples};
use crate::run_directory::leftover;
use crate::sampling::clock::{CALIBRATION, SessionClock, Timer, best_reading, recognise};
use crate::sampling::gaps::Gaps;
use crate::sampling::sampler::{self, GoOn, Sampler};
use ampere_model::{Clocks, Device, LocationKind};
use ampere_ring::decoder::Decoder;
use ampere_ring::{Kind, RingConsumer};
use ampere_timeline::attributor::{Attributor, FoundDevice, LocationInfo, Recorded};
use ampere_timeline::nature::Nature;
use ampere_timeline::order::Lane;
use ampere_timeline::topology::Place as DevicePlace;
use ampere_trace::evidence::place_of;
use ampere_trace::write::SampledMetric;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A device that is found, and what is known of its counter.
type FoundCounter = (FoundDevice, DevicePlace, Recorded);

impl LiveRun {
    pub(crate) fn find_processes(&mut self) {
        let mut logs = leftover::logs_in(self.session.directory());
        if self.known_logs.is_empty() {
            self.add_lost_logs(&mut logs);
        }
        for path in logs {
            if self.known_logs.contains(&path) {
                continue;
            }
            if self.known_logs.len() >= growth::MOST_PROCESSES {
                self.is_incomplete = true;
                return self.note(format!(
                    "more than {} processes: the others are not measured",
                    growth::MOST_PROCESSES
                ));
            }
            match Process::open(&path, &self.spool) {
                Ok(Some(process)) => {
                    self.known_logs.insert(path);
                    self.with_run_cpu(|run| run.add(process.info.pid, process.info.start_time));
                    self.processes.push(process);
                }
                Ok(None) => self.generation = u64::MAX, // look again
                Err(why) => {
                    self.known_logs.insert(path);
                    self.is_incomplete = true;
                    self.note(format!("{why}; what that process did is not measured"));
                }
            }
        }
    }

    /// Those that somebody has removed, where an earlier collector has kept copies: their records are there, too.
    fn add_lost_logs(&mut self, logs: &mut Vec<PathBuf>) {
        for copy in leftover::logs_in(&self.spool.directory) {
            if logs.iter().all(|log| log.file_name() != copy.file_name()) {
                self.is_incomplete = true;
                self.note(format!("a copy is read of {}, which somebody has removed", copy.display()));
                logs.push(copy);
            }
        }
    }

    /// Tells the attributor of new regions, locations and ranks.
    pub(crate) fn tell_attributor(&mut self) {
        // Before the clock is certain the attributor may yet be made anew.
        let Some(attributor) = self.attributor.as_mut().filter(|_| self.clock_is_certain) else { return };
        for (number, process) in self.processes.iter_mut().enumerate() {
            if let Some(replay) = &self.options.replay {
                process.recognise(replay);
                if process.replayed.is_none() {
                    continue; // it has not said which process of the trace it is
                }
            }
            process.tell_new_regions(&mut attributor.regions);
            for at in 0..process.locations.len() {
                let group = process.group_of(&process.locations[at].definition);
                let node = process.node_of(&process.locations[at].definition);
                let rank = process.rank_number();
                let location = &mut process.locations[at];
                let kind = location.definition.kind;
                let main = kind == LocationKind::CpuThread && location.definition.id.0 == 0;
                let Some(index) = location.index else {
                    let name = location.definition.name.clone();
                    let evidence = process.evidence(at, number as u64);
                    let info = LocationInfo { node, group, name, kind, rank, main };
                    let of_rank = info.kind == LocationKind::CpuThread;
                    let index = attributor.add_location_with(info, evidence);
                    let location = &mut process.locations[at];
                    location.index = Some(index);
                    if of_rank {
                        location.queue = Some((RANKS, self.lanes[RANKS].add_location(index)));
                    }
                    continue;
                };
                let known = &attributor.locations[index.0 as usize];
                if let Some(rank) = rank.filter(|_| known.rank != rank || known.group != group) {
                    attributor.set_rank(index, rank, group);
                }
            }
            let room = growth::MOST_NOTES.saturating_sub(self.notes.len());
            self.notes.extend(process.complaints.drain(..).take(room));
        }
        self.join_kernel_lanes();
    }

    /// The first event of the first process says which clock the run goes by. Until then it is taken to be the usual
    /// one, so that sampling begins before the program does.
    pub(crate) fn find_clock(&mut self) {
        let now = best_reading();
        let mut seen = None;
        for process in &mut self.processes {
            for location in &mut process.locations {
                self.batch.clear();
                let _ = location.ring.copy_out(&mut self.batch, 64);
                let first = self.batch.iter().find(|record| matches!(record.kind(), Some(Kind::Enter)));
                if let Some(record) = first {
                    seen = seen.or(Some(recognise(
                        record.word0,
                        &earlier(&process.info.clocks),
                        &process.info.clocks,
                        &now,
                    )));
                }
            }
        }
        let timer = match seen {
            Some(Some(timer)) => timer,
            Some(None) => {
                self.note(
                    "cannot tell which clock the events come from (SCOREP_TIMER): nothing is attributed rightly"
                        .to_owned(),
                );
                Timer::usual()
            }
            None => return,
        };
        if self.clock.is_none() || timer != Timer::usual() {
            std::thread::sleep(CALIBRATION.saturating_sub(self.begun.elapsed()));
            self.set_clock(timer);
        }
        self.clock_is_certain = true;
        self.remember_clock();
        self.tell_attributor();
    }

    /// Begins to attribute by this clock. What was sampled by another one is forgotten: no event was before it.
    pub(crate) fn set_clock(&mut self, timer: Timer) {
        let clock = SessionClock::calibrated(timer, &self.started);
        self.clock = Some(clock);
        self.attributor = Some(Attributor::new(self.options.config.clone(), clock.ticks_per_second));
        self.lanes = vec![Lane::default()];
        self.power.clear();
        if timer != Timer::usual() {
            self.samples = None;
            if let Some(mut sampler) = self.sampler.take()
                && !sampler.stop()
            {
                self.sampler_hangs(); // and so would another one
                return self.remember_clock();
            }
            self.options.manifest.breaks.clear();
            self.sampled_before.clear();
            self.start_sampler(timer, None);
        }
        self.remember_clock();
    }

    pub(crate) fn sampler_hangs(&mut self) {
        self.is_incomplete = true;
        self.note(
            "a counter's library does not answer any more: what is missing of its last samples is lost"
                .to_owned(),
        );
    }

    fn no_samples(&mut self, why: &str) {
        self.is_incomplete = true;
        self.note(format!("no energy is sampled: {why}"));
    }

    /// `go_on`: with the ring of a sampler that is dead, and by which clock.
    pub(crate) fn start_sampler(&mut self, timer: Timer, go_on: Option<GoOn>) {
        let period = self.options.config.sampler.period;
        for why in self.options.config.left_out.clone() {
            self.note(format!("{why}; it is left out"));
        }
        let settings = self.options.config.sources.clone();
        let wanted = self.options.config.sampler.gauges.0;
        let (directory, run_cpu) = (self.session.directory(), self.run_cpu.clone());
        match Sampler::start(directory, timer, (period, wanted), settings, go_on, run_cpu) {
            Ok(sampler) => self.sampler = Some(sampler),
            Err(why) => self.no_samples(&why),
        }
    }

    /// The sampler has opened its counters: they become devices.
    pub(crate) fn find_devices(&mut self) {
        while let Some(line) = self.sampler.as_ref().and_then(Sampler::news) {
            self.note(line);
        }
        self.take_powers();
        let Some(found) = self.sampler.as_ref().and_then(Sampler::found) else { return };
        if let (Some(_), Ok(found)) = (&self.samples, &found) {
            return self.go_on_with_devices(found);
        }
        let opened = found.and_then(|found| {
            let ring = RingConsumer::open(&self.session.directory().join(sampler::RING_NAME));
            Ok((found, ring.map_err(|e| e.to_string())?))
        });
        let (found, ring) = match opened {
            Ok(both) => both,
            Err(why) => return self.no_samples(&why),
        };
        found.notes.into_iter().for_each(|line| self.note(line));
        let _ = std::fs::copy(
            self.session.directory().join(sampler::LOG_NAME),
            self.spool.directory.join(sampler::LOG_NAME),
        );
        self.add_found(&found.devices, ring);
        if let Some(samples) = &mut self.samples {
            samples.numbers = (0..found.devices.len()).collect();
        }
    }

    /// What devices say of their power goes beside their counters.
    fn take_powers(&mut self) {
        let (Some(sampler), Some(samples)) = (&self.sampler, &self.samples) else { return };
        let Some(attributor) = &mut self.attributor else { return };
        let ticks_per_second = attributor.ticks_per_second;
        while let Some(reading) = sampler.power() {
            let number = samples.numbers.get(reading.device);
            let device = number.and_then(|number| samples.devices.get(*number).copied().flatten());
            if let Some(device) = device {
                attributor.devices[device].sense(
                    reading.which,
                    reading.time,
                    reading.watts,
                    ticks_per_second,
                );
            }
        }
    }

    pub(crate) fn add_found(&mut self, found: &[Device], ring: RingConsumer) {
        let (metrics, devices, natures) = self.describe(found);
        self.add_devices(metrics, devices, natures, ring);
    }

    pub(crate) fn describe(&self, found: &[Device]) -> (Vec<SampledMetric>, Vec<FoundCounter>, Vec<Nature>) {
        let node = self.options.manifest.node.clone();
        let devices = found.iter().map(|device| {
            let found = FoundDevice {
                node: node.clone(),
                metric: device.metric.clone(),
                source: device.source.clone(),
                quality: device.quality,
                joules_per_unit: Some(1e-9),
            };
            (found, place_of(device), Recorded::default())
        });
        let devices = devices.collect();
        let metrics = found.iter().map(|device| SampledMetric::sampled(node.clone(), device)).collect();
        (metrics, devices, found.iter().map(Nature::of_device).collect())
    }

    /// Counters become devices, and those that GPU streams may spend from get a lane.
    pub(crate) fn add_devices(
        &mut self,
        metrics: Vec<SampledMetric>,
        devices: Vec<FoundCounter>,
        natures: Vec<Nature>,
        ring: RingConsumer,
    ) {
        if self.attributor.is_none() {
            return;
        }
        let position = ring.position();
        let spool = self.spool.open(SAMPLES_SPOOL, position);
        if let Err(error) = &spool {
            self.notes.push(format!(
                "cannot write {}: {error}; the trace has no samples",
                self.spool.directory.display()
            ));
        }
        let spool = spool.ok().flatten();
        self.samples = Some(Samples {
            metrics: Vec::new(),
            ring,
            stream: Decoder::default(),
            catching_up: spool.as_ref().filter(|_| position > 0).map(|_| 0),
            spool,
            rank_queues: Vec::new(),
            kernel_queues: Vec::new(),
            devices: Vec::new(),
            span: None,
            gaps: Gaps::new(self.options.manifest.breaks.clone()),
            numbers: Vec::new(),
        });
        self.add_more_devices(metrics, devices, natures);
    }

    pub(crate) fn add_more_devices(
        &mut self,
        metrics: Vec<SampledMetric>,
        devices: Vec<FoundCounter>,
        natures: Vec<Nature>,
    ) {
        let (Some(attributor), Some(samples)) = (&mut self.attributor, &mut self.samples) else { return };
        let add = |(device, place, recorded)| attributor.add_recorded(device, place, recorded);
        let devices: Vec<_> = devices.into_iter().map(add).collect();
        for (device, nature) in devices.iter().zip(natures) {
            device.iter().for_each(|device| attributor.set_nature(*device, nature.clone()));
        }
        for device in samples.kernel_queues.len()..attributor.devices.len() {
            let is_gpu = attributor.counter(device).is_gpu();
            samples.kernel_queues.push(is_gpu.then(|| {
                self.lanes.push(Lane::default());
                let lane = self.lanes.len() - 1;
                (lane, self.lanes[lane].add_counter())
            }));
            samples.rank_queues.push(self.lanes[RANKS].add_counter());
        }
        samples.metrics.extend(metrics);
        samples.devices.extend(devices);
        self.join_kernel_lanes();
    }

    /// A GPU stream gets a place in the lane of the device that it spends from. If these are several, their lanes become
    /// one: the stream's events can be handed over only once.
    fn join_kernel_lanes(&mut self) {
        let (Some(attributor), Some(samples)) = (&self.attributor, &mut self.samples) else { return };
        for process in 0..self.processes.len() {
            for at in 0..self.processes[process].locations.len() {
                let location = &self.processes[process].locations[at];
                let new = location.queue.is_none() && location.definition.kind == LocationKind::Gpu;
                let Some(index) = location.index.filter(|_| new) else { continue };
                let devices = attributor.kernel_devices_of(index);
                let lane_of = |device: &usize| samples.kernel_queues[*device].map(|(lane, _)| lane);
                let lanes: BTreeSet<usize> = devices.iter().filter_map(lane_of).collect();
                let Some(first) = lanes.first().copied() else { continue };
                for other in lanes.into_iter().skip(1) {
                    let absorbed = std::mem::take(&mut self.lanes[other]);
                    let by = self.lanes[first].absorb(absorbed);
                    let locations = self.processes.iter_mut().flat_map(|process| &mut process.locations);
                    let queues =
                        locations.map(|location| &mut location.queue).chain(&mut samples.kernel_queues);
                    for (lane, queue) in queues.flatten().filter(|(lane, _)| *lane == other) {
                        (*lane, *queue) = (first, queue.further(by));
                    }
                }
                let queue = self.lanes[first].add_location(index);
                self.processes[process].locations[at].queue = Some((first, queue));
            }
        }
    }
}

/// Ten seconds before a reading: Score-P takes the time of the program's beginning before it loads a plugin.
fn earlier(clocks: &Clocks) -> Clocks {
    const NANOSECONDS: u64 = 10_000_000_000;
    Clocks {
        tsc: clocks.tsc.saturating_sub(5 * NANOSECONDS),
        monotonic_ns: clocks.monotonic_ns.saturating_sub(NANOSECONDS),
        monotonic_raw_ns: clocks.monotonic_raw_ns.saturating_sub(NANOSECONDS),
        realtime_ns: clocks.realtime_ns.saturating_sub(NANOSECONDS),
    }
}
