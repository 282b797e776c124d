//! Events of several locations in the order of time.
//!
//! The events of one stream are in order; a *merger* brings together the streams that one group of views needs, up to the
//! watermark: a time before which no further event is expected. The ranks of a node share a merger. Each device with GPU streams
//! has one more, because those report late and in batches: waiting for them must not hold the ranks back.
//!
//! The engine needs the order only around *breaks*: where a location starts or stops running (its outermost frame), and where a
//! sample ends an interval. From one break to the next, each location's events are handed over together; samples can be queued in
//! the engine, so that events are handed over up to the next break of a location.

use crate::attributor::Attributor;
use ampere_attribution::{Increase, LocationIndex, Step, ViewIndex};
use ampere_model::{RegionRef, Timestamp};
use std::collections::VecDeque;
use tournament::{Key, Tree};

/// The place of a stream's queue in a merger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueIndex(usize);

impl QueueIndex {
    /// The queue's place in a merger that has absorbed its own; [`Merger::absorb`] returned `by`.
    pub fn further(self, by: usize) -> QueueIndex {
        QueueIndex(self.0 + by)
    }
}

/// The streams that one group of views needs.
#[derive(Default)]
pub struct Merger {
    queues: Vec<Queue>,
    /// The watermark: everything before it has been handed to the engine.
    done_until: Timestamp,
}

/// The events of one stream that wait.
#[derive(Default)]
pub struct Queue {
    /// The location of the events; `None` if the queue has samples.
    location: Option<LocationIndex>,
    steps: Vec<Step>,
    /// The number of steps that have been handed over.
    done: usize,
    /// In a queue of samples, one entry for each step.
    samples: VecDeque<(ViewIndex, Increase)>,
    /// The positions of breaks in `steps`.
    breaks: VecDeque<usize>,
    /// Whether every step is a break.
    always_breaks: bool,
    /// The number of open frames after the last step.
    depth: usize,
    done_until: Timestamp,
    late: u64,
}

/// The capacity that an empty queue may keep, in steps.
const IDLE_STEPS_MAX: usize = 1 << 10;

impl Queue {
    /// Adds an enter. Within one queue, times must not go back. An enter may stand for several calls, or for 0 if it continues
    /// one that was counted before.
    #[inline]
    pub fn enter(&mut self, time: Timestamp, region: RegionRef, calls: u32) {
        if self.depth == 0 || self.always_breaks {
            self.breaks.push_back(self.steps.len());
        }
        self.depth += 1;
        self.put(Step::enter(time, region, calls));
    }

    /// Adds a leave of the innermost frame.
    #[inline]
    pub fn leave(&mut self, time: Timestamp) {
        if self.depth == 1 || self.always_breaks {
            self.breaks.push_back(self.steps.len());
        }
        self.depth = self.depth.saturating_sub(1);
        self.put(Step::leave(time));
    }

    /// Leaves every open frame of the queue.
    pub fn close(&mut self, time: Timestamp) {
        while self.depth > 0 {
            self.leave(time);
        }
    }

    /// Makes every step a break, including those that wait.
    fn always_break(&mut self) {
        self.always_breaks = true;
        self.breaks = (self.done..self.steps.len()).collect();
    }

    /// Adds a device's sample for one of its views.
    pub fn sample(&mut self, time: Timestamp, view: ViewIndex, increase: Increase) {
        self.breaks.push_back(self.steps.len());
        self.samples.push_back((view, increase));
        self.put(Step::leave(time));
    }

    #[inline]
    fn put(&mut self, step: Step) {
        // A late step still goes to the engine, which takes it as if it had happened now.
        self.late += u64::from(step.time < self.done_until);
        self.steps.push(step);
    }

    /// The time of the first step that waits.
    #[inline]
    fn first_time(&self) -> Option<Timestamp> {
        self.steps.get(self.done).map(|step| step.time)
    }

    /// The time of the first break that waits.
    #[inline]
    fn first_break_time(&self) -> Option<Timestamp> {
        self.breaks.front().and_then(|at| self.steps.get(*at)).map(|step| step.time)
    }

    /// Hands over the next break, and the steps before it.
    #[inline]
    fn pass_break(&mut self, into: &mut Attributor) {
        self.pass_run(Timestamp::MAX, into);
        let step = self.steps[self.done];
        match self.location {
            Some(location) => into.step(location, step),
            None => {
                let sample = self.samples.pop_front();
                sample.into_iter().for_each(|(view, increase)| into.sample(view, step.time, increase));
            }
        }
        self.breaks.pop_front();
        self.done += 1;
    }

    /// Hands over the steps before the next break and before `end`.
    #[inline]
    fn pass_run(&mut self, end: Timestamp, into: &mut Attributor) {
        let Some(location) = self.location else { return };
        let next_break = self.breaks.front().copied().unwrap_or(self.steps.len());
        let waiting = &self.steps[self.done..next_break];
        let count = waiting.iter().position(|step| step.time >= end).unwrap_or(waiting.len());
        into.steps(location, &waiting[..count]);
        into.engine.pass_queued_samples(location);
        self.done += count;
    }

    /// Queues the next break in the engine if it is a sample that can be queued. Returns whether it was.
    fn enqueue_sample(&mut self, into: &mut Attributor) -> bool {
        let step = self.steps[self.done];
        let sample = self.samples.front().filter(|_| self.location.is_none());
        let is_queued =
            sample.is_some_and(|(view, increase)| into.enqueue_sample(*view, step.time, *increase));
        if is_queued {
            self.samples.pop_front();
            self.breaks.pop_front();
            self.done += 1;
        }
        is_queued
    }

    /// Releases the steps that have been handed over, once they are the greater part.
    fn tidy(&mut self) {
        if self.done > self.steps.len() / 2 {
            self.steps.drain(..self.done);
            self.breaks.iter_mut().for_each(|at| *at -= self.done);
            self.done = 0;
        }
        if self.steps.is_empty() && self.steps.capacity() > IDLE_STEPS_MAX {
            self.steps = Vec::new(); // the location has ended, or has few events
        }
    }
}

impl Merger {
    /// Adds the stream of a location's events.
    pub fn add_location(&mut self, location: LocationIndex) -> QueueIndex {
        self.add(Queue { location: Some(location), ..Queue::default() })
    }

    /// Adds a stream of samples.
    pub fn add_counter(&mut self) -> QueueIndex {
        self.add(Queue::default())
    }

    fn add(&mut self, queue: Queue) -> QueueIndex {
        self.queues.push(Queue { done_until: self.done_until, ..queue });
        QueueIndex(self.queues.len() - 1)
    }

    /// The queue of a stream.
    #[inline]
    pub fn queue(&mut self, queue: QueueIndex) -> &mut Queue {
        &mut self.queues[queue.0]
    }

    /// Takes in another merger with all that waits there. Returns by how much the places of its queues increase.
    pub fn absorb(&mut self, other: Merger) -> usize {
        let before = self.queues.len();
        self.queues.extend(other.queues);
        // No view was in both, so none sees time go back; what is late for either is late.
        self.set_done_until(self.done_until.max(other.done_until));
        before
    }

    /// The number of events that came after their time had been handed over.
    pub fn late(&self) -> u64 {
        self.queues.iter().map(|queue| queue.late).sum()
    }

    /// Puts the frames of `samples` on the location where calls of the same thread are recorded: from now on the frames of each
    /// depend on all steps of the other.
    pub fn put_samples_on(
        &mut self,
        samples: (LocationIndex, QueueIndex),
        recorded: (LocationIndex, QueueIndex),
        into: &mut Attributor,
    ) {
        into.put_samples_on(samples.0, recorded.0);
        [samples, recorded].iter().for_each(|(_, queue)| self.queue(*queue).always_break());
    }

    /// The number of steps that wait.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.steps.len() - queue.done).sum()
    }

    /// Hands everything before `watermark` to the engine, with breaks in order.
    pub fn advance(&mut self, watermark: Timestamp, into: &mut Attributor) {
        let mut fronts = Tree::new(self.queues.iter().map(Queue::first_time));
        let mut breaks = Tree::new(self.queues.iter().map(Queue::first_break_time));
        let queues = &mut self.queues;
        loop {
            // Samples are queued up to the next location that starts or stops running.
            let next = loop {
                let next = breaks.first().filter(|next| next.time < watermark);
                let Some(sample) = next.filter(|next| queues[next.place].enqueue_sample(into)) else {
                    break next;
                };
                fronts.set(sample.place, queues[sample.place].first_time());
                breaks.set(sample.place, queues[sample.place].first_break_time());
            };
            let end = next.map_or(watermark, |next| next.time);
            // Locations are visited by place, not by time, because the engine does not need it: what neighbours need is adjacent
            // in memory.
            fronts.pass_before(end, &mut |place| {
                queues[place].pass_run(end, into);
                queues[place].first_time()
            });
            into.take_queued_samples();
            let Some(Key { place, .. }) = next else { break };
            queues[place].pass_break(into);
            fronts.set(place, queues[place].first_time());
            breaks.set(place, queues[place].first_break_time());
        }
        self.queues.iter_mut().for_each(Queue::tidy);
        self.set_done_until(self.done_until.max(watermark));
    }

    fn set_done_until(&mut self, time: Timestamp) {
        self.done_until = time;
        self.queues.iter_mut().for_each(|queue| queue.done_until = time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributor::{FoundDevice, LocationInfo, ViewKind};
    use crate::topology::Evidence;
    use ampere_attribution::{CallpathRow, ViewTotals};
    use ampere_model::{LocationKind, Quality, Region, RegionHandle};
    use ampere_settings::Config;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use scorep_abi::{paradigm, region_type};

    fn attributor() -> (Attributor, [LocationIndex; 2]) {
        let mut attributor = Attributor::new(Config::default(), 1000);
        attributor.add_device(FoundDevice {
            node: "n".to_owned(),
            metric: "estimate:::energy".to_owned(),
            source: "estimate".to_owned(),
            quality: Quality::Estimated,
            joules_per_unit: Some(1.0),
        });
        let location = |rank| LocationInfo {
            node: "n".to_owned(),
            group: format!("MPI Rank {rank}"),
            name: "Master thread".to_owned(),
            kind: LocationKind::CpuThread,
            rank: Some(rank),
            main: true,
        };
        let locations = [attributor.add_location(location(0)), attributor.add_location(location(1))];
        (attributor, locations)
    }

    /// The same events, handed over in any batches, give the same figures to the last bit.
    #[test]
    fn figures_do_not_depend_on_the_batches() {
        let results: Vec<_> = [1, 7, 50, 1000]
            .into_iter()
            .map(|batch| {
                let (mut attributor, locations) = attributor();
                let view = attributor.devices[0].view(ViewKind::Ranks);
                let mut merger = Merger::default();
                let queues = locations.map(|location| merger.add_location(location));
                let samples = merger.add_counter();
                for step in 0..1000u64 {
                    let time = step * 3;
                    for (at, queue) in queues.iter().enumerate() {
                        let (time, queue) = (time + at as u64, merger.queue(*queue));
                        if (step + at as u64).is_multiple_of(2) {
                            queue.enter(time, RegionRef((step % 5) as u32), 1);
                        } else {
                            queue.leave(time);
                        }
                    }
                    if step % 4 == 0 {
                        let joules = (2 * step) as f64;
                        merger.queue(samples).sample(time, view, Increase::Joules(joules));
                    }
                    if step % batch == 0 {
                        merger.advance(time.saturating_sub(10), &mut attributor);
                    }
                }
                merger.advance(Timestamp::MAX, &mut attributor);
                assert_eq!((merger.late(), merger.waiting()), (0, 0));
                assert_eq!(attributor.engine.oddities().late, 0);
                attributor.engine.report(view).callpaths
            })
            .collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn an_absorbed_merger_loses_no_event() {
        let (mut attributor, locations) = attributor();
        let (mut merger, mut other) = (Merger::default(), Merger::default());
        let (first, second) = (merger.add_location(locations[0]), other.add_location(locations[1]));
        merger.queue(first).enter(10, RegionRef(0), 1);
        other.queue(second).enter(5, RegionRef(1), 1);
        let second = second.further(merger.absorb(other));
        merger.queue(second).leave(20);
        merger.queue(first).leave(30);
        merger.advance(Timestamp::MAX, &mut attributor);
        assert_eq!((merger.late(), merger.waiting(), attributor.engine.oddities().late), (0, 0, 0));
        assert!(locations.iter().all(|location| !attributor.engine.is_open(*location)));
    }

    fn region(attributor: &mut Attributor, name: &str, paradigm: i32, kind: i32) -> RegionRef {
        attributor.regions.add(&Region {
            handle: RegionHandle(0),
            name: name.to_owned(),
            canonical_name: name.to_owned(),
            source_file: String::new(),
            begin_line: 0,
            end_line: 0,
            region_type: kind as u8,
            paradigm: paradigm as u8,
        })
    }

    /// Computes the joules of threads whose stacks are sampled and whose calls are recorded. The first thread has the program's
    /// frame, the other, like OpenMP's threads, has none. Each event: the time since the previous one, the thread, whether it is
    /// one of its samples, and what it is.
    fn joules_of_threads(events: &[(u64, usize, bool, u8)], batch: u64) -> (Vec<CallpathRow>, ViewTotals) {
        let (mut attributor, recorded) = attributor();
        let program = region(&mut attributor, "a.out", paradigm::MEASUREMENT, region_type::ARTIFICIAL);
        let functions = ["f", "g"].map(|name| region(&mut attributor, name, paradigm::SAMPLING, 0));
        let in_call = region(&mut attributor, "(recorded call)", paradigm::SAMPLING, region_type::ARTIFICIAL);
        let calls = ["parallel", "for"].map(|name| region(&mut attributor, name, paradigm::OPENMP, 0));
        let mut merger = Merger::default();
        let counter = merger.add_counter();
        let queues = [0, 1].map(|thread| {
            let info = LocationInfo { name: "sampled".to_owned(), ..attributor.locations[thread].clone() };
            let samples = attributor.add_samples(info, Evidence::default());
            let [of_samples, on] =
                [samples, recorded[thread]].map(|location| (location, merger.add_location(location)));
            merger.put_samples_on(of_samples, on, &mut attributor);
            [on.1, of_samples.1]
        });
        merger.queue(queues[0][0]).enter(0, program, 1);
        queues.iter().for_each(|queues| merger.queue(queues[1]).enter(0, program, 0));
        let view = attributor.devices[0].view(ViewKind::Ranks);
        let (mut depths, mut time, mut sampled) = ([[1, 1], [0, 1]], 0, 0);
        for (wait, thread, is_sample, what) in events {
            time += wait;
            while sampled < time {
                let increase =
                    if sampled == 0 { Increase::First } else { Increase::Joules(0.1 * sampled as f64) };
                merger.queue(counter).sample(sampled, view, increase);
                sampled += 10;
            }
            let depth = &mut depths[*thread][usize::from(*is_sample)];
            let least = usize::from(*is_sample || *thread == 0);
            let queue = merger.queue(queues[*thread][usize::from(*is_sample)]);
            let entered = match (*is_sample, *what) {
                (true, 0) => in_call,
                (true, _) => functions[usize::from(*what) % 2],
                (false, _) => calls[usize::from(*what) % 2],
            };
            match what % 3 == 2 {
                true if *depth > least => (queue.leave(time), *depth -= 1).1,
                _ => (queue.enter(time, entered, 1), *depth += 1).1,
            }
            if batch > 0 && time.is_multiple_of(batch) {
                merger.advance(time, &mut attributor);
            }
        }
        queues.iter().flatten().for_each(|queue| merger.queue(*queue).close(time + 1));
        merger.advance(Timestamp::MAX, &mut attributor);
        assert_eq!((merger.late(), attributor.engine.oddities().late), (0, 0));
        let mut report = attributor.engine.report(view);
        report.callpaths.sort_by(|a, b| (a.location, &a.path).cmp(&(b.location, &b.path)));
        (report.callpaths, report.totals)
    }

    proptest! {
        #[test]
        fn joules_of_sampled_threads_do_not_depend_on_the_batches(
            events in vec((0u64..12, 0usize..2, any::<bool>(), 0u8..6), 1..80),
        ) {
            let at_once = joules_of_threads(&events, 0);
            let totals = at_once.1;
            prop_assert!(totals.conservation_error_joules <= 1e-9 * totals.total_joules.max(1.0));
            prop_assert_eq!(&at_once, &joules_of_threads(&events, 1));
            prop_assert_eq!(&at_once, &joules_of_threads(&events, 7));
        }
    }

    #[test]
    fn late_events_are_counted() {
        let (mut attributor, locations) = attributor();
        let mut merger = Merger::default();
        let queue = merger.add_location(locations[0]);
        merger.queue(queue).enter(10, RegionRef(0), 1);
        merger.advance(20, &mut attributor);
        merger.queue(queue).leave(15);
        assert_eq!(merger.late(), 1);
    }
}
