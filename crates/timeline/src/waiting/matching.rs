//! Matches the two sides of messages, and the members' parts of collective operations, in the order of each channel.

use super::figures::{Counts, Kind};
use super::frames::{Arrival, Frames, Id, Place};
use super::ranks::{CollectiveKind, Message, Ranks, Root};
use ampere_attribution::LocationIndex;
use ampere_model::Timestamp;
use ampere_model::numbers::NumberMap;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// The maximum number of sides of messages that wait for the other side, and of members' parts of collective operations that wait
/// for other members.
pub(super) const WAITING_MAX: usize = 1 << 20;
/// The maximum number of channels without a waiting message that are kept.
const CHANNELS_MAX: usize = 1 << 16;

/// A frame and the number of the event in it.
type Event = Option<(Id, u32)>;

/// The messages from one rank to another that cannot overtake each other.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Channel {
    comm: u32,
    sender: u32,
    receiver: u32,
    tag: u32,
}

impl Hash for Channel {
    #[inline]
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        hasher.write_u64(pair(self.comm, self.tag));
        hasher.write_u64(pair(self.sender, self.receiver));
    }
}

#[derive(Clone, Copy)]
struct Send {
    /// The enter of the call that starts the send.
    entry: Timestamp,
    /// The call that may wait for the receive.
    event: Event,
    /// The request, if the send is non-blocking.
    request: Option<u64>,
    /// Whether the send may still be cancelled. If it is, the waiting receive belongs to a later send.
    may_be_cancelled: bool,
}

#[derive(Clone, Copy)]
struct Receive {
    /// The enter of the call that starts the receive; `None` if that is not known.
    entry: Option<Timestamp>,
    /// The call that may wait for the send.
    event: Event,
    /// The call before the receive that may have waited for the receive's message.
    probe: Event,
}

/// The sides of messages that wait in a channel. Sends and receives wait at the same time only if the first send may still be
/// cancelled.
#[derive(Default)]
struct Queue {
    sends: VecDeque<Send>,
    receives: VecDeque<Receive>,
    /// The number of sends that were given up and whose receives have not come yet.
    given_up_sends: u64,
    /// The number of receives that were given up and whose sends have not come yet.
    given_up_receives: u64,
    /// The time at which the latest of the receives so far was started.
    last_start: Timestamp,
}

impl Queue {
    /// Returns the times at which the operations started, as far as they are known.
    fn entries(&self) -> impl Iterator<Item = Option<Timestamp>> + '_ {
        let sends = self.sends.iter().map(|send| Some(send.entry));
        sends.chain(self.receives.iter().map(|receive| receive.entry))
    }

    /// Gives up the operations that started up to `cut`.
    fn give_up(&mut self, frames: &mut Frames, cut: Timestamp) {
        let sends = self.sends.partition_point(|send| send.entry <= cut);
        let receives = self.receives.partition_point(|receive| receive.entry.unwrap_or(0) <= cut);
        let events = self.sends.drain(..sends).map(|send| [send.event, None]);
        let given_up =
            events.chain(self.receives.drain(..receives).map(|receive| [receive.event, receive.probe]));
        given_up.flatten().for_each(|event| _ = frames.decide(event, None));
        self.given_up_sends += sends as u64;
        self.given_up_receives += receives as u64;
    }

    fn is_empty(&self) -> bool {
        self.sends.is_empty()
            && self.receives.is_empty()
            && self.given_up_sends == 0
            && self.given_up_receives == 0
    }
}

/// The enter times of operations that have been started and are not completed, by location and request.
#[derive(Default)]
struct Started(NumberMap<(LocationIndex, u64), Timestamp>);

impl Started {
    fn add(&mut self, location: LocationIndex, request: u64, entry: Timestamp) {
        if self.0.len() < WAITING_MAX {
            self.0.insert((location, request), entry);
        }
    }

    fn remove(&mut self, location: LocationIndex, request: u64) -> Option<Timestamp> {
        self.0.remove(&(location, request))
    }
}

/// The messages of a run.
#[derive(Default)]
pub(super) struct Messages {
    queues: NumberMap<Channel, Queue>,
    /// The receives that have been started and are not completed.
    started: Started,
    /// The channels of sends that may still be cancelled, by location and request.
    cancellable: NumberMap<(LocationIndex, u64), Channel>,
    /// Channels whose first send is non-blocking and was received at `held_at`: an event of the same time may still cancel it.
    held: Vec<Channel>,
    held_at: Timestamp,
    /// The last call of each location that waited for a message without receiving it, and its end.
    probes: NumberMap<LocationIndex, (Event, Timestamp)>,
    waiting: usize,
    matched: u64,
    unmatched: u64,
    reordered: u64,
}

impl Messages {
    /// Processes the start of a receive.
    pub fn post(&mut self, location: LocationIndex, request: u64, entry: Timestamp) {
        self.started.add(location, request, entry);
    }

    pub fn send(
        &mut self,
        ranks: &Ranks,
        frames: &mut Frames,
        place: Place,
        time: Timestamp,
        message: Message,
    ) {
        let Some(receiver) = ranks.peer(place.rank, message.comm, message.peer) else {
            self.unmatched += 1;
            return;
        };
        let entry = frames.entry(place.location, time);
        let is_blocking = message.request.is_none();
        let event = if is_blocking { frames.add(place, Some(receiver)) } else { None };
        let channel = Channel { comm: message.comm, sender: place.rank, receiver, tag: message.tag };
        // Nearly always the channel is known, and then `entry` would take twice as long.
        let queue = match self.queues.get_mut(&channel) {
            Some(queue) => queue,
            None => self.queues.entry(channel).or_default(),
        };
        if queue.given_up_receives > 0 {
            queue.given_up_receives -= 1;
            frames.decide(event, None);
            return;
        }
        // A receive that already waits may belong to a later send.
        let may_be_cancelled = !is_blocking && !queue.receives.is_empty();
        queue.sends.push_back(Send { entry, event, request: message.request, may_be_cancelled });
        self.waiting += 1;
        match message.request.filter(|_| may_be_cancelled) {
            Some(request) => {
                self.cancellable.insert((place.location, request), channel);
            }
            None if queue.receives.is_empty() => {}
            None => pair_up(queue, frames, channel, &mut self.waiting, &mut self.matched),
        }
    }

    /// Processes the end of a location's non-blocking send, which shows that the send was not cancelled.
    pub fn end_send(&mut self, frames: &mut Frames, location: LocationIndex, request: u64) {
        let Some(channel) = self.cancellable.remove(&(location, request)) else { return };
        let sends = self.queues.get_mut(&channel).map(|queue| &mut queue.sends);
        let send = sends.and_then(|sends| sends.iter_mut().find(|send| send.request == Some(request)));
        send.into_iter().for_each(|send| send.may_be_cancelled = false);
        self.pair_up(frames, channel);
    }

    pub fn receive(
        &mut self,
        ranks: &Ranks,
        frames: &mut Frames,
        place: Place,
        time: Timestamp,
        message: Message,
    ) {
        let entry = match message.request {
            Some(request) => self.started.remove(place.location, request),
            None => Some(frames.entry(place.location, time)),
        };
        let Some(sender) = ranks.peer(place.rank, message.comm, message.peer) else {
            self.unmatched += 1;
            return;
        };
        let probe = self.probe_before(place.location, entry);
        let channel = Channel { comm: message.comm, sender, receiver: place.rank, tag: message.tag };
        let queue = match self.queues.get_mut(&channel) {
            Some(queue) => queue,
            None => self.queues.entry(channel).or_default(),
        };
        if queue.given_up_sends > 0 {
            queue.given_up_sends -= 1;
            frames.decide(probe, None);
            return;
        }
        let start = entry.unwrap_or(queue.last_start);
        self.reordered += u64::from(start < queue.last_start);
        queue.last_start = queue.last_start.max(start);
        let first = queue.sends.front().copied();
        if let Some(send) = first.filter(|send| send.request.is_none() && queue.receives.is_empty()) {
            queue.sends.pop_front();
            self.waiting -= 1;
            self.matched += 1;
            let has_waited = frames.add_decided(place, channel.sent(&send));
            channel.decide(frames, &send, entry, probe, has_waited);
            return;
        }
        queue.receives.push_back(Receive { entry, event: frames.add(place, None), probe });
        self.waiting += 1;
        if first.is_some_and(|send| send.request.is_some()) {
            self.held_at = time;
            self.held.push(channel);
        } else {
            pair_up(queue, frames, channel, &mut self.waiting, &mut self.matched);
        }
    }

    /// Processes the end of a call that may have waited for a message. The next receive of its location takes this message.
    pub fn end_probe(&mut self, frames: &mut Frames, place: Place, time: Timestamp) {
        let event = frames.add(place, None);
        if let Some((before, _)) = self.probes.insert(place.location, (event, time)) {
            frames.decide(before, None);
        }
    }

    /// Returns the call that may have waited for the message of a receive, which started at `entry`.
    fn probe_before(&mut self, location: LocationIndex, entry: Option<Timestamp>) -> Event {
        if self.probes.is_empty() || self.probes.get(&location)?.1 > entry? {
            return None;
        }
        self.probes.remove(&location)?.0
    }

    /// Stops waiting for the receives that follow probes.
    pub fn forget_probes(&mut self, frames: &mut Frames) {
        self.probes.drain().for_each(|(_, (event, _))| {
            frames.decide(event, None);
        });
    }

    /// Matches the messages that were held before `time`.
    #[inline]
    pub fn release(&mut self, frames: &mut Frames, time: Timestamp) {
        if time > self.held_at {
            while let Some(channel) = self.held.pop() {
                self.pair_up(frames, channel);
            }
        }
    }

    /// Matches the sends and receives of a channel that are known.
    fn pair_up(&mut self, frames: &mut Frames, channel: Channel) {
        if let Some(queue) = self.queues.get_mut(&channel) {
            pair_up(queue, frames, channel, &mut self.waiting, &mut self.matched);
        }
    }

    /// Processes the cancellation of a location's request: if that is a send, there is no such message.
    pub fn cancel(&mut self, frames: &mut Frames, place: Place, request: u64) {
        self.started.remove(place.location, request);
        self.cancellable.remove(&(place.location, request));
        let mut cancelled_in = None;
        for (channel, queue) in &mut self.queues {
            let is_cancelled = |send: &Send| channel.sender == place.rank && send.request == Some(request);
            if let Some(at) = queue.sends.iter().rposition(is_cancelled) {
                let cancelled = queue.sends.remove(at);
                self.waiting -= 1;
                frames.decide(cancelled.and_then(|send| send.event), None);
                cancelled_in = Some(*channel);
                break;
            }
        }
        cancelled_in.into_iter().for_each(|channel| self.pair_up(frames, channel));
    }

    /// Returns the enter times of the receives of each rank that have been started and are not completed.
    pub fn open_receives(&self, ranks: &Ranks) -> Vec<Vec<Timestamp>> {
        let mut all = vec![Vec::new(); ranks.count()];
        for ((location, _), entry) in &self.started.0 {
            if let Some(rank) = ranks.of(*location) {
                all[rank as usize].push(*entry);
            }
        }
        all
    }

    /// Returns the times at which operations started that are not matched.
    pub fn entries(&self) -> impl Iterator<Item = Timestamp> + '_ {
        self.queues.values().flat_map(Queue::entries).flatten().chain(self.started.0.values().copied())
    }

    /// Gives up the oldest messages if there are too many.
    pub fn limit(&mut self, frames: &mut Frames) {
        if self.waiting > WAITING_MAX {
            let all = self.queues.values().flat_map(Queue::entries);
            let mut entries: Vec<Timestamp> = all.map(Option::unwrap_or_default).collect();
            let middle = entries.len() / 2;
            let cut = *entries.select_nth_unstable(middle).1;
            for queue in self.queues.values_mut() {
                queue.give_up(frames, cut);
            }
            let left: usize =
                self.queues.values().map(|queue| queue.sends.len() + queue.receives.len()).sum();
            self.unmatched += (self.waiting - left) as u64;
            self.waiting = left;
        }
        if self.queues.len() > CHANNELS_MAX {
            self.queues.retain(|_, queue| !queue.is_empty());
        }
    }

    /// Counts the unmatched messages, because no further message follows.
    pub fn end(&mut self, frames: &mut Frames) {
        self.release(frames, Timestamp::MAX);
        let open: Vec<(LocationIndex, u64)> = self.cancellable.keys().copied().collect();
        open.into_iter().for_each(|(location, request)| self.end_send(frames, location, request));
        self.unmatched += std::mem::take(&mut self.waiting) as u64;
        self.queues.clear();
    }

    /// Sets the numbers of messages of which both sides or only one side is known, and of receives that were completed after
    /// one of the same channel that was started later.
    pub fn count(&self, counts: &mut Counts) {
        counts.matched_messages = self.matched;
        counts.unmatched_messages = self.unmatched;
        counts.reordered_receives = self.reordered;
    }
}

/// Matches the sends and receives of a channel that are known.
fn pair_up(queue: &mut Queue, frames: &mut Frames, channel: Channel, waiting: &mut usize, matched: &mut u64) {
    while let (Some(send), Some(receive)) = (queue.sends.front().copied(), queue.receives.front().copied())
        && !send.may_be_cancelled
    {
        queue.sends.pop_front();
        queue.receives.pop_front();
        let Receive { entry, event, probe } = receive;
        *waiting -= 2;
        *matched += 1;
        let has_waited = frames.decide(event, channel.sent(&send));
        channel.decide(frames, &send, entry, probe, has_waited);
    }
}

impl Channel {
    /// Returns the arrival of a send at its receive.
    fn sent(&self, send: &Send) -> Option<Arrival> {
        Some(Arrival { time: send.entry, rank: self.sender, kind: Kind::LateSender })
    }

    /// Decides, for a send and a receive that was started at `entry`, whether the send and the call before the receive have
    /// waited. `has_waited`: the call that completes the receive has waited.
    fn decide(
        &self,
        frames: &mut Frames,
        send: &Send,
        entry: Option<Timestamp>,
        probe: Event,
        has_waited: bool,
    ) {
        frames.decide(probe, self.sent(send).filter(|_| !has_waited));
        let receive = entry.map(|time| Arrival { time, rank: self.receiver, kind: Kind::LateReceiver });
        frames.decide(send.event, receive);
    }
}

/// A member's part of a collective operation.
#[derive(Clone, Copy)]
struct Part {
    arrival: Timestamp,
    event: Event,
    /// Whether the member has nothing to do in the operation.
    is_idle: bool,
}

/// A collective operation: its number, who waits for whom, and its root.
type Collective = (u8, CollectiveKind, Root);

/// A collective operation in which some members have not taken part yet.
struct Instance {
    /// The operation's number, and who waits for whom.
    what: (u8, CollectiveKind),
    /// The index of the root, once a member has named the root; no index if there is no root, or if the root is on another
    /// node.
    root: Option<Option<u32>>,
    /// Whether all members report the same operation and root.
    is_consistent: bool,
    arrived: usize,
    parts: Vec<Option<Part>>,
}

/// The operations of a communicator, in order.
#[derive(Default)]
struct Sequence {
    /// The number of operations of each member.
    counts: Vec<u64>,
    /// The number of the first instance.
    first: u64,
    instances: VecDeque<Instance>,
}

/// The collective operations of a run.
#[derive(Default)]
pub(super) struct Collectives {
    /// The blocking and the non-blocking operations of each communicator.
    sequences: NumberMap<(u32, u8), Sequence>,
    /// The non-blocking operations that have been started and are not completed.
    started: Started,
    waiting: usize,
}

impl Collectives {
    /// Processes the start of a non-blocking operation.
    pub fn post(&mut self, location: LocationIndex, request: u64, entry: Timestamp) {
        self.started.add(location, request, entry);
    }

    /// Processes a rank's part in its next operation on a communicator.
    pub fn arrive(
        &mut self,
        ranks: &Ranks,
        frames: &mut Frames,
        place: Place,
        time: Timestamp,
        (comm, what, request): (u32, Collective, Option<u64>),
    ) {
        let started = request.and_then(|request| self.started.remove(place.location, request));
        let (Some(members), Some(number)) = (ranks.members(comm), ranks.place(comm, place.rank)) else {
            return;
        };
        let arrival = started.unwrap_or_else(|| frames.entry(place.location, time));
        let (operation, kind, root) = what;
        let place_of = |root| ranks.place(comm, ranks.peer(place.rank, comm, root)?);
        let root = match root {
            Root::None => Some(None),
            Root::Rank(root) => Some(place_of(root)),
            Root::ThisGroup => None,
        };
        let sequence = self.sequences.entry((comm, u8::from(request.is_some()))).or_default();
        sequence.counts.resize(members.len(), 0);
        let count = &mut sequence.counts[number as usize];
        *count += 1;
        let Some(at) = (*count - 1).checked_sub(sequence.first) else { return }; // it was given up
        let at = at as usize;
        while sequence.instances.len() <= at {
            let parts = vec![None; members.len()];
            sequence.instances.push_back(Instance {
                what: (operation, kind),
                root: None,
                is_consistent: true,
                arrived: 0,
                parts,
            });
            self.waiting += members.len();
        }
        let instance = &mut sequence.instances[at];
        if instance.arrived == 0 {
            instance.what = (operation, kind);
        }
        instance.root = instance.root.or(root);
        instance.is_consistent &=
            instance.what == (operation, kind) && root.is_none_or(|_| root == instance.root);
        instance.arrived += 1;
        let event = frames.add(place, None);
        instance.parts[number as usize] = Some(Part { arrival, event, is_idle: root.is_none() });
        while sequence.instances.front().is_some_and(|first| first.arrived == members.len()) {
            sequence.first += 1;
            self.waiting -= members.len();
            sequence.instances.pop_front().into_iter().for_each(|whole| whole.decide(members, frames));
        }
        while self.waiting > WAITING_MAX && self.give_up_oldest(frames) {}
    }

    /// Returns the times at which members came to operations in which others have not taken part yet.
    pub fn entries(&self) -> impl Iterator<Item = Timestamp> + '_ {
        let instances = self.sequences.values().flat_map(|sequence| &sequence.instances);
        let parts = instances.flat_map(|instance| instance.parts.iter().flatten());
        parts.map(|part| part.arrival).chain(self.started.0.values().copied())
    }

    /// Gives up the oldest half of the longest sequence. Returns whether there was something to give up.
    fn give_up_oldest(&mut self, frames: &mut Frames) -> bool {
        let cost = |sequence: &Sequence| sequence.instances.len() * sequence.counts.len();
        let several = self.sequences.values_mut().filter(|sequence| sequence.instances.len() > 1);
        let Some(sequence) = several.max_by_key(|sequence| cost(sequence)) else { return false };
        let count = sequence.instances.len() / 2;
        sequence.first += count as u64;
        self.waiting -= count * sequence.counts.len();
        for instance in sequence.instances.drain(..count) {
            instance.parts.into_iter().flatten().for_each(|part| {
                frames.decide(part.event, None);
            });
        }
        true
    }
}

impl Instance {
    /// Decides who has waited for whom, now that all members have taken part.
    fn decide(self, members: &[u32], frames: &mut Frames) {
        let parts: Vec<Part> = self.parts.into_iter().flatten().collect();
        let (_, kind) = self.what;
        let root = self.root.flatten().map(|root| root as usize).filter(|root| *root < parts.len());
        // If several members arrive last at the same time, the first of them in the order of ranks counts as the last.
        let later = |a: usize, b: usize| if parts[b].arrival > parts[a].arrival { b } else { a };
        let last = (0..parts.len()).reduce(later);
        let is_awaited_by_root = |at: &usize| Some(*at) != root && !parts[*at].is_idle;
        let last_but_root = (0..parts.len()).filter(is_awaited_by_root).reduce(later);
        let mut last_before = None;
        for (at, part) in parts.iter().enumerate() {
            let awaited = match kind {
                _ if !self.is_consistent || part.is_idle => None,
                CollectiveKind::Barrier => last.map(|last| (last, Kind::Barrier)),
                CollectiveKind::AllToAll => last.map(|last| (last, Kind::AllToAll)),
                CollectiveKind::Scan => last_before.map(|last| (last, Kind::AllToAll)),
                CollectiveKind::OneToAll => root.map(|root| (root, Kind::OneToAll)),
                CollectiveKind::AllToOne => {
                    last_but_root.filter(|_| root == Some(at)).map(|last| (last, Kind::AllToOne))
                }
                CollectiveKind::Other => None,
            };
            let arrival =
                awaited.map(|(at, kind)| Arrival { time: parts[at].arrival, rank: members[at], kind });
            frames.decide(part.event, arrival);
            last_before = Some(last_before.map_or(at, |before| later(before, at)));
        }
    }
}
