//! Runs another program within a time limit. The program may crash, hang, or leave children that hold its pipes open.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time limit for a program that answers at once, such as with its version.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// The time to wait for the last output after a program has ended, and for its end after it was killed. A process that waits
/// for a device may not end even then.
const GRACE_TIME: Duration = Duration::from_millis(500);
/// An upper bound on the output that is kept.
const BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Exit(i32),
    Signal(i32),
    TimedOut,
}

/// The exit status and the output of a program.
pub struct Finished {
    pub end: End,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    pub fn succeeded(&self) -> bool {
        self.end == End::Exit(0)
    }

    /// Returns the first line of standard output that is not empty, or else that of standard error.
    pub fn first_line(&self) -> &str {
        let mut lines = self.stdout.lines().chain(self.stderr.lines()).map(str::trim);
        lines.find(|line| !line.is_empty()).unwrap_or("")
    }
}

/// Runs a program to its end or until `limit`, when its whole process group is killed.
pub fn run_within(command: &mut Command, limit: Duration) -> io::Result<Finished> {
    // It gets a process group of its own, so that its children are killed with it at the limit.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let stdout = child.stdout.take().map(Listener::start);
    let stderr = child.stderr.take().map(Listener::start);
    let status = wait(&mut child, limit)?;
    if status.is_none() {
        let group = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        wait(&mut child, GRACE_TIME)?;
    }
    let end = match status {
        None => End::TimedOut,
        Some(status) => status.signal().map_or_else(|| End::Exit(status.code().unwrap_or(1)), End::Signal),
    };
    let received = |listener: Option<Listener>| listener.map_or_else(String::new, Listener::finish);
    Ok(Finished { end, stdout: received(stdout), stderr: received(stderr) })
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        match child.try_wait()? {
            None if begun.elapsed() < limit => std::thread::sleep(Duration::from_millis(2)),
            status => return Ok(status),
        }
    }
}

/// Reads a program's pipe in a thread, because a full pipe would stop the program.
struct Listener {
    received: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Listener {
    fn start(mut pipe: impl Read + Send + 'static) -> Listener {
        let received = Arc::new(Mutex::new(Vec::new()));
        let to = received.clone();
        let thread = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut bytes) {
                let mut to = to.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                if to.len() < BYTES_MAX {
                    to.extend_from_slice(&bytes[..count]);
                }
            }
        });
        Listener { received, thread }
    }

    fn finish(self) -> String {
        let begun = Instant::now();
        while !self.thread.is_finished() && begun.elapsed() < GRACE_TIME {
            std::thread::sleep(Duration::from_millis(1));
        }
        let received = self.received.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        String::from_utf8_lossy(&received).into_owned()
    }
}

/// Returns a signal as `signal 11 (SIGSEGV)`.
pub fn signal_name(signal: i32) -> String {
    let known = [
        (rustix::process::Signal::SEGV, "SIGSEGV"),
        (rustix::process::Signal::ABORT, "SIGABRT"),
        (rustix::process::Signal::BUS, "SIGBUS"),
        (rustix::process::Signal::ILL, "SIGILL"),
        (rustix::process::Signal::FPE, "SIGFPE"),
        (rustix::process::Signal::KILL, "SIGKILL"),
    ];
    let name = known.iter().find(|(known, _)| known.as_raw() == signal).map(|(_, name)| *name);
    name.map_or_else(|| format!("signal {signal}"), |name| format!("signal {signal} ({name})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit_ms: u64) -> Finished {
        run_within(Command::new("sh").args(["-c", script]), Duration::from_millis(limit_ms)).unwrap()
    }

    #[test]
    fn every_end_is_reported() {
        let fine = shell("echo; echo one; echo two >&2; exit 3", 5000);
        assert_eq!((fine.end, fine.first_line()), (End::Exit(3), "one"));
        assert_eq!(shell("kill -SEGV $$", 5000).end, End::Signal(11));
        assert_eq!(signal_name(11), "signal 11 (SIGSEGV)");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let begun = Instant::now();
        let hangs = shell("echo begun; sleep 30 & sleep 30", 2000);
        assert_eq!((hangs.end, hangs.first_line()), (End::TimedOut, "begun"));
        // This program leaves a child behind that holds its pipe.
        assert_eq!(shell("sleep 30 & exit 0", 20_000).end, End::Exit(0));
        assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    }
}
