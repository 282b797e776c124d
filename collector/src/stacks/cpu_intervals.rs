//! Keeps the intervals for which threads were on a CPU without being sampled, because they or their processes lived for less than
//! a sampling period. The kernel records these intervals. Their time is attributed to the process, or to the process that started
//! it. Because a stack counts until the next sample, short pauses between such intervals count, too, if nothing else of the
//! process is in a function.

use ampere_model::Timestamp;
use ampere_ring::EventWriter;

/// The maximum number of intervals of a process that are kept at a time.
const INTERVALS_MAX: usize = 1 << 16;

/// The longest pause that is filled, in nanoseconds.
pub(super) const FILLED_PAUSE_MAX: u64 = 20_000_000;

/// An interval of a thread on a CPU, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    thread: u32,
    from: u64,
    until: u64,
}

#[derive(Default)]
pub(super) struct CpuIntervals {
    waiting: Vec<Interval>,
    /// The total time of all intervals, in nanoseconds.
    total: u64,
    writer: Option<EventWriter>,
    /// The last time at which the process is known to have run.
    ran_until: u64,
    /// The time up to which intervals are written, by both clocks.
    written: u64,
    last_event: Timestamp,
}

impl CpuIntervals {
    pub fn add(&mut self, thread: u32, from: u64, until: u64) {
        if self.waiting.len() < INTERVALS_MAX {
            self.waiting.push(Interval { thread, from, until });
        }
        self.total += until.saturating_sub(from);
    }

    /// Removes the intervals of a thread that has a sample, because the sample stands for the time before it.
    pub fn forget(&mut self, thread: u32) {
        let is_of_thread = |ran: &mut Interval| ran.thread == thread;
        let gone: u64 = self.waiting.extract_if(.., is_of_thread).map(|ran| ran.until - ran.from).sum();
        self.total -= gone.min(self.total);
    }

    /// Adds the intervals of a child that has no row of its own.
    pub fn take_over(&mut self, child: &CpuIntervals) {
        child.waiting.iter().for_each(|ran| self.add(0, ran.from, ran.until));
    }

    /// Removes and returns the intervals that ended before this time.
    pub fn split_off(&mut self, until: u64) -> CpuIntervals {
        let waiting: Vec<Interval> = self.waiting.extract_if(.., |ran| ran.until <= until).collect();
        CpuIntervals { waiting, ..CpuIntervals::default() }
    }

    pub fn is_due(&self, until: u64) -> bool {
        self.waiting.iter().any(|ran| ran.until <= until)
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// Removes and returns the intervals that ended before this time, with short pauses, in order and without overlaps.
    /// `in_functions` are the times at which threads of the process were in sampled functions.
    pub fn take_due(&mut self, until: u64, in_functions: &[(u64, u64)]) -> Vec<(u64, u64)> {
        if self.waiting.is_empty() && in_functions.is_empty() {
            return Vec::new();
        }
        let due = self.waiting.extract_if(.., |ran| ran.until <= until);
        let mut due: Vec<(u64, u64)> = due.map(|ran| (ran.from, ran.until)).collect();
        let mut all: Vec<(u64, u64)> = due.iter().chain(in_functions).copied().collect();
        all.sort_unstable();
        for (from, until) in all {
            let pause = (self.ran_until, from);
            if self.ran_until > 0 && from > self.ran_until && from - self.ran_until <= FILLED_PAUSE_MAX {
                due.push(pause);
            }
            self.ran_until = self.ran_until.max(until);
        }
        due.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (from, until) in due {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => merged.push((from, until)),
            }
        }
        merged
    }

    pub fn has_writer(&self) -> bool {
        self.writer.is_some()
    }

    pub fn set_writer(&mut self, writer: EventWriter) {
        self.writer = Some(writer);
    }

    /// Writes these times as calls of `region`.
    pub fn write(&mut self, times: &[(u64, u64)], region: u32, at: impl Fn(u64) -> Timestamp) {
        let Some(writer) = &mut self.writer else { return };
        for (from, until) in times {
            if *until <= self.written {
                continue;
            }
            let begin = at((*from).max(self.written)).max(self.last_event);
            let end = at(*until).max(begin);
            writer.enter(begin, region);
            writer.leave(end, region);
            (self.written, self.last_event) = (*until, end);
        }
    }

    pub fn end(mut self) {
        if let Some(mut writer) = self.writer.take() {
            writer.location_end(self.last_event);
            writer.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_short_pauses_between_them_are_joined_and_unfinished_ones_wait() {
        let mut unsampled = CpuIntervals::default();
        for (thread, from, until) in [(7, 10, 20), (8, 5, 15), (9, 22, 30), (9, 50, 60), (9, 70, 90)] {
            unsampled.add(thread, from, until);
        }
        assert_eq!(unsampled.take_due(80, &[]), [(5, 60)]);
        assert_eq!(unsampled.take_due(80, &[]), []);
        assert!(!unsampled.is_due(80) && unsampled.is_due(90));
        assert_eq!(unsampled.take_due(90, &[]), [(60, 90)]);
    }

    #[test]
    fn pauses_are_filled_if_they_are_short_and_nothing_else_is_in_a_function() {
        let mut unsampled = CpuIntervals::default();
        unsampled.add(7, 10, 20);
        unsampled.add(7, 2 * FILLED_PAUSE_MAX, 2 * FILLED_PAUSE_MAX + 10);
        assert_eq!(
            unsampled.take_due(u64::MAX, &[]),
            [(10, 20), (2 * FILLED_PAUSE_MAX, 2 * FILLED_PAUSE_MAX + 10)]
        );
        let then = 3 * FILLED_PAUSE_MAX;
        unsampled.add(7, then, then + 10);
        let in_functions = [(2 * FILLED_PAUSE_MAX + 5, then - 7), (then + 20, then + 30)];
        assert_eq!(unsampled.take_due(u64::MAX, &in_functions), [(then - 7, then + 20)]);
    }

    #[test]
    fn intervals_of_a_sampled_thread_are_forgotten_and_those_of_a_child_without_a_row_are_added() {
        let (mut unsampled, mut child) = (CpuIntervals::default(), CpuIntervals::default());
        unsampled.add(7, 10, 20);
        unsampled.add(8, 30, 35);
        unsampled.forget(7);
        assert_eq!(unsampled.total(), 5);
        child.add(9, 40, 50);
        unsampled.take_over(&child.split_off(45));
        unsampled.take_over(&child.split_off(50));
        assert_eq!((unsampled.total(), unsampled.take_due(u64::MAX, &[])), (15, vec![(30, 50)]));
    }
}
