//! Queues samples before the events that precede them. If none of the view's consumers starts or stops running before these
//! samples, the share clock and the prices of their intervals are known in advance, and a consumer can pass several intervals at
//! a time. With thousands of consumers, the data of each is then fetched from memory once for all these intervals. The result is
//! the same, to the last bit.

use super::active::Price;
use super::recording::Charge;
use super::sample_queue::QueuedSample;
use super::{ShareClock, View};
use crate::callpaths::CallPaths;
use crate::cpu_time::CpuTimes;
use crate::policy::Policy;
use crate::steps::{LocationIndex, Move, NodeIndex};
use crate::view::consumer::Group;
use ampere_model::{RegionRef, Timestamp};

impl View {
    /// Whether this sample can be queued.
    pub fn can_enqueue_sample(&self, time: Timestamp) -> bool {
        let start = self.queue.last_end().or(self.interval.start);
        self.policy == Policy::TimeSliced
            && self.recorder.calls.is_none()
            && self.queue.is_open()
            && time >= self.clock.reached
            && start.is_some_and(|start| start < time)
    }

    /// Queues a sample. No consumer may start or stop running before it.
    pub fn enqueue_sample(&mut self, time: Timestamp, joules: f64) {
        let start = self.queue.last_end().or(self.interval.start).unwrap_or(time);
        self.queue.push(start, time, joules);
    }

    /// Returns the share clock, and the clock of the consumer's group, in the interval that the consumer has reached.
    #[inline]
    pub(super) fn clocks_of(&self, index: u32) -> (ShareClock, Option<Group>) {
        let consumer = &self.consumers.all[index as usize];
        let mut group = consumer.group.map(|group| self.consumers.groups[group as usize]);
        let mut clock = self.clock;
        if let Some(last) = consumer.passed.checked_sub(1) {
            (clock.now, clock.ticks) = (self.queue.samples[last].end, 0.0);
            group.iter_mut().for_each(Group::begin_interval);
        }
        (clock, group)
    }

    /// Processes a consumer's moves, and lets it pass each queued sample whose end a later move has reached. Returns the moves
    /// after the last sample that it passed.
    #[inline]
    pub(super) fn moves_through_samples<'a>(
        &mut self,
        index: u32,
        mut moves: &'a [Move],
        paths: &CallPaths,
        cpu_times: &CpuTimes,
    ) -> &'a [Move] {
        while let Some(sample) = self.queue.samples.get(self.consumers.all[index as usize].passed) {
            let count = moves.iter().position(|to| to.time >= sample.end);
            let Some(count) = count else { break };
            let (before, after) = moves.split_at(count);
            self.moves_in_interval(index, before, cpu_times, |_, _| {});
            self.pass_sample(index, |node| paths.node(node).region);
            moves = after;
        }
        moves
    }

    /// Lets a consumer pass all queued samples.
    pub fn pass_samples(&mut self, index: u32, region_of: impl Fn(NodeIndex) -> RegionRef) {
        while self.consumers.all[index as usize].passed < self.queue.samples.len() {
            self.pass_sample(index, &region_of);
        }
    }

    /// Lets a consumer pass the next queued sample. This charges the consumer's frames that ran since the previous sample.
    fn pass_sample(&mut self, index: u32, region_of: impl Fn(NodeIndex) -> RegionRef) {
        let (clock, group) = self.clocks_of(index);
        let View { consumers, queue, possible_regions, recorder, sharing, .. } = self;
        let consumer = &mut consumers.all[index as usize];
        let number = consumer.passed;
        let sample = &mut queue.samples[number];
        let end = clock.at(sample.end);
        consumer.accrue(group.map_or(end, |group| group.at(end)));
        let sharer = consumer.independent_sharer(index, *sharing);
        for node in consumer.listed.drain(..) {
            let account = &mut consumer.accounts[node.0 as usize];
            sample.charged += 1;
            sample.last = Some((index, node, account.due));
            if recorder.interval.is_some() {
                let (location, joules) = (LocationIndex(consumer.location), account.due * sample.price);
                sample.charges.push(Charge { location, node, joules, dynamic_joules: 0.0 });
            }
            account.charge(sample.price);
            possible_regions.add_queued(account, sample.joules, number, sharer, || region_of(node));
        }
        consumer.since = 0.0;
        consumer.passed += 1;
    }

    /// Takes the next queued sample.
    pub fn take_queued_sample(&mut self, region_of: impl Fn(u32, NodeIndex) -> RegionRef) {
        if self.queue.taken == 0 {
            for index in 0..self.consumers.all.len() {
                let location = self.consumers.all[index].location;
                self.pass_samples(index as u32, |node| region_of(location, node));
            }
        }
        self.add_to_totals(self.queue.taken);
        self.queue.taken += 1;
        if self.queue.taken == self.queue.samples.len() {
            self.queue.taken = 0;
            self.queue.samples.clear();
            self.consumers.all.iter_mut().for_each(|consumer| consumer.passed = 0);
        }
    }

    /// Adds the queued sample of this number, which all consumers have passed, to the totals.
    fn add_to_totals(&mut self, number: usize) {
        let QueuedSample { start, end, joules, price, charged, last, .. } = self.queue.samples[number];
        let ticks = end - start;
        self.recorder.begin_charging(&self.totals);
        self.clock.reached = self.clock.reached.max(end);
        self.advance(end);
        self.record_price(Price::of_share(price));
        self.begin_recorded_interval();
        let of_one = last.filter(|_| charged == 1);
        let alone = of_one.filter(|(_, _, due)| *due == ticks as f64);
        if let Some((consumer, node, _)) = alone {
            let location = self.consumers.all[consumer as usize].location;
            self.resolved.entry((location, node)).or_default().add(joules, ticks);
        }
        let idle = if charged == 0 { joules } else { joules * (self.interval.idle_ticks / ticks as f64) };
        self.totals.total_joules += joules;
        self.totals.idle_joules += idle;
        self.charged_once += joules - idle;
        self.totals.samples += 1;
        self.possible_regions.take_queued(number, joules);
        if let Some(interval) = &mut self.recorder.interval {
            std::mem::swap(&mut interval.charges, &mut self.queue.samples[number].charges);
        }
        self.recorder.end_charging(&self.totals, start, end);
        self.interval.start = Some(end);
        self.interval.idle_ticks = 0.0;
        self.clock.ticks = 0.0;
        self.consumers.groups.iter_mut().for_each(Group::begin_interval);
    }
}
