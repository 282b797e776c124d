//! Signals that come to `ampere run` and are meant for its command.
//!
//! Who sends one to a job sends it to one process, to a process group, or to all there are. Where the command has it already it
//! must not get it again: many programs take a second one for an order to end at once, mpirun among them. So there is a
//! witness, a process beside the command that does nothing but say which signals it gets. What it gets, the command got;
//! what only we got is passed on.

use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// What programs are told things by.
const SIGNALS: [Signal; 7] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2, Signal::XCPU];
/// A terminal sends them to everybody: without a witness they are not passed on.
const OF_TERMINALS: [Signal; 2] = [Signal::INT, Signal::QUIT];
/// How much later than we the witness may get one.
const TOGETHER: Duration = Duration::from_millis(100);

enum News {
    Got(usize),
    Witnessed(usize),
    /// It is so long ago that we got one.
    Due(usize),
    /// Or that the witness did.
    Past(usize),
}

/// Ends with the one who has it.
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
        command.arg("witness").stdin(Stdio::null()).stdout(OwnedFd::from(its)).stderr(Stdio::null());
        let child = command.env_remove("LD_PRELOAD").spawn().ok()?;
        Some(Witness { child, says: Some(says) })
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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

/// Passes on what comes, until the command is over.
pub async fn pass_on(to: Pid, witness: Option<&mut Witness>, mut over: tokio::sync::oneshot::Receiver<()>) {
    let (news, mut all) = unbounded_channel();
    listen(&news, News::Got);
    let says = witness.and_then(|witness| witness.says.take());
    let says = says.filter(|says| says.set_nonblocking(true).is_ok());
    let says = says.and_then(|says| tokio::net::UnixStream::from_std(says).ok());
    let has_witness = says.is_some();
    if let Some(mut says) = says {
        let news = news.clone();
        tokio::spawn(async move {
            while let Ok(number) = says.read_u8().await {
                let _ = news.send(News::Witnessed(usize::from(number).min(SIGNALS.len() - 1)));
            }
        });
    }
    // Of each signal: those that we got and nobody has witnessed yet, and the other way round.
    let (mut got, mut witnessed) = ([0u32; SIGNALS.len()], [0u32; SIGNALS.len()]);
    loop {
        let one = tokio::select! {
            _ = &mut over => return,
            Some(one) = all.recv() => one,
        };
        match one {
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
        }
    }
}

/// The witness itself.
pub fn witness() -> anyhow::Result<ExitCode> {
    // Whoever has started it may be killed.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (news, mut all) = unbounded_channel();
        listen(&news, News::Got);
        while let Some(one) = all.recv().await {
            let News::Got(number) = one else { continue };
            if std::io::stdout().write_all(&[number as u8]).and_then(|()| std::io::stdout().flush()).is_err()
            {
                break;
            }
        }
    });
    Ok(ExitCode::SUCCESS)
}
