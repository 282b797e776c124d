//! Copies records out of the rings, decodes them, and feeds the events to the pipeline.

use super::{Ingest, Round};
use crate::ingest::limits;
use crate::ingest::location::{LiveLocation, Place};
use crate::ingest::ring_reader::RingReader;
use crate::live_timeline::LiveTimeline;
use crate::live_waits::Feeder;
use crate::notes::Notes;
use crate::options::BATCH;
use crate::sampling::samples::Samples;
use ampere_model::numbers::Handles;
use ampere_model::{LocationKind, RegionRef, Timestamp};
use ampere_ring::decoder::{Decoder, Event};
use ampere_ring::{Kind, Record};
use ampere_timeline::pipeline::Stream;
use ampere_trace::write::{CpuTimeOf, SampledFrames};

/// A ring that is less full than this is only read in thorough rounds.
const HARDLY_FILLED_MAX: f64 = 1.0 / 64.0;
/// An upper bound on the batches that are taken from one ring in a round.
const BATCHES_MAX: usize = 4;

impl Ingest {
    /// Whether the records that were taken out of the rings, including the sampler's ring, must now be written to disk.
    pub fn is_spooling_due(&mut self, samples: Option<&Samples>) -> bool {
        samples.into_iter().for_each(|samples| self.unspooled.add(&samples.reader.ring));
        self.unspooled.is_due()
    }

    /// Whether a ring is so full that slots of records taken out of it must be freed at once.
    pub fn is_ring_pressed(&self) -> bool {
        self.unspooled.is_pressed
    }

    /// Drains all rings (`thorough`), or only those that are filling up. Locations that are given up end at `now`.
    pub fn drain_all(
        &mut self,
        timeline: &mut LiveTimeline,
        thorough: bool,
        now: Timestamp,
        notes: &mut Notes,
    ) -> Round {
        let mut round = Round { smallest: u64::MAX, ..Round::default() };
        timeline.behind = None;
        self.unspooled.begin_round();
        for process in 0..self.processes.len() {
            let is_sampled = self.processes[process].is_sampled();
            for location in 0..self.processes[process].locations.len() {
                let at = Place { process, location };
                let live = &mut self[at];
                if live.given_up || live.closed {
                    continue;
                }
                if !is_sampled {
                    round.smallest = round.smallest.min(live.reader.ring.capacity_records());
                }
                let fill = live.reader.ring.fill_ratio();
                live.fullest = live.fullest.max(fill);
                let waiting = live.reader.ring.waiting_ratio();
                round.fullest = round.fullest.max(waiting);
                // Only the program's own records make the next round start earlier. Records of CPU time can wait.
                let is_of_program = live.definition.kind != LocationKind::CpuTime;
                if thorough || waiting >= HARDLY_FILLED_MAX {
                    let taken = self.drain_location(at, timeline, now, notes);
                    round.records += if is_of_program { taken } else { 0 };
                }
                self.unspooled.add(&self.processes[process].locations[location].reader.ring);
            }
        }
        round
    }

    /// Returns the number of records that were taken.
    pub fn drain_location(
        &mut self,
        at: Place,
        timeline: &mut LiveTimeline,
        now: Timestamp,
        notes: &mut Notes,
    ) -> usize {
        if self[at].index.is_none() {
            return 0; // the attributor must know the location first
        }
        let mut batch = std::mem::take(&mut self.batch);
        let mut total = 0;
        let quiet_until = self[at].reader.ring.quiet_until();
        loop {
            let drained = self[at].drain(&mut batch, BATCH);
            self.decode(at, &batch, timeline);
            match drained {
                Ok(count) => {
                    total += count;
                    // A full batch may be followed by more records.
                    if count < BATCH {
                        // While a killed collector is replaced, records are decoded later.
                        if let Some(index) = self[at].index.filter(|_| self[at].reader.catching_up.is_none())
                        {
                            timeline.pipeline.quiet_until(index, quiet_until);
                        }
                        break;
                    }
                    if total >= BATCHES_MAX * BATCH {
                        self.mark_behind(at, timeline);
                        break;
                    }
                }
                Err(why) => {
                    if !self[at].given_up {
                        notes.add(why.to_string());
                    } else {
                        notes.add_loss(why.to_string());
                        // Otherwise the open frame would be charged for everything after it.
                        self.end_frames(at, now, timeline);
                    }
                    break;
                }
            }
        }
        self.batch = batch;
        total
    }

    /// Makes other streams wait for the records that are left in a ring, so that these are not late.
    fn mark_behind(&mut self, at: Place, timeline: &mut LiveTimeline) {
        let live = &mut self[at];
        // For a GPU stream, this is not needed: only its own merger waits for it, and does so in any case.
        let is_waited_for = matches!(live.definition.kind, LocationKind::CpuThread | LocationKind::CpuTime);
        if is_waited_for && live.waiting() > 0 {
            let reached = live.reader.decoder.last_time();
            timeline.behind = Some(timeline.behind.map_or(reached, |least| least.min(reached)));
        }
    }

    /// Decodes records of one location to events of its stream.
    pub fn decode(&mut self, at: Place, batch: &[Record], timeline: &mut LiveTimeline) {
        let is_sampled = self[at].samples != SampledFrames::None;
        let mut done = 0;
        loop {
            timeline.waits.add_regions(&mut timeline.pipeline.attributor);
            let process = &mut self.processes[at.process];
            let LiveLocation {
                reader: RingReader { decoder, .. }, index, events, cpu_time, cpu_time_of, ..
            } = &mut process.locations[at.location];
            let into = index.map(|index| (index, timeline.pipeline.stream_and_waiting(index)));
            let (stream, waits) = into.map_or((None, None), |(index, (stream, waiting))| {
                (stream, timeline.waits.feeder(index, waiting, &process.comms))
            });
            let (regions, cpu_times) = (&mut process.regions.figures, &mut self.cpu_times);
            let is_first = waits.is_none() && !process.has_communicated;
            let feeder = StreamFeeder {
                regions,
                decoder,
                stream,
                waits,
                stops_at_communication: is_first,
                events,
                cpu_times,
                is_sampled,
            };
            done += feeder.take(&batch[done..], &mut process.life.program_end);
            if let Some(index) = index.filter(|_| !self.cpu_times.is_empty()) {
                let total = self.cpu_totals.entry(index).or_default();
                for record in self.cpu_times.drain(..) {
                    cpu_time_of.get_or_insert(CpuTimeOf::Itself);
                    if total.is_late(cpu_time, record) {
                        timeline.pipeline.count_late_point();
                    }
                    total.add(cpu_time, record, |time, ns| {
                        timeline.pipeline.add_cpu_time(index, time, ns as f64 * 1e-9);
                    });
                }
            }
            let Some(unknown) = batch.get(done) else { return };
            if unknown.kind() == Some(Kind::Communication) {
                self.learn_communicator(at.process, unknown.argument(), timeline);
                continue;
            }
            let regions = &mut timeline.pipeline.attributor.regions;
            // The region's definition was written before the event, so it is in the log by now.
            if process.looks_for_definitions() {
                process.read_log(&self.spool);
            }
            process.define_new_regions(regions);
            let handle = unknown.argument();
            if process.regions.figures.get(handle).is_none() {
                if process.count_undefined() {
                    let unknown = regions.add_unknown(handle);
                    process.add_region(handle, unknown, regions);
                } else {
                    process.regions.figures.insert_temporarily(handle, regions.add_unknown(u32::MAX));
                }
            }
        }
    }

    /// Looks up the rank of a process and its communicator with this handle. Both are in the process' log before the first
    /// event that refers to the communicator.
    fn learn_communicator(&mut self, process: usize, handle: u32, timeline: &mut LiveTimeline) {
        let attributor = &mut timeline.pipeline.attributor;
        let of = &mut self.processes[process];
        of.has_communicated = true;
        if timeline.waits.is_off() {
            return;
        }
        of.read_log(&self.spool);
        timeline.waits.look(self, attributor);
        timeline.waits.learn_communicator(&mut self.processes[process], handle, attributor);
    }

    pub fn end_frames(&mut self, at: Place, end: Timestamp, timeline: &mut LiveTimeline) {
        // The end of the location comes after all records of the ring.
        self.spool_location(at);
        let live = &mut self[at];
        if live.reader.decoder.is_open() {
            let record = Record::new(Kind::LocationEnd, end.max(live.reader.decoder.last_time()), 0);
            if let Some(spool) = &mut live.reader.spool {
                let _ = spool.append(record);
            }
            self.decode(at, &[record], timeline);
        }
    }

    /// Stops reading a location. Its open frames end here: otherwise they would be charged for everything after that.
    fn give_up(
        &mut self,
        at: Place,
        why: &str,
        timeline: &mut LiveTimeline,
        now: Timestamp,
        notes: &mut Notes,
    ) {
        let live = &mut self[at];
        live.give_up();
        notes.add_loss(format!("{} {why}: it is no longer read", live.reader.ring.path().display()));
        self.end_frames(at, now, timeline);
    }

    /// Stops reading locations whose call tree or stack grows without end.
    pub fn look_at_callpaths(&mut self, timeline: &mut LiveTimeline, now: Timestamp, notes: &mut Notes) {
        for at in self.places() {
            let live = &mut self[at];
            let is_looked_at = !live.given_up && !live.is_cpu_time_of_another();
            let Some(index) = live.index.filter(|_| is_looked_at) else { continue };
            let callpaths = timeline.pipeline.attributor.engine.callpaths_of(index);
            let before = std::mem::replace(&mut live.callpaths, callpaths);
            let depth = live.reader.decoder.depth();
            let why = self.callpaths.grew(before, callpaths).or_else(|| limits::too_deep(depth));
            if let Some(why) = why {
                self.give_up(at, &why, timeline, now, notes);
            }
        }
    }

    /// Reduces the number of events that wait in the pipeline. If they wait for a silent GPU stream, the wait for streams is
    /// halved. Otherwise, rings that were not emptied are no longer waited for. A location with events in the future, which would
    /// wait until then, is not read any further.
    pub fn reduce_waiting_events(
        &mut self,
        timeline: &mut LiveTimeline,
        now: Timestamp,
        future: Timestamp,
        notes: &mut Notes,
    ) {
        if timeline.pipeline.waiting_for_ranks() < limits::WAITING_MAX / 2 {
            timeline.stream_lag_factor /= 2.0;
            notes.add(
                "too many GPU events are queued behind idle streams: the wait was shortened. Later events count as late and are \
                 corrected at the end of the run",
            );
        } else {
            timeline.behind = None;
        }
        for at in self.places() {
            if !self[at].given_up && self[at].reader.decoder.last_time() > future {
                let why = "has events with times in the future";
                self.give_up(at, why, timeline, now, notes);
            }
        }
    }
}

/// Decodes one location's records to events.
struct StreamFeeder<'a> {
    regions: &'a mut Handles,
    decoder: &'a mut Decoder,
    stream: Option<&'a mut Stream>,
    waits: Option<Feeder<'a>>,
    /// Whether the rank of the process is looked up at its first event of communication.
    stops_at_communication: bool,
    events: &'a mut u64,
    cpu_times: &'a mut Vec<(Timestamp, u32, u64)>,
    /// Whether the frames are samples, so that the number of calls is unknown.
    is_sampled: bool,
}

impl StreamFeeder<'_> {
    /// Returns the number of records that were taken: all, or those before the first with an unknown region or communicator.
    fn take(mut self, records: &[Record], program_end: &mut Option<Timestamp>) -> usize {
        let mut at = 0;
        while let Some(record) = records.get(at) {
            if let Some((count, is_known)) = self.communicate(&records[at..]) {
                if !is_known {
                    return at;
                }
                at += count;
                continue;
            }
            let region = match record.begun_region() {
                None => RegionRef(0),
                Some(handle) => match self.regions.get(handle) {
                    Some(region) => region,
                    None => return at,
                },
            };
            let StreamFeeder { decoder, stream, waits, events, cpu_times, is_sampled, .. } = &mut self;
            let calls = u32::from(!*is_sampled);
            at += 1;
            if let Some(event) = decoder.decode_common(*record) {
                put_waits(event, region, waits);
                put(event, region, calls, stream.as_deref_mut(), events);
                continue;
            }
            decoder.decode_any(*record, &mut |event| match event {
                Event::ProgramEnd(time) => *program_end = Some(time),
                Event::CpuTime(time, rose_ticks, ns) => cpu_times.push((time, rose_ticks, ns)),
                event => {
                    put_waits(event, region, waits);
                    put(event, region, calls, stream.as_deref_mut(), events);
                }
            });
        }
        records.len()
    }

    /// Passes an event of communication to the live waits. No other live figure needs it. Returns the number of its records,
    /// and `false` if something must be looked up first. `None` if these records begin with another record, or if the event is
    /// incomplete.
    #[inline]
    fn communicate(&mut self, records: &[Record]) -> Option<(usize, bool)> {
        let Some(waits) = &mut self.waits else {
            return Some((self.decoder.skip_communication(records)?, !self.stops_at_communication));
        };
        let (event, count) = self.decoder.decode_communication(records)?;
        let Event::Communication(time, event) = event else { return Some((count, true)) };
        Some((count, waits.communicate(time, event)))
    }
}

#[inline(always)]
fn put_waits(event: Event, region: RegionRef, waits: &mut Option<Feeder>) {
    let Some(waits) = waits else { return };
    match event {
        Event::Enter(time, _) | Event::EnterCoalesced(time, ..) | Event::EnterCorrelated(time, ..) => {
            waits.enter(time, region);
        }
        Event::Leave(time, _) => waits.leave(time),
        Event::Communication(time, event) => _ = waits.communicate(time, event),
        _ => {}
    }
}

#[inline(always)]
fn put(event: Event, region: RegionRef, calls: u32, stream: Option<&mut Stream>, events: &mut u64) {
    *events += u64::from(event.is_of_frame());
    let Some(stream) = stream else { return };
    match event {
        Event::Enter(time, _) => stream.enter(time, region, calls),
        Event::EnterCoalesced(time, _, calls) => stream.enter(time, region, calls),
        Event::EnterCorrelated(time, _, id) => stream.enter_correlated(time, region, calls, id),
        Event::Leave(time, _) => stream.leave(time),
        Event::Counts(_, event, count) => stream.counts(event, count),
        Event::Sample(..)
        | Event::CpuTime(..)
        | Event::ProgramBegin(_)
        | Event::ProgramEnd(_)
        | Event::Communication(..) => {}
    }
}
