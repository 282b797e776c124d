//! `ampere.toml` and its environment variables.

pub mod checks;
mod cpus;

pub use cpus::Cpus;

use ampere_attribution::{Policy, Sharing};
use ampere_model::text::printable;
use regex::Regex;
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// All settings, checked and ready for use.
#[derive(Clone, Debug)]
pub struct Config {
    pub devices: Vec<DeviceSetting>,
    pub policy: Policy,
    pub sharing: Sharing,
    /// Whose frames are a rank's.
    pub locations: Locations,
    /// Whether time is attributed like a counter.
    pub time: bool,
    /// A GPU stream that has been silent for so long is taken as idle. `None`: [`Config::STREAM_LAG`], and in a replay as
    /// long as its streams need.
    pub stream_lag: Option<Duration>,
    pub sample_period: Duration,
    /// How often devices are asked for what they say beside their energy. `None`: never.
    pub gauges: Option<Duration>,
    /// Whether a trace is written.
    pub trace: bool,
    /// How long after its timestamp an event may be published without being late. It takes microseconds, unless its thread
    /// loses its core in between: that is what this allows for.
    pub slack: Duration,
    pub estimate_idle_watts: Option<f64>,
    pub estimate_watts_per_core: Option<f64>,
    /// More power than this cannot be. `None`: 20 kW for what is an energy by its definition, else no limit.
    pub counter_watts_max: Option<f64>,
    /// An interval so many times as long as the usual one is a gap: its joules are lost. `None`: none is.
    pub counter_gap: Option<f64>,
    /// A counter that has not changed for so long is stale.
    pub counter_stale: Duration,
    /// Most series of one metric; the rest goes to "other".
    pub most_series: usize,
    /// Where nothing says which GPU a rank uses, it is taken to be that of its local rank.
    pub by_local_rank: bool,
    /// Where the collector runs. `None`: wherever the job may.
    pub cpus: Option<Cpus>,
    /// What requests for metrics have to know is in this file. `None`: nothing.
    pub token_file: Option<PathBuf>,
    /// Further names that requests may ask this node by; `*`: any.
    pub allowed_hosts: Vec<String>,
}

/// Which of a process' threads spend what the process gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Locations {
    /// The main one: its frame is the rank's.
    #[default]
    Main,
    /// All that have a frame open, in equal shares.
    All,
}

impl Locations {
    pub fn as_str(self) -> &'static str {
        match self {
            Locations::Main => "main",
            Locations::All => "all",
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            devices: Vec::new(),
            policy: Policy::default(),
            sharing: Sharing::default(),
            locations: Locations::default(),
            time: false,
            stream_lag: None,
            sample_period: Duration::from_millis(1),
            gauges: Some(Duration::from_secs(1)),
            trace: true,
            slack: Duration::from_millis(100),
            estimate_idle_watts: None,
            estimate_watts_per_core: None,
            counter_watts_max: None,
            counter_gap: None,
            counter_stale: Duration::from_secs(10),
            most_series: 2000,
            by_local_rank: false,
            cpus: None,
            token_file: None,
            allowed_hosts: Vec::new(),
        }
    }
}

/// A `[[device]]`: which metric it is and who may spend its energy.
#[derive(Clone, Debug)]
pub struct DeviceSetting {
    /// May use the captures of `metric` as `$1`.
    pub name: String,
    pub node: Option<Regex>,
    pub metric: Regex,
    /// `None`: as the metric's definition says, else cumulative.
    pub instantaneous: Option<bool>,
    /// Raw value to joules (or watts); `None`: as the metric's definition says.
    pub scale: Option<f64>,
    /// The raw counter has this many values and starts again at 0 (RAPL: 2^32).
    pub wraps_at: Option<u64>,
    pub delay: Duration,
    /// Consumers of the kernels view; `None`: the GPU streams of the device with the metric's number.
    pub locations: Option<Vec<Regex>>,
    pub ranks: Ranks,
}

/// The consumers of a device's ranks view.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Ranks {
    /// All on the node.
    #[default]
    All,
    /// What is found out, as for a device that nothing is configured of.
    Found,
    Listed(Vec<u32>),
}

impl DeviceSetting {
    pub fn listed_ranks(&self) -> Option<&Vec<u32>> {
        match &self.ranks {
            Ranks::Listed(ranks) => Some(ranks),
            _ => None,
        }
    }

    /// The device's name, if this setting is about this metric on this node.
    pub fn name_for(&self, node: &str, metric: &str) -> Option<String> {
        if self.node.as_ref().is_some_and(|pattern| !pattern.is_match(node)) {
            return None;
        }
        let captures = self.metric.captures(metric)?;
        let mut name = String::new();
        captures.expand(&self.name, &mut name);
        Some(name)
    }
}

#[derive(Debug)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    /// Fit for a terminal, whatever the file has in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0))
    }
}

impl std::error::Error for ConfigError {}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    device: Vec<FileDevice>,
    #[serde(default)]
    attribution: FileAttribution,
    #[serde(default)]
    sampler: FileSampler,
    #[serde(default)]
    trace: FileTrace,
    #[serde(default)]
    estimate: FileEstimate,
    #[serde(default)]
    counters: FileCounters,
    #[serde(default)]
    metrics: FileMetrics,
    #[serde(default)]
    topology: FileTopology,
    #[serde(default)]
    collector: FileCollector,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileDevice {
    name: String,
    node: Option<String>,
    metric: String,
    kind: Option<String>,
    scale: Option<f64>,
    wraps_at: Option<u64>,
    delay: Option<String>,
    locations: Option<Vec<String>>,
    ranks: Option<FileRanks>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum FileRanks {
    Listed(Vec<u32>),
    Word(String),
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileAttribution {
    policy: Option<String>,
    sharing: Option<String>,
    locations: Option<String>,
    time: Option<bool>,
    slack: Option<String>,
    stream_lag: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileSampler {
    period: Option<String>,
    gauges: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileTrace {
    write: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileEstimate {
    idle_watts: Option<f64>,
    watts_per_core: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileCounters {
    watts_max: Option<f64>,
    gap: Option<f64>,
    stale: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileMetrics {
    most_series: Option<usize>,
    token_file: Option<PathBuf>,
    allowed_hosts: Option<Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileTopology {
    by_local_rank: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileCollector {
    cpus: Option<String>,
}

impl Config {
    pub const STREAM_LAG: Duration = Duration::from_secs(60);

    /// Reads the file (if one is named), then the environment, which wins.
    pub fn load(path: Option<&Path>) -> Result<Config, ConfigError> {
        let mut config = match path {
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|e| {
                    ConfigError(format!("cannot read the configuration {}: {e}", path.display()))
                })?;
                Config::parse(&text, &path.display().to_string())?
            }
            None => Config::default(),
        };
        config.apply(&|name| std::env::var(name).ok())?;
        Ok(config)
    }

    /// The path that `AMPERE_CONFIG` names.
    pub fn path_from_environment() -> Option<PathBuf> {
        std::env::var_os("AMPERE_CONFIG").map(PathBuf::from)
    }

    /// `origin` is the file's name, for messages.
    pub fn parse(text: &str, origin: &str) -> Result<Config, ConfigError> {
        let file: File = toml::from_str(text).map_err(|error| explain(&error, text, origin))?;
        let at = |what: &str, why: String| ConfigError(format!("{origin}: {what}: {why}"));
        let mut config = Config::default();
        if let Some(policy) = file.attribution.policy {
            config.policy = parse_policy(&policy).map_err(|e| at("[attribution] policy", e))?;
        }
        if let Some(sharing) = file.attribution.sharing {
            config.sharing = parse_sharing(&sharing).map_err(|e| at("[attribution] sharing", e))?;
        }
        if let Some(locations) = file.attribution.locations {
            config.locations = parse_locations(&locations).map_err(|e| at("[attribution] locations", e))?;
        }
        config.time = file.attribution.time.unwrap_or(config.time);
        if let Some(lag) = file.attribution.stream_lag {
            config.stream_lag = Some(parse_duration(&lag).map_err(|e| at("[attribution] stream_lag", e))?);
        }
        if let Some(slack) = file.attribution.slack {
            config.slack = parse_duration(&slack).map_err(|e| at("[attribution] slack", e))?;
        }
        if let Some(period) = file.sampler.period {
            config.sample_period = parse_duration(&period).map_err(|e| at("[sampler] period", e))?;
        }
        if let Some(gauges) = file.sampler.gauges {
            config.gauges = parse_gauges(&gauges).map_err(|e| at("[sampler] gauges", e))?;
        }
        config.trace = file.trace.write.unwrap_or(config.trace);
        config.estimate_idle_watts = file.estimate.idle_watts;
        config.estimate_watts_per_core = file.estimate.watts_per_core;
        config.counter_watts_max = file.counters.watts_max;
        config.counter_gap = file.counters.gap;
        if let Some(stale) = file.counters.stale {
            config.counter_stale = parse_duration(&stale).map_err(|e| at("[counters] stale", e))?;
        }
        config.most_series = file.metrics.most_series.unwrap_or(config.most_series);
        if let Some(cpus) = file.collector.cpus {
            config.cpus = Some(Cpus::parse(&cpus).map_err(|e| at("[collector] cpus", e))?);
        }
        config.token_file = file.metrics.token_file.filter(|path| !path.as_os_str().is_empty());
        config.allowed_hosts = file.metrics.allowed_hosts.unwrap_or_default();
        config.by_local_rank = file.topology.by_local_rank.unwrap_or(config.by_local_rank);
        for device in file.device {
            let name = device.name.clone();
            let at = |why| at(&format!("device {name:?}"), why);
            let setting = compile(device).map_err(at)?;
            checks::impossible(&config.devices, &setting).map_or(Ok(()), |why| Err(at(why)))?;
            config.devices.push(setting);
        }
        config.check().map_err(|e| ConfigError(format!("{origin}: {e}")))?;
        Ok(config)
    }

    /// Environment variables win over the file.
    pub fn apply(&mut self, lookup: &dyn Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
        let at = |name: &str, why: String| ConfigError(format!("{name}: {why}"));
        if let Some(text) = lookup("AMPERE_POLICY") {
            self.policy = parse_policy(&text).map_err(|e| at("AMPERE_POLICY", e))?;
        }
        if let Some(text) = lookup("AMPERE_SHARING") {
            self.sharing = parse_sharing(&text).map_err(|e| at("AMPERE_SHARING", e))?;
        }
        if let Some(text) = lookup("AMPERE_LOCATIONS") {
            self.locations = parse_locations(&text).map_err(|e| at("AMPERE_LOCATIONS", e))?;
        }
        if let Some(text) = lookup("AMPERE_TIME") {
            self.time = parse_switch(&text).map_err(|e| at("AMPERE_TIME", e))?;
        }
        if let Some(text) = lookup("AMPERE_STREAM_LAG") {
            self.stream_lag = Some(parse_duration(&text).map_err(|e| at("AMPERE_STREAM_LAG", e))?);
        }
        if let Some(text) = lookup("AMPERE_MOST_SERIES") {
            let wrong = |_| at("AMPERE_MOST_SERIES", format!("{text:?} is no number of series"));
            self.most_series = text.trim().parse().map_err(wrong)?;
        }
        if let Some(text) = lookup("AMPERE_TRACE") {
            self.trace = parse_switch(&text).map_err(|e| at("AMPERE_TRACE", e))?;
        }
        if let Some(text) = lookup("AMPERE_BY_LOCAL_RANK") {
            self.by_local_rank = parse_switch(&text).map_err(|e| at("AMPERE_BY_LOCAL_RANK", e))?;
        }
        if let Some(text) = lookup("AMPERE_COLLECTOR_CPUS").filter(|text| !text.is_empty()) {
            self.cpus = Some(Cpus::parse(&text).map_err(|e| at("AMPERE_COLLECTOR_CPUS", e))?);
        }
        if let Some(text) = lookup("AMPERE_TOKEN_FILE") {
            self.token_file = (!text.is_empty()).then(|| PathBuf::from(text));
        }
        if let Some(text) = lookup("AMPERE_ALLOWED_HOSTS") {
            let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
            self.allowed_hosts = names.map(str::to_owned).collect();
        }
        if let Some(text) = lookup("AMPERE_SLACK") {
            self.slack = parse_duration(&text).map_err(|e| at("AMPERE_SLACK", e))?;
        }
        if let Some(text) = lookup("AMPERE_SAMPLE_PERIOD") {
            self.sample_period = parse_duration(&text).map_err(|e| at("AMPERE_SAMPLE_PERIOD", e))?;
        }
        if let Some(text) = lookup("AMPERE_GAUGES") {
            self.gauges = parse_gauges(&text).map_err(|e| at("AMPERE_GAUGES", e))?;
        }
        for (name, setting) in [
            ("AMPERE_COUNTER_WATTS_MAX", &mut self.counter_watts_max),
            ("AMPERE_COUNTER_GAP", &mut self.counter_gap),
        ] {
            if let Some(text) = lookup(name) {
                *setting = Some(text.trim().parse().map_err(|_| at(name, format!("{text:?} is no number")))?);
            }
        }
        if let Some(text) = lookup("AMPERE_COUNTER_STALE") {
            self.counter_stale = parse_duration(&text).map_err(|e| at("AMPERE_COUNTER_STALE", e))?;
        }
        self.check().map_err(ConfigError)
    }

    fn check(&self) -> Result<(), String> {
        if self.sample_period < Duration::from_micros(100) || self.sample_period > Duration::from_secs(10) {
            return Err(format!("a sample period of {:?}: use 100us to 10s", self.sample_period));
        }
        if let Some(watts) = self.counter_watts_max.filter(|watts| watts.is_nan() || *watts <= 0.0) {
            return Err(format!("[counters] watts_max = {watts}: use a number above 0"));
        }
        if let Some(gap) = self.counter_gap.filter(|gap| gap.is_nan() || *gap < 1.0) {
            return Err(format!("[counters] gap = {gap}: use how many usual intervals are a gap, 1 or more"));
        }
        for watts in [self.estimate_idle_watts, self.estimate_watts_per_core].into_iter().flatten() {
            if !watts.is_finite() || watts < 0.0 {
                return Err(format!("[estimate]: {watts} watts: use a number of 0 or more"));
            }
        }
        Ok(())
    }
}

pub fn parse_policy(text: &str) -> Result<Policy, String> {
    match text {
        "time_sliced" => Ok(Policy::TimeSliced),
        "busy_only" => Ok(Policy::BusyOnly),
        other => Err(format!("{other:?} is no policy: use \"time_sliced\" or \"busy_only\"")),
    }
}

fn parse_sharing(text: &str) -> Result<Sharing, String> {
    match text {
        "shared" => Ok(Sharing::Shared),
        "independent" => Ok(Sharing::Independent),
        other => Err(format!("{other:?} is no way of sharing: use \"shared\" or \"independent\"")),
    }
}

fn parse_locations(text: &str) -> Result<Locations, String> {
    match text {
        "main" => Ok(Locations::Main),
        "all" => Ok(Locations::All),
        other => Err(format!("{other:?}: use \"main\" or \"all\"")),
    }
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text.trim() {
        "on" | "1" | "true" => Ok(true),
        "off" | "0" | "false" => Ok(false),
        other => Err(format!("{other:?}: use on or off")),
    }
}

/// A time, or "off".
fn parse_gauges(text: &str) -> Result<Option<Duration>, String> {
    if text.trim() == "off" {
        return Ok(None);
    }
    let time = parse_duration(text).map_err(|why| format!("{why}, or \"off\""))?;
    if time < Duration::from_millis(100) || time > Duration::from_secs(3600) {
        return Err(format!("every {time:?}: use 100ms to 3600s, or \"off\""));
    }
    Ok(Some(time))
}

/// "250us", "1ms", "1.5 s".
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic() || c == 'µ').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit.trim() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(format!("{text:?} is no time: write it like \"1ms\" (ns, us, ms, s)")),
    };
    let number: f64 =
        number.trim().parse().map_err(|_| format!("{text:?} is no time: write it like \"1ms\""))?;
    Duration::try_from_secs_f64(number * seconds)
        .map_err(|_| format!("{text:?} is no time: it must not be negative"))
}

fn compile(device: FileDevice) -> Result<DeviceSetting, String> {
    let scale_ok = device.scale.is_none_or(|scale| scale.is_finite() && scale > 0.0);
    if !scale_ok {
        return Err("scale must be a number above 0".to_owned());
    }
    Ok(DeviceSetting {
        node: device.node.map(|pattern| whole(&pattern, "node")).transpose()?,
        metric: whole(&device.metric, "metric")?,
        instantaneous: match device.kind.as_deref() {
            None => None,
            Some("cumulative") => Some(false),
            Some("instantaneous") => Some(true),
            Some(other) => return Err(format!("kind {other:?}: use \"cumulative\" or \"instantaneous\"")),
        },
        scale: device.scale,
        wraps_at: device.wraps_at,
        delay: device.delay.map_or(Ok(Duration::ZERO), |text| parse_duration(&text))?,
        locations: device
            .locations
            .map(|patterns| patterns.iter().map(|pattern| whole(pattern, "locations")).collect())
            .transpose()?,
        ranks: match device.ranks {
            None => Ranks::All,
            Some(FileRanks::Listed(ranks)) => Ranks::Listed(ranks),
            Some(FileRanks::Word(word)) if word == "all" => Ranks::All,
            Some(FileRanks::Word(word)) if word == "found" => Ranks::Found,
            Some(FileRanks::Word(word)) => {
                return Err(format!("ranks {word:?}: use \"all\", \"found\" or a list like [0, 1]"));
            }
        },
        name: device.name,
    })
}

/// A regular expression that must match the whole text.
fn whole(pattern: &str, key: &str) -> Result<Regex, String> {
    Regex::new(&format!("^(?:{pattern})$")).map_err(|e| {
        let reason = e.to_string();
        let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("{key} = {pattern:?} is no regular expression: {reason}")
    })
}

/// One line from toml's several: where, what, and the nearest right key.
fn explain(error: &toml::de::Error, text: &str, origin: &str) -> ConfigError {
    let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let message = error.message();
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if let (true, Some((wrong, right))) = (message.starts_with("unknown field"), quoted.split_first()) {
        let nearest = right.iter().min_by_key(|candidate| edit_distance(wrong, candidate));
        let advice = nearest.map_or_else(String::new, |nearest| format!("; did you mean \"{nearest}\"?"));
        return ConfigError(format!("{origin}:{line}: unknown key \"{wrong}\"{advice}"));
    }
    let first = message.lines().next().unwrap_or_default();
    let Some((is, expected)) =
        first.strip_prefix("invalid type: ").and_then(|types| types.split_once(", expected "))
    else {
        return ConfigError(format!("{origin}:{line}: {first}"));
    };
    // The line's key, if it has just one; a line of a list, or an inline table, does not say.
    let parts: Vec<&str> = text.lines().nth(line - 1).unwrap_or_default().split('=').map(str::trim).collect();
    let is_key = |word: &&str| word.starts_with(|c: char| c.is_ascii_alphabetic());
    let key = parts.first().copied().filter(|word| parts.len() == 2 && is_key(word));
    let key = key.map_or_else(String::new, |key| format!(" {key}:"));
    let expected = match expected {
        "a string" | "path string" => "a text in quotes",
        "a boolean" => "true or false",
        "f32" | "f64" => "a number",
        "u32" | "u64" | "usize" => "a whole number",
        "a sequence" => "a list in brackets",
        of_ours if of_ours.starts_with("struct ") => "a table of settings",
        other => other,
    };
    ConfigError(format!("{origin}:{line}:{key} {expected} is expected, not {is}"))
}

/// Levenshtein's distance.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_file_is_understood() {
        let text = r#"
            [[device]]
            name = "GPU-$1"
            node = 'frontier\d+'
            metric = 'A2rocm_smi:::energy_count:device=(\d)'
            scale = 1e-6
            wraps_at = 4294967296
            delay = "2ms"
            locations = ['HIP\[0:\d+\]']
            ranks = [0, 1]
            [attribution]
            policy = "busy_only"
            sharing = "independent"
            locations = "all"
            time = true
            stream_lag = "10s"
            [sampler]
            period = "500us"
            gauges = "2s"
            [estimate]
            idle_watts = 50
            [counters]
            watts_max = 2000
            gap = 10
            stale = "3s"
        "#;
        let config = Config::parse(text, "ampere.toml").unwrap();
        let device = &config.devices[0];
        let metric = "A2rocm_smi:::energy_count:device=3";
        assert_eq!(device.name_for("frontier09408", metric).as_deref(), Some("GPU-3"));
        assert_eq!(device.name_for("elcap1", metric), None);
        assert_eq!(
            device.name_for("frontier09408", &format!("{metric}0")),
            None,
            "the whole name must match"
        );
        assert_eq!(device.delay, Duration::from_millis(2));
        assert_eq!((config.policy, config.sharing), (Policy::BusyOnly, Sharing::Independent));
        assert_eq!((config.locations, config.time), (Locations::All, true));
        assert_eq!(config.stream_lag, Some(Duration::from_secs(10)));
        assert_eq!(config.sample_period, Duration::from_micros(500));
        assert_eq!(config.gauges, Some(Duration::from_secs(2)));
        assert_eq!(config.estimate_idle_watts, Some(50.0));
        assert_eq!(device.wraps_at, Some(1 << 32));
        assert_eq!((config.counter_watts_max, config.counter_gap), (Some(2000.0), Some(10.0)));
        assert_eq!(config.counter_stale, Duration::from_secs(3));
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        assert_eq!(Config::parse(text, "ampere.toml").unwrap_err().to_string(), expected);
    }

    #[test]
    fn mistakes_are_named_with_line_and_remedy() {
        refused(
            "[attribution]\npolcy = \"busy_only\"",
            "ampere.toml:2: unknown key \"polcy\"; did you mean \"policy\"?",
        );
        refused(
            "\n[atribution]\n",
            "ampere.toml:2: unknown key \"atribution\"; did you mean \"attribution\"?",
        );
        refused(
            "# comment\n[sampler]\nperiod = 5",
            "ampere.toml:3: period: a text in quotes is expected, not integer `5`",
        );
        refused(
            "attribution = 3",
            "ampere.toml:1: attribution: a table of settings is expected, not integer `3`",
        );
        refused(
            "[trace]\nwrite = \"off\"",
            "ampere.toml:2: write: true or false is expected, not string \"off\"",
        );
        refused(
            "[attribution]\npolicy = \"fair\"",
            "ampere.toml: [attribution] policy: \"fair\" is no policy: use \"time_sliced\" or \"busy_only\"",
        );
        refused(
            "[[device]]\nname = \"x\"\nmetric = \"(\"",
            "ampere.toml: device \"x\": metric = \"(\" is no regular expression: unclosed group",
        );
        refused(
            "[sampler]\nperiod = \"1 year\"",
            "ampere.toml: [sampler] period: \"1 year\" is no time: write it like \"1ms\" (ns, us, ms, s)",
        );
        refused(
            "[counters]\ngap = 0.5",
            "ampere.toml: [counters] gap = 0.5: use how many usual intervals are a gap, 1 or more",
        );
        refused("[counters]\nwatts_max = 0", "ampere.toml: [counters] watts_max = 0: use a number above 0");
        refused(
            "[attribution]\nlocations = \"some\"",
            "ampere.toml: [attribution] locations: \"some\": use \"main\" or \"all\"",
        );
        refused(
            "[[device]]\nname = \"GPU-$2\"\nmetric = 'energy:(\\d)'",
            "ampere.toml: device \"GPU-$2\": name: there is no $2, metric = 'energy:(\\d)' has 1 group",
        );
        refused(
            "[[device]]\nname = \"a\"\nmetric = 'e'\n[[device]]\nname = \"b\"\nmetric = 'e'",
            "ampere.toml: device \"b\": metric = 'e' is device \"a\" already",
        );
        refused(
            "[[device]]\nname = \"x\"\nmetric = \"e\"\nranks = \"some\"",
            "ampere.toml: device \"x\": ranks \"some\": use \"all\", \"found\" or a list like [0, 1]",
        );
        refused(
            "[sampler]\ngauges = \"never\"",
            "ampere.toml: [sampler] gauges: \"never\" is no time: write it like \"1ms\" (ns, us, ms, s), or \"off\"",
        );
        refused(
            "[sampler]\ngauges = \"1ms\"",
            "ampere.toml: [sampler] gauges: every 1ms: use 100ms to 3600s, or \"off\"",
        );
        refused("[sampler]\nperiod = \"1us\"", "ampere.toml: a sample period of 1µs: use 100us to 10s");
    }

    #[test]
    fn the_environment_wins() {
        let mut config = Config::parse("[attribution]\npolicy = \"busy_only\"", "ampere.toml").unwrap();
        config.apply(&|name| (name == "AMPERE_POLICY").then(|| "time_sliced".to_owned())).unwrap();
        assert_eq!(config.policy, Policy::TimeSliced);
        config.apply(&|name| (name == "AMPERE_COUNTER_GAP").then(|| "20".to_owned())).unwrap();
        config.apply(&|name| (name == "AMPERE_COUNTER_WATTS_MAX").then(|| "500".to_owned())).unwrap();
        config.apply(&|name| (name == "AMPERE_COUNTER_STALE").then(|| "1s".to_owned())).unwrap();
        assert_eq!((config.counter_watts_max, config.counter_gap), (Some(500.0), Some(20.0)));
        assert_eq!(config.counter_stale, Duration::from_secs(1));
        assert_eq!(config.gauges, Some(Duration::from_secs(1)));
        config.apply(&|name| (name == "AMPERE_GAUGES").then(|| "off".to_owned())).unwrap();
        assert_eq!(config.gauges, None);
        config.apply(&|name| (name == "AMPERE_LOCATIONS").then(|| "all".to_owned())).unwrap();
        config.apply(&|name| (name == "AMPERE_TIME").then(|| "on".to_owned())).unwrap();
        config.apply(&|name| (name == "AMPERE_STREAM_LAG").then(|| "2s".to_owned())).unwrap();
        assert_eq!((config.locations, config.time), (Locations::All, true));
        assert_eq!(config.stream_lag, Some(Duration::from_secs(2)));
        assert!(config.apply(&|name| (name == "AMPERE_SHARING").then(|| "x".to_owned())).is_err());
    }
}
