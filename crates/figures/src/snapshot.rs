//! The figures of one moment, which /metrics, /snapshot.json and the live table show.

use crate::batch_job::Job;
use crate::build::{active_totals, baseline_of};
use crate::gauges::GaugeReading;
use crate::losses::{GpuClocks, Losses, ReadingLosses, RecordLosses};
use crate::summary::{Baseline, NodeCpu, Readings, SamplerOverhead, Work, least_trusted};
use crate::waits;
use ampere_attribution::{LocationIndex, Policy, Spent};
use ampere_model::RegionRef;
use ampere_timeline::agreement::{self, Check};
use ampere_timeline::attributor::{Attributor, Device, Unit, ViewKind};
use ampere_timeline::threads::{self, OtherThreads};
use ampere_timeline::waiting::Kind;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The figures of a run on one node at one moment. As JSON, all groups of fields are flat.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// The node's name; empty before anything is known.
    pub node: String,
    /// The run's id, as in the summary.
    #[serde(default)]
    pub run: String,
    /// The batch system's job that the run belongs to.
    #[serde(default)]
    pub job: Option<Job>,
    /// The measured command in one line; empty if it is not known.
    #[serde(default)]
    pub command: String,
    /// The name of the user who runs it, or the user's number if there is no name.
    #[serde(default)]
    pub user: String,
    /// The start of the run (RFC 3339, UTC).
    #[serde(default)]
    pub start: String,
    /// Whether the run has ended, so that these are its final figures.
    #[serde(default)]
    pub is_last: bool,
    /// Seconds since the first process joined.
    pub seconds: f64,
    /// The figures of each device.
    pub devices: Vec<DeviceFigures>,
    /// Ranks view: exclusive joules by rank, device and region.
    pub region_energy: Vec<RegionEnergy>,
    /// Kernels view: exclusive joules by device and kernel.
    pub kernel_energy: Vec<KernelEnergy>,
    /// Calls and exclusive time by rank and region.
    pub region_time: Vec<RegionTime>,
    /// The joules that ranks used while they waited in MPI for other ranks of this node.
    #[serde(default)]
    pub waiting: WaitingEnergy,
    /// The units of work that were counted on this node, by name.
    #[serde(default)]
    pub work: Vec<Work>,
    /// The figures of each rank and of each other process.
    pub ranks: Vec<RankFigures>,
    /// The joules of the topmost devices by region, divided among all threads of a rank. This is empty unless other threads of a
    /// rank were busier than its main thread.
    #[serde(default)]
    pub threads_energy: Vec<ThreadsEnergy>,
    /// Notes for readers of the figures, one line each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The collector and the node that it runs on.
    #[serde(flatten)]
    pub collector: CollectorFigures,
}

impl Snapshot {
    /// Returns the part that every user of the node may see: names, devices and figures.
    pub fn for_everybody(&self) -> Snapshot {
        Snapshot { job: None, command: String::new(), notes: Vec::new(), ..self.clone() }
    }
}

/// The collector itself, and the node that it runs on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CollectorFigures {
    /// The seconds by which attribution is behind the application.
    pub lag_seconds: f64,
    pub collector_cpu_seconds: f64,
    /// Resident memory of the collector.
    pub collector_rss_bytes: u64,
    /// `None` if nothing is sampled, as in a replay.
    #[serde(default)]
    pub sampler: Option<SamplerOverhead>,
    /// The run's part of the CPU time that was used on the node; `None` for a replay.
    #[serde(default)]
    pub node_cpu: Option<NodeCpu>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeviceFigures {
    pub device: String,
    /// The counter source: "rapl", "nvml", "cray_pm" and so on.
    pub source: String,
    /// The quality of its energy: "measured", "integrated", "estimated", "simulated".
    pub energy: String,
    /// The kind: "gpu", "cpu", "memory" or "node"; empty if unknown.
    #[serde(default)]
    pub kind: String,
    /// The device whose joules contain this one's; empty for a topmost device. Only topmost devices may be added up.
    #[serde(default)]
    pub within: String,
    /// Energy since the run began.
    pub joules: f64,
    /// Current power; `None` if unknown.
    #[serde(default)]
    pub watts: Option<f64>,
    /// Under the policy *active*: the power that the device draws without the job, its static joules, and its dynamic joules.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub active: Option<ActiveFigures>,
    /// How the joules were divided.
    #[serde(flatten)]
    pub division: EnergyDivision,
    #[serde(flatten)]
    pub counter: CounterFigures,
    #[serde(default)]
    pub readings: Readings,
    /// The present values of the device's gauges.
    #[serde(default)]
    pub gauges: Vec<GaugeReading>,
    /// Comparisons with other measurements of the device's energy, so far.
    #[serde(default)]
    pub checks: Vec<Check>,
}

/// A device's joules under the policy *active*.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ActiveFigures {
    /// The power that the device draws without the job.
    pub baseline: Baseline,
    /// The joules that the device would have used without the job.
    pub static_joules: f64,
    /// The joules in addition to the static ones.
    pub dynamic_joules: f64,
}

impl ActiveFigures {
    /// Adds the figures of another device. The sum has the kind of the larger baseline.
    fn add(&mut self, other: &ActiveFigures) {
        if other.baseline.watts > self.baseline.watts {
            self.baseline.kind.clone_from(&other.baseline.kind);
        }
        self.baseline.watts += other.baseline.watts;
        self.baseline.samples += other.baseline.samples;
        self.static_joules += other.static_joules;
        self.dynamic_joules += other.dynamic_joules;
    }
}

/// The parts of a device's joules that are not attributed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EnergyDivision {
    /// Energy of intervals that cannot be attributed.
    pub lost_joules: f64,
    /// The joules of times when no consumer of the ranks view was active.
    pub idle_joules_ranks: f64,
    /// The part of the idle joules that other jobs on the node used.
    #[serde(default)]
    pub other_jobs_joules: f64,
    /// The joules of times when no consumer of the kernels view was active.
    pub idle_joules_kernels: f64,
    /// The joules that are not yet attributed in the kernels view, because GPU streams report late.
    pub pending_joules_kernels: f64,
    /// The total minus attributed, idle and lost joules. It differs from 0 only by rounding.
    pub conservation_error_joules: f64,
}

impl EnergyDivision {
    fn add(&mut self, other: &EnergyDivision) {
        self.lost_joules += other.lost_joules;
        self.idle_joules_ranks += other.idle_joules_ranks;
        self.other_jobs_joules += other.other_jobs_joules;
        self.idle_joules_kernels += other.idle_joules_kernels;
        self.pending_joules_kernels += other.pending_joules_kernels;
        self.conservation_error_joules += other.conservation_error_joules;
    }
}

/// The state of a device's counter.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CounterFigures {
    /// The number of samples that were recorded.
    pub samples: u64,
    #[serde(flatten)]
    pub losses: ReadingLosses,
    /// The time whose energy is unknown.
    #[serde(default)]
    pub uncovered_seconds: f64,
    /// Whether the counter has not changed for a long time.
    pub stale: bool,
}

impl CounterFigures {
    fn add(&mut self, other: &CounterFigures) {
        self.samples = self.samples.saturating_add(other.samples);
        self.losses.add(&other.losses);
        self.uncovered_seconds += other.uncovered_seconds;
        self.stale |= other.stale;
    }
}

/// The exclusive joules of one device that were used in a region on a rank.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RegionEnergy {
    /// The rank's label, see [`rank_label`].
    pub rank: String,
    pub device: String,
    /// The region's name, or [`OTHER`].
    pub region: String,
    /// The exclusive energy in joules.
    pub joules: f64,
    /// The part of the energy in addition to the static joules, under the policy *active*.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_joules: Option<f64>,
}

/// The joules of a region, divided among all threads of a rank.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ThreadsEnergy {
    pub region: String,
    /// Exclusive energy on all ranks.
    pub joules: f64,
    /// The part of the energy in addition to the static joules, if these are known for all devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_joules: Option<f64>,
}

/// The exclusive joules of one device that were used in a GPU kernel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KernelEnergy {
    pub device: String,
    /// The kernel's name, or [`OTHER`].
    pub kernel: String,
    /// The exclusive energy in joules.
    pub joules: f64,
}

/// Calls and exclusive time of a region on a rank: on its main location, or on all of its threads if the settings count
/// the frames of all.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RegionTime {
    /// The rank's label, see [`rank_label`].
    pub rank: String,
    /// The region's name, or [`OTHER`].
    pub region: String,
    pub calls: u64,
    pub seconds: f64,
}

/// Joules that were used waiting in MPI. Devices that are contained in others are not counted. Both lists divide the same joules,
/// but because no figure ever decreases, their sums may differ.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WaitingEnergy {
    pub waited: Vec<Waited>,
    pub caused: Vec<CausedWaiting>,
    /// Whether some ranks are on other nodes: waiting for these is not included.
    pub is_part: bool,
}

/// Joules that a rank used waiting.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Waited {
    /// The rank's label, see [`rank_label`].
    pub rank: String,
    /// The kind of wait, such as "late sender".
    pub kind: String,
    pub joules: f64,
}

/// Joules that others used waiting for a region of a rank.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CausedWaiting {
    /// The rank's label, see [`rank_label`].
    pub rank: String,
    /// The region's name, or [`OTHER`].
    pub region: String,
    pub joules: f64,
}

/// The figures about the records of a rank, or of a process without a rank.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RankFigures {
    /// The rank's label, see [`rank_label`].
    pub rank: String,
    /// Whether this is the only process of a program without MPI, which has the label of rank 0.
    #[serde(default)]
    pub is_alone: bool,
    /// The counts about its events.
    #[serde(flatten)]
    pub losses: RecordLosses,
    /// How exact the times of its kernels are, if they come from a GPU's own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_clocks: Option<GpuClocks>,
    /// The highest fill level of its rings, between 0 and 1.
    pub ring_fill_ratio: f64,
    /// The innermost region of its main location; empty if there is none.
    pub current_region: String,
}

impl RankFigures {
    /// Merges the figures of processes with the same label, ordered by rank. Two processes have the same label if a script starts
    /// mpirun twice, or if a rank's stack samples are recorded as a separate process.
    pub fn distinct(processes: impl IntoIterator<Item = RankFigures>) -> Vec<RankFigures> {
        let mut ranks: BTreeMap<(usize, String), RankFigures> = BTreeMap::new(); // "10" after "9"
        for process in processes {
            let sum = ranks.entry((process.rank.len(), process.rank.clone())).or_default();
            sum.rank = process.rank;
            sum.is_alone = process.is_alone;
            sum.losses.add(&process.losses);
            sum.gpu_clocks = GpuClocks::worst(sum.gpu_clocks, process.gpu_clocks);
            sum.ring_fill_ratio = sum.ring_fill_ratio.max(process.ring_fill_ratio);
            // If a rank's calls are recorded and its stacks sampled, too, only the calls have a current region.
            if !process.current_region.is_empty() {
                sum.current_region = process.current_region;
            }
        }
        ranks.into_values().collect()
    }

    /// Whether the process is a rank. A launcher, for example, is not.
    pub fn is_rank(&self) -> bool {
        !self.is_alone && self.rank.parse::<u32>().is_ok()
    }

    /// Returns the label to show to people.
    pub fn shown(&self) -> &str {
        if self.is_alone { "Process" } else { &self.rank }
    }
}

impl DeviceFigures {
    fn of(attributor: &Attributor, number: usize, checks: Vec<Check>) -> DeviceFigures {
        let device = &attributor.devices[number];
        let ranks = attributor.engine.totals(device.view(ViewKind::Ranks));
        let kernels = attributor.engine.totals(device.views.kernels);
        let counter = device.counter_figures();
        DeviceFigures {
            device: device.info.name.clone(),
            source: device.info.source.clone(),
            energy: device.info.quality.as_str().to_owned(),
            kind: device.info.traits.kind.clone(),
            within: attributor.whole(number).map_or_else(String::new, |whole| whole.name.clone()),
            joules: ranks.total_joules,
            watts: None,
            active: active_totals(attributor, device, |_| true).map(|totals| ActiveFigures {
                baseline: baseline_of(device),
                static_joules: totals.static_joules,
                dynamic_joules: totals.dynamic_joules,
            }),
            division: EnergyDivision {
                lost_joules: ranks.lost_joules,
                idle_joules_ranks: ranks.idle_joules,
                other_jobs_joules: ranks.other_jobs_joules,
                idle_joules_kernels: kernels.idle_joules,
                pending_joules_kernels: (ranks.total_joules - kernels.total_joules).max(0.0),
                conservation_error_joules: ranks
                    .conservation_error_joules
                    .max(kernels.conservation_error_joules),
            },
            counter: CounterFigures {
                samples: counter.samples,
                losses: ReadingLosses::of(attributor, device),
                uncovered_seconds: ranks.unknown_ticks as f64 / attributor.ticks_per_second as f64,
                stale: counter.stale,
            },
            readings: Readings::default(),
            gauges: Vec::new(),
            checks,
        }
    }

    /// Adds the figures of a metric to which the settings give the same name. Both are one device, because two series with the
    /// same labels would make a scrape invalid.
    fn add(&mut self, other: &DeviceFigures) {
        self.energy = least_trusted([self.energy.as_str(), other.energy.as_str()].into_iter()).to_owned();
        // Two checks of one kind against one device would have the same labels, too.
        for check in &other.checks {
            if !self.checks.iter().any(|own| (&own.against, &own.kind) == (&check.against, &check.kind)) {
                self.checks.push(check.clone());
            }
        }
        self.joules += other.joules;
        self.active = self.active.take().zip(other.active.as_ref()).map(|(mut sum, other)| {
            sum.add(other);
            sum
        });
        self.division.add(&other.division);
        self.counter.add(&other.counter);
    }
}

impl Snapshot {
    /// Returns the counts of lost records and events.
    pub fn losses(&self) -> Losses {
        let mut sum = Losses::default();
        for rank in &self.ranks {
            sum.records.add(&rank.losses);
            sum.gpu_clocks = GpuClocks::worst(sum.gpu_clocks, rank.gpu_clocks);
        }
        for device in &self.devices {
            sum.readings.add(&device.counter.losses);
            sum.stale_counters += u64::from(device.counter.stale);
            let error = device.division.conservation_error_joules;
            sum.conservation_error_joules = sum.conservation_error_joules.max(error);
        }
        sum
    }

    /// Returns the devices that are not contained in another, so that they may be added up.
    pub fn topmost(&self) -> impl Iterator<Item = &DeviceFigures> {
        self.devices.iter().filter(|device| device.within.is_empty())
    }
}

/// The label of the series that sums up all regions or kernels beyond the limit on the number of series.
pub const OTHER: &str = "other";

/// Decides which series get a name of their own. A decision is final, because counters must not decrease: a named series keeps
/// its name, and a series that was once added to [`OTHER`] is always added to it.
#[derive(Debug)]
struct SeriesLimit {
    limit: usize,
    named: HashSet<(String, String, String)>,
    /// Decisions by device and rank label: many thousands are looked up for each snapshot.
    decided: Vec<Vec<Decisions>>,
}

/// The decisions for one rank label on one device.
#[derive(Clone, Debug, Default)]
struct Decisions {
    /// The label. It changes when a process learns its rank; then its decisions are made again.
    label: String,
    by_region: Vec<Option<bool>>,
}

impl SeriesLimit {
    fn new(limit: usize) -> SeriesLimit {
        SeriesLimit { limit, named: HashSet::new(), decided: Vec::new() }
    }

    fn admits(&mut self, label: &str, device: &str, region: &str) -> bool {
        let key = (label.to_owned(), device.to_owned(), region.to_owned());
        self.named.contains(&key) || (self.named.len() < self.limit && self.named.insert(key))
    }

    /// Like `admits`, with indices by which earlier decisions are looked up.
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

/// Returns an element of a vector, which grows as needed.
fn at<T: Clone + Default>(all: &mut Vec<T>, index: usize) -> &mut T {
    if all.len() <= index {
        all.resize(index + 1, T::default());
    }
    &mut all[index]
}

/// Limits on the number of series of each metric.
#[derive(Debug)]
pub struct Limits {
    regions: SeriesLimit,
    kernels: SeriesLimit,
    times: SeriesLimit,
    causes: SeriesLimit,
    /// The largest figures about waiting so far. A figure shrinks if a device turns out to be a part of another one, but an
    /// exported counter must not decrease.
    waited: BTreeMap<(String, &'static str), f64>,
    caused: BTreeMap<(String, String), f64>,
}

impl Limits {
    /// Makes limits of at most `limit` named series of each metric.
    pub fn new(limit: usize) -> Limits {
        let series = || SeriesLimit::new(limit);
        let (waited, caused) = (BTreeMap::new(), BTreeMap::new());
        Limits { regions: series(), kernels: series(), times: series(), causes: series(), waited, caused }
    }
}

/// Makes the part of a snapshot that the attributor knows.
pub fn of_attributor(attributor: &Attributor, limits: &mut Limits) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let (mut regions, mut kernels) = (BTreeMap::new(), BTreeMap::new());
    let labels = Labels::of(attributor);
    let mut checks = agreement::checks(attributor, false);
    // Devices that count seconds are left out, because times are in `region_time`.
    let energies = attributor.devices.iter().enumerate().filter(|(_, d)| d.info.unit == Unit::Joules);
    // A device whose joules are not a part of its node's sum, such as one that repeats another device, is not shown.
    let energies = energies.filter(|(number, _)| attributor.counts(*number));
    for (number, device) in energies {
        let figures = DeviceFigures::of(attributor, number, std::mem::take(&mut checks[number]));
        match snapshot.devices.iter_mut().find(|known| known.device == figures.device) {
            Some(known) => known.add(&figures),
            None => snapshot.devices.push(figures),
        }
        region_energy(attributor, number, &labels, limits, &mut regions);
        kernel_energy(attributor, device, limits, &mut kernels);
    }
    snapshot.region_energy = regions
        .into_iter()
        .map(|((rank, device, region), (joules, dynamic_joules))| RegionEnergy {
            rank,
            device,
            region,
            joules,
            dynamic_joules,
        })
        .collect();
    snapshot.kernel_energy = kernels
        .into_iter()
        .map(|((device, kernel), joules)| KernelEnergy { device, kernel, joules })
        .collect();
    // Devices are in the order of their sources, or in a trace in the order of its locations. GPUs come last, by their numbers.
    let number_of = |gpu: &DeviceFigures| (gpu.device.len(), gpu.device.clone());
    snapshot.devices.sort_by_cached_key(|device| (device.kind == "gpu").then(|| number_of(device)));
    region_time(attributor, &labels, limits, &mut snapshot);
    snapshot.waiting = waiting(attributor, &labels, limits);
    let joules = snapshot.topmost().map(|device| device.joules).reduce(|sum, joules| sum + joules);
    snapshot.work = Work::of_run(Work::units(&attributor.work), joules);
    snapshot.notes.extend(attributor.note_of_kernels().map(str::to_owned));
    if threads::all_threads_lead(attributor) {
        snapshot.threads_energy = threads_energy(attributor);
        snapshot.notes.extend(OtherThreads::of(attributor).note());
    }
    snapshot
}

fn threads_energy(attributor: &Attributor) -> Vec<ThreadsEnergy> {
    let mut sums: BTreeMap<RegionRef, Spent> = BTreeMap::new();
    let mut is_active = true;
    for (number, device) in attributor.devices.iter().enumerate() {
        let is_energy = device.info.unit == Unit::Joules && attributor.counts(number);
        if is_energy && attributor.whole(number).is_none() {
            let view = device.views.threads.unwrap_or(device.views.ranks);
            is_active &= attributor.engine.report_policy(view) == Policy::Active;
            attributor
                .engine
                .each_account(view, |_, region, spent| add(sums.entry(region).or_default(), spent));
        }
    }
    let name = |region| attributor.regions.name(region).to_owned();
    let rows = sums.into_iter().map(|(region, spent)| ThreadsEnergy {
        region: name(region),
        joules: spent.joules,
        dynamic_joules: is_active.then_some(spent.dynamic_joules),
    });
    rows.collect()
}

/// The distinct rank labels. Several locations may have the same one, because a rank may have many threads.
struct Labels {
    names: Vec<String>,
    /// For each location, the index of its label.
    of_location: Vec<usize>,
}

impl Labels {
    fn of(attributor: &Attributor) -> Labels {
        let mut indices = HashMap::new();
        let mut labels = Labels { names: Vec::new(), of_location: Vec::new() };
        for location in 0..attributor.locations.len() as u32 {
            let name = rank_label(attributor, location);
            let index = *indices.entry(name.clone()).or_insert(labels.names.len());
            if index == labels.names.len() {
                labels.names.push(name);
            }
            labels.of_location.push(index);
        }
        labels
    }

    /// Makes empty sums by the indices of label and region. There may be a hundred thousand sums, and names are looked up only
    /// for those that are shown.
    fn sums<T: Clone + Default>(&self) -> Vec<Vec<T>> {
        vec![Vec::new(); self.names.len()]
    }
}

fn region_energy(
    attributor: &Attributor,
    number: usize,
    labels: &Labels,
    limits: &mut Limits,
    named: &mut BTreeMap<(String, String, String), (f64, Option<f64>)>,
) {
    let device = &attributor.devices[number];
    let view = device.view(ViewKind::Ranks);
    let is_active = attributor.engine.report_policy(view) == Policy::Active;
    let mut sums: Vec<Vec<Option<Spent>>> = labels.sums();
    attributor.engine.each_account(view, |location, region, spent| {
        let label = labels.of_location[location.0 as usize];
        add(at(&mut sums[label], region.0 as usize).get_or_insert_default(), spent);
    });
    let device = device.info.name.as_str();
    for (label_number, (sums, label)) in sums.iter().zip(&labels.names).enumerate() {
        let mut add_named = |region: &str, spent: Spent| {
            let key = (label.clone(), device.to_owned(), region.to_owned());
            let (joules, dynamic) = named.entry(key).or_insert((0.0, Some(0.0)));
            *joules += spent.joules;
            *dynamic = dynamic.filter(|_| is_active).map(|sum| sum + spent.dynamic_joules);
        };
        let mut other = None;
        for (region, spent) in sums.iter().enumerate() {
            let Some(spent) = spent else { continue };
            let name = attributor.regions.name(RegionRef(region as u32));
            if limits.regions.admits_region((number, device), (label_number, label), (region, name)) {
                add_named(name, *spent);
            } else {
                add(other.get_or_insert_default(), *spent);
            }
        }
        if let Some(spent) = other {
            add_named(OTHER, spent);
        }
    }
}

fn add(sum: &mut Spent, more: Spent) {
    sum.joules += more.joules;
    sum.dynamic_joules += more.dynamic_joules;
}

fn kernel_energy(
    attributor: &Attributor,
    device: &Device,
    limits: &mut Limits,
    named: &mut BTreeMap<(String, String), f64>,
) {
    let mut sums = BTreeMap::new();
    attributor.engine.each_entered_account(device.view(ViewKind::Kernels), |region, spent| {
        *sums.entry(region).or_insert(0.0) += spent.joules;
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
        attributor.each_callpath(LocationIndex(number as u32), |region, calls, ticks| {
            let sum = at(sums, region.0 as usize).get_or_insert((0, 0));
            *sum = (sum.0.saturating_add(calls), sum.1.saturating_add(ticks));
        });
    }
    let mut named: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for (label_number, (sums, label)) in sums.iter().zip(&labels.names).enumerate() {
        for (region, sum) in sums.iter().enumerate() {
            let Some((calls, ticks)) = sum else { continue };
            let name = attributor.regions.name(RegionRef(region as u32));
            let admitted = limits.times.admits_region((0, ""), (label_number, label), (region, name));
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

fn waiting(attributor: &Attributor, labels: &Labels, limits: &mut Limits) -> WaitingEnergy {
    let Some(waiting) = &attributor.waiting else { return WaitingEnergy::default() };
    let label = |location: LocationIndex| labels.of_location[location.0 as usize];
    let mut waited: BTreeMap<(usize, Kind), f64> = BTreeMap::new();
    let mut caused: BTreeMap<(usize, RegionRef), f64> = BTreeMap::new();
    for waits in waits::of_devices(attributor) {
        for ((location, _), joules) in waits.waited.iter() {
            for kind in Kind::ALL.into_iter().filter(|kind| joules.get(*kind) > 0.0) {
                *waited.entry((label(location), kind)).or_default() += joules.get(kind);
            }
        }
        for ((location, node), joules) in waits.caused.iter() {
            let (_, region) = attributor.engine.caller_of(location, node);
            *caused.entry((label(location), region)).or_default() += joules.sum();
        }
    }
    let mut named: BTreeMap<(String, String), f64> = BTreeMap::new();
    for ((at, region), joules) in caused {
        let (label, name) = (labels.names[at].as_str(), attributor.regions.name(region));
        let admitted = limits.causes.admits_region((0, ""), (at, label), (region.0 as usize, name));
        let region = if admitted { name } else { OTHER };
        *named.entry((label.to_owned(), region.to_owned())).or_default() += joules;
    }
    for ((at, kind), joules) in waited {
        let last = limits.waited.entry((labels.names[at].clone(), kind.as_str())).or_default();
        *last = last.max(joules);
    }
    for (key, joules) in named {
        let last = limits.caused.entry(key).or_default();
        *last = last.max(joules);
    }
    let of_kind = |((rank, kind), joules): (&(String, &str), &f64)| {
        let (rank, kind) = (rank.clone(), (*kind).to_owned());
        Waited { rank, kind, joules: *joules }
    };
    let of_region = |((rank, region), joules): (&(String, String), &f64)| {
        let (rank, region) = (rank.clone(), region.clone());
        CausedWaiting { rank, region, joules: *joules }
    };
    WaitingEnergy {
        waited: limits.waited.iter().map(of_kind).collect(),
        caused: limits.caused.iter().map(of_region).collect(),
        is_part: waiting.is_part(),
    }
}

/// Returns the rank's number, or the location group's name if there is no number.
pub fn rank_label(attributor: &Attributor, location: u32) -> String {
    let info = &attributor.locations[location as usize];
    info.rank.map_or_else(|| info.group.clone(), |rank| rank.to_string())
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
