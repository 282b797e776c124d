//! Keeps a collector running: if it is killed, another one is started.

use ampere_collector::supervise::{Restarts, start_patiently};
use ampere_figures::summary::SignalNumber;
use ampere_ring::{CollectorState, HeldLock, Session};
use anyhow::Context;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The maximum time for a collector to get ready.
const START_LIMIT: Duration = Duration::from_secs(20);
/// The maximum time for a collector to write the results.
const FINISH_LIMIT: Duration = Duration::from_secs(600);

/// The interval between checks of whether the collector is ready or has finished. It is short at first, for short runs.
const FAST_POLL: Duration = Duration::from_micros(200);
const SLOW_POLL: Duration = Duration::from_millis(2);
const FAST_POLL_LIMIT: Duration = Duration::from_millis(50);
/// The interval between checks of whether a collector that serves final figures must end.
const HOLD_PERIOD: Duration = Duration::from_millis(20);

/// Returns the time to sleep between two checks after having waited for `waited`.
fn poll_interval(waited: Duration) -> Duration {
    if waited < FAST_POLL_LIMIT { FAST_POLL } else { SLOW_POLL }
}

/// The options with which a collector is started.
pub struct Start {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// Settings that are not in the environment, by the names of their variables.
    pub variables: Vec<(&'static str, String)>,
}

impl Start {
    /// Starts a collector, which runs until its standard input is closed.
    fn spawn(&self, session: &Path) -> std::io::Result<Child> {
        let log = ampere_ring::files::append_private(&session.join("collector.log"));
        Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(variable, value)| (variable, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log.map_or_else(|_| Stdio::null(), Stdio::from))
            .spawn()
    }

    fn cannot(&self) -> String {
        format!("cannot start {}", self.program.display())
    }
}

/// The state of a run's results after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    Written,
    Missing,
    /// The results were still being written at the time limit.
    StillWriting,
}

/// The collector that is kept running, shared by the keeper and its thread.
struct Kept {
    session: Session,
    start: Start,
    child: Child,
    restarts: Restarts,
    /// Whether the command has ended, so that the collector must finish.
    closing: bool,
    /// The exit status of a collector that is not replaced.
    ended: Option<ExitStatus>,
}

impl Kept {
    /// Starts another collector if this one was killed.
    fn replace_if_killed(&mut self) {
        if self.ended.is_some() {
            return;
        }
        let Ok(Some(status)) = self.child.try_wait() else { return };
        if self.restarts.is_another_due(status, &self.session)
            && let Ok(mut child) = start_patiently(|| self.start.spawn(self.session.directory()))
        {
            say_that_another_takes_over(status);
            if self.closing {
                drop(child.stdin.take());
            }
            self.child = child;
        } else {
            if let Some(signal) = status.signal()
                && !self.closing
            {
                say!(
                    "ampere: the collector was killed by {} and is not replaced: the command continues without being measured",
                    SignalNumber(signal)
                );
            }
            self.ended = Some(status);
        }
    }
}

fn say_that_another_takes_over(killed: ExitStatus) {
    if let Some(signal) = killed.signal() {
        say!("ampere: the collector was killed by {}; another one takes over", SignalNumber(signal));
    }
}

pub struct Keeper {
    /// Shows other processes, even in another pid namespace, that this process waits for the results.
    _waits: Option<HeldLock>,
    kept: Arc<Mutex<Kept>>,
}

impl Keeper {
    /// Starts a collector and waits until it is ready. If it cannot start, the session is removed. `meanwhile` is called while
    /// the collector gets ready.
    pub fn start(session: &Session, start: Start, meanwhile: impl FnOnce()) -> anyhow::Result<Keeper> {
        let mut child = start.spawn(session.directory()).with_context(|| start.cannot())?;
        meanwhile();
        let begun = Instant::now();
        let mut restarts = Restarts::default();
        while session.collector_state() != CollectorState::Running || !session.collector_is_alive() {
            let ended = child.try_wait().ok().flatten();
            if let Some(status) = ended.filter(|status| restarts.is_another_due(*status, session)) {
                say_that_another_takes_over(status);
                let replacement = start_patiently(|| start.spawn(session.directory()));
                child = replacement.with_context(|| start.cannot())?;
                continue;
            }
            if ended.is_some() || begun.elapsed() > START_LIMIT {
                let why = ampere_ring::files::read_text(&session.directory().join("failure"));
                let _ = child.kill();
                let _ = child.wait();
                let directory = session.directory().to_owned();
                let log = ampere_ring::files::read_text(&directory.join("collector.log"));
                session.remove();
                let last = log.lines().last().unwrap_or("it gave no reason").to_owned();
                anyhow::ensure!(!why.is_empty(), "the collector did not start: {last}");
                anyhow::bail!("{why}");
            }
            std::thread::sleep(poll_interval(begun.elapsed()));
        }
        let session = Session::open(session.directory())?;
        let waits = session.lock_waiter().ok().flatten();
        let kept = Kept { session, start, child, restarts, closing: false, ended: None };
        let kept = Arc::new(Mutex::new(kept));
        let kept_by_thread = kept.clone();
        // Without this thread, a killed collector is noticed only at the end.
        let _ = std::thread::Builder::new()
            .name("ampere-keeper".to_owned())
            .spawn(move || keep_running(&kept_by_thread));
        Ok(Keeper { _waits: waits, kept })
    }

    /// Asks the collector to write its data to disk, because the run may be about to end.
    pub fn request_write(&self) {
        if let Some(stdin) = &mut lock(&self.kept).child.stdin {
            let _ = stdin.write_all(b"\n");
        }
    }

    /// Waits until the collector has written the results. If that takes long, it says so, unless `quiet` is set.
    pub fn finish(&self, quiet: bool) -> Results {
        self.close();
        let begun = Instant::now();
        let mut has_reported = quiet;
        loop {
            let mut kept = lock(&self.kept);
            kept.replace_if_killed();
            let state = kept.session.collector_state();
            // A collector that has finished may serve its final figures for some time.
            if state == CollectorState::Finished {
                return Results::Written;
            }
            if let Some(status) = kept.ended {
                // The collector's last step removes the session. It may have been killed before it could set its state.
                let is_done = state == CollectorState::Running && kept.session.is_removed();
                return if status.success() || is_done { Results::Written } else { Results::Missing };
            }
            drop(kept);
            if begun.elapsed() > FINISH_LIMIT {
                return Results::StillWriting;
            }
            if !has_reported && begun.elapsed() > Duration::from_secs(2) {
                has_reported = true;
                say!("ampere: writing the trace and the summary ...");
            }
            std::thread::sleep(poll_interval(begun.elapsed()));
        }
    }

    /// Lets a collector that has finished serve its final figures until `until`, or until `stop` is set.
    pub fn hold(&self, until: Instant, stop: &AtomicBool) {
        loop {
            let mut kept = lock(&self.kept);
            kept.replace_if_killed();
            if kept.ended.is_some() {
                return;
            }
            if Instant::now() >= until || stop.load(Ordering::Relaxed) {
                // The exit status of the collector has not been taken, so the pid is still the collector's.
                let _ = kill_process(Pid::from_child(&kept.child), Signal::TERM);
                return;
            }
            drop(kept);
            std::thread::sleep(HOLD_PERIOD);
        }
    }

    /// Ends the collector of a command that could not be started.
    pub fn give_up(self) {
        self.close();
        let mut kept = lock(&self.kept);
        let _ = kept.child.wait();
    }

    /// Makes the collector write the results, because the command has ended.
    pub fn close(&self) {
        let mut kept = lock(&self.kept);
        kept.closing = true;
        drop(kept.child.stdin.take());
    }
}

/// Waits for the end of the collector, and takes its exit status under the lock. Starts another one if it was killed.
fn keep_running(kept: &Mutex<Kept>) {
    loop {
        let child = {
            let mut kept = lock(kept);
            kept.replace_if_killed();
            match kept.ended {
                Some(_) => return,
                None => Pid::from_child(&kept.child),
            }
        };
        // The call fails if another thread has already taken the exit status.
        let _ = waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
