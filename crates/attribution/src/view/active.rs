//! The policy *active*: the energy that the device always draws (its baseline) is shared by all running consumers. The rest, the
//! dynamic joules, is divided among the frames that were active, in proportion to their active time.

use super::View;
use super::consumer::Consumer;
use crate::cpu_time::{CpuTime, CpuTimes, OtherJobs, Ticks};
use crate::policy::Sharing;
use crate::steps::NodeIndex;
use ampere_model::{RegionRef, Timestamp};
use std::collections::HashMap;

/// The ticks that a frame or a call is due in the open interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Due {
    /// Ticks of the share clock.
    pub share: f64,
    /// Ticks for which it was active. Only the policy *active* counts these.
    pub active: f64,
    /// Ticks for which it was the innermost frame. Only the policy *active* counts these.
    pub open: f64,
}

/// The joules per tick, for each kind of ticks in [`Due`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Price {
    pub share: f64,
    pub active: f64,
    pub open: f64,
}

impl Due {
    pub fn add(&mut self, more: Due) {
        self.share += more.share;
        self.active += more.active;
        self.open += more.open;
    }

    /// Returns the ticks as plain numbers.
    pub fn to_words(self) -> [u64; 3] {
        [self.share, self.active, self.open].map(f64::to_bits)
    }

    /// Reads what [`Due::to_words`] has written.
    pub fn from_words(words: [u64; 3]) -> Due {
        let [share, active, open] = words.map(f64::from_bits);
        Due { share, active, open }
    }

    #[inline]
    pub fn joules(&self, price: &Price) -> f64 {
        self.share * price.share + self.dynamic_joules(price)
    }

    #[inline]
    pub fn dynamic_joules(&self, price: &Price) -> f64 {
        self.active * price.active + self.open * price.open
    }
}

impl Price {
    /// Makes the price of a policy that counts only ticks of the share clock.
    #[inline]
    pub fn of_share(share: f64) -> Price {
        Price { share, ..Price::default() }
    }
}

/// The active time of a consumer.
#[derive(Clone, Debug, Default)]
pub(super) struct ActiveTime {
    /// The time up to which it has been counted, and the CPU time of the location up to then, if that is known.
    until: Timestamp,
    cpu_ticks: Option<Ticks>,
    /// One account for each call path.
    accounts: Vec<ActiveAccount>,
}

/// The figures of one call path that only the policy *active* needs.
#[derive(Clone, Copy, Debug, Default)]
struct ActiveAccount {
    active: f64,
    open: f64,
    dynamic_joules: f64,
}

impl ActiveTime {
    /// Counts the time up to `time`, in which `node` was the innermost frame. Without a known CPU time, a frame is active as long
    /// as it is open. Nothing is due before the first sample.
    pub fn accrue(&mut self, node: NodeIndex, time: Timestamp, cpu: Option<&CpuTime>, is_due: bool) -> Due {
        let open = time.saturating_sub(self.until) as f64;
        let cpu_ticks = cpu.map(|cpu| cpu.at(time.max(self.until)));
        let active = match (cpu, cpu_ticks) {
            (Some(cpu), Some(now)) => now.since(self.cpu_ticks.unwrap_or_else(|| cpu.at(self.until))),
            _ => open,
        };
        (self.until, self.cpu_ticks) = (time.max(self.until), cpu_ticks);
        if !is_due || node.is_root() {
            return Due::default();
        }
        let account = self.account_mut(node);
        account.active += active;
        account.open += open;
        Due { share: 0.0, active, open }
    }

    fn account_mut(&mut self, node: NodeIndex) -> &mut ActiveAccount {
        let index = node.0 as usize;
        if index >= self.accounts.len() {
            self.accounts.resize(index + 1, ActiveAccount::default());
        }
        &mut self.accounts[index]
    }

    pub fn due(&self, node: NodeIndex) -> Due {
        let account = self.accounts.get(node.0 as usize).copied().unwrap_or_default();
        Due { share: 0.0, active: account.active, open: account.open }
    }

    /// Starts an interval, in which nothing is due yet.
    pub fn begin_interval(&mut self, listed: &[NodeIndex]) {
        for node in listed {
            let account = self.account_mut(*node);
            (account.active, account.open) = (0.0, 0.0);
        }
    }

    pub fn dynamic_joules(&self, node: NodeIndex) -> f64 {
        self.accounts.get(node.0 as usize).map_or(0.0, |account| account.dynamic_joules)
    }
}

/// The intervals in which nothing was active, under the policy *active*, except the first ones after activity. Other jobs were not
/// active either, as far as their CPU time is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct IdleIntervals {
    pub count: u64,
    pub joules: f64,
    pub ticks: u64,
}

/// The number of intervals after activity that are not idle ones, although nothing was active in them: a counter shows the joules
/// of activity late, by up to two of its intervals.
const INTERVALS_AFTER_ACTIVITY: u32 = 2;

impl IdleIntervals {
    /// Adds an interval, if it has a length.
    pub(super) fn add(&mut self, joules: f64, ticks: u64) {
        if ticks > 0 {
            self.count += 1;
            self.joules += joules;
            self.ticks += ticks;
        }
    }
}

/// A location without frames in the view that works for a consumer: its CPU time counts for the consumer's frames, in
/// proportion to the time for which each was open.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    location: u32,
    consumer: u32,
    /// The worker's number in the view, if it is a consumer, too.
    own: Option<u32>,
    /// The worker's CPU time at the last sample; `None` if it was not known, or if this was not a worker then.
    cpu_ticks: Option<Ticks>,
}

/// Other jobs that use the device, and the CPU time that they had used at the last sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedWith {
    jobs: OtherJobs,
    cpu_ticks: Option<Ticks>,
}

/// The ticks since the last sample in which workers and other jobs used the device.
#[derive(Clone, Debug, Default)]
pub(super) struct Worked {
    /// For each consumer, the ticks for which workers or kernels worked for it.
    of_consumers: Vec<f64>,
    of_other_jobs: f64,
}

impl Worked {
    /// Makes the ticks of a view that no other jobs use.
    pub fn of_consumers(of_consumers: Vec<f64>) -> Worked {
        Worked { of_consumers, of_other_jobs: 0.0 }
    }
}

/// Other jobs that use less than this fraction of one CPU in an interval are the operating system's own work.
const OTHER_JOBS_CPU_MIN: f64 = 0.1;

impl View {
    /// Shares the dynamic joules with other jobs from now on. Their CPU time does not show whether they use a GPU.
    pub fn share_with(&mut self, jobs: OtherJobs) {
        if self.by_kernels.is_some() {
            return;
        }
        self.shared_with.get_or_insert(SharedWith { jobs, cpu_ticks: None });
    }

    /// Counts the CPU time of the location `worker` for the frames of a consumer, from the start of the open interval on. `own`
    /// is the worker's number in the view, if it is a consumer, too.
    pub fn add_worker(&mut self, worker: u32, own: Option<u32>, consumer: u32) {
        match self.workers.iter_mut().find(|known| known.location == worker) {
            Some(known) => known.own = own.or(known.own),
            None => self.workers.push(Worker { location: worker, consumer, own, cpu_ticks: None }),
        }
    }

    /// Returns the ticks for which workers and other jobs have worked since the last sample.
    pub(super) fn worked(&mut self, cpu_times: &CpuTimes, has_run: impl Fn(u32) -> bool) -> Worked {
        let mut worked = vec![0.0; self.consumers.all.len()];
        let in_samples = self.worked_in_samples(cpu_times);
        let start = self.interval.start.unwrap_or(self.clock.now);
        for Worker { location, consumer, own, cpu_ticks } in &mut self.workers {
            let Some(cpu) = cpu_times.of(*location) else { continue };
            let now = cpu.at(self.clock.now);
            let has_frames = |own: u32| !self.consumers.all[own as usize].accounts.is_empty();
            let thread = cpu_times.thread_of_several(*location);
            // Before the first call of a thread with several locations is recorded, its CPU time counts only for its own frames,
            // if it has any. They come from stack samples.
            let is_row = thread.is_some() && !has_run(*location);
            if !own.is_some_and(has_frames) && !is_row {
                let ticks = now.since(cpu_ticks.unwrap_or_else(|| cpu.at(start)));
                let of_samples = thread.and_then(|thread| in_samples.get(&thread)).copied().unwrap_or(0.0);
                worked[*consumer as usize] += ticks - of_samples.min(ticks);
            }
            *cpu_ticks = Some(now);
        }
        let of_other_jobs = self.shared_with.as_mut().map_or(0.0, |SharedWith { jobs, cpu_ticks }| {
            let now = cpu_times.of_other_jobs(*jobs, self.clock.now);
            let before = cpu_ticks.replace(now).unwrap_or_else(|| cpu_times.of_other_jobs(*jobs, start));
            now.since(before)
        });
        Worked { of_consumers: worked, of_other_jobs }
    }

    /// Returns, for threads whose recorded calls are on a location of their own, the ticks for which they ran in frames of their
    /// other locations since the last sample. Those frames come from stack samples.
    fn worked_in_samples(&self, cpu_times: &CpuTimes) -> HashMap<u32, f64> {
        let mut ticks = HashMap::default();
        if self.workers.is_empty() {
            return ticks;
        }
        for (active, consumer) in self.actives.iter().zip(&self.consumers.all) {
            let Some(thread) = cpu_times.thread_of_several(consumer.location) else { continue };
            let of_frames = consumer.listed.iter().map(|node| active.due(*node).active);
            *ticks.entry(thread).or_default() += of_frames.sum::<f64>();
        }
        ticks
    }

    /// Charges an interval's joules to the frames that are listed; if no frame is listed, all joules are idle. `worked`: see
    /// [`View::worked`].
    pub(super) fn charge_active(
        &mut self,
        joules: f64,
        ticks: u64,
        worked: &Worked,
        region_of: impl Fn(u32, NodeIndex) -> RegionRef,
    ) {
        let fixed = joules.min(self.baseline * ticks as f64);
        self.totals.static_joules += fixed;
        self.totals.dynamic_joules += joules - fixed;
        let (mut prices, weights) = self.active_prices(&worked.of_consumers);
        self.totals.active_ticks += weights.iter().sum::<f64>();
        let is_active = weights.iter().any(|weight| *weight > 0.0);
        let are_others_active = worked.of_other_jobs > OTHER_JOBS_CPU_MIN * ticks as f64;
        let of_others = match self.sharing {
            Sharing::Shared if is_active || are_others_active => {
                // All consumers have the same sum of weights.
                (joules - fixed)
                    * (worked.of_other_jobs / (worked.of_other_jobs + weights.iter().sum::<f64>()))
            }
            _ => 0.0,
        };
        let dynamic = joules - fixed - of_others;
        let idle = match self.consumers.listed() {
            0 => joules,
            _ => {
                let idle = fixed * (self.interval.idle_ticks / ticks as f64);
                if is_active { idle + of_others } else { idle + dynamic + of_others }
            }
        };
        self.totals.idle_joules += idle;
        self.totals.other_jobs_joules += of_others;
        self.charged_once += joules - idle;
        // A worker may be active while the consumer that it works for has no open frame.
        let are_workers_active = worked.of_consumers.iter().any(|ticks| *ticks > 0.0);
        if is_active || are_workers_active || are_others_active {
            self.intervals_after_activity = INTERVALS_AFTER_ACTIVITY;
        } else if self.intervals_after_activity > 0 {
            self.intervals_after_activity -= 1;
        } else {
            self.idle_intervals.add(joules, ticks);
        }
        for (index, price) in prices.iter_mut().enumerate() {
            let weight = weights[self.weight_of(index)];
            let dynamic_price = if weight > 0.0 { dynamic / weight } else { 0.0 };
            price.share = fixed / ticks.max(1) as f64;
            price.active *= dynamic_price;
            price.open *= dynamic_price;
        }
        if prices.windows(2).all(|pair| pair[0] == pair[1]) {
            self.record_price(prices.first().copied().unwrap_or_default());
        } else {
            self.record_prices(prices.iter().copied());
        }
        let possible = (joules - fixed, joules / ticks.max(1) as f64);
        let alone = self.charge_each_active(possible, &prices, worked, region_of);
        if let Alone::One(consumer, location, node, due) = alone
            && !are_others_active
        {
            self.resolved.entry((location, node)).or_default().add(dynamic, ticks);
            if let Some(calls) = &mut self.recorder.calls {
                calls.resolve(consumer, dynamic, due);
            }
        }
    }

    /// Returns the weight of a tick of each kind for each consumer, and the weighted sums of the ticks that are due: one sum over
    /// all consumers or, if each sharer gets all joules, one sum for each sharer.
    fn active_prices(&self, worked: &[f64]) -> (Vec<Price>, Vec<f64>) {
        let mut weights = vec![0.0; self.consumers.groups.len() + self.consumers.all.len()];
        let mut prices = Vec::with_capacity(worked.len());
        // A rank may wait on its CPU while its kernels run, so its own time does not show whether it used a GPU.
        let own = if self.by_kernels.is_some() { 0.0 } else { 1.0 };
        for (index, active) in self.actives.iter().enumerate() {
            let dues = || self.consumers.all[index].listed.iter().map(|node| active.due(*node));
            let open: f64 = dues().map(|due| due.open).sum();
            let open = if open > 0.0 { worked[index] / open } else { 0.0 };
            let price = Price { share: 0.0, active: own, open };
            weights[self.weight_of(index)] += dues().map(|due| due.dynamic_joules(&price)).sum::<f64>();
            prices.push(price);
        }
        (prices, weights)
    }

    /// Returns the index of a consumer's sum in [`View::active_prices`].
    fn weight_of(&self, consumer: usize) -> usize {
        if self.sharing == Sharing::Shared { 0 } else { self.consumers.sharer(consumer) }
    }

    /// Charges each listed frame. `possible`: the interval's dynamic joules, and its power. Returns which frames were active.
    fn charge_each_active(
        &mut self,
        (dynamic, power): (f64, f64),
        prices: &[Price],
        worked: &Worked,
        region_of: impl Fn(u32, NodeIndex) -> RegionRef,
    ) -> Alone {
        if let Some(calls) = &mut self.recorder.calls {
            calls.set_prices(self.consumers.all.len(), &|consumer| prices[consumer as usize]);
        }
        let mut alone = Alone::Nobody;
        let is_by_kernels = self.by_kernels.is_some();
        for (index, active) in self.actives.iter_mut().enumerate() {
            let consumer = &mut self.consumers.all[index];
            let (price, sharer) = (prices[index], consumer.independent_sharer(index as u32, self.sharing));
            let Consumer { location, listed, accounts, .. } = consumer;
            for node in listed.drain(..) {
                let account = &mut accounts[node.0 as usize];
                let due = Due { share: account.take_due(), ..active.due(node) };
                let joules = due.joules(&price);
                let dynamic_joules = due.dynamic_joules(&price);
                if let Some(interval) = &mut self.recorder.interval {
                    interval.add(*location, node, joules, dynamic_joules);
                }
                account.add(joules, power);
                active.begin_interval(&[node]);
                // An interval without dynamic joules has active frames, too.
                let is_open = due.open > 0.0 && worked.of_consumers[index] > 0.0;
                if due.active > 0.0 && !is_by_kernels || is_open {
                    active.account_mut(node).dynamic_joules += dynamic_joules;
                    alone = alone.with(index as u32, *location, node, due);
                    let region = || region_of(*location, node);
                    self.possible_regions.add(account, dynamic, self.totals.samples, sharer, region);
                }
            }
        }
        alone
    }
}

/// The frames that were active in an interval.
enum Alone {
    Nobody,
    /// The number of the consumer, its location, the frame, and what it was due.
    One(u32, u32, NodeIndex, Due),
    Several,
}

impl Alone {
    fn with(self, consumer: u32, location: u32, node: NodeIndex, due: Due) -> Alone {
        match self {
            Alone::Nobody => Alone::One(consumer, location, node, due),
            _ => Alone::Several,
        }
    }
}
