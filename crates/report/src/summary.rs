//! `summary.json`: the result of a run, as `ampere attribute --json` prints it too. Fields may be added, never renamed.

use crate::assignment::{self, Link};
use crate::gauges::OverTheRun;
use crate::job::Job;
use ampere_attribution::ViewIndex;
use ampere_model::Quality;
use ampere_model::RegionRef;
use ampere_timeline::agreement::{self, Check};
use ampere_timeline::attributor::{Attributor, Unit, ViewKind};
use ampere_timeline::curve::PowerCurve;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

pub const SCHEMA: &str = "ampere-summary/1";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    pub schema: String,
    pub run: Run,
    pub devices: Vec<Device>,
    /// Who spends from what, and why.
    #[serde(default)]
    pub topology: Vec<Link>,
    pub quality: QualityFigures,
    pub overhead: Overhead,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    pub id: String,
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
    /// RFC 3339, UTC.
    pub start: String,
    pub end: String,
    /// False when something of the run is missing: `notes` say what.
    pub complete: bool,
    /// It goes on: this is as of now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub running: bool,
    /// "score-p", "embedded" or "trace".
    pub host: String,
    pub nodes: Vec<String>,
    pub ranks: u32,
    /// The least trustworthy of the devices': "measured", "integrated", "simulated" or "estimated".
    pub energy: String,
    pub seconds: f64,
    /// Of all nodes. What a device contains is in its own joules and not added to them.
    #[serde(default)]
    pub total_joules: f64,
    pub timer: String,
    pub ticks_per_second: u64,
    pub notes: Vec<String>,
    /// The run's part of what its node's CPUs did; nothing of a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_cpu: Option<NodeCpu>,
    /// The command's exit status as a shell says it (128 + n for signal n), where `ampere run` waited for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_status: Option<i32>,
    /// Processes that did not end their measurement in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endings: Vec<Ending>,
    /// Times without sampling, because the collector was killed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
    /// Of an MPI job: its size, and which ranks of it are in these figures. `None` where there are several jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpi: Option<MpiRanks>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MpiRanks {
    pub size: u32,
    /// In order.
    pub ranks: Vec<u32>,
}

impl MpiRanks {
    /// Of ranks and sizes of processes.
    pub fn of(processes: impl Iterator<Item = (u32, u32)>) -> Option<MpiRanks> {
        let (mut ranks, sizes): (Vec<u32>, BTreeSet<u32>) = processes.filter(|(_, size)| *size > 1).unzip();
        ranks.sort_unstable();
        let is_one_job = sizes.len() == 1 && ranks.windows(2).all(|pair| pair[0] < pair[1]);
        sizes.first().copied().filter(|_| is_one_job).map(|size| MpiRanks { size, ranks })
    }

    pub fn missing(&self) -> Vec<u32> {
        (0..self.size).filter(|rank| self.ranks.binary_search(rank).is_err()).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    pub rank: Option<u32>,
    pub pid: u32,
    pub what: String,
    /// When it was last known to run. RFC 3339, UTC.
    pub time: String,
    /// Where it is known.
    pub signal: Option<i32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// The last sample before it. RFC 3339, UTC.
    pub start: String,
    pub seconds: f64,
    /// What was spent meanwhile; `null` where sampling did not go on.
    pub joules: Option<f64>,
}

/// CPU time while the run went on. Of several nodes the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeCpu {
    /// How long it was counted.
    pub seconds: f64,
    /// Of the run's own processes; see `ampere_counters::RunCpu`.
    pub own_busy_seconds: f64,
    pub collector_busy_seconds: f64,
    /// Of all that ran on the node, these included.
    pub node_busy_seconds: f64,
    /// CPUs that the run may use, and those of the node.
    pub cpus: u64,
    pub node_cpus: u64,
}

/// Less than this of a core, or of all that ran, is the system's own small business.
const OTHERS_LEAST_CORES: f64 = 0.1;
const OTHERS_LEAST_PART: f64 = 0.1;

impl NodeCpu {
    pub fn words(&self) -> String {
        let cores = |busy: f64| if self.seconds > 0.0 { busy / self.seconds } else { 0.0 };
        format!(
            "{:.2} s of the node's {:.2} s of busy CPU time were this run's own: {:.2} of {:.2} busy cores on average",
            self.own_busy_seconds,
            self.node_busy_seconds,
            cores(self.own_busy_seconds),
            cores(self.node_busy_seconds)
        )
    }

    /// Whether others on the node did enough to be worth a word.
    pub fn has_others(&self) -> bool {
        let others = self.node_busy_seconds - self.own_busy_seconds - self.collector_busy_seconds;
        others > OTHERS_LEAST_CORES * self.seconds && others > OTHERS_LEAST_PART * self.node_busy_seconds
    }

    pub fn with(self, more: NodeCpu) -> NodeCpu {
        NodeCpu {
            seconds: self.seconds.max(more.seconds),
            own_busy_seconds: self.own_busy_seconds + more.own_busy_seconds,
            collector_busy_seconds: self.collector_busy_seconds + more.collector_busy_seconds,
            node_busy_seconds: self.node_busy_seconds + more.node_busy_seconds,
            cpus: self.cpus + more.cpus,
            node_cpus: self.node_cpus + more.node_cpus,
        }
    }
}

impl Run {
    /// What is to be seen beside its name; empty if all is there.
    pub fn state(&self) -> &'static str {
        match (self.complete, self.running) {
            (true, _) => "",
            (false, true) => "RUNNING",
            (false, false) => "INCOMPLETE",
        }
    }

    /// The same at the end of a line.
    pub fn state_words(&self) -> String {
        if self.complete { String::new() } else { format!(", {}", self.state()) }
    }
}

impl Gap {
    /// One line for all of them, or for the only one.
    pub fn notes(gaps: &[Gap]) -> Vec<String> {
        let (closed, open): (Vec<&Gap>, Vec<&Gap>) = gaps.iter().partition(|gap| gap.joules.is_some());
        let mut notes: Vec<String> = match closed.as_slice() {
            [first, _, ..] => {
                let seconds: f64 = closed.iter().map(|gap| gap.seconds).sum();
                let joules: f64 = closed.iter().filter_map(|gap| gap.joules).sum();
                vec![format!(
                    "the collector was killed {} times, first at {}, and replaced: no counter was read for {seconds:.3} s in \
                     all; {joules:.3} J were spent meanwhile, which are shared as between any two samples (run.gaps)",
                    closed.len(),
                    first.start
                )]
            }
            few => few.iter().map(|gap| gap.note()).collect(),
        };
        notes.extend(open.iter().map(|gap| gap.note()));
        notes
    }

    fn note(&self) -> String {
        match self.joules {
            Some(joules) => format!(
                "the collector was killed: no counter was read for {:.3} s from {} on; {joules:.3} J were spent meanwhile, which \
                 are shared as between any two samples",
                self.seconds, self.start
            ),
            None => format!(
                "the collector was killed: no counter was read from {} on, and what was spent in the last {:.3} s is not known",
                self.start, self.seconds
            ),
        }
    }
}

impl Ending {
    /// What is said of them: of many the first, which as a rule took the others with it. They are in order of time.
    pub fn notes(endings: &[Ending]) -> Option<String> {
        let (first, others) = endings.split_first()?;
        let rank = first.rank.map_or_else(String::new, |rank| format!("MPI Rank {rank}, "));
        let was = if first.signal.is_some() { "was " } else { "" };
        let at = if first.time.is_empty() { String::new() } else { format!(", at {}", first.time) };
        let line = format!("{rank}process {} {was}{}{at}: its open frames end there", first.pid, first.what);
        let last = others.iter().rev().find(|ending| !ending.time.is_empty());
        let until = last.map_or_else(String::new, |last| format!(", the last at {}", last.time));
        Some(match others.len() {
            0 => line,
            1 => format!("{line}; another process ended so after it{until} (run.endings)"),
            many => format!("{line}; {many} other processes ended so after it{until} (run.endings)"),
        })
    }
}

/// A signal's number, which is shown with its name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignalNumber(pub i32);

impl std::fmt::Display for SignalNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const NAMES: [(i32, &str); 10] = [
            (1, "SIGHUP"),
            (2, "SIGINT"),
            (3, "SIGQUIT"),
            (4, "SIGILL"),
            (6, "SIGABRT"),
            (7, "SIGBUS"),
            (8, "SIGFPE"),
            (9, "SIGKILL"),
            (11, "SIGSEGV"),
            (15, "SIGTERM"),
        ];
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((number, name)) => write!(f, "signal {number} ({name})"),
            None => write!(f, "signal {}", self.0),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Device {
    pub node: String,
    pub name: String,
    pub metric: String,
    pub source: String,
    /// "measured", "integrated" (from a measured power), "simulated" or "estimated".
    pub energy: String,
    /// "J", or "s" of the device "time", all of whose figures are seconds, also those called joules.
    #[serde(default = "joules")]
    pub unit: String,
    /// "gpu", "cpu", "memory" or "node"; empty where that is not known.
    #[serde(default)]
    pub kind: String,
    /// Names of devices of the same node whose joules are also in this one's.
    #[serde(default)]
    pub contains: Vec<String>,
    pub samples: u64,
    pub total_joules: f64,
    /// From the first sample to the last: what lies outside is not in the total.
    #[serde(default)]
    pub sampled_seconds: f64,
    /// Of these, the time whose energy is not known: the counter was reset, or what was read of it could not be true.
    #[serde(default)]
    pub uncovered_seconds: f64,
    /// More power than this the device cannot have. `None`: nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watts_max: Option<f64>,
    /// The mean and the longest time from one sample to the next.
    #[serde(default)]
    pub sample_seconds: f64,
    #[serde(default)]
    pub longest_sample_seconds: f64,
    /// The longest time without a change of the counter's value, and whether it stood still when last seen.
    #[serde(default)]
    pub longest_still_seconds: f64,
    #[serde(default)]
    pub stale: bool,
    /// What the sampler says; nothing of a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readings: Option<Readings>,
    /// What the device said beside its energy, as it reported it; nothing of a trace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gauges: Vec<OverTheRun>,
    /// Other measurements of the same energy beside its counter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// Over the run, in steps; nothing of a device that has no two samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerCurve>,
    pub views: Vec<View>,
    /// The ranks view by the locations that the settings do not choose: all threads of the ranks, or their main threads alone. Not
    /// there where that is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_ranks: Option<View>,
    /// Tables begin with it: other threads of a rank ran more than its main thread.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_ranks_lead: bool,
}

impl Device {
    /// The views that tables for people show.
    pub fn shown(&self) -> impl Iterator<Item = &View> {
        let leading = self.other_ranks.as_ref().filter(|_| self.other_ranks_lead);
        self.views.iter().map(move |view| leading.filter(|_| view.view == "ranks").unwrap_or(view))
    }

    /// The ranks view that they do not show.
    pub fn not_shown(&self) -> Option<&View> {
        let ranks = || self.views.iter().find(|view| view.view == "ranks");
        if self.other_ranks_lead { ranks() } else { self.other_ranks.as_ref() }
    }
}

fn joules() -> String {
    Unit::Joules.as_str().to_owned()
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct View {
    pub view: String,
    /// Whose frames are a rank's, where that makes a difference: "main" or "all".
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub locations: String,
    pub policy: String,
    pub sharing: String,
    pub attributed_joules: f64,
    pub idle_joules: f64,
    pub lost_joules: f64,
    pub conservation_error_joules: f64,
    pub callpaths: Vec<Callpath>,
    pub regions: Vec<Region>,
}

impl View {
    /// What shares are shares of. Where each consumer gets all, as of time, that is more than the device's own total.
    pub fn whole(&self) -> f64 {
        self.attributed_joules + self.idle_joules + self.lost_joules
    }
}

/// A name of which many rows have the same: there may be a hundred thousand.
pub type Name = Arc<str>;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Callpath {
    pub location_group: Name,
    pub location: Name,
    pub path: Vec<Name>,
    pub calls: u64,
    pub exclusive_joules: f64,
    pub inclusive_joules: f64,
    /// The least that the exclusive joules can be.
    pub resolved_joules: f64,
    /// The most that they can be. Summaries of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub possible_joules: Option<f64>,
    pub exclusive_seconds: f64,
    pub resolved_seconds: f64,
    #[serde(default, flatten)]
    pub watts: Watts,
}

impl View {
    /// For people.
    pub fn title(&self) -> String {
        match self.locations.as_str() {
            "main" => format!("{} view, by main threads alone", self.view),
            "all" => format!("{} view, by all threads", self.view),
            _ => format!("{} view", self.view),
        }
    }
}

impl Callpath {
    /// Most joules first. Ties by name, so that the order is the same live and from the trace.
    fn by_joules(&self, other: &Callpath) -> std::cmp::Ordering {
        other
            .exclusive_joules
            .total_cmp(&self.exclusive_joules)
            .then_with(|| self.location_group.cmp(&other.location_group))
            .then_with(|| self.location.cmp(&other.location))
            .then_with(|| self.path.cmp(&other.path))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Region {
    pub region: Name,
    pub calls: u64,
    pub exclusive_joules: f64,
    pub inclusive_joules: f64,
    /// The least that the exclusive joules can be.
    pub resolved_joules: f64,
    /// The most that they can be. Summaries of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub possible_joules: Option<f64>,
    pub exclusive_seconds: f64,
    pub resolved_seconds: f64,
    #[serde(default, flatten)]
    pub watts: Watts,
}

/// `null`: below resolution. A rate needs [`LEAST_RESOLVED_SAMPLES`] resolved samples' worth of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watts {
    /// Exclusive joules over exclusive seconds: of a rank that shares its device, its share.
    pub mean_watts: Option<f64>,
    /// Resolved joules over resolved seconds: the device's power while nothing else ran.
    pub resolved_watts: Option<f64>,
    /// Least and most of the sample intervals in which it ran, however briefly. Time sliced: the device's power in the
    /// interval. Busy only: the interval's joules over the run time in it. `null` only if it never ran between samples.
    pub min_watts: Option<f64>,
    pub max_watts: Option<f64>,
}

impl Watts {
    /// What is more than that cannot be: two changes of a counter that are seen too close to each other show such figures.
    fn up_to(self, most: f64) -> Watts {
        let possible = |watts: Option<f64>| watts.filter(|watts| *watts <= most);
        Watts {
            mean_watts: possible(self.mean_watts),
            resolved_watts: possible(self.resolved_watts),
            min_watts: possible(self.min_watts),
            max_watts: possible(self.max_watts),
        }
    }
}

pub const LEAST_RESOLVED_SAMPLES: f64 = 10.0;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct QualityFigures {
    pub events: u64,
    pub coalesced_calls: u64,
    pub suppressed_calls: u64,
    /// Calls that are nowhere: their locations got no ring, or there was none yet.
    #[serde(default)]
    pub unrecorded_calls: u64,
    pub dropped_records: u64,
    pub late_events: u64,
    pub counter_resets: u64,
    pub conservation_error_joules: f64,
    /// Samples that were no numbers, negative, impossible, or came out of order.
    pub unusable_samples: u64,
    /// Times that a counter reached the end of its range, which was made good.
    #[serde(default)]
    pub counter_wraps: u64,
    /// Sample intervals that were so long that their joules are lost.
    #[serde(default)]
    pub sampling_gaps: u64,
    /// Counters that stood still when last seen.
    #[serde(default)]
    pub stale_counters: u64,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler: Option<SamplerOverhead>,
}

/// How a device was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Readings {
    pub readings: u64,
    pub failed_readings: u64,
    /// Sum and longest of the time that readings took.
    pub read_seconds: f64,
    pub longest_read_seconds: f64,
    /// The time from change to change of the source's counters, as learned; 0 where it is not known.
    pub update_seconds: f64,
}

impl Readings {
    /// Of devices that are shown as one.
    pub fn add(&mut self, more: &Readings) {
        self.readings += more.readings;
        self.failed_readings += more.failed_readings;
        self.read_seconds += more.read_seconds;
        self.longest_read_seconds = self.longest_read_seconds.max(more.longest_read_seconds);
        self.update_seconds = self.update_seconds.max(more.update_seconds);
    }
}

/// What sampling cost, and how well it kept its time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SamplerOverhead {
    /// CPU time of the sampler's thread, and what part of one core that was.
    pub cpu_seconds: f64,
    pub cpu_share: f64,
    /// Times that it had to wake up, and those that were more than a millisecond too late.
    pub deadlines: u64,
    pub missed_deadlines: u64,
    pub mean_late_seconds: f64,
    pub longest_late_seconds: f64,
    /// Sum and longest of the time that asking for gauges took.
    #[serde(default)]
    pub gauges_seconds: f64,
    #[serde(default)]
    pub longest_gauge_seconds: f64,
}

impl Device {
    /// Why its figures cannot be shown, in one line: they are more than the device can have had.
    fn refusal(&self) -> Option<String> {
        let seconds = self.sampled_seconds + SECONDS_OF_A_STALL;
        let most = self.watts_max.filter(|_| self.unit == "J")? * seconds;
        (self.total_joules > most).then(|| {
            format!(
                "{}: {:.0} J in {:.3} s are more than such a device can have spent ({:.0} J): they are not shown. Look at the \
                 scale and the unit of {} (a [[device]] in the configuration sets them), or set [counters] watts_max",
                self.name, self.total_joules, self.sampled_seconds, most, self.metric
            )
        })
    }

    fn refuse(&mut self) {
        self.total_joules = 0.0;
        self.power = None;
        for view in &mut self.views {
            *view = View {
                view: view.view.clone(),
                policy: view.policy.clone(),
                sharing: view.sharing.clone(),
                ..View::default()
            };
        }
    }

    fn uncovered_note(&self) -> Option<String> {
        let is_known = self.unit == "J" && self.uncovered_seconds > 0.0 && self.total_joules > 0.0;
        is_known.then(|| {
            format!(
                "{}: the energy of {:.3} s is not known, because its counter was reset or what was read of it could not be true",
                self.name, self.uncovered_seconds
            )
        })
    }
}

/// A counter that has stood still may catch up within the first sample interval.
const SECONDS_OF_A_STALL: f64 = 1.0;

impl Summary {
    /// The tables of an attributor, both views or the one that is asked for.
    pub fn new(
        attributor: &Attributor,
        only: Option<ViewKind>,
        run: Run,
        mut quality: QualityFigures,
    ) -> Summary {
        let names = Names::of(attributor);
        let mut devices = Vec::new();
        let mut checks = agreement::checks(attributor, true);
        let mut total_joules = 0.0;
        let threads_lead = attributor.threads_lead();
        // Time comes last: energy is what people look for.
        let (time, energy): (Vec<_>, Vec<_>) =
            attributor.devices.iter().enumerate().partition(|(_, device)| device.info.unit == Unit::Seconds);
        for (number, device) in energy.into_iter().chain(time) {
            let mut views = Vec::new();
            let totals = attributor.engine.totals(device.ranks);
            let counter = device.counter_figures();
            let seconds = |ticks: u64| ticks as f64 / attributor.ticks_per_second as f64;
            let sampled = counter.first.zip(counter.last).map_or(0, |(first, last)| last - first);
            let sampled_seconds = seconds(sampled);
            let intervals = counter.samples.saturating_sub(1).max(1);
            let sample_seconds = sampled_seconds / intervals as f64;
            for kind in ViewKind::BOTH {
                if only.is_some_and(|only| only != kind) {
                    continue;
                }
                let locations = attributor.config().attribution.locations;
                let locations =
                    device.other_ranks().filter(|_| kind == ViewKind::Ranks).map(|_| locations.as_str());
                let view = (device.view(kind), kind, locations);
                let view = view_table(attributor, &names, device, view, sample_seconds);
                quality.conservation_error_joules =
                    quality.conservation_error_joules.max(view.conservation_error_joules);
                views.push(view);
            }
            let other_ranks = device.other_ranks().filter(|_| only != Some(ViewKind::Kernels));
            let other_ranks = other_ranks.map(|(locations, view)| {
                let view = (view, ViewKind::Ranks, Some(locations.as_str()));
                view_table(attributor, &names, device, view, sample_seconds)
            });
            quality.counter_resets += totals.counter_resets;
            quality.unusable_samples += counter.misreadings;
            quality.counter_wraps += counter.wraps;
            quality.sampling_gaps += counter.gaps;
            quality.stale_counters += u64::from(counter.stale);
            if device.info.unit == Unit::Joules && attributor.whole(number).is_none() {
                total_joules += totals.total_joules;
            }
            devices.push(Device {
                node: device.info.node.clone(),
                name: device.info.name.clone(),
                metric: device.info.metric.clone(),
                source: device.info.source.clone(),
                energy: device.info.quality.as_str().to_owned(),
                unit: device.info.unit.as_str().to_owned(),
                kind: device.info.nature.kind.clone(),
                contains: attributor.parts(number),
                samples: counter.samples,
                total_joules: totals.total_joules,
                sampled_seconds,
                uncovered_seconds: seconds(totals.unknown_ticks),
                watts_max: Some(device.watts_max()).filter(|watts| watts.is_finite()),
                sample_seconds,
                longest_sample_seconds: seconds(counter.longest_interval_ticks),
                longest_still_seconds: seconds(counter.longest_still_ticks),
                stale: counter.stale,
                readings: None,
                gauges: Vec::new(),
                checks: std::mem::take(&mut checks[number]),
                power: device.curve(),
                views,
                other_ranks_lead: threads_lead && other_ranks.is_some(),
                other_ranks,
            });
        }
        let mut run = run;
        run.notes.extend(devices.iter().filter_map(Device::uncovered_note));
        let refused: Vec<String> = devices.iter().filter_map(Device::refusal).collect();
        run.complete &= refused.is_empty();
        run.notes.extend(refused);
        for device in devices.iter_mut().filter(|device| device.refusal().is_some()) {
            total_joules -= device.total_joules;
            device.refuse();
        }
        let oddities = attributor.engine.oddities();
        quality.late_events = quality.late_events.max(oddities.late);
        quality.repaired_events += oddities.unmatched_leaves + oddities.backward;
        let energies = attributor.devices.iter().filter(|device| device.info.unit == Unit::Joules);
        let energy = energies.map(|device| device.info.quality).max_by_key(|quality| trust(*quality));
        let energy = energy.map_or("none", |quality| quality.as_str()).to_owned();
        let mut run = Run { energy, total_joules, ..run };
        run.notes.extend(attributor.note_of_threads());
        let topology = assignment::of_attributor(attributor, only);
        let (schema, overhead) = (SCHEMA.to_owned(), Overhead::default());
        Summary { schema, run, devices, topology, quality, overhead }
    }

    /// Names of the nodes and number of ranks of an attributor's locations.
    pub fn nodes_and_ranks(attributor: &Attributor) -> (Vec<String>, u32) {
        let of_devices = attributor.devices.iter().map(|device| &device.info.node);
        let nodes: BTreeSet<&String> =
            attributor.locations.iter().map(|l| &l.node).chain(of_devices).collect();
        let ranks = attributor.locations.iter().filter(|l| l.main).count();
        (nodes.into_iter().cloned().collect(), ranks as u32)
    }
}

/// Of what several summaries call their energy. "none" says nothing of the others.
pub fn least_trusted<'a>(names: impl Iterator<Item = &'a str>) -> &'a str {
    let all = [Quality::Measured, Quality::Integrated, Quality::Simulated, Quality::Estimated];
    let of = |name: &str| all.iter().find(|quality| quality.as_str() == name).map(|quality| trust(*quality));
    names.max_by_key(|name| of(name)).unwrap_or("none")
}

fn trust(quality: Quality) -> u8 {
    match quality {
        Quality::Measured => 0,
        Quality::Integrated => 1,
        Quality::Simulated => 2,
        Quality::Estimated => 3,
    }
}

/// Each name once.
struct Names {
    regions: Vec<Name>,
    /// By location: its group's and its own.
    locations: Vec<(Name, Name)>,
}

impl Names {
    fn of(attributor: &Attributor) -> Names {
        let regions = attributor.regions.all().iter().map(|region| region.name.as_str().into());
        let locations = attributor.locations.iter();
        let locations = locations.map(|info| (info.group.as_str().into(), info.name.as_str().into()));
        Names { regions: regions.collect(), locations: locations.collect() }
    }
}

/// Of a deeper path the middle is left out: a recursion of a thousand calls has a path for each depth, and all of them in full
/// would be a million names.
const MOST_FRAMES: usize = 256;

fn shortened(path: &[RegionRef], name: impl Fn(RegionRef) -> Name) -> Vec<Name> {
    let names = |part: &[RegionRef]| part.iter().map(|region| name(*region)).collect::<Vec<Name>>();
    if path.len() <= MOST_FRAMES {
        return names(path);
    }
    let (head, tail) = (MOST_FRAMES / 2, MOST_FRAMES / 2 - 1);
    let mut short = names(&path[..head]);
    short.push(format!("... {} frames ...", path.len() - head - tail).into());
    short.extend(names(&path[path.len() - tail..]));
    short
}

fn view_table(
    attributor: &Attributor,
    names: &Names,
    device: &ampere_timeline::attributor::Device,
    (view, kind, locations): (ViewIndex, ViewKind, Option<&str>),
    sample_seconds: f64,
) -> View {
    let seconds = |ticks: u64| ticks as f64 / attributor.ticks_per_second as f64;
    let name = |region: RegionRef| {
        names.regions.get(region.0 as usize).cloned().unwrap_or_else(|| "undefined region".into())
    };
    // The clock has no resolution to speak of, and a second in a second is no rate.
    let is_time = device.info.unit == Unit::Seconds;
    let resolved = |exclusive: (f64, u64), resolved| if is_time { exclusive } else { resolved };
    let possible = |exclusive: f64, possible: f64| Some(if is_time { exclusive } else { possible });
    // Of its interval's joules a row has no more than all; more than the device's power it cannot have.
    let most = if attributor.engine.report_policy(device.view(kind)) == ampere_attribution::Policy::TimeSliced
    {
        device.watts_max()
    } else {
        f64::INFINITY
    };
    let watts = |rate: Rate| {
        let watts = || rate.watts(attributor.ticks_per_second as f64, sample_seconds).up_to(most);
        if is_time { Watts::default() } else { watts() }
    };
    let mut callpaths = Vec::new();
    let mut report = attributor.engine.report_rows(view, &mut |row| {
        let (location_group, location) = names.locations[row.location.0 as usize].clone();
        let exclusive = (row.exclusive_joules, row.exclusive_ticks);
        let resolved = resolved(exclusive, (row.resolved_joules, row.resolved_ticks));
        callpaths.push(Callpath {
            location_group,
            location,
            path: shortened(&row.path, name),
            calls: row.calls,
            exclusive_joules: row.exclusive_joules,
            inclusive_joules: row.inclusive_joules,
            resolved_joules: resolved.0,
            possible_joules: possible(row.exclusive_joules, row.possible_joules),
            exclusive_seconds: seconds(row.exclusive_ticks),
            resolved_seconds: seconds(resolved.1),
            watts: watts(Rate { exclusive, resolved, joules_per_tick: row.joules_per_tick }),
        });
    });
    // In place: there may be a hundred thousand.
    callpaths.sort_unstable_by(Callpath::by_joules);
    report.regions.sort_by(|a, b| {
        b.exclusive_joules.total_cmp(&a.exclusive_joules).then_with(|| name(a.region).cmp(&name(b.region)))
    });
    View {
        view: kind.as_str().to_owned(),
        locations: locations.unwrap_or_default().to_owned(),
        policy: report.policy.as_str().to_owned(),
        sharing: report.sharing.as_str().to_owned(),
        attributed_joules: report.totals.attributed_joules + 0.0, // a sum of nothing is -0
        idle_joules: report.totals.idle_joules,
        lost_joules: report.totals.lost_joules,
        conservation_error_joules: report.totals.conservation_error_joules,
        callpaths,
        regions: report
            .regions
            .into_iter()
            .map(|row| {
                let exclusive = (row.exclusive_joules, row.exclusive_ticks);
                let resolved = resolved(exclusive, (row.resolved_joules, row.resolved_ticks));
                Region {
                    region: name(row.region),
                    calls: row.calls,
                    exclusive_joules: row.exclusive_joules,
                    inclusive_joules: row.inclusive_joules,
                    resolved_joules: resolved.0,
                    possible_joules: possible(row.exclusive_joules, row.possible_joules),
                    exclusive_seconds: seconds(row.exclusive_ticks),
                    resolved_seconds: seconds(resolved.1),
                    watts: watts(Rate { exclusive, resolved, joules_per_tick: row.joules_per_tick }),
                }
            })
            .collect(),
    }
}

/// What a row's watts are made from: (joules, ticks).
struct Rate {
    exclusive: (f64, u64),
    resolved: (f64, u64),
    joules_per_tick: Option<(f64, f64)>,
}

impl Rate {
    fn watts(&self, ticks_per_second: f64, sample_seconds: f64) -> Watts {
        let seconds = |ticks: u64| ticks as f64 / ticks_per_second;
        let least = LEAST_RESOLVED_SAMPLES * sample_seconds;
        let resolved = self.resolved.1 > 0 && seconds(self.resolved.1) >= least;
        let over = |(joules, ticks): (f64, u64)| (resolved && ticks > 0).then(|| joules / seconds(ticks));
        Watts {
            mean_watts: over(self.exclusive),
            resolved_watts: over(self.resolved),
            min_watts: self.joules_per_tick.map(|(least, _)| least * ticks_per_second),
            max_watts: self.joules_per_tick.map(|(_, most)| most * ticks_per_second),
        }
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
