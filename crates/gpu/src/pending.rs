//! Which launches have commands that have not been recorded, and so until when everything that runs on the GPUs is known.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, Ordering};

/// Commands are counted by the number of their launch modulo this. If two launches have one count, both are waited for.
const COUNTS: usize = 1 << 14;
/// The largest number of moments that are remembered.
const MOMENTS_MAX: usize = 1024;
/// The number of commands whose launch is not known.
const UNKNOWN: u64 = 0;
/// A device's clock is believed to be right to this time, in nanoseconds.
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

    fn are_recorded(&self, launch: u64) -> bool {
        self.0[launch as usize % COUNTS].load(Ordering::Relaxed) == 0
    }
}

/// Finds out until when all commands are known.
#[derive(Debug, Default)]
pub struct Known {
    /// All commands of launches before this one are recorded.
    first_pending: u64,
    /// Launches before this one have been counted among the commands, if they have not ended.
    counted: u64,
    /// Moments in ticks of the run's clock, each with the number of the next launch then. What ran before them is not yet known.
    moments: VecDeque<(u64, u64)>,
    /// What is known since the last delivery.
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

    /// Returns the time until which all commands were known at the last delivery, in ticks of the run's clock, if it is later
    /// than before: by now the collector has seen the streams that were new then. This must be called after each delivery.
    pub fn until(&mut self, commands: &Commands, ticks_per_nanosecond: f64) -> Option<u64> {
        while self.first_pending < self.counted && commands.are_recorded(self.first_pending) {
            self.first_pending += 1;
        }
        let mut known = None;
        while let Some(&(time, next_launch)) = self.moments.front()
            && next_launch <= self.first_pending
            && commands.are_recorded(UNKNOWN)
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
    fn what_runs_before_the_first_pending_command_is_known_one_delivery_later() {
        let (commands, mut known) = (Box::new(Commands::new()), Known::default());
        let mut deliver = |at: u64, next_launch: u64| {
            known.remember(at * MARGIN, next_launch);
            known.until(&commands, 1.0).map(|time| time / MARGIN + 1)
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
}
