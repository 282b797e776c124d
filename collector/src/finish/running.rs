//! Keeps a summary on disk during the run. A batch system may kill the run and its collector at any time, and the records may
//! then be out of reach. This summary then remains.

use super::results::{ResultsError, write_summary};
use super::summary::RunSummary;
use crate::live::LiveRun;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// When the first summary is written, and the time between two summaries.
const FIRST: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_secs(10);
/// At most the run's time divided by this is spent on summaries.
const PART: u32 = 100;

/// Keeps `summary.json` up to date until it is dropped.
pub struct RunningSummary {
    directory: PathBuf,
    started: Instant,
    due: Instant,
    /// The time that making and writing have taken so far.
    spent: Duration,
    /// Whether the run may be about to end.
    is_urgent: bool,
    writing: Option<Writing>,
    has_failed: bool,
}

/// The summary that a thread is writing, so that reading the rings does not wait for a slow file system.
struct Writing {
    begun: Instant,
    thread: JoinHandle<Result<(), ResultsError>>,
}

impl RunningSummary {
    pub fn new(run: &LiveRun) -> RunningSummary {
        RunningSummary {
            directory: run.options.output.clone(),
            started: Instant::now(),
            due: Instant::now() + FIRST,
            spent: Duration::ZERO,
            is_urgent: false,
            writing: None,
            has_failed: false,
        }
    }

    /// Writes the figures of the last round if a summary is due, or if the run may be about to end (`is_urgent`).
    pub fn keep(&mut self, run: &mut LiveRun, is_urgent: bool) {
        self.is_urgent |= is_urgent;
        if self.writing.as_ref().is_some_and(|writing| writing.thread.is_finished()) {
            self.end_writing();
        }
        let is_due = self.is_urgent || self.due <= Instant::now();
        if !is_due || self.writing.is_some() || run.options.replay.is_some() {
            return;
        }
        let begun = Instant::now();
        (self.is_urgent, self.due) = (false, begun + FIRST);
        run.publish();
        let Some(summary) = RunSummary::of(run).running() else { return };
        run.publisher.hints = Some(ampere_report::first::hints(&summary));
        let directory = self.directory.clone();
        let write = move || write_summary(&directory, &summary);
        let thread = std::thread::Builder::new().name("ampere-summary".to_owned()).spawn(write).ok();
        self.writing = thread.map(|thread| Writing { begun, thread });
    }

    fn end_writing(&mut self) {
        let Some(Writing { begun, thread }) = self.writing.take() else { return };
        let took = begun.elapsed();
        self.spent += took;
        self.due = self.started + next_after(begun - self.started, self.spent, took);
        if let Ok(Err(why)) = thread.join()
            && !std::mem::replace(&mut self.has_failed, true)
        {
            eprintln!("ampere-collector: {why}: the latest figures are not on disk");
        }
    }
}

/// Returns the time when the next summary is due. The last one was started `begun` after the start of the run and took `took`;
/// all of them took `spent`. It is assumed that the next one takes as long as the last.
fn next_after(begun: Duration, spent: Duration, took: Duration) -> Duration {
    (begun + PERIOD).max((spent + took) * PART)
}

impl Drop for RunningSummary {
    fn drop(&mut self) {
        self.end_writing(); // before the whole summary is written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_a_hundredth_of_the_run_is_spent_on_summaries() {
        let (millisecond, second) = (Duration::from_millis(1), Duration::from_secs(1));
        assert_eq!(next_after(FIRST, 3 * millisecond, 3 * millisecond), FIRST + PERIOD);
        for took in [3 * millisecond, 80 * millisecond, 2 * second] {
            let (mut now, mut spent) = (FIRST, Duration::ZERO);
            for _ in 0..100 {
                spent += took;
                now = next_after(now, spent, took);
                assert!((spent + took) * PART <= now && now >= PERIOD, "{spent:?} of {now:?}");
            }
        }
    }
}
