//! The collector's loop: rounds of collecting, the sleep between them, and the conditions for the end of the run.

use ampere_collector::finish::running::RunningSummary;
use ampere_collector::ingest::{Round, StillExpected};
use ampere_collector::live::LiveRun;
use ampere_collector::sampling::clock::best_reading;
use ampere_counters::thread_cpu_time;
use ampere_figures::clock_text::rfc3339;
use ampere_ring::RECORDS_PER_SECOND;
use ampere_server::http::Wanted;
use crossbeam_channel::Receiver;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The shortest and the longest sleep between two rounds. Each round takes a core from the program for a moment.
const SLEEP_MIN: Duration = Duration::from_micros(500);
const SLEEP_MAX: Duration = Duration::from_millis(40);
/// The longest sleep if nothing wakes the loop at the end of the run. The last process of the node then waits for the loop.
const UNWOKEN_SLEEP_MAX: Duration = Duration::from_millis(16);
/// The longest sleep if small rings could become full during a longer sleep.
const SMALL_RINGS_SLEEP_MAX: Duration = Duration::from_millis(4);
/// After this time without records, or without a ring that a program writes to, the sleep is longer.
const IDLE_AFTER: Duration = Duration::from_secs(1);
const IDLE_SLEEP: Duration = Duration::from_millis(50);
/// The desired fill level of the fullest ring at the next round.
const COMFORTABLE: f64 = 0.05;
/// From this fill level on, the loop does not sleep, because in a ring that is half full, calls are coalesced.
const PRESSED: f64 = 0.25;
/// If no process joins in this time, there is nothing to collect.
pub const JOIN_LIMIT: Duration = Duration::from_secs(60);
/// The longest wait, after the command has ended, for processes that the kernel is ending.
const ENDING_WAIT_MAX: Duration = Duration::from_secs(10);
/// The longest wait for ranks.
const RANKS_WAIT_MAX: Duration = Duration::from_millis(100);
/// The longest wait for ranks whose launcher was killed, which end by themselves when they notice.
const ORPHANED_RANKS_WAIT_MAX: Duration = Duration::from_secs(3);
/// The longest wait for other processes.
const OTHERS_WAIT_MAX: Duration = Duration::from_millis(5);
/// The time for which a command is still measured after its `ampere run` was killed.
const ORPHANED_COMMAND_MAX: Duration = Duration::from_secs(10);
/// The time for which the program may continue after the collector has received a signal to end. Schedulers kill remaining
/// processes after 5 s or more.
const SIGNAL_LIMIT: Duration = Duration::from_secs(3);

pub struct EndConditions {
    /// If set, the run ends when this is closed, and not when its processes end.
    input: Option<Input>,
    /// Whether a signal has asked the collector to end.
    is_asked: &'static AtomicBool,
    /// Whether the run may be about to end, so that everything should be written to disk.
    is_urgent: bool,
    begun: Instant,
    closed_at: Option<Instant>,
    /// The time when the collector was asked to end, and the same as wall-clock time in nanoseconds.
    asked_at: Option<(Instant, u64)>,
}

/// The messages of `ampere run`, through the collector's standard input.
#[derive(Clone, Default)]
pub struct Input {
    /// Whether the command or `ampere run` has ended.
    pub is_closed: Arc<AtomicBool>,
    /// Whether a byte has arrived, which means that a signal has asked the command to end.
    pub is_urgent: Arc<AtomicBool>,
}

/// The way in which a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All of its processes have ended.
    Complete,
    /// Some of its processes may continue.
    Incomplete,
}

impl EndConditions {
    pub fn new(input: Option<Input>, is_asked: &'static AtomicBool) -> EndConditions {
        let begun = Instant::now();
        EndConditions { input, is_asked, is_urgent: false, begun, closed_at: None, asked_at: None }
    }

    /// Returns whether the run may be about to end, once for each reason.
    fn take_urgency(&mut self) -> bool {
        let by_input =
            self.input.as_ref().is_some_and(|input| input.is_urgent.swap(false, Ordering::Relaxed));
        std::mem::take(&mut self.is_urgent) || by_input
    }

    fn end_of(&mut self, run: &mut LiveRun) -> Option<End> {
        match &self.input {
            Some(input) if input.is_closed.load(Ordering::Relaxed) => {
                let closed_at = *self.closed_at.get_or_insert_with(|| {
                    self.is_urgent = true;
                    run.learn_command_end();
                    Instant::now()
                });
                if !run.command_has_ended() {
                    // `ampere run` itself was killed, and its command may still be running.
                    if run.have_all_ended() || run.processes_seen() == 0 {
                        return Some(End::Complete);
                    }
                    if closed_at.elapsed() > ORPHANED_COMMAND_MAX {
                        run.add_loss("ampere run was killed, but its command is still running: it was measured for a while longer");
                        return Some(End::Incomplete);
                    }
                } else {
                    let Some(expected) = run.still_expected() else { return Some(End::Complete) };
                    if closed_at.elapsed() > longest_wait(expected) {
                        return Some(End::Incomplete);
                    }
                }
            }
            Some(_) => {}
            None if run.have_all_ended() => return Some(End::Complete),
            None if run.processes_seen() == 0 && self.begun.elapsed() > JOIN_LIMIT => {
                return Some(End::Incomplete);
            }
            None => {}
        }
        if !self.is_asked.load(Ordering::Relaxed) {
            return None;
        }
        self.is_urgent |= self.asked_at.is_none();
        let (since, at) = *self.asked_at.get_or_insert_with(|| (Instant::now(), best_reading().realtime_ns));
        if since.elapsed() <= SIGNAL_LIMIT {
            return None;
        }
        run.add_loss(format!(
            "the collector was asked to end (by a signal) at {}, and the program continued: what it did more than {} s \
             later is not included",
            rfc3339(at),
            SIGNAL_LIMIT.as_secs()
        ));
        Some(End::Incomplete)
    }
}

fn longest_wait(expected: StillExpected) -> Duration {
    match expected {
        StillExpected::ReadAgain => Duration::MAX,
        StillExpected::Ending => ENDING_WAIT_MAX,
        StillExpected::Ranks => RANKS_WAIT_MAX,
        StillExpected::OrphanedRanks => ORPHANED_RANKS_WAIT_MAX,
        StillExpected::Others => OTHERS_WAIT_MAX,
    }
}

/// Decides how long the loop sleeps. Under load the rings must not become full, but an idle job should not be disturbed.
struct Pace {
    sleep: Duration,
    longest: Duration,
    /// The time when a round last found records.
    had_records: Instant,
    /// The time when a program last had a ring. The collector's own rings are not filled faster than it empties them.
    had_ring: Instant,
}

impl Pace {
    fn is_idle(&self) -> bool {
        self.had_records.elapsed() > IDLE_AFTER
    }

    fn sleep_after(&mut self, Round { records, fullest, smallest }: Round) -> Duration {
        if records > 0 {
            self.had_records = Instant::now();
        }
        if smallest < u64::MAX {
            self.had_ring = Instant::now();
        }
        // A ring that is empty now may be half full after the sleep, if its location starts to record events at the highest rate
        // at which they are not coalesced.
        let half_full = Duration::from_micros(smallest / 2 / (RECORDS_PER_SECOND / 1_000_000));
        let longest = half_full.clamp(SMALL_RINGS_SLEEP_MAX, self.longest);
        self.sleep = if fullest > PRESSED {
            Duration::ZERO
        } else if self.is_idle() || self.had_ring.elapsed() > IDLE_AFTER {
            IDLE_SLEEP
        } else {
            // The sleep is chosen so that the fullest ring will have the desired fill level, but is at most twice as long as the
            // last one.
            let longer = (COMFORTABLE / fullest.max(1e-6)).min(2.0);
            self.sleep.max(SLEEP_MIN).mul_f64(longer).clamp(SLEEP_MIN, longest)
        };
        self.sleep
    }
}

/// Collects until the run ends. Returns whether all of its processes have ended.
pub fn run(run: &mut LiveRun, requests: &Receiver<Wanted>, mut conditions: EndConditions) -> bool {
    let longest = if conditions.input.is_some() { SLEEP_MAX } else { UNWOKEN_SLEEP_MAX };
    let begun = conditions.begun;
    let mut pace = Pace { sleep: SLEEP_MIN, longest, had_records: begun, had_ring: begun };
    let mut on_disk = RunningSummary::new(run);
    loop {
        let round = run.round();
        while let Ok(request) = requests.try_recv() {
            answer(run, request);
        }
        if let Some(end) = conditions.end_of(run) {
            return end == End::Complete;
        }
        on_disk.keep(run, conditions.take_urgency());
        let sleep = match conditions.closed_at {
            None => pace.sleep_after(round).min(run.until_thorough().unwrap_or(Duration::MAX)),
            Some(_) => SLEEP_MIN,
        };
        run.is_idle = pace.is_idle();
        if !sleep.is_zero() {
            std::thread::park_timeout(sleep);
        }
    }
}

/// Answers a request. A client that has closed its connection gets nothing.
fn answer(run: &mut LiveRun, wanted: Wanted) {
    match wanted {
        Wanted::Summary(reply) => {
            let mut summary = run.summary(false);
            summary.run.running = true;
            let _ = reply.send(Box::new(summary));
        }
        Wanted::Page(rank, reply) => {
            let cpu_before = thread_cpu_time();
            let page = run.page(rank);
            let _ = reply.send((page, thread_cpu_time().saturating_sub(cpu_before)));
        }
        Wanted::Note(line) => run.add_note(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sleep_follows_the_fullest_ring() {
        let now = Instant::now();
        let mut pace = Pace { sleep: SLEEP_MIN, longest: SLEEP_MAX, had_records: now, had_ring: now };
        let mut after = |fullest, smallest| pace.sleep_after(Round { records: 1, fullest, smallest });
        assert_eq!(after(0.3, 1 << 21), Duration::ZERO, "there is no time");
        assert_eq!(after(0.2, 1 << 21), SLEEP_MIN);
        assert_eq!(after(0.01, 1 << 21), 2 * SLEEP_MIN, "at most twice as long as before");
        (0..10).for_each(|_| _ = after(0.01, 1 << 21));
        assert_eq!(after(0.0, 1 << 21), SLEEP_MAX);
        assert_eq!(after(0.1, 1 << 21), SLEEP_MAX / 2, "half as long, the ring fills half as much");
        (0..10).for_each(|_| _ = after(0.01, 1 << 17));
        assert_eq!(after(0.0, 1 << 17), Duration::from_micros(6553), "a smaller ring is half full by then");
        assert_eq!(after(0.0, 1 << 12), SMALL_RINGS_SLEEP_MAX);
    }
}
