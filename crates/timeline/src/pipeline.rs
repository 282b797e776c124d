//! A run's events and samples in time order, on their way to the engine.
//!
//! Whatever reads events (rings, the spool, a trace) feeds the same pipeline: it puts the events of a location into that
//! location's stream, and a counter's readings into its device, and states up to which time everything has come.
//!
//! The events of one stream are in order; a *merger* brings together the streams that one group of views needs, up to the
//! watermark: a time before which no further event is expected. The ranks of a node share a merger. In a live run, each device
//! with GPU streams has one more, because those report late and in batches: waiting for them must not hold the ranks back.
//!
//! The engine needs the order only around *breaks*: where a location starts or stops running (its outermost frame), and where a
//! sample ends an interval. From one break to the next, each location's events are handed over together; samples can be queued in
//! the engine, so that events are handed over up to the next break of a location.

use crate::attributor::{Attributor, Unit};
use crate::gaps::Gaps;
use crate::waiting::Waiting;
use ampere_attribution::{Increase, LocationIndex, Sample, Step, ViewIndex};
use ampere_model::{LocationKind, RegionRef, Timestamp};
use std::collections::{BTreeSet, VecDeque};
use tournament::{Key, Tree};

/// The merger of the ranks views. The others are those of GPUs' kernels views.
const RANKS: usize = 0;

/// A run's streams and devices, and the attributor that their events and samples are handed to.
pub struct Pipeline {
    /// Receives the events and samples in order.
    pub attributor: Attributor,
    /// The intervals in which no counter was read.
    pub gaps: Gaps,
    streams: Vec<Stream>,
    /// Two entries for each device: the samples for the ranks view and those for the kernels view.
    samples: Vec<Samples>,
    mergers: Vec<Merger>,
    gpu_streams: GpuStreams,
    /// The number of late points of CPU time that no stream counts: those of other jobs, those that came after later points of
    /// their thread, and those of threads whose samples were put on recorded calls too late.
    late_points: u64,
}

/// When the events of GPU streams come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuStreams {
    /// The events come together with those of ranks, as in a trace.
    InTime,
    /// The events come late and in batches.
    Late,
}

/// The streams and samples that one group of views needs.
#[derive(Default)]
struct Merger {
    streams: Vec<usize>,
    samples: Vec<usize>,
    /// The watermark: everything before it has been handed to the engine.
    done_until: Timestamp,
}

/// The waiting samples of one view of a device.
struct Samples {
    view: ViewIndex,
    merger: usize,
    waiting: VecDeque<(Timestamp, Increase)>,
    late: u64,
}

/// The waiting events of one location.
pub struct Stream {
    location: LocationIndex,
    /// `None` for a GPU stream whose device is not known: its events are in no view.
    merger: Option<usize>,
    /// Whether the merger no longer waits for events of the stream.
    has_ended: bool,
    /// No event before this time will follow.
    quiet_until: Timestamp,
    steps: Vec<Step>,
    /// The number of steps that have been handed over.
    done: usize,
    /// The positions of breaks in `steps`.
    breaks: VecDeque<usize>,
    /// The positions of enters with a correlation id in `steps`, and the ids.
    ids: VecDeque<(usize, u64)>,
    /// For each count of events: the number of steps before it, the number of the event, and the count.
    counts: VecDeque<(usize, u32, u64)>,
    is_gpu: bool,
    /// Whether this is a GPU stream of which some enter had an id, so that all of its outermost frames should have one.
    expects_ids: bool,
    /// The number of outermost frames without an id where one was expected, or with one whose launch is not known.
    without_launch: u64,
    /// Whether every step is a break.
    always_breaks: bool,
    /// The number of open frames after the last step.
    depth: usize,
    last_released: Timestamp,
    done_until: Timestamp,
    /// The streams with stack samples of the location's thread.
    samples: Vec<usize>,
    /// The last point of the location's CPU time: the time, and the seconds.
    last_cpu_time: Option<(Timestamp, f64)>,
    late: u64,
}

/// The capacity that an empty stream may keep, in steps.
const IDLE_STEPS_MAX: usize = 1 << 10;

impl Stream {
    fn new(location: LocationIndex) -> Stream {
        Stream {
            location,
            merger: None,
            has_ended: false,
            quiet_until: 0,
            steps: Vec::new(),
            done: 0,
            breaks: VecDeque::new(),
            ids: VecDeque::new(),
            counts: VecDeque::new(),
            is_gpu: false,
            expects_ids: false,
            without_launch: 0,
            always_breaks: false,
            depth: 0,
            last_released: 0,
            done_until: 0,
            samples: Vec::new(),
            last_cpu_time: None,
            late: 0,
        }
    }

    /// Adds an enter. Within one stream, times must not go back. An enter may stand for several calls, or for 0 if it continues
    /// one that was counted before.
    #[inline]
    pub fn enter(&mut self, time: Timestamp, region: RegionRef, calls: u32) {
        if self.depth == 0 || self.always_breaks {
            self.breaks.push_back(self.steps.len());
            if self.expects_ids && self.depth == 0 {
                self.without_launch = self.without_launch.saturating_add(calls.into());
            }
        }
        self.depth += 1;
        self.put(Step::enter(time, region, calls));
    }

    /// Adds the enter of a call with a correlation id. On a thread, the call is a launch; on a GPU's stream, it is the
    /// work that was launched.
    pub fn enter_correlated(&mut self, time: Timestamp, region: RegionRef, calls: u32, id: u64) {
        self.expects_ids = false;
        self.ids.push_back((self.steps.len(), id));
        self.enter(time, region, calls);
        self.expects_ids = self.is_gpu;
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

    /// Adds how often an event has happened since the thread's last sample (see [`Attributor::count_events`]). The count belongs
    /// to the frame that is the innermost one after the last step. A GPU's stream has no such counts.
    pub fn counts(&mut self, event: u32, count: u64) {
        if !self.is_gpu {
            self.counts.push_back((self.steps.len(), event, count));
        }
    }

    /// Leaves every open frame.
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

    #[inline]
    fn put(&mut self, step: Step) {
        // A late step is still passed to the engine, which treats it as if it had happened now.
        self.late += u64::from(step.time < self.done_until);
        self.steps.push(step);
    }

    /// Whether some steps of the stream have been handed over.
    fn has_handed_over(&self) -> bool {
        self.done > 0 || self.last_released > 0
    }

    /// Returns the number of steps that wait.
    fn waiting(&self) -> usize {
        self.steps.len() - self.done
    }

    /// Returns the time before which no further event is expected.
    fn last_time(&self) -> Timestamp {
        self.steps.last().map_or(self.last_released, |step| step.time).max(self.quiet_until)
    }

    /// Returns the time of the first step that waits.
    #[inline]
    fn first_time(&self) -> Option<Timestamp> {
        self.steps.get(self.done).map(|step| step.time)
    }

    #[inline]
    fn first_break_time(&self) -> Option<Timestamp> {
        self.breaks.front().and_then(|at| self.steps.get(*at)).map(|step| step.time)
    }

    /// Hands over the next break, and the steps before it.
    #[inline]
    fn pass_break(&mut self, into: &mut Attributor) {
        self.pass_run(Timestamp::MAX, into);
        match self.id_before(self.done + 1) {
            Some((at, id)) => self.pass_correlated(at, id, into),
            None => into.step(self.location, self.steps[self.done]),
        }
        self.breaks.pop_front();
        self.done += 1;
        self.pass_counts(into);
    }

    /// Hands over the counts that follow the steps that have been handed over.
    #[inline]
    fn pass_counts(&mut self, into: &mut Attributor) {
        while let Some((_, event, count)) = self.counts.front().copied().filter(|(at, ..)| *at <= self.done) {
            self.counts.pop_front();
            into.count_events(self.location, event, count);
        }
    }

    /// Takes the next correlation id and its position, if that is before `end`.
    #[inline]
    fn id_before(&mut self, end: usize) -> Option<(usize, u64)> {
        let first = self.ids.front().copied().filter(|(at, _)| *at < end)?;
        self.ids.pop_front();
        Some(first)
    }

    fn pass_correlated(&mut self, at: usize, id: u64, into: &mut Attributor) {
        let is_known = into.correlated_step(self.location, self.steps[at], id);
        self.without_launch = self.without_launch.saturating_add(u64::from(!is_known));
    }

    /// Hands over the steps before the next break and before `end`.
    #[inline]
    fn pass_run(&mut self, end: Timestamp, into: &mut Attributor) {
        let next_break = self.breaks.front().copied().unwrap_or(self.steps.len());
        let waiting = &self.steps[self.done..next_break];
        let count = waiting.iter().position(|step| step.time >= end).unwrap_or(waiting.len());
        let end = self.done + count;
        self.pass_counts(into);
        // Steps after a count must not be handed over before it.
        while let Some((at, ..)) = self.counts.front().copied().filter(|(at, ..)| *at <= end) {
            self.pass_steps(at, into);
            self.pass_counts(into);
        }
        self.pass_steps(end, into);
        into.engine.pass_queued_samples(self.location);
    }

    /// Hands over the steps before a position.
    #[inline]
    fn pass_steps(&mut self, end: usize, into: &mut Attributor) {
        while let Some((at, id)) = self.id_before(end) {
            into.steps(self.location, &self.steps[self.done..at]);
            self.pass_correlated(at, id, into);
            self.done = at + 1;
        }
        into.steps(self.location, &self.steps[self.done..end]);
        self.done = end;
    }

    /// Releases the steps that have been handed over, once they are more than half of all steps.
    fn release_steps(&mut self) {
        if self.done > self.steps.len() / 2 {
            self.last_released = self.steps[self.done - 1].time;
            self.steps.drain(..self.done);
            self.breaks.iter_mut().for_each(|at| *at -= self.done);
            self.ids.iter_mut().for_each(|(at, _)| *at -= self.done);
            self.counts.iter_mut().for_each(|(at, ..)| *at = at.saturating_sub(self.done));
            self.done = 0;
        }
        if self.steps.is_empty() && self.steps.capacity() > IDLE_STEPS_MAX {
            self.steps = Vec::new(); // the location has ended, or has few events
        }
    }
}

impl Samples {
    fn put(&mut self, time: Timestamp, increase: Increase, done_until: Timestamp) {
        self.late += u64::from(time < done_until);
        self.waiting.push_back((time, increase));
    }

    #[inline]
    fn first_time(&self) -> Option<Timestamp> {
        self.waiting.front().map(|(time, _)| *time)
    }

    /// Queues the next sample in the engine. Returns `false` if that is impossible.
    fn enqueue(&mut self, into: &mut Attributor) -> bool {
        let is_queued = self
            .waiting
            .front()
            .is_some_and(|(time, increase)| into.enqueue_sample(self.view, *time, *increase));
        if is_queued {
            self.waiting.pop_front();
        }
        is_queued
    }

    /// Hands over the next sample.
    fn pass(&mut self, into: &mut Attributor) {
        if let Some((time, increase)) = self.waiting.pop_front() {
            into.sample(self.view, time, increase);
        }
    }
}

impl Pipeline {
    /// Returns a pipeline that hands samples and events to this attributor, which has no devices yet.
    pub fn new(attributor: Attributor, gpu_streams: GpuStreams) -> Pipeline {
        Pipeline {
            attributor,
            gaps: Gaps::default(),
            streams: Vec::new(),
            samples: Vec::new(),
            mergers: vec![Merger::default()],
            gpu_streams,
            late_points: 0,
        }
    }

    /// Adds the stream of a location that the attributor knows. The devices that a late GPU stream draws from are found by
    /// [`Pipeline::place_streams`].
    pub fn add_stream(&mut self, location: LocationIndex) {
        let place = location.0 as usize;
        while self.streams.len() <= place {
            self.streams.push(Stream::new(LocationIndex(self.streams.len() as u32)));
        }
        let kind = self.attributor.locations[place].kind;
        self.streams[place].is_gpu = kind == LocationKind::Gpu;
        if kind == LocationKind::CpuThread || self.gpu_streams == GpuStreams::InTime {
            self.put_into(RANKS, place);
        }
    }

    fn put_into(&mut self, merger: usize, stream: usize) {
        self.mergers[merger].streams.push(stream);
        let stream = &mut self.streams[stream];
        (stream.merger, stream.done_until) = (Some(merger), self.mergers[merger].done_until);
    }

    /// Puts new devices, and GPU streams whose device was not known, into mergers. A stream that draws from several devices can
    /// be handed over only once: their mergers become one.
    pub fn place_streams(&mut self) {
        self.add_samples_of_devices();
        for stream in 0..self.streams.len() {
            let is_gpu = self.attributor.locations[stream].kind == LocationKind::Gpu;
            if !is_gpu || self.streams[stream].merger.is_some() {
                continue;
            }
            let devices = self.attributor.kernel_devices_of(LocationIndex(stream as u32));
            let mergers = devices.iter().map(|device| self.samples[2 * device + 1].merger);
            let mergers: BTreeSet<usize> = mergers.filter(|merger| *merger != RANKS).collect();
            let Some(first) = mergers.first().copied() else { continue };
            mergers.into_iter().skip(1).for_each(|other| self.join(first, other));
            self.put_into(first, stream);
        }
    }

    /// Puts the samples of new devices into mergers. A device without GPU streams does not wait for any: all of its samples are
    /// in the merger of the ranks.
    fn add_samples_of_devices(&mut self) {
        for device in self.samples.len() / 2..self.attributor.devices.len() {
            let views = self.attributor.devices[device].views;
            let mut kernels = RANKS;
            if self.gpu_streams == GpuStreams::Late && self.attributor.counted_part(device).is_gpu() {
                kernels = self.mergers.len();
                self.mergers.push(Merger::default());
            }
            for (view, merger) in [(views.ranks, RANKS), (views.kernels, kernels)] {
                self.mergers[merger].samples.push(self.samples.len());
                self.samples.push(Samples { view, merger, waiting: VecDeque::new(), late: 0 });
            }
        }
    }

    /// Makes one merger of two. No view was in both, so no view sees time go back. An event that is late for either of them is
    /// late for both.
    fn join(&mut self, first: usize, other: usize) {
        let Merger { streams, samples, done_until } = std::mem::take(&mut self.mergers[other]);
        streams.iter().for_each(|stream| self.streams[*stream].merger = Some(first));
        samples.iter().for_each(|samples| self.samples[*samples].merger = first);
        let merger = &mut self.mergers[first];
        merger.streams.extend(streams);
        merger.samples.extend(samples);
        let done_until = merger.done_until.max(done_until);
        self.set_done_until(first, done_until);
    }

    /// Returns the stream of a location; `None` if its events are in no view.
    #[inline]
    pub fn stream(&mut self, location: LocationIndex) -> Option<&mut Stream> {
        self.streams.get_mut(location.0 as usize).filter(|stream| stream.merger.is_some())
    }

    /// Returns the stream of a location, and the object that finds the waits of ranks.
    #[inline]
    pub fn stream_and_waiting(
        &mut self,
        location: LocationIndex,
    ) -> (Option<&mut Stream>, Option<&mut Waiting>) {
        let stream = self.streams.get_mut(location.0 as usize).filter(|stream| stream.merger.is_some());
        (stream, self.attributor.waiting.as_deref_mut())
    }

    /// Ends a stream: no further events of it are waited for.
    pub fn end_stream(&mut self, location: LocationIndex) {
        if let Some(stream) = self.streams.get_mut(location.0 as usize) {
            stream.has_ended = true;
        }
    }

    /// Records that all events of a stream before this time have been fed.
    pub fn quiet_until(&mut self, location: LocationIndex, time: Timestamp) {
        if let Some(stream) = self.streams.get_mut(location.0 as usize) {
            stream.quiet_until = stream.quiet_until.max(time);
        }
    }

    /// Puts the frames of `samples` on the location where calls of the same thread are recorded: from now on the frames of each
    /// depend on all steps of the other. Both have the CPU time of the thread.
    pub fn put_samples_on(&mut self, samples: LocationIndex, recorded: LocationIndex) {
        self.attributor.put_samples_on(samples, recorded);
        self.attributor.engine.share_cpu_time(samples, recorded);
        // Outside the frames of its samples, the CPU time of a thread that is not the main one counts for the main thread, from
        // the start of the open interval on. The part of that interval that has been handed over was attributed without this CPU
        // time, which therefore counts as late.
        let works_for_main = !self.attributor.locations[recorded.0 as usize].main;
        let of_samples = self.stream(samples).map(|stream| (stream.has_handed_over(), stream.last_cpu_time));
        let (has_begun, last_cpu_time) = of_samples.unwrap_or_default();
        self.late_points += u64::from(works_for_main && has_begun);
        if let Some(stream) = self.stream(recorded) {
            stream.samples.push(samples.0 as usize);
            stream.last_cpu_time = stream.last_cpu_time.or(last_cpu_time);
        }
        for location in [samples, recorded] {
            self.stream(location).into_iter().for_each(Stream::always_break);
        }
    }

    /// Adds a point: up to `time`, the location has used `seconds` of CPU time in all. Between two such points the CPU time rises
    /// evenly; before the first and after the last one it does not rise. The points of one location come in time order, and
    /// before the events and samples of later times are handed over.
    pub fn add_cpu_time(&mut self, location: LocationIndex, time: Timestamp, seconds: f64) {
        let Some(stream) = self.streams.get(location.0 as usize) else { return };
        let mut samples = stream.samples.iter().map(|samples| &self.streams[*samples]);
        let has_begun = stream.has_handed_over() || samples.any(Stream::has_handed_over);
        let stream = &mut self.streams[location.0 as usize];
        // Until its first point comes, a location counts as active whenever a frame is open. CPU time that was used before its
        // first frame opened changes nothing.
        let is_late = has_begun
            && stream.last_cpu_time.is_none_or(|(before, used)| {
                // A thread that has waited for long is known not to have used CPU time since the last point.
                before < stream.done_until && used < seconds
            });
        stream.last_cpu_time = Some((time, seconds));
        stream.late += u64::from(is_late);
        let ticks = self.attributor.cpu_ticks_of(seconds);
        self.attributor.engine.add_cpu_time(location, time, ticks);
    }

    /// Counts a point of CPU time that came after later ones of its thread.
    pub fn count_late_point(&mut self) {
        self.late_points += 1;
    }

    /// Adds a point of the CPU time of other jobs on a node, with the rules of [`Pipeline::add_cpu_time`].
    pub fn add_cpu_time_of_other_jobs(&mut self, node: &str, time: Timestamp, seconds: f64) {
        self.late_points += u64::from(time < self.mergers[RANKS].done_until);
        self.attributor.add_cpu_time_of_other_jobs(node, time, seconds);
    }

    /// Takes the samples of a device that have become known.
    pub fn queue_samples(&mut self, device: usize) {
        self.add_samples_of_devices();
        while let Some(Sample { time, increase, tag }) = self.attributor.devices[device].sample() {
            self.gaps.add(tag, device, time, increase);
            for samples in &mut self.samples[2 * device..2 * device + 2] {
                samples.put(time, increase, self.mergers[samples.merger].done_until);
            }
        }
    }

    /// Takes the samples of all counters that have become known.
    pub fn queue_all_samples(&mut self) {
        for device in 0..self.attributor.devices.len() {
            if self.attributor.devices[device].info.unit == Unit::Joules {
                self.queue_samples(device);
            }
        }
    }

    /// Decides what is still undecided about readings before a time, and takes the samples that become known by that.
    pub fn decide_before(&mut self, time: Timestamp) {
        self.attributor.devices.iter_mut().for_each(|device| device.counter_mut().decide_before(time));
        self.attributor.other_jobs.decide_before(time);
        self.queue_all_samples();
    }

    /// Takes all samples: no reading follows.
    pub fn end_samples(&mut self) {
        self.attributor.devices.iter_mut().for_each(|device| device.counter_mut().end());
        self.attributor.other_jobs.decide_before(Timestamp::MAX);
        self.queue_all_samples();
    }

    /// Returns the number of events and samples that came after their time had been handed over.
    pub fn late(&self) -> u64 {
        let of_samples: u64 = self.samples.iter().map(|samples| samples.late).sum();
        self.late_points + of_samples + self.streams.iter().map(|stream| stream.late).sum::<u64>()
    }

    /// Returns the number of kernels, copies and fills on a stream whose launch is not known, although the stream's
    /// events have correlation ids.
    pub fn without_launch(&self, location: LocationIndex) -> u64 {
        self.streams.get(location.0 as usize).map_or(0, |stream| stream.without_launch)
    }

    /// Returns the sum of [`Pipeline::without_launch`] over all streams.
    pub fn all_without_launch(&self) -> u64 {
        self.streams.iter().map(|stream| stream.without_launch).fold(0, u64::saturating_add)
    }

    /// Returns the number of events and samples that wait.
    pub fn waiting(&self) -> usize {
        (0..self.mergers.len()).map(|merger| self.waiting_in(merger)).sum()
    }

    /// Returns the number of events and samples that wait for ranks, and not for GPU streams.
    pub fn waiting_for_ranks(&self) -> usize {
        self.waiting_in(RANKS)
    }

    fn waiting_in(&self, merger: usize) -> usize {
        let Merger { streams, samples, .. } = &self.mergers[merger];
        let steps: usize = streams.iter().map(|stream| self.streams[*stream].waiting()).sum();
        steps + samples.iter().map(|samples| self.samples[*samples].waiting.len()).sum::<usize>()
    }

    /// Hands everything before `watermark` to the engine, except for late GPU streams and the samples of their devices.
    pub fn advance_ranks(&mut self, watermark: Timestamp) {
        self.advance(RANKS, watermark);
    }

    /// Hands the events of GPU streams to the engine, up to the last event of the stream that is furthest behind. A silent
    /// stream is waited for up to `longest_lag`. `awaits_streams`: a process may still define its first stream.
    pub fn advance_late(&mut self, watermark: Timestamp, longest_lag: u64, awaits_streams: bool) {
        for merger in RANKS + 1..self.mergers.len() {
            let streams = self.mergers[merger].streams.iter().map(|stream| &self.streams[*stream]);
            // A stream without events keeps its merger waiting, but not forever.
            let without = if awaits_streams { 0 } else { watermark };
            let last = streams.filter(|stream| !stream.has_ended).map(Stream::last_time);
            let until = last.min().unwrap_or(without).max(watermark.saturating_sub(longest_lag));
            self.advance(merger, until.min(watermark));
        }
    }

    /// Hands over everything that waits: no event and no sample follows.
    pub fn advance_to_the_end(&mut self) {
        (0..self.mergers.len()).for_each(|merger| self.advance(merger, Timestamp::MAX));
    }

    /// Ends the steps of all lanes (the regions that ran on each location over the run: `lanes.rs`) up to the time that has been
    /// handed over.
    pub fn advance_lanes(&mut self) {
        for stream in self.streams.iter().filter(|stream| stream.has_handed_over()) {
            self.attributor.advance_lane(stream.location, stream.done_until);
        }
    }

    /// Takes the last decisions that figures depend on, once everything has been handed over.
    pub fn conclude(&mut self) {
        self.attributor.end_lanes();
        self.attributor.end_time();
        self.attributor.learn_silence();
        self.attributor.learn_rises();
        self.attributor.judge_devices(true);
    }

    /// Hands everything of a merger before `watermark` to the engine, with breaks in order.
    fn advance(&mut self, number: usize, watermark: Timestamp) {
        let Pipeline { attributor, streams, samples, mergers, .. } = self;
        let merger = &mergers[number];
        let mut fronts = Tree::new(merger.streams.iter().map(|stream| streams[*stream].first_time()));
        // Streams have the first places, samples the others.
        let breaks = merger.streams.iter().map(|stream| streams[*stream].first_break_time());
        let breaks: Vec<_> =
            breaks.chain(merger.samples.iter().map(|at| samples[*at].first_time())).collect();
        let mut breaks = Tree::new(breaks.into_iter());
        loop {
            // Samples are queued up to the next location that starts or stops running.
            let next = loop {
                let Some(next) = breaks.first().filter(|next| next.time < watermark) else { break None };
                let Some(at) = next.place.checked_sub(merger.streams.len()) else { break Some(next) };
                let samples = &mut samples[merger.samples[at]];
                if !samples.enqueue(attributor) {
                    break Some(next);
                }
                breaks.set(next.place, samples.first_time());
            };
            let end = next.map_or(watermark, |next| next.time);
            // Locations are visited by place, because the engine does not need the order of time here, and the data of
            // neighbours is adjacent in memory.
            fronts.pass_before(end, &mut |place| {
                let stream = &mut streams[merger.streams[place]];
                stream.pass_run(end, attributor);
                stream.first_time()
            });
            attributor.take_queued_samples();
            let Some(Key { place, .. }) = next else { break };
            if let Some(at) = place.checked_sub(merger.streams.len()) {
                let samples = &mut samples[merger.samples[at]];
                samples.pass(attributor);
                breaks.set(place, samples.first_time());
            } else {
                let stream = &mut streams[merger.streams[place]];
                stream.pass_break(attributor);
                fronts.set(place, stream.first_time());
                breaks.set(place, stream.first_break_time());
            }
        }
        merger.streams.iter().for_each(|stream| streams[*stream].release_steps());
        let done_until = merger.done_until.max(watermark);
        if number == RANKS {
            attributor.engine.release_cpu_times(done_until);
        }
        self.set_done_until(number, done_until);
    }

    fn set_done_until(&mut self, merger: usize, time: Timestamp) {
        let merger = &mut self.mergers[merger];
        merger.done_until = time;
        merger.streams.iter().for_each(|stream| self.streams[*stream].done_until = time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributor::{FoundDevice, LocationInfo, ViewKind};
    use crate::topology::Evidence;
    use ampere_attribution::{CallpathRow, ViewTotals};
    use ampere_model::{Quality, Region, RegionHandle};
    use ampere_settings::Config;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use scorep_abi::{paradigm, region_type};

    fn gpu_counter() -> FoundDevice {
        FoundDevice {
            node: "n".to_owned(),
            metric: "rocm_smi:::energy_count:device=0".to_owned(),
            source: "rocm_smi".to_owned(),
            quality: Quality::Measured,
            joules_per_unit: Some(1.0),
        }
    }

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

    fn pipeline() -> (Pipeline, [LocationIndex; 2]) {
        let (attributor, locations) = attributor();
        let mut pipeline = Pipeline::new(attributor, GpuStreams::InTime);
        locations.iter().for_each(|location| pipeline.add_stream(*location));
        pipeline.place_streams();
        (pipeline, locations)
    }

    impl Pipeline {
        fn stream_of(&mut self, location: LocationIndex) -> &mut Stream {
            self.stream(location).expect("it is in a view")
        }

        /// Passes on a sample of the only device's ranks view.
        fn sample(&mut self, time: Timestamp, increase: Increase) {
            self.samples[0].put(time, increase, self.mergers[RANKS].done_until);
        }
    }

    /// The same events, handed over in any batches, give the same figures to the last bit.
    #[test]
    fn figures_do_not_depend_on_the_batches() {
        let results: Vec<_> = [1, 7, 50, 1000]
            .into_iter()
            .map(|batch| {
                let (mut pipeline, locations) = pipeline();
                let view = pipeline.attributor.devices[0].view(ViewKind::Ranks);
                for step in 0..1000u64 {
                    let time = step * 3;
                    for (at, location) in locations.iter().enumerate() {
                        let (time, stream) = (time + at as u64, pipeline.stream_of(*location));
                        if (step + at as u64).is_multiple_of(2) {
                            stream.enter(time, RegionRef((step % 5) as u32), 1);
                        } else {
                            stream.leave(time);
                        }
                    }
                    if step % 4 == 0 {
                        pipeline.sample(time, Increase::Joules((2 * step) as f64));
                    }
                    if step % batch == 0 {
                        pipeline.advance_ranks(time.saturating_sub(10));
                    }
                }
                pipeline.advance_to_the_end();
                assert_eq!((pipeline.late(), pipeline.waiting()), (0, 0));
                assert_eq!(pipeline.attributor.engine.oddities().late, 0);
                pipeline.attributor.engine.report(view).callpaths
            })
            .collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn counts_belong_to_the_frame_that_is_the_innermost_one_after_the_steps_before_them() {
        for until in [0, 11, 12, 25, 31, 100] {
            let (mut pipeline, [location, _]) = pipeline();
            pipeline.attributor.events.set_events(location, "a,b");
            let stream = pipeline.stream_of(location);
            stream.counts(0, 1000); // no frame is open
            stream.enter(10, RegionRef(0), 0);
            stream.enter(11, RegionRef(1), 0);
            stream.counts(0, 5);
            stream.counts(1, 1);
            stream.leave(20);
            stream.counts(1, 7);
            pipeline.advance_ranks(until);
            let stream = pipeline.stream_of(location);
            stream.counts(7, 1000); // there is no such event
            stream.counts(0, 2);
            stream.leave(30);
            stream.enter(40, RegionRef(0), 0);
            stream.counts(0, 3);
            stream.close(50);
            pipeline.advance_to_the_end();
            let mut counts: Vec<Vec<u64>> =
                pipeline.attributor.events.by_path().map(|(.., counts)| counts.to_vec()).collect();
            counts.sort();
            assert_eq!(counts, [[5, 1], [5, 7]], "handed over until {until}");
        }
    }

    #[test]
    fn joined_mergers_lose_no_event() {
        let (attributor, [first, second]) = attributor();
        let mut pipeline = Pipeline::new(attributor, GpuStreams::InTime);
        pipeline.add_stream(first);
        pipeline.streams.push(Stream::new(second));
        pipeline.mergers.push(Merger::default());
        pipeline.put_into(1, 1);
        pipeline.stream_of(first).enter(10, RegionRef(0), 1);
        pipeline.stream_of(second).enter(5, RegionRef(1), 1);
        pipeline.join(RANKS, 1);
        pipeline.stream_of(second).leave(20);
        pipeline.stream_of(first).leave(30);
        pipeline.advance_ranks(Timestamp::MAX);
        let engine = &pipeline.attributor.engine;
        assert_eq!((pipeline.late(), pipeline.waiting(), engine.oddities().late), (0, 0, 0));
        assert!([first, second].iter().all(|location| !engine.is_open(*location)));
    }

    /// A silent GPU stream holds back its own views, for a while, and no others.
    #[test]
    fn ranks_do_not_wait_for_gpu_streams() {
        let (mut attributor, [rank, _]) = attributor();
        attributor.add_device(gpu_counter());
        let info = attributor.locations[0].clone();
        let info = LocationInfo { name: "HIP[0:0]".to_owned(), kind: LocationKind::Gpu, main: false, ..info };
        let [gpu, silent] = [0, 1].map(|_| attributor.add_location(info.clone()));
        let mut pipeline = Pipeline::new(attributor, GpuStreams::Late);
        [rank, gpu, silent].iter().for_each(|location| pipeline.add_stream(*location));
        assert!(pipeline.stream(gpu).is_none(), "no device is known yet");
        pipeline.place_streams();
        for (location, time) in [(rank, 10), (gpu, 10), (gpu, 21)] {
            pipeline.stream_of(location).enter(time, RegionRef(0), 1);
            pipeline.stream_of(location).leave(time + 10);
        }
        pipeline.advance_ranks(100);
        pipeline.advance_late(100, 1000, false);
        assert_eq!((pipeline.waiting_for_ranks(), pipeline.waiting()), (0, 4));
        pipeline.advance_late(100, 85, false);
        assert_eq!(pipeline.waiting(), 3, "the limit is 15");
        pipeline.quiet_until(silent, 25);
        pipeline.advance_late(100, 1000, false);
        assert_eq!(pipeline.waiting(), 1, "the silent one has nothing before 25");
        pipeline.end_stream(silent);
        pipeline.advance_late(100, 1000, false);
        assert_eq!(pipeline.waiting(), 1, "the other one may continue at 31");
        pipeline.end_stream(gpu);
        pipeline.advance_late(100, 1000, true);
        assert_eq!(pipeline.waiting(), 1, "another one may come");
        pipeline.advance_late(100, 1000, false);
        assert_eq!((pipeline.waiting(), pipeline.late()), (0, 0));
    }

    /// Computes the ranks view of a GPU, which two ranks share. The kernels are those of the first rank; their stream is known
    /// from `known` on.
    fn joules_by_kernels(known: u64) -> (Attributor, Vec<CallpathRow>) {
        let mut pipeline = Pipeline::new(Attributor::new(Config::default(), 1000), GpuStreams::InTime);
        let attributor = &mut pipeline.attributor;
        let location = |rank: u32, kind, name: &str| LocationInfo {
            node: "n".to_owned(),
            group: format!("MPI Rank {rank}"),
            name: name.to_owned(),
            kind,
            rank: Some(rank),
            main: kind == LocationKind::CpuThread,
        };
        let of_process = |process| Evidence { process: Some(process), ..Evidence::default() };
        let ranks = [0, 1].map(|rank| {
            let info = location(rank, LocationKind::CpuThread, "Master thread");
            attributor.add_location_with(info, of_process(rank.into()))
        });
        attributor.add_device(gpu_counter());
        let view = attributor.devices[0].view(ViewKind::Ranks);
        attributor.engine.set_baseline(view, 0.3);
        ranks.iter().for_each(|rank| pipeline.add_stream(*rank));
        pipeline.place_streams();
        let kernels = [(95, 99), (103, 131), (131, 140), (158, 171), (230, 231), (233, 250)];
        let (mut kernels, mut stream) = (kernels.iter().peekable(), None);
        for time in 0..300u64 {
            for (at, rank) in ranks.iter().enumerate() {
                let stream = pipeline.stream_of(*rank);
                match (time + 3 * at as u64) % 37 {
                    2 => stream.enter(time, RegionRef(time as u32 % 3), 1),
                    5 => stream.enter(time, RegionRef(4), 1),
                    11 | 15 => stream.leave(time),
                    _ => {}
                }
            }
            if time == known {
                let info = location(0, LocationKind::Gpu, "HIP[0:0]");
                let gpu = pipeline.attributor.add_location_with(info, of_process(0));
                pipeline.add_stream(gpu);
                stream = Some(gpu);
            }
            while let Some((stream, (start, end))) = stream.zip(kernels.next_if(|(_, end)| *end <= time)) {
                pipeline.stream_of(stream).enter(*start, RegionRef(5), 1);
                pipeline.stream_of(stream).leave(*end);
            }
            if time % 10 == 0 {
                let increase = Increase::Joules(0.1 * (time * 7 % 90) as f64);
                pipeline.samples.iter_mut().for_each(|samples| samples.put(time, increase, 0));
            }
            pipeline.advance_ranks(time.saturating_sub(60));
        }
        pipeline.advance_to_the_end();
        let report = pipeline.attributor.engine.report(view);
        assert!(report.totals.conservation_error_joules < 1e-9, "{:?}", report.totals);
        (pipeline.attributor, report.callpaths)
    }

    #[test]
    fn joules_are_divided_by_kernels_whose_stream_is_known_before_the_first_sample() {
        let (attributor, rows) = joules_by_kernels(0);
        let dynamic = |rank: u32| -> f64 {
            let rows = rows.iter().filter(|row| row.location.0 == rank);
            rows.map(|row| row.dynamic_joules).sum()
        };
        assert!(dynamic(0) > 1.0 && dynamic(1) == 0.0, "{rows:#?}");
        assert!(!attributor.links_changed_late());
        let (attributor, rows) = joules_by_kernels(90);
        assert!(rows.iter().all(|row| row.dynamic_joules == 0.0), "{rows:#?}");
        assert!(attributor.links_changed_late());
    }

    /// A host's function is active while its kernel runs, even in intervals that have no more joules than the baseline.
    #[test]
    fn a_kernel_without_dynamic_joules_is_active() {
        let mut pipeline = Pipeline::new(Attributor::new(Config::default(), 1000), GpuStreams::InTime);
        let [host, gpu] = [LocationKind::CpuThread, LocationKind::Gpu].map(|kind| {
            let info = LocationInfo {
                node: "n".to_owned(),
                group: "MPI Rank 0".to_owned(),
                name: if kind == LocationKind::Gpu { "HIP[0:0]" } else { "Master thread" }.to_owned(),
                kind,
                rank: Some(0),
                main: kind == LocationKind::CpuThread,
            };
            let evidence = Evidence { process: Some(0), ..Evidence::default() };
            pipeline.attributor.add_location_with(info, evidence)
        });
        pipeline.attributor.add_device(gpu_counter());
        let view = pipeline.attributor.devices[0].view(ViewKind::Ranks);
        pipeline.attributor.engine.set_baseline(view, 0.3);
        for (stream, region) in [(host, 1), (gpu, 2)] {
            pipeline.add_stream(stream);
            pipeline.stream_of(stream).enter(0, RegionRef(region), 1);
            pipeline.stream_of(stream).leave(100);
        }
        pipeline.place_streams();
        for time in (0..=100).step_by(10) {
            let increase = match time {
                0 => Increase::First,
                10..50 => Increase::Joules(2.0),
                _ => Increase::Joules(8.0),
            };
            for samples in [0, 1] {
                let done_until = pipeline.mergers[pipeline.samples[samples].merger].done_until;
                pipeline.samples[samples].put(time, increase, done_until);
            }
        }
        pipeline.advance_to_the_end();
        let rows = pipeline.attributor.engine.report(view).callpaths;
        let [row] = rows.as_slice() else { panic!("{rows:#?}") };
        assert_eq!((row.resolved_ticks, row.resolved_joules), (100, 30.0), "{row:#?}");
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
    /// frame, the other, like OpenMP's threads, has none. Each event has the time since the previous event, the thread, whether
    /// it is a stack sample of the thread, and the kind of event.
    fn joules_of_threads(events: &[(u64, usize, bool, u8)], batch: u64) -> (Vec<CallpathRow>, ViewTotals) {
        let (mut attributor, recorded) = attributor();
        let program = region(&mut attributor, "a.out", paradigm::MEASUREMENT, region_type::ARTIFICIAL);
        let functions = ["f", "g"].map(|name| region(&mut attributor, name, paradigm::SAMPLING, 0));
        let in_call = region(&mut attributor, "(recorded call)", paradigm::SAMPLING, region_type::ARTIFICIAL);
        let calls = ["parallel", "for"].map(|name| region(&mut attributor, name, paradigm::OPENMP, 0));
        let mut pipeline = Pipeline::new(attributor, GpuStreams::InTime);
        let threads = recorded.map(|recorded| {
            let attributor = &mut pipeline.attributor;
            let info = attributor.locations[recorded.0 as usize].clone();
            let info = LocationInfo { name: "sampled".to_owned(), ..info };
            let samples = attributor.add_samples(info, Evidence::default());
            [samples, recorded].iter().for_each(|location| pipeline.add_stream(*location));
            pipeline.put_samples_on(samples, recorded);
            [recorded, samples]
        });
        pipeline.place_streams();
        pipeline.stream_of(threads[0][0]).enter(0, program, 1);
        threads.iter().for_each(|[_, samples]| pipeline.stream_of(*samples).enter(0, program, 0));
        let view = pipeline.attributor.devices[0].view(ViewKind::Ranks);
        let mut depths = [[1, 1], [0, 1]];
        let mut time = 0;
        let mut sampled = 0;
        for (wait, thread, is_sample, what) in events {
            time += wait;
            while sampled < time {
                let increase =
                    if sampled == 0 { Increase::First } else { Increase::Joules(0.1 * sampled as f64) };
                pipeline.sample(sampled, increase);
                sampled += 10;
            }
            let depth = &mut depths[*thread][usize::from(*is_sample)];
            let least = usize::from(*is_sample || *thread == 0);
            let stream = pipeline.stream_of(threads[*thread][usize::from(*is_sample)]);
            let entered = match (*is_sample, *what) {
                (true, 0) => in_call,
                (true, _) => functions[usize::from(*what) % 2],
                (false, _) => calls[usize::from(*what) % 2],
            };
            match what % 3 == 2 {
                true if *depth > least => (stream.leave(time), *depth -= 1).1,
                _ => (stream.enter(time, entered, 1), *depth += 1).1,
            }
            if batch > 0 && time.is_multiple_of(batch) {
                pipeline.advance_ranks(time);
            }
        }
        threads.iter().flatten().for_each(|location| pipeline.stream_of(*location).close(time + 1));
        pipeline.advance_to_the_end();
        let engine = &pipeline.attributor.engine;
        assert_eq!((pipeline.late(), engine.oddities().late), (0, 0));
        let mut report = engine.report(view);
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
        let (mut pipeline, [location, _]) = pipeline();
        pipeline.stream_of(location).enter(10, RegionRef(0), 1);
        pipeline.advance_ranks(20);
        pipeline.stream_of(location).leave(15);
        assert_eq!(pipeline.late(), 1);
    }

    #[test]
    fn a_location_on_which_samples_are_put_has_the_cpu_time_of_their_thread() {
        let (mut pipeline, [samples, recorded]) = pipeline();
        pipeline.add_cpu_time(samples, 10, 0.0);
        pipeline.put_samples_on(samples, recorded);
        assert!(pipeline.attributor.engine.knows_cpu_time(recorded));
        pipeline.stream_of(recorded).enter(15, RegionRef(0), 1);
        pipeline.advance_ranks(20);
        pipeline.add_cpu_time(recorded, 30, 0.0);
        assert_eq!(pipeline.late(), 0, "the thread has waited since the last point");
    }

    #[test]
    fn cpu_time_of_a_thread_is_late_if_samples_of_its_time_were_handed_over() {
        let (mut pipeline, [samples, recorded]) = pipeline();
        pipeline.put_samples_on(samples, recorded);
        pipeline.stream_of(samples).enter(15, RegionRef(0), 1);
        pipeline.advance_ranks(20);
        pipeline.add_cpu_time(recorded, 18, 1e-9);
        assert_eq!(pipeline.late(), 1);
    }

    #[test]
    fn cpu_time_is_late_if_frames_of_its_time_were_handed_over() {
        let (mut pipeline, [location, _]) = pipeline();
        pipeline.advance_ranks(20);
        pipeline.add_cpu_time(location, 10, 0.0);
        pipeline.add_cpu_time(location, 15, 1e-9);
        assert_eq!(pipeline.late(), 0, "no frame was open yet");
        pipeline.stream_of(location).enter(25, RegionRef(0), 1);
        pipeline.advance_ranks(40);
        pipeline.add_cpu_time(location, 30, 2e-9);
        assert_eq!(pipeline.late(), 1);
        pipeline.add_cpu_time(location, 60, 2e-9);
        assert_eq!(pipeline.late(), 1, "the thread has waited");
    }
}
