//! CPU time of processes of the run that are neither sampled nor record their own functions: their functions are not known.

use ampere_counters::{ProcessCpu, SharedRunCpu};
use ampere_ring::process::{is_alive, is_ending};
use std::collections::HashMap;
use std::sync::PoisonError;

/// A process gets no row for its unsampled CPU time if that is less than this, in nanoseconds.
const UNSEEN_MIN_NS: u64 = 10_000_000;
/// The maximum number of processes that are watched.
const WATCHED_MAX: usize = 4096;

/// Watches the CPU time that the kernel counts.
pub(super) struct UnsampledProcesses {
    run: SharedRunCpu,
    /// The processes by pid and start time.
    known: HashMap<(u32, u64), Watched>,
    /// The process of `ampere run`: a child with the same program has not yet become the command.
    launcher: Option<u32>,
    /// The reason why nothing is sampled.
    why: Option<String>,
}

#[derive(Default)]
struct Watched {
    name: String,
    /// The CPU time that the process had used at the last poll.
    used: u64,
    /// The CPU time since the process was last sampled or recorded, which has not been written yet.
    waiting: u64,
    /// The number of polls since the process was last sampled or recorded.
    polls: u32,
    was_seen: bool,
    /// Whether the process ran the launcher's program when this was last checked.
    is_launcher: bool,
    has_row: bool,
    /// The total CPU time without samples or records.
    total: u64,
    why: Option<String>,
}

/// The action for a process.
pub(super) enum Action {
    /// The process should be sampled.
    Sample(u32),
    /// A row should be written for this CPU time, in nanoseconds, which the process has used up to now.
    Write(u32, u64),
}

impl UnsampledProcesses {
    pub fn of(run: SharedRunCpu, launcher: Option<u32>, why: Option<String>) -> UnsampledProcesses {
        UnsampledProcesses { run, known: HashMap::new(), launcher, why }
    }

    /// Polls the CPU time of all processes. `is_seen` returns whether a process is sampled or recorded.
    pub fn poll(&mut self, is_seen: impl Fn(u32) -> bool) -> Vec<Action> {
        let now: Vec<ProcessCpu> =
            self.run.lock().unwrap_or_else(PoisonError::into_inner).processes().collect();
        let program = |process: u32| std::fs::read_link(format!("/proc/{process}/exe")).ok();
        let is_launcher = |process| {
            let launcher = self.launcher.and_then(program);
            launcher.is_some() && program(process) == launcher
        };
        let mut found = Vec::new();
        for process in now {
            let key = (process.pid, process.started);
            if !self.known.contains_key(&key) && self.known.len() >= WATCHED_MAX {
                continue;
            }
            let watched = self.known.entry(key).or_default();
            let used = process.own_ns + process.children_ns;
            let new = used.saturating_sub(watched.used);
            watched.used = watched.used.max(used);
            // The last CPU time of a process is known only after it has ended, and belongs to the CPU time that it used before.
            watched.was_seen = is_seen(process.pid)
                || watched.was_seen && (!is_alive(process.pid, process.started) || is_ending(process.pid));
            if watched.was_seen {
                (watched.waiting, watched.polls) = (0, 0);
                continue;
            }
            watched.name = process.name;
            watched.waiting += new;
            watched.polls += 1;
            // A process that has just started may soon be known to be sampled.
            if watched.polls == 2 {
                // A process that has used no CPU time has not become another program.
                watched.is_launcher = watched.is_launcher && new == 0 || is_launcher(process.pid);
                if watched.is_launcher {
                    watched.polls = 1;
                    continue;
                }
                found.push(Action::Sample(process.pid));
            } else if watched.polls > 2
                && watched.waiting > 0
                && watched.waiting + watched.total >= UNSEEN_MIN_NS
            {
                watched.total += watched.waiting;
                watched.has_row = true;
                found.push(Action::Write(process.pid, std::mem::take(&mut watched.waiting)));
            }
        }
        found
    }

    /// Returns the processes with rows that have ended since the last call.
    pub fn take_ended(&mut self) -> Vec<u32> {
        let with_rows = self.known.iter_mut().filter(|(_, watched)| watched.has_row);
        let ended = with_rows.filter(|((pid, started), _)| !is_alive(*pid, *started));
        ended
            .map(|((pid, _), watched)| {
                watched.has_row = false;
                *pid
            })
            .collect()
    }

    pub fn set_reason(&mut self, process: u32, why: &str) {
        let of = self.known.iter_mut().filter(|((pid, _), _)| *pid == process);
        of.for_each(|(_, watched)| watched.why = Some(why.to_owned()));
    }

    /// Returns a note for each process with unsampled CPU time.
    pub fn notes(&self) -> Vec<String> {
        let mut all: Vec<_> = self.known.iter().filter(|(_, watched)| watched.total > 0).collect();
        all.sort_by_key(|(_, watched)| std::cmp::Reverse(watched.total));
        let note = |((pid, _), watched): &(&(u32, u64), &Watched)| {
            let why =
                watched.why.as_deref().or(self.why.as_deref()).unwrap_or("it was found late, or ended first");
            format!(
                "{:.0} % of the CPU time of process {pid} ({}), {:.2} s, are in its row (not seen): {why}",
                100.0 * watched.total as f64 / watched.used.max(1) as f64,
                watched.name,
                watched.total as f64 * 1e-9,
            )
        };
        all.iter().take(8).map(note).collect()
    }

    /// Whether more than a twentieth of the run's CPU time has neither samples nor records.
    pub fn is_loss(&self) -> bool {
        let sum = |of: fn(&Watched) -> u64| self.known.values().map(of).sum::<u64>();
        20 * sum(|watched| watched.total) > sum(|watched| watched.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_counters::{RunCpu, Settings};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    fn work(time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn cpu_time_that_the_kernel_counts_and_nothing_shows_is_written_once() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let (pid, mut run) = (child.id(), RunCpu::new(&Settings::default(), 1));
        run.add(pid, ampere_ring::process::start_time(pid).unwrap());
        let run = Arc::new(Mutex::new(run));
        let mut unsampled = UnsampledProcesses::of(run.clone(), None, None);
        let mut look = |is_seen: bool| {
            work(Duration::from_millis(50));
            run.lock().unwrap().own_ns();
            unsampled.poll(|_| is_seen)
        };
        assert!(look(true).is_empty());
        assert!(look(false).is_empty());
        assert!(matches!(look(false)[..], [Action::Sample(found)] if found == pid));
        let all = || run.lock().unwrap().processes().map(|process| process.own_ns).sum::<u64>();
        let before = all();
        let mut reported = 0;
        for _ in 0..5 {
            for unseen in look(false) {
                reported += if let Action::Write(_, ran) = unseen { ran } else { 0 };
            }
        }
        assert!(reported >= all() - before, "{reported} of {before} to {}", all());
        assert!(look(true).is_empty());
        assert!(
            unsampled.is_loss() && unsampled.notes()[0].contains("(not seen)"),
            "{:?}",
            unsampled.notes()
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
