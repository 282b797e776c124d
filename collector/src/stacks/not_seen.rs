//! CPU time of processes of the run that are neither sampled nor record their own functions: what they did is not seen.

use ampere_counters::{ProcessCpu, SharedRunCpu};
use ampere_ring::process::{is_alive, is_ending};
use std::collections::HashMap;
use std::sync::PoisonError;

/// Processes of which less was not seen get no row for it, in nanoseconds.
const LEAST: u64 = 10_000_000;
/// More processes are not watched.
const WATCHED_MAX: usize = 4096;

/// Watches the CPU time that the kernel counts.
pub(super) struct NotSeen {
    run: SharedRunCpu,
    /// By pid and start time.
    known: HashMap<(u32, u64), Watched>,
    /// `ampere run`: a child of it with the same program has not yet become the command.
    launcher: Option<u32>,
    /// Why nothing is sampled.
    why: Option<String>,
}

#[derive(Default)]
struct Watched {
    name: String,
    /// All that it had used when it was last looked at.
    used: u64,
    /// What it used since it was last seen.
    waiting: u64,
    looks: u32,
    was_seen: bool,
    has_row: bool,
    /// All that was not seen.
    total: u64,
    why: Option<String>,
}

/// What is to be done about a process.
pub(super) enum Unseen {
    /// It should be sampled.
    Found(u32),
    /// For so long, until now, it was not seen.
    Ran(u32, u64),
}

impl NotSeen {
    pub fn of(run: SharedRunCpu, launcher: Option<u32>, why: Option<String>) -> NotSeen {
        NotSeen { run, known: HashMap::new(), launcher, why }
    }

    /// What was used since the last look by processes that are not seen.
    pub fn look(&mut self, is_seen: impl Fn(u32) -> bool) -> Vec<Unseen> {
        let now: Vec<ProcessCpu> =
            self.run.lock().unwrap_or_else(PoisonError::into_inner).processes().collect();
        let program = |process: u32| std::fs::read_link(format!("/proc/{process}/exe")).ok();
        let launcher = self.launcher.and_then(program);
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
            // What a process used last is known only after it has ended, and is as seen as what it used before.
            watched.was_seen = is_seen(process.pid)
                || watched.was_seen && (!is_alive(process.pid, process.started) || is_ending(process.pid));
            if watched.was_seen {
                (watched.waiting, watched.looks) = (0, 0);
                continue;
            }
            watched.name = process.name;
            watched.waiting += new;
            watched.looks += 1;
            // One that has just begun may be known to be sampled soon.
            if watched.looks == 2 {
                if launcher.is_some() && program(process.pid) == launcher {
                    watched.looks = 1;
                    continue;
                }
                found.push(Unseen::Found(process.pid));
            } else if watched.looks > 2 && watched.waiting > 0 && watched.waiting + watched.total >= LEAST {
                watched.total += watched.waiting;
                watched.has_row = true;
                found.push(Unseen::Ran(process.pid, std::mem::take(&mut watched.waiting)));
            }
        }
        found
    }

    /// Processes with rows that have ended since this was last asked.
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

    /// Why a process is not sampled.
    pub fn set_reason(&mut self, process: u32, why: &str) {
        let of = self.known.iter_mut().filter(|((pid, _), _)| *pid == process);
        of.for_each(|(_, watched)| watched.why = Some(why.to_owned()));
    }

    /// What the summary should say: of each process with time that was not seen.
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

    /// Whether more than a twentieth of the run's CPU time was not seen.
    pub fn matters(&self) -> bool {
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
    fn cpu_time_that_the_kernel_counts_and_nothing_shows_is_told_once() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let (pid, mut run) = (child.id(), RunCpu::new(&Settings::default(), 1));
        run.add(pid, ampere_ring::process::start_time(pid).unwrap());
        let run = Arc::new(Mutex::new(run));
        let mut not_seen = NotSeen::of(run.clone(), None, None);
        let mut look = |is_seen: bool| {
            work(Duration::from_millis(50));
            run.lock().unwrap().own_ns();
            not_seen.look(|_| is_seen)
        };
        assert!(look(true).is_empty());
        assert!(look(false).is_empty());
        assert!(matches!(look(false)[..], [Unseen::Found(found)] if found == pid));
        let all = || run.lock().unwrap().processes().map(|process| process.own_ns).sum::<u64>();
        let before = all();
        let mut told = 0;
        for _ in 0..5 {
            for unseen in look(false) {
                told += if let Unseen::Ran(_, ran) = unseen { ran } else { 0 };
            }
        }
        assert!(told >= all() - before, "{told} of {before} to {}", all());
        assert!(look(true).is_empty());
        assert!(not_seen.matters() && not_seen.notes()[0].contains("(not seen)"), "{:?}", not_seen.notes());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
