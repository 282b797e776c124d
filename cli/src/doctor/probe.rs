//! The child process of the doctor: it opens counters, or loads a library, and reports each step. If a vendor's library crashes
//! or hangs, the doctor knows at which step.

use ampere_counters::{COUNTER_SOURCES, Quality, ReadError, Settings, Source, open_sources};
use ampere_settings::{Config, SourceSettings};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct ProbeArguments {
    /// A counter source, or `run` for those that a run opens, or `library`
    pub what: String,
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// With `library`: the name to give to the loader, and a function it must export
    pub library: Vec<String>,
}

/// Marks the messages among the output of libraries.
const MARK: &str = "ampere-probe ";
pub const WATCH_TIME: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(1);
/// The longest time until the first reading of a counter that the user has defined.
const FIRST_READING_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    Opened {
        devices: Vec<Device>,
        notes: Vec<String>,
    },
    /// How the counters moved while they were watched, in the order of the devices.
    Watched(Vec<Motion>),
    /// Everything is closed, and the process is about to end.
    Closed,
    /// The library was loaded from this file.
    Loaded(Option<PathBuf>),
    Failed(String),
}

/// A device as its source describes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    pub metric: String,
    pub source: String,
    pub kind: String,
    pub quality: String,
    pub resolution_joules: f64,
    pub description: String,
    pub pci: Option<String>,
    /// The vendor's library that was loaded for it.
    pub library: Option<PathBuf>,
}

/// How a counter moved while it was watched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Motion {
    pub changes: u32,
    /// The usual time between changes.
    pub update_seconds: Option<f64>,
    pub watts: Option<f64>,
    pub read_seconds: Option<f64>,
    pub failed_readings: u32,
    /// The last figure of a counter that the user has defined, in watts or joules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figure: Option<f64>,
    /// The reason why the last reading failed, for a counter that the user has defined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

pub fn probe(arguments: ProbeArguments) -> anyhow::Result<ExitCode> {
    // A crash is expected here, so no core file is needed.
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    match (arguments.what.as_str(), arguments.library.as_slice()) {
        ("library", [file, function]) => send(&load(file, function)),
        (what, _) => counters(what, arguments.config.as_deref()),
    }
    Ok(ExitCode::SUCCESS)
}

fn send(message: &Message) {
    let text = serde_json::to_string(message).unwrap_or_default();
    // The message is on a line of its own, even after text without a line end.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "\n{MARK}{text}").and_then(|()| out.flush());
}

/// Returns the messages in a child's output.
pub fn messages(stdout: &str) -> Vec<Message> {
    let lines = stdout.lines().filter_map(|line| line.strip_prefix(MARK));
    lines.filter_map(|text| serde_json::from_str(text).ok()).collect()
}

fn load(file: &str, function: &str) -> Message {
    match ampere_counters::loads(file, function.to_owned().leak()) {
        // The metric plugin is a link to the substrate plugin, so the mapped file may have the substrate plugin's name.
        Ok(()) => Message::Loaded(mapped(|name| {
            name.starts_with("libscorep_substrate_ampere") || name.starts_with(file)
        })),
        Err(why) => Message::Failed(why.to_string()),
    }
}

fn counters(what: &str, config: Option<&Path>) {
    // The doctor itself reports mistakes in the settings, so they are ignored here.
    let mut settings =
        Config::load(config).map_or_else(|_| SourceSettings::from_environment(), |config| config.sources);
    let run = what == "run";
    if !run {
        settings.names = Some(COUNTER_SOURCES.into_iter().filter(|name| *name == what).collect());
    }
    let opened = open_sources(&settings);
    let mut sources = opened.sources;
    let devices = sources.iter().flat_map(|source| source.devices());
    let devices = devices.map(|device| describe(device, &settings)).collect();
    send(&Message::Opened { devices, notes: opened.notes });
    if !run {
        send(&Message::Watched(watch(&mut sources, WATCH_TIME)));
    }
    drop(sources);
    send(&Message::Closed);
}

fn describe(device: &ampere_counters::Device, settings: &Settings) -> Device {
    Device {
        name: device.name.clone(),
        metric: device.metric.clone(),
        source: device.source.to_owned(),
        kind: device.kind.to_string(),
        quality: device.quality.to_string(),
        resolution_joules: device.resolution_joules,
        description: device.description.clone(),
        pci: device.pci.clone(),
        library: library_of(device.source, settings),
    }
}

/// Returns the vendor's library that is loaded for a source, from the files that are mapped into this process.
fn library_of(source: &str, settings: &Settings) -> Option<PathBuf> {
    let (usual, named) = match source {
        "rocm_smi" => ("librocm_smi64", &settings.rocm_smi_library),
        "amdsmi" => ("libamd_smi", &settings.amdsmi_library),
        "nvml" => ("libnvidia-ml", &settings.nvml_library),
        _ => return None,
    };
    // A file that the user specifies may have any name.
    let named = named.as_ref().and_then(|path| std::fs::canonicalize(path).ok());
    let named = named.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    mapped(|file| named.as_deref() == Some(file) || file.starts_with(usual))
}

/// Returns the first file that is mapped into this process and whose name `wanted` accepts.
pub fn mapped(wanted: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mut paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let is_wanted = |path: &&Path| path.file_name().is_some_and(|name| wanted(&name.to_string_lossy()));
    paths.find(is_wanted).map(Path::to_owned)
}

/// The observations of a device while it is watched.
#[derive(Default)]
struct Watched {
    /// The latest value: raw for an integrated power, otherwise nanojoules.
    value: Option<u64>,
    /// The time of the first change, and the nanojoules after it; `last` has those of the last change.
    first: Option<(Instant, u64)>,
    last: Option<(Instant, u64)>,
    /// The times between changes, in seconds.
    intervals: Vec<f64>,
    due: Option<Instant>,
    readings: u32,
    reading: Duration,
    motion: Motion,
}

/// Reads the counters for `time`, and longer if one of them has not been read yet. As in the sampler, each is read about
/// every millisecond, or less often if its source asks for a longer period.
fn watch(sources: &mut [Box<dyn Source>], time: Duration) -> Vec<Motion> {
    let mut all: Vec<Vec<Watched>> =
        sources.iter().map(|source| source.devices().iter().map(|_| Watched::default()).collect()).collect();
    let begun = Instant::now();
    let waits = |all: &[Vec<Watched>]| {
        begun.elapsed() < FIRST_READING_LIMIT && all.iter().flatten().any(|watched| watched.readings == 0)
    };
    while (begun.elapsed() < time || waits(&all)) && !sources.is_empty() {
        for (source, watched) in sources.iter_mut().zip(&mut all) {
            for (device, watched) in watched.iter_mut().enumerate() {
                watched.observe(source.as_mut(), device);
            }
        }
        std::thread::sleep(PERIOD);
    }
    all.into_iter().flatten().map(Watched::motion).collect()
}

impl Watched {
    fn observe(&mut self, source: &mut dyn Source, device: usize) {
        let begun = Instant::now();
        if self.due.is_some_and(|due| begun < due) {
            return;
        }
        self.due = Some(begun + source.shortest_period(device));
        let reading = source.read(device);
        if matches!(reading, Err(ReadError::NotYet)) {
            return;
        }
        let now = Instant::now();
        let own = &source.devices()[device];
        if let (Ok(reading), "custom") = (&reading, own.source) {
            let unit = if own.quality == Quality::Integrated { 1e-6 } else { 1e-9 };
            (self.motion.figure, self.motion.failure) = (Some(reading.raw as f64 * unit), None);
        }
        (self.readings, self.reading) = (self.readings + 1, self.reading + (now - begun));
        match reading {
            // The integral of a power moves with every reading, but the sensor itself does not.
            Ok(reading) if source.devices()[device].quality == Quality::Integrated => {
                self.record(now, reading.raw, reading.nanojoules);
            }
            Ok(reading) => self.record(now, reading.nanojoules, reading.nanojoules),
            Err(error) => {
                self.motion.failed_readings += 1;
                self.motion.failure = matches!(error, ReadError::Poll(_)).then(|| error.to_string());
            }
        }
    }

    fn record(&mut self, now: Instant, value: u64, nanojoules: u64) {
        // It is unknown when the first value appeared.
        if self.value.replace(value).is_some_and(|before| before != value) {
            self.motion.changes += 1;
            self.first.get_or_insert((now, nanojoules));
            if let Some((before, _)) = self.last.replace((now, nanojoules)) {
                self.intervals.push((now - before).as_secs_f64());
            }
        }
    }

    fn motion(self) -> Motion {
        let mut motion = self.motion;
        if self.readings > 0 {
            motion.read_seconds = Some(self.reading.as_secs_f64() / f64::from(self.readings));
        }
        motion.update_seconds = usual(self.intervals);
        if let (Some((begin, from)), Some((end, to))) = (self.first, self.last)
            && end > begin
        {
            // A counter that went back was reset, so its energy is unknown.
            let joules = to.checked_sub(from).map(|nanojoules| nanojoules as f64 * 1e-9);
            motion.watts = joules.map(|joules| joules / (end - begin).as_secs_f64());
        }
        motion
    }
}

/// Returns the mean of the intervals, without those in which this process missed a change because it had no core.
fn usual(mut intervals: Vec<f64>) -> Option<f64> {
    intervals.sort_by(f64::total_cmp);
    let median = *intervals.get(intervals.len() / 2)?;
    // A change is seen one or two readings late, which is a lot compared with a short interval.
    let longest = 1.5 * median + 2.0 * PERIOD.as_secs_f64();
    intervals.retain(|interval| *interval <= longest);
    Some(intervals.iter().sum::<f64>() / intervals.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(values: &[(u64, u64)]) -> Motion {
        let (mut watched, start) = (Watched::default(), Instant::now());
        for (ms, value) in values {
            watched.record(start + Duration::from_millis(*ms), *value, *value * 1_000_000_000);
        }
        watched.motion()
    }

    #[test]
    fn the_update_time_is_measured_from_change_to_change() {
        let motion = watched(&[(0, 5), (3, 5), (10, 6), (11, 6), (20, 8), (30, 9), (39, 9)]);
        assert_eq!(motion.changes, 3);
        assert!((motion.update_seconds.unwrap() - 0.010).abs() < 1e-9, "{motion:?}");
        assert!((motion.watts.unwrap() - 150.0).abs() < 1e-6, "{motion:?}");
        // In `missed`, 25 ms pass without a reading; in `quick`, the counter changes with every reading.
        let missed = watched(&[(0, 0), (10, 1), (20, 2), (30, 3), (55, 5), (60, 6), (70, 7)]);
        assert!((missed.update_seconds.unwrap() - 0.00875).abs() < 1e-9, "{missed:?}");
        let quick = watched(&[(0, 0), (1, 1), (3, 2), (4, 3), (6, 4), (7, 5)]);
        assert!((quick.update_seconds.unwrap() - 0.0015).abs() < 1e-9, "{quick:?}");
        let still = watched(&[(0, 5), (500, 5), (1000, 5)]);
        assert_eq!((still.changes, still.update_seconds, still.watts), (0, None, None));
        let once = watched(&[(0, 5), (500, 6), (1000, 6)]);
        assert_eq!((once.changes, once.update_seconds), (1, None));
        let reset = watched(&[(0, 5), (10, 6), (20, 1)]);
        assert_eq!((reset.changes, reset.watts), (2, None));
    }

    #[test]
    fn messages_are_found_among_the_output_of_libraries() {
        let text = format!("hello\n{MARK}\"closed\"\n{MARK}nonsense\nbye {MARK}\"closed\"\n");
        assert!(matches!(messages(&text)[..], [Message::Closed]));
    }
}
