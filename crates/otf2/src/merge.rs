//! The events of many locations in the order of time.
//!
//! OTF2 has a global reader that does this, and gives up as a whole when one location's file is damaged: at its first
//! event it does not even start, later it would deliver the last event once more if asked to go on. So here each location
//! is read by itself, some hundred events at a time, and the merge is ours. It delivers what OTF2's would, in the same
//! order: by time, at the same time by location, and within a location as in the file.

use crate::call::other_events;
use crate::call::reader::{BATCH, Batch, EventReader, Kind};
use crate::definitions::{Definitions, MetricRef, MetricValue};
use crate::reader::EventHandler;
use crate::table::{LocationRef, MetricClassRef, MetricInstanceRef, RegionRef};

/// One location that is being read.
pub(crate) struct Stream<'a> {
    pub location: LocationRef,
    /// Nothing once the file has ended: reader and file are closed then.
    reader: Option<EventReader<'a>>,
    batch: Batch,
    /// The next event in the batch.
    next: usize,
    /// Events that the file still has, and are not in the batch; unknown where all files are in one container.
    left: Option<u64>,
}

impl<'a> Stream<'a> {
    /// Of a file with that many events.
    pub(crate) fn new(location: LocationRef, reader: EventReader<'a>, events: Option<u64>) -> Stream<'a> {
        Stream { location, reader: Some(reader), batch: Batch::default(), next: 0, left: events }
    }

    /// Reads until there is an event or the file ends. An error may leave events in the batch; after it the file ends.
    fn fill(&mut self, records: &mut u64) -> Result<(), String> {
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
                        return Err(format!("damaged: {} events fewer than it should have", left - read));
                    }
                }
                Err(error) => {
                    self.reader = None;
                    return Err(error.to_string());
                }
            }
        }
        Ok(())
    }
}

/// What came of a merge.
pub(crate) struct Merged {
    pub delivered: u64,
    pub records: u64,
    pub stopped: bool,
    pub faults: Vec<(LocationRef, String)>,
}

/// A stream by its next event: the time, and the stream's place in the list, in which they are in ascending order of
/// location. One number, because comparing these is what a merge of many locations spends its time with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u128);

impl Key {
    #[inline]
    fn new(time: u64, place: usize) -> Key {
        Key(u128::from(time) << 64 | place as u128)
    }

    #[inline]
    fn place(self) -> usize {
        self.0 as u64 as usize
    }
}

/// Delivers all events of streams that are in ascending order of location.
pub(crate) fn run<H: EventHandler + ?Sized>(
    mut streams: Vec<Stream<'_>>,
    definitions: &Definitions,
    handler: &mut H,
) -> Merged {
    let mut merged = Merged { delivered: 0, records: 0, stopped: false, faults: Vec::new() };
    let mut heap: Vec<Key> = Vec::with_capacity(streams.len());
    for (place, stream) in streams.iter_mut().enumerate() {
        heap.extend(advance(stream, place, &mut merged));
    }
    for place in (0..heap.len() / 2).rev() {
        sift_down(&mut heap, place);
    }
    while let Some(&least) = heap.first() {
        let place = least.place();
        let limit = runner_up(&heap);
        let stream = &mut streams[place];
        let location = stream.location;
        // The location with the earliest event goes on until another one's is earlier.
        let next = loop {
            let Some(event) = stream.batch.events.get(stream.next) else { break None };
            let key = Key::new(event.time, place);
            if key > limit {
                break Some(key);
            }
            stream.next += 1;
            merged.delivered += 1;
            let flow = match event.kind {
                Kind::Enter => handler.enter(location, event.time, RegionRef(event.number)),
                Kind::EnterWith => {
                    let value = match stream.batch.values.get(usize::from(event.values_start)) {
                        Some(MetricValue::U64(value)) => *value,
                        _ => 0,
                    };
                    handler.enter_with(location, event.time, RegionRef(event.number), value)
                }
                Kind::Leave => handler.leave(location, event.time, RegionRef(event.number)),
                Kind::Metric => {
                    let start = usize::from(event.values_start);
                    let end = start + usize::from(event.values_len);
                    let values = stream.batch.values.get(start..end).unwrap_or_default();
                    handler.metric(location, event.time, resolve(definitions, event.number), values)
                }
                Kind::Other => handler.other(location, event.time, other_events::name(event.number)),
            };
            if flow.is_break() {
                merged.stopped = true;
                return merged;
            }
        };
        match next.or_else(|| advance(stream, place, &mut merged)) {
            Some(key) => heap[0] = key,
            None => {
                heap.swap_remove(0);
                if handler.end(location).is_break() {
                    merged.stopped = true;
                    return merged;
                }
            }
        }
        sift_down(&mut heap, 0);
    }
    merged
}

/// Makes the next event of a stream available and returns its key.
#[cold]
fn advance(stream: &mut Stream<'_>, place: usize, merged: &mut Merged) -> Option<Key> {
    if let Err(error) = stream.fill(&mut merged.records) {
        merged.faults.push((stream.location, error));
    }
    stream.batch.events.get(stream.next).map(|event| Key::new(event.time, place))
}

/// The smallest key but one, of none the largest there is.
#[inline]
fn runner_up(heap: &[Key]) -> Key {
    match *heap {
        [_, left, right, ..] => left.min(right),
        [_, only] => only,
        _ => Key(u128::MAX),
    }
}

/// Restores the order of a binary heap, least first, whose element `at` may be too large.
#[inline]
fn sift_down(heap: &mut [Key], mut at: usize) {
    let Some(&moving) = heap.get(at) else { return };
    loop {
        let mut child = 2 * at + 1;
        if child >= heap.len() {
            break;
        }
        if child + 1 < heap.len() {
            // Without a branch: which child is less cannot be predicted.
            child += usize::from(heap[child + 1] < heap[child]);
        }
        if moving <= heap[child] {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

/// An event names a class or an instance by a number; no number is both.
fn resolve(definitions: &Definitions, number: u32) -> MetricRef {
    let instance = MetricInstanceRef(number);
    match definitions.metric_instances.get(instance) {
        Some(defined) => MetricRef { class: defined.class, instance: Some(instance) },
        None => MetricRef { class: MetricClassRef(number), instance: None },
    }
}
