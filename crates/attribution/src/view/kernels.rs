//! A GPU's views under the policy *active*. In its ranks view, a process is active while one of its kernels or copies runs on the
//! GPU. Its active time counts for the frames that were open in the process, in proportion to the time for which each was open.
//!
//! Until a stream is known, the joules of both views are divided as with *time sliced*. What the policy *active* would have
//! charged is kept next to that, and replaces it when the first stream is known.
//!
//! In a live run, kernels become known late. Intervals that have ended then wait for them.

use super::active::{ActiveTime, Due, Worked};
use super::prices::OpenPiece;
use super::{IdleIntervals, Interval, View};
use crate::counter::Increase;
use crate::policy::Policy;
use crate::steps::{NodeIndex, ViewIndex};
use ampere_model::Timestamp;
use std::collections::{HashMap, VecDeque};

/// The time for which each process had a kernel or copy on a GPU, by the caller's number of the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct BusyTimes(HashMap<u64, BusyTime>);

#[derive(Clone, Copy, Debug, Default)]
struct BusyTime {
    /// The number of its streams that run.
    running: u32,
    /// The time of the last change of this number.
    since: Timestamp,
    /// The ticks before that for which at least one ran.
    ticks: u64,
}

impl BusyTime {
    fn until(&self, time: Timestamp) -> u64 {
        self.ticks + if self.running > 0 { time.saturating_sub(self.since) } else { 0 }
    }
}

impl BusyTimes {
    /// Starts or stops a stream of a process.
    pub fn start_or_stop(&mut self, process: u64, time: Timestamp, start: bool) {
        let busy = self.0.entry(process).or_default();
        let running = if start { busy.running + 1 } else { busy.running.saturating_sub(1) };
        *busy = BusyTime { running, since: time, ticks: busy.until(time) };
    }
}

/// How a ranks view is divided by kernels.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByKernels {
    /// The device's kernels view, once one of its streams belongs to a process of the run.
    pub kernels: Option<ViewIndex>,
    /// Whether an interval that has ended waits for kernels.
    pub waits: bool,
    /// The ticks for which each process had been busy at the end of the last interval that was charged.
    charged: HashMap<u64, u64>,
    waiting: VecDeque<WaitingInterval>,
}

/// What the policy *active* would have charged up to now, if no stream is known yet: nothing has been active.
#[derive(Clone, Debug, Default)]
pub(crate) struct WithoutActivity {
    static_joules: f64,
    dynamic_joules: f64,
    idle_joules: f64,
    charged_once: f64,
    idle_intervals: IdleIntervals,
}

/// An interval that has ended and waits for kernels.
#[derive(Clone, Debug)]
struct WaitingInterval {
    increase: Increase,
    interval: Interval,
    end: Timestamp,
    dues: Dues,
    /// The pieces of its prices, if prices are recorded.
    pieces: Vec<OpenPiece>,
    /// If the interval has no length: each consumer's frame just before it.
    just_before: Vec<NodeIndex>,
}

/// What each call path of each consumer is due.
type Dues = Vec<Vec<(NodeIndex, Due)>>;

impl View {
    /// Whether the time is counted for which each frame is open.
    pub(super) fn counts_open_time(&self) -> bool {
        self.policy == Policy::Active || self.without_activity.is_some()
    }

    /// Divides the joules by the kernels of another view, one of whose streams is of a process of the run.
    pub fn know_kernels(&mut self, kernels: ViewIndex) {
        if let Some(by_kernels) = &mut self.by_kernels {
            by_kernels.kernels = Some(kernels);
            self.know_activity();
        }
    }

    /// Makes the policy *active*, as if it had always been, if it was undecided.
    pub fn know_activity(&mut self) {
        let Some(until_now) = self.without_activity.take() else { return };
        self.policy = Policy::Active;
        self.totals.static_joules = until_now.static_joules;
        self.totals.dynamic_joules = until_now.dynamic_joules;
        self.totals.idle_joules = until_now.idle_joules;
        self.charged_once = until_now.charged_once;
        self.idle_intervals = until_now.idle_intervals;
        self.resolved.clear();
        self.possible_regions = Default::default();
        for (active, consumer) in self.actives.iter().zip(&mut self.consumers.all) {
            let numbered = (0..).map(NodeIndex).zip(&mut consumer.accounts);
            numbered.for_each(|(node, account)| account.replace(active.static_joules(node)));
        }
    }

    /// Makes the policy undecided again, if it was before streams were known. Nothing may have been charged yet.
    pub fn forget_activity(&mut self) {
        if let Some(policy) = self.undecided_policy
            && self.without_activity.is_none()
        {
            self.policy = policy;
            self.without_activity = Some(Box::default());
        }
        if let Some(by_kernels) = &mut self.by_kernels {
            by_kernels.kernels = None;
        }
    }

    /// Counts an interval's joules as the policy *active* divides them if nothing was active, as long as that is undecided.
    pub(super) fn charge_without_activity(&mut self, joules: f64, ticks: u64) {
        let Some(without_activity) = &mut self.without_activity else { return };
        let fixed = joules.min(self.baseline * ticks as f64);
        let idle = match self.consumers.listed() {
            0 => joules,
            _ => fixed * (self.interval.idle_ticks / ticks as f64) + (joules - fixed),
        };
        without_activity.static_joules += fixed;
        without_activity.dynamic_joules += joules - fixed;
        without_activity.idle_joules += idle;
        without_activity.charged_once += joules - idle;
        without_activity.idle_intervals.add(joules, ticks);
        let price = fixed / ticks.max(1) as f64;
        for (active, consumer) in self.actives.iter_mut().zip(&self.consumers.all) {
            for node in &consumer.listed {
                active.add_static(*node, consumer.account(*node).due * price);
            }
            active.begin_interval(&consumer.listed);
        }
    }

    /// Returns the ticks since the end of the last charged interval in which kernels ran, for each consumer.
    pub(super) fn worked_by_kernels(&mut self, busy: &BusyTimes) -> Worked {
        let mut open_of: HashMap<u64, f64> = HashMap::new();
        let open = |active: &ActiveTime, listed: &[NodeIndex]| -> f64 {
            listed.iter().map(|node| active.due(*node).open).sum()
        };
        for (active, consumer) in self.actives.iter().zip(&self.consumers.all) {
            let Some(process) = consumer.process else { continue };
            *open_of.entry(process).or_default() += open(active, &consumer.listed);
        }
        let charged = self.by_kernels.as_ref().map(|by| &by.charged);
        let ticks_of = |process: u64| {
            let before = charged.and_then(|charged| charged.get(&process)).copied().unwrap_or(0);
            busy.0.get(&process).map_or(0, |busy| busy.until(self.clock.now).saturating_sub(before))
        };
        let of_consumers = self.actives.iter().zip(&self.consumers.all).map(|(active, consumer)| {
            let Some(process) = consumer.process else { return 0.0 };
            match open_of[&process] {
                all if all > 0.0 => ticks_of(process) as f64 * (open(active, &consumer.listed) / all),
                _ => 0.0,
            }
        });
        let worked = Worked::of_consumers(of_consumers.collect());
        let now = self.clock.now;
        if let Some(by_kernels) = &mut self.by_kernels {
            by_kernels.charged = busy.0.iter().map(|(process, busy)| (*process, busy.until(now))).collect();
        }
        worked
    }

    /// Keeps the interval that ends, if it has to wait for kernels. Returns whether it does.
    pub(super) fn keep_waiting(&mut self, increase: Increase, ticks: u64) -> bool {
        if self.by_kernels.as_ref().is_none_or(|by| !by.waits) {
            return false;
        }
        let end = self.clock.now;
        let just_before = match ticks {
            0 => self.consumers.all.iter().map(|consumer| consumer.just_before(end)).collect(),
            _ => Vec::new(),
        };
        let (dues, interval, pieces) =
            (self.take_dues(), self.interval.clone(), self.swap_pieces(Vec::new()));
        if let Some(by_kernels) = &mut self.by_kernels {
            let waiting = WaitingInterval { increase, interval, end, dues, pieces, just_before };
            by_kernels.waiting.push_back(waiting);
        }
        true
    }

    /// Calls `charge` with the increase of the first interval that waits, as if it had just ended. Returns whether there was one.
    pub(super) fn charge_waiting(&mut self, charge: impl FnOnce(&mut View, Increase)) -> bool {
        let first = self.by_kernels.as_mut().and_then(|by| by.waiting.pop_front());
        let Some(WaitingInterval { increase, interval, end, dues, pieces, just_before }) = first else {
            return false;
        };
        let (open_dues, clock) = (self.take_dues(), self.clock);
        let open_interval = std::mem::replace(&mut self.interval, interval);
        self.clock.now = end;
        self.put_dues(dues);
        let open_pieces = self.swap_pieces(pieces);
        let frames: Vec<_> = self.consumers.all.iter().map(|of| (of.before, of.changed)).collect();
        // In an interval that has a length, what ran just before its end is due something.
        let just_before = just_before.into_iter().chain(std::iter::repeat(NodeIndex::ROOT));
        for (consumer, before) in self.consumers.all.iter_mut().zip(just_before) {
            (consumer.before, consumer.changed) = (before, end);
        }
        charge(self, increase);
        for (consumer, frame) in self.consumers.all.iter_mut().zip(frames) {
            (consumer.before, consumer.changed) = frame;
        }
        self.take_dues(); // an increase that is not divided leaves them
        self.put_dues(open_dues);
        self.swap_pieces(open_pieces);
        (self.interval, self.clock) = (open_interval, clock);
        true
    }

    /// Returns the joules of the intervals that wait for kernels.
    pub(super) fn waiting_joules(&self) -> f64 {
        let waiting = self.by_kernels.iter().flat_map(|by| &by.waiting);
        waiting
            .map(|waiting| match waiting.increase {
                Increase::Joules(joules) | Increase::Lost(joules) => joules,
                Increase::Reset | Increase::First => 0.0,
            })
            .sum()
    }

    /// Returns the start of the first interval that waits for kernels.
    pub(super) fn waiting_since(&self) -> Option<Timestamp> {
        self.by_kernels.as_ref()?.waiting.front()?.interval.start
    }

    fn take_dues(&mut self) -> Dues {
        let consumers = self.consumers.all.iter_mut().zip(&mut self.actives);
        let dues = consumers.map(|(consumer, active)| {
            let listed = std::mem::take(&mut consumer.listed);
            active.take_dues(&listed, |node| consumer.account_mut(node).take_due())
        });
        dues.collect()
    }

    fn put_dues(&mut self, dues: Dues) {
        let consumers = self.consumers.all.iter_mut().zip(&mut self.actives);
        for ((consumer, active), dues) in consumers.zip(dues) {
            for (node, due) in dues {
                consumer.listed.push(node);
                consumer.account_mut(node).due = due.share;
                active.put_due(node, due);
            }
        }
    }
}
