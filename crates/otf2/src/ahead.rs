//! Reading ahead: one thread decodes and merges events, while another one handles those before.

use crate::definitions::{MetricRef, MetricValue};
use crate::reader::{EventHandler, ReadReport};
use crate::table::{AttributeRef, LocationRef, RegionRef};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, scope};

/// Events that are handed over at once.
const BATCH: usize = 1 << 12;
/// So many batches wait to be handled.
const WAITING_MAX: usize = 16;

/// What happened on a location.
struct Event {
    location: LocationRef,
    time: u64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Enter(RegionRef),
    /// Its value is in the batch.
    EnterWith(RegionRef),
    Leave(RegionRef),
    /// With so many values in the batch, and the metric.
    Metric(u32),
    End,
    /// Its name is in the batch.
    Other,
}

const _: () = assert!(size_of::<Event>() == 24);

/// Events, and what they have beside a number, in the same order.
#[derive(Default)]
struct Batch {
    events: Vec<Event>,
    attributes: Vec<u64>,
    metrics: Vec<MetricRef>,
    values: Vec<MetricValue>,
    names: Vec<&'static str>,
}

impl Batch {
    fn clear(&mut self) {
        self.events.clear();
        self.attributes.clear();
        self.metrics.clear();
        self.values.clear();
        self.names.clear();
    }

    fn deliver<H: EventHandler + ?Sized>(&self, handler: &mut H) -> ControlFlow<()> {
        let (mut attributes, mut metrics) = (self.attributes.iter(), self.metrics.iter());
        let (mut values, mut names) = (self.values.as_slice(), self.names.iter());
        for Event { location, time, what } in &self.events {
            let (location, time) = (*location, *time);
            match *what {
                What::Enter(region) => handler.enter(location, time, region)?,
                What::Leave(region) => handler.leave(location, time, region)?,
                What::EnterWith(region) => {
                    let value = attributes.next().copied().unwrap_or_default();
                    handler.enter_with(location, time, region, value)?;
                }
                What::Metric(count) => {
                    let (own, rest) = values.split_at((count as usize).min(values.len()));
                    values = rest;
                    let Some(metric) = metrics.next() else { continue };
                    handler.metric(location, time, *metric, own)?;
                }
                What::End => handler.end(location)?,
                What::Other => {
                    let Some(name) = names.next() else { continue };
                    handler.other(location, time, name)?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Collects events, and hands them over.
pub(crate) struct Collector {
    batch: Batch,
    full: SyncSender<Batch>,
    /// Batches that have been handled: their memory serves again.
    empty: Receiver<Batch>,
    attribute: Option<AttributeRef>,
    wants_other: bool,
}

impl Collector {
    #[inline]
    fn push(&mut self, location: LocationRef, time: u64, what: What) -> ControlFlow<()> {
        self.batch.events.push(Event { location, time, what });
        if self.batch.events.len() >= BATCH { self.hand_over() } else { ControlFlow::Continue(()) }
    }

    /// It is over once nobody takes them.
    #[cold]
    fn hand_over(&mut self) -> ControlFlow<()> {
        let mut next = self.empty.try_recv().unwrap_or_default();
        next.clear();
        match self.full.send(std::mem::replace(&mut self.batch, next)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

impl EventHandler for Collector {
    fn enter(&mut self, location: LocationRef, time: u64, region: RegionRef) -> ControlFlow<()> {
        self.push(location, time, What::Enter(region))
    }

    fn attribute(&self) -> Option<AttributeRef> {
        self.attribute
    }

    fn enter_with(
        &mut self,
        location: LocationRef,
        time: u64,
        region: RegionRef,
        value: u64,
    ) -> ControlFlow<()> {
        self.batch.attributes.push(value);
        self.push(location, time, What::EnterWith(region))
    }

    fn leave(&mut self, location: LocationRef, time: u64, region: RegionRef) -> ControlFlow<()> {
        self.push(location, time, What::Leave(region))
    }

    fn metric(
        &mut self,
        location: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> ControlFlow<()> {
        self.batch.metrics.push(metric);
        self.batch.values.extend_from_slice(values);
        self.push(location, time, What::Metric(values.len() as u32))
    }

    fn end(&mut self, location: LocationRef) -> ControlFlow<()> {
        self.push(location, 0, What::End)
    }

    fn wants_other(&self) -> bool {
        self.wants_other
    }

    fn other(&mut self, location: LocationRef, time: u64, name: &'static str) -> ControlFlow<()> {
        self.batch.names.push(name);
        self.push(location, time, What::Other)
    }
}

/// Has `read` read events, which the handler gets in another thread. `None` without a thread: nothing was read.
pub(crate) fn read<H: EventHandler + Send + ?Sized, E>(
    handler: &mut H,
    read: impl FnOnce(&mut Collector) -> Result<ReadReport, E>,
) -> Option<Result<ReadReport, E>> {
    let (full, to_handle) = sync_channel::<Batch>(WAITING_MAX);
    let (handled, empty) = channel();
    let (attribute, wants_other) = (handler.attribute(), handler.wants_other());
    scope(|scope| {
        let handle = move || handle(handler, &to_handle, &handled);
        let thread = Builder::new().name("otf2-events".to_owned()).spawn_scoped(scope, handle).ok()?;
        let mut collector = Collector { batch: Batch::default(), full, empty, attribute, wants_other };
        let report = read(&mut collector);
        let _ = collector.hand_over();
        drop(collector);
        let is_stopped = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        Some(report.map(|report| ReadReport { stopped: report.stopped || is_stopped, ..report }))
    })
}

/// Whether the handler stopped it.
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
