//! Reads ahead: one thread decodes and merges events, while another one handles earlier ones.

use crate::communication::Communication;
use crate::definitions::{MetricRef, MetricValue};
use crate::handler::{EventHandler, Flow, ReadReport};
use crate::table::{AttributeRef, LocationRef, RegionRef};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, scope};

/// The number of events that are handed over at once.
const BATCH: usize = 1 << 12;
/// The maximum number of batches that wait to be handled.
const WAITING_MAX: usize = 16;

struct Event {
    location: LocationRef,
    time: u64,
    kind: EventKind,
}

#[derive(Clone, Copy)]
enum EventKind {
    Enter(RegionRef),
    /// An enter whose attribute value is in the batch.
    EnterWith(RegionRef),
    /// The value of the second attribute, for the enter that follows, is in the batch.
    SecondValue,
    Leave(RegionRef),
    /// A metric event with the number of its values. The values and the metric itself are in the batch.
    Metric(u32),
    /// The end of a location. The time is that of its last enter, leave or sample.
    End,
    /// An event of communication, which is in the batch.
    Communication,
    /// Another event, whose name is in the batch.
    Other,
}

const _: () = assert!(size_of::<Event>() == 24);

/// Events, and the further data of some of them, in the same order.
#[derive(Default)]
struct Batch {
    events: Vec<Event>,
    attributes: Vec<u64>,
    metrics: Vec<MetricRef>,
    values: Vec<MetricValue>,
    communications: Vec<Communication>,
    names: Vec<&'static str>,
}

impl Batch {
    fn clear(&mut self) {
        self.events.clear();
        self.attributes.clear();
        self.metrics.clear();
        self.values.clear();
        self.communications.clear();
        self.names.clear();
    }

    fn deliver<H: EventHandler + ?Sized>(&self, handler: &mut H) -> Flow {
        let (mut attributes, mut metrics) = (self.attributes.iter(), self.metrics.iter());
        let (mut values, mut names) = (self.values.as_slice(), self.names.iter());
        let mut communications = self.communications.iter();
        for Event { location, time, kind } in &self.events {
            let (location, time) = (*location, *time);
            match *kind {
                EventKind::Enter(region) => handler.enter(location, time, region, None)?,
                EventKind::Leave(region) => handler.leave(location, time, region)?,
                EventKind::EnterWith(region) => {
                    handler.enter(location, time, region, attributes.next().copied())?;
                }
                EventKind::SecondValue => {
                    let Some(value) = attributes.next() else { continue };
                    handler.second_value(location, *value)?;
                }
                EventKind::Metric(count) => {
                    let (own, rest) = values.split_at((count as usize).min(values.len()));
                    values = rest;
                    let Some(metric) = metrics.next() else { continue };
                    handler.metric(location, time, *metric, own)?;
                }
                EventKind::End => handler.end(location, time)?,
                EventKind::Communication => {
                    let Some(event) = communications.next() else { continue };
                    handler.communication(location, time, *event)?;
                }
                EventKind::Other => {
                    let Some(name) = names.next() else { continue };
                    handler.other(location, time, name)?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Collects events in batches and sends these to the handler's thread.
pub(crate) struct BatchSender {
    batch: Batch,
    full: SyncSender<Batch>,
    /// Batches that have been handled, whose memory is used again.
    empty: Receiver<Batch>,
    attribute: Option<AttributeRef>,
    second_attribute: Option<AttributeRef>,
    wants_communication: bool,
    wants_other: bool,
}

impl BatchSender {
    #[inline]
    fn push(&mut self, location: LocationRef, time: u64, kind: EventKind) -> Flow {
        self.batch.events.push(Event { location, time, kind });
        if self.batch.events.len() >= BATCH { self.hand_over() } else { ControlFlow::Continue(()) }
    }

    /// Sends the batch. Returns `Break` after the handler has stopped.
    #[cold]
    fn hand_over(&mut self) -> Flow {
        let mut next = self.empty.try_recv().unwrap_or_default();
        next.clear();
        match self.full.send(std::mem::replace(&mut self.batch, next)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

impl EventHandler for BatchSender {
    fn attribute(&self) -> Option<AttributeRef> {
        self.attribute
    }

    fn second_attribute(&self) -> Option<AttributeRef> {
        self.second_attribute
    }

    fn second_value(&mut self, location: LocationRef, value: u64) -> Flow {
        self.batch.attributes.push(value);
        self.push(location, 0, EventKind::SecondValue)
    }

    fn enter(&mut self, location: LocationRef, time: u64, region: RegionRef, value: Option<u64>) -> Flow {
        self.batch.attributes.extend(value);
        let kind = if value.is_some() { EventKind::EnterWith(region) } else { EventKind::Enter(region) };
        self.push(location, time, kind)
    }

    fn leave(&mut self, location: LocationRef, time: u64, region: RegionRef) -> Flow {
        self.push(location, time, EventKind::Leave(region))
    }

    fn metric(
        &mut self,
        location: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> Flow {
        self.batch.metrics.push(metric);
        self.batch.values.extend_from_slice(values);
        self.push(location, time, EventKind::Metric(values.len() as u32))
    }

    fn end(&mut self, location: LocationRef, last: u64) -> Flow {
        self.push(location, last, EventKind::End)
    }

    fn wants_communication(&self) -> bool {
        self.wants_communication
    }

    fn communication(&mut self, location: LocationRef, time: u64, event: Communication) -> Flow {
        self.batch.communications.push(event);
        self.push(location, time, EventKind::Communication)
    }

    fn wants_other(&self) -> bool {
        self.wants_other
    }

    fn other(&mut self, location: LocationRef, time: u64, name: &'static str) -> Flow {
        self.batch.names.push(name);
        self.push(location, time, EventKind::Other)
    }
}

/// Lets `read` read events, which the handler receives in another thread. Returns `None` without having read anything if no
/// thread can be started.
pub(crate) fn read<H: EventHandler + Send + ?Sized, E>(
    handler: &mut H,
    read: impl FnOnce(&mut BatchSender) -> Result<ReadReport, E>,
) -> Option<Result<ReadReport, E>> {
    let (full, to_handle) = sync_channel::<Batch>(WAITING_MAX);
    let (handled, empty) = channel();
    let (attribute, second_attribute) = (handler.attribute(), handler.second_attribute());
    let (wants_communication, wants_other) = (handler.wants_communication(), handler.wants_other());
    scope(|scope| {
        let handle = move || handle(handler, &to_handle, &handled);
        let thread = Builder::new().name("otf2-events".to_owned()).spawn_scoped(scope, handle).ok()?;
        let mut sender = BatchSender {
            batch: Batch::default(),
            full,
            empty,
            attribute,
            second_attribute,
            wants_communication,
            wants_other,
        };
        let report = read(&mut sender);
        let _ = sender.hand_over();
        drop(sender);
        let is_stopped = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        Some(report.map(|report| ReadReport { stopped: report.stopped || is_stopped, ..report }))
    })
}

/// Passes all batches to the handler. Returns whether the handler stopped the reading.
fn handle<H: EventHandler + ?Sized>(
    handler: &mut H,
    batches: &Receiver<Batch>,
    handled: &Sender<Batch>,
) -> bool {
    while let Ok(batch) = batches.recv() {
        if batch.deliver(handler).is_break() {
            return true;
        }
        let _ = handled.send(batch);
    }
    false
}
