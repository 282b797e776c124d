//! The data of the live page. The collector's loop makes it when a client requests it, and once more when the run has ended.

use crate::finish::summary::RunSummary;
use crate::ingest::process::Process;
use crate::live::LiveRun;
use crate::serving::history::History;
use ampere_figures::snapshot::Snapshot;
use ampere_figures::summary::Summary;
use ampere_model::text::printable;
use ampere_report::is_mpi_rank;
use ampere_report::page::{Fact, GaugeLine, Now, Page, PowerSeries, SERIES_MAX, State};
use ampere_timeline::attributor::{Attributor, Unit};
use std::sync::Arc;
use std::time::Duration;

impl LiveRun {
    /// Returns the current page. If `rank` is set, the page has the call paths of this rank only. `rank` is an index into the
    /// ranks that clients can choose.
    pub fn page(&mut self, rank: Option<usize>) -> Page {
        if let Some(timeline) = &mut self.timeline {
            timeline.pipeline.advance_lanes();
        }
        let summary = RunSummary::of(self).made_by(false, Summary::outline);
        let hints = self.publisher.hints.clone().unwrap_or_else(|| ampere_report::first::hints(&summary));
        let mut page = Page::outline(&summary, hints);
        page.state = State::Running;
        let snapshot = self.publisher.latest.get();
        if let Some(timeline) = &self.timeline {
            let tables = self.publisher.tables.tables(&timeline.pipeline.attributor, &summary, rank);
            page.tables = Some(Arc::new(tables));
            let history = &mut self.publisher.history;
            page.power = power(&timeline.pipeline.attributor, history, &summary, &page);
        }
        add_live(&mut page, &snapshot);
        // The snapshot may have been made before the processes became ranks.
        let is_rank = |process: &Process| is_mpi_rank(&process.group());
        if !snapshot.ranks.is_empty() && !self.ingest.processes.iter().any(is_rank) {
            page.run.who = match snapshot.ranks.len() {
                1 => "1 process".to_owned(),
                many => format!("{many} processes"),
            };
        }
        page
    }
}

/// Returns the power of the devices that are not contained in another, in the order of their names.
fn power(attributor: &Attributor, history: &mut History, summary: &Summary, page: &Page) -> Vec<PowerSeries> {
    let devices = attributor.devices.iter().enumerate();
    let mut topmost: Vec<_> = devices
        .filter(|(at, device)| device.info.unit == Unit::Joules && attributor.counts(*at))
        .filter(|(at, _)| attributor.whole(*at).is_none())
        .map(|(at, device)| (&device.info, at))
        .collect();
    topmost.sort_by_key(|(info, _)| (&info.node, info.name.len(), &info.name));
    let gauges = |name: &str| summary.devices.iter().find(|device| device.name == name).map(GaugeLine::of);
    let line = |name: &str| page.devices.iter().find(|line| line.name == name);
    let series = topmost.into_iter().take(SERIES_MAX).map(|(info, at)| PowerSeries {
        node: printable(&info.node),
        name: printable(&info.name),
        energy: info.quality.as_str().to_owned(),
        watts: None,
        mean_watts: line(&info.name).and_then(|line| line.mean_watts),
        baseline_watts: line(&info.name).and_then(|line| line.baseline_watts),
        gauges: gauges(&info.name).unwrap_or_default(),
        segments: history.segments(at),
    });
    series.collect()
}

/// Adds what only the page of a running program has, from the last snapshot.
fn add_live(page: &mut Page, snapshot: &Snapshot) {
    let watts = |name: &str| {
        let shown = snapshot.devices.iter().find(|device| printable(&device.device) == name);
        shown.and_then(|device| device.watts)
    };
    page.devices.iter_mut().for_each(|device| device.watts = watts(&device.name));
    page.power.iter_mut().for_each(|series| series.watts = watts(&series.name));
    page.totals.watts = snapshot.topmost().filter_map(|device| device.watts).reduce(|sum, watts| sum + watts);
    let ranks: Vec<(&str, &str)> =
        snapshot.ranks.iter().map(|rank| (rank.shown(), rank.current_region.as_str())).collect();
    page.now = Some(Now::of(&ranks));
    let fullest = snapshot.ranks.iter().map(|rank| rank.ring_fill_ratio).fold(0.0, f64::max);
    let lag = snapshot.collector.lag_seconds;
    page.monitor.retain(|fact| ![LAG_LABEL, FULLEST_LABEL].contains(&fact.label.as_str()));
    page.monitor.insert(0, Fact { warns: lag > LAG_SECONDS_MAX, ..Fact::new(LAG_LABEL, lag, "s") });
    page.monitor.insert(1, Fact { warns: fullest > FILL_MAX, ..Fact::new(FULLEST_LABEL, fullest, "ratio") });
}

/// Returns the page, whose joules are `age` old, with the power and the innermost functions of the ranks as of now.
pub fn refreshed(page: &Page, snapshot: &Snapshot, age: Duration) -> Page {
    let mut page = page.clone();
    page.run.seconds += age.as_secs_f64();
    add_live(&mut page, snapshot);
    page
}

const LAG_LABEL: &str = "attribution is behind by";
const FULLEST_LABEL: &str = "fullest ring";
/// The lag of the attribution, in seconds, above which a note is shown. A larger lag means that the collector cannot keep up,
/// or that a GPU stream is silent.
const LAG_SECONDS_MAX: f64 = 5.0;
/// The fill level above which a note is shown. In a ring that is half full, calls are coalesced.
const FILL_MAX: f64 = 0.5;
