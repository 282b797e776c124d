//! Finds the launches whose commands have not all been recorded, and the time until which all work on the GPUs is known.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Commands are counted by the number of their launch modulo this. Two launches that share a count are known to be recorded only
/// when the commands of both are.
const COUNTS: usize = 1 << 14;
/// The largest number of moments that are remembered.
const MOMENTS_MAX: usize = 1024;
/// The launch number of commands whose launch is not known.
const UNKNOWN: u64 = 0;
/// The largest error that a device's clock is assumed to have, in nanoseconds.
const CLOCK_ERROR_MAX: f64 = 100_000.0;

/// Counts the commands of each launch that were put into queues and whose records have not come, and launches that have not
/// ended.
#[derive(Debug)]
pub struct Commands([AtomicI32; COUNTS]);

impl Commands {
    /// A list without commands.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Commands {
        Commands([const { AtomicI32::new(0) }; COUNTS])
    }

    /// Records that a launch with this number begins, or that one of its commands is put into a queue. This is called before the
    /// command can begin.
    pub fn put(&self, launch: u64) {
        self.0[launch as usize % COUNTS].fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the launch has ended, or that the record of such a command has come.
    pub fn recorded(&self, launch: u64) {
        self.0[launch as usize % COUNTS].fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether the launch has ended and all its records have come.
    pub fn are_recorded(&self, launch: u64) -> bool {
        self.0[launch as usize % COUNTS].load(Ordering::Relaxed) == 0
    }
}

/// How many records a launch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A kernel.
    One = 1,
    /// A copy, which may have nothing to do.
    AtMostOne,
    /// A graph.
    Any,
}

/// Launches whose records have not come. For runtimes that do not report the commands that they put into queues.
#[derive(Debug)]
pub struct Pending([AtomicU64; COUNTS]);

impl Pending {
    /// A list without launches.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Pending {
        Pending([const { AtomicU64::new(0) }; COUNTS])
    }

    fn slot(&self, launch: u64) -> &AtomicU64 {
        &self.0[launch as usize % COUNTS]
    }

    /// Records that a launch with this number, which is not 0, begins. An older launch in its place counts as recorded.
    pub fn put(&self, launch: u64, expected: Expected) {
        self.slot(launch).store(launch << 2 | expected as u64, Ordering::Relaxed);
    }

    /// Records that a record of this launch has come. Only [`ended`](Self::ended) shows that a graph has no more.
    pub fn recorded(&self, launch: u64) {
        if self.expects(launch).is_some_and(|expected| expected != Expected::Any as u64) {
            self.expect_no_more(launch);
        }
    }

    /// Records that no more records of this launch will come.
    pub fn expect_no_more(&self, launch: u64) {
        if self.expects(launch).is_some() {
            self.slot(launch).store(0, Ordering::Relaxed);
        }
    }

    fn expects(&self, launch: u64) -> Option<u64> {
        let slot = self.slot(launch).load(Ordering::Relaxed);
        (slot != 0 && slot >> 2 == launch).then_some(slot & 3)
    }

    /// Returns whether all records of a launch have come or are no longer expected. Those of a kernel are not expected if its
    /// launch is older than the launch `kernels`. Those of a copy or a graph are not expected if its launch is older than the
    /// launch `others`.
    pub fn are_recorded(&self, launch: u64, kernels: u64, others: u64) -> bool {
        self.expects(launch)
            .is_none_or(|expected| launch < if expected == Expected::One as u64 { kernels } else { others })
    }
}

/// Finds the time until which all commands are known.
#[derive(Debug, Default)]
pub struct Known {
    /// All commands of launches before this one are recorded.
    first_pending: u64,
    /// All launches before this one have been added to the counts, and those that have ended may have been removed from them
    /// again.
    counted: u64,
    /// Moments before which not all work is known yet: times in ticks of the run's clock, each with the number of the next launch
    /// at that time.
    moments: VecDeque<(u64, u64)>,
    /// The time until which all commands were known at the last delivery, if that delivery has moved it.
    new: Option<u64>,
}

impl Known {
    /// Remembers this moment. This must be called regularly, before the runtime delivers records.
    pub fn remember(&mut self, time: u64, next_launch: u64) {
        if self.moments.len() == MOMENTS_MAX {
            self.moments.pop_front();
        }
        // A launch gets its number a moment before it is counted.
        self.counted = self.moments.back().map_or(self.counted, |(_, launch)| *launch);
        self.moments.push_back((time, next_launch));
    }

    /// Returns the number of the next launch at the last moment before this time; 0 if no such moment is remembered.
    pub fn launch_before(&self, time: u64) -> u64 {
        let before = self.moments.partition_point(|(moment, _)| *moment < time);
        before.checked_sub(1).map_or(0, |last| self.moments[last].1)
    }

    /// Returns the time until which all commands were known at the previous delivery, in ticks of the run's clock, if that
    /// delivery has moved it. It is one delivery late, because the collector must first see the streams that were new in that
    /// delivery. This must be called after each delivery.
    pub fn until(&mut self, are_recorded: impl Fn(u64) -> bool, ticks_per_nanosecond: f64) -> Option<u64> {
        while self.first_pending < self.counted && are_recorded(self.first_pending) {
            self.first_pending += 1;
        }
        let mut known = None;
        while let Some(&(time, next_launch)) = self.moments.front()
            && next_launch <= self.first_pending
            && are_recorded(UNKNOWN)
        {
            known = Some(time.saturating_sub((CLOCK_ERROR_MAX * ticks_per_nanosecond) as u64));
            self.moments.pop_front();
        }
        std::mem::replace(&mut self.new, known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGIN: u64 = CLOCK_ERROR_MAX as u64;

    #[test]
    fn work_before_the_first_pending_command_is_known_one_delivery_later() {
        let (commands, mut known) = (Box::new(Commands::new()), Known::default());
        let mut deliver = |at: u64, next_launch: u64| {
            known.remember(at * MARGIN, next_launch);
            known.until(|launch| commands.are_recorded(launch), 1.0).map(|time| time / MARGIN + 1)
        };
        assert_eq!((deliver(10, 1), deliver(20, 1)), (None, None));
        // Two launches are in progress; the second ends first.
        commands.put(1);
        commands.put(2);
        assert_eq!(deliver(30, 3), Some(20));
        commands.recorded(2);
        assert_eq!(deliver(40, 3), None);
        commands.recorded(1);
        assert_eq!(deliver(50, 3), None);
        // A command whose launch is not known may have begun at any time.
        commands.put(UNKNOWN);
        assert_eq!(deliver(60, 3), Some(50));
        commands.recorded(UNKNOWN);
        assert_eq!(deliver(70, 3), None);
        // A launch has its number, but is counted only after the delivery.
        assert_eq!(deliver(80, 4), Some(70));
        commands.put(3);
        assert_eq!(deliver(90, 4), None);
        commands.recorded(3);
        assert_eq!((deliver(100, 4), deliver(110, 4)), (None, Some(100)));
    }

    #[test]
    fn a_launch_without_a_record_is_given_up_and_a_graph_ends_when_the_next_work_starts() {
        let (pending, mut known) = (Box::new(Pending::new()), Known::default());
        let mut looked_at = |at: u64, next_launch: u64| {
            known.remember(at * MARGIN, next_launch);
            let others = known.launch_before(at.saturating_sub(50) * MARGIN);
            let is_recorded = |launch: u64| launch == 0 || pending.are_recorded(launch, 0, others);
            known.until(is_recorded, 1.0).map(|time| time / MARGIN + 1)
        };
        pending.put(1, Expected::One);
        pending.put(2, Expected::Any);
        assert_eq!((looked_at(10, 3), looked_at(20, 3)), (None, None));
        pending.recorded(1);
        pending.recorded(2);
        assert_eq!((looked_at(30, 3), looked_at(40, 3)), (None, None), "the graph may have further records");
        pending.expect_no_more(2);
        assert_eq!((looked_at(50, 3), looked_at(60, 3)), (None, Some(50)));
        pending.put(3, Expected::AtMostOne);
        assert_eq!((looked_at(70, 4), looked_at(80, 4)), (Some(60), None));
        assert_eq!((looked_at(110, 4), looked_at(130, 4), looked_at(140, 4)), (None, None, Some(130)));
    }
}
