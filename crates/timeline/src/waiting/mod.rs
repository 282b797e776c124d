//! Finds the energy that ranks use while they wait for each other in MPI, and the call paths that caused the waits.
//!
//! A *wait* is the time from the enter of an MPI call until another rank arrives: until it starts to send what is received
//! here, to receive what is sent here, or to take part in the collective operation. Its joules are those that the frame was
//! charged in that time. They are divided among the call paths that the late rank was in, in proportion to time. Where the late
//! rank itself waited, its share of the joules is passed on to the rank that it waited for.
//!
//! ```text
//! mod.rs          takes the events of all locations, and settles waits once everything about them is known
//! ranks.rs        ranks, communicators and operations
//! frames.rs       the calls that may have waited, and which of the partners of each came last
//! matching.rs     messages and collective operations, matched in the order of each channel
//! causes.rs       the call paths that caused a wait
//! figures.rs      the results
//! tests.rs        tests
//! ```
//!
//! Memory is bounded: the engine's history is kept only as long as an MPI call is open or a match is missing. If it becomes too
//! long ([`HISTORY_LONG`]), it is shortened: between the times at which waits in such calls may start or end, only sums are
//! kept. If that does not help ([`HISTORY_MAX`]), the start of these calls is moved to a later time; if too many messages wait
//! for their other side ([`matching::WAITING_MAX`]), the oldest ones are given up. Both are counted.

mod causes;
mod figures;
mod frames;
mod matching;
mod ranks;
#[cfg(test)]
mod tests;

pub use figures::{ByKind, ByPath, Counts, Kind, Span, ViewWaits};
pub use ranks::{CollectiveKind, Comm, ELSEWHERE, GROUPS_MAX, Message, Operation, Rank, Ranks, Root};

use ampere_attribution::{Engine, Hint, LocationIndex, NodeIndex, Stay, ViewIndex};
use ampere_model::{RegionRef, Timestamp};
use figures::{Figures, Found};
use frames::{Frames, Place};
use matching::{Collectives, Messages};

/// Waits are settled when the engine's history and the waits have at least this length.
const HISTORY_MIN: usize = 1 << 13;
/// A longer history is shortened.
const HISTORY_LONG: usize = 1 << 18;
/// If the history is longer, the start of calls is moved.
const HISTORY_MAX: usize = 1 << 22;

/// A rank's wait for another one.
#[derive(Clone, Copy, Debug)]
struct Wait {
    start: Timestamp,
    end: Timestamp,
    kind: Kind,
    /// The rank that came late.
    late: u32,
    region: RegionRef,
    /// Whether the frame has called other frames.
    has_inner: bool,
    /// The call path of the frame, once the engine has reached it.
    node: Option<NodeIndex>,
    /// The latest end among this wait and all that start before it on its location, once the waits are in order.
    latest_end: Timestamp,
    is_settled: bool,
}

#[derive(Default)]
struct LocationWaits {
    /// The waits. The first `in_order` of them are sorted by their starts.
    all: Vec<Wait>,
    in_order: usize,
    hint: Hint,
}

impl LocationWaits {
    fn put_in_order(&mut self) {
        if self.in_order == self.all.len() {
            return;
        }
        self.in_order = self.all.len();
        self.all.sort_by_key(|wait| wait.start);
        let mut latest_end = 0;
        for wait in &mut self.all {
            latest_end = wait.end.max(latest_end);
            wait.latest_end = latest_end;
        }
    }

    /// Removes the waits that are not to be kept.
    fn retain(&mut self, is_kept: impl FnMut(&Wait) -> bool) {
        self.all.retain(is_kept);
        self.in_order = self.all.len();
    }
}

/// Finds the waits of a run.
pub struct Waiting {
    ranks: Ranks,
    frames: Frames,
    messages: Messages,
    collectives: Collectives,
    /// The waits of each location.
    waits: Vec<LocationWaits>,
    figures: Figures,
    /// Whether each region waits for a message without receiving it.
    probes: Vec<bool>,
    /// See [`HISTORY_MIN`], [`HISTORY_LONG`] and [`HISTORY_MAX`].
    history_min: usize,
    history_long: usize,
    history_max: usize,
}

impl Waiting {
    /// Makes the state for ranks without events, and lets the engine record their moves.
    pub fn new(ranks: Ranks, engine: &mut Engine) -> Waiting {
        ranks.locations().for_each(|location| engine.record_moves(location));
        Waiting {
            frames: Frames::new(ranks.tolerance()),
            ranks,
            messages: Messages::default(),
            collectives: Collectives::default(),
            waits: Vec::new(),
            figures: Figures::default(),
            probes: Vec::new(),
            history_min: HISTORY_MIN,
            history_long: HISTORY_LONG,
            history_max: HISTORY_MAX,
        }
    }

    /// Replaces the ranks of a running job by a longer list, and lets the engine record their moves. Ranks that are known already
    /// keep their numbers.
    pub fn set_ranks(&mut self, all: Vec<Rank>, engine: &mut Engine) {
        self.ranks.set(all);
        self.ranks.locations().for_each(|location| engine.record_moves(location));
    }

    /// Adds a communicator of a running job. The first one has all ranks.
    pub fn add_comm(&mut self, number: u32, comm: Comm) {
        self.ranks.add_comm(number, comm);
    }

    /// Whether a location belongs to a rank.
    #[inline]
    pub fn knows(&self, location: LocationIndex) -> bool {
        self.ranks.of(location).is_some()
    }

    /// Whether some ranks are on other nodes. Messages to these are unmatched, and they are not waited for in collective
    /// operations.
    pub fn is_part(&self) -> bool {
        self.ranks.has_members_elsewhere()
    }

    /// Adds a region. If it is `MPI_Probe` or `MPI_Mprobe`, it waits for a message that a later call receives.
    pub fn add_region(&mut self, region: RegionRef, name: &str) {
        let name = name.to_ascii_lowercase();
        let name = name.trim_end_matches('_').trim_end_matches("_f08ts").trim_end_matches("_f08");
        if ["mpi_probe", "mpi_mprobe"].contains(&name) {
            let at = region.0 as usize;
            self.probes.resize(self.probes.len().max(at + 1), false);
            self.probes[at] = true;
        }
    }

    /// Processes the enter of a location into a region. `is_mpi`: the region is a function of MPI. All events of a location
    /// come in order.
    #[inline]
    pub fn enter(&mut self, location: LocationIndex, time: Timestamp, region: RegionRef, is_mpi: bool) {
        let is_probe = self.probes.get(region.0 as usize).copied().unwrap_or_default();
        self.frames.enter(location, time, region, [is_mpi, is_probe]);
    }

    /// Processes the leave of a location's innermost frame.
    #[inline]
    pub fn leave(&mut self, location: LocationIndex, time: Timestamp) {
        if self.frames.is_probe(location)
            && let Some(rank) = self.ranks.of(location)
        {
            let place = Place { location, rank };
            self.messages.end_probe(&mut self.frames, place, time);
            self.resolve_decided();
        }
        if let Some(frame) = self.frames.leave(location, time) {
            self.resolve(frame);
        }
    }

    /// Processes the leaves of all open frames of a location.
    pub fn close(&mut self, location: LocationIndex, time: Timestamp) {
        while self.frames.is_open(location) {
            self.leave(location, time);
        }
    }

    /// Processes an event of communication of a location, which is in its innermost frame.
    pub fn communicate(&mut self, location: LocationIndex, time: Timestamp, operation: Operation) {
        let Some(rank) = self.ranks.of(location) else { return };
        let Waiting { ranks, frames, messages, collectives, .. } = self;
        let place = Place { location, rank };
        messages.release(frames, time);
        match operation {
            Operation::Send(message) => messages.send(ranks, frames, place, time, message),
            Operation::Receive(message) => messages.receive(ranks, frames, place, time, message),
            Operation::ReceiveRequest(request) => {
                messages.post(location, request, frames.entry(location, time));
            }
            Operation::SendEnd(request) => messages.end_send(frames, location, request),
            Operation::Cancelled(request) => messages.cancel(frames, place, request),
            Operation::CollectiveRequest(request) => {
                collectives.post(location, request, frames.entry(location, time));
            }
            Operation::Collective { comm, operation, kind, root, request } => {
                let what = (operation, kind, root);
                collectives.arrive(ranks, frames, place, time, (comm, what, request));
            }
        }
        self.resolve_decided();
    }

    fn resolve_decided(&mut self) {
        while let Some(frame) = self.frames.next_decided() {
            self.resolve(frame);
        }
    }

    /// Processes the wait of a frame about which everything is known.
    fn resolve(&mut self, frame: frames::Id) {
        let Some((location, wait)) = self.frames.take_wait(frame, |rank| self.ranks.node(rank)) else {
            return;
        };
        let at = location.0 as usize;
        self.waits.resize_with(self.waits.len().max(at + 1), LocationWaits::default);
        self.waits[at].all.push(wait);
    }

    /// Settles the waits about which everything is known, if enough has happened since the last time. The engine has been
    /// handed everything before `until`; `views` are those whose prices are recorded.
    pub fn settle(&mut self, engine: &mut Engine, views: impl Iterator<Item = ViewIndex>, until: Timestamp) {
        if self.kept(engine) >= self.figures.settle_at.max(self.history_min) {
            self.settle_now(engine, views, until);
        }
    }

    /// Settles all waits about which everything is known.
    pub fn settle_now(
        &mut self,
        engine: &mut Engine,
        views: impl Iterator<Item = ViewIndex>,
        until: Timestamp,
    ) {
        self.messages.release(&mut self.frames, until);
        self.frames.release_sends(&self.ranks, &self.messages, until);
        self.messages.limit(&mut self.frames);
        self.resolve_decided();
        let priced = views.filter_map(|view| Some(engine.last_sample(view)?.0));
        let priced_until = priced.min().unwrap_or(Timestamp::MAX);
        self.settle_before(engine, until, priced_until);
        self.forget(engine, until);
        if self.kept(engine) > self.history_long {
            self.messages.forget_probes(&mut self.frames);
            self.resolve_decided();
            self.shorten(engine, until, priced_until);
        }
        if self.kept(engine) > self.history_max {
            self.cut(engine, until);
        }
        // Each settling visits all slots and locations, so with more slots it is done less often.
        self.figures.settle_at = 2 * self.kept(engine) + self.frames.slots();
    }

    /// Returns the length of the engine's history, and the number of waits.
    fn kept(&self, engine: &Engine) -> usize {
        engine.history_kept() + self.waits.iter().map(|waits| waits.all.len()).sum::<usize>()
    }

    /// Settles all waits: no event and no sample follows.
    pub fn end(&mut self, engine: &mut Engine) {
        self.messages.end(&mut self.frames);
        for frame in self.frames.end() {
            self.resolve(frame);
        }
        self.settle_before(engine, Timestamp::MAX, Timestamp::MAX);
    }

    /// Settles the waits that end before all of these times and before any call about which something is not known yet.
    fn settle_before(&mut self, engine: &Engine, until: Timestamp, priced_until: Timestamp) {
        for (location, waits) in self.waits.iter_mut().enumerate() {
            let location = LocationIndex(location as u32);
            waits.put_in_order();
            for wait in waits.all.iter_mut().filter(|wait| wait.node.is_none() && wait.start < until) {
                wait.node = engine.entered(location, wait.start, wait.region);
            }
        }
        let limit = until.min(priced_until).min(self.frames.undecided_since());
        let mut found = std::mem::take(&mut self.figures.found);
        for location in 0..self.waits.len() {
            for at in 0..self.waits[location].all.len() {
                let wait = &mut self.waits[location].all[at];
                if !wait.is_settled && wait.end <= limit {
                    wait.is_settled = true;
                    let wait = *wait;
                    self.settle_wait(engine, LocationIndex(location as u32), wait, &mut found);
                }
            }
        }
        self.figures.found = found;
    }

    /// Charges a wait, and its causes.
    fn settle_wait(&mut self, engine: &Engine, location: LocationIndex, wait: Wait, found: &mut Found) {
        if wait.node.is_none() && !self.ranks.has_samples(location) {
            self.figures.counts.forgotten_waits += 1;
            return;
        }
        self.find_causes(engine, location, wait, found);
        if found.causes.is_empty() {
            return;
        }
        let only = wait.node.filter(|_| !wait.has_inner && !self.ranks.has_samples(location));
        for (view, consumer) in engine.priced_views(location) {
            let mut add = |stay: Stay| {
                let joules = engine.joules_during(view, consumer, location, stay.start, stay.end);
                found.own.push((stay, joules));
            };
            match only {
                Some(node) => add(Stay { start: wait.start, end: wait.end, node }),
                None => engine.each_stay(location, wait.start, wait.end, |stay| {
                    if self.is_in_frame(engine, location, stay.node, &wait) {
                        add(stay);
                    }
                }),
            }
            self.charge(view, location, wait.kind, found);
            found.own.clear();
        }
    }

    /// Charges what was found about a wait in a view.
    fn charge(&mut self, view: ViewIndex, location: LocationIndex, kind: Kind, found: &Found) {
        let all = found.ticks as f64;
        let joules: f64 = found.own.iter().map(|(_, joules)| joules).sum();
        let group = self.ranks.group(location);
        if let Some(spans) = &mut self.figures.spans {
            spans.extend(found.own.iter().map(|(stay, joules)| {
                let Stay { start, end, .. } = *stay;
                Span { location, view, kind, start, end, joules: *joules }
            }));
        }
        let view = self.figures.of_mut(view);
        for (stay, joules) in &found.own {
            view.waited.add((location, stay.node), kind, *joules);
        }
        view.not_on_cpu += joules * (found.not_on_cpu / all);
        for (cause, ticks) in &found.causes {
            let part = joules * (*ticks as f64 / all);
            view.caused.add(*cause, kind, part);
            if let (Some(waiting), Some(cause)) = (group, self.ranks.group(cause.0)) {
                view.add_pair(waiting, cause, part);
            }
        }
    }

    /// Whether a location that is in this call path is in the frame of the wait itself, and not in one that the frame has called.
    /// If stacks are sampled, the call path of a frame may change; then its region counts.
    fn is_in_frame(&self, engine: &Engine, location: LocationIndex, node: NodeIndex, wait: &Wait) -> bool {
        let has_region = || engine.caller_of(location, node).1 == wait.region;
        wait.node == Some(node) || (self.ranks.has_samples(location) && !node.is_root() && has_region())
    }

    /// Forgets the history that no wait needs any more.
    fn forget(&mut self, engine: &mut Engine, until: Timestamp) {
        let unsettled = self.waits.iter().flat_map(|waits| &waits.all).filter(|wait| !wait.is_settled);
        let first = unsettled.map(|wait| wait.start).min().unwrap_or(Timestamp::MAX);
        let needed = first.min(self.frames.undecided_since()).min(until);
        for waits in &mut self.waits {
            waits.retain(|wait| !wait.is_settled || wait.end > needed);
        }
        engine.forget_before(needed);
    }

    /// Shortens the engine's history without changing the figures of waits that are not settled: it is not merged across times
    /// at which waits may start or end, nor across a location's own waits.
    fn shorten(&self, engine: &mut Engine, until: Timestamp, priced_until: Timestamp) {
        let unsettled = self.waits.iter().flat_map(|waits| &waits.all).filter(|wait| !wait.is_settled);
        let mut common: Vec<Timestamp> = unsettled.flat_map(|wait| [wait.start, wait.end]).collect();
        common.extend(self.frames.undecided_enters());
        common.extend(self.messages.entries().chain(self.collectives.entries()));
        common.push(until);
        common.sort_unstable();
        common.dedup();
        let until = until.min(priced_until);
        let priced = common.iter().copied().take_while(|time| *time < until);
        engine.shorten_prices(&priced.chain([until]).collect::<Vec<_>>());
        for location in self.ranks.locations() {
            let own = self.waits.get(location.0 as usize).into_iter().flat_map(|waits| &waits.all);
            let mut cuts: Vec<Timestamp> =
                own.flat_map(|wait| [wait.start, wait.end]).chain(common.iter().copied()).collect();
            cuts.sort_unstable();
            cuts.dedup();
            engine.shorten_moves(location, &cuts);
        }
    }

    /// Moves the start of the calls that need the oldest history to a later time, halfway to `until`.
    fn cut(&mut self, engine: &mut Engine, until: Timestamp) {
        let since = self.frames.undecided_since().min(until);
        let cut = since + (until - since) / 2;
        self.figures.counts.cut_calls += self.frames.cut(cut);
        self.resolve_decided();
        self.settle_before(engine, until, until);
        self.forget(engine, until);
    }

    /// Returns the waits of a view's device.
    pub fn of_view(&self, view: ViewIndex) -> Option<&ViewWaits> {
        self.figures.of(view)
    }

    /// Records the time of the waits.
    pub(crate) fn record_spans(&mut self) {
        self.figures.spans.get_or_insert_default();
    }

    /// Returns the waits that were settled since the last time; none unless they are recorded.
    pub fn take_spans(&mut self) -> Vec<Span> {
        self.figures.spans.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the locations of each group of ranks in [`ViewWaits::pairs`], one of each rank.
    pub fn groups(&self) -> impl Iterator<Item = Vec<LocationIndex>> + '_ {
        self.ranks.groups()
    }

    /// Returns the numbers of matched and unmatched messages, and of inexact calls and waits.
    pub fn counts(&self) -> Counts {
        let mut counts = self.figures.counts;
        self.messages.count(&mut counts);
        counts
    }
}
