//! Locations, their call stacks, and the views in which they are consumers.

use crate::callpaths::CallPaths;
use crate::counter::Increase;
use crate::cpu_time::{CpuTime, CpuTimes, OtherJobs, Ticks};
use crate::history::History;
use crate::policy::{Policy, Sharing};
use crate::steps::{LEAVE, LocationIndex, Move, NodeIndex, Step, ViewIndex};
use crate::view::{BusyTimes, IdleIntervals, LocationCalls, Spent, View, ViewTotals};
use ampere_model::{RegionRef, Timestamp};
use std::collections::VecDeque;
use std::ops::Range;

/// Counts of contradictions in the input, which do no harm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    /// Leaves of an empty stack. They are ignored.
    pub unmatched_leaves: u64,
    /// Events or samples that are older than a time that a view had already accounted for. They are treated as if they happened
    /// at that time.
    pub late: u64,
    /// Events of one location that are earlier than the event before them. The time between the two counts as zero.
    pub backward: u64,
}

/// Every event needs all of this struct, so it fills one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Location {
    pub paths: CallPaths,
    current: NodeIndex,
    /// The call path that the outermost open frame was entered in: that of a launch, or the root.
    base: NodeIndex,
    /// The time at which `current` became the innermost frame.
    since: Timestamp,
    /// The views in which the location is a consumer, with its number in each. The list seldom grows.
    draws_from: Box<[(ViewIndex, u32)]>,
}

const _: () = assert!(size_of::<Location>() == 64);

/// The attribution engine; see the crate's documentation. In each view, times must not decrease; events whose times do are
/// counted as late.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    locations: Vec<Location>,
    views: Vec<View>,
    /// The caller's number of each location's process, if it is known.
    processes: Vec<Option<u64>>,
    cpu_times: CpuTimes,
    unmatched_leaves: u64,
    backward: u64,
    /// Kept between calls of [`Engine::steps`] to save allocations.
    moves: Vec<Move>,
    /// The views of samples that are queued.
    queued: VecDeque<ViewIndex>,
    /// The calls of all locations, if they are recorded.
    pub(crate) calls: Option<Box<LocationCalls>>,
    /// The recent moves of locations, if they are recorded.
    pub(crate) history: Option<Box<History>>,
}

/// The maximum number of steps that are taken at once, so that they stay in the first-level cache.
const STEPS_MAX: usize = 512;

/// Call paths that were first entered one after the other are likely to be entered in this order again. With many locations
/// none is cached, so up to this many are prefetched at once, which takes hardly longer than to fetch one.
const PREFETCHED_MAX: usize = 32;

impl Location {
    /// Returns the time when the location's innermost frame last changed.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Returns the call path around the innermost frame; the root if that is the outermost frame.
    #[inline]
    fn around_current(&self) -> NodeIndex {
        match self.paths.parent(self.current) {
            around if around == self.base => NodeIndex::ROOT,
            around => around,
        }
    }

    /// Returns the views in which the location is a consumer, with its number in each.
    pub fn draws_from(&self) -> impl Iterator<Item = (ViewIndex, u32)> + '_ {
        self.draws_from.iter().copied()
    }

    /// Makes the location the consumer of this number in the view.
    fn draw_from(&mut self, view: ViewIndex, consumer: u32) {
        let mut more = std::mem::take(&mut self.draws_from).into_vec();
        more.push((view, consumer));
        self.draws_from = more.into_boxed_slice();
    }
}

impl Engine {
    /// Makes an engine without locations and views.
    pub fn new() -> Engine {
        Engine::default()
    }

    /// Adds a location with an empty stack.
    pub fn add_location(&mut self) -> LocationIndex {
        self.locations.push(Location {
            paths: CallPaths::new(),
            current: NodeIndex::ROOT,
            base: NodeIndex::ROOT,
            since: 0,
            draws_from: Box::default(),
        });
        self.processes.push(None);
        LocationIndex((self.locations.len() - 1) as u32)
    }

    /// Sets the process that a location belongs to: any number, the same for all of its locations. This must be called before the
    /// location is a consumer.
    pub fn set_process(&mut self, location: LocationIndex, process: Option<u64>) {
        self.processes[location.0 as usize] = process;
    }

    /// Adds a view without consumers.
    pub fn add_view(&mut self, policy: Policy, sharing: Sharing) -> ViewIndex {
        self.views.push(View::new(policy, sharing));
        ViewIndex((self.views.len() - 1) as u32)
    }

    /// States that `ranks` and `kernels` are the views of a GPU. If streams are known, they have the policy *active*: a stream is
    /// active while it runs, and a process while one of its streams runs. Neither view may have consumers yet.
    pub fn divide_by_kernels(&mut self, ranks: ViewIndex, kernels: ViewIndex) {
        for view in [ranks, kernels].map(|view| view.0 as usize) {
            let is_undecided = self.views[view].policy != Policy::Active;
            self.views[view].undecided_policy = is_undecided.then_some(self.views[view].policy);
        }
        self.views[ranks.0 as usize].by_kernels = Some(Box::default());
        self.views[kernels.0 as usize].busy_times = Some(Box::default());
    }

    /// States that a stream draws from `kernels`. Does nothing unless [`Engine::divide_by_kernels`] was called. Returns `false`
    /// if it is too late, because the view has had a sample.
    pub fn know_streams(&mut self, kernels: ViewIndex) -> bool {
        self.views[kernels.0 as usize].know_activity()
    }

    /// States that one of the streams of `kernels` is of a process of the run, like [`Engine::know_streams`].
    pub fn know_kernels(&mut self, ranks: ViewIndex, kernels: ViewIndex) -> bool {
        self.with_twin(ranks).all(|view| self.views[view.0 as usize].know_kernels(kernels))
    }

    /// Takes back [`Engine::know_streams`] and [`Engine::know_kernels`], because no stream draws from `kernels` after all.
    /// Neither view may have charged anything yet.
    pub fn forget_streams(&mut self, ranks: ViewIndex, kernels: ViewIndex) {
        for view in self.with_twin(ranks).chain([kernels]) {
            self.views[view.0 as usize].forget_activity();
        }
    }

    /// Adds a second view of the same counter, which has had the same samples so far, and gets the same from now on. In the
    /// second view, each of the present consumers is in a group of its own, whose number `group` returns (see
    /// [`Engine::bind_member`]), and further consumers may be bound. A view can have one such twin, and no groups of its own.
    pub fn fork(&mut self, view: ViewIndex, group: impl Fn(LocationIndex) -> Option<u64>) -> ViewIndex {
        let fork = ViewIndex(self.views.len() as u32);
        let forked = self.views[view.0 as usize].fork(|location| group(LocationIndex(location)));
        self.views.push(forked);
        self.views[view.0 as usize].twin = Some(fork);
        for location in &mut self.locations {
            if let Some((_, consumer)) = location.draws_from.iter().find(|(known, _)| *known == view).copied()
            {
                location.draw_from(fork, consumer);
            }
        }
        fork
    }

    /// Makes the location a consumer of the view. Doing that again changes nothing.
    pub fn bind(&mut self, view: ViewIndex, location: LocationIndex) {
        self.bind_as(view, location, None);
    }

    /// Does what [`Engine::bind`] does, but all locations of a group count as one consumer: the group's share is split, at
    /// every instant, among its running locations. The caller chooses the group's number.
    pub fn bind_member(&mut self, view: ViewIndex, location: LocationIndex, group: u64) {
        self.bind_as(view, location, Some(group));
    }

    fn bind_as(&mut self, view: ViewIndex, location: LocationIndex, group: Option<u64>) {
        let process = self.processes[location.0 as usize];
        let state = &mut self.locations[location.0 as usize];
        if state.draws_from.iter().all(|(v, _)| *v != view) {
            let open = self.calls.as_ref().map_or(&[][..], |calls| calls.open(location));
            let consumer = self.views[view.0 as usize].add_consumer(
                location.0,
                (process, group),
                state.current,
                open,
                &self.cpu_times,
            );
            state.draw_from(view, consumer);
        }
    }

    /// Ends the location's part in the view. The location keeps the joules that it was charged.
    pub fn unbind(&mut self, view: ViewIndex, location: LocationIndex) {
        let state = &mut self.locations[location.0 as usize];
        if let Some(at) = state.draws_from.iter().position(|(v, _)| *v == view) {
            let mut fewer = std::mem::take(&mut state.draws_from).into_vec();
            let (_, consumer) = fewer.remove(at);
            state.draws_from = fewer.into_boxed_slice();
            self.views[view.0 as usize].remove_consumer(consumer, &self.cpu_times);
        }
    }

    /// Whether the location is a consumer of the view.
    pub fn is_bound(&self, view: ViewIndex, location: LocationIndex) -> bool {
        self.consumer_of(view, location).is_some()
    }

    /// Returns the number of a location in a view, if it is a consumer there.
    pub(crate) fn consumer_of(&self, view: ViewIndex, location: LocationIndex) -> Option<u32> {
        let draws_from = &self.locations[location.0 as usize].draws_from;
        draws_from.iter().find(|(known, _)| *known == view).map(|(_, consumer)| *consumer)
    }

    /// Adds a point: the CPU time that a location has used up to `time`, in ticks. Between two such points it rises evenly;
    /// before the first and after the last one it does not rise. Points come in time order, and before the steps and
    /// samples of later times.
    pub fn add_cpu_time(&mut self, location: LocationIndex, time: Timestamp, ticks: f64) {
        self.cpu_times.add(location, time, ticks);
    }

    /// Gives two locations of the same thread the same CPU time: that of `recorded`, if it is known, otherwise that of
    /// `samples`.
    pub fn share_cpu_time(&mut self, samples: LocationIndex, recorded: LocationIndex) {
        self.cpu_times.share(samples, recorded);
    }

    /// Adds the other jobs of a node. They have used no CPU time yet.
    pub fn add_other_jobs(&mut self) -> OtherJobs {
        self.cpu_times.add_other_jobs()
    }

    /// Adds a point of the CPU time that other jobs have used up to `time`, in ticks, with the rules of [`Engine::add_cpu_time`].
    pub fn add_cpu_time_of_other_jobs(&mut self, jobs: OtherJobs, time: Timestamp, ticks: f64) {
        self.cpu_times.add_to_other_jobs(jobs, time, ticks);
    }

    /// States that other jobs use the view's device, too: under the policy *active*, with shared joules, the dynamic joules are
    /// divided between their CPU time and the active time of the consumers.
    pub fn share_with(&mut self, view: ViewIndex, jobs: OtherJobs) {
        for view in self.with_twin(view) {
            self.views[view.0 as usize].share_with(jobs);
        }
    }

    /// Whether the CPU time of a location is known.
    pub fn knows_cpu_time(&self, location: LocationIndex) -> bool {
        self.cpu_times.of(location.0).is_some()
    }

    /// Returns the CPU time that a location has used up to a time, in ticks, if it is known.
    pub fn cpu_time_at(&self, location: LocationIndex, time: Timestamp) -> Option<f64> {
        Some(self.cpu_times.of(location.0)?.at(time).since(Ticks::default()))
    }

    /// Releases CPU times before `time`: no earlier step or sample will come. Those at the start of open intervals stay known,
    /// because a location that becomes a worker in an interval has worked since its start.
    pub fn release_cpu_times(&mut self, time: Timestamp) {
        let kept_since = self.history.as_ref().map(|history| history.kept_since());
        let time = kept_since.map_or(time, |since| since.min(time));
        let active = self.views.iter().filter(|view| view.policy == Policy::Active);
        let starts = active.filter_map(|view| Some(view.last_sample()?.0).filter(|start| *start < time));
        let mut times: Vec<Timestamp> = starts.chain([time]).collect();
        times.sort_unstable();
        times.dedup();
        self.cpu_times.release_before(&times);
    }

    /// Sets the power that the device of a view always draws (its baseline), in joules per tick, for the policy *active*.
    pub fn set_baseline(&mut self, view: ViewIndex, joules_per_tick: f64) {
        for view in self.with_twin(view) {
            self.views[view.0 as usize].baseline = joules_per_tick;
        }
    }

    /// Returns the intervals of a view in which nothing was active, under the policy *active*.
    pub fn idle_intervals(&self, view: ViewIndex) -> IdleIntervals {
        self.views[view.0 as usize].idle_intervals
    }

    /// Counts the CPU time of `worker`, as long as it has no frames in the view itself, for the frames of a consumer, under the
    /// policy *active*.
    pub fn add_worker(&mut self, view: ViewIndex, worker: LocationIndex, location: LocationIndex) {
        let [own, consumer] = [worker, location].map(|location| self.consumer_of(view, location));
        if let Some(consumer) = consumer {
            self.views[view.0 as usize].add_worker(worker.0, own, consumer);
        }
    }

    /// Lets a location enter a region.
    #[inline]
    pub fn enter(&mut self, location: LocationIndex, time: Timestamp, region: RegionRef) {
        self.enter_calls(location, time, region, 1);
    }

    /// Lets the call path of the location's next frame begin with `path`, such as the call path of a GPU kernel's launch (see
    /// [`Engine::same_path`]). The frames of this path are not entered: they get neither time nor joules of their own. Does
    /// nothing while a frame is open.
    pub fn begin_in(&mut self, location: LocationIndex, path: NodeIndex) {
        let state = &mut self.locations[location.0 as usize];
        if state.current.is_root() {
            state.base = path;
        }
    }

    /// Returns the call path of `location` that has the same regions as this one of another location, and makes it if it is new.
    pub fn same_path(&mut self, location: LocationIndex, other: LocationIndex, path: NodeIndex) -> NodeIndex {
        let regions = self.locations[other.0 as usize].paths.path(path);
        let paths = &mut self.locations[location.0 as usize].paths;
        regions.into_iter().fold(NodeIndex::ROOT, |node, region| paths.child(node, region))
    }

    /// Returns the call path of a location's open frames.
    pub fn current_path(&self, location: LocationIndex) -> NodeIndex {
        self.locations[location.0 as usize].current
    }

    /// Enters a frame that stands for `calls` calls, one after the other; 0 if it continues one that was counted before.
    #[inline]
    pub fn enter_calls(&mut self, location: LocationIndex, time: Timestamp, region: RegionRef, calls: u64) {
        let state = &mut self.locations[location.0 as usize];
        let around = if state.current.is_root() { state.base } else { state.current };
        let node = state.paths.child(around, region);
        let counted = &mut state.paths.node_mut(node).calls;
        *counted = counted.saturating_add(calls);
        self.change_frame(location, time, node, calls.min((LEAVE - 1).into()));
    }

    /// Leaves the innermost frame, whatever its region.
    #[inline]
    pub fn leave(&mut self, location: LocationIndex, time: Timestamp) {
        let state = &mut self.locations[location.0 as usize];
        if state.current.is_root() {
            self.unmatched_leaves += 1;
            return;
        }
        let node = state.around_current();
        if node.is_root() {
            state.base = NodeIndex::ROOT;
        }
        self.change_frame(location, time, node, LEAVE.into());
    }

    /// Processes steps of one location, in order, with the same result as if each were processed alone. The location's steps
    /// between two breaks of its views (see `view/share_clock.rs`) are passed to each view in one call.
    pub fn steps(&mut self, location: LocationIndex, steps: &[Step]) {
        for steps in steps.chunks(STEPS_MAX) {
            let mut done = 0;
            while done < steps.len() {
                done += self.steps_between_breaks(location, &steps[done..]);
                if let Some(step) = steps.get(done) {
                    self.step(location, *step);
                    done += 1;
                }
            }
        }
    }

    fn step(&mut self, location: LocationIndex, step: Step) {
        if step.calls == LEAVE {
            self.leave(location, step.time);
        } else {
            self.enter_calls(location, step.time, RegionRef(step.region), step.calls.into());
        }
    }

    /// Processes the steps before the first one at which the location starts or stops running. Returns their number.
    fn steps_between_breaks(&mut self, location: LocationIndex, steps: &[Step]) -> usize {
        let Location { paths, current, base, since, draws_from } = &mut self.locations[location.0 as usize];
        if current.is_root() {
            return 0;
        }
        let (from, count) = match steps.len() / 2 {
            enters if enters < paths.len() => (*current, enters.min(PREFETCHED_MAX)),
            _ => (NodeIndex::ROOT, paths.len()), // probably all of them
        };
        paths.load(from, count);
        for (view, consumer) in draws_from.iter() {
            self.views[view.0 as usize].load_accounts(*consumer, from, count);
        }
        self.moves.clear();
        for step in steps {
            let node = if step.calls == LEAVE {
                let around = paths.parent(*current);
                if around == *base {
                    break;
                }
                around
            } else {
                let node = paths.child(*current, RegionRef(step.region));
                let counted = &mut paths.node_mut(node).calls;
                *counted = counted.saturating_add(step.calls.into());
                node
            };
            match step.time.checked_sub(*since) {
                Some(ticks) => {
                    paths.node_mut(*current).exclusive_ticks += ticks;
                    *since = step.time;
                }
                None => self.backward += 1,
            }
            *current = node;
            self.moves.push(Move { time: step.time, node, calls: step.calls });
        }
        for (view, consumer) in draws_from.iter().filter(|_| !self.moves.is_empty()) {
            self.views[view.0 as usize].moves(*consumer, &self.moves, paths, &self.cpu_times);
        }
        if let Some(history) = &mut self.history {
            history.add(location, &self.moves);
        }
        if let Some(calls) = &mut self.calls {
            let is_recorded = is_recorded(draws_from, &self.views);
            self.moves.iter().for_each(|to| calls.record(location, *to, is_recorded));
        }
        self.moves.len()
    }

    /// Leaves all open frames. Returns their number.
    pub fn close(&mut self, location: LocationIndex, time: Timestamp) -> usize {
        let mut open = 0;
        while !self.locations[location.0 as usize].current.is_root() {
            self.leave(location, time);
            open += 1;
        }
        open
    }

    #[inline]
    fn change_frame(&mut self, location: LocationIndex, time: Timestamp, node: NodeIndex, calls: u64) {
        while self.take_queued_sample().is_some() {} // there are none if the promises of `enqueue_sample` are kept; otherwise this event is late
        let state = &mut self.locations[location.0 as usize];
        let before = state.current;
        state.current = node;
        match time.checked_sub(state.since) {
            Some(ticks) => {
                state.paths.node_mut(before).exclusive_ticks += ticks;
                state.since = time;
            }
            None => self.backward += 1,
        }
        let to = Move { time, node, calls: calls as u32 };
        if let Some(history) = &mut self.history {
            history.add(location, &[to]);
        }
        if self.calls.is_some() {
            return self.change_recorded_frame(location, to);
        }
        for (view, consumer) in &state.draws_from {
            self.views[view.0 as usize].switch(*consumer, time, node, &self.cpu_times);
        }
    }

    #[cold]
    fn change_recorded_frame(&mut self, location: LocationIndex, to: Move) {
        let draws_from = &self.locations[location.0 as usize].draws_from;
        for (view, consumer) in draws_from {
            self.views[view.0 as usize].switch_recorded(*consumer, to, &self.cpu_times);
        }
        if let Some(calls) = &mut self.calls {
            calls.record(location, to, is_recorded(draws_from, &self.views));
        }
    }

    /// Processes a sample of the view's counter, which ends an interval at `time`: its joules are charged, in the view and in
    /// its twin.
    pub fn sample(&mut self, view: ViewIndex, time: Timestamp, increase: Increase) {
        let locations = &self.locations;
        let region_of = |location: u32, node| locations[location as usize].paths.node(node).region;
        let has_run = |location: u32| locations[location as usize].paths.len() > 1;
        for view in self.with_twin(view) {
            let busy = take_busy_times(&mut self.views, view);
            let times = busy.as_ref().map(|(_, times)| &**times);
            self.views[view.0 as usize].sample(time, increase, &self.cpu_times, times, region_of, has_run);
            put_busy_times(&mut self.views, busy);
        }
    }

    /// Queues a sample of the view, and of its twin, in time order, before the events that precede it. The caller promises
    /// that no location starts or stops running before the sample, and that no other sample comes before
    /// [`Engine::take_queued_sample`] has returned all that are queued. In return, steps after it may be passed first. Returns
    /// `false` if this sample cannot be queued.
    pub fn enqueue_sample(&mut self, view: ViewIndex, time: Timestamp, increase: Increase) -> bool {
        let Increase::Joules(joules) = increase else { return false };
        let can = |view: ViewIndex| self.views[view.0 as usize].can_enqueue_sample(time);
        if self.calls.is_some() || !self.with_twin(view).all(can) {
            return false;
        }
        self.with_twin(view).for_each(|view| self.views[view.0 as usize].enqueue_sample(time, joules));
        self.queued.push_back(view);
        true
    }

    fn with_twin(&self, view: ViewIndex) -> impl Iterator<Item = ViewIndex> + use<> {
        [Some(view), self.views[view.0 as usize].twin].into_iter().flatten()
    }

    /// Charges a location for the queued samples. All steps before them must have been passed.
    pub fn pass_queued_samples(&mut self, location: LocationIndex) {
        if self.queued.is_empty() {
            return;
        }
        let Location { paths, draws_from, .. } = &self.locations[location.0 as usize];
        for (view, consumer) in draws_from.iter() {
            self.views[view.0 as usize].pass_samples(*consumer, |node| paths.node(node).region);
        }
    }

    /// Ends the interval of the next queued sample, before which all steps have come, and returns its view. `None`: no sample is
    /// queued.
    pub fn take_queued_sample(&mut self) -> Option<ViewIndex> {
        let view = self.queued.pop_front()?;
        let locations = &self.locations;
        let region_of = |location: u32, node| locations[location as usize].paths.node(node).region;
        for view in self.with_twin(view) {
            self.views[view.0 as usize].take_queued_sample(region_of);
        }
        Some(view)
    }

    /// Returns how the view divides joules.
    pub fn report_policy(&self, view: ViewIndex) -> Policy {
        self.views[view.0 as usize].policy
    }

    /// Whether the view's consumers share its joules.
    pub fn report_sharing(&self, view: ViewIndex) -> Sharing {
        self.views[view.0 as usize].sharing
    }

    /// Returns the view's joules, as of its last sample.
    pub fn totals(&self, view: ViewIndex) -> ViewTotals {
        self.views[view.0 as usize].totals()
    }

    /// Returns the contradictions in the input so far.
    pub fn oddities(&self) -> Oddities {
        Oddities {
            unmatched_leaves: self.unmatched_leaves,
            late: self.views.iter().map(|view| view.clock.late).sum(),
            backward: self.backward,
        }
    }

    /// Returns the region of a location's innermost frame.
    pub fn current_region(&self, location: LocationIndex) -> Option<RegionRef> {
        let location = &self.locations[location.0 as usize];
        (!location.current.is_root()).then(|| location.paths.node(location.current).region)
    }

    /// Returns the number of a location's call paths.
    pub fn callpaths_of(&self, location: LocationIndex) -> usize {
        self.locations[location.0 as usize].paths.len() - 1
    }

    /// Returns the time when a location's innermost frame last changed.
    pub fn last_change(&self, location: LocationIndex) -> Timestamp {
        self.locations[location.0 as usize].since
    }

    /// Whether a frame was ever entered on a location.
    pub fn has_run(&self, location: LocationIndex) -> bool {
        self.locations[location.0 as usize].paths.len() > 1
    }

    /// Whether the view has had a sample.
    pub fn has_begun(&self, view: ViewIndex) -> bool {
        self.last_sample(view).is_some()
    }

    /// Returns the time of the view's last sample, and the counter's increase until then.
    pub fn last_sample(&self, view: ViewIndex) -> Option<(Timestamp, f64)> {
        self.views[view.0 as usize].last_sample()
    }

    /// Whether a location has an open frame.
    pub fn is_open(&self, location: LocationIndex) -> bool {
        !self.locations[location.0 as usize].current.is_root()
    }

    /// Returns the regions of a location's open frames, the outermost first.
    pub fn stack(&self, location: LocationIndex) -> Vec<RegionRef> {
        let mut regions: Vec<RegionRef> = self.open_frames(location).map(|(_, region, _)| region).collect();
        regions.reverse();
        regions
    }

    /// Returns a location's open frames, the innermost first: each call path, its region, and how often it has been entered.
    pub fn open_frames(
        &self,
        location: LocationIndex,
    ) -> impl Iterator<Item = (NodeIndex, RegionRef, u64)> + '_ {
        let Location { paths, current, base, .. } = &self.locations[location.0 as usize];
        let up = move |node: &NodeIndex| Some(paths.parent(*node)).filter(|node| node != base);
        let frames = std::iter::successors(Some(*current).filter(|node| !node.is_root()), up);
        frames.map(|node| (node, paths.node(node).region, paths.node(node).calls))
    }

    /// Calls `each` with (location, region, joules) for every call path of the view. This is the cheap way to sum by region.
    pub fn each_account(&self, view: ViewIndex, mut each: impl FnMut(LocationIndex, RegionRef, Spent)) {
        for (location, node, spent) in self.views[view.0 as usize].accounts() {
            let region = self.locations[location as usize].paths.node(node).region;
            each(LocationIndex(location), region, spent);
        }
    }

    /// Calls `each` with (region, joules) for every call path of the view whose innermost frame was entered on its location. This
    /// leaves out the call paths of launches, with which others begin ([`Engine::begin_in`]).
    pub fn each_entered_account(&self, view: ViewIndex, mut each: impl FnMut(RegionRef, Spent)) {
        for (location, node, spent) in self.views[view.0 as usize].accounts() {
            let node = self.locations[location as usize].paths.node(node);
            if node.calls > 0 || node.exclusive_ticks > 0 || spent.joules > 0.0 {
                each(node.region, spent);
            }
        }
    }

    /// Calls `each` with (location, call path, joules) for every call path of the view.
    pub fn each_node_account(&self, view: ViewIndex, mut each: impl FnMut(LocationIndex, NodeIndex, Spent)) {
        for (location, node, spent) in self.views[view.0 as usize].accounts() {
            each(LocationIndex(location), node, spent);
        }
    }

    /// Calls `each` with (region, calls, exclusive ticks) for every call path of a location, in the order of [`Engine::nodes`].
    pub fn each_callpath(&self, location: LocationIndex, mut each: impl FnMut(RegionRef, u64, u64)) {
        for (_, node) in self.locations[location.0 as usize].paths.nodes() {
            each(node.region, node.calls, node.exclusive_ticks);
        }
    }

    /// Does what [`Engine::each_callpath`] does, and counts the innermost open frame up to `time`.
    pub fn each_time_until(
        &self,
        location: LocationIndex,
        time: Timestamp,
        mut each: impl FnMut(RegionRef, u64, u64),
    ) {
        let Location { paths, current, since, .. } = &self.locations[location.0 as usize];
        for (at, node) in paths.nodes() {
            let open = if at == *current { time.saturating_sub(*since) } else { 0 };
            each(node.region, node.calls, node.exclusive_ticks.saturating_add(open));
        }
    }

    /// Returns a location's innermost frame; `None` if none is open.
    pub fn current(&self, location: LocationIndex) -> Option<NodeIndex> {
        Some(self.locations[location.0 as usize].current).filter(|node| !node.is_root())
    }

    pub(crate) fn locations(&self) -> &[Location] {
        &self.locations
    }

    pub(crate) fn location(&self, location: u32) -> &Location {
        &self.locations[location as usize]
    }

    pub(crate) fn view(&self, view: ViewIndex) -> &View {
        &self.views[view.0 as usize]
    }

    /// Returns the CPU time of a location, if it is known.
    pub(crate) fn cpu_time_of(&self, location: LocationIndex) -> Option<&CpuTime> {
        self.cpu_times.of(location.0)
    }

    pub(crate) fn cpu_times(&self) -> &CpuTimes {
        &self.cpu_times
    }

    pub(crate) fn cpu_times_mut(&mut self) -> &mut CpuTimes {
        &mut self.cpu_times
    }

    pub(crate) fn views(&self) -> impl Iterator<Item = &View> {
        self.views.iter()
    }

    pub(crate) fn shorten_prices_of(&mut self, view: ViewIndex, parts: &mut [Range<Timestamp>]) {
        self.views[view.0 as usize].shorten_prices(parts, &self.cpu_times);
    }

    pub(crate) fn views_mut(&mut self) -> impl Iterator<Item = &mut View> {
        self.views.iter_mut()
    }

    pub(crate) fn view_mut(&mut self, view: ViewIndex) -> &mut View {
        &mut self.views[view.0 as usize]
    }
}

/// Takes the times of the kernels by which a view is divided, if any are known, so that the view can be changed in the
/// meantime.
fn take_busy_times(views: &mut [View], view: ViewIndex) -> Option<(ViewIndex, Box<BusyTimes>)> {
    let kernels = views[view.0 as usize].by_kernels.as_ref()?.kernels?;
    Some((kernels, views[kernels.0 as usize].busy_times.take()?))
}

fn put_busy_times(views: &mut [View], taken: Option<(ViewIndex, Box<BusyTimes>)>) {
    if let Some((kernels, times)) = taken {
        views[kernels.0 as usize].busy_times = Some(times);
    }
}

/// Whether one of these views records the calls of its consumers.
fn is_recorded(draws_from: &[(ViewIndex, u32)], views: &[View]) -> bool {
    draws_from.iter().any(|(view, _)| views[view.0 as usize].recorder.calls.is_some())
}
