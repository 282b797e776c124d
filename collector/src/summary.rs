//! `summary.json`: the result of a run, as `ampere attribute --json` prints it too. Fields may be added, never renamed.

use crate::attributor::{Attributor, ViewKind};
use ampere_model::Quality;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

pub const SCHEMA: &str = "ampere-summary/1";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    pub schema: String,
    pub run: Run,
    pub devices: Vec<Device>,
    pub quality: QualityFigures,
    pub overhead: Overhead,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    pub id: String,
    pub command: Vec<String>,
    /// RFC 3339, UTC.
    pub start: String,
    pub end: String,
    /// False when something of the run is missing: `notes` say what.
    pub complete: bool,
    /// "score-p", "embedded" or "trace".
    pub host: String,
    pub nodes: Vec<String>,
    pub ranks: u32,
    /// The least trustworthy of the devices': "measured", "simulated" or "estimated".
    pub energy: String,
    pub seconds: f64,
    pub timer: String,
    pub ticks_per_second: u64,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Device {
    pub node: String,
    pub name: String,
    pub metric: String,
    pub source: String,
    /// "measured", "simulated" or "estimated".
    pub energy: String,
    pub samples: u64,
    pub total_joules: f64,
    pub views: Vec<View>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct View {
    pub view: String,
    pub policy: String,
    pub sharing: String,
    pub attributed_joules: f64,
    pub idle_joules: f64,
    pub lost_joules: f64,
    pub conservation_error_joules: f64,
    pub callpaths: Vec<Callpath>,
    pub regions: Vec<Region>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Callpath {
    pub location_group: String,
    pub location: String,
    pub path: Vec<String>,
    pub calls: u64,
    pub exclusive_joules: f64,
    pub inclusive_joules: f64,
    pub resolved_joules: f64,
    pub exclusive_seconds: f64,
    pub resolved_seconds: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Region {
    pub region: String,
    pub calls: u64,
    pub exclusive_joules: f64,
    pub inclusive_joules: f64,
    pub resolved_joules: f64,
    pub exclusive_seconds: f64,
    pub resolved_seconds: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct QualityFigures {
    pub events: u64,
    pub coalesced_calls: u64,
    pub suppressed_calls: u64,
    pub dropped_records: u64,
    pub late_events: u64,
    pub counter_resets: u64,
    pub conservation_error_joules: f64,
    /// Samples that were not numbers or came out of order.
    pub unusable_samples: u64,
    /// Frames that had to be closed, and leaves that had to be left out, because a stream did not nest.
    pub repaired_events: u64,
    /// Records that were no records.
    pub damaged_records: u64,
    pub left_out_definitions: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Overhead {
    pub collector_cpu_seconds: f64,
    pub collector_peak_rss_bytes: u64,
}

impl Summary {
    /// The tables of an attributor, both views or the one that is asked for.
    pub fn new(
        attributor: &Attributor,
        only: Option<ViewKind>,
        run: Run,
        mut quality: QualityFigures,
    ) -> Summary {
        let mut devices = Vec::new();
        for device in &attributor.devices {
            let mut views = Vec::new();
            let totals = attributor.engine.totals(device.ranks);
            for kind in ViewKind::BOTH {
                if only.is_some_and(|only| only != kind) {
                    continue;
                }
                let view = view_table(attributor, device, kind);
                quality.conservation_error_joules =
                    quality.conservation_error_joules.max(view.conservation_error_joules);
                views.push(view);
            }
            quality.counter_resets += totals.counter_resets;
            quality.unusable_samples += totals.unusable_samples;
            devices.push(Device {
                node: device.info.node.clone(),
                name: device.info.name.clone(),
                metric: device.info.metric.clone(),
                source: device.info.source.clone(),
                energy: device.info.quality.as_str().to_owned(),
                samples: totals.samples,
                total_joules: totals.total_joules,
                views,
            });
        }
        let oddities = attributor.engine.oddities();
        quality.late_events = quality.late_events.max(oddities.late);
        quality.repaired_events += oddities.unmatched_leaves + oddities.backward;
        let energy = attributor.devices.iter().map(|d| d.info.quality).max_by_key(|q| trust(*q));
        let run = Run { energy: energy.map_or("none", |quality| quality.as_str()).to_owned(), ..run };
        Summary { schema: SCHEMA.to_owned(), run, devices, quality, overhead: Overhead::default() }
    }

    /// Names of the nodes and number of ranks of an attributor's locations.
    pub fn nodes_and_ranks(attributor: &Attributor) -> (Vec<String>, u32) {
        let nodes: BTreeSet<&String> = attributor.locations.iter().map(|l| &l.node).collect();
        let ranks = attributor.locations.iter().filter(|l| l.main).count();
        (nodes.into_iter().cloned().collect(), ranks as u32)
    }
}

fn trust(quality: Quality) -> u8 {
    match quality {
        Quality::Measured => 0,
        Quality::Simulated => 1,
        Quality::Estimated => 2,
    }
}

fn view_table(attributor: &Attributor, device: &crate::attributor::Device, kind: ViewKind) -> View {
    let report = attributor.engine.report(device.view(kind));
    let seconds = |ticks: u64| ticks as f64 / attributor.ticks_per_second as f64;
    let name = |region| attributor.regions.name(region).to_owned();
    View {
        view: kind.as_str().to_owned(),
        policy: report.policy.as_str().to_owned(),
        sharing: report.sharing.as_str().to_owned(),
        attributed_joules: report.totals.attributed_joules,
        idle_joules: report.totals.idle_joules,
        lost_joules: report.totals.lost_joules,
        conservation_error_joules: report.totals.conservation_error_joules,
        callpaths: report
            .callpaths
            .into_iter()
            .map(|row| {
                let location = &attributor.locations[row.location.0 as usize];
                Callpath {
                    location_group: location.group.clone(),
                    location: location.name.clone(),
                    path: row.path.into_iter().map(name).collect(),
                    calls: row.calls,
                    exclusive_joules: row.exclusive_joules,
                    inclusive_joules: row.inclusive_joules,
                    resolved_joules: row.resolved_joules,
                    exclusive_seconds: seconds(row.exclusive_ticks),
                    resolved_seconds: seconds(row.resolved_ticks),
                }
            })
            .collect(),
        regions: report
            .regions
            .into_iter()
            .map(|row| Region {
                region: name(row.region),
                calls: row.calls,
                exclusive_joules: row.exclusive_joules,
                inclusive_joules: row.inclusive_joules,
                resolved_joules: row.resolved_joules,
                exclusive_seconds: seconds(row.exclusive_ticks),
                resolved_seconds: seconds(row.resolved_ticks),
            })
            .collect(),
    }
}
