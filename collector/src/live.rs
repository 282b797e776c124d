//! One node's run, live: the loop's body, and the end.

use crate::attributor::{Attributor, FoundDevice, LocationInfo};
use crate::clock::{CALIBRATION, SessionClock, Timer, best_reading, recognise};
use crate::config::Config;
use crate::evidence::place_of;
use crate::gauges::Seen;
use crate::growth::{self, CallPaths};
use crate::metrics::Latest;
use crate::nature::Nature;
use crate::order::{Lane, QueueIndex, What};
use crate::process::{LiveLocation, Process, State};
use crate::replay::Replay;
use crate::sampler::{self, DeviceFigures, Sampler};
use crate::snapshot::{self, Limits, RankFigures, Snapshot};
use crate::spool::{Place, Spool};
use crate::stream::{Event, Stream};
use crate::summary::{Overhead, QualityFigures, Readings, Run, SamplerOverhead, Summary};
use crate::topology::Place as DevicePlace;
use crate::trace::SampledMetric;
use crate::{clock_text, conflicts, gauges, overhead, trace};
use ampere_model::{Clocks, LocationKind, Timestamp};
use ampere_ring::process::node_name;
use ampere_ring::{Kind, Record, RingConsumer, Session};
use otf2::MetricValue;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Records taken from one ring at a time.
const BATCH: usize = 1 << 14;
/// How often a snapshot is made for /metrics.
const SNAPSHOT_PERIOD: Duration = Duration::from_millis(100);
/// How often it is checked who still lives.
const LIVENESS_PERIOD: Duration = Duration::from_millis(100);
/// Power is averaged over this.
const POWER_WINDOW: Duration = Duration::from_secs(1);

const LINKS_MOVED: &str = "who spends from which device became known only while it ran";

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
}

pub struct LiveRun {
    session: Session,
    options: Options,
    spool: Place,
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
    next_snapshot: Instant,
    next_liveness: Instant,
    batch: Vec<Record>,
    pub notes: Vec<String>,
    /// Everything before this is in the lanes, but for what GPU streams have not reported.
    watermark: Timestamp,
    /// How far a location has been read whose ring had more than could be taken at once.
    behind: Option<Timestamp>,
    done_until: Timestamp,
    quiet_since: Option<Instant>,
    callpaths: CallPaths,
}

/// What one round of the loop found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    pub records: usize,
    /// Some ring was more than a quarter full.
    pub pressed: bool,
}

impl LiveRun {
    pub fn new(session: Session, options: Options, latest: Latest) -> Result<LiveRun, String> {
        let spool = Place { directory: options.spool.clone(), wanted: options.config.trace };
        let mut run = LiveRun {
            session,
            limits: Limits::new(options.config.most_series),
            options,
            spool,
            started: best_reading(),
            begun: Instant::now(),
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
            next_snapshot: Instant::now(),
            next_liveness: Instant::now(),
            batch: Vec::with_capacity(BATCH),
            notes: Vec::new(),
            watermark: 0,
            behind: None,
            done_until: 0,
            quiet_since: None,
            callpaths: CallPaths::default(),
        };
        run.begin_replay()?;
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
            self.start_sampler(Timer::usual());
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
            return Round { records: 0, pressed: false };
        };
        self.find_devices();
        // Before anything is read: what has a timestamp before this and is not in a ring by now is late.
        let now = clock.now(&self.session);
        self.read_definitions();
        let certain = self.clock_is_certain;
        let round = if certain { self.drain_all() } else { Round { records: 0, pressed: false } };
        self.drain_samples();
        if self.lanes.iter().map(Lane::waiting).sum::<usize>() > growth::MOST_WAITING {
            self.stop_waiting(now.saturating_add(clock.ticks(growth::FUTURE)));
        }
        let slack = if clock.is_told() { 0 } else { clock.ticks(self.options.config.slack) };
        let certain = now.saturating_sub(slack).min(self.behind.unwrap_or(Timestamp::MAX));
        self.watermark = self.watermark.max(certain);
        self.advance(self.watermark);
        self.look_at_callpaths();
        self.check_liveness();
        if Instant::now() >= self.next_snapshot {
            self.publish();
        }
        round
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
                        location.queue = Some((RANKS, self.lanes[RANKS].add_queue()));
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
            self.start_sampler(timer);
        }
    }

    fn start_sampler(&mut self, timer: Timer) {
        let period = self.options.config.sample_period;
        let mut notes = Vec::new();
        let settings = sampler::settings(&self.options.config, &mut notes);
        notes.into_iter().for_each(|line| self.note(line));
        let wanted = self.options.config.gauges;
        match Sampler::start(self.session.directory(), timer, period, wanted, settings) {
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
        let opened = found.and_then(|found| {
            let ring = RingConsumer::open(&self.session.directory().join(sampler::RING_NAME));
            Ok((found, ring.map_err(|e| e.to_string())?))
        });
        let (found, ring) = match opened {
            Ok(both) => both,
            Err(why) => return self.note(format!("no energy is sampled: {why}")),
        };
        found.notes.into_iter().for_each(|line| self.note(line));
        let node = node_name();
        let devices = found.devices.iter().map(|device| {
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
        let metrics =
            found.devices.iter().map(|device| SampledMetric::sampled(node.clone(), device)).collect();
        let natures = found.devices.iter().map(Nature::of_device).collect();
        self.add_devices(metrics, devices, natures, ring);
    }

    /// Counters become devices, and those that GPU streams may spend from get a lane.
    fn add_devices(
        &mut self,
        metrics: Vec<SampledMetric>,
        devices: Vec<(FoundDevice, DevicePlace)>,
        natures: Vec<Nature>,
        ring: RingConsumer,
    ) {
        let Some(attributor) = &mut self.attributor else { return };
        let add = |(device, place)| attributor.add_device_at(device, place);
        let devices: Vec<_> = devices.into_iter().map(add).collect();
        for (device, nature) in devices.iter().zip(natures) {
            device.iter().for_each(|device| attributor.set_nature(*device, nature.clone()));
        }
        let spool = self.spool.create("sampler.0.records");
        if let Err(error) = &spool {
            self.notes.push(format!(
                "cannot write {}: {error}; the trace has no samples",
                self.spool.directory.display()
            ));
        }
        let mut kernel_queues = vec![None; attributor.devices.len()];
        for (device, queue) in kernel_queues.iter_mut().enumerate() {
            if attributor.counter(device).is_gpu() {
                self.lanes.push(Lane::default());
                let lane = self.lanes.len() - 1;
                *queue = Some((lane, self.lanes[lane].add_queue()));
            }
        }
        let rank_queues = attributor.devices.iter().map(|_| self.lanes[RANKS].add_queue()).collect();
        self.samples = Some(Samples {
            metrics,
            ring,
            stream: Stream::default(),
            spool: spool.ok().flatten(),
            rank_queues,
            kernel_queues,
            devices,
            span: None,
        });
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
                self.processes[process].locations[at].queue = Some((first, self.lanes[first].add_queue()));
            }
        }
    }

    fn drain_all(&mut self) -> Round {
        let mut round = Round { records: 0, pressed: false };
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
                round.pressed |= fill > 0.25;
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

    /// Records of one location become events in its lanes.
    fn decode(&mut self, process: usize, location: usize, batch: &[Record]) {
        let Some(attributor) = &mut self.attributor else { return };
        let process = &mut self.processes[process];
        for record in batch {
            let unknown = matches!(record.kind(), Some(Kind::Enter | Kind::Resume | Kind::Folded))
                && !process.regions.contains_key(&record.argument());
            if unknown {
                // Its definition was written before the event was: it is in the log by now.
                if process.looks_for_definitions() {
                    process.read_log(&self.spool);
                }
                for region in process.new_regions.drain(..) {
                    let reference = attributor.regions.add(&region);
                    process.regions.insert(region.handle.0, reference);
                }
                let handle = record.argument();
                if !process.regions.contains_key(&handle) && process.may_be_undefined() {
                    process.regions.insert(handle, attributor.regions.add_unknown(handle));
                }
            }
            let LiveLocation { stream, queue, index, events, .. } = &mut process.locations[location];
            let (regions, lanes, program_end) = (&process.regions, &mut self.lanes, &mut process.program_end);
            stream.take(*record, &mut |event| {
                push(event, *index, regions, *queue, lanes, events, program_end);
            });
        }
    }

    fn drain_samples(&mut self) {
        // As much as there was when it began, and no more at a time than of any other ring.
        let waiting = self.samples.as_mut().map_or(0, |samples| samples.ring.available().unwrap_or(0));
        for _ in 0..waiting.div_ceil(BATCH as u64) {
            self.drain_some_samples();
        }
    }

    fn drain_some_samples(&mut self) {
        let (Some(samples), Some(attributor)) = (&mut self.samples, &mut self.attributor) else { return };
        self.batch.clear();
        let position = samples.ring.position();
        let Ok(count) = samples.ring.copy_out(&mut self.batch, BATCH) else { return };
        let spooled = samples.spool.as_mut().map(|spool| spool.write(position, &self.batch));
        samples.ring.release(count);
        if let Some(Err(error)) = spooled {
            samples.spool = None;
            self.notes.push(format!(
                "cannot write {}: {error}; the trace has no more samples",
                self.spool.directory.display()
            ));
        }
        let (lanes, devices) = (&mut self.lanes, &mut attributor.devices);
        for record in &self.batch {
            samples.stream.take(*record, &mut |event| {
                let Event::Sample(time, number, bits) = event else { return };
                let Some(device) = samples.devices.get(number as usize).copied().flatten() else { return };
                samples.span = Some((samples.span.map_or(time, |(first, _)| first), time));
                let (time, increase) = match samples.metrics[number as usize].value(bits) {
                    MetricValue::U64(value) => devices[device].read_u64(time, value),
                    MetricValue::I64(value) => devices[device].read_i64(time, value),
                    MetricValue::F64(value) => devices[device].read_f64(time, value),
                };
                let of_ranks = samples.rank_queues[device];
                lanes[RANKS].push(of_ranks, time, What::Sample(devices[device].ranks, increase));
                // Where there can be no stream there is nobody to wait for.
                let (lane, queue) = samples.kernel_queues[device].unwrap_or((RANKS, of_ranks));
                lanes[lane].push(queue, time, What::Sample(devices[device].kernels, increase));
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

    fn check_liveness(&mut self) {
        if Instant::now() < self.next_liveness {
            return;
        }
        self.next_liveness = Instant::now() + LIVENESS_PERIOD;
        for at in 0..self.processes.len() {
            let process = &self.processes[at];
            if process.state == State::Running && !process.is_alive() {
                // What it wrote before it ended is in its log and its rings.
                self.processes[at].read_log(&self.spool);
                self.tell_attributor();
                if self.processes[at].state == State::Running {
                    self.processes[at].state = State::Died;
                    let process = &self.processes[at];
                    let who = format!("{} (process {})", process.group(), process.info.pid);
                    self.note(format!(
                        "{who} ended without finishing its measurement: its open frames end here"
                    ));
                }
                self.close_locations(at);
            } else if process.state == State::Finished {
                self.close_locations(at);
            }
        }
    }

    /// Ends what is still open on the locations of a process that is over, or is taken to be.
    fn close_locations(&mut self, process: usize) {
        let Some(clock) = self.clock.filter(|_| self.clock_is_certain) else { return };
        let mut batch = std::mem::take(&mut self.batch);
        for location in 0..self.processes[process].locations.len() {
            let live = &mut self.processes[process].locations[location];
            if live.closed {
                continue;
            }
            // What is there now, and no more: a process that is still running would never let us end.
            let mut left = live.waiting();
            while left > 0 {
                let count = self.drain_location(process, location, &mut batch);
                if count == 0 {
                    break;
                }
                left = left.saturating_sub(count);
                // Lanes grow with what is drained: let them go on, but no further than the others have been read.
                self.advance(self.watermark);
            }
        }
        self.batch = batch;
        let end = self.processes[process].program_end.unwrap_or_else(|| clock.now(&self.session));
        for location in 0..self.processes[process].locations.len() {
            let live = &mut self.processes[process].locations[location];
            if live.closed {
                continue;
            }
            live.closed = true;
            if live.stream.is_open() {
                let record = Record::new(Kind::LocationEnd, end.max(live.stream.last_time()), 0);
                if let Some(spool) = &mut live.spool {
                    let _ = spool.append(record);
                }
                self.decode(process, location, &[record]);
            }
        }
    }

    /// Whether processes have come and all of them are over.
    pub fn all_over(&mut self) -> bool {
        let over = !self.processes.is_empty() && self.processes.iter().all(|p| p.state != State::Running);
        if !over {
            self.quiet_since = None;
        }
        // A moment for one that is just joining.
        over && self.quiet_since.get_or_insert_with(Instant::now).elapsed() > LIVENESS_PERIOD
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
        // With very many call paths a snapshot takes time that the rings need: never more than a twentieth of it.
        self.next_snapshot = begun + SNAPSHOT_PERIOD.max(20 * begun.elapsed());
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
        snapshot.collector_rss_bytes = overhead::resident_bytes().1;
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
        let late = self.lanes.iter().map(|lane| lane.late).sum::<u64>();
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

    pub fn summary(&self, complete: bool) -> Summary {
        let empty = Attributor::new(self.options.config.clone(), 1);
        let attributor = self.attributor.as_ref().unwrap_or(&empty);
        let (nodes, ranks) = Summary::nodes_and_ranks(attributor);
        // The time that the joules are about: first to last sample.
        let span = self.samples.as_ref().and_then(|samples| samples.span).zip(self.clock);
        let (first, last, seconds) = match span {
            Some(((first, last), clock)) => {
                (clock.realtime_ns(first), clock.realtime_ns(last), clock.seconds(last - first))
            }
            None => (
                Some(self.started.realtime_ns),
                Some(best_reading().realtime_ns),
                self.begun.elapsed().as_secs_f64(),
            ),
        };
        let date = |time: Option<u64>| time.map_or_else(String::new, clock_text::rfc3339);
        let locations = || self.processes.iter().flat_map(|process| &process.locations);
        let sum = |value: fn(&LiveLocation) -> u64| locations().map(value).sum::<u64>();
        let dropped_samples = self.samples.as_ref().map_or(0, |samples| samples.ring.dropped_records());
        let quality = QualityFigures {
            events: sum(|l| l.events),
            coalesced_calls: sum(|l| l.stream.coalesced_calls),
            suppressed_calls: sum(|l| l.ring.suppressed_calls()),
            dropped_records: sum(|l| l.ring.dropped_records()) + dropped_samples,
            late_events: self.lanes.iter().map(|lane| lane.late).sum(),
            repaired_events: sum(|l| {
                let r = l.stream.repairs;
                r.unmatched_leaves + r.missing_leaves + r.backward
            }),
            damaged_records: sum(|l| l.stream.repairs.damaged),
            left_out_definitions: self.processes.iter().map(|p| p.left_out_definitions).sum(),
            ..QualityFigures::default()
        };
        let mut notes = self.notes.clone();
        if quality.suppressed_calls > 0 {
            notes.push(format!(
                "{} calls were suppressed, because the collector could not follow: they are not among the calls below, and \
                 their time and joules are in the functions that made them",
                quality.suppressed_calls
            ));
        }
        if let Some(sampler) = &self.sampler {
            let failed = sampler.figures.failed_readings();
            if failed > 0 {
                notes.push(format!("{failed} readings of a counter failed"));
            }
        }
        let whole = self.options.replay.as_ref().is_none_or(|replay| replay.notes.is_empty());
        let run = Run {
            id: self.options.run_id.clone(),
            command: self.options.command.clone(),
            start: date(first),
            end: date(last),
            complete: complete
                && whole
                && self.processes.iter().all(|process| process.state == State::Finished),
            host: self.processes.first().map_or_else(String::new, |process| process.info.host.clone()),
            nodes,
            ranks,
            energy: String::new(),
            total_joules: 0.0,
            seconds,
            timer: self.clock.map_or_else(String::new, |clock| clock.timer.as_str().to_owned()),
            ticks_per_second: self.clock.map_or(0, |clock| clock.ticks_per_second),
            notes,
        };
        let mut summary = Summary::new(attributor, None, run, quality);
        for (device, figures) in summary.devices.iter_mut().zip(self.sampled()) {
            device.readings = figures.map(Readings::of);
            let gauges = figures.iter().flat_map(|figures| &figures.gauges);
            device.gauges = gauges.filter_map(Seen::over_the_run).collect();
        }
        summary.overhead = Overhead {
            collector_cpu_seconds: overhead::cpu_seconds(),
            collector_peak_rss_bytes: overhead::resident_bytes().0,
            sampler: self.sampler.as_ref().map(|sampler| SamplerOverhead::of(&sampler.figures)),
        };
        summary
    }

    /// By the attributor's devices, what the sampler says of them.
    fn sampled(&self) -> Vec<Option<&DeviceFigures>> {
        let devices = self.attributor.as_ref().map_or(0, |attributor| attributor.devices.len());
        let mut all = vec![None; devices];
        let (Some(sampler), Some(samples)) = (&self.sampler, &self.samples) else { return all };
        for (figures, device) in sampler.figures.devices().iter().zip(&samples.devices) {
            if let Some(device) = *device {
                all[device] = Some(figures);
            }
        }
        all
    }

    /// The end: everything that is left is attributed, and the trace and the summary are written.
    pub fn finish(mut self, complete: bool) -> Result<(Summary, Session), String> {
        self.read_definitions();
        self.find_devices();
        for at in 0..self.processes.len() {
            self.close_locations(at);
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.stop();
        }
        self.find_devices(); // its last news
        self.drain_samples();
        if let Some(attributor) = &mut self.attributor {
            for lane in &mut self.lanes {
                lane.advance(Timestamp::MAX, attributor);
            }
            attributor.end_time();
            attributor.learn_silence();
        }
        self.look_at_settings();
        self.publish();
        // The figures are ready: they are on disk before the trace, which may take its time, is begun.
        write_results(&self.options.output, &self.summary(false))?;
        let written = match (&self.attributor, self.clock) {
            _ if !self.spool.wanted => Ok(()),
            (Some(attributor), Some(clock)) => {
                let metrics = self.samples.as_ref().map_or(&[][..], |samples| &samples.metrics);
                trace::write(
                    &self.options.output,
                    &self.spool.directory,
                    clock,
                    &self.processes,
                    metrics,
                    attributor,
                )
            }
            _ => Err("no process wrote any event: there is no trace".to_owned()),
        };
        let traced = written.is_ok();
        if let Err(why) = written {
            self.note(why);
        }
        let mut summary = self.summary(complete && traced);
        let unsettled = self.unsettled(&summary);
        if traced && self.spool.wanted && !unsettled.is_empty() {
            self.settle(&mut summary, &unsettled);
        } else {
            let there_is_no_trace = "there is no trace to compute the figures from again";
            if summary.quality.late_events > 0 {
                let late = summary.quality.late_events;
                let note = format!(
                    "{late} events came late, and are charged as of when they came: {there_is_no_trace}"
                );
                summary.run.notes.push(note);
            }
            if self.links_moved() {
                let note = format!("{LINKS_MOVED}, and joules until then were shared by what was known");
                summary.run.notes.push(note);
            }
        }
        write_results(&self.options.output, &summary)?;
        // Records that did not make it into a trace stay.
        if traced || self.attributor.is_none() {
            let _ = std::fs::remove_dir_all(&self.spool.directory);
        }
        Ok((summary, self.session))
    }
}

impl LiveRun {
    fn links_moved(&self) -> bool {
        self.attributor.as_ref().is_some_and(Attributor::links_moved)
    }

    /// Why figures are not yet as they would be, had everything been known in time.
    fn unsettled(&self, summary: &Summary) -> String {
        let late = summary.quality.late_events;
        let late = (late > 0).then(|| format!("{late} events came late"));
        let moved = self.links_moved().then(|| LINKS_MOVED.to_owned());
        late.into_iter().chain(moved).collect::<Vec<_>>().join("; ")
    }

    /// What is odd about the settings, now that everything is known.
    fn look_at_settings(&mut self) {
        let Some(attributor) = &self.attributor else { return };
        let mut metrics: BTreeSet<String> =
            attributor.devices.iter().map(|device| device.info.metric.clone()).collect();
        metrics.extend(self.options.replay.iter().flat_map(|replay| replay.metric_names.iter().cloned()));
        for line in conflicts::notes(attributor, &metrics) {
            self.note(line);
        }
    }

    /// Events that came late, and joules of who was not yet known to spend from a device, were charged as well as could be
    /// at that time. The trace has everything in its place: the final figures are computed again from it.
    fn settle(&self, summary: &mut Summary, why_again: &str) {
        let trace = self.options.output.join("traces.otf2");
        let again = crate::offline::attribute(&trace, &self.options.config, None, &mut |_, _| {});
        match again {
            Ok(again) => {
                summary.topology = again.summary.topology;
                for device in &mut summary.devices {
                    let same = again
                        .summary
                        .devices
                        .iter()
                        .find(|d| (&d.node, &d.metric) == (&device.node, &device.metric));
                    if let Some(same) = same {
                        let (source, energy) = (device.source.clone(), device.energy.clone());
                        let (readings, gauges) = (device.readings.take(), std::mem::take(&mut device.gauges));
                        let same = same.clone();
                        *device = crate::summary::Device { source, energy, readings, gauges, ..same };
                    }
                }
                let note = format!("{why_again}: the figures below were computed again from the trace");
                summary.run.notes.push(note);
            }
            Err(why) => {
                summary.run.notes.push(format!("{why_again}, and joules are charged as of then: {why:#}"))
            }
        }
    }
}

/// An event of a location goes to the location's lane.
fn push(
    event: Event,
    index: Option<ampere_attribution::LocationIndex>,
    regions: &crate::numbers::NumberMap<u32, ampere_model::RegionRef>,
    queue: Option<(usize, QueueIndex)>,
    lanes: &mut [Lane],
    events: &mut u64,
    program_end: &mut Option<Timestamp>,
) {
    let Some(location) = index else { return };
    let find = |region| regions.get(&region).copied();
    let (time, what) = match event {
        Event::Enter(time, region) => (time, find(region).map(|region| What::Enter(location, region))),
        Event::EnterFolded(time, region, calls) => {
            (time, find(region).map(|region| What::EnterFolded(location, region, calls)))
        }
        Event::Leave(time, region) => (time, find(region).map(|_| What::Leave(location))),
        Event::ProgramEnd(time) => {
            *program_end = Some(time);
            return;
        }
        Event::Sample(..) => return,
    };
    *events += 1;
    if let (Some((lane, queue)), Some(what)) = (queue, what) {
        lanes[lane].push(queue, time, what);
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

/// `summary.json` and `summary.txt`, each whole or not at all.
pub fn write_results(directory: &Path, summary: &Summary) -> Result<(), String> {
    let json =
        serde_json::to_string_pretty(summary).map_err(|e| format!("cannot encode the summary: {e}"))?;
    write_whole(&directory.join("summary.json"), &(json + "\n"))?;
    write_whole(&directory.join("summary.txt"), &crate::text::render(summary, false))
}

pub fn write_whole(path: &Path, text: &str) -> Result<(), String> {
    let making = path.with_extension("part");
    ampere_ring::files::create_shared(&making)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&making, path))
        .map_err(|e| format!("cannot write {}: {e}", path.display()))
}
