//! Merges the events of many locations in time order.
//!
//! OTF2 has a global reader for this, but it fails as a whole when one location's file is damaged: if the first event is damaged,
//! it does not even start; after damage to a later event, it delivers the last event again. Therefore each location is read
//! separately, about a hundred events at a time, and merged here. The order is that of OTF2: by time, at the same time by
//! location, and within a location as in the file, except that leaves are matched by name (`nesting.rs`).

use crate::call::batch::{BATCH, Batch, Event, Kind};
use crate::call::other_events;
use crate::call::reader::EventReader;
use crate::contexts::{self, Step};
use crate::definitions::{Definitions, MetricRef};
use crate::error::Otf2Error;
use crate::handler::{EventHandler, Flow, Nesting};
use crate::nesting::Nest;
use crate::table::{CallingContextRef, LocationRef, MetricClassRef, MetricInstanceRef, Reference, RegionRef};
use std::ops::ControlFlow;
use tournament::{Key, Tree};

/// One location that is being read.
pub(crate) struct Stream<'a> {
    pub location: LocationRef,
    /// `None` once the file has ended: the reader and the file are closed then.
    reader: Option<EventReader<'a>>,
    batch: Batch,
    /// The next event in the batch.
    next: usize,
    /// The number of events in the file that are not in the batch yet; unknown if all files are in one container.
    left: Option<u64>,
    /// The current context of the location, in traces of unwinding and sampling.
    context: Option<CallingContextRef>,
    nest: Nest,
}

impl<'a> Stream<'a> {
    /// Returns a stream of a file with this number of events.
    pub(crate) fn new(location: LocationRef, reader: EventReader<'a>, events: Option<u64>) -> Stream<'a> {
        Stream {
            location,
            reader: Some(reader),
            batch: Batch::default(),
            next: 0,
            left: events,
            context: None,
            nest: Nest::new(location),
        }
    }

    /// Reads until there is an event or the file ends. After a fault there may be events in the batch, and no more are read.
    fn fill(&mut self, records: &mut u64) -> Result<(), Fault> {
        while self.next >= self.batch.events.len() {
            self.next = 0;
            self.batch.events.clear();
            let Some(reader) = &mut self.reader else { return Ok(()) };
            let wanted = self.left.map_or(BATCH as u64, |left| left.min(BATCH as u64));
            if wanted == 0 {
                self.reader = None;
                return Ok(());
            }
            let read = reader.read(wanted, &mut self.batch);
            *records += *read.as_ref().unwrap_or(&(self.batch.events.len() as u64));
            let known = self.left.take();
            match read {
                Ok(read) if read == wanted => self.left = known.map(|left| left - read),
                Ok(read) => {
                    // The file has ended. If the number of events is known, that was too early.
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
    /// Passes an event of the batch to the handler.
    #[inline(always)]
    fn deliver<H: EventHandler + ?Sized>(
        &mut self,
        event: Event,
        definitions: &Definitions,
        handler: &mut H,
    ) -> Flow {
        let location = self.location;
        let time = event.time;
        let region = RegionRef(event.number);
        match event.kind {
            Kind::Enter => self.nest.enter(time, region, None, handler),
            Kind::EnterWith => {
                let value = self.batch.number_of(&event);
                self.nest.enter(time, region, Some(value), handler)
            }
            Kind::EnterWithSecond => {
                handler.second_value(location, self.batch.number_of(&event))?;
                self.nest.enter(time, region, None, handler)
            }
            Kind::Leave => self.nest.leave(time, region, handler),
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
                let nest = &mut self.nest;
                if target.is_some() {
                    nest.last = time;
                }
                contexts::walk(definitions, before, target, distance, |step| match step {
                    Step::Enter(region) => nest.enter(time, region, None, handler),
                    Step::Leave(region) => nest.leave(time, region, handler),
                })
            }
            Kind::Communication => {
                let event = self.batch.communications.get(event.number as usize).copied();
                event.map_or(ControlFlow::Continue(()), |event| handler.communication(location, time, event))
            }
            Kind::Other => handler.other(location, time, other_events::name(event.number)),
        }
    }
}

/// The reason why not all events of a location could be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The file ends before this number of events.
    #[error("damaged: {0} events are missing")]
    Missing(u64),
    #[error(transparent)]
    Unreadable(Otf2Error),
}

#[derive(Default)]
pub(crate) struct Merged {
    pub delivered: u64,
    pub records: u64,
    pub stopped: bool,
    pub faults: Vec<(LocationRef, Fault)>,
    pub nesting: Nesting,
    pub unended: Vec<LocationRef>,
}

/// Delivers all events of streams that are in ascending order of location.
pub(crate) fn run<H: EventHandler + ?Sized>(
    mut streams: Vec<Stream<'_>>,
    definitions: &Definitions,
    handler: &mut H,
) -> Merged {
    let mut merged = Merged::default();
    merged.stopped = merge(&mut streams, definitions, handler, &mut merged).is_break();
    streams.iter().for_each(|stream| merged.nesting.add(stream.nest.found));
    merged
}

fn merge<H: EventHandler + ?Sized>(
    streams: &mut [Stream<'_>],
    definitions: &Definitions,
    handler: &mut H,
    merged: &mut Merged,
) -> Flow {
    let first: Vec<Option<u64>> = streams.iter_mut().map(|stream| advance(stream, merged)).collect();
    let mut order = Tree::new(first.into_iter());
    // Locations with leaves that wait for the other events of their time.
    let mut holding = Holding::default();
    while let Some(Key { place, time }) = order.first() {
        if holding.until.is_some_and(|held_at| held_at != time) {
            holding.until = None;
            holding.places.drain(..).try_for_each(|place| streams[place].nest.resolve_held(handler))?;
        }
        let limit = order.first_but(place);
        let stream = &mut streams[place];
        let is_holding = holding.until.is_some();
        // The location with the earliest event continues until another one has an earlier event.
        let next = loop {
            let Some(&event) = stream.batch.events.get(stream.next) else { break None };
            let key = Key { time: event.time, place };
            if limit.is_some_and(|limit| limit.is_before(key)) {
                break Some(key.time);
            }
            stream.next += 1;
            merged.delivered += 1;
            stream.deliver(event, definitions, handler)?;
            if is_holding | stream.nest.is_holding() {
                holding.add(place, &stream.nest);
                break stream.batch.events.get(stream.next).map(|event| event.time);
            }
        };
        let next = next.or_else(|| advance(stream, merged));
        order.set(place, next);
        if next.is_none() {
            let stream = &mut streams[place];
            stream.nest.resolve_held(handler)?;
            // The last context of a location with samples is not left.
            if stream.context.is_none() {
                merged.unended.extend(std::iter::repeat_n(stream.location, stream.nest.end()));
            }
            handler.end(stream.location, stream.nest.last)?;
        }
    }
    ControlFlow::Continue(())
}

#[derive(Default)]
struct Holding {
    until: Option<u64>,
    places: Vec<usize>,
}

impl Holding {
    #[cold]
    fn add(&mut self, place: usize, nest: &Nest) {
        if let Some(held_at) = nest.held_at() {
            self.until = Some(held_at);
            self.places.push(place);
        }
    }
}

/// Makes the next event of a stream available and returns its time.
#[cold]
fn advance(stream: &mut Stream<'_>, merged: &mut Merged) -> Option<u64> {
    if let Err(error) = stream.fill(&mut merged.records) {
        merged.faults.push((stream.location, error));
    }
    stream.batch.events.get(stream.next).map(|event| event.time)
}

fn parent_of(definitions: &Definitions, context: Option<CallingContextRef>) -> Option<CallingContextRef> {
    definitions.calling_contexts.get(context?)?.parent
}

/// Finds the class or the instance that an event names by a number. No number is both.
fn resolve(definitions: &Definitions, number: u32) -> MetricRef {
    let instance = MetricInstanceRef(number);
    match definitions.metric_instances.get(instance) {
        Some(defined) => MetricRef { class: defined.class, instance: Some(instance) },
        None => MetricRef { class: MetricClassRef(number), instance: None },
    }
}
