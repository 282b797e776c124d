//! Finds the energy that ranks use while they wait for each other in MPI, as far as it is known on this node during the run.
//! For that, the calls and messages of the ranks are passed on to [`Waiting`].
//!
//! A message can be matched only once it is known whether its other side is on this node. Until all ranks of the node are known,
//! everything is held.

use crate::ingest::Ingest;
use crate::ingest::process::Process;
use ampere_attribution::LocationIndex;
use ampere_model::launcher::local_rank_and_size;
use ampere_model::numbers::NumberMap;
use ampere_model::regions::is_mpi;
use ampere_model::{LocationKind, Members, RegionRef, Timestamp};
use ampere_ring::communication::Communication;
use ampere_timeline::attributor::Attributor;
use ampere_timeline::topology::visible::variable;
use ampere_timeline::waiting::{Comm, ELSEWHERE, Operation, Rank, Ranks, Waiting};
use ampere_trace::replay::Replay;
use ampere_trace::waits::operation_of_record;
use scorep_abi::paradigm;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Upper bounds on waiting for ranks that are not known yet: the time, and the number of held events.
const RANKS_WAIT_MAX: Duration = Duration::from_secs(2);
const HELD_MAX: usize = 1 << 18;
/// In a larger job, no waits are looked for.
const RANKS_MAX: u32 = 1 << 20;
/// The period with which all waits that can be settled are settled.
const SETTLE_PERIOD: Duration = Duration::from_secs(1);

/// The communicators that a process has used, by its handles; `None` for those that are not defined.
pub(crate) type Comms = NumberMap<u32, Option<u32>>;

/// Identifies a communicator in all of its processes.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    /// Each process is alone in its communicator, as in MPI_COMM_SELF.
    Own,
    Ranks(Vec<u32>),
    /// Score-P's key: the root's rank and the communicator's number there.
    Shared {
        root: u32,
        id: u32,
        size: u32,
    },
}

impl Key {
    /// `size` is the number of all ranks.
    fn of(members: &Members, size: u32) -> Key {
        match members {
            Members::World | Members::Shared { root: 0, id: 0, .. } => Key::Ranks((0..size).collect()),
            Members::Ranks(ranks) if ranks.len() == 1 => Key::Own,
            Members::Ranks(ranks) => Key::Ranks(ranks.clone()),
            Members::Shared { size: 1, .. } => Key::Own,
            Members::Shared { root, id, size, .. } => Key::Shared { root: *root, id: *id, size: *size },
        }
    }
}

#[derive(Clone, Copy)]
enum Event {
    Enter(RegionRef, bool),
    Leave,
    Communication(Operation),
}

/// An event of a location that waits until all ranks are known.
struct Held(LocationIndex, Timestamp, Event);

enum State {
    /// Waits are not wanted, or cannot be found.
    Off,
    /// Events are held, because not all ranks are known.
    Holding(Vec<Held>),
    Passing,
}

/// The ranks of a running job, and their MPI events until these can be passed on.
pub(crate) struct LiveWaits {
    state: State,
    /// The number of each rank of this node in [`Waiting`], and the index of its process, by its rank in MPI_COMM_WORLD.
    numbers: HashMap<u32, (u32, usize)>,
    /// The number of all ranks of the job.
    size: u32,
    /// The numbers of the communicators that have been used.
    comms: HashMap<Key, u32>,
    /// For each communicator with Score-P's key: the numbers of its ranks on this node, by their ranks in the communicator.
    shared: HashMap<(u32, u32), BTreeMap<u32, u32>>,
    /// Whether each region is a function of MPI.
    is_mpi: Vec<bool>,
    /// When the first ranks became known.
    since: Option<Instant>,
    settled: Instant,
    /// In a replay, the number of processes, all of which are played on this node.
    played: Option<usize>,
    /// The greatest error of one node's times on the clock of another, in ticks. Only a replay has processes of several nodes.
    clock_error: Timestamp,
}

impl LiveWaits {
    pub fn new(is_wanted: bool, replay: Option<&Replay>) -> LiveWaits {
        LiveWaits {
            state: if is_wanted { State::Holding(Vec::new()) } else { State::Off },
            numbers: HashMap::new(),
            size: 0,
            comms: HashMap::new(),
            shared: HashMap::new(),
            is_mpi: Vec::new(),
            since: None,
            settled: Instant::now(),
            played: replay.map(|replay| replay.processes.len()),
            clock_error: replay.map_or(0, |replay| replay.clock_error_ticks),
        }
    }

    pub fn is_off(&self) -> bool {
        matches!(self.state, State::Off)
    }

    /// Adopts the ranks, threads and communicators that are known now.
    pub fn look(&mut self, ingest: &Ingest, attributor: &mut Attributor) {
        let processes = ingest.processes.iter().enumerate().filter(|(_, process)| !process.is_sampled());
        // The only rank of a program waits for no other. It may become one of several: see `Process::has_new_rank`.
        let rank_of_several = |process: &Process| process.rank.filter(|(_, size)| *size > 1);
        let ranks: Vec<(usize, &Process, (u32, u32))> =
            processes.filter_map(|(at, process)| Some((at, process, rank_of_several(process)?))).collect();
        let has_communicators = ranks.iter().any(|(_, process, _)| !process.communicators.is_empty());
        let size = ranks.iter().map(|(.., (_, size))| *size).max().unwrap_or(0);
        if self.is_off() || !has_communicators || size < 2 {
            return;
        }
        if attributor.waiting.is_none() {
            let (comms, ticks) = (std::iter::empty(), attributor.ticks_per_second);
            let ranks = Ranks::new(Vec::new(), comms, self.clock_error, ticks);
            attributor.find_waits(ranks);
            self.since = Some(Instant::now());
        }
        self.size = self.size.max(size);
        let mut all = vec![Rank::default(); self.numbers.len()];
        let mut nodes: HashMap<&str, u32> = HashMap::new();
        for (at, process, (rank, _)) in &ranks {
            let next = self.numbers.len() as u32;
            let (number, of) = *self.numbers.entry(*rank).or_insert((next, *at));
            // Ranks of several programs cannot be distinguished.
            if of != *at || *rank >= size || size > RANKS_MAX {
                return self.stop(attributor);
            }
            all.resize(self.numbers.len(), Rank::default());
            let next = nodes.len() as u32;
            let node = *nodes.entry(&process.info.hostname).or_insert(next);
            all[number as usize] = Rank { node, ..rank_of(process, *rank, attributor) };
            for communicator in &process.communicators {
                if let Members::Shared { root, id, rank, .. } = communicator.members {
                    self.shared.entry((root, id)).or_default().insert(rank, number);
                }
            }
        }
        let Attributor { waiting, engine, .. } = attributor;
        if let Some(waiting) = waiting {
            waiting.set_ranks(all, engine);
        }
        let expected = ranks.iter().filter_map(|(_, process, _)| {
            let variable = |name: &str| variable(process.environment(), name).map(str::to_owned);
            local_rank_and_size(variable).map(|(_, size)| size)
        });
        let expected = expected.max().unwrap_or(self.size).min(self.size) as usize;
        if self.numbers.len() >= self.played.unwrap_or(expected) {
            self.pass_on(attributor);
        }
    }

    /// Stops, because ranks of several programs have the same numbers.
    fn stop(&mut self, attributor: &mut Attributor) {
        self.state = State::Off;
        if let Some(waiting) = &mut attributor.waiting {
            let locations = (0..attributor.locations.len() as u32).map(LocationIndex);
            locations.for_each(|location| {
                waiting.close(location, attributor.engine.last_change(location));
            });
            waiting.end(&mut attributor.engine);
        }
    }

    /// Passes on what is held: no further rank of this node is expected.
    fn pass_on(&mut self, attributor: &mut Attributor) {
        let State::Holding(held) = &mut self.state else { return };
        let held = std::mem::take(held);
        self.state = State::Passing;
        let Some(waiting) = &mut attributor.waiting else { return };
        self.number_of(Key::Ranks((0..self.size).collect()), waiting);
        for (key, number) in &self.comms {
            waiting.add_comm(*number, self.members(key));
        }
        for Held(location, time, event) in held {
            pass(waiting, location, time, event);
        }
    }

    fn members(&self, key: &Key) -> Comm {
        let here = |number: Option<u32>| number.unwrap_or(ELSEWHERE);
        let number = |rank: &u32| here(self.numbers.get(rank).map(|(number, _)| *number));
        match key {
            Key::Own => Comm::Own,
            Key::Ranks(ranks) => Comm::Members(ranks.iter().map(number).collect()),
            Key::Shared { root, id, size } => {
                let known = self.shared.get(&(*root, *id));
                let number = |rank: u32| here(known.and_then(|known| known.get(&rank)).copied());
                Comm::Members((0..*size).map(number).collect())
            }
        }
    }

    fn number_of(&mut self, key: Key, waiting: &mut Waiting) -> u32 {
        let next = self.comms.len() as u32;
        if let Some(number) = self.comms.get(&key) {
            return *number;
        }
        if matches!(self.state, State::Passing) {
            waiting.add_comm(next, self.members(&key));
        }
        self.comms.insert(key, next);
        next
    }

    /// Finds the communicator that a handle of a process stands for.
    pub fn learn_communicator(&mut self, process: &mut Process, handle: u32, attributor: &mut Attributor) {
        let size = process.rank.map_or(0, |(_, size)| size);
        let known = process.communicators.iter().rfind(|communicator| communicator.handle == handle);
        let key = known.map(|communicator| Key::of(&communicator.members, size));
        let is_known = |key: &Key| match key {
            Key::Own => true,
            // The numbers of processes of another MPI_COMM_WORLD are known only when the run has ended.
            Key::Ranks(ranks) => ranks.iter().all(|rank| *rank < self.size),
            Key::Shared { size, .. } => *size <= RANKS_MAX,
        };
        let key = key.filter(is_known);
        let waiting = attributor.waiting.as_deref_mut();
        let number = key.zip(waiting).map(|(key, waiting)| self.number_of(key, waiting));
        process.comms.insert(handle, number);
    }

    /// Returns where a location's events are passed on to; `None` if it is not known to belong to a rank.
    pub fn feeder<'a>(
        &'a mut self,
        location: LocationIndex,
        waiting: Option<&'a mut Waiting>,
        comms: &'a Comms,
    ) -> Option<Feeder<'a>> {
        let waiting = waiting.filter(|waiting| waiting.knows(location))?;
        let held = match &mut self.state {
            State::Off => return None,
            State::Holding(held) => Some(held),
            State::Passing => None,
        };
        Some(Feeder { location, waiting, held, is_mpi: &self.is_mpi, comms, last: Cell::new(None) })
    }

    /// Adds the new regions.
    pub fn add_regions(&mut self, attributor: &mut Attributor) {
        let Some(waiting) = &mut attributor.waiting else { return };
        for (at, region) in attributor.regions.all().iter().enumerate().skip(self.is_mpi.len()) {
            self.is_mpi.push(i32::from(region.paradigm) == paradigm::MPI || is_mpi(&region.name));
            waiting.add_region(RegionRef(at as u32), &region.name);
        }
    }

    /// Settles waits. Everything before `done_until` has been handed to the engine.
    pub fn settle(&mut self, attributor: &mut Attributor, done_until: Timestamp) {
        if let State::Holding(held) = &self.state {
            let waits_long = self.since.is_some_and(|since| since.elapsed() > RANKS_WAIT_MAX);
            if !waits_long && held.len() <= HELD_MAX {
                return;
            }
            self.pass_on(attributor);
        }
        let is_due = self.settled.elapsed() >= SETTLE_PERIOD;
        if is_due {
            self.settled = Instant::now();
        }
        attributor.settle_waits(done_until, is_due);
    }

    /// Settles all waits: no event follows.
    pub fn end(&mut self, attributor: &mut Attributor) {
        self.pass_on(attributor);
        attributor.end_waits();
    }
}

fn rank_of(process: &Process, rank: u32, attributor: &Attributor) -> Rank {
    let threads = process.locations.iter().filter(|at| at.definition.kind == LocationKind::CpuThread);
    let main = threads.clone().find(|location| location.definition.id.0 == 0);
    let locations: Vec<LocationIndex> = threads.filter_map(|location| location.index).collect();
    Rank {
        main: main.and_then(|main| main.index),
        has_samples: locations.iter().any(|location| attributor.has_samples(*location)),
        locations,
        number: Some(rank),
        node: 0,
    }
}

/// Passes an event to the waiting analysis. Inlined so that an event that is not held is passed on without being stored first.
#[inline(always)]
fn pass(waiting: &mut Waiting, location: LocationIndex, time: Timestamp, event: Event) {
    match event {
        Event::Enter(region, is_mpi) => waiting.enter(location, time, region, is_mpi),
        Event::Leave => waiting.leave(location, time),
        Event::Communication(operation) => waiting.communicate(location, time, operation),
    }
}

/// Passes on the events of one location.
pub(crate) struct Feeder<'a> {
    location: LocationIndex,
    waiting: &'a mut Waiting,
    held: Option<&'a mut Vec<Held>>,
    is_mpi: &'a [bool],
    comms: &'a Comms,
    /// The last handle of a communicator, and what it stands for.
    last: Cell<Option<(u32, Option<u32>)>>,
}

impl Feeder<'_> {
    #[inline(always)]
    fn put(&mut self, time: Timestamp, event: Event) {
        match &mut self.held {
            Some(held) => held.push(Held(self.location, time, event)),
            None => pass(self.waiting, self.location, time, event),
        }
    }

    #[inline]
    pub fn enter(&mut self, time: Timestamp, region: RegionRef) {
        let is_mpi = self.is_mpi.get(region.0 as usize).copied().unwrap_or_default();
        self.put(time, Event::Enter(region, is_mpi));
    }

    #[inline]
    pub fn leave(&mut self, time: Timestamp) {
        self.put(time, Event::Leave);
    }

    /// Processes an event of communication. Returns `false` if its communicator must be looked up first.
    #[inline]
    pub fn communicate(&mut self, time: Timestamp, event: Communication) -> bool {
        let is_new = Cell::new(false);
        let operation = operation_of_record(event, |handle| {
            // Most events are in the communicator of the previous one.
            let last = self.last.get().filter(|(last, _)| *last == handle);
            let known = last.or_else(|| self.comms.get(&handle).map(|comm| (handle, *comm)));
            self.last.set(known);
            is_new.set(is_new.get() || known.is_none());
            known?.1
        });
        if let Some(operation) = operation {
            self.put(time, Event::Communication(operation));
        }
        !is_new.get()
    }
}
