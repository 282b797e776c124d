//! One node's run, live: the loop's body, and the end.

use crate::ingest::growth::{self, CallPaths};
use crate::ingest::process::{Process, State};
use crate::run_directory::manifest::Manifest;
use crate::run_directory::neighbours::Neighbours;
use crate::run_directory::room::Room;
use crate::sampling::clock::{CALIBRATION, SessionClock, Timer, best_reading};
use crate::sampling::gaps::Gaps;
use crate::sampling::sampler::{self, Sampler};
use crate::serving::metrics::Latest;
use crate::serving::power::Power;
use crate::serving::snapshot::Limits;
use ampere_counters::{RunCpu, SharedRunCpu};
use ampere_model::{Clocks, Device, Timestamp};
use ampere_report::summary::NodeCpu;
use ampere_ring::decoder::Decoder;
use ampere_ring::{Record, RingConsumer, Session};
use ampere_settings::Config;
use ampere_timeline::attributor::Attributor;
use ampere_timeline::order::{Lane, QueueIndex};
use ampere_trace::replay::Replay;
use ampere_trace::spool::{Place, Spool};
use ampere_trace::write::SampledMetric;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Records taken from one ring at a time.
pub(crate) const BATCH: usize = 1 << 14;
/// How often all rings are drained and what is in them attributed. In between, only those are that fill up: of hundreds of
/// threads with few events each, looking at a handful at a time would cost more than the events.
const THOROUGH_PERIOD: Duration = Duration::from_millis(16);
/// Who has not asked for metrics for so long is not looking.
const UNASKED_AFTER: Duration = Duration::from_secs(3);
/// How often it is checked who still lives.
pub(crate) const LIVENESS_PERIOD: Duration = Duration::from_millis(100);

/// The samples' file in the spool.
pub(crate) const SAMPLES_SPOOL: &str = "sampler.0.records";
/// The lane of the ranks views.
pub(crate) const RANKS: usize = 0;

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
    pub manifest: Manifest,
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
pub(crate) struct Samples {
    pub(crate) metrics: Vec<SampledMetric>,
    pub(crate) ring: RingConsumer,
    pub(crate) stream: Decoder,
    pub(crate) spool: Option<Spool>,
    /// Per device, its place in the lane of the ranks: each has its own delay, and in one queue times must not go back.
    pub(crate) rank_queues: Vec<QueueIndex>,
    /// Per device that may have GPU streams: its lane and place for the kernels view.
    pub(crate) kernel_queues: Vec<Option<(usize, QueueIndex)>>,
    /// Device numbers of the sampler to those of the attributor.
    pub(crate) devices: Vec<Option<usize>>,
    /// Times of the first and the last sample.
    pub(crate) span: Option<(Timestamp, Timestamp)>,
    /// As of a location: how far what an earlier collector has read is decoded again.
    pub(crate) catching_up: Option<u64>,
    pub(crate) gaps: Gaps,
    /// The numbers of the devices that the sampler reads now.
    pub(crate) numbers: Vec<usize>,
}

pub struct LiveRun {
    pub(crate) session: Session,
    pub(crate) options: Options,
    pub(crate) spool: Place,
    pub(crate) room: Room,
    pub(crate) started: Clocks,
    pub(crate) begun: Instant,
    pub(crate) clock: Option<SessionClock>,
    /// Whether an event has shown that it is this clock.
    pub(crate) clock_is_certain: bool,
    pub(crate) sampler: Option<Sampler>,
    pub(crate) attributor: Option<Attributor>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) processes: Vec<Process>,
    pub(crate) known_logs: HashSet<PathBuf>,
    pub(crate) samples: Option<Samples>,
    pub(crate) generation: u64,
    pub(crate) limits: Limits,
    pub(crate) power: Power,
    pub latest: Latest,
    pub(crate) next_thorough: Instant,
    pub(crate) next_snapshot: Instant,
    /// When somebody last asked for metrics.
    pub(crate) asked: Instant,
    /// The loop has seen nothing happen for a while.
    pub is_idle: bool,
    pub(crate) next_liveness: Instant,
    pub(crate) batch: Vec<Record>,
    pub notes: Vec<String>,
    /// Everything before this is in the lanes, but for what GPU streams have not reported.
    pub(crate) watermark: Timestamp,
    /// The last watermark, and since when it has been that.
    pub(crate) waits_at: Option<(Timestamp, Instant)>,
    /// How far a location has been read whose ring had more than could be taken at once.
    pub(crate) behind: Option<Timestamp>,
    pub(crate) done_until: Timestamp,
    pub(crate) quiet_since: Option<Instant>,
    /// The devices that an earlier collector has sampled, in its ring.
    pub(crate) sampled_before: Vec<Device>,
    /// The last sample of the collector before.
    pub(crate) predecessors_last: Timestamp,
    /// Processes that had ended before this collector came have been looked at.
    pub(crate) has_taken_over: bool,
    /// Something of the run is lost for good.
    pub(crate) is_incomplete: bool,
    pub(crate) callpaths: CallPaths,
    /// The part of the usual time that a silent GPU stream is waited for.
    pub(crate) patience: f64,
    pub(crate) run_cpu: Option<SharedRunCpu>,
    /// As last read.
    pub(crate) node_cpu: Option<NodeCpu>,
    pub(crate) neighbours: Option<Neighbours>,
    pub(crate) next_neighbours: Instant,
    pub(crate) watched_since: Instant,
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
        let started = options.manifest.started();
        let begins = options.mode == Mode::Collector && options.manifest.clock().is_none();
        let mut run = LiveRun {
            session,
            room: Room::keep(&options.spool),
            limits: Limits::new(options.config.metrics.most_series),
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
            power: Power::default(),
            latest,
            next_thorough: Instant::now(),
            next_snapshot: Instant::now(),
            asked: Instant::now(),
            is_idle: false,
            next_liveness: Instant::now(),
            batch: Vec::with_capacity(BATCH),
            notes: Vec::new(),
            watermark: 0,
            waits_at: None,
            behind: None,
            done_until: 0,
            quiet_since: None,
            sampled_before: Vec::new(),
            predecessors_last: 0,
            has_taken_over: begins,
            is_incomplete: false,
            callpaths: CallPaths::default(),
            patience: 1.0,
            run_cpu: None,
            node_cpu: None,
            neighbours: None,
            next_neighbours: Instant::now(),
            watched_since: Instant::now(),
        };
        run.begin_replay()?;
        run.go_on();
        Ok(run)
    }

    /// Of a replay, clock and devices are known before it begins.
    pub(crate) fn begin_replay(&mut self) -> Result<(), String> {
        let Some(replay) = &self.options.replay else { return Ok(()) };
        let clock = SessionClock::told(replay.ticks_per_second, replay.first, replay.realtime_ns);
        self.clock = Some(clock);
        self.clock_is_certain = true;
        self.attributor = Some(Attributor::new(self.options.config.clone(), clock.ticks_per_second));
        self.notes.extend(replay.notes.iter().chain(&replay.odd).cloned());
        let metrics = replay.metrics.iter().map(SampledMetric::replayed).collect();
        let devices =
            replay.metrics.iter().map(|m| (m.as_found(), m.place.clone(), m.recorded.clone())).collect();
        let ring = RingConsumer::open(&self.session.directory().join(sampler::RING_NAME));
        let natures = replay.metrics.iter().map(|metric| metric.nature.clone()).collect();
        self.add_devices(metrics, devices, natures, ring.map_err(|e| e.to_string())?);
        Ok(())
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The run goes on now, on this machine: CPU time of its processes is counted from here on, and others' runs are looked
    /// for. To be called before the first round. `cpus`: how many the run may use. `launcher`: the `ampere run` whose run it is.
    pub fn watch_node(&mut self, cpus: usize, launcher: Option<u32>) {
        if self.options.replay.is_some() {
            return;
        }
        let mut run_cpu = RunCpu::new(&self.options.config.sources, cpus);
        launcher.iter().for_each(|launcher| run_cpu.add_launcher(*launcher));
        for process in &self.processes {
            run_cpu.add(process.info.pid, process.info.start_time);
        }
        self.watched_since = Instant::now();
        self.run_cpu = Some(Arc::new(Mutex::new(run_cpu)));
        self.neighbours = Some(Neighbours::of(self.session.directory()));
    }

    pub(crate) fn with_run_cpu<T>(&self, ask: impl FnOnce(&mut RunCpu) -> T) -> Option<T> {
        self.run_cpu.as_ref().map(|run| ask(&mut run.lock().unwrap_or_else(PoisonError::into_inner)))
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
            self.attributor.iter_mut().for_each(Attributor::learn_rises);
            if self.lanes.iter().map(Lane::waiting).sum::<usize>() > growth::MOST_WAITING {
                self.stop_waiting(now.saturating_add(clock.ticks(growth::FUTURE)));
            }
            let slack = if clock.is_told() { 0 } else { clock.ticks(self.options.config.attribution.slack) };
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
    pub(crate) fn is_calm(&self) -> bool {
        self.is_idle && self.asked.elapsed() > UNASKED_AFTER
    }

    /// Reads logs if anybody says that there is something new.
    pub(crate) fn read_definitions(&mut self) {
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

    /// What waits has become too much. Where it is for a GPU stream that is silent, it is waited for half as long from now on.
    /// Else nobody is waited for whose ring is not emptied. And who tells of times that are yet to come, which would wait until
    /// then, is not read any further.
    pub(crate) fn stop_waiting(&mut self, future: Timestamp) {
        if self.lanes[RANKS].waiting() < growth::MOST_WAITING / 2 {
            self.patience /= 2.0;
            self.note(
                "so many GPU events waited for streams that said nothing that these are waited for less long: what they say \
                 later is late, and settled when the run ends"
                    .to_owned(),
            );
        } else {
            self.behind = None;
        }
        for process in 0..self.processes.len() {
            for location in 0..self.processes[process].locations.len() {
                let live = &self.processes[process].locations[location];
                if !live.damaged && live.stream.last_time() > future {
                    self.give_up(process, location, "has events of times that are yet to come");
                }
            }
        }
    }

    /// A location is not read any further. What it was in ends here, or it would have the energy of all that follows.
    pub(crate) fn give_up(&mut self, process: usize, location: usize, why: &str) {
        let live = &mut self.processes[process].locations[location];
        live.give_up();
        let line = format!("{} {why}: it is not read further", live.ring.path().display());
        self.note(line);
        if let Some(clock) = self.clock {
            let now = clock.now(&self.session);
            self.end_frames(process, location, now);
        }
    }

    /// A location whose call tree, or stack, grows without end is not read any further.
    pub(crate) fn look_at_callpaths(&mut self) {
        for process in 0..self.processes.len() {
            for location in 0..self.processes[process].locations.len() {
                let Some(attributor) = &self.attributor else { return };
                let live = &mut self.processes[process].locations[location];
                let Some(index) = live.index.filter(|_| !live.damaged) else { continue };
                let now = attributor.engine.callpaths_of(index);
                let before = std::mem::replace(&mut live.callpaths, now);
                let depth = live.stream.depth();
                let why = self.callpaths.grew(before, now).or_else(|| growth::too_deep(depth));
                if let Some(why) = why {
                    self.give_up(process, location, &why);
                }
            }
        }
    }

    pub(crate) fn advance(&mut self, watermark: Timestamp) {
        let Some(attributor) = &self.attributor else { return };
        let watermark = watermark.saturating_sub(attributor.longest_delay_ticks());
        let watermark = self.decided_until(watermark);
        let Some(attributor) = &mut self.attributor else { return };
        self.lanes[RANKS].advance(watermark, attributor);
        self.done_until = self.done_until.max(watermark);
        // In the session's time: of a replay, an hour may pass in a second.
        let wanted = self.options.config.attribution.stream_lag;
        let longest_lag = self.clock.map_or(0, |clock| clock.ticks(wanted.unwrap_or(Config::STREAM_LAG)));
        let replayed = self.options.replay.as_ref().filter(|_| wanted.is_none());
        let longest_lag = replayed.map_or(longest_lag, |r| r.longest_lag_ticks.max(longest_lag));
        let longest_lag = (longest_lag as f64 * self.patience) as u64;
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

    pub(crate) fn note(&mut self, line: String) {
        if self.notes.len() < growth::MOST_NOTES && !self.notes.contains(&line) {
            self.notes.push(line);
        }
    }
}

/// The moment at which the clocks said this, as far as that is known of this boot.
fn began(started: &Clocks) -> Instant {
    let now = best_reading();
    let ago = Duration::from_nanos(now.monotonic_ns.saturating_sub(started.monotonic_ns));
    Instant::now().checked_sub(ago).unwrap_or_else(Instant::now)
}
