//! Checks the counter sources: which devices each source has on this node, how their counters move, and which of them a run
//! reads.
//!
//! Each source is opened in a process of its own, by `ampere probe`: see [`super::probe`].

use super::child::{self, End, Finished, signal_name};
use super::findings::{Check, Group, Status};
use super::probe::{self, Device, Message, Motion, WATCH_TIME};
use ampere_counters::COUNTER_SOURCES;
use ampere_model::text::plural;
use ampere_settings::SourceSettings;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const ENV_COUNTERS: &str = "AMPERE_COUNTERS";
/// Opening a source takes 20 ms. But if no other process uses the driver, the driver may first wake up its GPUs, which takes
/// seconds.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// A counter source, as it is shown in JSON.
#[derive(Debug, Serialize)]
pub struct Source {
    pub name: &'static str,
    /// Whether a run reads it with the current settings.
    pub used: bool,
    pub devices: Vec<Shown>,
    pub why_not: Option<String>,
}

/// A device of a source, as it is shown in JSON.
#[derive(Debug, Serialize)]
pub struct Shown {
    #[serde(flatten)]
    pub device: Device,
    /// The version that the library reports.
    pub version: Option<String>,
    pub used: bool,
    #[serde(flatten)]
    pub motion: Motion,
}

/// The result of a child process, which opened one source, or all the sources that a run opens.
struct Probed {
    devices: Vec<Device>,
    notes: Vec<String>,
    motions: Vec<Motion>,
    /// How the process crashed or hung, if it did.
    bad_end: Option<String>,
}

/// Probes all sources at once. This takes a second, or two seconds if both of AMD's libraries are installed.
pub fn check(program: &Path, config: Option<&Path>) -> (Vec<Check>, Vec<Source>) {
    let asked: Vec<(&'static str, Probed)> = std::thread::scope(|scope| {
        // AMD's two libraries share locks, so they are probed one after the other.
        let (amd, others): (Vec<_>, Vec<_>) =
            COUNTER_SOURCES.into_iter().partition(|name| ["rocm_smi", "amdsmi"].contains(name));
        let ask = |name| (name, ask(program, config, name, WATCH_TIME + OPEN_LIMIT));
        let amd = scope.spawn(move || amd.into_iter().map(ask).collect::<Vec<_>>());
        let others: Vec<_> = others.into_iter().map(|name| scope.spawn(move || ask(name))).collect();
        let mut all = amd.join().unwrap_or_default();
        all.extend(others.into_iter().filter_map(|thread| thread.join().ok()));
        all
    });
    let chosen = Chosen(SourceSettings::from_environment().names);
    let crashed = |name: &str| asked.iter().any(|(asked, probed)| *asked == name && probed.bad_end.is_some());
    let has = |name: &str| asked.iter().any(|(asked, probed)| *asked == name && !probed.devices.is_empty());
    // A run opens the sources together in one process, so that no counter is read twice. A source that crashed when it was opened
    // alone would crash that process, too.
    let run_would_crash =
        asked.iter().any(|(name, probed)| probed.bad_end.is_some() && chosen.opens(name, &has));
    let run = (!run_would_crash).then(|| ask(program, config, "run", OPEN_LIMIT));
    let opened = run.as_ref().filter(|run| run.bad_end.is_none());
    let mut group = Group::new("counters");
    let mut sources = Vec::new();
    for (name, probed) in &asked {
        let read: Vec<&str> = match opened {
            Some(run) => run.devices.iter().filter(|d| d.source == *name).map(|d| d.name.as_str()).collect(),
            // The sources were not opened together, so the rules of `select.rs` predict which of them a run would read.
            None if chosen.opens(name, &has) => probed.devices.iter().map(|d| d.name.as_str()).collect(),
            None => Vec::new(),
        };
        let is_read = |device: &Device| {
            read.iter().any(|name| {
                // If two devices have the same name, the later one has its source's name appended.
                *name == device.name || *name == format!("{}-{}", device.name, device.source)
            })
        };
        let devices = probed
            .devices
            .iter()
            .zip(probed.motions.iter().cloned().chain(std::iter::repeat(Motion::default())));
        let devices: Vec<Shown> = devices
            .map(|(device, motion)| Shown {
                used: is_read(device),
                version: version_of(device),
                device: device.clone(),
                motion,
            })
            .collect();
        let used = devices.iter().any(|shown| shown.used);
        let why_not = if used { None } else { Some(why_not(name, probed, &chosen, &has)) };
        let source = Source { name, used, devices, why_not };
        report(&mut group, &source, probed, &chosen, &crashed, &has);
        sources.push(source);
    }
    if let Some(run) = &run {
        report_run(&mut group, run, &sources, &chosen);
    }
    (group.checks, sources)
}

fn ask(program: &Path, config: Option<&Path>, what: &str, limit: Duration) -> Probed {
    let mut command = Command::new(program);
    command.arg("probe").arg(what);
    if let Some(config) = config {
        command.arg("--config").arg(config);
    }
    let mut probed = Probed { devices: Vec::new(), notes: Vec::new(), motions: Vec::new(), bad_end: None };
    let finished = match child::run_within(&mut command, limit) {
        Ok(finished) => finished,
        Err(error) => {
            probed.bad_end = Some(format!("could not be probed: {error}"));
            return probed;
        }
    };
    let mut opened = false;
    let mut watched = false;
    let mut closed = false;
    for message in probe::messages(&finished.stdout) {
        match message {
            Message::Opened { devices, notes } => {
                (probed.devices, probed.notes, opened) = (devices, notes, true);
            }
            Message::Watched(motions) => (probed.motions, watched) = (motions, true),
            Message::Closed => closed = true,
            Message::Loaded(_) | Message::Failed(_) => {}
        }
    }
    let when = match (opened, watched, closed) {
        (false, ..) => "when it was opened",
        (true, false, false) => "when it was read",
        (.., false) => "when it was closed",
        (.., true) => "when its process ended",
    };
    probed.bad_end = bad_end(&finished, limit).map(|how| format!("{how} {when}"));
    probed
}

fn bad_end(finished: &Finished, limit: Duration) -> Option<String> {
    match finished.end {
        End::Exit(0) => None,
        End::Exit(code) => Some(format!("ended its process with status {code}")),
        End::Signal(signal) => Some(format!("crashed with {}", signal_name(signal))),
        End::TimedOut => Some(format!("hung for {} s", limit.as_secs())),
    }
}

/// The sources that the variable [`ENV_COUNTERS`] names; `None` if they are chosen automatically.
struct Chosen(Option<Vec<&'static str>>);

impl Chosen {
    /// Whether a run opens the source.
    fn opens(&self, name: &str, has: &dyn Fn(&str) -> bool) -> bool {
        match &self.0 {
            Some(names) => names.contains(&name),
            None => match name {
                "amdsmi" => !has("rocm_smi"),
                // The files of RAPL show the same counters.
                "perf" => !has("rapl"),
                "estimate" => !COUNTER_SOURCES.iter().any(|other| *other != "estimate" && has(other)),
                _ => true,
            },
        }
    }
}

fn why_not(name: &str, probed: &Probed, chosen: &Chosen, has: &dyn Fn(&str) -> bool) -> String {
    if let Some(how) = &probed.bad_end {
        return how.clone();
    }
    if probed.devices.is_empty() {
        return probed
            .notes
            .first()
            .map_or_else(|| "it has no device".to_owned(), |note| without_name(name, note).to_owned());
    }
    match (&chosen.0, name) {
        (Some(_), _) if !chosen.opens(name, has) => format!("{ENV_COUNTERS} does not name it"),
        (_, "amdsmi") => "rocm_smi has the same counters".to_owned(),
        (_, "rocm_smi") => "amdsmi has the same counters".to_owned(),
        (_, "perf") => "rapl has the same counters".to_owned(),
        (_, "estimate") => "there are counters".to_owned(),
        _ => "other sources have the same counters".to_owned(),
    }
}

fn report(
    group: &mut Group,
    source: &Source,
    probed: &Probed,
    chosen: &Chosen,
    crashed: &dyn Fn(&str) -> bool,
    has: &dyn Fn(&str) -> bool,
) {
    let name = source.name;
    if let Some(how) = &probed.bad_end {
        let library = probed.devices.iter().find_map(|device| device.library.as_ref());
        let library = library.map_or_else(String::new, |path| format!(" ({})", path.display()));
        let others: Vec<&str> =
            COUNTER_SOURCES.into_iter().filter(|other| !crashed(other) && has(other)).collect();
        let advice = format!("export {ENV_COUNTERS}={}", value_with(&others));
        // A source that a run does not open cannot harm the run.
        let status = if chosen.opens(name, has) { Status::Problem } else { Status::Note };
        let advice = (status == Status::Problem).then(|| format!("exclude it: {advice}"));
        return group.add(name, status, format!("{how}{library}"), advice);
    }
    if source.devices.is_empty() {
        if probed.notes.is_empty() {
            group.note(name, "it has no device", None);
        }
    } else {
        let count = plural(source.devices.len() as u64, "device");
        let library =
            source.devices.iter().find_map(|shown| shown.device.library.as_ref().map(|path| (shown, path)));
        let library = library.map_or_else(String::new, |(shown, path)| {
            let version = shown.version.as_deref().unwrap_or_default();
            format!("; {version}, {}", path.display())
        });
        let usage = match &source.why_not {
            None => "used by a run".to_owned(),
            Some(why) => format!("not used by a run: {why}"),
        };
        group.ok(name, format!("{count}, {usage}{library}"));
    }
    for shown in &source.devices {
        report_device(group, source, shown);
    }
    for note in &probed.notes {
        let (found, advice) = split(without_name(name, note));
        group.note(name, found, advice.map(str::to_owned));
    }
}

/// Returns the value of [`ENV_COUNTERS`] that names these sources, without those that a run does not need.
fn value_with(sources: &[&str]) -> String {
    let counters: Vec<&str> = sources.iter().copied().filter(|name| *name != "estimate").collect();
    let has_rocm_smi = counters.contains(&"rocm_smi");
    // amdsmi has the same counters as rocm_smi.
    let counters: Vec<&str> =
        counters.into_iter().filter(|name| !(has_rocm_smi && *name == "amdsmi")).collect();
    if counters.is_empty() { "estimate".to_owned() } else { counters.join(",") }
}

fn report_device(group: &mut Group, source: &Source, shown: &Shown) {
    let (device, motion) = (&shown.device, &shown.motion);
    let name = format!("{} {}", source.name, device.name);
    if source.name == "custom" {
        return report_custom(group, &name, shown);
    }
    let pace = match (motion.update_seconds, motion.changes) {
        // The counter is read about every millisecond. If it moves at each reading, it may move more often than that.
        (Some(seconds), _) if seconds < 1.5e-3 => "moves every millisecond or more often".to_owned(),
        (Some(seconds), _) => format!("moves every {}", time(seconds)),
        (None, 0) => format!("did not move in {} s", WATCH_TIME.as_secs()),
        (None, _) => format!("moved once in {} s", WATCH_TIME.as_secs()),
    };
    let mut words = vec![pace];
    words.extend(motion.watts.map(|watts| format!("{watts:.1} W now")));
    words.push(format!("in steps of {}", energy(device.resolution_joules)));
    words.push(device.quality.clone());
    words.push(device.description.clone());
    if source.used && !shown.used {
        words.push("not used by a run: another source has it".to_owned());
    }
    if motion.failed_readings > 0 {
        words.insert(0, format!("{} readings failed", motion.failed_readings));
        let advice = "its joules are missing while it cannot be read".to_owned();
        return group.note(&name, words.join(", "), shown.used.then_some(advice));
    }
    if motion.changes == 0 {
        // A power sensor may show the same value for a second.
        let advice = "its joules come late or not at all; try again under load".to_owned();
        return group.note(
            &name,
            words.join(", "),
            (shown.used && device.quality != "integrated").then_some(advice),
        );
    }
    group.ok(&name, words.join(", "));
}

/// Reports a counter that the user has defined. It shows a single figure and no rate, because the next figure may come only
/// after a minute.
fn report_custom(group: &mut Group, name: &str, shown: &Shown) {
    let (device, motion) = (&shown.device, &shown.motion);
    let unit = if device.quality == "integrated" { "W" } else { "J" };
    let unused = if shown.used { "" } else { ", not used by a run" };
    match (&motion.failure, motion.figure) {
        (Some(why), _) => {
            let advice = "run its command, or read its file, and correct its [[source]] in the settings";
            let found = format!("{why} ({}){unused}", device.description);
            group.add(name, Status::Problem, found, Some(advice.to_owned()));
        }
        (None, Some(figure)) => {
            group
                .ok(name, format!("{figure} {unit} now, {}, {}{unused}", device.quality, device.description));
        }
        (None, None) => group.note(name, format!("no figure yet ({}){unused}", device.description), None),
    }
}

/// Reports which sources the joules of a run come from.
fn report_run(group: &mut Group, run: &Probed, sources: &[Source], chosen: &Chosen) {
    const NAME: &str = "a run reads";
    if let Some(how) = &run.bad_end {
        let advice = format!("try sources one by one, for example: export {ENV_COUNTERS}=estimate");
        return group.problem(NAME, format!("the process that opened all sources together {how}"), advice);
    }
    let used: Vec<&Source> = sources.iter().filter(|source| source.used).collect();
    let names: Vec<&str> = used.iter().map(|source| source.name).collect();
    match (names.as_slice(), &chosen.0) {
        ([], Some(names)) if names.is_empty() => {
            group.note(
                NAME,
                format!("no counter: {ENV_COUNTERS}=none"),
                Some(format!("unset {ENV_COUNTERS}")),
            );
        }
        ([], _) => {
            let advice = format!("see above, or: export {ENV_COUNTERS}=estimate");
            group.note(NAME, "no counter: a run will have calls and times, but no energy", Some(advice));
        }
        (["estimate"], Some(_)) => {
            let advice = "its watts are set in [estimate] in the settings".to_owned();
            group.note(NAME, format!("an estimate, by {ENV_COUNTERS}"), Some(advice));
        }
        (["estimate"], None) => {
            let advice = "see above what keeps the counters away, and set the estimate's watts ([estimate] in the settings), \
                          idle and under load: the node's BMC reports them (ipmitool dcmi power reading), or Slurm (scontrol \
                          show node: CurrentWatts)";
            group.note(NAME, "no counter: energy is estimated from CPU time", Some(advice.to_owned()));
        }
        (names, _) => group.ok(NAME, names.join(", ")),
    }
}

/// Returns the version of the vendor's library that reads a device. In the device's description, it follows the model.
fn version_of(device: &Device) -> Option<String> {
    let version = device.description.rsplit_once(", ").map(|(_, version)| version);
    version.filter(|_| ["rocm_smi", "amdsmi", "nvml"].contains(&device.source.as_str())).map(str::to_owned)
}

/// Removes the source's name from the start of a note.
fn without_name<'a>(name: &str, note: &'a str) -> &'a str {
    note.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(note)
}

/// The punctuation before advice in the notes of sources, and the words with which the advice starts.
const ADVICE: [(&str, &str); 8] = [
    (". ", "An administrator can"),
    ("? ", "If there is one, check"),
    ("; ", "load a ROCm module"),
    ("; ", "it is installed with the driver"),
    ("; ", "set AMPERE_"),
    (": ", "the user must be"),
    (": ", "the job must have been"),
    (": ", "is the driver loaded"),
];

/// Splits a note into what was found and, if there is any, the advice.
fn split(note: &str) -> (&str, Option<&str>) {
    let places = ADVICE.iter().filter_map(|(before, words)| {
        let at = note.find(&format!("{before}{words}"))?;
        Some((at, at + before.len()))
    });
    match places.min() {
        Some((end, begin)) => (&note[..end], Some(&note[begin..])),
        None => (note, None),
    }
}

fn time(seconds: f64) -> String {
    if seconds < 0.9995 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

fn energy(joules: f64) -> String {
    let (value, unit) = match joules {
        _ if joules >= 1.0 => (joules, "J"),
        _ if joules >= 1e-3 => (joules * 1e3, "mJ"),
        _ if joules >= 1e-6 => (joules * 1e6, "uJ"),
        _ => (joules * 1e9, "nJ"),
    };
    // The last digits of a factor such as 1e9 are noise.
    format!("{} {unit}", (value * 1e6).round() / 1e6)
}

/// Returns the path of this program, to start it again.
pub fn own_path() -> PathBuf {
    // This path leads to the running program, even if its file was replaced.
    PathBuf::from("/proc/self/exe")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_separated_from_the_reason() {
        let rapl = "/sys/x may not be read: since 2020 (CVE) the kernel lets only root read it. An administrator can allow it: chmod";
        assert_eq!(
            split(rapl),
            (
                "/sys/x may not be read: since 2020 (CVE) the kernel lets only root read it",
                Some("An administrator can allow it: chmod")
            )
        );
        let none = "device 1 shows no energy: the second die of an MI250X package is counted by device 0";
        assert_eq!(split(none), (none, None));
        assert_eq!(split("there is no library; load a ROCm module, or").1, Some("load a ROCm module, or"));
    }

    #[test]
    fn the_sources_that_a_run_would_open_are_chosen() {
        let has = |name: &str| name == "rapl" || name == "estimate";
        let opens = |names: Option<Vec<&'static str>>| {
            let chosen = Chosen(names);
            COUNTER_SOURCES.into_iter().filter(|name| chosen.opens(name, &has)).collect::<Vec<_>>()
        };
        assert_eq!(opens(None), ["rocm_smi", "amdsmi", "nvml", "cray_pm", "rapl", "hwmon", "custom"]);
        assert_eq!(opens(Some(vec![])), Vec::<&str>::new());
        assert_eq!(opens(Some(vec!["rapl", "estimate"])), ["rapl", "estimate"]);
        assert!(!Chosen(None).opens("amdsmi", &|name| name == "rocm_smi"));
        assert!(Chosen(None).opens("estimate", &|name| name == "estimate"));
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [energy(15.3e-6), energy(1e-9), energy(1.0), energy(1e-3)],
            ["15.3 uJ", "1 nJ", "1 J", "1 mJ"]
        );
        assert_eq!([time(0.0151), time(0.1), time(1.5)], ["15.1 ms", "100.0 ms", "1.50 s"]);
    }
}
