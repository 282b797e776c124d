//! Paces the host processes, and plays the samples itself.

use crate::{END, NO_ROOM};
use ampere_collector::sampling::sampler;
use ampere_ring::{EventWriter, RingProducer, Session};
use ampere_trace::replay::{Replay, numbered_members};
use ampere_trace::value_type;
use anyhow::Context;
use otf2::{EventHandler, LocationRef, MetricRef, MetricValue, Trace};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time from one step to the next, at a finite speed.
const STEP: Duration = Duration::from_millis(5);
/// At maximum speed: the least number of steps, and about how many events one has.
const LEAST_STEPS: u64 = 1000;
const EVENTS_PER_STEP: u64 = 50_000;
const SAMPLES_RING_RECORDS: u64 = 1 << 16;
/// The longest sleep without checking whether the replay is to be stopped.
const NAP: Duration = Duration::from_millis(50);

/// How fast a trace is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// So many times as fast as it was recorded.
    Times(f64),
    /// As fast as possible.
    Max,
}

/// A text that is no [`Speed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use a number such as 1 (as it was) or 50, or max")]
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

/// The host process of one process of the trace.
struct Host {
    group: String,
    child: Child,
    /// It no longer answers.
    gone: bool,
}

/// A replay in progress.
pub struct Conductor {
    replay: Replay,
    session: Session,
    speed: Speed,
    /// Ticks of a step.
    step: u64,
    samples: EventWriter,
    hosts: Vec<Host>,
    begun: Instant,
    /// Events before this time are played.
    until: u64,
    stop: Arc<AtomicBool>,
    numbers: HashMap<(LocationRef, MetricRef), Vec<(usize, u32)>>,
    definitions: otf2::Definitions,
}

impl Conductor {
    /// The ticks of a step.
    pub fn step_ticks(replay: &Replay, speed: Speed) -> u64 {
        let length = replay.last.saturating_sub(replay.first).saturating_add(1);
        match speed {
            Speed::Times(times) => {
                let ticks = STEP.as_secs_f64() * times * replay.ticks_per_second as f64;
                (ticks as u64).clamp(1, length)
            }
            Speed::Max => (length / LEAST_STEPS.max(replay.events / EVENTS_PER_STEP)).max(1),
        }
    }

    /// Makes the ring of the samples, which the collector expects.
    pub fn new(
        replay: Replay,
        session: Session,
        speed: Speed,
        stop: Arc<AtomicBool>,
    ) -> anyhow::Result<Conductor> {
        let ring =
            RingProducer::create(&session.directory().join(sampler::RING_NAME), SAMPLES_RING_RECORDS, 0)?;
        Ok(Conductor {
            step: Conductor::step_ticks(&replay, speed),
            until: replay.first,
            replay,
            session,
            speed,
            samples: EventWriter::new(ring),
            hosts: Vec::new(),
            begun: Instant::now(),
            stop,
            numbers: HashMap::new(),
            definitions: otf2::Definitions::default(),
        })
    }

    /// Starts a host process for every process of the trace and waits until they are ready. `command` makes the command for a
    /// process' number.
    pub fn start_hosts(&mut self, command: impl Fn(u32) -> Command) -> anyhow::Result<()> {
        for process in &self.replay.processes {
            let child = command(process.number)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .with_context(|| format!("cannot start the host of {}", process.group))?;
            self.hosts.push(Host { group: process.group.clone(), child, gone: false });
        }
        self.wait_for_hosts();
        Ok(())
    }

    /// Plays the whole trace. Returns a line for each problem.
    pub fn play(&mut self) -> anyhow::Result<Vec<String>> {
        let mut trace = Trace::open(&self.replay.trace)?;
        self.definitions = trace.definitions().clone();
        self.begun = Instant::now();
        let recorders = self.replay.recorders.clone();
        let recorded = |location: LocationRef| recorders.binary_search(&location.0).is_ok();
        trace.read_events_of(recorded, self)?;
        while !self.is_stopped() {
            let played_until = self.until;
            self.finish_step();
            if played_until > self.replay.last {
                break;
            }
        }
        Ok(self.end())
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Has all hosts play up to `until`, and moves on by a step.
    fn finish_step(&mut self) {
        self.send_time(self.until);
        self.wait_for_hosts();
        self.session.set_replay_time(self.until);
        self.sleep();
        let end = self.replay.last.saturating_add(1);
        self.until = self.until.saturating_add(self.step).min(end);
    }

    fn sleep(&self) {
        let Speed::Times(times) = self.speed else { return };
        let played =
            self.until.saturating_sub(self.replay.first) as f64 / self.replay.ticks_per_second as f64;
        let Ok(target) = Duration::try_from_secs_f64(played / times) else { return };
        loop {
            let left = target.saturating_sub(self.begun.elapsed());
            if left.is_zero() || self.is_stopped() {
                return;
            }
            std::thread::sleep(left.min(NAP));
        }
    }

    fn send_time(&mut self, until: u64) {
        for host in self.hosts.iter_mut().filter(|host| !host.gone) {
            let sent = host.child.stdin.as_mut().map(|input| writeln!(input, "{until}"));
            host.gone = !matches!(sent, Some(Ok(())));
        }
    }

    fn wait_for_hosts(&mut self) {
        for host in self.hosts.iter_mut().filter(|host| !host.gone) {
            let answer = host.child.stdout.as_mut().map(|output| output.read_exact(&mut [0]));
            host.gone = !matches!(answer, Some(Ok(())));
        }
    }

    fn end(&mut self) -> Vec<String> {
        if !self.is_stopped() {
            self.send_time(END);
        }
        let mut problems = Vec::new();
        for host in &mut self.hosts {
            // A host whose input ends stops where it is.
            drop(host.child.stdin.take());
            let status = host.child.wait();
            if !self.stop.load(Ordering::Relaxed) && !status.is_ok_and(|status| status.success()) {
                problems.push(format!("the host of {} ended before its time", host.group));
            }
        }
        self.samples.close();
        problems
    }

    /// No event will follow: everything can be attributed. `delay`: the longest lag of a device's samples.
    pub fn announce_end(&self, delay: Duration) {
        let ticks = delay.as_secs_f64() * self.replay.ticks_per_second as f64;
        self.session.set_replay_time(self.replay.last.saturating_add(1).saturating_add(ticks as u64));
    }

    fn write(&mut self, time: u64, number: u32, bits: u64) -> ControlFlow<()> {
        while !self.samples.has_room_for_sample() {
            if self.is_stopped() || !self.session.collector_is_alive() {
                return ControlFlow::Break(());
            }
            std::thread::sleep(NO_ROOM);
        }
        self.samples.sample(time, number, bits);
        ControlFlow::Continue(())
    }
}

impl EventHandler for Conductor {
    fn enter(&mut self, _: LocationRef, _: u64, _: otf2::RegionRef) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn leave(&mut self, _: LocationRef, _: u64, _: otf2::RegionRef) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn metric(
        &mut self,
        location: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> ControlFlow<()> {
        if self.is_stopped() {
            return ControlFlow::Break(());
        }
        let (replay, definitions) = (&self.replay, &self.definitions);
        let members = self
            .numbers
            .entry((location, metric))
            .or_insert_with(|| numbered_members(replay, definitions, location, metric))
            .clone();
        if members.is_empty() {
            return ControlFlow::Continue(());
        }
        while time >= self.until {
            self.finish_step();
            if self.is_stopped() {
                return ControlFlow::Break(());
            }
        }
        for (position, number) in members {
            let Some(value) = values.get(position) else { continue };
            let bits = value_type::to_bits(value, self.replay.metrics[number as usize].value);
            self.write(time, number, bits)?;
        }
        ControlFlow::Continue(())
    }
}

impl Drop for Conductor {
    fn drop(&mut self) {
        for host in &mut self.hosts {
            drop(host.child.stdin.take());
            let _ = host.child.wait();
        }
    }
}
