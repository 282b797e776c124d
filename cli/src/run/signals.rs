//! Passes on signals that come to `ampere run` and are meant for its command.
//!
//! A signal to a job is sent to one process, to a process group, or to all processes. The command must not receive a signal
//! twice: many programs, including mpirun, take the second one as an order to end at once. So there is a witness: a process
//! next to the command that only reports which signals it receives. If the witness has received a signal, so has the command. A
//! signal that only this process receives is passed on.

use super::command::{end_as, shell_status};
use rustix::process::{Pid, Signal, kill_process};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot::Receiver;

/// Signals that users and batch systems send to programs, and others that would end this process.
const SIGNALS: [Signal; 16] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::ALARM,
    Signal::USR1,
    Signal::USR2,
    Signal::XCPU,
    Signal::TSTP,
    Signal::CONT,
    Signal::ABORT,
    Signal::PROF,
    Signal::VTALARM,
    Signal::IO,
    Signal::POWER,
    Signal::STKFLT,
];
/// Signals that ask a program to end. Flux sends SIGALRM when a job's time has ended.
const ORDERS_TO_END: [Signal; 5] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::ALARM];
/// Signals that a terminal sends to the whole process group. Without a witness they are not passed on.
const TERMINAL_SIGNALS: [Signal; 3] = [Signal::INT, Signal::QUIT, Signal::TSTP];
/// The longest time between the arrivals of the same signal at this process and at the witness.
const TOGETHER: Duration = Duration::from_millis(100);

/// An event, with the signal's index in [`SIGNALS`].
enum News {
    /// This process has received the signal.
    Got(usize),
    /// The witness process has received the signal.
    Witnessed(usize),
    /// This process received the signal [`TOGETHER`] ago. If the witness has not received it, it is passed on.
    Due(usize),
    /// The witness received the signal [`TOGETHER`] ago, so this process will not receive it any more.
    Past(usize),
    /// The witness process has ended.
    Gone,
    /// The command has been stopped.
    Stopped,
}

/// The witness process. Dropping it ends the process.
pub struct Witness {
    child: Child,
    reports: Option<UnixStream>,
}

impl Witness {
    /// Starts the witness; returns `None` if that is impossible.
    pub fn start() -> Option<Witness> {
        let (reports, other_end) = UnixStream::pair().ok()?;
        let own = std::env::current_exe().ok()?;
        let mut command = Command::new(own);
        // The witness has another name, so that it does not receive signals that are sent to `ampere` by name.
        command
            .arg0("signal-witness")
            .arg("witness")
            .stdin(Stdio::null())
            .stdout(OwnedFd::from(other_end))
            .stderr(Stdio::null());
        let child = command.env_remove("LD_PRELOAD").spawn().ok()?;
        Some(Witness { child, reports: Some(reports) })
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // This process does not wait for the witness, because this process ends soon.
        let _ = self.child.kill();
    }
}

/// Returns a runtime that can receive signals; `None` if too few descriptors are left.
fn runtime() -> Option<Runtime> {
    // Tokio panics if no descriptors are left for its signals, so this tries to open some first.
    let descriptors: std::io::Result<Vec<_>> = (0..4).map(|_| UnixStream::pair()).collect();
    drop(descriptors.ok()?);
    tokio::runtime::Builder::new_current_thread().enable_all().build().ok()
}

/// Sends a message to `news` for each signal that arrives.
fn listen(news: &UnboundedSender<News>, kind: fn(usize) -> News) {
    for (number, name) in SIGNALS.iter().enumerate() {
        let Ok(mut stream) = signal(SignalKind::from_raw(name.as_raw())) else { continue };
        let news = news.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                let _ = news.send(kind(number));
            }
        });
    }
}

fn send_later(news: &UnboundedSender<News>, what: News) {
    let news = news.clone();
    tokio::spawn(async move {
        tokio::time::sleep(TOGETHER).await;
        let _ = news.send(what);
    });
}

/// Receives this process' signals. It is made before the command is started; from then on, no signal ends this process.
pub struct Listener {
    runtime: Runtime,
    news: UnboundedSender<News>,
    all: UnboundedReceiver<News>,
}

impl Listener {
    /// Starts to receive signals; returns `None` if too few descriptors are left.
    pub fn start() -> Option<Listener> {
        let runtime = runtime()?;
        let (news, all) = unbounded_channel();
        let entered = runtime.enter();
        listen(&news, News::Got);
        drop(entered);
        ampere_inherited::unblock_signals();
        Some(Listener { runtime, news, all })
    }

    /// Returns a function that reports that the command has been stopped.
    pub fn report_stop(&self) -> impl Fn() + Send + use<> {
        let news = self.news.clone();
        move || _ = news.send(News::Stopped)
    }

    /// Passes signals on to the command until it has ended. `at_order` is called with a signal that asks the command to end, and
    /// `stop` after the command has been stopped.
    pub fn pass_on(
        self,
        to: Pid,
        witness: Option<&mut Witness>,
        at_order: &dyn Fn(i32),
        stop: &dyn Fn(),
        ended: Receiver<()>,
    ) {
        self.runtime.block_on(pass_on(to, witness, at_order, stop, ended, self.news, self.all));
    }
}

async fn pass_on(
    to: Pid,
    witness: Option<&mut Witness>,
    at_order: &dyn Fn(i32),
    stop: &dyn Fn(),
    mut ended: Receiver<()>,
    news: UnboundedSender<News>,
    mut all: UnboundedReceiver<News>,
) {
    let mut has_witness = witness.is_some_and(|witness| listen_to(witness, &news));
    // For each signal: how many times only this process has received it so far, and how many times only the witness has.
    let (mut got, mut witnessed) = ([0u32; SIGNALS.len()], [0u32; SIGNALS.len()]);
    let mut is_stopped = false;
    loop {
        // This process stops only after both processes have received each signal, or after the time [`TOGETHER`]. The time for
        // which this process is stopped must not count as a part of that time.
        if is_stopped && got.iter().chain(&witnessed).all(|times| *times == 0) {
            is_stopped = false;
            stop();
        }
        let one = tokio::select! {
            _ = &mut ended => {
                // Signals that are still on their way are received here. Otherwise they would count as orders not to wait for
                // the results.
                tokio::time::sleep(Duration::from_millis(1)).await;
                return;
            }
            Some(one) = all.recv() => one,
        };
        if let News::Got(number) = one
            && ORDERS_TO_END.contains(&SIGNALS[number])
        {
            at_order(SIGNALS[number].as_raw());
        }
        is_stopped &= !matches!(one, News::Got(number) if SIGNALS[number] == Signal::CONT);
        match one {
            // If the command has its own process group, it does not receive what is sent to this process' group.
            News::Got(number) if is_apart(to) => {
                let _ = kill_process(to, SIGNALS[number]);
            }
            News::Got(number) if !has_witness => {
                if !TERMINAL_SIGNALS.contains(&SIGNALS[number]) {
                    let _ = kill_process(to, SIGNALS[number]);
                }
            }
            News::Got(number) if witnessed[number] > 0 => witnessed[number] -= 1,
            News::Got(number) => {
                got[number] += 1;
                send_later(&news, News::Due(number));
            }
            News::Witnessed(number) if got[number] > 0 => got[number] -= 1,
            News::Witnessed(number) => {
                witnessed[number] += 1;
                send_later(&news, News::Past(number));
            }
            News::Due(number) if got[number] > 0 => {
                got[number] -= 1;
                let _ = kill_process(to, SIGNALS[number]);
            }
            News::Past(number) => witnessed[number] = witnessed[number].saturating_sub(1),
            News::Due(_) => {}
            News::Stopped => is_stopped = true,
            News::Gone => {
                has_witness = false;
                (got, witnessed) = ([0; SIGNALS.len()], [0; SIGNALS.len()]);
            }
        }
    }
}

/// Starts to listen to the witness. Returns whether that has succeeded.
fn listen_to(witness: &mut Witness, news: &UnboundedSender<News>) -> bool {
    let reports = witness.reports.take().filter(|reports| reports.set_nonblocking(true).is_ok());
    let Some(mut reports) = reports.and_then(|reports| tokio::net::UnixStream::from_std(reports).ok()) else {
        return false;
    };
    let news = news.clone();
    tokio::spawn(async move {
        while let Ok(number) = reports.read_u8().await {
            let _ = news.send(News::Witnessed(usize::from(number).min(SIGNALS.len() - 1)));
        }
        let _ = news.send(News::Gone);
    });
    true
}

/// Handles signals while the results are written after the command's end, because that may take a long time if a file system hangs.
/// The first one that asks this process to end prints a line, and the second one ends this process. The collector continues on
/// its own.
pub fn stop_waiting_when_asked(output: &Path, status: ExitStatus) {
    let output = output.to_owned();
    let listen = move || {
        let Some(runtime) = runtime() else { return };
        runtime.block_on(async {
            let (news, mut all) = unbounded_channel();
            listen(&news, News::Got);
            let shown = output.display();
            let mut asked = false;
            while let Some(News::Got(number)) = all.recv().await {
                if SIGNALS[number] == Signal::TSTP {
                    ampere_inherited::take_default_action(Signal::TSTP.as_raw());
                }
                if !ORDERS_TO_END.contains(&SIGNALS[number]) {
                    continue;
                }
                if std::mem::replace(&mut asked, true) {
                    say!("ampere: the collector is still writing to {shown}");
                    end_as(status);
                    std::process::exit(shell_status(status));
                }
                say!("ampere: the command has ended, and its results are being written to {shown}: interrupt again to stop waiting");
            }
        });
    };
    let _ = std::thread::Builder::new().name("ampere-asked".to_owned()).spawn(listen);
}

fn is_apart(process: Pid) -> bool {
    rustix::process::getpgid(Some(process)).is_ok_and(|group| group != rustix::process::getpgrp())
}

/// Runs the witness process.
pub fn witness() -> anyhow::Result<ExitCode> {
    // This process must end if its parent is killed.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let _ = rustix::thread::set_name(c"signal-witness");
    let parent = std::os::fd::AsFd::as_fd(&std::io::stdout()).try_clone_to_owned().map(UnixStream::from)?;
    parent.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (news, mut all) = unbounded_channel();
        listen(&news, News::Got);
        ampere_inherited::unblock_signals();
        let mut parent = tokio::net::UnixStream::from_std(parent)?;
        loop {
            let mut nothing = [0];
            tokio::select! {
                Some(News::Got(number)) = all.recv() => parent.write_all(&[number as u8]).await?,
                // The parent never writes, so the end of the stream means that the parent has ended.
                _ = parent.read(&mut nothing) => return Ok(ExitCode::SUCCESS),
            }
        }
    })
}
