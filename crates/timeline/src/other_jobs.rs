//! Other jobs that use the processors of a run's nodes. They get their share of the dynamic joules of measured counters.

use crate::attributor::{Attributor, Device, ViewKind};
use ampere_attribution::{OtherJobs, Policy, Sharing};
use ampere_model::{Quality, Timestamp};
use std::collections::BTreeMap;

/// The other jobs, by node. A node on which their CPU time is not known has no entry.
#[derive(Debug, Default)]
pub(crate) struct NodesJobs {
    by_node: BTreeMap<String, JobsOfNode>,
    /// Attribution before this time no longer waits for points of the CPU time.
    decided_before: Timestamp,
}

#[derive(Debug)]
struct JobsOfNode {
    jobs: OtherJobs,
    /// The time of the latest point of the other jobs' CPU time.
    known_until: Timestamp,
}

impl NodesJobs {
    /// Returns the time up to which the CPU time of other jobs is known on all nodes, or is no longer waited for.
    pub fn known_until(&self) -> Timestamp {
        let known = self.by_node.values().map(|node| node.known_until).min();
        known.map_or(Timestamp::MAX, |known| known.max(self.decided_before))
    }

    /// Ends the wait for points before this time.
    pub fn decide_before(&mut self, time: Timestamp) {
        self.decided_before = self.decided_before.max(time);
    }
}

impl Attributor {
    /// Adds a node on which the CPU time of other jobs is known. Does nothing if the node was added before, or if the settings
    /// ignore other jobs.
    pub fn add_other_jobs(&mut self, node: &str) {
        if !self.config().attribution.other_jobs || self.other_jobs.by_node.contains_key(node) {
            return;
        }
        let of_node = JobsOfNode { jobs: self.engine.add_other_jobs(), known_until: 0 };
        self.other_jobs.by_node.insert(node.to_owned(), of_node);
        (0..self.devices.len()).for_each(|device| self.share_with_other_jobs(device));
    }

    /// Whether other jobs have used joules of some device.
    pub fn shares_with_other_jobs(&self) -> bool {
        let joules = |device: &Device| self.engine.totals(device.views.ranks).other_jobs_joules;
        self.devices.iter().any(|device| joules(device) > 0.0)
    }

    /// Shares a device's dynamic joules with other jobs, under the policy *active* with shared joules. The estimate is not
    /// shared, because it contains only the run's own CPU time.
    pub(crate) fn share_with_other_jobs(&mut self, device: usize) {
        let device = &self.devices[device];
        let is_measured = matches!(device.info.quality, Quality::Measured | Quality::Integrated);
        let view = device.views.sampled(ViewKind::Ranks);
        let is_active = self.engine.report_policy(view) == Policy::Active;
        let is_shared = self.engine.report_sharing(view) == Sharing::Shared;
        if let Some(node) = self.other_jobs.by_node.get(&device.info.node)
            && is_measured
            && is_active
            && is_shared
        {
            self.engine.share_with(view, node.jobs);
        }
    }

    pub(crate) fn add_cpu_time_of_other_jobs(&mut self, node: &str, time: Timestamp, seconds: f64) {
        let ticks = self.cpu_ticks_of(seconds);
        if let Some(node) = self.other_jobs.by_node.get_mut(node) {
            node.known_until = node.known_until.max(time);
            self.engine.add_cpu_time_of_other_jobs(node.jobs, time, ticks);
        }
    }

    /// Converts a CPU time to ticks of this run. The time is rounded to whole nanoseconds first, so that the result is exact if a
    /// tick is a nanosecond.
    pub fn cpu_ticks_of(&self, seconds: f64) -> f64 {
        (seconds * 1e9).round() * (self.ticks_per_second as f64 / 1e9)
    }
}
