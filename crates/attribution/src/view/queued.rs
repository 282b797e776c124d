//! Samples that are queued before the events that precede them. If none of the view's consumers starts or stops running before
//! them, the share clock and the prices of their intervals are known, and a consumer can pass several intervals at a time: with
//! thousands of consumers, what one of them needs is fetched from memory once for all intervals. A consumer is charged, to the
//! last bit, what it would be charged otherwise.

use super::recording::Charge;
use super::{Move, ShareClock, View};
use crate::callpaths::{CallPaths, NodeIndex};
use crate::engine::LocationIndex;
use crate::policy::Policy;
use crate::view::consumer::Group;
use ampere_model::{RegionRef, Timestamp};

#[derive(Clone, Debug)]
pub(super) struct QueuedSample {
    /// The start of the interval that it ends.
    start: Timestamp,
    end: Timestamp,
    joules: f64,
    /// Joules per share-clock tick.
    price: f64,
    /// How many call paths it has charged, and the last of them: its consumer, and what it was due.
    charged: usize,
    last: Option<(u32, NodeIndex, f64)>,
    /// All charges, if intervals are recorded.
    charges: Vec<Charge>,
}

/// The maximum number of queued samples of a view.
const QUEUED_MAX: usize = u64::BITS as usize;

impl View {
    /// Whether this sample can be queued.
    pub fn can_enqueue_sample(&self, time: Timestamp) -> bool {
        let start = self.queued.last().map(|before| before.end).or(self.interval.start);
        self.policy == Policy::TimeSliced
            && self.calls.is_none()
            && self.taken == 0
            && self.queued.len() < QUEUED_MAX
            && time >= self.clock.reached
            && start.is_some_and(|start| start < time)
    }

    /// Queues a sample. No consumer may start or stop running before it.
    pub fn enqueue_sample(&mut self, time: Timestamp, joules: f64) {
        let start = self.queued.last().map(|before| before.end).or(self.interval.start).unwrap_or(time);
        let price = joules / (time - start) as f64;
        let (charged, last, charges) = (0, None, Vec::new());
        self.queued.push(QueuedSample { start, end: time, joules, price, charged, last, charges });
    }

    /// The share clock, and the clock of the consumer's group, in the interval that the consumer is in.
    #[inline]
    pub(super) fn clocks_of(&self, index: u32) -> (ShareClock, Option<Group>) {
        let consumer = &self.consumers[index as usize];
        let mut group = consumer.group.map(|group| self.groups[group as usize]);
        let mut clock = self.clock;
        if let Some(last) = consumer.passed.checked_sub(1) {
            (clock.now, clock.ticks) = (self.queued[last].end, 0.0);
            group.iter_mut().for_each(Group::begin_interval);
        }
        (clock, group)
    }

    /// Takes a consumer's moves up to the last queued sample. Returns those after it.
    #[inline]
    pub(super) fn moves_through_samples<'a>(
        &mut self,
        index: u32,
        mut moves: &'a [Move],
        paths: &CallPaths,
    ) -> &'a [Move] {
        while let Some(sample) = self.queued.get(self.consumers[index as usize].passed) {
            let count = moves.iter().position(|to| to.time >= sample.end);
            let Some(count) = count else { break };
            let (before, after) = moves.split_at(count);
            self.moves_in_interval(index, before, |_, _| {});
            self.pass_sample(index, |node| paths.node(node).region);
            moves = after;
        }
        moves
    }

    /// A consumer passes all queued samples.
    pub fn pass_samples(&mut self, index: u32, region_of: impl Fn(NodeIndex) -> RegionRef) {
        while self.consumers[index as usize].passed < self.queued.len() {
            self.pass_sample(index, &region_of);
        }
    }

    /// A consumer passes the next sample: it is charged for what ran since the one before.
    fn pass_sample(&mut self, index: u32, region_of: impl Fn(NodeIndex) -> RegionRef) {
        let (clock, group) = self.clocks_of(index);
        let View { consumers, queued, possible_regions, interval_charged, sharing, .. } = self;
        let consumer = &mut consumers[index as usize];
        let number = consumer.passed;
        let sample = &mut queued[number];
        let end = clock.at(sample.end);
        consumer.accrue(group.map_or(end, |group| group.at(end)));
        let sharer = consumer.independent_sharer(index, *sharing);
        for node in consumer.listed.drain(..) {
            let account = &mut consumer.accounts[node.0 as usize];
            sample.charged += 1;
            sample.last = Some((index, node, account.due));
            if interval_charged.is_some() {
                let (location, joules) = (LocationIndex(consumer.location), account.due * sample.price);
                sample.charges.push(Charge { location, node, joules });
            }
            account.charge(sample.price);
            possible_regions.add_queued(account, sample.joules, number, sharer, || region_of(node));
        }
        consumer.since = 0.0;
        consumer.passed += 1;
    }

    /// Takes the next queued sample.
    pub fn take_queued_sample(&mut self, region_of: impl Fn(u32, NodeIndex) -> RegionRef) {
        if self.taken == 0 {
            for index in 0..self.consumers.len() {
                let location = self.consumers[index].location;
                self.pass_samples(index as u32, |node| region_of(location, node));
            }
        }
        self.add_to_totals(self.taken);
        self.taken += 1;
        if self.taken == self.queued.len() {
            self.taken = 0;
            self.queued.clear();
            self.consumers.iter_mut().for_each(|consumer| consumer.passed = 0);
        }
    }

    /// Adds the queued sample of this number, which all consumers have passed, to the totals.
    fn add_to_totals(&mut self, number: usize) {
        let QueuedSample { start, end, joules, charged, last, .. } = self.queued[number];
        let ticks = end - start;
        self.begin_charging();
        self.clock.reached = self.clock.reached.max(end);
        self.advance(end);
        let of_one = last.filter(|_| charged == 1);
        let alone = of_one.filter(|(_, _, due)| *due == ticks as f64);
        if let Some((consumer, node, _)) = alone {
            let location = self.consumers[consumer as usize].location;
            self.resolved.entry((location, node)).or_default().add(joules, ticks);
        }
        let idle = if charged == 0 { joules } else { joules * (self.interval.idle_ticks / ticks as f64) };
        self.totals.total_joules += joules;
        self.totals.idle_joules += idle;
        self.charged_once += joules - idle;
        self.totals.samples += 1;
        self.possible_regions.take_queued(number, joules);
        if let Some(interval) = &mut self.interval_charged {
            std::mem::swap(&mut interval.charges, &mut self.queued[number].charges);
        }
        self.end_charging();
        self.interval.start = Some(end);
        self.interval.idle_ticks = 0.0;
        self.clock.ticks = 0.0;
        self.groups.iter_mut().for_each(Group::begin_interval);
    }
}
