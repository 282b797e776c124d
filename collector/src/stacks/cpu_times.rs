//! The spans in which the threads of a process were on a CPU, as records of CPU time. There is a ring for each location of
//! threads. All threads without a location, and child processes that have no row of their own in the figures, share one.

use super::clock::EventClock;
use ampere_model::Timestamp;
use ampere_ring::{EventWriter, RING_RECORDS_MIN};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// If a thread is switched more often than this in a second, its short spans on a CPU are merged.
const SWITCHES_MAX: u32 = 2000;
/// In nanoseconds: a span on a CPU, or a gap between two spans, of at least this length is not merged.
const SHORT: u64 = 20_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
/// Spans are not written while their ring has space for fewer records than this. That space is kept for the last ones.
const ROOM_MIN: u64 = 16;
/// Spans are also merged if their ring would afterwards have space for fewer records than this.
const AMPLE_ROOM: u64 = RING_RECORDS_MIN / 2;
/// The maximum number of spans of a process, in all its threads, that are kept until they are written.
const SPANS_MAX: usize = 1 << 18;
/// The maximum number of threads of a process whose spans are known at once.
const THREADS_MAX: usize = 1 << 14;

/// A time in which CPU time rises evenly, in nanoseconds of the kernel's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub from: u64,
    pub until: u64,
    /// The CPU time of the thread in this interval.
    pub used: u64,
}

impl Span {
    /// Returns the parts before and after a time within the span.
    fn split(self, at: u64) -> (Span, Span) {
        let length = (self.until - self.from).max(1);
        let before = (u128::from(self.used) * u128::from(at - self.from) / u128::from(length)) as u64;
        let Span { from, until, used } = self;
        (Span { until: at, used: before, from }, Span { from: at, until, used: used - before })
    }

    /// Merges this span and a later one.
    fn joined(self, later: Span) -> Span {
        Span { from: self.from, until: self.until.max(later.until), used: self.used + later.used }
    }
}

/// Appends a span, or merges it into the last one if there is no room for another.
fn add_or_merge(spans: &mut Vec<Span>, span: Span, has_room: bool) {
    match spans.last_mut() {
        Some(last) if !has_room => *last = last.joined(span),
        _ => spans.push(span),
    }
}

/// Removes and returns the spans, or parts of them, before a time. The spans are in order.
fn take_before(spans: &mut Vec<Span>, time: u64) -> Vec<Span> {
    let mut due: Vec<Span> = spans.extract_if(.., |span| span.from < time).collect();
    for span in due.iter_mut().filter(|span| span.until > time) {
        let (before, after) = span.split(time);
        *span = before;
        spans.push(after);
    }
    spans.sort_unstable_by_key(|span| span.from);
    due
}

/// Adds up spans that may overlap: the result is in order, without overlaps.
fn sum(spans: &[Span]) -> Vec<Span> {
    let mut changes: Vec<(u64, f64)> = Vec::with_capacity(2 * spans.len());
    for span in spans.iter().filter(|span| span.used > 0) {
        let slope = span.used as f64 / (span.until - span.from).max(1) as f64;
        changes.extend([(span.from, slope), (span.until.max(span.from + 1), -slope)]);
    }
    changes.sort_unstable_by_key(|(time, _)| *time);
    let all: u64 = spans.iter().map(|span| span.used).sum();
    let (mut result, mut slope, mut exact, mut given) = (Vec::<Span>::new(), 0.0, 0.0, 0);
    for pair in changes.windows(2) {
        let (from, until) = (pair[0].0, pair[1].0);
        slope += pair[0].1;
        exact += slope * (until - from) as f64;
        let used = (exact.round() as u64).min(all).saturating_sub(given);
        given += used;
        // Because of rounding, the slope after the last span is not exactly 0.
        if used > 0 && until > from {
            result.push(Span { from, until, used });
        }
    }
    result.last_mut().into_iter().for_each(|last| last.used += all - given);
    result
}

/// Merges spans of a thread while it is switched too often: spans that are short and close to each other, such as those of a
/// thread that yields while it waits. Other spans stay exact, because a thread that computes for a part of each millisecond and
/// waits for the rest must not have its CPU time while it waits.
#[derive(Default)]
struct Merging {
    second: u64,
    /// The number of spans in this second, and in the one before.
    spans: [u32; 2],
}

impl Merging {
    fn is_too_often(&mut self, span: &Span) -> bool {
        let second = span.until / SECOND;
        if second != self.second {
            let is_next = second == self.second + 1;
            self.spans = [0, if is_next { self.spans[0] } else { 0 }];
            self.second = second;
        }
        self.spans[0] += 1;
        self.spans.iter().any(|spans| *spans > SWITCHES_MAX)
    }

    /// Calls `each` with the spans to be written. If the ring `is_crowded`, all spans within a millisecond are merged.
    fn pass(&mut self, spans: Vec<Span>, is_crowded: bool, mut each: impl FnMut(Span)) {
        let is_short = |length: u64| is_crowded || length < SHORT;
        let mut merged: Option<Span> = None;
        for span in spans {
            if !(self.is_too_often(&span) || is_crowded) || !is_short(span.until - span.from) {
                merged.take().into_iter().for_each(&mut each);
                each(span);
                continue;
            }
            let is_close = |merged: &Span| {
                merged.from / MILLISECOND == span.until / MILLISECOND
                    && is_short(span.from.saturating_sub(merged.until))
            };
            match merged.as_mut().filter(|merged| is_close(merged)) {
                Some(merged) => *merged = merged.joined(span),
                None => merged.replace(span).into_iter().for_each(&mut each),
            }
        }
        merged.into_iter().for_each(each);
    }
}

/// A ring with CPU time.
pub(super) struct CpuRing {
    merging: Merging,
    points: Points,
}

/// What is written to a ring.
struct Points {
    writer: EventWriter,
    /// The spans for which there was no space, merged into one.
    held: Option<Span>,
    used: u64,
    last: Timestamp,
}

impl CpuRing {
    pub fn new(writer: EventWriter) -> CpuRing {
        let points = Points { writer, held: None, used: 0, last: 0 };
        CpuRing { merging: Merging::default(), points }
    }

    fn write(&mut self, spans: Vec<Span>, clock: &EventClock) {
        let CpuRing { merging, points } = self;
        let is_crowded = points.writer.free_records() < AMPLE_ROOM + 2 * spans.len() as u64;
        merging.pass(spans, is_crowded, |span| points.add(span, clock));
        if points.has_room() {
            points.write_held(clock);
        }
    }

    /// Ends the ring. All spans must have been written before.
    fn end(mut self, clock: &EventClock) {
        self.write(Vec::new(), clock);
        self.points.write_held(clock);
        self.points.writer.location_end(self.points.last);
        self.points.writer.close();
    }
}

impl Points {
    fn has_room(&mut self) -> bool {
        self.writer.free_records() >= ROOM_MIN
    }

    fn add(&mut self, span: Span, clock: &EventClock) {
        let held = self.held.take();
        self.held = Some(held.map_or(span, |held| held.joined(span)));
        if self.has_room() {
            self.write_held(clock);
        }
    }

    fn write_held(&mut self, clock: &EventClock) {
        let Some(span) = self.held.take() else { return };
        let begin = clock.at(span.from).max(self.last);
        let end = clock.at(span.until).max(begin);
        let mut rose = (end - begin).max(1);
        if rose > u32::MAX.into() {
            self.writer.cpu_time(begin, 1, self.used);
            rose = 0;
        }
        self.used += span.used;
        self.writer.cpu_time(end, rose as u32, self.used);
        self.last = end;
    }
}

/// The CPU time of one thread.
#[derive(Default)]
struct ThreadTime {
    waiting: Vec<Span>,
    /// The CPU time so far. `began` is the CPU time that the kernel had counted when `used` was 0; `None` if that is unknown.
    used: u64,
    began: Option<u64>,
    has_ended: bool,
}

/// What is known about the CPU time of a thread before the first time that it is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum ThreadStart {
    /// The thread has started since the last time that threads were counted.
    New,
    /// Its process has recorded events since this time, and was found later. The CPU time from then on belongs to its functions.
    Joined(u64),
    Unknown,
}

/// A location of a thread. Threads that follow each other may have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ThreadLocation {
    /// The location with this number in one of the logs that the process writes itself.
    Recorded { log: usize, location: u32 },
    /// The location of samples with this number, which was made for this thread.
    Sampled { location: u32, made_for: u32 },
}

/// After this many locations, those of sampled threads that have ended are used for other threads.
pub(super) const UNSHARED_LOCATIONS: u32 = 1 << 10;

impl ThreadLocation {
    /// Whether other threads may have this location after a thread has ended.
    pub fn is_shared(&self) -> bool {
        match self {
            ThreadLocation::Recorded { .. } => true,
            ThreadLocation::Sampled { location, .. } => *location >= UNSHARED_LOCATIONS,
        }
    }
}

/// The CPU time of a process.
#[derive(Default)]
pub(super) struct CpuTimes {
    threads: FxHashMap<u32, ThreadTime>,
    rings: FxHashMap<ThreadLocation, CpuRing>,
    /// The spans of child processes that have no row of their own in the figures.
    children: Vec<Span>,
    ring_of_others: Option<CpuRing>,
    waiting: usize,
    /// The CPU time of all threads, and what the kernel had counted when there was none.
    used: u64,
    began: Option<u64>,
}

impl CpuTimes {
    /// Adds a span in which a thread was on a CPU.
    pub fn add(&mut self, thread: u32, from: u64, until: u64) {
        self.add_span(thread, Span { from, until, used: until.saturating_sub(from) });
    }

    fn add_span(&mut self, thread: u32, span: Span) {
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&thread) {
            return;
        }
        let of = self.threads.entry(thread).or_default();
        (of.used, of.has_ended) = (of.used + span.used, false);
        self.used += span.used;
        add_or_merge(&mut of.waiting, span, self.waiting < SPANS_MAX);
        self.waiting += 1;
    }

    /// Adds the CPU time of a thread since its start, as the kernel has counted it. If records of switches do not explain all
    /// of it, the CPU time between `since` and `now` is assumed to have risen evenly.
    pub fn set_counted(&mut self, thread: u32, counted: u64, (since, now): (u64, u64), start: ThreadStart) {
        let of = self.threads.entry(thread).or_default();
        let began = match (of.began, start) {
            (Some(began), _) => began,
            (None, ThreadStart::New) => 0,
            (None, ThreadStart::Unknown) => counted.saturating_sub(of.used),
            (None, ThreadStart::Joined(joined)) => {
                let until = of.waiting.first().map_or(now, |first| first.from);
                // The thread may have run from its last span until now.
                let since_last = of.waiting.last().map_or(0, |last| now.saturating_sub(last.until));
                let before = counted.saturating_sub(of.used).saturating_sub(since_last);
                let used = before.min(until.saturating_sub(joined));
                if used > 0 {
                    of.waiting.insert(0, Span { from: joined, until, used });
                    (of.used, self.used, self.waiting) = (of.used + used, self.used + used, self.waiting + 1);
                }
                counted.saturating_sub(of.used)
            }
        };
        of.began = Some(began);
        let missing = counted.saturating_sub(began).saturating_sub(of.used);
        if missing == 0 {
            return;
        }
        let known = of.waiting.split_off(of.waiting.partition_point(|span| span.from < since));
        let known: u64 = known.iter().map(|span| span.used).sum();
        let from = of.waiting.last().map_or(since, |span| span.until.max(since));
        // The kernel may also have counted a little time after `now`.
        let used = (known + missing).min(now.saturating_sub(from));
        (of.used, self.used) = (of.used - known, self.used - known);
        if used > 0 {
            self.add_span(thread, Span { from, until: now, used });
        }
    }

    /// Adds the CPU time of all threads of the process, including those that have ended, as the kernel has counted it.
    pub fn set_counted_of_all(&mut self, counted: u64, (since, now): (u64, u64)) {
        let began = *self.began.get_or_insert(counted.saturating_sub(self.used));
        let used = counted.saturating_sub(began).saturating_sub(self.used);
        if used > 0 && since < now {
            self.used += used;
            self.take_over(vec![Span { from: since, until: now, used }]);
        }
    }

    /// Returns the threads that have not ended, and whether it is known what the kernel had counted when they began.
    pub fn threads(&self) -> impl Iterator<Item = (u32, bool)> {
        let running = self.threads.iter().filter(|(_, of)| !of.has_ended);
        running.map(|(thread, of)| (*thread, of.began.is_some()))
    }

    pub fn has_thread(&self, thread: u32) -> bool {
        self.threads.contains_key(&thread)
    }

    pub fn end_thread(&mut self, thread: u32) {
        self.threads.get_mut(&thread).into_iter().for_each(|of| of.has_ended = true);
    }

    /// Returns the CPU time of all threads so far.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Returns what the kernel has counted for the process up to the spans that are not written yet. `counted` is its count now,
    /// which is not needed if [`CpuTimes::set_counted_of_all`] is called.
    pub fn counted_before_waiting(&self, counted: u64) -> u64 {
        let of_threads = self.threads.values().flat_map(|of| &of.waiting);
        let used = |spans: &mut dyn Iterator<Item = &Span>| spans.map(|span| span.used).sum::<u64>();
        match self.began {
            None => counted.saturating_sub(used(&mut { of_threads })),
            Some(began) => (began + self.used).saturating_sub(used(&mut of_threads.chain(&self.children))),
        }
    }

    /// Returns the start of the first span that has not been written.
    pub fn first_waiting(&self) -> Option<u64> {
        let threads = self.threads.values().filter_map(|of| of.waiting.first());
        threads.chain(self.children.first()).map(|span| span.from).min()
    }

    pub fn is_due(&self, until: u64) -> bool {
        self.waiting > 0 && self.first_waiting().is_some_and(|first| first < until)
    }

    /// Adds spans of a child process that has no row of its own in the figures.
    pub fn take_over(&mut self, spans: Vec<Span>) {
        for span in spans {
            add_or_merge(&mut self.children, span, self.waiting < SPANS_MAX);
            self.waiting += 1;
        }
        self.children.sort_unstable_by_key(|span| span.from);
    }

    /// Removes and returns all spans, or parts of them, before this time.
    pub fn split_off(&mut self, until: u64) -> Vec<Span> {
        let mut all = take_before(&mut self.children, until);
        self.threads.values_mut().for_each(|of| all.extend(take_before(&mut of.waiting, until)));
        self.threads.retain(|_, of| !(of.has_ended && of.waiting.is_empty()));
        self.count_waiting();
        all
    }

    fn count_waiting(&mut self) {
        self.waiting = self.children.len() + self.threads.values().map(|of| of.waiting.len()).sum::<usize>();
    }

    /// Writes all spans before `until`. `location_of` returns a thread's location. `make` makes the ring for a thread and its
    /// location, or with `None` the ring for all threads without one.
    pub fn write<E>(
        &mut self,
        until: u64,
        clock: &EventClock,
        location_of: impl Fn(u32) -> Option<ThreadLocation>,
        mut make: impl FnMut(Option<(u32, ThreadLocation)>) -> Result<CpuRing, E>,
    ) -> Result<(), E> {
        if self.waiting == 0 && self.threads.is_empty() && self.ring_of_others.is_none() {
            return Ok(());
        }
        let mut others = take_before(&mut self.children, until);
        let mut by_location: FxHashMap<ThreadLocation, (u32, Vec<Span>)> = FxHashMap::default();
        let mut failure = None;
        for (thread, of) in &mut self.threads {
            let due = take_before(&mut of.waiting, until);
            match location_of(*thread).filter(|_| !due.is_empty()) {
                Some(location) => by_location.entry(location).or_insert((*thread, Vec::new())).1.extend(due),
                None => others.extend(due),
            }
        }
        for (location, (thread, spans)) in &mut by_location {
            if let Entry::Vacant(new) = self.rings.entry(*location) {
                match make(Some((*thread, *location))) {
                    Ok(ring) => _ = new.insert(ring),
                    Err(why) => {
                        failure = Some(why);
                        others.append(spans);
                    }
                }
            }
        }
        for (location, ring) in &mut self.rings {
            let mut due = by_location.remove(location).map_or(Vec::new(), |(_, spans)| spans);
            due.sort_unstable_by_key(|span| span.from);
            ring.write(due, clock);
        }
        for (thread, _) in self.threads.extract_if(|_, of| of.has_ended && of.waiting.is_empty()) {
            let over = location_of(thread).filter(|location| !location.is_shared());
            over.and_then(|location| self.rings.remove(&location))
                .into_iter()
                .for_each(|ring| ring.end(clock));
        }
        self.count_waiting();
        if !others.is_empty() && self.ring_of_others.is_none() {
            match make(None) {
                Ok(ring) => self.ring_of_others = Some(ring),
                Err(why) => failure = Some(why),
            }
        }
        self.ring_of_others.iter_mut().for_each(|ring| ring.write(sum(&others), clock));
        failure.map_or(Ok(()), Err)
    }

    /// Returns the start of the earliest span that is not written yet because its ring has no room.
    pub fn held_since(&self) -> Option<u64> {
        let rings = self.rings.values().chain(&self.ring_of_others);
        rings.filter_map(|ring| ring.points.held.as_ref()).map(|held| held.from).min()
    }

    /// Ends all rings. All spans must have been written before.
    pub fn end(&mut self, clock: &EventClock) {
        self.threads.clear();
        let rings = self.rings.drain().map(|(_, ring)| ring);
        rings.chain(self.ring_of_others.take()).for_each(|ring| ring.end(clock));
    }
}

/// Returns the CPU time of a thread since its start, in nanoseconds, as the kernel has counted it until its last switch or
/// tick.
pub(super) fn counted(process: u32, thread: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_ring::{Kind, RingConsumer, RingProducer};
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn span(from: u64, until: u64, used: u64) -> Span {
        Span { from, until, used }
    }

    fn passed(merging: &mut Merging, spans: Vec<Span>) -> Vec<Span> {
        let mut all = Vec::new();
        merging.pass(spans, false, |span| all.push(span));
        all
    }

    /// Returns spans of 10 microseconds on a CPU, one in each interval of this length.
    fn switched(from: u64, count: u64, period: u64) -> Vec<Span> {
        (0..count).map(|number| from + number * period).map(|at| span(at, at + 10_000, 10_000)).collect()
    }

    #[test]
    fn short_times_are_merged_by_millisecond_above_2000_switches_a_second() {
        let mut merging = Merging::default();
        let slow = switched(0, 2000, 500_000);
        assert_eq!(passed(&mut merging, slow.clone()), slow, "2000 in a second are not merged");
        let fast = passed(&mut merging, switched(SECOND, 40_000, 25_000));
        assert_eq!(fast.len(), 2000 + 950);
        let first = SECOND + 50 * MILLISECOND;
        assert_eq!(fast[2000], span(first, first + 39 * 25_000 + 10_000, 400_000));
        assert_eq!(fast.iter().map(|span| span.used).sum::<u64>(), 400_000_000);
        let next = passed(&mut merging, switched(2 * SECOND, 40_000, 25_000));
        assert_eq!(next.len(), 1000, "in the next second, all are merged");
        let then = passed(&mut merging, switched(3 * SECOND, 2, 25_000));
        assert_eq!(then.len(), 1, "a second after that is merged once more");
        assert_eq!(passed(&mut merging, switched(4 * SECOND, 2, 25_000)), switched(4 * SECOND, 2, 25_000));
    }

    #[test]
    fn long_times_and_those_that_are_not_close_are_exact_however_often_a_thread_is_switched() {
        let mut merging = Merging { spans: [0, 3000], ..Merging::default() };
        let far = switched(0, 10_000, 100_000);
        assert_eq!(passed(&mut merging, far.clone()), far);
        // It computes for 0.2 ms and then yields until the end of the millisecond.
        let computes = span(0, 200_000, 200_000);
        let yields = switched(205_000, 30, 25_000);
        let merged = span(205_000, 205_000 + 29 * 25_000 + 10_000, 300_000);
        assert_eq!(passed(&mut merging, [vec![computes], yields].concat()), [computes, merged]);
    }

    #[test]
    fn a_process_that_was_found_late_has_cpu_time_since_it_joined() {
        let mut times = CpuTimes::default();
        // It joined at 400 and was found at 1000. 50 of its CPU time may be from after its last span.
        times.add(7, 1000, 1400);
        times.set_counted(7, 700, (900, 1450), ThreadStart::Joined(400));
        // It had used more before it joined than afterwards.
        times.add(8, 1000, 1100);
        times.set_counted(8, 5000, (900, 1100), ThreadStart::Joined(400));
        // Its switches are not known.
        times.set_counted(9, 200, (0, 1000), ThreadStart::Joined(400));
        // It was found before it joined.
        times.add(10, 100, 200);
        times.set_counted(10, 700, (0, 200), ThreadStart::Joined(400));
        let mut all = times.split_off(u64::MAX);
        all.sort_by_key(|span| (span.from, span.until, span.used));
        let before = [span(400, 1000, 200), span(400, 1000, 250), span(400, 1000, 600)];
        assert_eq!(
            all,
            [&[span(100, 200, 100)], &before[..], &[span(1000, 1100, 100), span(1000, 1400, 400)]].concat()
        );
        assert_eq!(times.used(), 100 + 200 + 250 + 600 + 100 + 400);
        times.set_counted(7, 750, (1450, 1500), ThreadStart::Unknown);
        assert_eq!(times.split_off(u64::MAX), [span(1450, 1500, 50)]);
    }

    #[test]
    fn the_kernels_count_replaces_what_was_lost() {
        let mut times = CpuTimes::default();
        times.add(7, 100, 200);
        times.set_counted(7, 5100, (0, 200), ThreadStart::Unknown);
        assert_eq!((times.used(), times.threads().collect::<Vec<_>>()), (100, vec![(7, true)]));
        times.add(7, 400, 450);
        times.set_counted(7, 5450, (300, 1000), ThreadStart::Unknown);
        times.set_counted(8, 50, (300, 1000), ThreadStart::New);
        assert_eq!(times.used(), 500);
        let mut all = times.split_off(u64::MAX);
        all.sort_by_key(|span| (span.from, span.used));
        assert_eq!(all, [span(100, 200, 100), span(300, 1000, 50), span(300, 1000, 350)]);
    }

    #[test]
    fn what_waits_is_not_counted_before_it() {
        let mut times = CpuTimes::default();
        times.add(7, 100, 200);
        times.add(8, 150, 190);
        times.take_over(vec![span(100, 200, 5)]);
        assert_eq!(times.counted_before_waiting(1000), 1000 - 140, "children have counts of their own");
        times.split_off(160);
        assert_eq!(times.counted_before_waiting(1000), 1000 - 70);
        // The kernel's count was read at 300, and is known up to then.
        times.set_counted_of_all(900, (200, 250));
        times.set_counted_of_all(930, (250, 300));
        times.split_off(290);
        assert_eq!(times.counted_before_waiting(2000), 930 - 6);
    }

    /// Returns the times and the CPU time of a ring's records.
    fn points_of(ring: &mut RingConsumer) -> Vec<(u64, u64)> {
        let mut records = Vec::new();
        let count = ring.copy_out(&mut records, usize::MAX).unwrap();
        ring.release(count);
        let pairs = records.windows(2).filter(|pair| pair[0].kind() == Some(Kind::CpuTime));
        pairs.map(|pair| (pair[0].word0, pair[1].word0)).collect()
    }

    #[test]
    fn cpu_time_waits_for_room_and_none_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ring");
        let producer = RingProducer::create(&path, RING_RECORDS_MIN, 0).unwrap();
        let mut ring = CpuRing::new(EventWriter::new(producer));
        let mut reader = RingConsumer::open(&path).unwrap();
        let clock = EventClock::new();
        let mut times = CpuTimes::default();
        let start = clock.now() - clock.now() % SECOND;
        // 20,000 switches a second for four seconds, in batches. No record is read until the ring is full.
        let batches = (0..100).map(|batch| switched(start + batch * 40 * MILLISECOND, 800, 50_000));
        batches.clone().for_each(|spans| ring.write(spans, &clock));
        let held = ring.points.held.unwrap();
        times.ring_of_others = Some(ring);
        assert_eq!((times.held_since(), reader.dropped_records()), (Some(held.from), 0));
        let before = points_of(&mut reader);
        let written = before.last().unwrap();
        assert_eq!(written.1, (held.from - start) / MILLISECOND * 200_000);
        assert!(before.len() > 1900 && written.0 <= clock.at(held.from), "{}", before.len());
        // The waiting time is written together with the next one.
        let mut ring = times.ring_of_others.take().unwrap();
        ring.write(Vec::new(), &clock);
        let then = points_of(&mut reader);
        let expected = (clock.at(start + 4 * SECOND - 40_000), 800_000_000);
        assert_eq!((ring.points.held, then.last()), (None, Some(&expected)));
        // A long time has a record at its beginning, too.
        assert!(
            then[..then.len() - 1].iter().all(|point| *point == (clock.at(held.from), written.1)),
            "{then:?}"
        );
        // At the end there is room, even if nothing is read.
        let batches = batches.map(|spans| {
            spans
                .into_iter()
                .map(|Span { from, until, used }| span(from + 4 * SECOND, until + 4 * SECOND, used))
        });
        batches.for_each(|spans| ring.write(spans.collect(), &clock));
        ring.end(&clock);
        assert_eq!((points_of(&mut reader).last().unwrap().1, reader.dropped_records()), (1_600_000_000, 0));
    }

    #[test]
    fn threads_that_follow_each_other_on_a_location_have_one_ring_in_the_order_of_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ring");
        let clock = EventClock::new();
        let start = clock.now();
        let location_of = |_| Some(ThreadLocation::Recorded { log: 0, location: 1 });
        // A second ring could not be made: the file exists.
        let mut make = |_| {
            RingProducer::create(&path, RING_RECORDS_MIN, 0).map(|ring| CpuRing::new(EventWriter::new(ring)))
        };
        let mut times = CpuTimes::default();
        times.add(7, start + 30_000, start + 40_000);
        times.add(8, start + 10_000, start + 20_000);
        times.write(u64::MAX, &clock, location_of, &mut make).unwrap();
        [7, 8].iter().for_each(|thread| times.end_thread(*thread));
        times.write(u64::MAX, &clock, location_of, &mut make).unwrap();
        times.add(9, start + 50_000, start + 60_000);
        times.write(u64::MAX, &clock, location_of, &mut make).unwrap();
        times.end(&clock);
        let expected = [1, 2, 3].map(|number| (clock.at(start + number * 20_000), number * 10_000));
        assert_eq!(points_of(&mut RingConsumer::open(&path).unwrap()), expected);
    }

    #[test]
    fn times_beyond_the_maximal_number_are_added_to_the_last_one() {
        let mut times = CpuTimes { waiting: SPANS_MAX - 1, ..CpuTimes::default() };
        times.add(7, 100, 200);
        times.add(7, 300, 400);
        times.take_over(vec![span(300, 310, 10), span(320, 330, 10)]);
        let mut all = times.split_off(u64::MAX);
        all.sort_by_key(|span| (span.from, span.used));
        assert_eq!(all, [span(100, 400, 200), span(300, 330, 20)]);
    }

    proptest! {
        #[test]
        fn sums_of_times_keep_all_of_them(all in vec((0u64..1000, 1u64..200, 0u64..200), 0..20), at in 0u64..1200) {
            let mut spans: Vec<Span> = all.iter().map(|(from, length, used)| span(*from, from + length, *used)).collect();
            spans.sort_unstable_by_key(|span| span.from);
            let used = |of: &[Span]| of.iter().map(|span| span.used).sum::<u64>();
            let before = used(&spans);
            let due = take_before(&mut spans, at);
            prop_assert_eq!(used(&due) + used(&spans), before);
            prop_assert!(due.iter().all(|span| span.until <= at) && spans.iter().all(|span| span.from >= at));
            let summed = sum(&due);
            prop_assert_eq!(used(&summed), used(&due));
            prop_assert!(summed.windows(2).all(|pair| pair[0].until <= pair[1].from));
        }
    }
}
