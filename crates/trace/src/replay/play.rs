//! Plays a trace into a session's rings, as the processes of a measured run fill them, at the pace of real time or faster.
//!
//! Each process of the trace has its own definitions log and rings. All of them are written here, by one thread that reads the
//! trace in time order. A step writes the events and samples before a time `t`, sets the session's replay time to `t`, and
//! waits as the speed requires. Timestamps are the trace's own ticks and samples its raw values, so that the results equal
//! those of `ampere attribute`. Events of GPU streams come late and in batches, as on a real node. A replay waits for space in
//! a ring, so that nothing is suppressed unless a ring is too small for the frames that are open at once.

use super::communication::{communicators_of, recorded};
use super::{Replay, ReplayedLocation, ReplayedProcess, numbered_members};
use crate::index::as_model;
use crate::index::{CPU_TIME, correlation_attribute};
use crate::sampled_events::SampledEvents;
use crate::value_type;
use ampere_model::{
    Communicator, Definition, LocalLocation, Location, LocationKind, Process, REPLAYED_HOST, Region,
    RegionHandle, STACK_EVENTS,
};
use ampere_ring::{EventWriter, LogWriter, RING_RECORDS_MIN, RingProducer, SAMPLES_RING, Session};
use ampere_timeline::topology::visible::variable;
use otf2::{AttributeRef, Definitions, EventHandler, Flow, LocationRef, MetricRef, MetricValue, Trace};
use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time from one step to the next, at a finite speed.
const STEP: Duration = Duration::from_millis(5);
/// The minimum number of steps at maximum speed, and the approximate number of events in a step.
const STEPS_MIN: u64 = 1000;
const EVENTS_PER_STEP: u64 = 50_000;
const SAMPLES_RING_RECORDS: u64 = 1 << 16;
/// The size of a location's ring, without `AMPERE_RING_BYTES`. It is small, because there may be hundreds of rings, and the
/// replay waits for space.
const RING_BYTES: u64 = 1 << 20;
const RECORD_BYTES: u64 = 16;
/// The longest sleep without checking whether the replay is to be stopped.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// The time to sleep if a ring has no space.
const NO_ROOM: Duration = Duration::from_micros(200);
/// A killed collector is replaced within a fraction of this time, or not at all.
const REPLACEMENT_LIMIT: Duration = Duration::from_secs(3);

/// The speed with which a trace is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// The trace is played this many times as fast as it was recorded.
    Times(f64),
    /// The trace is played as fast as possible.
    Max,
}

/// A text that is not a [`Speed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use a number such as 1 (the recorded speed) or 50, or max")]
pub struct InvalidSpeed;

impl FromStr for Speed {
    type Err = InvalidSpeed;

    fn from_str(text: &str) -> Result<Speed, InvalidSpeed> {
        match (text, text.parse::<f64>()) {
            ("max", _) => Ok(Speed::Max),
            (_, Ok(0.0)) => Ok(Speed::Max),
            (_, Ok(times)) if times.is_finite() && times > 0.0 => Ok(Speed::Times(times)),
            _ => Err(InvalidSpeed),
        }
    }
}

impl Speed {
    /// Returns the length of a step in the trace's ticks.
    pub fn step_ticks(self, replay: &Replay) -> u64 {
        let length = replay.last.saturating_sub(replay.first).saturating_add(1);
        match self {
            Speed::Times(times) => {
                let ticks = STEP.as_secs_f64() * times * replay.ticks_per_second as f64;
                (ticks as u64).clamp(1, length)
            }
            Speed::Max => (length / STEPS_MIN.max(replay.events / EVENTS_PER_STEP)).max(1),
        }
    }
}

/// The collector ended before the replay did.
#[derive(Debug, thiserror::Error)]
#[error("the collector ended early")]
struct CollectorEnded;

/// A process of the trace: its log, which is locked for as long as the process counts as running, and the location of its main
/// thread.
struct PlayedProcess {
    log: LogWriter,
    main: Option<LocationRef>,
}

struct PlayedLocation {
    writer: EventWriter,
    /// The events of a GPU stream that have not been written; `None` for other locations.
    late: Option<VecDeque<Event>>,
    /// The number of events in `late` that belong to kernels that have ended.
    complete: usize,
    /// The open regions.
    stack: Vec<u32>,
    /// The names of the events that are counted with the location's samples.
    events: Vec<String>,
}

#[derive(Clone, Copy)]
struct Event {
    time: u64,
    region: u32,
    entered: bool,
    /// The correlation id of an enter; 0 if it has none.
    id: u64,
}

/// A replay that is running.
pub struct Player<'a> {
    replay: &'a Replay,
    session: &'a Session,
    speed: Speed,
    stop: &'a AtomicBool,
    step: u64,
    started: Instant,
    /// The end of the present step: events before this time are written in it.
    until: u64,
    processes: Vec<PlayedProcess>,
    locations: HashMap<LocationRef, PlayedLocation>,
    samples: EventWriter,
    /// The members that are played, by location and metric class.
    members: HashMap<(LocationRef, MetricRef), Vec<(usize, u32)>>,
    definitions: Definitions,
    sampled_events: SampledEvents,
    /// The communicators of the processes that have no log yet, by the processes' numbers.
    communicators: HashMap<u32, Vec<Communicator>>,
    has_collector_ended: bool,
    /// The correlation id of the next enter; 0 if it has none.
    next_id: u64,
}

impl<'a> Player<'a> {
    /// Makes the ring of the samples, which the collector expects.
    ///
    /// # Errors
    /// A ring that cannot be made.
    pub fn new(
        replay: &'a Replay,
        session: &'a Session,
        speed: Speed,
        stop: &'a AtomicBool,
    ) -> anyhow::Result<Player<'a>> {
        let ring = RingProducer::create(&session.directory().join(SAMPLES_RING), SAMPLES_RING_RECORDS, 0)?;
        Ok(Player {
            replay,
            session,
            speed,
            stop,
            step: speed.step_ticks(replay),
            started: Instant::now(),
            until: replay.first,
            processes: Vec::new(),
            locations: HashMap::new(),
            samples: EventWriter::new(ring),
            members: HashMap::new(),
            definitions: Definitions::default(),
            sampled_events: SampledEvents::default(),
            communicators: HashMap::new(),
            has_collector_ended: false,
            next_id: 0,
        })
    }

    /// Plays the whole trace, or up to an interrupt, after which the processes count as killed.
    ///
    /// # Errors
    /// A trace that cannot be read, a log or ring that cannot be made, or a collector that ended.
    pub fn play(mut self) -> anyhow::Result<()> {
        let mut trace = Trace::open(&self.replay.trace)?;
        self.definitions = trace.definitions().clone();
        self.sampled_events = SampledEvents::new(&self.definitions);
        self.communicators = communicators_of(&self.definitions, &self.replay.processes);
        for process in &self.replay.processes {
            self.begin_process(process)?;
        }
        self.started = Instant::now();
        let recorders = &self.replay.recorders;
        let played: Vec<LocationRef> = self.locations.keys().copied().collect();
        let is_played = |location: LocationRef| {
            played.contains(&location) || recorders.binary_search(&location.0).is_ok()
        };
        trace.read_events_of(is_played, &mut self)?;
        while !self.is_stopped() {
            let played_until = self.until;
            let _ = self.finish_step();
            if played_until > self.replay.last {
                break;
            }
        }
        if !self.is_stopped() {
            self.end();
        }
        if self.has_collector_ended { Err(CollectorEnded.into()) } else { Ok(()) }
    }

    fn is_stopped(&self) -> bool {
        self.has_collector_ended || self.stop.load(Ordering::Relaxed)
    }

    /// Writes the entries that a process of a run writes when it starts.
    fn begin_process(&mut self, process: &ReplayedProcess) -> anyhow::Result<()> {
        let name = process.id().to_string();
        let mut log = LogWriter::create(&self.session.directory().join(format!("{name}.defs")))?;
        log.append(&Definition::Process(process.as_defined()));
        log.append(&Definition::Rank { rank: process.number, size: process.size });
        for communicator in self.communicators.remove(&process.number).into_iter().flatten() {
            log.append(&Definition::Communicator(communicator));
        }
        for (reference, region) in self.definitions.regions.iter() {
            log.append(&Definition::Region(Region { handle: RegionHandle(reference.0), ..as_model(region) }));
        }
        let events = variable(&process.environment, STACK_EVENTS).into_iter();
        let events: Vec<String> = events.flat_map(|names| names.split(',')).map(str::to_owned).collect();
        let mut main = None;
        for location in &process.locations {
            let reference = LocationRef(location.reference);
            let mut writer = self.make_location(&name, location, &mut log)?;
            if location.id == 0 {
                writer.program_begin(self.replay.first);
                main = Some(reference);
            }
            let played = PlayedLocation {
                writer,
                late: location.gpu.then(VecDeque::new),
                complete: 0,
                stack: Vec::new(),
                events: events.clone(),
            };
            self.locations.insert(reference, played);
        }
        self.processes.push(PlayedProcess { log, main });
        self.session.join();
        Ok(())
    }

    fn make_location(
        &self,
        process: &str,
        location: &ReplayedLocation,
        log: &mut LogWriter,
    ) -> anyhow::Result<EventWriter> {
        let ring = format!("{process}.{}.ring", location.id);
        let producer =
            RingProducer::create(&self.session.directory().join(&ring), ring_records(), location.id)?;
        log.append(&Definition::Location(Location {
            id: LocalLocation(location.id),
            kind: if location.gpu { LocationKind::Gpu } else { LocationKind::CpuThread },
            name: location.name.clone(),
            ring,
            thread: 0,
        }));
        Ok(EventWriter::new(producer))
    }

    /// Writes late events that are due, sets the session's time, and waits for the next step.
    fn finish_step(&mut self) -> Flow {
        if let Some(lag) = self.replay.stream_lag_ticks {
            let until = self.until;
            let is_due = |event: &Event| event.time.saturating_add(lag) <= until;
            self.write_late(|location| {
                let first = location.late.as_ref().and_then(VecDeque::front);
                if first.is_some_and(is_due) { location.complete } else { 0 }
            })?;
        }
        self.session.set_replay_time(self.until);
        self.sleep();
        let end = self.replay.last.saturating_add(1);
        self.until = self.until.saturating_add(self.step).min(end);
        if self.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Finishes the steps that end by this time. CPU time may be recorded after the end of the last step, which then stays open.
    fn play_until(&mut self, time: u64) -> Flow {
        while time >= self.until && self.until <= self.replay.last {
            self.finish_step()?;
        }
        ControlFlow::Continue(())
    }

    fn sleep(&self) {
        let Speed::Times(times) = self.speed else { return };
        let played =
            self.until.saturating_sub(self.replay.first) as f64 / self.replay.ticks_per_second as f64;
        let Ok(target) = Duration::try_from_secs_f64(played / times) else { return };
        while let remaining = target.saturating_sub(self.started.elapsed())
            && !remaining.is_zero()
            && !self.is_stopped()
        {
            std::thread::sleep(remaining.min(SLEEP_MAX));
        }
    }

    /// Writes `count` late events of every GPU stream.
    fn write_late(&mut self, count: impl Fn(&PlayedLocation) -> usize) -> Flow {
        for location in self.locations.values_mut() {
            for _ in 0..count(location) {
                let Some(event) = location.late.as_mut().and_then(VecDeque::pop_front) else { break };
                location.complete = location.complete.saturating_sub(1);
                if wait_for_room(&mut location.writer, self.session, self.stop).is_err() {
                    self.has_collector_ended = true;
                    return ControlFlow::Break(());
                }
                location.write(event);
            }
        }
        ControlFlow::Continue(())
    }

    fn take(&mut self, at: LocationRef, event: Event) -> Flow {
        self.play_until(event.time)?;
        let Some(location) = self.locations.get_mut(&at) else { return ControlFlow::Continue(()) };
        if event.entered {
            location.stack.push(event.region);
        } else {
            location.stack.pop();
        }
        if let Some(late) = &mut location.late {
            // A kernel is reported when it has ended.
            late.push_back(event);
            if location.stack.is_empty() {
                location.complete = late.len();
            }
        } else if wait_for_room(&mut location.writer, self.session, self.stop).is_ok() {
            location.write(event);
        } else {
            self.has_collector_ended = true;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Writes the CPU time of a location, if this is its metric.
    fn put_cpu_time(
        &mut self,
        at: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> ControlFlow<()> {
        let position = self.definitions.metric_classes.get(metric.class).and_then(|class| {
            let name = |member| Some(self.definitions.metric_members.get(member)?.name.as_str());
            class.members.iter().position(|member| name(*member) == Some(CPU_TIME))
        });
        let value = position.and_then(|position| values.get(position));
        match value {
            Some(MetricValue::U64(ns)) => self.put_record(at, time, |writer| writer.cpu_time(time, 0, *ns)),
            _ => ControlFlow::Continue(()),
        }
    }

    /// Writes how often an event has happened since the last sample of a location, if this is such a metric.
    fn put_counts(
        &mut self,
        at: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> ControlFlow<()> {
        let Some((name, count)) = self.sampled_events.read(metric, values) else {
            return ControlFlow::Continue(());
        };
        let location = self.locations.get(&at);
        let event = location.and_then(|location| location.events.iter().position(|known| known == name));
        match event {
            Some(event) => self.put_record(at, time, |writer| writer.counts(time, event as u32, count)),
            None => self.play_until(time),
        }
    }

    /// Plays until this time, and then writes a record of a location, if it is played.
    fn put_record(
        &mut self,
        at: LocationRef,
        time: u64,
        write: impl FnOnce(&mut EventWriter),
    ) -> ControlFlow<()> {
        self.play_until(time)?;
        let Some(location) = self.locations.get_mut(&at) else { return ControlFlow::Continue(()) };
        if wait_for_room(&mut location.writer, self.session, self.stop).is_err() {
            self.has_collector_ended = true;
            return ControlFlow::Break(());
        }
        write(&mut location.writer);
        ControlFlow::Continue(())
    }

    /// Ends the processes properly. Every device's last sample can then be attributed, because no event follows.
    fn end(&mut self) {
        let _ = self.write_late(|location| location.late.as_ref().map_or(0, VecDeque::len));
        for process in &mut self.processes {
            let main = process.main.and_then(|main| self.locations.get_mut(&main));
            main.into_iter().for_each(|main| main.writer.program_end(self.replay.last));
            let left_out = process.log.left_out();
            process.log.append(&Definition::Finished { left_out });
        }
        self.locations.values_mut().for_each(|location| location.writer.close());
        self.samples.close();
        self.session.announce();
    }
}

impl PlayedLocation {
    fn write(&mut self, Event { time, region, entered, id }: Event) {
        if entered {
            self.writer.correlate_next(id);
            self.writer.enter(time, region);
        } else {
            self.writer.leave(time, region);
        }
    }
}

impl Replay {
    /// Sets the session's time after all events and samples. `delay`: the longest lag of a device's samples.
    pub fn announce_end(&self, session: &Session, delay: Duration) {
        let ticks = delay.as_secs_f64() * self.ticks_per_second as f64;
        session.set_replay_time(self.last.saturating_add(1).saturating_add(ticks as u64));
    }
}

impl ReplayedProcess {
    /// Returns the number that the process has in place of a pid. It belongs to no pid namespace of this machine.
    pub fn id(&self) -> u32 {
        self.number.saturating_add(1)
    }

    pub fn as_defined(&self) -> Process {
        Process {
            pid: self.id(),
            hostname: self.node.clone(),
            host: REPLAYED_HOST.to_owned(),
            environment: self.environment.clone(),
            pid_namespace: u64::MAX,
            ..Process::default()
        }
    }
}

/// Returns the number of records of a location's ring.
fn ring_records() -> u64 {
    let wanted = std::env::var("AMPERE_RING_BYTES").ok().and_then(|text| text.trim().parse().ok());
    (wanted.unwrap_or(RING_BYTES) / RECORD_BYTES).max(RING_RECORDS_MIN)
}

/// Waits until there is space for an event. Does not wait for an empty ring that is too small for the leaves of all open frames;
/// events that do not fit into it are suppressed and counted.
fn wait_for_room(
    writer: &mut EventWriter,
    session: &Session,
    stop: &AtomicBool,
) -> Result<(), CollectorEnded> {
    let mut without_collector = None;
    while !writer.has_room() && !writer.is_drained() && !stop.load(Ordering::Relaxed) {
        if session.collector_is_alive() {
            without_collector = None;
        } else if without_collector.get_or_insert_with(Instant::now).elapsed() > REPLACEMENT_LIMIT {
            return Err(CollectorEnded);
        }
        std::thread::sleep(NO_ROOM);
    }
    Ok(())
}

impl EventHandler for Player<'_> {
    fn second_attribute(&self) -> Option<AttributeRef> {
        correlation_attribute(&self.definitions)
    }

    fn second_value(&mut self, _location: LocationRef, value: u64) -> Flow {
        self.next_id = value;
        ControlFlow::Continue(())
    }

    fn enter(
        &mut self,
        location: LocationRef,
        time: u64,
        region: otf2::RegionRef,
        _calls: Option<u64>,
    ) -> Flow {
        let id = std::mem::take(&mut self.next_id);
        self.take(location, Event { time, region: region.0, entered: true, id })
    }

    fn leave(&mut self, location: LocationRef, time: u64, region: otf2::RegionRef) -> Flow {
        self.take(location, Event { time, region: region.0, entered: false, id: 0 })
    }

    /// Ends frames that the trace never leaves, at the time of the location's last event, as in `ampere attribute`.
    fn end(&mut self, at: LocationRef, last: u64) -> Flow {
        let Some(location) = self.locations.get(&at) else { return ControlFlow::Continue(()) };
        for region in location.stack.clone().into_iter().rev() {
            self.take(at, Event { time: last, region, entered: false, id: 0 })?;
        }
        ControlFlow::Continue(())
    }

    fn wants_communication(&self) -> bool {
        true
    }

    fn communication(&mut self, at: LocationRef, time: u64, event: otf2::Communication) -> Flow {
        let Some(event) = recorded(event) else { return ControlFlow::Continue(()) };
        self.play_until(time)?;
        let Some(location) = self.locations.get_mut(&at) else { return ControlFlow::Continue(()) };
        if wait_for_room(&mut location.writer, self.session, self.stop).is_err() {
            self.has_collector_ended = true;
            return ControlFlow::Break(());
        }
        location.writer.communication(time, event);
        ControlFlow::Continue(())
    }

    fn metric(
        &mut self,
        location: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> Flow {
        self.put_cpu_time(location, time, metric, values)?;
        self.put_counts(location, time, metric, values)?;
        let (replay, definitions) = (self.replay, &self.definitions);
        let members = self
            .members
            .entry((location, metric))
            .or_insert_with(|| numbered_members(replay, definitions, location, metric))
            .clone();
        if members.is_empty() {
            return ControlFlow::Continue(());
        }
        self.play_until(time)?;
        for (position, number) in members {
            let Some(value) = values.get(position) else { continue };
            let bits = value_type::to_bits(value, replay.value_type(number as usize));
            if wait_for_room(&mut self.samples, self.session, self.stop).is_err() {
                self.has_collector_ended = true;
                return ControlFlow::Break(());
            }
            self.samples.sample(time, number, bits);
        }
        ControlFlow::Continue(())
    }
}
