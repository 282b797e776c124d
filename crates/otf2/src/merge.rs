//! The events of many locations in the order of time.
//!
//! OTF2 has a global reader that does this, and gives up as a whole when one location's file is damaged: at its first
//! event it does not even start, later it would deliver the last event once more if asked to go on. So here each location
//! is read by itself, some hundred events at a time, and the merge is ours. It delivers what OTF2's would, in the same
//! order: by time, at the same time by location, and within a location as in the file.

use crate::call::other_events;
use crate::call::reader::{BATCH, Batch, Event, EventReader, Kind};
use crate::contexts::{self, Step};
use crate::definitions::{Definitions, MetricRef};
use crate::error::Otf2Error;
use crate::reader::EventHandler;
use crate::table::{CallingContextRef, LocationRef, MetricClassRef, MetricInstanceRef, Reference, RegionRef};
use std::fmt;
use std::hint::select_unpredictable;
use std::ops::ControlFlow;

/// One location that is being read.
pub(crate) struct Stream<'a> {
    pub location: LocationRef,
    /// `None` once the file has ended: reader and file are closed then.
    reader: Option<EventReader<'a>>,
    batch: Batch,
    /// The next event in the batch.
    next: usize,
    /// Events that the file still has, and are not in the batch; unknown where all files are in one container.
    left: Option<u64>,
    /// Where the location is, in traces of unwinding and sampling.
    context: Option<CallingContextRef>,
}

impl<'a> Stream<'a> {
    /// Of a file with that many events.
    pub(crate) fn new(location: LocationRef, reader: EventReader<'a>, events: Option<u64>) -> Stream<'a> {
        Stream {
            location,
            reader: Some(reader),
            batch: Batch::default(),
            next: 0,
            left: events,
            context: None,
        }
    }

    /// Reads until there is an event or the file ends. A fault may leave events in the batch; after it the file ends.
    fn fill(&mut self, records: &mut u64) -> Result<(), Fault> {
        while self.next >= self.batch.events.len() {
            self.next = 0;
            self.batch.events.clear();
            let Some(reader) = &mut self.reader else { return Ok(()) };
            let asked = self.left.map_or(BATCH as u64, |left| left.min(BATCH as u64));
            if asked == 0 {
                self.reader = None;
                return Ok(());
            }
            let read = reader.read(asked, &mut self.batch);
            *records += *read.as_ref().unwrap_or(&(self.batch.events.len() as u64));
            let known = self.left.take();
            match read {
                Ok(read) if read == asked => self.left = known.map(|left| left - read),
                Ok(read) => {
                    // The end. Where the number of events is known, it came too early.
                    self.reader = None;
                    if let Some(left) = known {
                        return Err(Fault::Missing(left - read));
                    }
                }
                Err(error) => {
                    self.reader = None;
                    return Err(Fault::Unreadable(error));
                }
            }
        }
        Ok(())
    }
}

impl Stream<'_> {
    /// Hands an event of the batch to the handler.
    #[inline(always)]
    fn deliver<H: EventHandler + ?Sized>(
        &mut self,
        event: Event,
        definitions: &Definitions,
        handler: &mut H,
    ) -> ControlFlow<()> {
        let (location, time, region) = (self.location, event.time, RegionRef(event.number));
        match event.kind {
            Kind::Enter => handler.enter(location, time, region),
            Kind::EnterWith => handler.enter_with(location, time, region, self.batch.number_of(&event)),
            Kind::Leave => handler.leave(location, time, region),
            Kind::Metric => {
                let start = usize::from(event.values_start);
                let end = start + usize::from(event.values_len);
                let values = self.batch.values.get(start..end).unwrap_or_default();
                handler.metric(location, time, resolve(definitions, event.number), values)
            }
            Kind::Context | Kind::ContextLeave => {
                let named = CallingContextRef::of_number(event.number.into());
                let (target, distance) = match event.kind {
                    Kind::Context => (named, self.batch.number_of(&event)),
                    _ => (parent_of(definitions, named), 1),
                };
                let before = std::mem::replace(&mut self.context, target);
                contexts::walk(definitions, before, target, distance, |step| match step {
                    Step::Enter(region) => handler.enter(location, time, region),
                    Step::Leave(region) => handler.leave(location, time, region),
                })
            }
            Kind::Other => handler.other(location, time, other_events::name(event.number)),
        }
    }
}

/// Why a location's events could not all be read.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The file ends before so many events.
    Missing(u64),
    Unreadable(Otf2Error),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Missing(events) => write!(f, "damaged: {events} events fewer than it should have"),
            Fault::Unreadable(error) => error.fmt(f),
        }
    }
}

/// What came of a merge.
#[derive(Default)]
pub(crate) struct Merged {
    pub delivered: u64,
    pub records: u64,
    pub stopped: bool,
    pub faults: Vec<(LocationRef, Fault)>,
}

/// A stream by its next event: the time, and at the same time the stream's place in the list, in which they are in
/// ascending order of location.
#[derive(Clone, Copy)]
struct Key {
    time: u64,
    place: usize,
}

impl Key {
    /// Of a stream without a next event. No place is as large.
    const NONE: Key = Key { time: u64::MAX, place: usize::MAX };

    #[inline]
    fn is_before(self, other: Key) -> bool {
        (self.time < other.time) | ((self.time == other.time) & (self.place < other.place))
    }

    #[inline]
    fn earlier(self, other: Key) -> Key {
        let other_first = other.is_before(self);
        Key {
            time: select_unpredictable(other_first, other.time, self.time),
            place: select_unpredictable(other_first, other.place, self.place),
        }
    }
}

/// Which stream is next: a binary tree whose leaves are the streams' keys, in which every other node has the least of
/// those below it. Events of many locations alternate as they like, so that no branch on which is less can be predicted:
/// here there is none, and how many nodes are visited does not depend on the keys.
struct Tree {
    /// The root is at 1, what is below node n at 2 n and 2 n + 1.
    nodes: Vec<Key>,
}

impl Tree {
    fn new(streams: usize) -> Tree {
        Tree { nodes: vec![Key::NONE; 2 * streams.next_power_of_two()] }
    }

    #[inline]
    fn first(&self) -> Option<usize> {
        let place = self.nodes[1].place;
        (place != Key::NONE.place).then_some(place)
    }

    /// The least key of all other streams.
    #[inline]
    fn least_but(&self, place: usize) -> Key {
        let mut least = Key::NONE;
        let mut at = self.nodes.len() / 2 + place;
        while at > 1 {
            least = least.earlier(self.nodes[at ^ 1]);
            at /= 2;
        }
        least
    }

    #[inline]
    fn set(&mut self, place: usize, key: Option<Key>) {
        let mut least = key.unwrap_or(Key::NONE);
        let mut at = self.nodes.len() / 2 + place;
        self.nodes[at] = least;
        while at > 1 {
            least = least.earlier(self.nodes[at ^ 1]);
            at /= 2;
            self.nodes[at] = least;
        }
    }
}

/// Delivers all events of streams that are in ascending order of location.
pub(crate) fn run<H: EventHandler + ?Sized>(
    mut streams: Vec<Stream<'_>>,
    definitions: &Definitions,
    handler: &mut H,
) -> Merged {
    let mut merged = Merged::default();
    let mut order = Tree::new(streams.len());
    for (place, stream) in streams.iter_mut().enumerate() {
        order.set(place, advance(stream, place, &mut merged));
    }
    while let Some(place) = order.first() {
        let limit = order.least_but(place);
        let stream = &mut streams[place];
        // The location with the earliest event goes on until another one's is earlier.
        let next = loop {
            let Some(&event) = stream.batch.events.get(stream.next) else { break None };
            let key = Key { time: event.time, place };
            if limit.is_before(key) {
                break Some(key);
            }
            stream.next += 1;
            merged.delivered += 1;
            if stream.deliver(event, definitions, handler).is_break() {
                merged.stopped = true;
                return merged;
            }
        };
        let next = next.or_else(|| advance(stream, place, &mut merged));
        order.set(place, next);
        if next.is_none() && handler.end(streams[place].location).is_break() {
            merged.stopped = true;
            return merged;
        }
    }
    merged
}

/// Makes the next event of a stream available and returns its key.
#[cold]
fn advance(stream: &mut Stream<'_>, place: usize, merged: &mut Merged) -> Option<Key> {
    if let Err(error) = stream.fill(&mut merged.records) {
        merged.faults.push((stream.location, error));
    }
    stream.batch.events.get(stream.next).map(|event| Key { time: event.time, place })
}

fn parent_of(definitions: &Definitions, context: Option<CallingContextRef>) -> Option<CallingContextRef> {
    definitions.calling_contexts.get(context?)?.parent
}

/// An event names a class or an instance by a number; no number is both.
fn resolve(definitions: &Definitions, number: u32) -> MetricRef {
    let instance = MetricInstanceRef(number);
    match definitions.metric_instances.get(instance) {
        Some(defined) => MetricRef { class: defined.class, instance: Some(instance) },
        None => MetricRef { class: MetricClassRef(number), instance: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times that often are the same, up to the last there is.
    fn time(stream: usize, event: usize) -> u64 {
        match (event as u64 / 2).pow(2) + (stream as u64 % 3) * 2 {
            late if late > 30 => u64::MAX,
            time => time,
        }
    }

    #[test]
    fn any_number_of_streams_is_in_order() {
        for streams in 0..20 {
            let mut expected: Vec<(u64, usize)> = (0..streams)
                .flat_map(|stream| (0..14 + stream % 2).map(move |event| (time(stream, event), stream)))
                .collect();
            expected.sort_unstable();
            let mut order = Tree::new(streams);
            let mut next = vec![0; streams];
            let mut key = |stream: usize| {
                let event = next[stream];
                next[stream] += 1;
                (event < 14 + stream % 2).then(|| Key { time: time(stream, event), place: stream })
            };
            (0..streams).for_each(|stream| order.set(stream, key(stream)));
            for (at, (_, stream)) in expected.iter().enumerate() {
                assert_eq!(order.first(), Some(*stream), "{streams} streams, event {at}");
                let other = expected[at..].iter().find(|(_, other)| other != stream);
                let least = order.least_but(*stream);
                assert_eq!(
                    (least.place != Key::NONE.place).then_some((least.time, least.place)),
                    other.copied()
                );
                order.set(*stream, key(*stream));
            }
            assert_eq!(order.first(), None);
        }
    }
}
