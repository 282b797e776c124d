//! From the rings into the lanes: records are copied out, spooled and decoded.

use crate::ingest::process::LiveLocation;
use crate::live::{BATCH, LiveRun, RANKS, Round};
use ampere_attribution::Sample;
use ampere_model::numbers::Handles;
use ampere_model::{LocationKind, RegionRef, Timestamp};
use ampere_ring::Record;
use ampere_ring::decoder::{Decoder, Event};
use ampere_timeline::attributor::Attributor;
use ampere_timeline::order::Queue;
use ampere_trace::spool::Spool;
use std::time::{Duration, Instant};

/// What is handed over waits no longer than this for a counter to confirm a rise.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// A ring that is no fuller waits for its turn.
const HARDLY_FILLED: f64 = 1.0 / 64.0;

impl LiveRun {
    /// All rings, or only those that would not have room for long.
    pub(crate) fn drain_all(&mut self, thorough: bool) -> Round {
        let mut round = Round::default();
        self.behind = None;
        let mut batch = std::mem::take(&mut self.batch);
        for at in 0..self.processes.len() {
            for location in 0..self.processes[at].locations.len() {
                let live = &mut self.processes[at].locations[location];
                if live.damaged || live.closed {
                    continue;
                }
                let fill = live.ring.fill_ratio();
                live.fullest = live.fullest.max(fill);
                round.fullest = round.fullest.max(fill);
                if !thorough && fill < HARDLY_FILLED {
                    continue;
                }
                round.records += self.drain_location(at, location, &mut batch);
            }
        }
        self.batch = batch;
        round
    }

    pub(crate) fn drain_location(
        &mut self,
        process: usize,
        location: usize,
        batch: &mut Vec<Record>,
    ) -> usize {
        if self.processes[process].locations[location].index.is_none() {
            return 0; // the attributor gets to know it first
        }
        let mut total = 0;
        loop {
            match self.processes[process].locations[location].drain(batch, BATCH) {
                Ok(count) => {
                    total += count;
                    self.decode(process, location, batch);
                    // A full batch may have more behind it; not for ever, the others wait.
                    if count < BATCH {
                        return total;
                    }
                    if total >= 4 * BATCH {
                        self.stays_behind(process, location);
                        return total;
                    }
                }
                Err(why) => {
                    self.decode(process, location, batch);
                    self.note(why);
                    if self.processes[process].locations[location].damaged
                        && let Some(clock) = self.clock
                    {
                        // Or what it was in would have the energy of all that follows.
                        let now = clock.now(&self.session);
                        self.end_frames(process, location, now);
                    }
                    return total;
                }
            }
        }
    }

    /// What is left in a ring is not late: the others wait for it.
    fn stays_behind(&mut self, process: usize, location: usize) {
        let live = &mut self.processes[process].locations[location];
        // Nobody but its own lane waits for a GPU stream, and that one does anyway.
        if live.definition.kind == LocationKind::CpuThread && live.waiting() > 0 {
            let reached = live.stream.last_time();
            self.behind = Some(self.behind.map_or(reached, |least| least.min(reached)));
        }
    }

    /// Records of one location become events in its lane.
    pub(crate) fn decode(&mut self, process: usize, location: usize, batch: &[Record]) {
        let Some(attributor) = &mut self.attributor else { return };
        let process = &mut self.processes[process];
        let mut done = 0;
        loop {
            let LiveLocation { stream, queue, events, .. } = &mut process.locations[location];
            let queue = queue.map(|(lane, queue)| self.lanes[lane].queue(queue));
            let decoder = QueueFeeder { regions: &mut process.regions, stream, queue, events };
            done += decoder.take(&batch[done..], &mut process.program_end);
            let Some(unknown) = batch.get(done) else { return };
            // Its region's definition was written before the event was: it is in the log by now.
            if process.looks_for_definitions() {
                process.read_log(&self.spool);
            }
            process.tell_new_regions(&mut attributor.regions);
            let handle = unknown.argument();
            if process.regions.get(handle).is_none() {
                if process.may_be_undefined() {
                    let unknown = attributor.regions.add_unknown(handle);
                    process.add_region(handle, unknown, &attributor.regions);
                } else {
                    process.regions.pretend(handle, attributor.regions.add_unknown(u32::MAX));
                }
            }
        }
    }

    pub(crate) fn drain_samples(&mut self) {
        // As much as there was when it began, and no more at a time than of any other ring.
        let waiting = self.samples.as_mut().map_or(0, |samples| samples.ring.available().unwrap_or(0));
        for _ in 0..waiting.div_ceil(BATCH as u64).max(1) {
            self.drain_some_samples();
        }
    }

    fn drain_some_samples(&mut self) {
        let Some(samples) = &mut self.samples else { return };
        if samples.catching_up.is_some() && samples.spool.as_ref().is_some_and(Spool::is_cut) {
            return; // they stay in the ring until their turn has come
        }
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        let position = samples.ring.position();
        let copied = samples.ring.copy_out(&mut batch, BATCH);
        if let Ok(count) = copied {
            let spooled = samples.spool.as_mut().map(|spool| spool.write(position, &batch));
            if samples.catching_up.is_some() && matches!(spooled, Some(Err(_))) {
                self.batch = batch;
                return; // they stay in the ring until their turn has come
            }
            samples.ring.release(count);
            if let Some(Err(error)) = spooled {
                self.notes.push(format!(
                    "cannot write {}: {error}; the trace has no more samples",
                    self.spool.directory.display()
                ));
            }
            if samples.catching_up.is_none() {
                self.take_samples(position, &batch);
            }
        }
        self.batch = batch;
    }

    /// Records of the sampler's, the first of which has this position.
    pub(crate) fn take_samples(&mut self, position: u64, records: &[Record]) {
        let (Some(samples), Some(attributor)) = (&mut self.samples, &mut self.attributor) else { return };
        let devices = &mut attributor.devices;
        for (position, record) in (position..).zip(records) {
            samples.stream.decode(*record, &mut |event| {
                let Event::Sample(time, number, bits) = event else { return };
                let Some(device) = samples.devices.get(number as usize).copied().flatten() else { return };
                samples.span = Some((samples.span.map_or(time, |(first, _)| first), time));
                devices[device].read(time, samples.metrics[number as usize].reading(bits), position);
            });
        }
        self.queue_samples();
    }

    /// Puts the samples that have become known into the lanes.
    pub(crate) fn queue_samples(&mut self) {
        let (Some(samples), Some(attributor)) = (&mut self.samples, &mut self.attributor) else { return };
        let (lanes, devices) = (&mut self.lanes, &mut attributor.devices);
        for device in samples.devices.iter().flatten().copied() {
            let (ranks, kernels) = (devices[device].ranks, devices[device].kernels);
            let of_ranks = samples.rank_queues[device];
            // Where there can be no stream there is nobody to wait for.
            let (lane, queue) = samples.kernel_queues[device].unwrap_or((RANKS, of_ranks));
            while let Some(Sample { time, increase, tag }) = devices[device].sample() {
                samples.gaps.sample(tag, device, time, increase);
                lanes[RANKS].queue(of_ranks).sample(time, ranks, increase);
                lanes[lane].queue(queue).sample(time, kernels, increase);
            }
        }
    }

    /// Up to when everything may be handed over: not beyond a sample that may still come. Who looks at a live run cannot wait
    /// for a counter that moves seldom.
    pub(crate) fn decided_until(&mut self, watermark: Timestamp) -> Timestamp {
        let (Some(attributor), Some(clock)) = (&mut self.attributor, self.clock) else { return watermark };
        // Of a replay, time stands still when all has been played.
        if self.waits_at.is_none_or(|(at, _)| at != watermark) {
            self.waits_at = Some((watermark, Instant::now()));
        }
        let stands_still = self.waits_at.is_some_and(|(_, since)| since.elapsed() > LONGEST_WAIT);
        let must_not_wait = !clock.is_told() || stands_still;
        let wait = if stands_still { 0 } else { clock.ticks(LONGEST_WAIT) };
        let earliest = watermark.saturating_sub(wait);
        if must_not_wait && attributor.undecided_since() < earliest {
            for device in &mut attributor.devices {
                device.counter_mut().decide_before(earliest);
            }
            self.queue_samples();
        }
        let undecided = self.attributor.as_ref().map_or(Timestamp::MAX, Attributor::undecided_since);
        let undecided = if must_not_wait { undecided.max(earliest) } else { undecided };
        watermark.min(undecided)
    }
}

/// Makes events of one location's records.
struct QueueFeeder<'a> {
    regions: &'a mut Handles,
    stream: &'a mut Decoder,
    queue: Option<&'a mut Queue>,
    events: &'a mut u64,
}

impl QueueFeeder<'_> {
    /// Returns how many were taken: all, or those before the first whose region is not known.
    fn take(mut self, records: &[Record], program_end: &mut Option<Timestamp>) -> usize {
        for (at, record) in records.iter().enumerate() {
            let region = match record.begun_region() {
                None => RegionRef(0),
                Some(handle) => match self.regions.get(handle) {
                    Some(region) => region,
                    None => return at,
                },
            };
            let QueueFeeder { stream, queue, events, .. } = &mut self;
            if let Some(event) = stream.decode_common(*record) {
                put(event, region, queue.as_deref_mut(), events);
                continue;
            }
            stream.decode_any(*record, &mut |event| match event {
                Event::ProgramEnd(time) => *program_end = Some(time),
                event => put(event, region, queue.as_deref_mut(), events),
            });
        }
        records.len()
    }
}

#[inline(always)]
fn put(event: Event, region: RegionRef, queue: Option<&mut Queue>, events: &mut u64) {
    *events += u64::from(matches!(event, Event::Enter(..) | Event::EnterCoalesced(..) | Event::Leave(..)));
    let Some(queue) = queue else { return };
    match event {
        Event::Enter(time, _) => queue.enter(time, region, 1),
        Event::EnterCoalesced(time, _, calls) => queue.enter(time, region, calls),
        Event::Leave(time, _) => queue.leave(time),
        Event::Sample(..) | Event::ProgramEnd(_) => {}
    }
}
