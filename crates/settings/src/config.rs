//! The settings of a run, checked and ready for use.

use crate::custom::CustomSource;
use crate::device::DeviceSetting;
use crate::value::{Cpus, GaugePeriod, Locations, StackPeriod};
use ampere_attribution::{Policy, Sharing};
use ampere_model::CountedEvent;
use std::path::PathBuf;
use std::time::Duration;

/// All settings that the collector and the attribution use. The parts are the tables of `ampere.toml`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The `[[device]]` sections, in the file's order: the first that matches a metric applies.
    pub devices: Vec<DeviceSetting>,
    /// The division of joules among consumers.
    pub attribution: AttributionSettings,
    /// The periods of reading the hardware.
    pub sampler: SamplerSettings,
    /// The limits on plausible readings of counters.
    pub counters: CounterLimits,
    /// The counters to open, and their parameters.
    pub sources: SourceSettings,
    /// The metrics that are served while the job runs.
    pub metrics: MetricsSettings,
    /// Whether a trace is written.
    pub trace: bool,
    /// Whether the trace has the power that is attributed to each location.
    pub trace_power: bool,
    /// The directory for records until the trace is written; `None` for a local disk of the node, if there is one.
    pub spool: Option<PathBuf>,
    /// Whether the user's group may write into the directories that ampere makes for results.
    pub group_writable: bool,
    /// Whether rank n of a node is assumed to use GPU n if its GPU is not known otherwise.
    pub by_local_rank: bool,
    /// What the energy means for the site.
    pub site: SiteSettings,
    /// The CPUs on which the collector runs. `None`: those on which `ampere run` was started, or else those of the job's control
    /// group.
    pub cpus: Option<Cpus>,
    /// Variables of counter sources that are ignored because of their values, one line each.
    pub left_out: Vec<String>,
}

/// The table `[attribution]` of the file.
#[derive(Clone, Debug)]
pub struct AttributionSettings {
    /// How the joules of a sample interval are divided among its frames. `None`: by activity if that is known, otherwise by time.
    pub policy: Option<Policy>,
    /// Whether consumers that run at the same time split the joules.
    pub sharing: Sharing,
    /// The threads whose frames count for a rank.
    pub locations: Locations,
    /// Whether dynamic joules are divided between the run and other jobs.
    pub other_jobs: bool,
    /// Whether time is attributed like a counter.
    pub time: bool,
    /// The time after its timestamp within which an event may arrive without being late. Normally it arrives within microseconds;
    /// it takes longer if its thread loses its core before it has written the event.
    pub slack: Duration,
    /// A GPU stream without events for this time is assumed to be idle. `None`: [`Config::STREAM_LAG`], or, in a replay, the time
    /// that its streams need.
    pub stream_lag: Option<Duration>,
    /// The maximum error of one node's times on the clock of another. `None`: it depends on the program that wrote the trace.
    pub clock_error: Option<Duration>,
    /// Whether a run computes, at its end, the energy that ranks used while they waited in MPI.
    pub waits: bool,
}

/// The table `[sampler]` of the file.
#[derive(Clone, Debug)]
pub struct SamplerSettings {
    /// The period of reading a counter that is about to change.
    pub period: Duration,
    /// The period of reading devices' gauges: figures that they report in addition to their energy.
    pub gauges: GaugePeriod,
    /// The period of sampling threads' stacks. `None`: `auto` if `ampere run` measures, otherwise never.
    pub stacks: Option<StackPeriod>,
    /// The events that are counted in each thread and read with each sample of its stack.
    pub events: Vec<CountedEvent>,
}

/// The table `[counters]`: limits on plausible readings.
#[derive(Clone, Debug)]
pub struct CounterLimits {
    /// No device draws more than this. `None`: the limit for the device's kind if the metric is defined as an energy or a power,
    /// otherwise no limit.
    pub watts_max: Option<f64>,
    /// An interval that is longer than a second, and longer than this multiple of the usual one, is a gap: its joules are lost.
    /// `None`: no interval is a gap.
    pub gap: Option<f64>,
    /// A counter that has not changed for this time is stale.
    pub stale: Duration,
}

/// The counter sources to open, and their parameters: the table `[estimate]`, the sections `[[source]]`, and variables.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Names of sources among [`ampere_model::COUNTER_SOURCES`]. `None`: all that have a usable device, or else the estimate.
    pub names: Option<Vec<&'static str>>,
    /// The counters that the user has defined.
    pub custom: Vec<CustomSource>,
    /// The watts of the node when nothing runs. A one-socket server with its memory, board, fans and supply, without GPUs, draws
    /// 80 to 150 W.
    pub idle_watts: f64,
    /// The additional watts of a busy core. 64-core server CPUs are rated 280 W and draw a tenth of that when idle, so 4 W per
    /// core. The few fast cores of a desktop draw two to three times as much. "Core" means a CPU of Linux: halve the figure if
    /// hyper-threads are enabled and used.
    pub watts_per_core: f64,
    /// The file of librocm_smi64; `None` searches for it. If a library is named, it is called even if no GPU is visible.
    pub rocm_smi_library: Option<PathBuf>,
    /// The file of libamd_smi; `None` searches for it.
    pub amdsmi_library: Option<PathBuf>,
    /// The file of libnvidia-ml; `None` searches for it.
    pub nvml_library: Option<PathBuf>,
    /// Microjoules per tick of AMD GPUs' counters, instead of the library's figure. The kernel's headers have 2^-16 J =
    /// 15.2587890625 uJ.
    pub rocm_smi_resolution_microjoules: Option<f64>,
    /// The directory that contains `proc`, `sys` and `dev`. Vendors' libraries do not use it, but always read `/sys`.
    pub sys_root: PathBuf,
}

/// The table `[metrics]` of the file.
#[derive(Clone, Debug)]
pub struct MetricsSettings {
    /// The maximum number of series of one metric; the others are summed as "other".
    pub most_series: usize,
    /// The file with the token that requests for metrics must present; `None` if none is needed.
    pub token_file: Option<PathBuf>,
    /// Further names that requests may use for this node; `*` allows any.
    pub allowed_hosts: Vec<String>,
    /// The directory in which collectors register for Prometheus.
    pub targets: Option<PathBuf>,
    /// The OpenTelemetry collector to which the energy is sent: a URL, or "on".
    pub otlp: Option<String>,
}

/// The table `[site]` of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteSettings {
    /// The power usage effectiveness: the energy of the whole facility for each joule of its computers. `None`: 1.
    pub pue: Option<f64>,
    /// The grams of carbon dioxide for a kilowatt-hour.
    pub grams_per_kwh: Option<f64>,
    /// The price of a kilowatt-hour.
    pub price_per_kwh: Option<f64>,
    /// The name of the price's currency.
    pub currency: Option<String>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            devices: Vec::new(),
            attribution: AttributionSettings {
                policy: None,
                sharing: Sharing::default(),
                locations: Locations::default(),
                other_jobs: true,
                time: false,
                slack: Duration::from_millis(100),
                stream_lag: None,
                clock_error: None,
                waits: true,
            },
            sampler: SamplerSettings {
                period: Duration::from_millis(1),
                gauges: GaugePeriod(Some(Duration::from_secs(1))),
                stacks: None,
                events: Vec::new(),
            },
            counters: CounterLimits { watts_max: None, gap: None, stale: Duration::from_secs(10) },
            sources: SourceSettings::default(),
            metrics: MetricsSettings {
                most_series: 2000,
                token_file: None,
                allowed_hosts: Vec::new(),
                targets: None,
                otlp: None,
            },
            trace: true,
            trace_power: true,
            spool: None,
            group_writable: false,
            by_local_rank: false,
            site: SiteSettings::default(),
            cpus: None,
            left_out: Vec::new(),
        }
    }
}

impl Default for SourceSettings {
    fn default() -> SourceSettings {
        SourceSettings {
            names: None,
            custom: Vec::new(),
            idle_watts: 100.0,
            watts_per_core: 4.0,
            rocm_smi_library: None,
            amdsmi_library: None,
            nvml_library: None,
            rocm_smi_resolution_microjoules: None,
            sys_root: PathBuf::from("/"),
        }
    }
}

impl Config {
    /// The default time for which a silent GPU stream is waited for.
    pub const STREAM_LAG: Duration = Duration::from_secs(60);
}
