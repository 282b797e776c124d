//! Processes a sample, which ends an interval, and charges the joules of the interval.

use super::active::{Due, Price, Worked};
use super::consumer::Consumer;
use super::{BusyTimes, View};
use crate::counter::Increase;
use crate::cpu_time::CpuTimes;
use crate::policy::{Policy, Sharing};
use crate::steps::NodeIndex;
use ampere_model::{RegionRef, Timestamp};

impl View {
    /// Processes a sample. `region_of` returns the region of a location's call path, `has_run` whether a frame was ever entered
    /// on a location. `busy_times`: the times of the kernels by which the view is divided, if any are known.
    pub fn sample(
        &mut self,
        time: Timestamp,
        increase: Increase,
        cpu_times: &CpuTimes,
        busy_times: Option<&BusyTimes>,
        region_of: impl Fn(u32, NodeIndex) -> RegionRef,
        has_run: impl Fn(u32) -> bool,
    ) {
        let time = self.clock.timely(time, true);
        self.advance(time);
        for index in 0..self.consumers.all.len() as u32 {
            let (_, due) = self.accrue(index, self.clock.ticks, time, cpu_times);
            if self.recorder.calls.is_some() {
                self.recorder.add_due(index, due);
            }
        }
        self.end_interval(increase, cpu_times, busy_times, region_of, has_run);
        self.begin_interval();
    }

    fn end_interval(
        &mut self,
        increase: Increase,
        cpu_times: &CpuTimes,
        busy_times: Option<&BusyTimes>,
        region_of: impl Fn(u32, NodeIndex) -> RegionRef,
        has_run: impl Fn(u32) -> bool,
    ) {
        let ticks = self.interval.start.map_or(0, |start| self.clock.now - start);
        let worked = match busy_times {
            Some(busy_times) => self.worked_by_kernels(busy_times),
            None if self.policy == Policy::Active => self.worked(cpu_times, has_run),
            None => Worked::default(),
        };
        self.recorder.begin_charging(&self.totals);
        match increase {
            Increase::Joules(joules) => {
                self.totals.total_joules += joules;
                self.charge(joules, ticks, &worked, region_of);
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
        let start = self.interval.start.unwrap_or(self.clock.now);
        self.recorder.end_charging(&self.totals, start, self.clock.now);
    }

    fn begin_interval(&mut self) {
        self.begin_recorded_interval();
        self.interval.start = Some(self.clock.now);
        self.interval.idle_ticks = 0.0;
        self.clock.ticks = 0.0;
        for (active, consumer) in self.actives.iter_mut().zip(&self.consumers.all) {
            active.begin_interval(&consumer.listed);
        }
        self.consumers.begin_interval();
    }

    /// Adds an interval's joules, even if they are lost, to those that each call path that ran in it may have used. In an
    /// interval of length 0 these are the call paths that ran just before it, under every policy.
    fn add_possible(&mut self, joules: f64, region_of: impl Fn(u32, NodeIndex) -> RegionRef) {
        let before = (self.consumers.listed() == 0).then_some(self.clock.now);
        for (index, consumer) in self.consumers.all.iter_mut().enumerate() {
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
    fn charge(
        &mut self,
        joules: f64,
        ticks: u64,
        worked: &Worked,
        region_of: impl Fn(u32, NodeIndex) -> RegionRef,
    ) {
        if self.policy != Policy::TimeSliced {
            // Sums must not depend on the order in which a location's call paths came.
            self.consumers.all.iter_mut().for_each(|consumer| consumer.listed.sort_unstable());
        }
        let listed = self.consumers.listed();
        if listed == 0 && self.policy != Policy::Active {
            self.add_possible(joules, region_of);
            // An interval that has a length and in which nothing is due had no frame. One of length 0 may have had one.
            if self.policy == Policy::BusyOnly || !self.charge_at_once(joules) {
                self.totals.idle_joules += joules;
            }
            return;
        }
        if listed == 1 && self.policy != Policy::Active {
            self.resolve(joules, ticks);
        }
        match (self.policy, self.sharing) {
            (Policy::Active, _) => self.charge_active(joules, ticks, worked, region_of),
            (Policy::TimeSliced, _) => {
                let idle = joules * (self.interval.idle_ticks / ticks as f64);
                self.totals.idle_joules += idle;
                self.charged_once += joules - idle;
                let price = joules / ticks as f64;
                self.record_price(Price::of_share(price));
                self.charge_listed(joules, |_| price, region_of);
            }
            (Policy::BusyOnly, Sharing::Shared) => {
                let all: f64 = self.consumers.all.iter().flat_map(Consumer::dues).sum();
                let price = joules / all;
                self.record_price(Price::of_share(price));
                self.charge_listed(joules, |_| price, region_of);
            }
            (Policy::BusyOnly, Sharing::Independent) => {
                self.charged_once += joules;
                let sharers: Vec<usize> =
                    (0..self.consumers.all.len()).map(|at| self.consumers.sharer(at)).collect();
                let mut own = vec![0.0; self.consumers.groups.len() + self.consumers.all.len()];
                for (consumer, sharer) in self.consumers.all.iter().zip(&sharers) {
                    consumer.dues().for_each(|due| own[*sharer] += due);
                }
                let price = |consumer| joules / own[sharers[consumer as usize]];
                let count = self.consumers.all.len() as u32;
                self.record_prices((0..count).map(|consumer| Price::of_share(price(consumer))));
                self.charge_listed(joules, price, region_of);
            }
        }
    }

    /// Charges each listed frame for the ticks that it is due, at the consumer's joules per share-clock tick. All joules of the
    /// interval are possible for each of these frames.
    #[inline]
    fn charge_listed(
        &mut self,
        joules: f64,
        price: impl Fn(u32) -> f64,
        region_of: impl Fn(u32, NodeIndex) -> RegionRef,
    ) {
        if let Some(calls) = &mut self.recorder.calls {
            // A consumer that is due nothing may have no price.
            let finite = |price: f64| if price.is_finite() { price } else { 0.0 };
            let price = |consumer| Price::of_share(finite(price(consumer)));
            calls.set_prices(self.consumers.all.len(), &price);
        }
        for (index, consumer) in self.consumers.all.iter_mut().enumerate() {
            if consumer.listed.is_empty() {
                continue;
            }
            let (price, sharer) =
                (price(index as u32), consumer.independent_sharer(index as u32, self.sharing));
            let Consumer { location, listed, accounts, .. } = consumer;
            for node in listed.drain(..) {
                let account = &mut accounts[node.0 as usize];
                if let Some(interval) = &mut self.recorder.interval {
                    interval.add(*location, node, account.due * price, 0.0);
                }
                account.charge(price);
                let region = || region_of(*location, node);
                self.possible_regions.add(account, joules, self.totals.samples, sharer, region);
            }
        }
    }

    /// Records that only one frame ran. If nothing was idle either, it used all joules of the interval.
    fn resolve(&mut self, joules: f64, ticks: u64) {
        let mut consumers = self.consumers.all.iter().enumerate();
        let only = consumers.find_map(|(at, consumer)| Some((at, consumer, *consumer.listed.first()?)));
        let Some((index, consumer, node)) = only else { return };
        if consumer.account(node).due == ticks as f64 {
            let resolved = self.resolved.entry((consumer.location, node)).or_default();
            resolved.add(joules, ticks);
            if let Some(calls) = &mut self.recorder.calls {
                calls.resolve(index as u32, joules, Due { share: ticks as f64, ..Due::default() });
            }
        }
    }

    /// Charges energy without time (two samples with the same timestamp) to the frames that ran until then. Returns `false` if
    /// no frame ran.
    fn charge_at_once(&mut self, joules: f64) -> bool {
        let now = self.clock.now;
        let mut running = vec![0u32; self.consumers.groups.len() + self.consumers.all.len()];
        for (at, consumer) in self.consumers.all.iter().enumerate() {
            running[self.consumers.sharer(at)] += u32::from(!consumer.just_before(now).is_root());
        }
        let count = running.iter().filter(|members| **members > 0).count();
        let share = if self.sharing == Sharing::Shared { joules / count as f64 } else { joules };
        for index in 0..self.consumers.all.len() {
            let members = running[self.consumers.sharer(index)];
            let consumer = &mut self.consumers.all[index];
            let node = consumer.just_before(now);
            if node.is_root() {
                continue;
            }
            let joules = share / f64::from(members);
            consumer.account_mut(node).joules += joules;
            let location = consumer.location;
            if let Some(calls) = &mut self.recorder.calls {
                calls.charge_at_once(index as u32, now, node, joules);
            }
            if let Some(interval) = &mut self.recorder.interval {
                interval.add(location, node, joules, 0.0);
            }
            self.record_at_once(now, index as u32, joules);
        }
        if count > 0 {
            self.charged_once += joules;
        }
        count > 0
    }
}
