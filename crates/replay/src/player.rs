//! Plays one process of a trace: its threads' events in time, its GPU streams' events late and in batches.

use crate::host::{HostLocation, Plugin};
use crate::{END, NO_ROOM};
use ampere_model::{Region, RegionHandle};
use ampere_ring::{RingGauge, Session};
use ampere_trace::index::as_model;
use ampere_trace::replay::{FILE_NAME, Replay};
use anyhow::Context;
use otf2::{EventHandler, LocationRef, RegionRef, Trace};
use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, Write};
use std::ops::ControlFlow;
use std::path::Path;

/// Room is checked once in so many events, or in an eighth of a small ring.
const MOST_AT_ONCE: u64 = 1024;

/// Plays process `number` of the session's replay. The conductor sends times on standard input; a byte on standard output
/// answers that the events before a time are played. `false`: the conductor is gone, and the measurement is not finished.
pub fn play(session: &Path, number: u32, plugin: &Path) -> anyhow::Result<bool> {
    let replay = Replay::load(&session.join(FILE_NAME)).map_err(anyhow::Error::msg)?;
    let session = Session::open(session)?;
    let process = replay.process(number).context("the replay has no such process")?.clone();
    let mut trace = Trace::open(&replay.trace)?;
    let regions = trace.definitions().regions.iter();
    let regions = regions.map(|(reference, r)| Region { handle: RegionHandle(reference.0), ..as_model(r) });
    let plugin = Plugin::begin(plugin, process.number, process.size, regions)?;
    let mut main = None;
    let mut locations = HashMap::new();
    for location in &process.locations {
        let host = HostLocation::new(location.id, location.gpu, &location.name);
        plugin.create_location(host);
        if location.id == 0 {
            plugin.program_begin(host, replay.first);
            main = Some(host);
        }
        let ring = session.directory().join(format!("{}.{}.ring", std::process::id(), location.id));
        let played = Played::new(host, RingGauge::open(&ring)?, location.gpu);
        locations.insert(LocationRef(location.reference), played);
    }
    let mut player = Player {
        plugin: &plugin,
        session: &session,
        lag: replay.stream_lag_ticks,
        locations,
        until: replay.first,
        failure: None,
        interrupted: false,
    };
    let mine: Vec<LocationRef> = player.locations.keys().copied().collect();
    trace.read_events_of(|location| mine.contains(&location), &mut player)?;
    while !player.is_over() && player.until != END {
        let _ = player.next_step();
    }
    if player.interrupted {
        return Ok(false);
    }
    player.pass_on_rest();
    if let Some(why) = player.failure {
        return Err(why.into());
    }
    if let Some(main) = main {
        plugin.program_end(main, replay.last);
    }
    plugin.finalize();
    Ok(true)
}

/// A location and its ring.
struct Played {
    host: &'static HostLocation,
    ring: RingGauge,
    at_once: u64,
    /// Events that certainly find room.
    room: u64,
    open: u64,
    /// A GPU stream's events that have not been passed on.
    stream: Option<VecDeque<Event>>,
    /// The number of these that belong to kernels that have ended.
    complete: usize,
    /// Regions that are open, and the time of the last enter or leave.
    stack: Vec<u32>,
    last: u64,
}

#[derive(Clone, Copy)]
struct Event {
    time: u64,
    region: u32,
    entered: bool,
}

impl Played {
    fn new(host: &'static HostLocation, ring: RingGauge, gpu: bool) -> Played {
        Played {
            host,
            at_once: (ring.capacity_records() / 8).clamp(1, MOST_AT_ONCE),
            ring,
            room: 0,
            open: 0,
            stream: gpu.then(VecDeque::new),
            complete: 0,
            stack: Vec::new(),
            last: 0,
        }
    }

    /// Keeps a GPU stream's event for later: a kernel is reported when it has ended.
    fn keep(&mut self, event: Event) {
        let over = self.stack.is_empty();
        if let Some(stream) = &mut self.stream {
            stream.push_back(event);
            if over {
                self.complete = stream.len();
            }
        }
    }

    fn pass_on(&mut self, plugin: &Plugin, session: &Session, event: Event) -> Result<(), CollectorEnded> {
        if self.room == 0 {
            self.wait_for_room(session)?;
        }
        self.room -= 1;
        if event.entered {
            self.open += 1;
            plugin.enter(self.host, event.time, event.region);
        } else {
            self.open = self.open.saturating_sub(1);
            plugin.leave(self.host, event.time, event.region);
        }
        Ok(())
    }

    /// Waits until there is room for the next events and for the leaves of all open frames. A ring that is too small for that is
    /// waited for until it is empty; the plugin suppresses and counts what does not fit.
    fn wait_for_room(&mut self, session: &Session) -> Result<(), CollectorEnded> {
        let wanted = self.open + 2 * self.at_once + 8;
        let wanted = wanted.min(self.ring.capacity_records() - 1);
        while self.ring.free() < wanted {
            if !session.collector_is_alive() {
                return Err(CollectorEnded);
            }
            std::thread::sleep(NO_ROOM);
        }
        self.room = self.at_once;
        Ok(())
    }
}

/// The collector ended before the replay did.
#[derive(Debug, thiserror::Error)]
#[error("the collector ended before its time")]
struct CollectorEnded;

struct Player<'a> {
    plugin: &'a Plugin,
    session: &'a Session,
    lag: Option<u64>,
    locations: HashMap<LocationRef, Played>,
    /// Events before this time may be passed on.
    until: u64,
    failure: Option<CollectorEnded>,
    /// The conductor is gone.
    interrupted: bool,
}

impl Player<'_> {
    fn is_over(&self) -> bool {
        self.interrupted || self.failure.is_some()
    }

    fn take(&mut self, location: LocationRef, event: Event) -> ControlFlow<()> {
        while event.time >= self.until {
            self.next_step()?;
        }
        let Some(played) = self.locations.get_mut(&location) else { return ControlFlow::Continue(()) };
        played.last = event.time;
        if event.entered {
            played.stack.push(event.region);
        } else {
            played.stack.pop();
        }
        if played.stream.is_some() {
            played.keep(event);
        } else if let Err(why) = played.pass_on(self.plugin, self.session, event) {
            return self.fail(why);
        }
        ControlFlow::Continue(())
    }

    /// Answers that the events before `until` are played, and reads the next time.
    fn next_step(&mut self) -> ControlFlow<()> {
        if let Some(lag) = self.lag {
            let until = self.until;
            let due = |event: &Event| event.time.saturating_add(lag) <= until;
            self.pass_on_streams(|played| {
                let first = played.stream.as_ref().and_then(|stream| stream.front());
                if first.is_some_and(due) { played.complete } else { 0 }
            })?;
        }
        let mut out = std::io::stdout().lock();
        let answered = out.write_all(b"\n").and_then(|()| out.flush());
        let mut line = String::new();
        let read = answered.and_then(|()| std::io::stdin().lock().read_line(&mut line));
        match (read, line.trim().parse()) {
            (Ok(_), Ok(until)) => {
                self.until = until;
                ControlFlow::Continue(())
            }
            _ => {
                self.interrupted = true;
                ControlFlow::Break(())
            }
        }
    }

    fn pass_on_rest(&mut self) {
        if self.failure.is_none() {
            let _ = self.pass_on_streams(|played| played.stream.as_ref().map_or(0, VecDeque::len));
        }
    }

    /// Passes on as many events of every stream as `count` says.
    fn pass_on_streams(&mut self, count: impl Fn(&Played) -> usize) -> ControlFlow<()> {
        for played in self.locations.values_mut() {
            for _ in 0..count(played) {
                let Some(event) = played.stream.as_mut().and_then(VecDeque::pop_front) else { break };
                played.complete = played.complete.saturating_sub(1);
                if let Err(why) = played.pass_on(self.plugin, self.session, event) {
                    return self.fail(why);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn fail(&mut self, why: CollectorEnded) -> ControlFlow<()> {
        self.failure = Some(why);
        ControlFlow::Break(())
    }
}

impl EventHandler for Player<'_> {
    fn enter(&mut self, location: LocationRef, time: u64, region: RegionRef) -> ControlFlow<()> {
        self.take(location, Event { time, region: region.0, entered: true })
    }

    fn leave(&mut self, location: LocationRef, time: u64, region: RegionRef) -> ControlFlow<()> {
        self.take(location, Event { time, region: region.0, entered: false })
    }

    /// Frames that the trace never leaves end with the location's last event, as offline.
    fn end(&mut self, location: LocationRef) -> ControlFlow<()> {
        let Some(played) = self.locations.get(&location) else { return ControlFlow::Continue(()) };
        let (time, open) = (played.last, played.stack.clone());
        for region in open.into_iter().rev() {
            self.take(location, Event { time, region, entered: false })?;
        }
        ControlFlow::Continue(())
    }
}
