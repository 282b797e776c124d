//! A GPU's views under the policy *active*. In its ranks view, a process is active while one of its kernels or copies runs on the
//! GPU. Its active time counts for the frames that were open in the process, in proportion to the time for which each was open.
//!
//! This is decided before the first sample: see [`Engine::know_streams`](crate::Engine::know_streams).

use super::View;
use super::active::{ActiveTime, Worked};
use crate::policy::Policy;
use crate::steps::{NodeIndex, ViewIndex};
use ampere_model::Timestamp;
use std::collections::HashMap;

/// The time for which each process had a kernel or copy on a GPU, by the number that the caller gives the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct BusyTimes(HashMap<u64, BusyTime>);

#[derive(Clone, Copy, Debug, Default)]
struct BusyTime {
    /// The number of its streams that run.
    running: u32,
    /// The time of the last change of this number.
    since: Timestamp,
    /// The ticks before `since` during which at least one stream ran.
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
    /// The ticks for which each process had been busy at the end of the last interval that was charged.
    charged: HashMap<u64, u64>,
}

impl View {
    /// Whether the view counts for how long each frame is open.
    pub(super) fn counts_open_time(&self) -> bool {
        self.policy == Policy::Active || self.undecided_policy.is_some()
    }

    /// Divides the joules by the kernels of another view from now on, because a stream there belongs to a process of the run.
    /// Returns `false` if it is too late, because the view has had a sample.
    pub fn know_kernels(&mut self, kernels: ViewIndex) -> bool {
        let is_known = self.know_activity();
        if let Some(by_kernels) = self.by_kernels.as_mut().filter(|_| is_known) {
            by_kernels.kernels = Some(kernels);
        }
        is_known
    }

    /// Makes the policy *active*, if it was undecided. Returns `false` if it is too late, because the view has had a sample.
    pub fn know_activity(&mut self) -> bool {
        let is_undecided = self.undecided_policy == Some(self.policy);
        if is_undecided && self.interval.start.is_none() {
            self.policy = Policy::Active;
        }
        !is_undecided || self.policy == Policy::Active
    }

    /// Makes the policy undecided again, if it was before streams were known. Nothing may have been charged yet.
    pub fn forget_activity(&mut self) {
        self.policy = self.undecided_policy.unwrap_or(self.policy);
        if let Some(by_kernels) = &mut self.by_kernels {
            by_kernels.kernels = None;
        }
    }

    /// Returns, for each consumer, the ticks in which kernels ran since the end of the last interval that was charged. These
    /// ticks then count as charged.
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
}
