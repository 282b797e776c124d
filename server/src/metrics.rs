//! Writes a snapshot as OpenMetrics text, encoded by prometheus-client.
//!
//! [`METRICS`] and the tables of losses list all metrics with their names, units, labels and help texts. All series of a scrape
//! come from the same snapshot, so that their sums are consistent.

use ampere_counters::Quantity;
use ampere_figures::losses::{GpuClocks, ReadingLosses, RecordLosses};
use ampere_figures::nodes::job::{Job, NodeLine, NodeState};
use ampere_figures::snapshot::{DeviceFigures, RankFigures, Snapshot};
use ampere_figures::summary::{NodeCpu, Readings, SamplerOverhead};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The content type of [`encode`]'s text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Longer values of labels are cut, because names of functions come from the application and can have any length.
const LABEL_BYTES_MAX: usize = 512;

/// The typical length of a line, used to allocate the memory of the text at once.
const TYPICAL_SERIES_BYTES: usize = 128;

/// Encodes a snapshot as OpenMetrics text. A metric without series is left out. `job` has the figures of a run on several
/// nodes. `names_job`: the batch system's job is named.
pub fn encode(snapshot: Arc<Snapshot>, job: Option<Arc<Job>>, names_job: bool) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    let series = snapshot.region_energy.len() + snapshot.kernel_energy.len() + 2 * snapshot.region_time.len();
    let mut body = String::with_capacity(TYPICAL_SERIES_BYTES * series + (16 << 10));
    registry.register_collector(Box::new(Scrape { snapshot, job, names_job }));
    text::encode(&mut body, &registry)?;
    Ok(body)
}

/// An exported metric. Every series has the label `node`, which is this node unless [`Metric::labels`] has it.
#[derive(Clone, Debug)]
pub struct Metric {
    /// The name without the unit and `_total`, which prometheus-client appends.
    stem: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
    /// Names of the labels. `node` is among them only if the metric has series of other nodes.
    pub labels: &'static [&'static str],
    /// The meaning of the metric, in one line.
    pub help: &'static str,
    series: Values,
}

#[derive(Clone, Copy, Debug)]
enum Values {
    Of(fn(&Scrape) -> Series<'_>),
    OfRanks(fn(&RecordLosses) -> u64),
    OfDevices(fn(&ReadingLosses) -> u64),
}

/// Returns all metrics: first those in [`METRICS`], then a counter for each count of losses.
pub fn all() -> impl Iterator<Item = Metric> {
    let of_ranks = RecordLosses::ALL.iter().map(|count| Metric {
        series: Values::OfRanks(count.get),
        ..counter(count.metric, None, &["rank"], count.help, |_| Vec::new())
    });
    let of_devices = ReadingLosses::ALL.iter().map(|count| Metric {
        series: Values::OfDevices(count.get),
        ..counter(count.metric, None, &["device"], count.help, |_| Vec::new())
    });
    METRICS.iter().cloned().chain(of_ranks).chain(of_devices)
}

impl Metric {
    /// Returns the name of the metric's series in a scrape, such as `ampere_device_energy_joules_total`.
    pub fn name(&self) -> String {
        let unit = self.unit.as_ref().map_or_else(String::new, |unit| format!("_{}", unit.as_str()));
        let total = if self.is_counter() { "_total" } else { "" };
        format!("{}{unit}{total}", self.stem)
    }

    /// Whether the metric is a counter; otherwise it is a gauge.
    pub fn is_counter(&self) -> bool {
        matches!(self.kind, MetricType::Counter)
    }

    /// Whether the metric has series of other nodes, too.
    pub fn names_node(&self) -> bool {
        self.labels.first() == Some(&"node")
    }

    fn encode(&self, scrape: &Scrape, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let series = match self.series {
            Values::Of(series) => series(scrape),
            Values::OfRanks(count) => scrape.per_rank(|rank| count(&rank.losses) as f64),
            Values::OfDevices(count) => scrape.per_device(|device| count(&device.counter.losses) as f64),
        };
        if series.is_empty() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(self.stem, self.help, self.unit.as_ref(), self.kind)?;
        for (values, value) in series {
            let mut labels = Vec::with_capacity(1 + self.labels.len());
            if !self.names_node() {
                labels.push(("node", scrape.snapshot.node.as_str()));
            }
            let values: Vec<Cow<str>> = values.into_iter().map(bounded).collect();
            labels.extend(self.labels.iter().copied().zip(values.iter().map(AsRef::as_ref)));
            let metric = family.encode_family(&labels)?;
            match self.kind {
                MetricType::Gauge => ConstGauge::new(value).encode(metric)?,
                _ => ConstCounter::new(value).encode(metric)?,
            }
        }
        Ok(())
    }
}

/// Returns a label's value. A long value is cut. Then a number is appended that differs between values and is the same in every
/// scrape.
fn bounded(value: &str) -> Cow<'_, str> {
    if value.len() <= LABEL_BYTES_MAX {
        return Cow::Borrowed(value);
    }
    let hash = ampere_model::text::fnv1a(value.bytes());
    let room = LABEL_BYTES_MAX - "...#".len() - 16;
    let begin = (0..=room).rev().find(|at| value.is_char_boundary(*at)).unwrap_or(0);
    Cow::Owned(format!("{}...#{hash:016x}", &value[..begin]))
}

/// The series of a metric. Each has the values of its labels, in the order of [`Metric::labels`], and its value.
type Series<'a> = Vec<(Vec<&'a str>, f64)>;

const fn counter(
    stem: &'static str,
    unit: Option<Unit>,
    labels: &'static [&'static str],
    help: &'static str,
    series: fn(&Scrape) -> Series<'_>,
) -> Metric {
    Metric { stem, unit, kind: MetricType::Counter, labels, help, series: Values::Of(series) }
}

/// Makes a gauge, whose unit is a part of its name.
const fn gauge(
    stem: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    series: fn(&Scrape) -> Series<'_>,
) -> Metric {
    Metric { stem, unit: None, kind: MetricType::Gauge, labels, help, series: Values::Of(series) }
}

const JOULES: Option<Unit> = Some(Unit::Joules);
const SECONDS: Option<Unit> = Some(Unit::Seconds);

/// All metrics except the counts of losses, in the order in which they are exported.
#[rustfmt::skip]
static METRICS: &[Metric] = &[
    // The label `energy` is the quality of the figure: a figure with energy="estimated" is not a measurement.
    counter(
        "ampere_device_energy", JOULES, &["device", "energy"],
        "Energy of a device since the start of the run, as of the last attributed sample",
        |s| s.per_device_with_quality(|d| Some(d.joules)),
    ),
    gauge(
        "ampere_device_power_watts", &["device", "energy"],
        "Power of a device over the last second that was sampled; absent if that is too long ago",
        |s| s.per_device_with_quality(|d| d.watts),
    ),
    gauge(
        "ampere_device_baseline_watts", &["device", "kind"],
        "Power that a device draws without the job; kind is the origin of the figure; absent if it is not known",
        Scrape::baselines,
    ),
    gauge(
        "ampere_device_info", &["device", "source", "energy", "kind", "within"],
        "1; the labels are the source of a device's energy figures, its kind, and the device that also contains its joules",
        |s| s.snapshot.devices.iter().map(|d| (vec![&*d.device, &d.source, &d.energy, &d.kind, &d.within], 1.0)).collect(),
    ),
    gauge(
        "ampere_device_reported_power_watts", &["device", "kind"],
        "Power of a device as the device reports it; kind is average or current",
        |s| s.reported(Quantity::Power),
    ),
    gauge(
        "ampere_device_temperature_celsius", &["device", "sensor"],
        "Temperature of a device's sensor as the device reports it",
        |s| s.reported(Quantity::Temperature),
    ),
    gauge(
        "ampere_device_busy_ratio", &["device"],
        "Fraction of the time in which a device computes, as the device reports it",
        |s| s.reported(Quantity::Busy),
    ),
    gauge(
        "ampere_device_memory_used_bytes", &["device"],
        "Used memory of a device, as the device reports it",
        |s| s.reported(Quantity::MemoryUsed),
    ),
    gauge(
        "ampere_device_memory_size_bytes", &["device"],
        "Size of a device's memory, as the device reports it",
        |s| s.reported(Quantity::MemorySize),
    ),
    gauge(
        "ampere_device_clock_hertz", &["device"],
        "Clock of a GPU, or mean clock of a package's CPUs, as the device reports it",
        |s| s.reported(Quantity::Clock),
    ),
    gauge(
        "ampere_device_power_limit_watts", &["device"],
        "Power that a device may draw at most, as the device reports it",
        |s| s.reported(Quantity::PowerLimit),
    ),
    gauge(
        "ampere_device_throttled_ratio", &["device", "cause"],
        "Part of the time since the last reading in which a device's clock was lowered, because of a temperature (thermal) or a \
         limit of power (power), as the device reports it",
        |s| s.reported(Quantity::Throttling),
    ),
    gauge(
        "ampere_device_counter_agreement_ratio", &["device", "against", "kind"],
        "Energy by another measurement divided by energy by the device's counter, in the time that both cover",
        Scrape::agreement,
    ),
    counter(
        "ampere_region_energy", JOULES, &["rank", "device", "region"],
        "Exclusive energy of a region on a rank (ranks view)",
        |s| s.snapshot.region_energy.iter().map(|r| (vec![&*r.rank, &r.device, &r.region], r.joules)).collect(),
    ),
    counter(
        "ampere_region_dynamic_energy", JOULES, &["rank", "device", "region"],
        "The dynamic part of ampere_region_energy_joules_total, above what the device always draws; absent if activity is not known",
        Scrape::dynamic_energy,
    ),
    counter(
        "ampere_kernel_energy", JOULES, &["device", "kernel"],
        "Exclusive energy of a GPU kernel (kernels view)",
        |s| s.snapshot.kernel_energy.iter().map(|r| (vec![&*r.device, &r.kernel], r.joules)).collect(),
    ),
    counter(
        "ampere_idle_energy", JOULES, &["device", "view"],
        "Energy used while no consumer of the view was active",
        Scrape::idle_energy,
    ),
    counter(
        "ampere_other_jobs_energy", JOULES, &["device"],
        "The part of the ranks view's idle energy that other jobs on the node used, by their CPU time",
        Scrape::other_jobs_energy,
    ),
    counter(
        "ampere_lost_energy", JOULES, &["device"],
        "Energy that cannot be attributed because of a counter reset or a gap in sampling",
        |s| s.per_device(|d| d.division.lost_joules),
    ),
    gauge(
        "ampere_pending_energy_joules", &["device"],
        "Energy that is not attributed to kernels yet, because GPU streams report late",
        |s| s.per_device(|d| d.division.pending_joules_kernels),
    ),
    counter(
        "ampere_region_calls", None, &["rank", "region"],
        "Calls of a region on a rank's main location",
        |s| s.snapshot.region_time.iter().map(|r| (vec![&*r.rank, &r.region], r.calls as f64)).collect(),
    ),
    counter(
        "ampere_region_time", SECONDS, &["rank", "region"],
        "Exclusive time of a region on a rank's main location",
        |s| s.snapshot.region_time.iter().map(|r| (vec![&*r.rank, &r.region], r.seconds)).collect(),
    ),
    counter(
        "ampere_waiting_energy", JOULES, &["rank", "kind"],
        "Energy that a rank used while it waited in MPI for other ranks of this node",
        |s| s.snapshot.waiting.waited.iter().map(|r| (vec![&*r.rank, &r.kind], r.joules)).collect(),
    ),
    counter(
        "ampere_caused_waiting_energy", JOULES, &["rank", "region"],
        "Energy that ranks of this node used while they waited in MPI for this region of this rank",
        |s| s.snapshot.waiting.caused.iter().map(|r| (vec![&*r.rank, &r.region], r.joules)).collect(),
    ),
    counter(
        "ampere_work_units", None, &["work"],
        "Units of work that the program, or a command of the run, has counted, by name",
        |s| s.snapshot.work.iter().map(|work| (vec![&*work.name], work.units)).collect(),
    ),
    counter(
        "ampere_device_uncovered_seconds", None, &["device"],
        "Time whose energy is unknown: the counter was reset, or its readings were impossible",
        |s| s.per_device(|d| d.counter.uncovered_seconds),
    ),
    counter(
        "ampere_collector_cpu", SECONDS, &[],
        "CPU time of the collector",
        |s| of_node(s.snapshot.collector.collector_cpu_seconds),
    ),
    counter(
        "ampere_run_busy_cpu", SECONDS, &[],
        "CPU time of the run's own processes on this node",
        |s| s.of_node_cpu(|cpu| cpu.own_busy_seconds),
    ),
    counter(
        "ampere_node_busy_cpu", SECONDS, &[],
        "CPU time of all processes on the node since the collector started",
        |s| s.of_node_cpu(|cpu| cpu.node_busy_seconds),
    ),
    gauge(
        "ampere_counter_stale", &["device"],
        "1 if a device's counter has not changed for long: it is frozen, or the device draws nothing",
        |s| s.per_device(|d| f64::from(u8::from(d.counter.stale))),
    ),
    gauge(
        "ampere_ring_fill_ratio", &["rank"],
        "Fill level of a rank's fullest ring",
        |s| s.per_rank(|r| r.ring_fill_ratio),
    ),
    gauge(
        "ampere_lag_seconds", &[],
        "Time by which attribution is behind the application",
        |s| of_node(s.snapshot.collector.lag_seconds),
    ),
    gauge(
        "ampere_conservation_error_joules", &["device"],
        "Difference between a device's energy and the sum of attributed, idle and lost energy; rounding only",
        |s| s.per_device(|d| d.division.conservation_error_joules),
    ),
    gauge(
        "ampere_gpu_clock_error_seconds", &["rank"],
        "Largest error of the times of a rank's kernels, which a GPU's own clock has shown",
        |s| s.per_rank_with_gpus(|clocks| Some(clocks.error_seconds)),
    ),
    gauge(
        "ampere_gpu_clock_drift_ratio", &["rank"],
        "Largest drift of the clock of a rank's GPU, in seconds per second; it is followed",
        |s| s.per_rank_with_gpus(|clocks| clocks.drift_ratio),
    ),
    gauge(
        "ampere_collector_resident_bytes", &[],
        "Resident memory of the collector",
        |s| of_node(s.snapshot.collector.collector_rss_bytes as f64),
    ),
    // In a replay nothing is sampled, so all `ampere_sampler_*` metrics are absent.
    counter(
        "ampere_sampler_readings", None, &["device"],
        "Successful readings of a device's counter",
        |s| s.per_sampled_device(|r| r.readings as f64),
    ),
    counter(
        "ampere_sampler_failed_readings", None, &["device"],
        "Failed readings of a device's counter",
        |s| s.per_sampled_device(|r| r.failed_readings as f64),
    ),
    counter(
        "ampere_sampler_deadlines", None, &[],
        "Number of times that the sampler was due to wake up",
        |s| s.of_sampler(|sampler| sampler.deadlines as f64),
    ),
    counter(
        "ampere_sampler_missed_deadlines", None, &[],
        "Number of times that the sampler woke up more than a millisecond too late",
        |s| s.of_sampler(|sampler| sampler.missed_deadlines as f64),
    ),
    counter(
        "ampere_sampler_read", SECONDS, &["device"],
        "Time that the readings of a device's counter took",
        |s| s.per_sampled_device(|r| r.read_seconds),
    ),
    counter(
        "ampere_sampler_cpu", SECONDS, &[],
        "CPU time of the sampler",
        |s| s.of_sampler(|sampler| sampler.cpu_seconds),
    ),
    counter(
        "ampere_sampler_gauges", SECONDS, &[],
        "Time that reading the devices' gauges took: power, temperature, memory",
        |s| s.of_sampler(|sampler| sampler.gauges_seconds),
    ),
    gauge(
        "ampere_sampler_longest_late_seconds", &[],
        "The longest delay of a wake-up of the sampler",
        |s| s.of_sampler(|sampler| sampler.longest_late_seconds),
    ),
    gauge(
        "ampere_sampler_update_seconds", &["device"],
        "Observed time between two changes of a device's counter; 0 while it is unknown",
        |s| s.per_sampled_device(|r| r.update_seconds),
    ),
    // This is a gauge, because tools for the older text format refuse OpenMetrics' info type.
    gauge(
        "ampere_build_info", &["version"],
        "1; the label version is the version of ampere",
        |_| vec![(vec![env!("CARGO_PKG_VERSION")], 1.0)],
    ),
    gauge(
        "ampere_run_info", &["run", "scheduler", "job_id", "command", "user", "start"],
        "1; the labels are the run, its user and its start, and for the run's user or with a token also the command and the batch \
         system's job",
        Scrape::run_info,
    ),
    // The following metrics exist only on the first node of a run on several nodes. They have their own names, so sums of
    // ampere_device_* over all nodes do not count anything twice.
    counter(
        "ampere_job_energy", JOULES, &[],
        "Energy of all nodes of the run, from the last figures of each; the label node is the node that gathers them",
        |s| s.of_job(|job| Some(job.totals.joules)),
    ),
    gauge(
        "ampere_job_power_watts", &[],
        "Power of those nodes of the run that are still running",
        |s| s.of_job(|job| job.totals.watts),
    ),
    counter(
        "ampere_job_idle_energy", JOULES, &[],
        "Energy of all nodes of the run while no rank was active",
        |s| s.of_job(|job| Some(job.totals.idle_joules)),
    ),
    counter(
        "ampere_job_lost_energy", JOULES, &[],
        "Energy of all nodes of the run that cannot be attributed",
        |s| s.of_job(|job| Some(job.totals.lost_joules)),
    ),
    gauge(
        "ampere_job_nodes", &["state"],
        "Nodes of the run by state: waiting (has not reported yet), running, over (has ended), or gone (no longer answers)",
        Scrape::nodes_by_state,
    ),
    counter(
        "ampere_job_node_energy", JOULES, &["node"],
        "Energy of each node of the run",
        |s| s.per_node(|node| Some(node.joules)),
    ),
    gauge(
        "ampere_job_node_power_watts", &["node"],
        "Power of each node of the run, while it is running",
        |s| s.per_node(|node| node.watts),
    ),
    counter(
        "ampere_job_node_idle_energy", JOULES, &["node"],
        "Energy of each node of the run while no rank was active",
        |s| s.per_node(|node| Some(node.idle_joules)),
    ),
    gauge(
        "ampere_job_node_idle_ratio", &["node"],
        "Part of a node's recent energy that was used while no rank was active",
        |s| s.per_node(|node| node.idle_ratio),
    ),
    counter(
        "ampere_job_rank_energy", JOULES, &["node", "rank"],
        "Exclusive energy of each rank of the run",
        |s| s.in_job(|job| job.ranks.iter().map(|r| (vec![&*r.node, &r.rank], r.joules)).collect()),
    ),
    counter(
        "ampere_job_region_energy", JOULES, &["region"],
        "Exclusive energy of the regions with the most energy on all nodes of the run (ranks view)",
        |s| s.in_job(|job| job.functions.iter().map(|r| (vec![&*r.name], r.joules)).collect()),
    ),
    counter(
        "ampere_job_kernel_energy", JOULES, &["kernel"],
        "Exclusive energy of the GPU kernels with the most energy on all nodes of the run (kernels view)",
        |s| s.in_job(|job| job.kernels.iter().map(|r| (vec![&*r.name], r.joules)).collect()),
    ),
];

/// The figures that one scrape shows.
#[derive(Debug)]
struct Scrape {
    snapshot: Arc<Snapshot>,
    job: Option<Arc<Job>>,
    names_job: bool,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        all().try_for_each(|metric| metric.encode(self, &mut encoder))
    }
}

fn of_node<'a>(value: f64) -> Series<'a> {
    vec![(Vec::new(), value)]
}

impl Scrape {
    fn per_device(&self, value: impl Fn(&DeviceFigures) -> f64) -> Series<'_> {
        self.snapshot.devices.iter().map(|d| (vec![d.device.as_str()], value(d))).collect()
    }

    fn per_device_with_quality(&self, value: impl Fn(&DeviceFigures) -> Option<f64>) -> Series<'_> {
        let known = self.snapshot.devices.iter().filter_map(|d| Some((d, value(d)?)));
        known.map(|(d, value)| (vec![d.device.as_str(), d.energy.as_str()], value)).collect()
    }

    fn per_rank(&self, value: impl Fn(&RankFigures) -> f64) -> Series<'_> {
        self.snapshot.ranks.iter().map(|r| (vec![r.rank.as_str()], value(r))).collect()
    }

    fn per_rank_with_gpus(&self, value: impl Fn(&GpuClocks) -> Option<f64>) -> Series<'_> {
        let known = self.snapshot.ranks.iter().filter_map(|r| Some((r, value(r.gpu_clocks.as_ref()?)?)));
        known.map(|(r, value)| (vec![r.rank.as_str()], value)).collect()
    }

    fn per_sampled_device(&self, value: impl Fn(&Readings) -> f64) -> Series<'_> {
        match self.snapshot.collector.sampler {
            Some(_) => self.per_device(|d| value(&d.readings)),
            None => Vec::new(),
        }
    }

    fn of_sampler(&self, value: impl Fn(&SamplerOverhead) -> f64) -> Series<'_> {
        self.snapshot.collector.sampler.iter().map(|sampler| (Vec::new(), value(sampler))).collect()
    }

    fn of_node_cpu(&self, seconds: impl Fn(&NodeCpu) -> f64) -> Series<'_> {
        self.snapshot.collector.node_cpu.iter().map(|cpu| (Vec::new(), seconds(cpu))).collect()
    }

    /// Returns the gauges of one quantity. The second label, if the metric has it, is the kind of power or the sensor.
    fn reported(&self, quantity: Quantity) -> Series<'_> {
        let mut series = Vec::new();
        for device in &self.snapshot.devices {
            let gauges = device.gauges.iter().filter(|gauge| gauge.quantity == quantity.as_str());
            series.extend(
                gauges.map(|gauge| (vec![device.device.as_str(), gauge.which.as_str()], gauge.value)),
            );
        }
        series
    }

    fn agreement(&self) -> Series<'_> {
        let mut series = Vec::new();
        for device in &self.snapshot.devices {
            for check in &device.checks {
                let labels = vec![device.device.as_str(), check.against.as_str(), check.kind.as_str()];
                series.extend(check.difference_ratio.map(|difference| (labels, 1.0 + difference)));
            }
        }
        series
    }

    fn dynamic_energy(&self) -> Series<'_> {
        let rows = self.snapshot.region_energy.iter();
        let known = rows.filter_map(|row| Some((row, row.dynamic_joules?)));
        known.map(|(row, joules)| (vec![&*row.rank, &row.device, &row.region], joules)).collect()
    }

    fn baselines(&self) -> Series<'_> {
        let devices = self.snapshot.devices.iter();
        let baselines = devices.filter_map(|device| Some((device, &device.active.as_ref()?.baseline)));
        let known = baselines.filter(|(_, baseline)| baseline.is_known());
        known.map(|(device, of)| (vec![device.device.as_str(), of.kind.as_str()], of.watts)).collect()
    }

    fn idle_energy(&self) -> Series<'_> {
        let of_device = |d: &DeviceFigures| {
            [("ranks", d.division.idle_joules_ranks), ("kernels", d.division.idle_joules_kernels)]
        };
        let devices = self.snapshot.devices.iter();
        devices
            .flat_map(|d| of_device(d).map(|(view, joules)| (vec![d.device.as_str(), view], joules)))
            .collect()
    }

    fn other_jobs_energy(&self) -> Series<'_> {
        let shared = self.snapshot.devices.iter().filter(|d| d.division.other_jobs_joules > 0.0);
        shared.map(|d| (vec![d.device.as_str()], d.division.other_jobs_joules)).collect()
    }

    fn in_job<'a>(&'a self, series: impl Fn(&'a Job) -> Series<'a>) -> Series<'a> {
        self.job.as_deref().map_or_else(Vec::new, series)
    }

    fn of_job(&self, value: impl Fn(&Job) -> Option<f64>) -> Series<'_> {
        self.in_job(|job| value(job).map(|value| (Vec::new(), value)).into_iter().collect())
    }

    fn per_node(&self, value: impl Fn(&NodeLine) -> Option<f64>) -> Series<'_> {
        self.in_job(|job| {
            let known = job.nodes.iter().filter_map(|node| Some((vec![node.node.as_str()], value(node)?)));
            known.collect()
        })
    }

    fn nodes_by_state(&self) -> Series<'_> {
        let count = |job: &Job, state| job.nodes.iter().filter(|node| node.state == state).count() as f64;
        self.in_job(|job| {
            NodeState::ALL.into_iter().map(|state| (vec![state.as_str()], count(job, state))).collect()
        })
    }

    fn run_info(&self) -> Series<'_> {
        let of = &*self.snapshot;
        let job = of.job.as_ref().filter(|_| self.names_job);
        let (scheduler, id) = job.map_or(("", ""), |job| (job.scheduler.as_str(), job.id.as_str()));
        let command = if self.names_job { of.command.as_str() } else { "" };
        vec![(vec![of.run.as_str(), scheduler, id, command, of.user.as_str(), of.start.as_str()], 1.0)]
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
