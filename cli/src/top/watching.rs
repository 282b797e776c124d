//! The events for `ampere top` on the whole terminal: figures, keys and signals.

use super::asked::Asked;
use crate::terminal::keys::{Key, keys};
use crate::terminal::live_table::NODES;
use ampere_endpoint::token::Token;
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
/// The time limit for an answer. A collector on another node may be slow, and keys do not wait for it.
const LIMIT: Duration = Duration::from_secs(5);
/// The time spent on requests is at most the whole time divided by this, because the collector of a very large run answers
/// slowly.
const PART_MAX: u32 = 20;

/// After a signal the program ends within this time.
const END_LIMIT: Duration = Duration::from_secs(2);

pub enum News {
    Figures(Box<Answer>),
    /// There is no answer, for this reason (one line).
    Unanswered(String),
    Key(Key),
    Resized,
    /// A signal arrived, or the terminal was closed.
    Ended(i32),
}

/// The figures that a collector has sent.
pub struct Answer {
    pub snapshot: Snapshot,
    pub page: Option<Page>,
    pub job: Option<Job>,
}

/// What is requested in addition to the snapshot.
#[derive(Clone, Default)]
pub struct Wish {
    /// Whether the page is requested, which has call paths and all notes.
    pub page: bool,
    pub nodes: bool,
    /// The index of the rank whose call paths are requested, among the choices; `None` for all.
    pub rank: Option<usize>,
}

/// The thread that sends requests to the collector.
pub struct Asking {
    wish: Arc<Mutex<Wish>>,
    thread: Thread,
}

impl Asking {
    pub fn start(asked: &Asked, token: Option<&Token>, news: Sender<News>) -> std::io::Result<Asking> {
        let asked = asked.clone();
        let token = token.cloned();
        let wish = Arc::<Mutex<Wish>>::default();
        let of_thread = wish.clone();
        let thread = spawn("ampere-top-asks", move || ask(&asked, token.as_ref(), &of_thread, &news))?;
        Ok(Asking { wish, thread })
    }

    pub fn wish(&self, wish: &Wish) {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner).clone_from(wish);
    }

    /// Makes the thread request new figures at once.
    pub fn now(&self) {
        self.thread.unpark();
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<Thread> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(|handle| handle.thread().clone())
}

fn ask(asked: &Asked, token: Option<&Token>, wish: &Mutex<Wish>, news: &Sender<News>) {
    // At first everything is requested: the page has the power since the start of the run, and there may be several nodes.
    let mut has_page = false;
    let mut has_nodes = false;
    let mut is_several = false;
    loop {
        let begun = Instant::now();
        let wish = wish.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let wants_page = !has_page || wish.page;
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

/// Sends keys until the terminal is closed.
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

/// Sends changes of the terminal's size, and signals that would end this program. From now on they do not end it.
pub fn listen(news: Sender<News>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let ends = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()];
    for kind in ends {
        let (news, mut signals) = (news.clone(), signal(kind)?);
        tokio::spawn(async move {
            signals.recv().await;
            let _ = news.send(News::Ended(kind.as_raw_value()));
            // A write to a terminal that is stopped does not return, so this thread ends the program.
            tokio::time::sleep(END_LIMIT).await;
            std::process::exit(128 + kind.as_raw_value());
        });
    }
    let mut sizes = signal(SignalKind::window_change())?;
    drop(entered);
    let resized = async move { while sizes.recv().await.is_some() && news.send(News::Resized).is_ok() {} };
    spawn("ampere-top-signals", move || runtime.block_on(resized)).map(drop)
}
