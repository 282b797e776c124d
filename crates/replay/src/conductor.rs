//! Says how far everybody may play, and when; plays the samples itself.

use crate::{END, NO_ROOM};
use ampere_collector::sampling::sampler;
use ampere_ring::{EventWriter, RingProducer, Session};
use ampere_trace::replay::{Replay, numbered_members};
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

/// At a finite speed, so much time passes from one step to the next.
const STEP: Duration = Duration::from_millis(5);
/// Without one, the trace is played in so many steps at least, and with about so many events in each.
const LEAST_STEPS: u64 = 1000;
const EVENTS_PER_STEP: u64 = 50_000;
const SAMPLES_RING_RECORDS: u64 = 1 << 16;
/// A nap between two looks at whether the replay is to be stopped.
const NAP: Duration = Duration::from_millis(50);

/// Times as fast as it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    Times(f64),
    Max,
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Speed, String> {
        match (text, text.parse::<f64>()) {
            ("max", _) => Ok(Speed::Max),
            (_, Ok(0.0)) => Ok(Speed::Max),
            (_, Ok(times)) if times.is_finite() && times > 0.0 => Ok(Speed::Times(times)),
            _ => Err("use a number such as 1 (as it was) or 50, or max".to_owned()),
        }
    }
}

/// The host of one process of the trace.
struct Host {
    group: String,
    child: Child,
    /// It has ended before its time.
    gone: bool,
}

pub struct Conductor {
    replay: Replay,
    session: Session,
    speed: Speed,
    /// Ticks that a step is long.
    step: u64,
    samples: EventWriter,
    hosts: Vec<Host>,
    begun: Instant,
    /// Everything before this has been told.
    until: u64,
    stop: Arc<AtomicBool>,
    numbers: HashMap<(LocationRef, MetricRef), Vec<(usize, u32)>>,
    definitions: otf2::Definitions,
}

impl Conductor {
    /// How long a step is.
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

    /// Makes the ring of the samples: the collector wants to find it.
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

    /// Starts a host for every process of the trace, by `command` of its number, and waits until they are ready.
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

    /// Plays the whole trace. One line for everything that did not go well.
    pub fn play(&mut self) -> anyhow::Result<Vec<String>> {
        let mut trace = Trace::open(&self.replay.trace)?;
        self.definitions = trace.definitions().clone();
        self.begun = Instant::now();
        let recorders = self.replay.recorders.clone();
        let recorded = |location: LocationRef| recorders.binary_search(&location.0).is_ok();
        trace.read_events_of(recorded, self)?;
        while !self.is_stopped() {
            let told = self.until;
            self.finish_step();
            if told > self.replay.last {
                break;
            }
        }
        Ok(self.end())
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Everything before `until` is written by everybody; then it is `until`.
    fn finish_step(&mut self) {
        self.tell_hosts(self.until);
        self.wait_for_hosts();
        self.session.tell_time(self.until);
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

    fn tell_hosts(&mut self, until: u64) {
        for host in self.hosts.iter_mut().filter(|host| !host.gone) {
            let told = host.child.stdin.as_mut().map(|input| writeln!(input, "{until}"));
            host.gone = !matches!(told, Some(Ok(())));
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
            self.tell_hosts(END);
        }
        let mut complaints = Vec::new();
        for host in &mut self.hosts {
            // A host that hears no more stops where it is.
            drop(host.child.stdin.take());
            let status = host.child.wait();
            if !self.stop.load(Ordering::Relaxed) && !status.is_ok_and(|status| status.success()) {
                complaints.push(format!("the host of {} ended before its time", host.group));
            }
        }
        self.samples.close();
        complaints
    }

    /// Nothing more comes: all of it can be attributed. `delay`: how far the samples of some device lag.
    pub fn tell_the_end(&self, delay: Duration) {
        let ticks = delay.as_secs_f64() * self.replay.ticks_per_second as f64;
        self.session.tell_time(self.replay.last.saturating_add(1).saturating_add(ticks as u64));
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
            let bits = self.replay.metrics[number as usize].value.bits(value);
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
