//! A sample ends an interval: its joules are charged.

use super::{Consumer, View};
use crate::callpaths::NodeIndex;
use crate::counter::Increase;
use crate::policy::{Policy, Sharing};
use ampere_model::{RegionRef, Timestamp};

impl View {
    /// Takes a sample. `region_of` returns the region of a location's call path.
    pub fn sample(
        &mut self,
        time: Timestamp,
        increase: Increase,
        region_of: impl Fn(u32, NodeIndex) -> RegionRef,
    ) {
        let time = self.clock.timely(time, true);
        self.advance(time);
        for index in 0..self.consumers.len() as u32 {
            let (_, due) = self.accrue(index, self.clock.ticks);
            if self.calls.is_some() {
                self.record_due(index, due);
            }
        }
        let ticks = self.interval.start.map_or(0, |start| self.clock.now - start);
        self.begin_charging();
        match increase {
            Increase::Joules(joules) => {
                self.totals.total_joules += joules;
                self.charge(joules, ticks, region_of);
            }
            Increase::Lost(joules) => {
                self.totals.total_joules += joules;
                self.totals.lost_joules += joules;
                self.add_possible(joules, region_of);
            }
            Increase::Reset => {
                self.totals.counter_resets += 1;
                self.totals.unknown_ticks += ticks;
            }
            Increase::First => self.totals.unknown_ticks += ticks,
        }
        self.totals.samples += 1;
        self.end_charging();
        self.begin_interval();
    }

    #[cold]
    fn record_due(&mut self, consumer: u32, due: f64) {
        if let Some(calls) = &mut self.calls {
            calls.add_due(consumer, due);
        }
    }

    /// Starts a new interval in what is recorded.
    pub(super) fn begin_charging(&mut self) {
        if let Some(calls) = &mut self.calls {
            calls.begin_charging();
        }
        if let Some(charged) = &mut self.interval_charged {
            charged.charges.clear();
            // These are the totals before the interval: `end_charging` subtracts them.
            charged.joules = self.totals.total_joules;
            (charged.idle_joules, charged.lost_joules) = (self.totals.idle_joules, self.totals.lost_joules);
        }
    }

    pub(super) fn end_charging(&mut self) {
        if let Some(calls) = &mut self.calls {
            calls.end_interval();
        }
        if let Some(charged) = &mut self.interval_charged {
            (charged.start, charged.end) = (self.interval.start.unwrap_or(self.clock.now), self.clock.now);
            charged.joules = self.totals.total_joules - charged.joules;
            charged.idle_joules = self.totals.idle_joules - charged.idle_joules;
            charged.lost_joules = self.totals.lost_joules - charged.lost_joules;
        }
    }

    fn begin_interval(&mut self) {
        self.forget_dues();
        self.interval.start = Some(self.clock.now);
        self.interval.idle_ticks = 0.0;
        self.clock.ticks = 0.0;
        self.groups.iter_mut().for_each(|group| group.begin_interval());
        for consumer in &mut self.consumers {
            consumer.since = 0.0;
        }
    }

    fn forget_dues(&mut self) {
        for Consumer { listed, accounts, .. } in &mut self.consumers {
            listed.drain(..).for_each(|node| accounts[node.0 as usize].due = 0.0);
        }
    }

    /// The number of call paths with something due.
    fn listed(&self) -> usize {
        self.consumers.iter().map(|consumer| consumer.listed.len()).sum()
    }

    /// Adds an interval's joules, also if they are lost, to what each call path that ran in it may have spent. In an interval of
    /// length 0 these are the call paths that ran just before it, under every policy.
    fn add_possible(&mut self, joules: f64, region_of: impl Fn(u32, NodeIndex) -> RegionRef) {
        let before = (self.listed() == 0).then_some(self.clock.now);
        for (index, consumer) in self.consumers.iter_mut().enumerate() {
            let (location, sharer) =
                (consumer.location, consumer.independent_sharer(index as u32, self.sharing));
            let until_now = before.map(|now| consumer.just_before(now)).filter(|node| !node.is_root());
            let listed = std::mem::take(&mut consumer.listed);
            for node in listed.iter().copied().chain(until_now) {
                let account = consumer.account_mut(node);
                let region = || region_of(location, node);
                self.possible_regions.add(account, joules, self.totals.samples, sharer, region);
            }
            consumer.listed = listed;
        }
    }

    /// Charges an interval's joules to the frames that are listed.
    fn charge(&mut self, joules: f64, ticks: u64, region_of: impl Fn(u32, NodeIndex) -> RegionRef) {
        let listed = self.listed();
        if listed == 0 {
            self.add_possible(joules, region_of);
            // An interval that has a length and in which nothing is due had no frame. One of length 0 may have had one.
            if self.policy == Policy::BusyOnly || !self.charge_at_once(joules) {
                self.totals.idle_joules += joules;
            }
            return;
        }
        if listed == 1 {
            self.resolve(joules, ticks);
        }
        if self.policy == Policy::BusyOnly {
            // Sums must not depend on the order in which a location's call paths came.
            self.consumers.iter_mut().for_each(|consumer| consumer.listed.sort_unstable());
        }
        match (self.policy, self.sharing) {
            (Policy::TimeSliced, _) => {
                let idle = joules * (self.interval.idle_ticks / ticks as f64);
                self.totals.idle_joules += idle;
                self.charged_once += joules - idle;
                let price = joules / ticks as f64;
                self.charge_listed(joules, |_| price, region_of);
            }
            (Policy::BusyOnly, Sharing::Shared) => {
                let all: f64 = self.consumers.iter().flat_map(Consumer::dues).sum();
                let price = joules / all;
                self.charge_listed(joules, |_| price, region_of);
            }
            (Policy::BusyOnly, Sharing::Independent) => {
                self.charged_once += joules;
                let sharers: Vec<usize> = (0..self.consumers.len()).map(|at| self.sharer(at)).collect();
                let mut own = vec![0.0; self.groups.len() + self.consumers.len()];
                for (consumer, sharer) in self.consumers.iter().zip(&sharers) {
                    consumer.dues().for_each(|due| own[*sharer] += due);
                }
                let price = |consumer| joules / own[sharers[consumer as usize]];
                self.charge_listed(joules, price, region_of);
            }
        }
    }

    /// Charges each listed frame what it is due, at the consumer's joules per share-clock tick. All joules are possible for it.
    #[inline]
    fn charge_listed(
        &mut self,
        joules: f64,
        price: impl Fn(u32) -> f64,
        region_of: impl Fn(u32, NodeIndex) -> RegionRef,
    ) {
        if let Some(calls) = &mut self.calls {
            calls.set_prices(self.consumers.len(), &price);
        }
        for (index, consumer) in self.consumers.iter_mut().enumerate() {
            if consumer.listed.is_empty() {
                continue;
            }
            let (price, sharer) =
                (price(index as u32), consumer.independent_sharer(index as u32, self.sharing));
            let Consumer { location, listed, accounts, .. } = consumer;
            for node in listed.drain(..) {
                let account = &mut accounts[node.0 as usize];
                if let Some(interval) = &mut self.interval_charged {
                    interval.add(*location, node, account.due * price);
                }
                account.charge(price);
                let region = || region_of(*location, node);
                self.possible_regions.add(account, joules, self.totals.samples, sharer, region);
            }
        }
    }

    /// Only one frame ran. The whole interval was its own if nothing was idle either.
    fn resolve(&mut self, joules: f64, ticks: u64) {
        let mut consumers = self.consumers.iter().enumerate();
        let only = consumers.find_map(|(at, consumer)| Some((at, consumer, *consumer.listed.first()?)));
        let Some((index, consumer, node)) = only else { return };
        if consumer.account(node).due == ticks as f64 {
            let resolved = self.resolved.entry((consumer.location, node)).or_default();
            resolved.add(joules, ticks);
            if let Some(calls) = &mut self.calls {
                calls.resolve(index as u32, joules, ticks);
            }
        }
    }

    /// Charges energy without time (two samples with one timestamp) to the frames that ran until then. Returns whether any did.
    fn charge_at_once(&mut self, joules: f64) -> bool {
        let now = self.clock.now;
        let mut running = vec![0u32; self.groups.len() + self.consumers.len()];
        for (at, consumer) in self.consumers.iter().enumerate() {
            running[self.sharer(at)] += u32::from(!consumer.just_before(now).is_root());
        }
        let count = running.iter().filter(|members| **members > 0).count();
        let share = if self.sharing == Sharing::Shared { joules / count as f64 } else { joules };
        for index in 0..self.consumers.len() {
            let members = running[self.sharer(index)];
            let consumer = &mut self.consumers[index];
            let node = consumer.just_before(now);
            if node.is_root() {
                continue;
            }
            let joules = share / f64::from(members);
            consumer.account_mut(node).joules += joules;
            if let Some(calls) = &mut self.calls {
                calls.charge_at_once(index as u32, now, node, joules);
            }
            if let Some(interval) = &mut self.interval_charged {
                interval.add(consumer.location, node, joules);
            }
        }
        if count > 0 {
            self.charged_once += joules;
        }
        count > 0
    }

    /// The number of the sharer that a consumer belongs to: groups come first, then consumers.
    fn sharer(&self, consumer: usize) -> usize {
        self.consumers[consumer].group.map_or(self.groups.len() + consumer, |group| group as usize)
    }
}
