//! The mailbox through which the collector's loop passes figures to the server.

use ampere_figures::snapshot::Snapshot;
use ampere_figures::summary::Summary;
use ampere_report::page::Page;
use ampere_ring::process::node_name;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// The latest snapshot: written by the collector's loop, read by the HTTP server.
#[derive(Clone, Debug)]
pub struct Latest {
    snapshot: Arc<Mutex<Arc<Snapshot>>>,
    was_read: Arc<AtomicBool>,
    /// The last page of a run that has ended.
    pub page: LastPage,
}

impl Default for Latest {
    /// Makes a snapshot that has only the node's name, which every series needs even before the first process joins.
    fn default() -> Latest {
        Latest {
            snapshot: Arc::new(Mutex::new(Arc::new(Snapshot { node: node_name(), ..Snapshot::default() }))),
            was_read: Arc::default(),
            page: LastPage::default(),
        }
    }
}

impl Latest {
    /// Replaces the snapshot. A snapshot without a node is ignored, because a run without events has nothing new.
    pub fn set(&self, snapshot: Snapshot) {
        if snapshot.node.is_empty() {
            return;
        }
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }

    /// Whether a snapshot has been read since this was last called.
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
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The page of a run that has ended, for clients that were watching.
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

    /// Waits until the run has ended and the page is known.
    pub async fn wait(&self) -> Option<Arc<Page>> {
        self.is_watched.store(true, Ordering::Relaxed);
        self.page.subscribe().wait_for(Option::is_some).await.ok().and_then(|page| page.clone())
    }

    /// Sets the page to the final figures, if a client was watching.
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
        latest.set(Snapshot::default());
        assert!(!latest.get().node.is_empty());
    }
}
