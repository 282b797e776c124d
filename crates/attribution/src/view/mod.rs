//! One device seen by one kind of consumer.
//!
//! ```text
//! mod.rs           consumers, and their enters and leaves: each frame's due grows with the share clock
//! sample.rs        a sample ends the interval: its joules are charged to the frames that are due something
//! queued.rs        samples that are queued, so that consumers pass several of them at a time
//! sample_queue.rs  their queue
//! active.rs        the policy *active*
//! share_clock.rs   the share clock
//! kernels.rs       the policy *active* for a GPU's views
//! consumer.rs      consumers, and groups of them
//! account.rs       the joules of call paths
//! recording.rs     the joules of single calls
//! prices.rs        the prices that were charged per tick, if they are recorded
//! ```

mod account;
mod active;
mod consumer;
mod kernels;
mod prices;
mod queued;
mod recording;
mod sample;
mod sample_queue;
mod share_clock;

pub(crate) use account::{Account, Resolved};
pub use account::{Spent, ViewTotals};
pub use active::IdleIntervals;
pub(crate) use consumer::Consumer;
pub use recording::{Call, Charge, ChargedInterval};
pub(crate) use recording::{LocationCalls, OpenCall};

use crate::callpaths::CallPaths;
use crate::cpu_time::CpuTimes;
use crate::policy::{Policy, Sharing};
use crate::steps::{Move, NodeIndex, ViewIndex};
use account::PossibleRegions;
use active::{ActiveTime, Due, SharedWith, Worker};
use ampere_model::{Timestamp, sum};
use consumer::{Consumers, Group};
pub(crate) use kernels::BusyTimes;
use kernels::ByKernels;
use prices::PriceLog;
use recording::Recorder;
use sample_queue::SampleQueue;
use share_clock::ShareClock;
use std::collections::HashMap;

#[derive(Clone, Debug)]
pub(crate) struct View {
    pub policy: Policy,
    pub sharing: Sharing,
    pub consumers: Consumers,
    pub clock: ShareClock,
    interval: Interval,
    queue: SampleQueue,
    /// The resolved joules by location and call path. They are kept apart from the accounts, because at most one entry grows in
    /// an interval.
    pub resolved: HashMap<(u32, NodeIndex), Resolved>,
    pub possible_regions: PossibleRegions,
    totals: ViewTotals,
    /// Joules per tick that the device always draws. Only the policy *active* uses it.
    pub baseline: f64,
    /// The active time of each consumer; empty unless the policy is *active*.
    actives: Vec<ActiveTime>,
    workers: Vec<Worker>,
    shared_with: Option<SharedWith>,
    /// For a view that becomes *active* once streams are known: its policy until then. `None` if its policy never changes.
    pub undecided_policy: Option<Policy>,
    /// `None` unless this is a GPU's ranks view that is divided by kernels, if any are known.
    pub by_kernels: Option<Box<ByKernels>>,
    /// For a kernels view: the time for which each process had a kernel, if that is counted.
    pub busy_times: Option<Box<BusyTimes>>,
    pub idle_intervals: IdleIntervals,
    /// The number of intervals until one without activity counts as idle.
    intervals_after_activity: u32,
    /// The sum of the consumers' joules, each joule counted once. It is needed if sharing is independent.
    charged_once: f64,
    /// The view that [`Engine::fork`](crate::Engine::fork) has made from this one.
    pub twin: Option<ViewIndex>,
    pub recorder: Recorder,
    /// The prices that were charged, if they are recorded.
    pub prices: Option<Box<PriceLog>>,
}

/// The time since the last sample.
#[derive(Clone, Debug, Default)]
struct Interval {
    /// `None` before the first sample.
    start: Option<Timestamp>,
    idle_ticks: f64,
}

impl View {
    pub fn new(policy: Policy, sharing: Sharing) -> View {
        View {
            policy,
            sharing,
            consumers: Consumers::default(),
            clock: ShareClock::default(),
            interval: Interval::default(),
            queue: SampleQueue::default(),
            resolved: HashMap::new(),
            possible_regions: PossibleRegions::default(),
            totals: ViewTotals::default(),
            baseline: 0.0,
            actives: Vec::new(),
            workers: Vec::new(),
            shared_with: None,
            undecided_policy: None,
            by_kernels: None,
            busy_times: None,
            idle_intervals: IdleIntervals::default(),
            intervals_after_activity: 0,
            charged_once: 0.0,
            twin: None,
            recorder: Recorder::default(),
            prices: None,
        }
    }

    /// Makes a copy in which each consumer is in a group of its own.
    pub fn fork(&self, group: impl Fn(u32) -> Option<u64>) -> View {
        let clock = ShareClock { late: 0, ..self.clock };
        let mut fork =
            View { clock, twin: None, recorder: Recorder::default(), prices: None, ..self.clone() };
        let Consumers { all, groups, .. } = &mut fork.consumers;
        for consumer in all {
            let Some(name) = group(consumer.location) else { continue };
            consumer.group = Some(groups.len() as u32);
            let running = u32::from(!consumer.node.is_root());
            groups.push(Group::new(name, running, clock.ticks));
        }
        fork
    }

    /// Adds a consumer of a process, whose current call path is `node`. All consumers of a group count as one. A consumer that
    /// was removed and is added again keeps the joules that it was charged.
    pub fn add_consumer(
        &mut self,
        location: u32,
        (process, group): (Option<u64>, Option<u64>),
        node: NodeIndex,
        open: &[OpenCall],
        cpu_times: &CpuTimes,
    ) -> u32 {
        let before = self.consumers.all.iter().position(|c| c.removed && c.location == location);
        let consumer = match before {
            Some(consumer) => {
                self.consumers.all[consumer].removed = false;
                consumer
            }
            None => {
                let clock = self.clock.at(self.clock.reached);
                let group = group.map(|name| self.consumers.group(name, clock));
                self.consumers.all.push(Consumer::new(location, process, group, self.clock.reached));
                if self.counts_open_time() {
                    self.actives.push(ActiveTime::default());
                }
                self.consumers.all.len() - 1
            }
        };
        self.switch(consumer as u32, self.clock.reached, node, cpu_times);
        if let Some(calls) = &mut self.recorder.calls {
            calls.begin(consumer as u32, location, open);
        }
        consumer as u32
    }

    pub fn remove_consumer(&mut self, consumer: u32, cpu_times: &CpuTimes) {
        let (_, due) = self.switch(consumer, self.clock.reached, NodeIndex::ROOT, cpu_times);
        if let Some(calls) = &mut self.recorder.calls {
            calls.add_due(consumer, due);
            calls.leave_all(consumer, self.clock.reached);
        }
        self.consumers.all[consumer as usize].removed = true;
    }

    /// Returns the time of the last sample, and the counter's increase until then.
    pub fn last_sample(&self) -> Option<(Timestamp, f64)> {
        Some((self.interval.start?, self.totals.total_joules))
    }

    /// Like [`View::switch`], but also records the move if calls are recorded.
    pub fn switch_recorded(&mut self, index: u32, to: Move, cpu_times: &CpuTimes) {
        let (time, due) = self.switch(index, to.time, to.node, cpu_times);
        if let Some(calls) = &mut self.recorder.calls {
            calls.add_due(index, due);
            calls.record(index, self.consumers.all[index as usize].location, Move { time, ..to });
        }
    }

    /// Makes `node` the consumer's innermost frame from `time` on. Returns the time at which the change takes effect (later than
    /// `time` if the event is late), and the ticks that the previous frame was due.
    #[inline]
    pub fn switch(
        &mut self,
        index: u32,
        time: Timestamp,
        node: NodeIndex,
        cpu_times: &CpuTimes,
    ) -> (Timestamp, Due) {
        let was_active = !self.consumers.all[index as usize].node.is_root();
        let starts_or_stops = was_active == node.is_root();
        let time = self.clock.timely(time, starts_or_stops);
        let (clock, due) = self.accrue(index, self.clock.at(time), time, cpu_times);
        let consumer = &mut self.consumers.all[index as usize];
        if time > consumer.changed {
            consumer.before = consumer.node;
            consumer.changed = time;
        }
        consumer.node = node;
        consumer.since = consumer.since.max(clock); // so that nothing accrues twice
        if starts_or_stops {
            self.start_or_stop(index, time, !was_active);
        }
        (time, due)
    }

    /// Loads the accounts of up to `count` of a consumer's call paths, starting with `from`, into the cache at once.
    #[inline]
    pub fn load_accounts(&self, consumer: u32, from: NodeIndex, count: usize) {
        let accounts =
            self.consumers.all[consumer as usize].accounts.iter().skip(from.0 as usize).take(count);
        std::hint::black_box(accounts.fold(0, |all, account| all | account.joules.to_bits()));
    }

    /// Processes several moves of a consumer that runs before, between and after them. `paths` are the call paths of its
    /// location.
    pub fn moves(&mut self, index: u32, moves: &[Move], paths: &CallPaths, cpu_times: &CpuTimes) {
        let in_time = moves.partition_point(|to| to.time < self.clock.now);
        let (late, in_time) = moves.split_at(in_time);
        late.iter().for_each(|to| self.switch_recorded(index, *to, cpu_times));
        let Some(last) = in_time.last() else { return };
        self.clock.reached = self.clock.reached.max(last.time);
        let consumer = &mut self.consumers.all[index as usize];
        if consumer.accounts.len() < paths.len() {
            consumer.accounts.resize(paths.len(), Account::default());
        }
        if self.recorder.calls.is_none() {
            let in_last = self.moves_through_samples(index, in_time, paths, cpu_times);
            return self.moves_in_interval(index, in_last, cpu_times, |_, _| {});
        }
        let (location, mut calls) = (consumer.location, self.recorder.calls.take().unwrap_or_default());
        self.moves_in_interval(index, in_time, cpu_times, |due, to| {
            calls.add_due(index, due);
            calls.record(index, location, to);
        });
        self.recorder.calls = Some(calls);
    }

    /// Processes a consumer's moves in one interval. `each` is called with each move, and the ticks that the frame was due
    /// since the previous one.
    #[inline]
    fn moves_in_interval(
        &mut self,
        index: u32,
        moves: &[Move],
        cpu_times: &CpuTimes,
        mut each: impl FnMut(Due, Move),
    ) {
        let has_begun = self.interval.start.is_some();
        let (ShareClock { now, ticks, rate, .. }, group) = self.clocks_of(index);
        let mut active = self.actives.get_mut(index as usize);
        let Consumer { location, node, since, before, changed, accounts, listed, .. } =
            &mut self.consumers.all[index as usize];
        for to in moves {
            let clock = ticks + to.time.saturating_sub(now) as f64 * rate;
            let clock = group.map_or(clock, |group| group.at(clock)).max(*since);
            let share = if has_begun { clock - *since } else { 0.0 };
            if share > 0.0 {
                let account = &mut accounts[node.0 as usize];
                if account.due == 0.0 {
                    listed.push(*node);
                }
                account.due += share;
            }
            let due = match &mut active {
                None => Due { share, ..Due::default() },
                Some(active) => {
                    Due { share, ..active.accrue(*node, to.time, cpu_times.of(*location), has_begun) }
                }
            };
            if to.time > *changed {
                (*before, *changed) = (*node, to.time);
            }
            (*node, *since) = (to.node, clock);
            each(due, *to);
        }
    }

    /// Moves the share clock to a break (see [`ShareClock`]).
    fn advance(&mut self, time: Timestamp) {
        if let Some(log) = self.prices.as_mut().filter(|_| self.interval.start.is_some()) {
            log.add(self.clock.now, time, self.clock.rate);
        }
        let ticks = self.clock.advance(time);
        if self.consumers.active == 0 {
            self.interval.idle_ticks += ticks as f64;
        }
    }

    fn start_or_stop(&mut self, index: u32, time: Timestamp, start: bool) {
        self.advance(time);
        let Consumer { process, group, .. } = self.consumers.all[index as usize];
        if let Some((busy_times, process)) = self.busy_times.as_mut().zip(process) {
            busy_times.start_or_stop(process, time, start);
        }
        if let Some(number) = group {
            let group = &mut self.consumers.groups[number as usize];
            group.advance(self.clock.ticks);
            group.running = if start { group.running + 1 } else { group.running - 1 };
            if let Some(log) = &mut self.prices {
                log.set_running(number, time, group.running);
            }
            if group.running != u32::from(start) {
                return; // other members of the group run before and after
            }
        }
        self.consumers.active = if start { self.consumers.active + 1 } else { self.consumers.active - 1 };
        let split = self.policy != Policy::BusyOnly && self.sharing == Sharing::Shared;
        self.clock.rate = match self.consumers.active {
            0 => 0.0,
            active if split => 1.0 / f64::from(active),
            _ => 1.0,
        };
    }

    /// Adds the ticks that a consumer's current frame is due when the share clock is `clock`. Returns the consumer's clock, and
    /// these ticks.
    #[inline]
    fn accrue(&mut self, index: u32, clock: f64, time: Timestamp, cpu_times: &CpuTimes) -> (f64, Due) {
        let consumer = &mut self.consumers.all[index as usize];
        let clock = match consumer.group {
            None => clock,
            Some(group) => self.consumers.groups[group as usize].at(clock),
        };
        let has_begun = self.interval.start.is_some();
        let share = if has_begun { consumer.accrue(clock) } else { 0.0 };
        let due = match self.actives.get_mut(index as usize) {
            None => Due { share, ..Due::default() },
            Some(active) => {
                let cpu = cpu_times.of(consumer.location);
                Due { share, ..active.accrue(consumer.node, time, cpu, has_begun) }
            }
        };
        (clock, due)
    }

    /// Returns the dynamic joules of a consumer's call path, under the policy *active*.
    pub fn dynamic_joules(&self, consumer: usize, node: NodeIndex) -> f64 {
        self.actives.get(consumer).map_or(0.0, |active| active.dynamic_joules(node))
    }

    pub fn totals(&self) -> ViewTotals {
        let attributed = sum(self.accounts().map(|(_, _, account)| account.joules));
        let once = if self.sharing == Sharing::Shared { attributed } else { self.charged_once };
        let error = self.totals.total_joules - once - self.totals.idle_joules - self.totals.lost_joules;
        ViewTotals { attributed_joules: attributed, conservation_error_joules: error.abs(), ..self.totals }
    }

    /// Iterates over (location, call path, joules) for all call paths. A call path that was never due anything has 0 J.
    pub fn accounts(&self) -> impl Iterator<Item = (u32, NodeIndex, Spent)> {
        self.consumers.all.iter().enumerate().flat_map(move |(number, consumer)| {
            let numbered = consumer.accounts.iter().enumerate().skip(1);
            numbered.map(move |(node, account)| {
                let node = NodeIndex(node as u32);
                let dynamic_joules = self.dynamic_joules(number, node);
                (consumer.location, node, Spent { joules: account.joules, dynamic_joules })
            })
        })
    }
}
