//! The table of settings.

use crate::config::Config;
use crate::error::WrongValue;
use crate::names::{is_misspelt, nearest};
use crate::value::{Value, Within, Written, alternatives};
use std::path::Path;
use std::time::Duration;

/// The prefix of the names of ampere's variables.
pub const PREFIX: &str = "AMPERE_";

/// A row of the table.
#[derive(Clone, Copy)]
pub struct Setting {
    /// The table and the key in `ampere.toml`; `None` if only the environment can set it.
    pub key: Option<(&'static str, &'static str)>,
    /// The environment variable, which takes precedence over the file.
    pub variable: &'static str,
    /// The description, a sentence of Markdown.
    pub about: &'static str,
    /// The default, as text. If it is empty, the text is made from [`Config::default`].
    default: &'static str,
    pub(crate) within: Within,
    /// The reaction to a variable that cannot be used.
    pub if_wrong: IfWrong,
    pub(crate) keeper: Keeper,
}

/// The reaction to a variable that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfWrong {
    /// Every part of ampere refuses it.
    Refused,
    /// `ampere run` refuses it. The collector ignores it, with a note, because under Score-P alone the program is already
    /// running.
    RefusedByRun,
    /// The value is ignored, with a note.
    LeftOut,
}

/// The part of ampere that stores a setting's value.
#[derive(Clone, Copy)]
pub(crate) enum Keeper {
    Config(fn(&mut Config) -> &mut dyn Value),
    /// The part of ampere that reads the variable: the plugin, the host or the command line.
    Elsewhere(Form),
    /// The part of ampere that reads the variable. Only tests set it, and ampere itself for its other processes.
    Internal,
}

/// The possible content of a variable that is read elsewhere.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Text(&'static str),
    Words(&'static [&'static str]),
    Whole,
    File,
}

const fn file(table: &'static str, key: &'static str, variable: &'static str) -> Setting {
    Setting { key: Some((table, key)), ..variable_only(variable) }
}

const fn variable_only(variable: &'static str) -> Setting {
    Setting {
        key: None,
        variable,
        about: "",
        default: "",
        within: Within::Anything,
        if_wrong: IfWrong::Refused,
        keeper: Keeper::Internal,
    }
}

const fn elsewhere(variable: &'static str, form: Form) -> Setting {
    Setting { keeper: Keeper::Elsewhere(form), if_wrong: IfWrong::LeftOut, ..variable_only(variable) }
}

/// The variable that names the recorder of the run's calls. `ampere run --recorder scorep` sets it to `scorep`.
pub const ENV_RECORDER: &str = "AMPERE_RECORDER";

/// All settings, except the keys of a `[[device]]` and of a `[[source]]`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        about: "How the joules of a sample interval are divided among frames: by activity, evenly over time, or only among the frames that ran.",
        default: "`\"active\"` if the CPU times, or the kernels of a GPU, are known; otherwise time_sliced",
        keeper: Keeper::Config(|config| &mut config.attribution.policy),
        ..file("attribution", "policy", "AMPERE_POLICY")
    },
    Setting {
        about: "Whether consumers that run at the same time split the joules, or each gets all of them.",
        keeper: Keeper::Config(|config| &mut config.attribution.sharing),
        ..file("attribution", "sharing", "AMPERE_SHARING")
    },
    Setting {
        about: "The threads whose frames count for a rank: its main thread, or all threads in equal shares.",
        keeper: Keeper::Config(|config| &mut config.attribution.locations),
        ..file("attribution", "locations", "AMPERE_LOCATIONS")
    },
    Setting {
        about: "Divides the dynamic joules of measured counters of processors and nodes between the run and other jobs, by their CPU time.",
        keeper: Keeper::Config(|config| &mut config.attribution.other_jobs),
        ..file("attribution", "other_jobs", "AMPERE_OTHER_JOBS")
    },
    Setting {
        about: "Attributes time like a counter as well, as the device `time`.",
        keeper: Keeper::Config(|config| &mut config.attribution.time),
        ..file("attribution", "time", "AMPERE_TIME")
    },
    Setting {
        about: "How long after its timestamp an event may arrive without being late.",
        keeper: Keeper::Config(|config| &mut config.attribution.slack),
        ..file("attribution", "slack", "AMPERE_SLACK")
    },
    Setting {
        about: "How long a GPU stream may be silent before it is assumed to be idle.",
        default: "`\"60s\"`; in a replay, the time that the trace's streams need",
        keeper: Keeper::Config(|config| &mut config.attribution.stream_lag),
        ..file("attribution", "stream_lag", "AMPERE_STREAM_LAG")
    },
    Setting {
        about: "The maximum error of one node's times on the clock of another: a wait for a rank of another node counts only if it is longer than twice this.",
        default: "`\"1ms\"` in ampere's own traces, otherwise 0",
        keeper: Keeper::Config(|config| &mut config.attribution.clock_error),
        ..file("attribution", "clock_error", "AMPERE_CLOCK_ERROR")
    },
    Setting {
        about: "Whether a run with several ranks computes, at its end, the energy that they used while they waited for each other: this reads the trace once more. A trace with more than 16 million events is not read again.",
        keeper: Keeper::Config(|config| &mut config.attribution.waits),
        ..file("attribution", "waits", "AMPERE_WAITS")
    },
    Setting {
        about: "How often a counter that is about to change is read.",
        within: Within::Times(Duration::from_micros(100), Duration::from_secs(10)),
        keeper: Keeper::Config(|config| &mut config.sampler.period),
        ..file("sampler", "period", "AMPERE_SAMPLE_PERIOD")
    },
    Setting {
        about: "How often the temperature and other figures of devices are read.",
        within: Within::Times(Duration::from_millis(100), Duration::from_secs(3600)),
        keeper: Keeper::Config(|config| &mut config.sampler.gauges),
        ..file("sampler", "gauges", "AMPERE_GAUGES")
    },
    Setting {
        about: "A thread's stack is sampled each time it has used this much CPU time: call paths of programs that are not \
                instrumented. `auto`: at least 1 ms, and up to 10 ms if samples would otherwise cost more than 1 % of that time; \
                twice as much after 2 s, and again after 10 s and 60 s. \
                The same as `--sample` of `ampere run`.",
        default: "`\"auto\"` with `ampere run`, `\"off\"` without",
        within: Within::Times(Duration::from_micros(100), Duration::from_millis(100)),
        keeper: Keeper::Config(|config| &mut config.sampler.stacks),
        ..file("sampler", "stacks", "AMPERE_SAMPLE")
    },
    Setting {
        about: "Events that are counted in each sampled thread and read with each sample of its stack, such as instructions; `on`: all \
                that have a name. What the machine cannot count is absent, and a note says why. Off by default: a program's own \
                tools use the same counters of the processor.",
        keeper: Keeper::Config(|config| &mut config.sampler.events),
        ..file("sampler", "hardware_counters", "AMPERE_HARDWARE_COUNTERS")
    },
    Setting {
        about: "The highest power of a device: a reading that would mean more watts is a misreading.",
        default: "from the device's kind, if the metric is an energy or a power by its definition: 2 kW for a GPU, 1 kW for a package, cores or memory, 20 kW for a node and everything else; otherwise no limit",
        within: Within::Above(0.0),
        keeper: Keeper::Config(|config| &mut config.counters.watts_max),
        ..file("counters", "watts_max", "AMPERE_COUNTER_WATTS_MAX")
    },
    Setting {
        about: "An interval between samples that is longer than a second and than this multiple of the usual one is a gap, whose joules are lost.",
        default: "no interval is a gap",
        within: Within::AtLeast(1.0),
        keeper: Keeper::Config(|config| &mut config.counters.gap),
        ..file("counters", "gap", "AMPERE_COUNTER_GAP")
    },
    Setting {
        about: "A counter that has not changed for this time is reported as stale.",
        keeper: Keeper::Config(|config| &mut config.counters.stale),
        ..file("counters", "stale", "AMPERE_COUNTER_STALE")
    },
    Setting {
        about: "Whether a trace is written. Without one, there are also no records on disk from which a killed run could be finished.",
        keeper: Keeper::Config(|config| &mut config.trace),
        ..file("trace", "write", "AMPERE_TRACE")
    },
    Setting {
        about: "Whether the trace contains the power that is attributed to each rank and GPU stream, as a metric of its location.",
        keeper: Keeper::Config(|config| &mut config.trace_power),
        ..file("trace", "power", "AMPERE_TRACE_POWER")
    },
    Setting {
        about: "The directory for records until the trace is written, on a disk of the node's own. It is made if it is not there; each \
                run and node has a directory of its own in it.",
        default: "`$TMPDIR` or `/tmp`, if it is on a disk; else the output directory, or memory if that is on a shared file system",
        keeper: Keeper::Config(|config| &mut config.spool),
        ..file("spool", "directory", "AMPERE_SPOOL_DIRECTORY")
    },
    Setting {
        about: "Lets the group write into directories that are made for results, as far as the umask allows: its members can \
                replace results.",
        keeper: Keeper::Config(|config| &mut config.group_writable),
        ..file("output", "group_writable", "AMPERE_GROUP_WRITABLE")
    },
    Setting {
        about: "Watts of the node when nothing runs, for the estimate.",
        within: Within::AtLeast(0.0),
        if_wrong: IfWrong::RefusedByRun,
        keeper: Keeper::Config(|config| &mut config.sources.idle_watts),
        ..file("estimate", "idle_watts", "AMPERE_ESTIMATE_IDLE_WATTS")
    },
    Setting {
        about: "Additional watts of each busy core, for the estimate.",
        within: Within::AtLeast(0.0),
        if_wrong: IfWrong::RefusedByRun,
        keeper: Keeper::Config(|config| &mut config.sources.watts_per_core),
        ..file("estimate", "watts_per_core", "AMPERE_ESTIMATE_WATTS_PER_CORE")
    },
    Setting {
        about: "The power usage effectiveness of the site: the joules of the whole facility for each joule of its computers.",
        default: "1, if another setting of the site is given",
        within: Within::AtLeast(1.0),
        keeper: Keeper::Config(|config| &mut config.site.pue),
        ..file("site", "pue", "AMPERE_PUE")
    },
    Setting {
        about: "The grams of carbon dioxide that a kilowatt-hour of the facility causes.",
        default: "results have no grams",
        within: Within::AtLeast(0.0),
        keeper: Keeper::Config(|config| &mut config.site.grams_per_kwh),
        ..file("site", "grams_per_kwh", "AMPERE_GRAMS_PER_KWH")
    },
    Setting {
        about: "The price of a kilowatt-hour of the facility.",
        default: "results have no price",
        within: Within::AtLeast(0.0),
        keeper: Keeper::Config(|config| &mut config.site.price_per_kwh),
        ..file("site", "price_per_kwh", "AMPERE_PRICE_PER_KWH")
    },
    Setting {
        about: "The currency of that price, such as EUR.",
        default: "prices have no currency",
        keeper: Keeper::Config(|config| &mut config.site.currency),
        ..file("site", "currency", "AMPERE_CURRENCY")
    },
    Setting {
        about: "Assumes that rank n of a node uses GPU n, if nothing else shows which GPU it uses.",
        keeper: Keeper::Config(|config| &mut config.by_local_rank),
        ..file("topology", "by_local_rank", "AMPERE_BY_LOCAL_RANK")
    },
    Setting {
        about: "The CPUs on which the collector runs.",
        default: "those on which `ampere run` was started, else the CPU set of the job's control group",
        keeper: Keeper::Config(|config| &mut config.cpus),
        ..file("collector", "cpus", "AMPERE_COLLECTOR_CPUS")
    },
    Setting {
        about: "The maximum number of series of one metric; the others are summed as `other`.",
        keeper: Keeper::Config(|config| &mut config.metrics.most_series),
        ..file("metrics", "most_series", "AMPERE_MOST_SERIES")
    },
    Setting {
        about: "A file whose content requests for metrics must present as a bearer token.",
        default: "no token is required",
        keeper: Keeper::Config(|config| &mut config.metrics.token_file),
        ..file("metrics", "token_file", "AMPERE_TOKEN_FILE")
    },
    Setting {
        about: "Further names that requests may use for this node; `*` allows any.",
        default: "its own names and addresses only",
        keeper: Keeper::Config(|config| &mut config.metrics.allowed_hosts),
        ..file("metrics", "allowed_hosts", "AMPERE_ALLOWED_HOSTS")
    },
    Setting {
        about: "A directory in which each collector has a file with its address while it serves, for Prometheus' `file_sd_configs`.",
        default: "no such file is written",
        keeper: Keeper::Config(|config| &mut config.metrics.targets),
        ..file("metrics", "targets", "AMPERE_TARGETS")
    },
    Setting {
        about: "Sends the energy of devices, ranks and regions to this OpenTelemetry collector every 10 s, as OTLP over HTTP: \
                `http://localhost:4318`; `on`: where `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT` \
                says. Without this setting nothing is sent, whatever these variables are.",
        default: "nothing is sent",
        keeper: Keeper::Config(|config| &mut config.metrics.otlp),
        ..file("metrics", "otlp", "AMPERE_OTLP")
    },
    Setting {
        about: "The counter sources that are opened.",
        default: "auto: all that have a usable device, else the estimate",
        if_wrong: IfWrong::RefusedByRun,
        keeper: Keeper::Config(|config| &mut config.sources.names),
        ..variable_only("AMPERE_COUNTERS")
    },
    Setting {
        about: "The librocm_smi64 to load.",
        default: "the one that is found",
        if_wrong: IfWrong::RefusedByRun,
        keeper: Keeper::Config(|config| &mut config.sources.rocm_smi_library),
        ..variable_only("AMPERE_ROCM_SMI_LIBRARY")
    },
    Setting {
        about: "The libamd_smi to load.",
        default: "the one that is found",
        if_wrong: IfWrong::RefusedByRun,
        keeper: Keeper::Config(|config| &mut config.sources.amdsmi_library),
        ..variable_only("AMPERE_AMDSMI_LIBRARY")
    },
    Setting {
        about: "The libnvidia-ml to load.",
        default: "the one that is found",
        if_wrong: IfWrong::RefusedByRun,
        keeper: Keeper::Config(|config| &mut config.sources.nvml_library),
        ..variable_only("AMPERE_NVML_LIBRARY")
    },
    Setting {
        about: "Microjoules per tick of AMD GPUs' energy counters.",
        default: "the library's own",
        within: Within::AtLeast(0.0),
        if_wrong: IfWrong::RefusedByRun,
        keeper: Keeper::Config(|config| &mut config.sources.rocm_smi_resolution_microjoules),
        ..variable_only("AMPERE_ROCM_SMI_RESOLUTION_UJ")
    },
    Setting {
        about: "The `ampere.toml` to read, like `--config`.",
        default: "none",
        ..elsewhere("AMPERE_CONFIG", Form::Text("the path of a file"))
    },
    Setting {
        about: "The directory of the results, like `--output`.",
        default: "`./ampere-<date>_<time>_<id>`",
        ..elsewhere("AMPERE_OUTPUT", Form::Text("the path of a directory"))
    },
    Setting {
        about: "The address at which /metrics is served, like `--listen`.",
        default: "`127.0.0.1:9977`, or the next free port",
        ..elsewhere("AMPERE_LISTEN", Form::Text("an address, unix:/path, or off"))
    },
    Setting {
        about: "The directory for shared memory, in a tmpfs that all processes of the node see.",
        default: "`/dev/shm`",
        ..elsewhere("AMPERE_SHM", Form::Text("the path of a directory"))
    },
    Setting {
        about: "How calls of tiny functions are recorded: `auto` coalesces them if the collector cannot keep up, or if a thread has more \
                than ten million events a second; `folded` coalesces them from the start; with `all` the program waits.",
        default: "`auto`",
        ..elsewhere("AMPERE_EVENTS", Form::Words(&["auto", "folded", "all"]))
    },
    Setting {
        about: "Bytes of a location's ring, at least 65536. A smaller ring is made if shared memory has no room for it, or if it \
                would take more than half of the memory that the job has left.",
        default: "At most 8 MiB for main threads and GPU streams, 1 MiB for others, 64 KiB from a process' 65th location on; less with \
                  more than 16 ranks, so that a node's rings take no more than 256 MiB",
        ..elsewhere("AMPERE_RING_BYTES", Form::Whole)
    },
    Setting {
        about: "The number of seconds that a program waits for the collector that it starts.",
        default: "10",
        ..elsewhere("AMPERE_START_TIMEOUT", Form::Whole)
    },
    Setting {
        about: "The number of seconds that the node's last process waits for the results.",
        default: "60",
        ..elsewhere("AMPERE_FINALIZE_TIMEOUT", Form::Whole)
    },
    Setting {
        about: "The collector's executable.",
        default: "in the plugin's directory, or in `../../bin`",
        ..elsewhere("AMPERE_COLLECTOR", Form::File)
    },
    Setting {
        about: "The plugin that the embedded host loads.",
        default: "in the host's directory, or in `../lib`",
        ..elsewhere("AMPERE_HOST_PLUGIN", Form::File)
    },
    Setting {
        about: "`off`: what CUDA, HIP and OpenCL run on GPUs is not recorded without Score-P.",
        default: "it is recorded",
        ..elsewhere("AMPERE_GPU", Form::Words(&["on", "off"]))
    },
    Setting {
        about: "`1`: nothing is measured, and `ampere run` is replaced by the command.",
        default: "ampere measures",
        ..elsewhere("AMPERE_DISABLE", Form::Text("0 or 1"))
    },
    Setting { about: "The session that a process belongs to.", ..variable_only("AMPERE_SESSION") },
    Setting {
        about: "The library that `ampere.h` and its modules for Fortran and Python look for.",
        ..variable_only("AMPERE_INTERFACE")
    },
    Setting {
        about: "The boot id of the node on which the session is.",
        ..variable_only("AMPERE_SESSION_BOOT")
    },
    Setting { about: "What must record the run's calls, like `--recorder`.", ..variable_only(ENV_RECORDER) },
    Setting {
        about: "The directory of `proc`, `sys` and `dev`, for tests.",
        if_wrong: IfWrong::RefusedByRun,
        keeper: Keeper::Config(|config| &mut config.sources.sys_root),
        ..variable_only("AMPERE_SYS_ROOT")
    },
];

/// Returns the row of the table for a variable.
pub fn setting(variable: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.variable == variable)
}

impl Setting {
    /// Returns the setting that a mistyped name probably means, if one is similar enough.
    pub fn meant_by(variable: &str) -> Option<&'static Setting> {
        let known = SETTINGS.iter().map(|setting| setting.variable);
        let nearest = nearest(variable, known)?;
        let letters = nearest.len() - PREFIX.len();
        setting(nearest).filter(|_| is_misspelt(variable, nearest, letters))
    }

    /// Checks whether the variable's value can be used. An empty value of a setting that is read elsewhere counts as not set.
    ///
    /// # Errors
    /// Returns the reason why the value cannot be used.
    pub fn check(&self, value: &str) -> Result<(), WrongValue> {
        let trimmed = value.trim();
        match self.keeper {
            Keeper::Config(place) => {
                place(&mut Config::default()).read(&Written::Variable(value), &self.within)
            }
            Keeper::Elsewhere(_) if trimmed.is_empty() => Ok(()),
            Keeper::Elsewhere(Form::Words(words)) if !words.contains(&trimmed) => {
                Err(WrongValue::Word { found: value.to_owned(), words: alternatives(words) })
            }
            Keeper::Elsewhere(Form::Whole) => {
                trimmed.parse::<u64>().map(drop).map_err(|_| WrongValue::Whole(value.to_owned()))
            }
            Keeper::Elsewhere(Form::File) if !Path::new(value).is_file() => {
                Err(WrongValue::File(value.to_owned()))
            }
            Keeper::Elsewhere(_) | Keeper::Internal => Ok(()),
        }
    }

    pub(crate) fn allowed(&self) -> String {
        match (self.keeper, self.within) {
            (Keeper::Config(_), Within::AtLeast(_) | Within::Above(_)) => self.within.to_string(),
            (Keeper::Config(place), Within::Anything) => place(&mut Config::default()).allowed(),
            (Keeper::Config(place), Within::Times(..)) => {
                format!("{}: {}", place(&mut Config::default()).allowed(), self.within)
            }
            (Keeper::Elsewhere(Form::Text(text)), _) => text.to_owned(),
            (Keeper::Elsewhere(Form::Words(words)), _) => alternatives(words),
            (Keeper::Elsewhere(Form::Whole), _) => "a whole number".to_owned(),
            (Keeper::Elsewhere(Form::File), _) => "the path of a file".to_owned(),
            (Keeper::Internal, _) => String::new(),
        }
    }

    /// Describes the default.
    pub(crate) fn default(&self) -> String {
        match self.keeper {
            Keeper::Config(place) if self.default.is_empty() => {
                let shown = place(&mut Config::default()).shown().unwrap_or_default();
                format!("`{shown}`")
            }
            _ => self.default.to_owned(),
        }
    }

    /// Whether the setting is only for ampere's own processes and tests.
    pub(crate) fn is_internal(&self) -> bool {
        matches!(self.keeper, Keeper::Internal) || self.variable == "AMPERE_SYS_ROOT"
    }
}
