//! What comes to `ampere top` on the whole terminal: figures, keys, signals.

use super::asked::Asked;
use crate::terminal::keys::{Key, keys};
use crate::terminal::live_table::NODES;
use ampere_endpoint::access::Token;
use ampere_figures::nodes::job::Job;
use ampere_figures::snapshot::Snapshot;
use ampere_model::text::one_line;
use ampere_report::page::Page;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

const PERIOD: Duration = Duration::from_secs(1);
/// A collector on another node may be slow: the keys do not wait for it.
const LIMIT: Duration = Duration::from_secs(5);
/// Asking takes this part of the time at most: answers of very large runs take long.
const PART_MAX: u32 = 20;

/// After a signal the program ends within this time.
const END_LIMIT: Duration = Duration::from_secs(2);

pub enum News {
    Figures(Box<Answer>),
    /// Why there is no answer, in one line.
    Unanswered(String),
    Key(Key),
    Resized,
    /// A signal, or the terminal has gone.
    Ended(i32),
}

/// What a collector has reported.
pub struct Answer {
    pub snapshot: Snapshot,
    pub page: Option<Page>,
    pub job: Option<Job>,
}

/// What is asked for besides the snapshot.
#[derive(Clone, Default)]
pub struct Wish {
    /// Call paths are wanted, too.
    pub tree: bool,
    pub nodes: bool,
    /// Call paths of this rank alone, by its place among the choices.
    pub rank: Option<usize>,
}

/// The thread that asks the collector.
pub struct Asking {
    wish: Arc<Mutex<Wish>>,
    thread: Thread,
}

impl Asking {
    pub fn start(asked: &Asked, token: Option<&Token>, news: Sender<News>) -> std::io::Result<Asking> {
        let (asked, token, wish) = (asked.clone(), token.cloned(), Arc::<Mutex<Wish>>::default());
        let told = wish.clone();
        let thread = spawn("ampere-top-asks", move || ask(&asked, token.as_ref(), &told, &news))?;
        Ok(Asking { wish, thread })
    }

    pub fn wish(&self, wish: &Wish) {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner).clone_from(wish);
    }

    /// Asks for new figures without waiting.
    pub fn now(&self) {
        self.thread.unpark();
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<Thread> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(|handle| handle.thread().clone())
}

fn ask(asked: &Asked, token: Option<&Token>, wish: &Mutex<Wish>, news: &Sender<News>) {
    // At first all is asked for: the page has the power until now, and there may be several nodes.
    let (mut has_page, mut has_nodes, mut is_several) = (false, false, false);
    loop {
        let begun = Instant::now();
        let wish = wish.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let wants_page = !has_page || wish.tree;
        let wants_nodes = !has_nodes || is_several || wish.nodes;
        let page =
            wish.rank.map_or_else(|| "/page.json".to_owned(), |rank| format!("/page.json?rank={rank}"));
        let snapshot = asked.get("/snapshot.json", token, LIMIT, |snapshot: &Snapshot| &snapshot.run);
        let one = match snapshot {
            Ok(snapshot) => {
                let page = wants_page.then(|| asked.get(&page, token, LIMIT, |page: &Page| &page.run.id));
                let job = wants_nodes.then(|| asked.get(NODES, token, LIMIT, |job: &Job| &job.run));
                let (page, job) = (page.and_then(Result::ok), job.and_then(Result::ok));
                has_page |= page.is_some();
                has_nodes |= job.is_some();
                is_several |= job.as_ref().is_some_and(|job| job.nodes.len() > 1);
                News::Figures(Box::new(Answer { snapshot, page, job }))
            }
            Err(why) => News::Unanswered(one_line(&*why)),
        };
        if news.send(one).is_err() {
            return;
        }
        let took = begun.elapsed();
        std::thread::park_timeout(PERIOD.max(PART_MAX * took).saturating_sub(took));
    }
}

/// Keys until the terminal goes away.
pub fn read_keys(terminal: OwnedFd, news: Sender<News>) -> std::io::Result<()> {
    let mut terminal = std::fs::File::from(terminal);
    let read = move || {
        let mut bytes = [0; 1024];
        loop {
            match terminal.read(&mut bytes) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return drop(news.send(News::Ended(SignalKind::hangup().as_raw_value()))),
                Ok(count) => {
                    if keys(&bytes[..count]).into_iter().any(|key| news.send(News::Key(key)).is_err()) {
                        return;
                    }
                }
            }
        }
    };
    spawn("ampere-top-keys", read).map(drop)
}

/// Another size of the terminal, and signals that end programs: none does that any more from now on.
pub fn listen(news: Sender<News>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let ends = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()];
    for kind in ends {
        let (news, mut signals) = (news.clone(), signal(kind)?);
        tokio::spawn(async move {
            signals.recv().await;
            let _ = news.send(News::Ended(kind.as_raw_value()));
            // A terminal that takes nothing more holds back what is written to it.
            tokio::time::sleep(END_LIMIT).await;
            std::process::exit(128 + kind.as_raw_value());
        });
    }
    let mut sizes = signal(SignalKind::window_change())?;
    drop(entered);
    let resized = async move { while sizes.recv().await.is_some() && news.send(News::Resized).is_ok() {} };
    spawn("ampere-top-signals", move || runtime.block_on(resized)).map(drop)
}
