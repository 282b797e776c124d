//! One node's run, live: the loop's body, and the end.

mod ending;
mod takeover;

pub use takeover::devices_in;

pub use ending::write_results;

use crate::attributor::{Attributor, FoundDevice, LocationInfo};
use crate::clock::{CALIBRATION, SessionClock, Timer, best_reading, recognise};
use crate::config::Config;
use crate::evidence::place_of;
use crate::facts::Facts;
use crate::gaps::Gaps;
use crate::gauges::Seen;
use crate::growth::{self, CallPaths};
use crate::metrics::Latest;
use crate::nature::Nature;
use crate::numbers::Handles;
use crate::order::{Lane, Queue, QueueIndex};
use crate::process::{LiveLocation, Process, State};
use crate::replay::Replay;
use crate::room::Room;
use crate::sampler::{self, DeviceFigures, GoOn, Sampler};
use crate::snapshot::{self, Limits, RankFigures, Snapshot};
use crate::spool::{Place, Spool};
use crate::stream::{Event, Stream};
use crate::summary::{Readings, SamplerOverhead};
use crate::topology::Place as DevicePlace;
use crate::trace::SampledMetric;
use crate::{gauges, overhead};
use ampere_model::{Clocks, Device, LocationKind, RegionRef, Timestamp};
use ampere_ring::process::node_name;
use ampere_ring::{Kind, Record, RingConsumer, Session};
use otf2::MetricValue;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Records taken from one ring at a time.
const BATCH: usize = 1 << 14;
/// How often all rings are drained and what is in them attributed. In between, only those are that fill up: of hundreds of
/// threads with few events each, looking at a handful at a time would cost more than the events.
const THOROUGH_PERIOD: Duration = Duration::from_millis(16);
const HARDLY_FILLED: f64 = 1.0 / 64.0;
/// How often a snapshot is made for /metrics.
const SNAPSHOT_PERIOD: Duration = Duration::from_millis(100);
/// How often while nothing happens and nobody has asked for one for so long.
const UNASKED_PERIOD: Duration = Duration::from_secs(1);
const UNASKED_AFTER: Duration = Duration::from_secs(3);
/// How often it is checked who still lives.
const LIVENESS_PERIOD: Duration = Duration::from_millis(100);
/// Power is averaged over this.
const POWER_WINDOW: Duration = Duration::from_secs(1);

/// The samples' file in the spool.
pub(crate) const SAMPLES_SPOOL: &str = "sampler.0.records";
/// The lane of the ranks views.
const RANKS: usize = 0;

pub struct Options {
    pub output: PathBuf,
    /// Where records lie until the trace is written: there already, and empty.
    pub spool: PathBuf,
    pub config: Config,
    pub command: Vec<String>,
    pub run_id: String,
    /// The run is a trace's that is played: it says what there is and what time it is.
    pub replay: Option<Replay>,
    /// What an earlier collector has found out, if there was one.
    pub facts: Facts,
    pub mode: Mode,
}

/// Who we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The run's collector, the first or another one in a dead one's place.
    Collector,
    /// The run is over and its collector is dead: what is left is finished.
    Recovery,
    /// The same, without the rings.
    RecoveryFromDisk,
}

/// The sampler's ring, as one more stream.
struct Samples {
    metrics: Vec<SampledMetric>,
    ring: RingConsumer,
    stream: Stream,
    spool: Option<Spool>,
    /// Per device, its place in the lane of the ranks: each has its own delay, and in one queue times must not go back.
    rank_queues: Vec<QueueIndex>,
    /// Per device that may have GPU streams: its lane and place for the kernels view.
    kernel_queues: Vec<Option<(usize, QueueIndex)>>,
    /// Device numbers of the sampler to those of the attributor.
    devices: Vec<Option<usize>>,
    /// Times of the first and the last sample.
    span: Option<(Timestamp, Timestamp)>,
    /// As of a location: how far what an earlier collector has read is decoded again.
    catching_up: Option<u64>,
    gaps: Gaps,
    /// The numbers of the devices that the sampler reads now.
    numbers: Vec<usize>,
}

pub struct LiveRun {
    session: Session,
    options: Options,
    spool: Place,
    room: Room,
    started: Clocks,
    begun: Instant,
    clock: Option<SessionClock>,
    /// Whether an event has shown that it is this clock.
    clock_is_certain: bool,
    sampler: Option<Sampler>,
    attributor: Option<Attributor>,
    lanes: Vec<Lane>,
    processes: Vec<Process>,
    known_logs: HashSet<PathBuf>,
    samples: Option<Samples>,
    generation: u64,
    limits: Limits,
    power: VecDeque<(Timestamp, Vec<f64>)>,
    pub latest: Latest,
    next_thorough: Instant,
    next_snapshot: Instant,
    /// When somebody last asked for metrics.
    asked: Instant,
    /// The loop has seen nothing happen for a while.
    pub is_idle: bool,
    next_liveness: Instant,
    batch: Vec<Record>,
    pub notes: Vec<String>,
    /// Everything before this is in the lanes, but for what GPU streams have not reported.
    watermark: Timestamp,
    /// How far a location has been read whose ring had more than could be taken at once.
    behind: Option<Timestamp>,
    done_until: Timestamp,
    quiet_since: Option<Instant>,
    /// The devices that an earlier collector has sampled, in its ring.
    sampled_before: Vec<Device>,
    /// The last sample of the collector before.
    predecessors_last: Timestamp,
    /// Processes that had ended before this collector came have been looked at.
    has_taken_over: bool,
    /// Something of the run is lost for good.
    is_incomplete: bool,
    callpaths: CallPaths,
}

/// What one round of the loop found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Round {
    pub records: usize,
    /// How full the fullest ring was, between 0 and 1.
    pub fullest: f64,
}

impl LiveRun {
    pub fn new(session: Session, options: Options, latest: Latest) -> Result<LiveRun, String> {
        let spool = Place {
            directory: options.spool.clone(),
            wanted: options.config.trace,
            rings_are_lost: options.mode == Mode::RecoveryFromDisk,
        };
        let started = options.facts.started();
        let begins = options.mode == Mode::Collector && options.facts.clock().is_none();
        let mut run = LiveRun {
            session,
            room: Room::keep(&options.spool),
            limits: Limits::new(options.config.most_series),
            options,
            spool,
            started,
            begun: began(&started),
            clock: None,
            clock_is_certain: false,
            sampler: None,
            attributor: None,
            lanes: vec![Lane::default()],
            processes: Vec::new(),
            known_logs: HashSet::new(),
            samples: None,
            generation: u64::MAX,
            power: VecDeque::new(),
            latest,
            next_thorough: Instant::now(),
            next_snapshot: Instant::now(),
            asked: Instant::now(),
            is_idle: false,
            next_liveness: Instant::now(),
            batch: Vec::with_capacity(BATCH),
            notes: Vec::new(),
            watermark: 0,
            behind: None,
            done_until: 0,
            quiet_since: None,
            sampled_before: Vec::new(),
            predecessors_last: 0,
            has_taken_over: begins,
            is_incomplete: false,
            callpaths: CallPaths::default(),
        };
        run.begin_replay()?;
        run.go_on();
        Ok(run)
    }

    /// Of a replay, clock and devices are known before it begins.
    fn begin_replay(&mut self) -> Result<(), String> {
        let Some(replay) = &self.options.replay else { return Ok(()) };
        let clock = SessionClock::told(replay.ticks_per_second, replay.first, replay.realtime_ns);
        self.clock = Some(clock);
        self.clock_is_certain = true;
        self.attributor = Some(Attributor::new(self.options.config.clone(), clock.ticks_per_second));
        self.notes.extend(replay.notes.iter().cloned());
        let metrics = replay.metrics.iter().map(SampledMetric::replayed).collect();
        let devices = replay.metrics.iter().map(|m| (m.as_found(), m.place.clone())).collect();
        let ring = RingConsumer::open(&self.session.directory().join(sampler::RING_NAME));
        let natures = replay.metrics.iter().map(|metric| metric.nature.clone()).collect();
        self.add_devices(metrics, devices, natures, ring.map_err(|e| e.to_string())?);
        Ok(())
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// One round: read definitions, drain rings, attribute what is certain, publish.
    pub fn round(&mut self) -> Round {
        self.session.beat();
        if self.sampler.is_none() && self.attributor.is_none() {
            self.start_sampler(Timer::usual(), None);
        }
        if self.clock.is_none() && self.begun.elapsed() >= CALIBRATION {
            self.set_clock(Timer::usual());
        }
        if !self.clock_is_certain {
            self.read_definitions();
            self.find_clock();
        }
        let Some(clock) = self.clock else {
            self.check_liveness();
            return Round::default();
        };
        self.find_devices();
        // Before anything is read: what has a timestamp before this and is not in a ring by now is late.
        let now = clock.now(&self.session);
        self.read_definitions();
        self.take_over_dead();
        let catching_up = self.is_catching_up();
        let thorough = clock.is_told() || catching_up || self.next_thorough <= Instant::now();
        let round = if self.clock_is_certain { self.drain_all(thorough) } else { Round::default() };
        if thorough {
            self.next_thorough = Instant::now() + THOROUGH_PERIOD;
            self.drain_samples();
            if self.lanes.iter().map(Lane::waiting).sum::<usize>() > growth::MOST_WAITING {
                self.stop_waiting(now.saturating_add(clock.ticks(growth::FUTURE)));
            }
            let slack = if clock.is_told() { 0 } else { clock.ticks(self.options.config.slack) };
            let certain = now.saturating_sub(slack).min(self.behind.unwrap_or(Timestamp::MAX));
            if catching_up {
                self.catch_up(certain);
                self.next_thorough = Instant::now(); // nothing is published before all is attributed
                return Round { records: round.records, fullest: 1.0 };
            }
            self.watermark = self.watermark.max(certain);
            self.advance(self.watermark);
            self.look_at_callpaths();
        }
        self.check_liveness();
        if Instant::now() >= self.next_snapshot {
            self.publish();
        }
        if let Some(sampler) = &self.sampler {
            sampler.set_calm(self.is_calm());
        }
        round
    }

    /// Nothing happens, and nobody looks.
    fn is_calm(&self) -> bool {
        self.is_idle && self.asked.elapsed() > UNASKED_AFTER
    }

    /// Reads logs if anybody says that there is something new.
    fn read_definitions(&mut self) {
        let generation = self.session.generation();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        self.find_processes();
        for process in &mut self.processes {
            process.read_log(&self.spool);
        }
        self.tell_attributor();
        self.look_for_lost_beginnings();
    }

    /// What waits has become too much: nobody is waited for whose ring is not emptied, and who tells of times that are yet
    /// to come, which would wait until then, is not read any further.
    fn stop_waiting(&mut self, future: Timestamp) {
        self.behind = None;
        let mut notes = Vec::new();
        for live in self.processes.iter_mut().flat_map(|process| &mut process.locations) {
            if !live.damaged && live.stream.last_time() > future {
                live.damaged = true;
                notes.push(format!(
                    "{} has events of times that are yet to come: it is not read further",
                    live.ring.path().display()
                ));
            }
        }
        notes.into_iter().for_each(|line| self.note(line));
    }

    /// A location whose call tree grows without end is not read any further.
    fn look_at_callpaths(&mut self) {
        let Some(attributor) = &self.attributor else { return };
        let mut notes = Vec::new();
        for live in self.processes.iter_mut().flat_map(|process| &mut process.locations) {
            let Some(index) = live.index.filter(|_| !live.damaged) else { continue };
            let now = attributor.engine.callpaths_of(index);
            if let Some(why) = self.callpaths.grew(std::mem::replace(&mut live.callpaths, now), now) {
                live.damaged = true;
                notes.push(format!("{} {why}: it is not read further", live.ring.path().display()));
            }
        }
        notes.into_iter().for_each(|line| self.note(line));
    }

    fn find_processes(&mut self) {
        let Ok(entries) = std::fs::read_dir(self.session.directory()) else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            let is_log =
                path.extension().is_some_and(|e| e == "defs") && !entry.file_name().eq("sampler.defs");
            if !is_log || self.known_logs.contains(&path) {
                continue;
            }
            if self.known_logs.len() >= growth::MOST_PROCESSES {
                return self.note(format!(
                    "more than {} processes: the others are not measured",
                    growth::MOST_PROCESSES
                ));
            }
            match Process::open(&path, &self.spool) {
                Ok(Some(process)) => {
                    self.known_logs.insert(path);
                    self.processes.push(process);
                }
                Ok(None) => self.generation = u64::MAX, // look again
                Err(why) => {
                    self.known_logs.insert(path);
                    self.note(why);
                }
            }
        }
    }

    /// Tells the attributor of new regions, locations and ranks.
    fn tell_attributor(&mut self) {
        // Before the clock is certain the attributor may yet be made anew.
        let Some(attributor) = self.attributor.as_mut().filter(|_| self.clock_is_certain) else { return };
        for (number, process) in self.processes.iter_mut().enumerate() {
            if let Some(replay) = &self.options.replay {
                process.recognise(replay);
                if process.replayed.is_none() {
                    continue; // it has not said which process of the trace it is
                }
            }
            for region in process.new_regions.drain(..) {
                let reference = attributor.regions.add(&region);
                process.regions.insert(region.handle.0, reference);
            }
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
                    let of_rank = attributor.is_rank(&info);
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
    fn find_clock(&mut self) {
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
    fn set_clock(&mut self, timer: Timer) {
        let clock = SessionClock::calibrated(timer, &self.started);
        self.clock = Some(clock);
        self.attributor = Some(Attributor::new(self.options.config.clone(), clock.ticks_per_second));
        self.lanes = vec![Lane::default()];
        self.power.clear();
        if timer != Timer::usual() {
            self.samples = None;
            if let Some(mut sampler) = self.sampler.take() {
                sampler.stop();
            }
            self.options.facts.breaks.clear();
            self.sampled_before.clear();
            self.start_sampler(timer, None);
        }
        self.remember_clock();
    }

    /// `go_on`: with the ring of a sampler that is dead, and by which clock.
    fn start_sampler(&mut self, timer: Timer, go_on: Option<GoOn>) {
        let period = self.options.config.sample_period;
        let mut notes = Vec::new();
        let settings = sampler::settings(&self.options.config, &mut notes);
        notes.into_iter().for_each(|line| self.note(line));
        let wanted = self.options.config.gauges;
        match Sampler::start(self.session.directory(), timer, (period, wanted), settings, go_on) {
            Ok(sampler) => self.sampler = Some(sampler),
            Err(why) => self.note(format!("no energy is sampled: {why}")),
        }
    }

    /// The sampler has opened its counters: they become devices.
    fn find_devices(&mut self) {
        while let Some(line) = self.sampler.as_ref().and_then(Sampler::news) {
            self.note(line);
        }
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
            Err(why) => return self.note(format!("no energy is sampled: {why}")),
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

    fn add_found(&mut self, found: &[Device], ring: RingConsumer) {
        let (metrics, devices, natures) = self.describe(found);
        self.add_devices(metrics, devices, natures, ring);
    }

    fn describe(
        &self,
        found: &[Device],
    ) -> (Vec<SampledMetric>, Vec<(FoundDevice, DevicePlace)>, Vec<Nature>) {
        let node = self.options.facts.node.clone();
        let devices = found.iter().map(|device| {
            let found = FoundDevice {
                node: node.clone(),
                metric: device.metric.clone(),
                source: device.source.clone(),
                quality: device.quality,
                joules_per_unit: Some(1e-9),
            };
            (found, place_of(device))
        });
        let devices = devices.collect();
        let metrics = found.iter().map(|device| SampledMetric::sampled(node.clone(), device)).collect();
        (metrics, devices, found.iter().map(Nature::of_device).collect())
    }

    /// Counters become devices, and those that GPU streams may spend from get a lane.
    fn add_devices(
        &mut self,
        metrics: Vec<SampledMetric>,
        devices: Vec<(FoundDevice, DevicePlace)>,
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
            stream: Stream::default(),
            catching_up: spool.as_ref().filter(|_| position > 0).map(|_| 0),
            spool,
            rank_queues: Vec::new(),
            kernel_queues: Vec::new(),
            devices: Vec::new(),
            span: None,
            gaps: Gaps::new(self.options.facts.breaks.clone()),
            numbers: Vec::new(),
        });
        self.add_more_devices(metrics, devices, natures);
    }

    fn add_more_devices(
        &mut self,
        metrics: Vec<SampledMetric>,
        devices: Vec<(FoundDevice, DevicePlace)>,
        natures: Vec<Nature>,
    ) {
        let (Some(attributor), Some(samples)) = (&mut self.attributor, &mut self.samples) else { return };
        let add = |(device, place)| attributor.add_device_at(device, place);
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

    /// All rings, or only those that would not have room for long.
    fn drain_all(&mut self, thorough: bool) -> Round {
        let mut round = Round::default();
        self.behind = None;
        let mut batch = std::mem::take(&mut self.batch);
        for at in 0..self.processes.len() {
            for location in 0..self.processes[at].locations.len() {
                let live = &mut self.processes[at].locations[location];
                if live.damaged || live.closed {
                    continue;
                }
                let fill = live.ring.fill_ratio();
                live.fullest = live.fullest.max(fill);
                round.fullest = round.fullest.max(fill);
                if !thorough && fill < HARDLY_FILLED {
                    continue;
                }
                round.records += self.drain_location(at, location, &mut batch);
            }
        }
        self.batch = batch;
        round
    }

    fn drain_location(&mut self, process: usize, location: usize, batch: &mut Vec<Record>) -> usize {
        if self.processes[process].locations[location].index.is_none() {
            return 0; // the attributor gets to know it first
        }
        let mut total = 0;
        loop {
            match self.processes[process].locations[location].drain(batch, BATCH) {
                Ok(count) => {
                    total += count;
                    self.decode(process, location, batch);
                    // A full batch may have more behind it; not for ever, the others wait.
                    if count < BATCH {
                        return total;
                    }
                    if total >= 4 * BATCH {
                        self.stays_behind(process, location);
                        return total;
                    }
                }
                Err(why) => {
                    self.decode(process, location, batch);
                    self.note(why);
                    if self.processes[process].locations[location].damaged
                        && let Some(clock) = self.clock
                    {
                        // Or what it was in would have the energy of all that follows.
                        let now = clock.now(&self.session);
                        self.end_frames(process, location, now);
                    }
                    return total;
                }
            }
        }
    }

    /// What is left in a ring is not late: the others wait for it.
    fn stays_behind(&mut self, process: usize, location: usize) {
        let live = &mut self.processes[process].locations[location];
        // Nobody but its own lane waits for a GPU stream, and that one does anyway.
        if live.definition.kind == LocationKind::CpuThread && live.waiting() > 0 {
            let reached = live.stream.last_time();
            self.behind = Some(self.behind.map_or(reached, |least| least.min(reached)));
        }
    }

    /// Records of one location become events in its lane.
    fn decode(&mut self, process: usize, location: usize, batch: &[Record]) {
        let Some(attributor) = &mut self.attributor else { return };
        let process = &mut self.processes[process];
        let mut done = 0;
        loop {
            let LiveLocation { stream, queue, events, .. } = &mut process.locations[location];
            let queue = queue.map(|(lane, queue)| self.lanes[lane].queue(queue));
            let decoder = Decoder { regions: &mut process.regions, stream, queue, events };
            done += decoder.take(&batch[done..], &mut process.program_end);
            let Some(unknown) = batch.get(done) else { return };
            // Its region's definition was written before the event was: it is in the log by now.
            if process.looks_for_definitions() {
                process.read_log(&self.spool);
            }
            for region in process.new_regions.drain(..) {
                let reference = attributor.regions.add(&region);
                process.regions.insert(region.handle.0, reference);
            }
            let handle = unknown.argument();
            if process.regions.get(handle).is_none() {
                if process.may_be_undefined() {
                    process.regions.insert(handle, attributor.regions.add_unknown(handle));
                } else {
                    process.regions.pretend(handle, attributor.regions.add_unknown(u32::MAX));
                }
            }
        }
    }

    fn drain_samples(&mut self) {
        // As much as there was when it began, and no more at a time than of any other ring.
        let waiting = self.samples.as_mut().map_or(0, |samples| samples.ring.available().unwrap_or(0));
        for _ in 0..waiting.div_ceil(BATCH as u64).max(1) {
            self.drain_some_samples();
        }
    }

    fn drain_some_samples(&mut self) {
        let Some(samples) = &mut self.samples else { return };
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        let position = samples.ring.position();
        let copied = samples.ring.copy_out(&mut batch, BATCH);
        if samples.ring.is_lost() {
            self.batch = batch;
            return self.note(format!(
                "{} was truncated by somebody else: no more energy is sampled",
                sampler::RING_NAME
            ));
        }
        if let Ok(count) = copied {
            let spooled = samples.spool.as_mut().map(|spool| spool.write(position, &batch));
            if samples.catching_up.is_some() && matches!(spooled, Some(Err(_))) {
                self.batch = batch;
                return; // they stay in the ring until their turn has come
            }
            samples.ring.release(count);
            if let Some(Err(error)) = spooled {
                self.notes.push(format!(
                    "cannot write {}: {error}; the trace has no more samples",
                    self.spool.directory.display()
                ));
            }
            if samples.catching_up.is_none() {
                self.take_samples(position, &batch);
            }
        }
        self.batch = batch;
    }

    /// Records of the sampler's, the first of which has this position.
    fn take_samples(&mut self, position: u64, records: &[Record]) {
        let (Some(samples), Some(attributor)) = (&mut self.samples, &mut self.attributor) else { return };
        let (lanes, devices) = (&mut self.lanes, &mut attributor.devices);
        for (position, record) in (position..).zip(records) {
            samples.stream.take(*record, &mut |event| {
                let Event::Sample(time, number, bits) = event else { return };
                let Some(device) = samples.devices.get(number as usize).copied().flatten() else { return };
                samples.span = Some((samples.span.map_or(time, |(first, _)| first), time));
                let (time, increase) = match samples.metrics[number as usize].value(bits) {
                    MetricValue::U64(value) => devices[device].read_u64(time, value),
                    MetricValue::I64(value) => devices[device].read_i64(time, value),
                    MetricValue::F64(value) => devices[device].read_f64(time, value),
                };
                samples.gaps.sample(position, device, time, increase);
                let of_ranks = samples.rank_queues[device];
                lanes[RANKS].queue(of_ranks).sample(time, devices[device].ranks, increase);
                // Where there can be no stream there is nobody to wait for.
                let (lane, queue) = samples.kernel_queues[device].unwrap_or((RANKS, of_ranks));
                lanes[lane].queue(queue).sample(time, devices[device].kernels, increase);
            });
        }
    }

    fn advance(&mut self, watermark: Timestamp) {
        let Some(attributor) = &mut self.attributor else { return };
        let watermark = watermark.saturating_sub(attributor.longest_delay_ticks());
        self.lanes[RANKS].advance(watermark, attributor);
        self.done_until = self.done_until.max(watermark);
        // In the session's time: of a replay, an hour may pass in a second.
        let wanted = self.options.config.stream_lag;
        let longest_lag = self.clock.map_or(0, |clock| clock.ticks(wanted.unwrap_or(Config::STREAM_LAG)));
        let replayed = self.options.replay.as_ref().filter(|_| wanted.is_none());
        let longest_lag = replayed.map_or(longest_lag, |r| r.longest_lag_ticks.max(longest_lag));
        for lane in 1..self.lanes.len() {
            // One whose process is over has said all that it had to say.
            let streams = self.processes.iter().flat_map(|process| &process.locations).filter(|l| !l.closed);
            let feeding = streams.filter(|location| location.queue.is_some_and(|(l, _)| l == lane));
            // A stream that was never heard of yet keeps its lane waiting, but not for ever. Score-P may define a stream
            // only when its first batch comes; the embedded host has none, a replay defines all of them at once.
            let expected = self
                .processes
                .iter()
                .any(|process| process.info.host == "score-p" && process.state == State::Running);
            let unheard = if expected { 0 } else { watermark };
            let heard = feeding.map(|location| location.stream.last_time()).min().unwrap_or(unheard);
            let until = heard.max(watermark.saturating_sub(longest_lag)).min(watermark);
            self.lanes[lane].advance(until, attributor);
        }
    }

    pub fn processes_seen(&self) -> usize {
        self.processes.len()
    }

    fn note(&mut self, line: String) {
        if self.notes.len() < growth::MOST_NOTES && !self.notes.contains(&line) {
            self.notes.push(line);
        }
    }

    pub fn publish(&mut self) {
        let begun = Instant::now();
        let snapshot = self.snapshot();
        self.latest.set(snapshot);
        if self.latest.was_asked() {
            self.asked = begun;
        }
        let period = if self.is_calm() { UNASKED_PERIOD } else { SNAPSHOT_PERIOD };
        // With very many call paths a snapshot takes time that the rings need: never more than a twentieth of it.
        self.next_snapshot = begun + period.max(20 * begun.elapsed());
    }

    fn snapshot(&mut self) -> Snapshot {
        let (Some(attributor), Some(clock)) = (&self.attributor, self.clock) else {
            return Snapshot::default();
        };
        let mut snapshot = snapshot::of_attributor(attributor, &mut self.limits);
        let ticks = clock.now(&self.session);
        (snapshot.node, snapshot.seconds) = match &self.options.replay {
            Some(replay) => {
                let played = ticks.min(replay.last).saturating_sub(replay.first);
                (replay.node(), clock.seconds(played))
            }
            None => (node_name(), self.begun.elapsed().as_secs_f64()),
        };
        snapshot.lag_seconds = clock.seconds(ticks.saturating_sub(self.done_until));
        snapshot.collector_cpu_seconds = overhead::cpu_seconds();
        snapshot.collector_rss_bytes = overhead::resident_bytes();
        snapshot.sampler = self.sampler.as_ref().map(|sampler| SamplerOverhead::of(&sampler.figures));
        for (device, figures) in attributor.devices.iter().zip(self.sampled()) {
            let shown = snapshot.devices.iter_mut().find(|shown| shown.device == device.info.name);
            if let (Some(shown), Some(figures)) = (shown, figures) {
                shown.readings.add(&Readings::of(figures));
                gauges::add_all(&mut shown.gauges, figures.gauges.iter().filter_map(Seen::now));
            }
        }
        self.power.push_back((ticks, snapshot.devices.iter().map(|d| d.joules).collect()));
        let window = clock.ticks(POWER_WINDOW);
        while self.power.len() > 2 && ticks.saturating_sub(self.power[1].0) > window {
            self.power.pop_front();
        }
        if let Some((then, joules)) = self.power.front() {
            let seconds = clock.seconds(ticks.saturating_sub(*then));
            for (device, before) in snapshot.devices.iter_mut().zip(joules) {
                device.watts = if seconds > 0.0 { (device.joules - before) / seconds } else { 0.0 };
            }
        }
        let late = self.lanes.iter().map(|lane| lane.late()).sum::<u64>();
        for (at, process) in self.processes.iter().enumerate() {
            let main = process.locations.iter().find(|location| location.definition.id.0 == 0);
            let current =
                main.and_then(|main| main.index).and_then(|index| attributor.engine.current_region(index));
            snapshot.ranks.push(RankFigures {
                rank: process.rank_number().map_or_else(|| process.group(), |rank| rank.to_string()),
                events: process.locations.iter().map(|l| l.events).sum(),
                coalesced_calls: process.locations.iter().map(|l| l.stream.coalesced_calls).sum(),
                suppressed_calls: process.locations.iter().map(|l| l.ring.suppressed_calls()).sum(),
                // The lanes count lateness for the whole node; it is shown once.
                late_events: if at == 0 { late } else { 0 },
                dropped_records: process.locations.iter().map(|l| l.ring.dropped_records()).sum(),
                ring_fill_ratio: process.locations.iter().map(|l| l.fullest).fold(0.0, f64::max),
                current_region: current.map_or_else(String::new, |r| attributor.regions.name(r).to_owned()),
            });
        }
        for location in self.processes.iter_mut().flat_map(|process| &mut process.locations) {
            location.fullest = 0.0;
        }
        snapshot.ranks.sort_by_key(|figures| (figures.rank.len(), figures.rank.clone())); // "10" after "9"
        snapshot
    }

    /// By the attributor's devices, what the sampler says of them.
    fn sampled(&self) -> Vec<Option<&DeviceFigures>> {
        let devices = self.attributor.as_ref().map_or(0, |attributor| attributor.devices.len());
        let mut all = vec![None; devices];
        let (Some(sampler), Some(samples)) = (&self.sampler, &self.samples) else { return all };
        for (figures, number) in sampler.figures.devices().iter().zip(&samples.numbers) {
            if let Some(device) = samples.devices.get(*number).copied().flatten() {
                all[device] = Some(figures);
            }
        }
        all
    }
}

/// Makes events of one location's records.
struct Decoder<'a> {
    regions: &'a mut Handles,
    stream: &'a mut Stream,
    queue: Option<&'a mut Queue>,
    events: &'a mut u64,
}

impl Decoder<'_> {
    /// Returns how many were taken: all, or those before the first whose region is not known.
    fn take(mut self, records: &[Record], program_end: &mut Option<Timestamp>) -> usize {
        for (at, record) in records.iter().enumerate() {
            let region = match record.begun_region() {
                None => RegionRef(0),
                Some(handle) => match self.regions.get(handle) {
                    Some(region) => region,
                    None => return at,
                },
            };
            let Decoder { stream, queue, events, .. } = &mut self;
            if let Some(event) = stream.take_usual(*record) {
                put(event, region, queue.as_deref_mut(), events);
                continue;
            }
            stream.take_unusual(*record, &mut |event| match event {
                Event::ProgramEnd(time) => *program_end = Some(time),
                event => put(event, region, queue.as_deref_mut(), events),
            });
        }
        records.len()
    }
}

/// The moment at which the clocks said this, as far as that is known of this boot.
fn began(started: &Clocks) -> Instant {
    let now = best_reading();
    let ago = Duration::from_nanos(now.monotonic_ns.saturating_sub(started.monotonic_ns));
    Instant::now().checked_sub(ago).unwrap_or_else(Instant::now)
}

#[inline(always)]
fn put(event: Event, region: RegionRef, queue: Option<&mut Queue>, events: &mut u64) {
    *events += u64::from(matches!(event, Event::Enter(..) | Event::EnterFolded(..) | Event::Leave(..)));
    let Some(queue) = queue else { return };
    match event {
        Event::Enter(time, _) => queue.enter(time, region, 1),
        Event::EnterFolded(time, _, calls) => queue.enter(time, region, calls),
        Event::Leave(time, _) => queue.leave(time),
        Event::Sample(..) | Event::ProgramEnd(_) => {}
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

pub fn write_whole(path: &Path, text: &str) -> Result<(), String> {
    write_whole_with(path, |file| file.write_all(text.as_bytes()))
}

/// A file that is there whole or not at all.
fn write_whole_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), String> {
    let making = path.with_extension("part");
    let written = ampere_ring::files::create_shared(&making).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.flush()
    });
    written
        .and_then(|()| std::fs::rename(&making, path))
        .map_err(|e| format!("cannot write {}: {e}", path.display()))
}
