//! Signals that come to `ampere run` and are meant for its command.
//!
//! A signal to a job is sent to one process, to a process group, or to all processes. Where the command has got it already it
//! must not get it again: many programs, mpirun among them, take a second one for an order to end at once. So there is a witness,
//! a process next to the command that only reports which signals it gets. What the witness gets, the command has got as well;
//! what only this process gets is passed on.

use rustix::process::{Pid, Signal, kill_process};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot::Receiver;

/// Signals that users and batch systems send to programs.
const SIGNALS: [Signal; 8] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::ALARM,
    Signal::USR1,
    Signal::USR2,
    Signal::XCPU,
];
/// Flux sends SIGALRM when a job's time has ended.
const ORDERS_TO_END: [Signal; 5] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::ALARM];
/// A terminal sends them to the whole process group: without a witness they are not passed on.
const OF_TERMINALS: [Signal; 2] = [Signal::INT, Signal::QUIT];
/// How much later than this process the witness may get a signal.
const TOGETHER: Duration = Duration::from_millis(100);

/// What happened, with the signal's place in [`SIGNALS`].
enum News {
    /// This process got the signal.
    Got(usize),
    /// The witness process has received the signal.
    Witnessed(usize),
    /// This process got one [`TOGETHER`] ago: the witness gets it no more.
    Due(usize),
    /// The witness got one that long ago: this process gets it no more.
    Past(usize),
    /// There is no witness any more.
    Gone,
}

/// The witness. It ends when this is dropped.
pub struct Witness {
    child: Child,
    says: Option<UnixStream>,
}

impl Witness {
    /// `None` where there can be none.
    pub fn start() -> Option<Witness> {
        let (says, its) = UnixStream::pair().ok()?;
        let own = std::env::current_exe().ok()?;
        let mut command = Command::new(own);
        // Another name, so that a signal sent to `ampere` by name does not come to it.
        command
            .arg0("signal-witness")
            .arg("witness")
            .stdin(Stdio::null())
            .stdout(OwnedFd::from(its))
            .stderr(Stdio::null());
        let child = command.env_remove("LD_PRELOAD").spawn().ok()?;
        Some(Witness { child, says: Some(says) })
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // It is not waited for: this process ends soon, too.
        let _ = self.child.kill();
    }
}

/// Sends `news` of each of the signals that comes.
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

fn later(news: &UnboundedSender<News>, what: News) {
    let news = news.clone();
    tokio::spawn(async move {
        tokio::time::sleep(TOGETHER).await;
        let _ = news.send(what);
    });
}

/// Receives the signals that come to this process. It is made before the command is started: from then on no signal ends this
/// process.
pub struct Listener {
    runtime: Runtime,
    news: UnboundedSender<News>,
    all: UnboundedReceiver<News>,
}

impl Listener {
    /// `None` without descriptors for it.
    pub fn start() -> Option<Listener> {
        // Tokio panics if it finds no descriptors for its signals: some are opened on trial.
        let descriptors: std::io::Result<Vec<_>> = (0..4).map(|_| UnixStream::pair()).collect();
        drop(descriptors.ok()?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let (news, all) = unbounded_channel();
        let entered = runtime.enter();
        listen(&news, News::Got);
        drop(entered);
        Some(Listener { runtime, news, all })
    }

    /// Passes signals on to the command until it has ended. `at_order`: what is done when one asks it to end.
    pub fn pass_on(self, to: Pid, witness: Option<&mut Witness>, at_order: &dyn Fn(), over: Receiver<()>) {
        self.runtime.block_on(pass_on(to, witness, at_order, over, self.news, self.all));
    }
}

async fn pass_on(
    to: Pid,
    witness: Option<&mut Witness>,
    at_order: &dyn Fn(),
    mut over: Receiver<()>,
    news: UnboundedSender<News>,
    mut all: UnboundedReceiver<News>,
) {
    let mut has_witness = witness.is_some_and(|witness| listen_to(witness, &news));
    // For each signal: how often only this process got it so far, and how often only the witness did.
    let (mut got, mut witnessed) = ([0u32; SIGNALS.len()], [0u32; SIGNALS.len()]);
    loop {
        let one = tokio::select! {
            _ = &mut over => {
                // A signal that came to the command and to this process is received here, or it would count as an order not
                // to wait for the results.
                tokio::time::sleep(Duration::from_millis(1)).await;
                return;
            }
            Some(one) = all.recv() => one,
        };
        if matches!(one, News::Got(number) if ORDERS_TO_END.contains(&SIGNALS[number])) {
            at_order();
        }
        match one {
            // In a process group of its own the command gets nothing that is sent to this one's.
            News::Got(number) if is_apart(to) => {
                let _ = kill_process(to, SIGNALS[number]);
            }
            News::Got(number) if !has_witness => {
                if !OF_TERMINALS.contains(&SIGNALS[number]) {
                    let _ = kill_process(to, SIGNALS[number]);
                }
            }
            News::Got(number) if witnessed[number] > 0 => witnessed[number] -= 1,
            News::Got(number) => {
                got[number] += 1;
                later(&news, News::Due(number));
            }
            News::Witnessed(number) if got[number] > 0 => got[number] -= 1,
            News::Witnessed(number) => {
                witnessed[number] += 1;
                later(&news, News::Past(number));
            }
            News::Due(number) if got[number] > 0 => {
                got[number] -= 1;
                let _ = kill_process(to, SIGNALS[number]);
            }
            News::Past(number) => witnessed[number] = witnessed[number].saturating_sub(1),
            News::Due(_) => {}
            News::Gone => {
                has_witness = false;
                (got, witnessed) = ([0; SIGNALS.len()], [0; SIGNALS.len()]);
            }
        }
    }
}

/// Whether the witness can be heard.
fn listen_to(witness: &mut Witness, news: &UnboundedSender<News>) -> bool {
    let says = witness.says.take().filter(|says| says.set_nonblocking(true).is_ok());
    let Some(mut says) = says.and_then(|says| tokio::net::UnixStream::from_std(says).ok()) else {
        return false;
    };
    let news = news.clone();
    tokio::spawn(async move {
        while let Ok(number) = says.read_u8().await {
            let _ = news.send(News::Witnessed(usize::from(number).min(SIGNALS.len() - 1)));
        }
        let _ = news.send(News::Gone);
    });
    true
}

/// While results are written after the command, which may take long where a file system hangs: a second order to end makes this
/// process end. The collector continues by itself.
pub fn stop_waiting_when_asked(output: &Path, status: i32) {
    let output = output.to_owned();
    let listen = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            let (news, mut all) = unbounded_channel();
            listen(&news, News::Got);
            let is_order = |news| matches!(news, News::Got(number) if ORDERS_TO_END.contains(&SIGNALS[number]));
            let shown = output.display();
            let mut asked = false;
            while let Some(one) = all.recv().await {
                if !is_order(one) {
                    continue;
                }
                if std::mem::replace(&mut asked, true) {
                    say!("ampere: the collector goes on writing to {shown}");
                    std::process::exit(status);
                }
                say!("ampere: the command is over, and its results are being written to {shown}: interrupt again not to wait for them");
            }
        });
    };
    let _ = std::thread::Builder::new().name("ampere-asked".to_owned()).spawn(listen);
}

fn is_apart(process: Pid) -> bool {
    rustix::process::getpgid(Some(process)).is_ok_and(|group| group != rustix::process::getpgrp())
}

/// The process that witnesses signals.
pub fn witness() -> anyhow::Result<ExitCode> {
    // Its parent may be killed.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let _ = rustix::thread::set_name(c"signal-witness");
    let parent = std::os::fd::AsFd::as_fd(&std::io::stdout()).try_clone_to_owned().map(UnixStream::from)?;
    parent.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (news, mut all) = unbounded_channel();
        listen(&news, News::Got);
        let mut parent = tokio::net::UnixStream::from_std(parent)?;
        loop {
            let mut nothing = [0];
            tokio::select! {
                Some(News::Got(number)) = all.recv() => parent.write_all(&[number as u8]).await?,
                // It never writes: it has ended.
                _ = parent.read(&mut nothing) => return Ok(ExitCode::SUCCESS),
            }
        }
    })
}
