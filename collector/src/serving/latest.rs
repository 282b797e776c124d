//! The mailbox through which the collector's loop passes figures to the server.

use ampere_figures::snapshot::Snapshot;
use ampere_figures::summary::Summary;
use ampere_report::page::Page;
use ampere_ring::process::node_name;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The longest time for which a request waits for a new snapshot: the loop may be writing a trace.
const WAIT_MAX: Duration = Duration::from_millis(200);

/// The latest snapshot: written by the collector's loop, read by the HTTP server.
#[derive(Clone, Debug)]
pub struct Latest {
    /// The snapshot, and the time from which a request gets a newer one; `None` before the first one and after the last one.
    snapshot: watch::Sender<(Arc<Snapshot>, Option<Instant>)>,
    was_read: Arc<AtomicBool>,
    /// Whether a request waits for a new snapshot, and the thread of the loop that makes it.
    is_wanted: Arc<AtomicBool>,
    made_by: Arc<OnceLock<Thread>>,
    /// The last page of a run that has ended.
    pub page: LastPage,
}

impl Default for Latest {
    /// Makes a snapshot that has only the node's name, which every series needs even before the first process joins.
    fn default() -> Latest {
        let snapshot = Arc::new(Snapshot { node: node_name(), ..Snapshot::default() });
        Latest {
            snapshot: watch::Sender::new((snapshot, None)),
            was_read: Arc::default(),
            is_wanted: Arc::default(),
            made_by: Arc::default(),
            page: LastPage::default(),
        }
    }
}

impl Latest {
    /// Replaces the snapshot. From `until`, a request gets a newer one. A snapshot without a node is ignored, because a run
    /// without events has nothing new.
    pub fn set(&self, snapshot: Snapshot, until: Instant) {
        self.is_wanted.store(false, Ordering::Relaxed);
        if !snapshot.node.is_empty() {
            let until = Some(until).filter(|_| !snapshot.is_last);
            self.snapshot.send_replace((Arc::new(snapshot), until));
        }
    }

    /// Sets the thread that makes the snapshots, which a request wakes.
    pub fn made_by(&self, thread: Thread) {
        let _ = self.made_by.set(thread);
    }

    /// Whether a request waits for a new snapshot.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Returns a snapshot that is not old, and records that it was read. If there is no new one after `WAIT_MAX`, it is old.
    pub async fn fresh(&self) -> Arc<Snapshot> {
        self.was_read.store(true, Ordering::Relaxed);
        self.refresh().await;
        self.look()
    }

    /// Waits for a new snapshot if the latest one is old.
    pub async fn refresh(&self) {
        let mut changes = self.snapshot.subscribe();
        let is_old = changes.borrow_and_update().1.is_some_and(|until| until < Instant::now());
        if is_old {
            self.is_wanted.store(true, Ordering::Relaxed);
            self.made_by.get().into_iter().for_each(Thread::unpark);
            let _ = tokio::time::timeout(WAIT_MAX, changes.changed()).await;
        }
    }

    /// Whether a snapshot has been read since the last call.
    pub fn was_asked(&self) -> bool {
        self.was_read.swap(false, Ordering::Relaxed)
    }

    /// Returns the latest snapshot, and records that it was read.
    pub fn get(&self) -> Arc<Snapshot> {
        self.was_read.store(true, Ordering::Relaxed);
        self.look()
    }

    /// Returns the latest snapshot without recording that it was read, so that the run does not make snapshots more often.
    pub fn look(&self) -> Arc<Snapshot> {
        self.snapshot.borrow().0.clone()
    }
}

/// The page of a run that has ended, for clients that were watching or are expected.
#[derive(Clone, Debug)]
pub struct LastPage {
    page: watch::Sender<Option<Arc<Page>>>,
    is_watched: Arc<AtomicBool>,
}

impl Default for LastPage {
    fn default() -> LastPage {
        LastPage { page: watch::Sender::new(None), is_watched: Arc::default() }
    }
}

impl LastPage {
    /// Returns the page; `None` until the run has ended.
    pub fn get(&self) -> Option<Arc<Page>> {
        self.page.borrow().clone()
    }

    /// Makes the page known at the end of the run, even if no client has asked by then.
    pub fn await_clients(&self) {
        self.is_watched.store(true, Ordering::Relaxed);
    }

    /// Waits until the run has ended and the page is known.
    pub async fn wait(&self) -> Option<Arc<Page>> {
        self.await_clients();
        self.page.subscribe().wait_for(Option::is_some).await.ok().and_then(|page| page.clone())
    }

    /// Sets the page to the final figures, if a client was watching or is expected.
    pub(crate) fn set(&self, summary: &Summary) {
        if self.is_watched.load(Ordering::Relaxed) {
            self.page.send_replace(Some(Arc::new(Page::of(summary))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_without_a_node_is_ignored() {
        let latest = Latest::default();
        latest.set(Snapshot::default(), Instant::now());
        assert!(!latest.get().node.is_empty());
    }

    #[test]
    fn a_request_waits_for_a_new_snapshot_if_the_latest_one_is_old() {
        let latest = Latest::default();
        let make = |seconds, until| {
            latest.set(Snapshot { node: "n".to_owned(), seconds, ..Snapshot::default() }, until);
        };
        let now = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            make(1.0, now + Duration::from_secs(3600));
            latest.refresh().await;
            assert!(!latest.is_wanted());
            make(2.0, now);
            let (snapshot, ()) = tokio::join!(latest.fresh(), async {
                assert!(latest.is_wanted() && latest.was_asked());
                make(3.0, now);
            });
            assert_eq!((snapshot.seconds, latest.is_wanted()), (3.0, false));
        });
    }
}
