//! One device seen by one kind of consumer.
//!
//! ```text
//! mod.rs          consumers come and go, enter and leave frames; each frame's due grows with the share clock
//! sample.rs       a sample ends the interval: its joules are charged to the frames that are due something
//! queued.rs       samples that are queued, so that consumers pass several of them at a time
//! share_clock.rs  the share clock          consumer.rs  consumers, and groups of them
//! account.rs      what a call path was charged          recording.rs  what a single call was charged
//! ```

mod account;
mod consumer;
mod queued;
mod recording;
mod sample;
mod share_clock;

pub(crate) use account::{Account, Resolved};
pub(crate) use consumer::Consumer;
pub(crate) use recording::OpenCall;
pub use recording::{Call, Charge, ChargedInterval};

use crate::callpaths::{CallPaths, NodeIndex};
use crate::engine::ViewIndex;
use crate::policy::{Policy, Sharing};
use account::PossibleRegions;
use ampere_model::{RegionRef, Timestamp};
use consumer::Group;
use queued::QueuedSample;
use recording::Recording;
use share_clock::ShareClock;
use std::collections::HashMap;

/// The joules of a view, as of its last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct ViewTotals {
    pub samples: u64,
    /// The known increase of the counter since the first sample.
    pub total_joules: f64,
    /// The sum over the call paths.
    pub attributed_joules: f64,
    pub idle_joules: f64,
    /// The joules of intervals that cannot be attributed.
    pub lost_joules: f64,
    pub counter_resets: u64,
    /// Ticks between samples whose increase is unknown: the counter was reset in between, or what was read could not be true.
    pub unknown_ticks: u64,
    /// |total - attributed - idle - lost|. With independent sharing, whose sum is larger on purpose, each joule is counted once
    /// here.
    pub conservation_error_joules: f64,
}

/// At `time`, a consumer's innermost frame becomes `node`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub time: Timestamp,
    pub node: NodeIndex,
    /// How many calls the entered frame stands for, or [`LEAVE`](crate::engine::LEAVE).
    pub calls: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct View {
    policy: Policy,
    sharing: Sharing,
    consumers: Vec<Consumer>,
    groups: Vec<Group>,
    /// Groups with a member that runs, and consumers without a group that run.
    active: u32,
    clock: ShareClock,
    interval: Interval,
    /// Queued samples, and how many of them have been taken.
    queued: Vec<QueuedSample>,
    taken: usize,
    /// By location and call path. It is kept apart from the accounts because at most one entry grows in an interval.
    resolved: HashMap<(u32, NodeIndex), Resolved>,
    possible_regions: PossibleRegions,
    totals: ViewTotals,
    /// What the consumers were charged, each joule counted once. It is needed if sharing is independent.
    charged_once: f64,
    /// The view that [`Engine::fork`](crate::Engine::fork) has made of this one.
    pub twin: Option<ViewIndex>,
    /// Single calls, if they are recorded.
    pub calls: Option<Box<Recording>>,
    /// The last interval, if intervals are recorded.
    pub interval_charged: Option<Box<ChargedInterval>>,
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
            consumers: Vec::new(),
            groups: Vec::new(),
            active: 0,
            clock: ShareClock::default(),
            interval: Interval::default(),
            queued: Vec::new(),
            taken: 0,
            resolved: HashMap::new(),
            possible_regions: PossibleRegions::default(),
            totals: ViewTotals::default(),
            charged_once: 0.0,
            twin: None,
            calls: None,
            interval_charged: None,
        }
    }

    /// A copy whose consumers are in groups, each in another one.
    pub fn fork(&self, group: impl Fn(u32) -> Option<u64>) -> View {
        let clock = ShareClock { late: 0, ..self.clock };
        let mut fork = View { clock, twin: None, calls: None, interval_charged: None, ..self.clone() };
        for consumer in &mut fork.consumers {
            let Some(name) = group(consumer.location) else { continue };
            consumer.group = Some(fork.groups.len() as u32);
            let running = u32::from(!consumer.node.is_root());
            fork.groups.push(Group::new(name, running, clock.ticks));
        }
        fork
    }

    /// Adds a consumer whose call path is `node` as of now. With the others of its group it counts as one. A consumer that was
    /// removed comes back with what it was charged.
    pub fn add_consumer(
        &mut self,
        location: u32,
        group: Option<u64>,
        node: NodeIndex,
        open: &[OpenCall],
    ) -> u32 {
        let before = self.consumers.iter().position(|c| c.removed && c.location == location);
        let consumer = match before {
            Some(consumer) => {
                self.consumers[consumer].removed = false;
                consumer
            }
            None => {
                let group = group.map(|name| self.group(name));
                self.consumers.push(Consumer::new(location, group, self.clock.reached));
                self.consumers.len() - 1
            }
        };
        self.switch(consumer as u32, self.clock.reached, node);
        if let Some(calls) = &mut self.calls {
            calls.begin(consumer as u32, location, open);
        }
        consumer as u32
    }

    /// The place of the group with the caller's number, which is made if it is new.
    fn group(&mut self, name: u64) -> u32 {
        let known = self.groups.iter().position(|group| group.name == name);
        known.unwrap_or_else(|| {
            self.groups.push(Group::new(name, 0, self.clock.at(self.clock.reached)));
            self.groups.len() - 1
        }) as u32
    }

    pub fn remove_consumer(&mut self, consumer: u32) {
        let (_, due) = self.switch(consumer, self.clock.reached, NodeIndex::ROOT);
        if let Some(calls) = &mut self.calls {
            calls.add_due(consumer, due);
            calls.leave_all(consumer, self.clock.reached);
        }
        self.consumers[consumer as usize].removed = true;
    }

    /// The time of the last sample, and the counter's increase until then.
    pub fn last_sample(&self) -> Option<(Timestamp, f64)> {
        Some((self.interval.start?, self.totals.total_joules))
    }

    /// Does what [`View::switch`] does, and records it if calls are recorded.
    pub fn switch_recorded(&mut self, index: u32, to: Move) {
        let (time, due) = self.switch(index, to.time, to.node);
        if let Some(calls) = &mut self.calls {
            calls.add_due(index, due);
            calls.record(index, self.consumers[index as usize].location, Move { time, ..to });
        }
    }

    /// From `time` on, the consumer's innermost frame is `node`. Returns the time as it is taken, and what the frame before was
    /// due.
    #[inline]
    pub fn switch(&mut self, index: u32, time: Timestamp, node: NodeIndex) -> (Timestamp, f64) {
        let was_active = !self.consumers[index as usize].node.is_root();
        let starts_or_stops = was_active == node.is_root();
        let time = self.clock.timely(time, starts_or_stops);
        let (clock, due) = self.accrue(index, self.clock.at(time));
        let consumer = &mut self.consumers[index as usize];
        if time > consumer.changed {
            consumer.before = consumer.node;
            consumer.changed = time;
        }
        consumer.node = node;
        consumer.since = consumer.since.max(clock); // nothing accrues twice
        if starts_or_stops {
            self.start_or_stop(index, time, !was_active);
        }
        (time, due)
    }

    /// Loads the accounts of up to `count` of its call paths, starting with `from`, into the cache at once.
    #[inline]
    pub fn load_accounts(&self, consumer: u32, from: NodeIndex, count: usize) {
        let accounts = self.consumers[consumer as usize].accounts.iter().skip(from.0 as usize).take(count);
        std::hint::black_box(accounts.fold(0, |all, account| all | account.joules.to_bits()));
    }

    /// Takes several moves of a consumer that runs before, between and after them. `paths`: those of its location.
    pub fn moves(&mut self, index: u32, moves: &[Move], paths: &CallPaths) {
        let in_time = moves.partition_point(|to| to.time < self.clock.now);
        let (late, in_time) = moves.split_at(in_time);
        late.iter().for_each(|to| self.switch_recorded(index, *to));
        let Some(last) = in_time.last() else { return };
        self.clock.reached = self.clock.reached.max(last.time);
        let consumer = &mut self.consumers[index as usize];
        if consumer.accounts.len() < paths.len() {
            consumer.accounts.resize(paths.len(), Account::default());
        }
        if self.calls.is_none() {
            let in_last = self.moves_through_samples(index, in_time, paths);
            return self.moves_in_interval(index, in_last, |_, _| {});
        }
        let (location, mut calls) = (consumer.location, self.calls.take().unwrap_or_default());
        self.moves_in_interval(index, in_time, |due, to| {
            calls.add_due(index, due);
            calls.record(index, location, to);
        });
        self.calls = Some(calls);
    }

    /// Takes a consumer's moves in one interval. `each` gets each move, and what the frame was due since the one before.
    #[inline]
    fn moves_in_interval(&mut self, index: u32, moves: &[Move], mut each: impl FnMut(f64, Move)) {
        let has_begun = self.interval.start.is_some();
        let (ShareClock { now, ticks, rate, .. }, group) = self.clocks_of(index);
        let Consumer { node, since, before, changed, accounts, listed, .. } =
            &mut self.consumers[index as usize];
        for to in moves {
            let clock = ticks + to.time.saturating_sub(now) as f64 * rate;
            let clock = group.map_or(clock, |group| group.at(clock)).max(*since);
            let due = if has_begun { clock - *since } else { 0.0 };
            if due > 0.0 {
                let account = &mut accounts[node.0 as usize];
                if account.due == 0.0 {
                    listed.push(*node);
                }
                account.due += due;
            }
            if to.time > *changed {
                (*before, *changed) = (*node, to.time);
            }
            (*node, *since) = (to.node, clock);
            each(due, *to);
        }
    }

    /// Moves the share clock to a break (see [`ShareClock`]).
    fn advance(&mut self, time: Timestamp) {
        let ticks = self.clock.advance(time);
        if self.active == 0 {
            self.interval.idle_ticks += ticks as f64;
        }
    }

    fn start_or_stop(&mut self, index: u32, time: Timestamp, start: bool) {
        self.advance(time);
        if let Some(group) = self.consumers[index as usize].group {
            let group = &mut self.groups[group as usize];
            group.advance(self.clock.ticks);
            group.running = if start { group.running + 1 } else { group.running - 1 };
            if group.running != u32::from(start) {
                return; // others of the group run before and after
            }
        }
        self.active = if start { self.active + 1 } else { self.active - 1 };
        let split = self.policy == Policy::TimeSliced && self.sharing == Sharing::Shared;
        self.clock.rate = match self.active {
            0 => 0.0,
            active if split => 1.0 / f64::from(active),
            _ => 1.0,
        };
    }

    /// Adds to the current frame of a consumer what it is due when the share clock is `clock`. Returns the consumer's clock, and
    /// what was due.
    #[inline]
    fn accrue(&mut self, index: u32, clock: f64) -> (f64, f64) {
        let consumer = &mut self.consumers[index as usize];
        let clock = match consumer.group {
            None => clock,
            Some(group) => self.groups[group as usize].at(clock),
        };
        let due = if self.interval.start.is_some() { consumer.accrue(clock) } else { 0.0 };
        (clock, due)
    }

    /// The time of the latest event or sample.
    pub fn reached(&self) -> Timestamp {
        self.clock.reached
    }

    pub fn totals(&self) -> ViewTotals {
        let attributed: f64 = self.accounts().map(|(_, _, account)| account.joules).sum();
        let once = if self.sharing == Sharing::Shared { attributed } else { self.charged_once };
        let error = self.totals.total_joules - once - self.totals.idle_joules - self.totals.lost_joules;
        ViewTotals { attributed_joules: attributed, conservation_error_joules: error.abs(), ..self.totals }
    }

    /// Iterates over (location, call path, account) for everything that has ever been due something.
    pub fn accounts(&self) -> impl Iterator<Item = (u32, NodeIndex, &Account)> {
        self.consumers.iter().flat_map(|consumer| {
            let numbered = consumer.accounts.iter().enumerate().skip(1);
            numbered.map(|(node, account)| (consumer.location, NodeIndex(node as u32), account))
        })
    }

    pub fn resolved(&self, location: u32, node: NodeIndex) -> Resolved {
        self.resolved.get(&(location, node)).copied().unwrap_or_default()
    }

    /// Iterates over (region, the most that it can have spent). With independent sharing a region is there once for each sharer.
    pub fn possible_regions(&self) -> impl Iterator<Item = (RegionRef, f64)> {
        self.possible_regions.iter()
    }

    pub fn consumers(&self) -> &[Consumer] {
        &self.consumers
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    pub fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// The number of events and samples that came after their time.
    pub fn late(&self) -> u64 {
        self.clock.late
    }
}
