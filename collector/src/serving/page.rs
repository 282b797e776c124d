//! The data of the live page: made by the collector's loop when somebody asks, and once more when the run is over.

use crate::finish::summary::RunSummary;
use crate::live::LiveRun;
use crate::serving::history::History;
use crate::serving::snapshot::Snapshot;
use ampere_model::text::printable;
use ampere_report::page::{Fact, MOST_SERIES, Now, Page, PowerSeries, State};
use ampere_report::summary::Summary;
use ampere_timeline::attributor::{Attributor, Unit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The page of a run that is over, for those who have watched it.
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
    /// The page; `None` while the run goes on.
    pub fn get(&self) -> Option<Arc<Page>> {
        self.page.borrow().clone()
    }

    /// Waits for it.
    pub(crate) async fn wait(&self) -> Option<Arc<Page>> {
        self.is_watched.store(true, Ordering::Relaxed);
        self.page.subscribe().wait_for(Option::is_some).await.ok().and_then(|page| page.clone())
    }

    /// The final figures, if somebody has watched.
    pub(crate) fn set(&self, summary: &Summary) {
        if self.is_watched.load(Ordering::Relaxed) {
            self.page.send_replace(Some(Arc::new(Page::of(summary))));
        }
    }
}

impl LiveRun {
    /// The page as of now. `rank`: the call paths of one alone, by its place among the choices.
    pub fn page(&mut self, rank: Option<usize>) -> Page {
        let summary = RunSummary::of(self).made_by(false, Summary::outline);
        let mut page = Page::outline(&summary);
        page.state = State::Running;
        let snapshot = self.publisher.latest.get();
        if let Some(timeline) = &self.timeline {
            let tables = self.publisher.tables.tables(&timeline.pipeline.attributor, &summary, rank);
            page.tables = Some(Arc::new(tables));
            page.power = power(&timeline.pipeline.attributor, &mut self.publisher.history, &page);
        }
        add_live(&mut page, &snapshot);
        page
    }
}

/// Of the topmost devices, in the order of their names.
fn power(attributor: &Attributor, history: &mut History, page: &Page) -> Vec<PowerSeries> {
    let devices = attributor.devices.iter().enumerate();
    let mut topmost: Vec<_> = devices
        .filter(|(at, device)| device.info.unit == Unit::Joules && attributor.counts(*at))
        .filter(|(at, _)| attributor.whole(*at).is_none())
        .map(|(at, device)| (&device.info, at))
        .collect();
    topmost.sort_by_key(|(info, _)| (&info.node, info.name.len(), &info.name));
    let mean =
        |name: &str| page.devices.iter().find(|line| line.name == name).and_then(|line| line.mean_watts);
    let series = topmost.into_iter().take(MOST_SERIES).map(|(info, at)| PowerSeries {
        node: printable(&info.node),
        name: printable(&info.name),
        energy: info.quality.as_str().to_owned(),
        watts: None,
        mean_watts: mean(&info.name),
        segments: history.segments(at),
    });
    series.collect()
}

/// What only a run that goes on has, from the last snapshot.
fn add_live(page: &mut Page, snapshot: &Snapshot) {
    let watts = |name: &str| {
        let shown = snapshot.devices.iter().find(|device| printable(&device.device) == name);
        shown.and_then(|device| device.watts)
    };
    page.devices.iter_mut().for_each(|device| device.watts = watts(&device.name));
    page.power.iter_mut().for_each(|series| series.watts = watts(&series.name));
    page.totals.watts = snapshot.topmost().filter_map(|device| device.watts).reduce(|sum, watts| sum + watts);
    let ranks: Vec<(&str, &str)> =
        snapshot.ranks.iter().map(|rank| (rank.rank.as_str(), rank.current_region.as_str())).collect();
    page.now = Some(Now::of(&ranks));
    let fullest = snapshot.ranks.iter().map(|rank| rank.ring_fill_ratio).fold(0.0, f64::max);
    let lag = snapshot.collector.lag_seconds;
    page.monitor.retain(|fact| ![BEHIND, FULLEST].contains(&fact.label.as_str()));
    page.monitor.insert(0, Fact { warns: lag > LONG_LAG, ..Fact::new(BEHIND, lag, "s") });
    page.monitor.insert(1, Fact { warns: fullest > FULL, ..Fact::new(FULLEST, fullest, "ratio") });
}

/// A page whose joules are so old, with power and places of now.
pub(crate) fn refreshed(page: &Page, snapshot: &Snapshot, age: Duration) -> Page {
    let mut page = page.clone();
    page.run.seconds += age.as_secs_f64();
    add_live(&mut page, snapshot);
    page
}

const BEHIND: &str = "attribution is behind by";
const FULLEST: &str = "fullest ring";
/// Attribution is further behind only if the collector does not keep up, or a GPU stream is silent.
const LONG_LAG: f64 = 5.0;
/// In a ring that is half full, calls are coalesced.
const FULL: f64 = 0.5;
