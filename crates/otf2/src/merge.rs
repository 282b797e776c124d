//! The events of many locations in the order of time.
//!
//! OTF2 has a global reader that does this, and gives up as a whole when one location's file is damaged: at its first
//! event it does not even start, later it would deliver the last event once more if asked to go on. So here each location
//! is read by itself, some hundred events at a time, and the merge is ours. It delivers what OTF2's would, in the same
//! order: by time, at the same time by location, and within a location as in the file.

use crate::call::other_events;
use crate::call::reader::{BATCH, Event, EventReader, Kind};
use crate::definitions::{Definitions, MetricRef};
use crate::reader::EventHandler;
use crate::table::{LocationRef, MetricClassRef, MetricInstanceRef, RegionRef};

/// One location that is being read.
pub(crate) struct Stream<'a> {
    pub location: LocationRef,
    reader: EventReader<'a>,
    /// The next event in the batch.
    next: usize,
    /// Events that the file still has, and are not in the batch; unknown where all files are in one container.
    left: Option<u64>,
}

impl<'a> Stream<'a> {
    /// Of a file with that many events.
    pub(crate) fn new(location: LocationRef, reader: EventReader<'a>, events: Option<u64>) -> Stream<'a> {
        Stream { location, reader, next: 0, left: events }
    }

    #[inline]
    fn head(&self) -> Option<&Event> {
        self.reader.batch().events.get(self.next)
    }

    /// Reads until there is an event or the file ends. An error may leave events in the batch; after it the file ends.
    fn fill(&mut self, records: &mut u64) -> Result<(), String> {
        while self.next >= self.reader.batch().events.len() && self.left != Some(0) {
            self.next = 0;
            let asked = self.left.map_or(BATCH as u64, |left| left.min(BATCH as u64));
            let read = self.reader.read(asked);
            *records += *read.as_ref().unwrap_or(&(self.reader.batch().events.len() as u64));
            let known = self.left.replace(0);
            match read {
                Err(error) => return Err(error.to_string()),
                Ok(read) if read < asked => {
                    // The end. Where the number of events is known, it came too early.
                    return match known {
                        Some(left) => {
                            Err(format!("damaged: {} events fewer than it should have", left - read))
                        }
                        None => Ok(()),
                    };
                }
                Ok(read) => self.left = known.map(|left| left - read),
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

/// The key of a stream's next event, and the stream's place in the list. Ordered as written: time, then location.
type Key = (u64, u64, usize);

/// Delivers all events.
pub(crate) fn run<H: EventHandler + ?Sized>(
    streams: Vec<Stream<'_>>,
    definitions: &Definitions,
    handler: &mut H,
) -> Merged {
    let mut merged = Merged { delivered: 0, records: 0, stopped: false, faults: Vec::new() };
    let mut heap: Vec<Key> = Vec::with_capacity(streams.len());
    let mut streams: Vec<Option<Stream<'_>>> = streams.into_iter().map(Some).collect();
    for (place, slot) in streams.iter_mut().enumerate() {
        if let Some(key) = advance(slot, place, &mut merged) {
            heap.push(key);
        }
    }
    for place in (0..heap.len() / 2).rev() {
        sift_down(&mut heap, place);
    }
    while let Some(&(_, location, place)) = heap.first() {
        let limit = runner_up(&heap);
        let Some(stream) = &mut streams[place] else { break };
        // The location with the earliest event goes on until another one's is earlier.
        let next = loop {
            let batch = stream.reader.batch();
            let Some(event) = batch.events.get(stream.next) else { break None };
            if limit.is_some_and(|limit| (event.time, location) > limit) {
                break Some((event.time, location, place));
            }
            stream.next += 1;
            merged.delivered += 1;
            let location = stream.location;
            let flow = match event.kind {
                Kind::Enter => handler.enter(location, event.time, RegionRef(event.number)),
                Kind::Leave => handler.leave(location, event.time, RegionRef(event.number)),
                Kind::Metric => {
                    let start = event.values_start as usize;
                    let values =
                        batch.values.get(start..start + usize::from(event.values_len)).unwrap_or_default();
                    handler.metric(location, event.time, resolve(definitions, event.number), values)
                }
                Kind::Other => handler.other(location, event.time, other_events::name(event.number)),
            };
            if flow.is_break() {
                merged.stopped = true;
                return merged;
            }
        };
        match next.or_else(|| advance(&mut streams[place], place, &mut merged)) {
            Some(key) => heap[0] = key,
            None => {
                heap.swap_remove(0);
            }
        }
        sift_down(&mut heap, 0);
    }
    merged
}

/// Makes the next event of a stream available and returns its key. At the end the stream is closed, for its memory and
/// its open file.
fn advance(slot: &mut Option<Stream<'_>>, place: usize, merged: &mut Merged) -> Option<Key> {
    let stream = slot.as_mut()?;
    if let Err(error) = stream.fill(&mut merged.records) {
        merged.faults.push((stream.location, error));
    }
    match stream.head() {
        Some(event) => Some((event.time, stream.location.0, place)),
        None => {
            *slot = None;
            None
        }
    }
}

/// The smallest key but one.
fn runner_up(heap: &[Key]) -> Option<(u64, u64)> {
    let left = heap.get(1)?;
    let least = heap.get(2).map_or(left, |right| left.min(right));
    Some((least.0, least.1))
}

/// Restores the order of a binary heap, least first, whose element `at` may be too large.
fn sift_down(heap: &mut [Key], mut at: usize) {
    loop {
        let mut least = at;
        for child in [2 * at + 1, 2 * at + 2] {
            if child < heap.len() && heap[child] < heap[least] {
                least = child;
            }
        }
        if least == at {
            return;
        }
        heap.swap(at, least);
        at = least;
    }
}

/// An event names a class or an instance by a number; no number is both.
fn resolve(definitions: &Definitions, number: u32) -> MetricRef {
    let instance = MetricInstanceRef(number);
    match definitions.metric_instances.get(instance) {
        Some(defined) => MetricRef { class: defined.class, instance: Some(instance) },
        None => MetricRef { class: MetricClassRef(number), instance: None },
    }
}
