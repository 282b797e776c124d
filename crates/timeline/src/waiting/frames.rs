//! The calls that may have waited.

use super::figures::Kind;
use super::matching::Messages;
use super::ranks::Ranks;
use super::{RegionRef, Wait};
use ampere_attribution::LocationIndex;
use ampere_model::Timestamp;

/// Identifies a frame with events of communication until its wait is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    slot: u32,
    generation: u32,
}

/// Upper bounds on the errors of times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerance {
    /// The greatest error of one node's times on the clock of another.
    pub clock_error: Timestamp,
    /// The time by which a partner may arrive after the end of the call that waited for it, even on one node.
    pub within_node: Timestamp,
}

/// Where an event happens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub location: LocationIndex,
    pub rank: u32,
}

/// The arrival of a partner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub time: Timestamp,
    pub rank: u32,
    pub kind: Kind,
}

/// A free slot keeps room for this number of arrivals.
const ARRIVALS_KEPT: usize = 4;

struct Frame {
    place: Place,
    region: RegionRef,
    enter: Timestamp,
    /// `None` while it is open.
    leave: Option<Timestamp>,
    /// Whether the frame has called other frames, or may still do so.
    has_inner: bool,
    /// The number of its events whose other side is not known yet.
    undecided: u32,
    /// The receiver, if the only such event is a blocking send.
    receiver: Option<u32>,
    /// The partners that arrived after the frame was entered, each with the number of the event.
    arrivals: Vec<(Arrival, u32)>,
    events: u32,
    /// Distinguishes the frames that have had this slot. Even: the slot is free.
    generation: u32,
}

/// An open frame of a location.
struct Open {
    enter: Timestamp,
    region: RegionRef,
    is_mpi: bool,
    /// Whether the frame is a call that waits for a message without receiving it.
    is_probe: bool,
    has_inner: bool,
    id: Option<Id>,
}

/// The open frames of all locations, and the frames with events.
pub(super) struct Frames {
    all: Vec<Frame>,
    free: Vec<u32>,
    /// The open frames of each location.
    open: Vec<Vec<Open>>,
    /// Frames that were left, and whose last event has been matched.
    decided: Vec<Id>,
    tolerance: Tolerance,
}

impl Frames {
    pub fn new(tolerance: Tolerance) -> Frames {
        Frames { all: Vec::new(), free: Vec::new(), open: Vec::new(), decided: Vec::new(), tolerance }
    }

    #[inline]
    pub fn enter(
        &mut self,
        location: LocationIndex,
        enter: Timestamp,
        region: RegionRef,
        [is_mpi, is_probe]: [bool; 2],
    ) {
        let at = location.0 as usize;
        if at >= self.open.len() {
            self.open.resize_with(at + 1, Vec::new);
        }
        let open = &mut self.open[at];
        open.last_mut().into_iter().for_each(|outer| outer.has_inner = true);
        open.push(Open { enter, region, is_mpi, is_probe, has_inner: false, id: None });
    }

    /// Leaves the innermost frame. Returns it if its wait can be taken.
    #[inline]
    pub fn leave(&mut self, location: LocationIndex, time: Timestamp) -> Option<Id> {
        let Open { id, has_inner, .. } = self.open.get_mut(location.0 as usize)?.pop()?;
        let id = id?;
        let frame = self.get(id)?;
        (frame.leave, frame.has_inner) = (Some(time), has_inner);
        (frame.undecided == 0).then_some(id)
    }

    /// Whether the innermost frame waits for a message without receiving it.
    #[inline]
    pub fn is_probe(&self, location: LocationIndex) -> bool {
        let open = self.open.get(location.0 as usize);
        open.and_then(|open| open.last()).is_some_and(|innermost| innermost.is_probe)
    }

    /// Returns the number of frames for which there is room.
    pub fn slots(&self) -> usize {
        self.all.len()
    }

    pub fn is_open(&self, location: LocationIndex) -> bool {
        self.open.get(location.0 as usize).is_some_and(|open| !open.is_empty())
    }

    /// Returns the time of arrival of an event that a location records at `time`: the enter of its frame.
    pub fn entry(&self, location: LocationIndex, time: Timestamp) -> Timestamp {
        let innermost = self.open.get(location.0 as usize).and_then(|open| open.last());
        innermost.map_or(time, |open| open.enter)
    }

    #[inline]
    fn get(&mut self, id: Id) -> Option<&mut Frame> {
        self.all.get_mut(id.slot as usize).filter(|frame| frame.generation == id.generation)
    }

    /// Adds an event whose other side is still to be decided to the innermost frame. Returns the frame and the number of the
    /// event. `receiver` is the other side of a blocking send.
    pub fn add(&mut self, place: Place, receiver: Option<u32>) -> Option<(Id, u32)> {
        let (id, frame) = self.innermost(place)?;
        frame.receiver = receiver.filter(|_| frame.undecided == 0);
        frame.undecided += 1;
        frame.events += 1;
        Some((id, frame.events))
    }

    /// Adds an event whose other side is known to the innermost frame. Returns whether the other side arrived after the frame was
    /// entered.
    pub fn add_decided(&mut self, place: Place, arrival: Option<Arrival>) -> bool {
        let entry = self.entry(place.location, Timestamp::MAX);
        let Some(arrival) = arrival.filter(|arrival| arrival.time > entry) else { return false };
        if arrival.rank != place.rank
            && let Some((_, frame)) = self.innermost(place)
        {
            frame.events += 1;
            frame.arrivals.push((arrival, frame.events));
        }
        true
    }

    /// Returns a location's innermost frame.
    fn innermost(&mut self, place: Place) -> Option<(Id, &mut Frame)> {
        let open = self.open.get_mut(place.location.0 as usize)?.last_mut()?;
        let Open { enter, region, .. } = *open;
        let id = *open.id.get_or_insert_with(|| {
            let id = take_slot(&mut self.all, &mut self.free);
            let slot = &mut self.all[id.slot as usize];
            (slot.place, slot.region, slot.enter) = (place, region, enter);
            id
        });
        Some((id, self.get(id)?))
    }

    /// Sets the other side of an event; `None` if it will never be known. Returns whether it arrived after the frame was
    /// entered.
    pub fn decide(&mut self, event: Option<(Id, u32)>, arrival: Option<Arrival>) -> bool {
        let Some((id, number)) = event else { return false };
        let Some(frame) = self.get(id) else { return false };
        let own = frame.place.rank;
        let arrival = arrival.filter(|arrival| arrival.time > frame.enter);
        let has_arrived = arrival.is_some();
        let is_after_send = |arrival: &Arrival| {
            let leave = frame.leave.filter(|_| arrival.kind == Kind::LateReceiver);
            leave.is_some_and(|leave| {
                arrival.time.saturating_sub(leave) > tolerance_of_send(frame.enter, leave)
            })
        };
        if let Some(arrival) = arrival.filter(|arrival| arrival.rank != own && !is_after_send(arrival)) {
            frame.arrivals.push((arrival, number));
        }
        frame.undecided -= 1;
        if frame.undecided == 0 && frame.leave.is_some() {
            if frame.arrivals.is_empty() {
                frame.generation += 1;
                self.free.push(id.slot);
            } else {
                self.decided.push(id);
            }
        }
        has_arrived
    }

    /// Returns a frame whose wait can be taken now.
    pub fn next_decided(&mut self) -> Option<Id> {
        self.decided.pop()
    }

    /// Removes a frame. Returns its wait, if it has one: that for the partner that arrived last.
    pub fn take_wait(&mut self, id: Id, node_of: impl Fn(u32) -> u32) -> Option<(LocationIndex, Wait)> {
        let Tolerance { clock_error, within_node } = self.tolerance;
        let frame = self.get(id)?;
        let place = frame.place;
        let region = frame.region;
        let start = frame.enter;
        let has_inner = frame.has_inner;
        let leave = frame.leave.unwrap_or(start);
        let end_of = |arrival: &Arrival| {
            let is_exact = clock_error == 0 || node_of(arrival.rank) == node_of(place.rank);
            let doubt = if is_exact { 0 } else { clock_error.saturating_mul(2) };
            let after = arrival.time.saturating_sub(leave);
            let is_within = match arrival.kind {
                Kind::LateReceiver => after <= tolerance_of_send(start, leave),
                _ => after <= within_node.max(doubt),
            };
            let end = arrival.time.min(leave);
            (is_within && end > start && end - start >= doubt).then_some(end)
        };
        let ends =
            frame.arrivals.iter().filter_map(|(arrival, number)| Some((end_of(arrival)?, arrival, number)));
        let last = ends
            .max_by_key(|(end, arrival, number)| (*end, std::cmp::Reverse((arrival.kind.order(), **number))));
        let wait = last.map(|(end, arrival, _)| Wait {
            start,
            end,
            kind: arrival.kind,
            late: arrival.rank,
            region,
            has_inner,
            node: None,
            latest_end: end,
            is_settled: false,
        });
        frame.arrivals.clear();
        frame.arrivals.shrink_to(ARRIVALS_KEPT);
        frame.generation += 1;
        self.free.push(id.slot);
        wait.map(|wait| (place.location, wait))
    }

    /// Returns the earliest enter of a call about which something is not known yet.
    pub fn undecided_since(&self) -> Timestamp {
        self.undecided_enters().min().unwrap_or(Timestamp::MAX)
    }

    /// Returns the enters of all calls about which something is not known yet.
    pub fn undecided_enters(&self) -> impl Iterator<Item = Timestamp> + '_ {
        let used = self.all.iter().filter(|frame| frame.generation % 2 == 1).map(|frame| frame.enter);
        let open = self.open.iter().flatten().filter(|open| open.is_mpi).map(|open| open.enter);
        used.chain(open)
    }

    /// Decides the blocking sends that ended before `until` and for which no receive was started in their time: a receive that is
    /// still to come starts later.
    pub fn release_sends(&mut self, ranks: &Ranks, messages: &Messages, until: Timestamp) {
        let mut started = messages.open_receives(ranks);
        for (location, open) in self.open.iter().enumerate() {
            let rank = ranks.of(LocationIndex(location as u32));
            let times = rank.and_then(|rank| started.get_mut(rank as usize));
            times.into_iter().for_each(|times| times.extend(open.iter().map(|open| open.enter)));
        }
        started.iter_mut().for_each(|times| times.sort_unstable());
        for (slot, frame) in self.all.iter_mut().enumerate() {
            let (Some(leave), Some(receiver)) = (frame.leave, frame.receiver) else { continue };
            let leave = leave.saturating_add(tolerance_of_send(frame.enter, leave));
            if frame.generation % 2 == 0 || frame.undecided != 1 || leave >= until {
                continue;
            }
            let times = &started[receiver as usize];
            let next = times.partition_point(|time| *time <= frame.enter);
            if times.get(next).is_none_or(|time| *time > leave) {
                self.decided.push(Id { slot: slot as u32, generation: frame.generation });
            }
        }
    }

    /// Moves the start of all calls that were entered before `cut` to that time. Calls that were left before `cut` are decided
    /// instead. Returns the number of open MPI calls whose start was moved.
    pub fn cut(&mut self, cut: Timestamp) -> u64 {
        let mut count = 0;
        for open in self.open.iter_mut().flatten().filter(|open| open.enter < cut) {
            count += u64::from(open.is_mpi);
            open.enter = cut;
        }
        for (slot, frame) in self.all.iter_mut().enumerate() {
            if frame.generation % 2 == 1 && frame.enter < cut {
                if frame.leave.is_some_and(|leave| leave < cut) {
                    self.decided.push(Id { slot: slot as u32, generation: frame.generation });
                } else {
                    frame.enter = cut;
                    frame.arrivals.retain(|(arrival, _)| arrival.time > cut);
                }
            }
        }
        count
    }

    /// Returns all remaining frames, because no event follows.
    pub fn end(&self) -> Vec<Id> {
        let used = self.all.iter().enumerate().filter(|(_, frame)| frame.generation % 2 == 1);
        used.map(|(slot, frame)| Id { slot: slot as u32, generation: frame.generation }).collect()
    }
}

/// Returns the time by which a receive may start after the end of a blocking send that waited for it, because the clocks of
/// processes differ. It is a part of the send's time, so that a short send that does not wait does not count as a wait.
fn tolerance_of_send(enter: Timestamp, leave: Timestamp) -> Timestamp {
    (leave - enter) / 100
}

/// Takes a free slot.
fn take_slot(all: &mut Vec<Frame>, free: &mut Vec<u32>) -> Id {
    let slot = free.pop().unwrap_or_else(|| {
        all.push(Frame {
            place: Place { location: LocationIndex(0), rank: 0 },
            region: RegionRef(0),
            enter: 0,
            leave: None,
            has_inner: true,
            undecided: 0,
            receiver: None,
            arrivals: Vec::new(),
            events: 0,
            generation: 0,
        });
        (all.len() - 1) as u32
    });
    let frame = &mut all[slot as usize];
    frame.generation += 1;
    (frame.leave, frame.has_inner, frame.undecided) = (None, true, 0);
    (frame.receiver, frame.events) = (None, 0);
    Id { slot, generation: frame.generation }
}
