//! What /metrics and the live table show: a consistent picture of one moment.

use crate::sampling::gauges::Now;
use ampere_attribution::LocationIndex;
use ampere_model::RegionRef;
use ampere_report::job::Job;
use ampere_report::summary::{NodeCpu, Readings, SamplerOverhead};
use ampere_timeline::agreement::{self, Check};
use ampere_timeline::attributor::{Attributor, Unit, ViewKind};
use ampere_timeline::threads;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    pub node: String,
    /// Of the summary, and what it is a part of.
    #[serde(default)]
    pub run: String,
    #[serde(default)]
    pub job: Option<Job>,
    /// The run is over: these are its final figures.
    #[serde(default)]
    pub is_last: bool,
    /// Seconds since the first process joined.
    pub seconds: f64,
    pub devices: Vec<DeviceFigures>,
    /// Ranks view: exclusive joules by (rank, device, region).
    pub region_energy: Vec<RegionEnergy>,
    /// Kernels view: exclusive joules by (device, kernel).
    pub kernel_energy: Vec<KernelEnergy>,
    pub region_time: Vec<RegionTime>,
    pub ranks: Vec<RankFigures>,
    /// The run's part of what the node's CPUs did; nothing of a replay.
    #[serde(default)]
    pub node_cpu: Option<NodeCpu>,
    /// Where other threads of a rank ran more than its main thread: joules by region as all threads of a rank share them, of the
    /// devices that are in no other.
    #[serde(default)]
    pub threads_energy: Vec<ThreadsEnergy>,
    /// What is to be known of the figures, one line each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// How far attribution is behind.
    pub lag_seconds: f64,
    pub collector_cpu_seconds: f64,
    /// `None` where nothing is sampled, as in a replay.
    #[serde(default)]
    pub sampler: Option<SamplerOverhead>,
    pub collector_rss_bytes: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeviceFigures {
    pub device: String,
    pub source: String,
    /// "measured", "integrated", "estimated", "simulated".
    pub energy: String,
    /// "gpu", "cpu", "memory", "node"; empty where that is not known.
    #[serde(default)]
    pub kind: String,
    /// The device whose joules have these in them; empty if there is none. Only what is in no other may be added up.
    #[serde(default)]
    pub within: String,
    pub joules: f64,
    /// `None` where it is not known.
    #[serde(default)]
    pub watts: Option<f64>,
    pub lost_joules: f64,
    pub idle_joules_ranks: f64,
    pub idle_joules_kernels: f64,
    /// Energy that the kernels view has not yet handed out, because GPU streams report late.
    pub pending_joules_kernels: f64,
    pub conservation_error_joules: f64,
    pub samples: u64,
    pub counter_resets: u64,
    pub counter_wraps: u64,
    pub sampling_gaps: u64,
    pub unusable_samples: u64,
    /// Of these, the energy is not known.
    #[serde(default)]
    pub uncovered_seconds: f64,
    /// Whether the counter stands still.
    pub stale: bool,
    #[serde(default)]
    pub readings: Readings,
    /// What it says now beside its energy.
    #[serde(default)]
    pub gauges: Vec<Now>,
    /// Other measurements of its energy, so far.
    #[serde(default)]
    pub checks: Vec<Check>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RegionEnergy {
    pub rank: String,
    pub device: String,
    pub region: String,
    pub joules: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ThreadsEnergy {
    pub region: String,
    pub joules: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KernelEnergy {
    pub device: String,
    pub kernel: String,
    pub joules: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RegionTime {
    pub rank: String,
    pub region: String,
    pub calls: u64,
    pub seconds: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RankFigures {
    pub rank: String,
    pub events: u64,
    pub coalesced_calls: u64,
    pub suppressed_calls: u64,
    /// Of locations that got no ring, as far as the process has said.
    #[serde(default)]
    pub unrecorded_calls: u64,
    pub late_events: u64,
    pub dropped_records: u64,
    pub ring_fill_ratio: f64,
    /// The region that runs now.
    pub current_region: String,
}

impl DeviceFigures {
    /// Metrics that the settings give the same name are one device: two series with the same labels would make a
    /// scrape invalid.
    fn add(&mut self, more: &DeviceFigures) {
        if self.energy == "measured" {
            self.energy.clone_from(&more.energy); // a sum is as good as the worst of it
        }
        self.joules += more.joules;
        self.lost_joules += more.lost_joules;
        self.idle_joules_ranks += more.idle_joules_ranks;
        self.idle_joules_kernels += more.idle_joules_kernels;
        self.pending_joules_kernels += more.pending_joules_kernels;
        self.conservation_error_joules += more.conservation_error_joules;
        self.samples = self.samples.saturating_add(more.samples);
        self.counter_resets = self.counter_resets.saturating_add(more.counter_resets);
        self.counter_wraps = self.counter_wraps.saturating_add(more.counter_wraps);
        self.sampling_gaps = self.sampling_gaps.saturating_add(more.sampling_gaps);
        self.unusable_samples = self.unusable_samples.saturating_add(more.unusable_samples);
        self.uncovered_seconds += more.uncovered_seconds;
        self.stale |= more.stale;
    }
}

impl Snapshot {
    /// Before anything is known but where we are.
    pub fn of_this_node() -> Snapshot {
        let node = ampere_ring::process::node_name();
        Snapshot { node, ..Snapshot::default() }
    }

    /// The devices that are in no other: what may be added up.
    pub fn topmost(&self) -> impl Iterator<Item = &DeviceFigures> {
        self.devices.iter().filter(|device| device.within.is_empty())
    }

    /// One row for each rank label. Two processes have the same when a script starts mpirun twice. What processes say of
    /// themselves may be any number: no sum overflows.
    pub fn distinct_ranks(&self) -> Vec<RankFigures> {
        let mut ranks: BTreeMap<&str, RankFigures> = BTreeMap::new();
        for more in &self.ranks {
            let sum = ranks.entry(&more.rank).or_default();
            sum.rank.clone_from(&more.rank);
            sum.events = sum.events.saturating_add(more.events);
            sum.coalesced_calls = sum.coalesced_calls.saturating_add(more.coalesced_calls);
            sum.suppressed_calls = sum.suppressed_calls.saturating_add(more.suppressed_calls);
            sum.unrecorded_calls = sum.unrecorded_calls.saturating_add(more.unrecorded_calls);
            sum.late_events = sum.late_events.saturating_add(more.late_events);
            sum.dropped_records = sum.dropped_records.saturating_add(more.dropped_records);
            sum.ring_fill_ratio = sum.ring_fill_ratio.max(more.ring_fill_ratio);
            sum.current_region.clone_from(&more.current_region);
        }
        ranks.into_values().collect()
    }
}

/// Where what finds no room goes.
pub const OTHER: &str = "other";

/// Decides which series get a name of their own. Once a series has one it keeps it, and what once was in "other" stays
/// there: counters must not go back.
#[derive(Debug)]
pub struct SeriesLimit {
    most: usize,
    named: HashSet<(String, String, String)>,
    /// What was decided, by device and label: many thousand decisions are looked up for each snapshot.
    decided: Vec<Vec<Decisions>>,
}

/// Of one label on one device.
#[derive(Clone, Debug, Default)]
struct Decisions {
    /// The label they were made for: it changes when a process gets its rank.
    label: String,
    by_region: Vec<Option<bool>>,
}

impl SeriesLimit {
    pub fn new(most: usize) -> SeriesLimit {
        SeriesLimit { most, named: HashSet::new(), decided: Vec::new() }
    }

    fn admits(&mut self, a: &str, b: &str, c: &str) -> bool {
        let key = (a.to_owned(), b.to_owned(), c.to_owned());
        self.named.contains(&key) || (self.named.len() < self.most && self.named.insert(key))
    }

    /// The same, remembered by numbers.
    fn admits_region(&mut self, device: (usize, &str), label: (usize, &str), region: (usize, &str)) -> bool {
        let decisions = at(at(&mut self.decided, device.0), label.0);
        if decisions.label != label.1 {
            *decisions = Decisions { label: label.1.to_owned(), by_region: Vec::new() };
        }
        if let Some(decided) = *at(&mut decisions.by_region, region.0) {
            return decided;
        }
        let decided = self.admits(label.1, device.1, region.1);
        self.decided[device.0][label.0].by_region[region.0] = Some(decided);
        decided
    }
}

/// An element of a vector that grows as needed.
fn at<T: Clone + Default>(all: &mut Vec<T>, index: usize) -> &mut T {
    if all.len() <= index {
        all.resize(index + 1, T::default());
    }
    &mut all[index]
}

/// Limits of each family of metrics.
#[derive(Debug)]
pub struct Limits {
    regions: SeriesLimit,
    kernels: SeriesLimit,
    times: SeriesLimit,
}

impl Limits {
    pub fn new(most: usize) -> Limits {
        let limit = || SeriesLimit::new(most);
        Limits { regions: limit(), kernels: limit(), times: limit() }
    }
}

/// The attributor's part of a snapshot.
pub fn of_attributor(attributor: &Attributor, limits: &mut Limits) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let (mut regions, mut kernel_sums) = (BTreeMap::new(), BTreeMap::new());
    let labels = Labels::of(attributor);
    let mut checks = agreement::checks(attributor, false);
    // Time has a metric of its own.
    let energies = attributor.devices.iter().enumerate().filter(|(_, d)| d.info.unit == Unit::Joules);
    for (number, device) in energies {
        let ranks = attributor.engine.totals(device.view(ViewKind::Ranks));
        let kernels = attributor.engine.totals(device.views.kernels);
        let counter = device.counter_figures();
        let figures = DeviceFigures {
            device: device.info.name.clone(),
            source: device.info.source.clone(),
            energy: device.info.quality.as_str().to_owned(),
            kind: device.info.traits.kind.clone(),
            within: attributor.whole(number).map_or_else(String::new, |whole| whole.name.clone()),
            joules: ranks.total_joules,
            watts: None,
            lost_joules: ranks.lost_joules,
            idle_joules_ranks: ranks.idle_joules,
            idle_joules_kernels: kernels.idle_joules,
            pending_joules_kernels: (ranks.total_joules - kernels.total_joules).max(0.0),
            conservation_error_joules: ranks.conservation_error_joules.max(kernels.conservation_error_joules),
            samples: counter.samples,
            counter_resets: ranks.counter_resets,
            counter_wraps: counter.wraps,
            sampling_gaps: counter.gaps,
            unusable_samples: counter.misreadings,
            uncovered_seconds: ranks.unknown_ticks as f64 / attributor.ticks_per_second as f64,
            stale: counter.stale,
            readings: Readings::default(),
            gauges: Vec::new(),
            checks: std::mem::take(&mut checks[number]),
        };
        match snapshot.devices.iter_mut().find(|known| known.device == figures.device) {
            Some(known) => known.add(&figures),
            None => snapshot.devices.push(figures),
        }
        region_energy(attributor, number, &labels, limits, &mut regions);
        kernel_energy(attributor, device, limits, &mut kernel_sums);
    }
    snapshot.region_energy = regions
        .into_iter()
        .map(|((rank, device, region), joules)| RegionEnergy { rank, device, region, joules })
        .collect();
    snapshot.kernel_energy = kernel_sums
        .into_iter()
        .map(|((device, kernel), joules)| KernelEnergy { device, kernel, joules })
        .collect();
    region_time(attributor, &labels, limits, &mut snapshot);
    if threads::all_threads_lead(attributor) {
        snapshot.threads_energy = threads_energy(attributor);
        snapshot.notes.extend(threads::note(attributor));
    }
    snapshot
}

fn threads_energy(attributor: &Attributor) -> Vec<ThreadsEnergy> {
    let mut sums: BTreeMap<RegionRef, f64> = BTreeMap::new();
    for (number, device) in attributor.devices.iter().enumerate() {
        if device.info.unit == Unit::Joules && attributor.whole(number).is_none() {
            let view = device.views.threads.unwrap_or(device.views.ranks);
            let add = |_, region, joules| *sums.entry(region).or_insert(0.0) += joules;
            attributor.engine.each_account(view, add);
        }
    }
    let name = |region| attributor.regions.name(region).to_owned();
    sums.into_iter().map(|(region, joules)| ThreadsEnergy { region: name(region), joules }).collect()
}

/// The labels of ranks, each once: a rank may have many threads.
struct Labels {
    names: Vec<String>,
    /// By location, which of them.
    of_location: Vec<usize>,
}

impl Labels {
    fn of(attributor: &Attributor) -> Labels {
        let mut numbers = HashMap::new();
        let mut labels = Labels { names: Vec::new(), of_location: Vec::new() };
        for location in 0..attributor.locations.len() as u32 {
            let name = rank_label(attributor, location);
            let number = *numbers.entry(name.clone()).or_insert(labels.names.len());
            if number == labels.names.len() {
                labels.names.push(name);
            }
            labels.of_location.push(number);
        }
        labels
    }

    /// Sums by label and region, densely: there may be a hundred thousand, and only the named ones need their names.
    fn sums<T: Clone + Default>(&self) -> Vec<Vec<T>> {
        vec![Vec::new(); self.names.len()]
    }
}

fn region_energy(
    attributor: &Attributor,
    number: usize,
    labels: &Labels,
    limits: &mut Limits,
    named: &mut BTreeMap<(String, String, String), f64>,
) {
    let device = &attributor.devices[number];
    let mut sums: Vec<Vec<Option<f64>>> = labels.sums();
    attributor.engine.each_account(device.view(ViewKind::Ranks), |location, region, joules| {
        let label = labels.of_location[location.0 as usize];
        *at(&mut sums[label], region.0 as usize).get_or_insert(0.0) += joules;
    });
    let device = device.info.name.as_str();
    for (at, (sums, label)) in sums.iter().zip(&labels.names).enumerate() {
        let mut add = |region: &str, joules| {
            *named.entry((label.clone(), device.to_owned(), region.to_owned())).or_insert(0.0) += joules;
        };
        let mut other = None;
        for (region, joules) in sums.iter().enumerate() {
            let Some(joules) = joules else { continue };
            let name = attributor.regions.name(RegionRef(region as u32));
            if limits.regions.admits_region((number, device), (at, label), (region, name)) {
                add(name, joules);
            } else {
                *other.get_or_insert(0.0) += joules;
            }
        }
        if let Some(joules) = other {
            add(OTHER, &joules);
        }
    }
}

fn kernel_energy(
    attributor: &Attributor,
    device: &ampere_timeline::attributor::Device,
    limits: &mut Limits,
    named: &mut BTreeMap<(String, String), f64>,
) {
    let mut sums = BTreeMap::new();
    attributor.engine.each_account(device.view(ViewKind::Kernels), |_, region, joules| {
        *sums.entry(region).or_insert(0.0) += joules;
    });
    for (region, joules) in sums {
        let kernel = attributor.regions.name(region);
        let kernel = if limits.kernels.admits("", &device.info.name, kernel) { kernel } else { OTHER };
        *named.entry((device.info.name.clone(), kernel.to_owned())).or_insert(0.0) += joules;
    }
}

fn region_time(attributor: &Attributor, labels: &Labels, limits: &mut Limits, snapshot: &mut Snapshot) {
    let mut sums: Vec<Vec<Option<(u64, u64)>>> = labels.sums();
    let of_ranks = attributor.locations.iter().enumerate().filter(|(_, info)| attributor.is_rank(info));
    for (number, _) in of_ranks {
        let sums = &mut sums[labels.of_location[number]];
        attributor.engine.each_callpath(LocationIndex(number as u32), |region, calls, ticks| {
            let sum = at(sums, region.0 as usize).get_or_insert((0, 0));
            *sum = (sum.0.saturating_add(calls), sum.1.saturating_add(ticks));
        });
    }
    let mut named: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for (at, (sums, label)) in sums.iter().zip(&labels.names).enumerate() {
        for (region, sum) in sums.iter().enumerate() {
            let Some((calls, ticks)) = sum else { continue };
            let name = attributor.regions.name(RegionRef(region as u32));
            let admitted = limits.times.admits_region((0, ""), (at, label), (region, name));
            let sum = named.entry((label, if admitted { name } else { OTHER })).or_insert((0, 0));
            *sum = (sum.0.saturating_add(*calls), sum.1.saturating_add(*ticks));
        }
    }
    snapshot.region_time.extend(named.into_iter().map(|((rank, region), (calls, ticks))| RegionTime {
        rank: rank.to_owned(),
        region: region.to_owned(),
        calls,
        seconds: ticks as f64 / attributor.ticks_per_second as f64,
    }));
}

/// "0", or the location group's name where the rank is not known.
pub fn rank_label(attributor: &Attributor, location: u32) -> String {
    let info = &attributor.locations[location as usize];
    info.rank.map_or_else(|| info.group.clone(), |rank| rank.to_string())
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
