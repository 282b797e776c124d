//! The manifest of a run contains what is needed to finish it, except its records. It is in `run.json` in the spool, so that
//! `ampere recover` can make trace and summary from the spool alone.
//!
//! It is written before the first record, and removed before the records are removed: a spool with a manifest belongs to an
//! unfinished run, and a spool without one is being removed.

use crate::run_directory::files::{MANIFEST, WriteError, write_result_privately};
use crate::run_directory::spool_place;
use crate::sampling::clock::{SessionClock, Timer};
use ampere_figures::batch_job::Job;
use ampere_figures::losses::RecordLosses;
use ampere_model::Clocks;
use ampere_ring::layout::ABI_VERSION;
use ampere_ring::process::{boot_id, is_this_node, node_name, start_time};
use ampere_settings::Config;
use ampere_trace::spool::{RECORDS, Store};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The period in which a living collector touches the manifest, for observers on other nodes.
pub const HEARTBEAT: Duration = Duration::from_secs(10);
/// An upper bound on the manifest's size: it contains a settings file and some variables.
pub const BYTES_MAX: u64 = 16 << 20;
/// The version of the spool: of the manifest, and of the records next to it, which have the format of ring records. Records of an
/// older build are refused.
const FORMAT: u32 = ABI_VERSION << 8 | MANIFEST_VERSION;
const MANIFEST_VERSION: u32 = 2;

/// The manifest. In the JSON file, the fields of all groups are on one level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    /// The session's directory in shared memory.
    pub session: PathBuf,
    /// The run's id, which all its nodes share.
    pub run_id: String,
    pub node: String,
    boot: [u64; 2],
    /// The measured command; empty if unknown.
    pub command: Vec<String>,
    /// The batch system's job that the command belongs to.
    #[serde(default)]
    pub job: Option<Job>,
    #[serde(flatten)]
    settings: SavedSettings,
    /// The clocks at the start of the run.
    started: [u64; 4],
    clock: Option<SavedClock>,
    /// The directory with the records; `None` if they are in the spool.
    #[serde(default)]
    pub records: Option<PathBuf>,
    /// Whether the run is a replay of a trace.
    pub replay: bool,
    /// How far the run got.
    #[serde(flatten)]
    pub progress: Progress,
    /// Pid and start time of the collector; zero if there is none.
    collector: (u32, u64),
}

/// The settings at the start of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedSettings {
    /// The settings file: its text and its path.
    #[serde(rename = "settings")]
    file: Option<(String, String)>,
    /// The environment variables that begin with `AMPERE_`.
    environment: BTreeMap<String, String>,
}

/// How far a run got, for the collector that takes over and for `ampere recover`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Positions in the sampler's ring at which another sampler took over.
    pub breaks: Vec<u64>,
    /// Whether the rings are empty, so that everything that was measured is in the records on disk.
    #[serde(default)]
    pub is_drained: bool,
    /// Whether the collector has ended the run properly, so that only the trace may be missing.
    #[serde(default)]
    pub has_ended: bool,
    /// The losses of a run whose collector could not write the trace, saved before the rings are removed.
    #[serde(default)]
    pub losses: Option<SavedLosses>,
    /// Whether ampere started to write a trace when there were no files with the names of a trace's files, so that such files are
    /// ampere's. Otherwise they belong to the application, which may write into the same directory.
    #[serde(default)]
    pub trace_begun: bool,
    /// The source of the times at which threads are on a CPU, as the summary names it; empty if there was none.
    #[serde(default)]
    pub activity: String,
    /// For each process, by pid and start time: the PCI addresses of the GPUs on which it has had queues, according to the
    /// driver. An empty list means that the process has not opened the driver.
    #[serde(default)]
    pub queues: BTreeMap<String, BTreeSet<String>>,
}

/// The losses of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedLosses {
    /// Counts that only the rings contain.
    #[serde(flatten)]
    pub records: RecordLosses,
    /// The notes of the summary so far.
    pub notes: Vec<String>,
    /// The notes that report a loss.
    pub missing: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedClock {
    timer: String,
    ticks_per_second: u64,
    epoch: [u64; 4],
    dated: bool,
    /// Whether an event has confirmed the clock.
    certain: bool,
}

/// Why the records of a run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NoRecords {
    /// The records are gone. Nodes' own disks are cleared when a job ends, or at a reboot.
    #[error("its records were in {}, but are gone", .0.display())]
    Gone(PathBuf),
    /// The records are on the disk of another node. `output` is the directory for the run's results.
    #[error(
        "its records are in {} on {node}: if the run has ended, {} {node} ampere report {} finishes it",
        .records.display(), remote_command(), .output.display()
    )]
    OnNode { records: PathBuf, node: String, output: PathBuf },
}

/// Returns the command that starts a program on another node. The name of the node follows.
fn remote_command() -> &'static str {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_srun = std::env::split_paths(&path).any(|directory| directory.join("srun").is_file());
    if has_srun { "srun -w" } else { "ssh" }
}

/// Why a manifest cannot be used, as a message of one line.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("cannot read {}: {why}", .path.display())]
    Unreadable { path: PathBuf, why: std::io::Error },
    /// The file is not a manifest.
    #[error("{} is not a file of this version of ampere: {why}", .path.display())]
    Damaged { path: PathBuf, why: serde_json::Error },
    /// The run's records cannot be read.
    #[error("{}: {why}", .spool.display())]
    NoRecords { spool: PathBuf, why: NoRecords },
    /// Another version has written the manifest.
    #[error("{}: another version of ampere wrote these records (format {found}, {FORMAT} expected): use that version", .path.display())]
    Format { path: PathBuf, found: u32 },
}

fn words_of(clocks: &Clocks) -> [u64; 4] {
    [clocks.tsc, clocks.monotonic_ns, clocks.monotonic_raw_ns, clocks.realtime_ns]
}

fn clocks_of([tsc, monotonic_ns, monotonic_raw_ns, realtime_ns]: [u64; 4]) -> Clocks {
    Clocks { tsc, monotonic_ns, monotonic_raw_ns, realtime_ns }
}

impl Manifest {
    /// Makes the manifest of a new run that this process collects. `config` is the settings file.
    pub fn new(session: &Path, run_id: &str, command: &[String], config: Option<&Path>) -> Manifest {
        let file =
            config.and_then(|path| Some((std::fs::read_to_string(path).ok()?, path.display().to_string())));
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with("AMPERE_"));
        Manifest {
            format: FORMAT,
            session: session.to_owned(),
            run_id: run_id.to_owned(),
            node: node_name(),
            boot: boot_id(),
            command: command.to_vec(),
            job: Job::of(|name| std::env::var(name).ok()),
            settings: SavedSettings { file, environment: environment.collect() },
            started: words_of(&crate::sampling::clock::best_reading()),
            clock: None,
            records: None,
            replay: false,
            progress: Progress::default(),
            collector: (0, 0),
        }
        .by_this_process()
    }

    /// Returns the directories that may have the records, for a manifest in this spool. Records in the second one come after
    /// those in the first.
    pub fn directories(&self, spool: &Path) -> Vec<PathBuf> {
        self.records.iter().cloned().chain([spool.to_owned()]).collect()
    }

    /// Opens the records. If they do not belong to this spool, they can only be read.
    pub fn store(&self, spool: &Path) -> Store {
        let mut store = Store::open(&self.directories(spool));
        if self.records.as_ref().is_some_and(|records| !spool_place::is_of(records, spool)) {
            store.only_read();
        }
        store
    }

    /// Returns the reason if the records cannot be read here.
    pub fn why_no_records(&self, spool: &Path) -> Option<NoRecords> {
        let has_records = |directory: &PathBuf| directory.join(RECORDS).exists();
        let directory = self.records.as_ref().filter(|_| !self.directories(spool).iter().any(has_records))?;
        Some(match is_this_node(&self.node) {
            true if directory.exists() => return None, // there were no records yet
            true => NoRecords::Gone(directory.clone()),
            false => NoRecords::OnNode {
                records: directory.clone(),
                node: self.node.clone(),
                output: spool.parent().unwrap_or(spool).to_owned(),
            },
        })
    }

    pub fn by_this_process(self) -> Manifest {
        let pid = std::process::id();
        Manifest { collector: (pid, start_time(pid).unwrap_or(0)), ..self }
    }

    /// Removes the collector from the manifest, so that `ampere recover` can do the rest. The collector may still serve metrics
    /// for a while.
    pub fn remove_collector(&mut self) {
        self.collector = (0, 0);
    }

    pub fn load(spool: &Path) -> Result<Manifest, ManifestError> {
        let path = spool.join(MANIFEST);
        let text = ampere_owned::read(&path, BYTES_MAX)
            .map_err(|why| ManifestError::Unreadable { path: path.clone(), why })?;
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|why| ManifestError::Damaged { path: path.clone(), why })?;
        if manifest.format != FORMAT {
            return Err(ManifestError::Format { path, found: manifest.format });
        }
        Ok(manifest)
    }

    /// Writes the manifest to a spool, completely or not at all.
    pub fn save(&self, spool: &Path) -> Result<(), WriteError> {
        let path = spool.join(MANIFEST);
        write_result_privately(&path, &self.text())
    }

    /// Returns the manifest as JSON text.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Reads the settings at the start of the run.
    pub fn config(&self) -> Result<Config, ampere_settings::ConfigError> {
        let mut config = match &self.settings.file {
            Some((text, name)) => Config::parse(text, name)?,
            None => Config::default(),
        };
        config.apply(&|name| self.settings.environment.get(name).cloned())?;
        Ok(config)
    }

    pub fn started(&self) -> Clocks {
        clocks_of(self.started)
    }

    /// Returns the clock, if it is known, and whether an event has confirmed it.
    pub fn clock(&self) -> Option<(SessionClock, bool)> {
        let known = self.clock.as_ref()?;
        let timer = Timer::from_name(&known.timer)?;
        let epoch = clocks_of(known.epoch);
        let clock = SessionClock::saved(timer, known.ticks_per_second.max(1), epoch, known.dated);
        Some((clock, known.certain))
    }

    pub fn set_clock(&mut self, clock: &SessionClock, certain: bool) {
        self.clock = Some(SavedClock {
            timer: clock.timer.as_str().to_owned(),
            ticks_per_second: clock.ticks_per_second,
            epoch: words_of(&clock.epoch),
            dated: clock.is_dated(),
            certain,
        });
    }

    /// Whether the manifest was written on this node since its last boot.
    pub fn is_of_this_boot(&self) -> bool {
        is_this_node(&self.node) && self.boot == boot_id()
    }

    /// Whether the manifest was written on this machine since its last boot, even if the machine has another name there (in a
    /// container).
    pub fn is_of_this_machine(&self) -> bool {
        self.boot == boot_id() && self.boot != [0, 0]
    }

    /// Whether both manifests are of the same run on the same machine, even if the machine has other names there. Two
    /// collectors that cannot see each other's shared memory (in containers) notice each other only in the output directory.
    pub fn is_of_same_run(&self, other: &Manifest) -> bool {
        self.run_id == other.run_id && self.boot == other.boot && self.boot != [0, 0]
    }

    /// Whether both manifests are of the same run, on two machines that have the same name.
    pub fn is_of_namesake(&self, other: &Manifest) -> bool {
        self.run_id == other.run_id && self.node == other.node && self.boot != other.boot
    }

    /// Whether the collector that wrote this manifest is known to be alive. This is only known for the same node and boot.
    pub fn collector_is_alive(&self) -> bool {
        self.is_of_this_boot() && ampere_ring::process::is_alive(self.collector.0, self.collector.1)
    }
}

/// Touches `run.json` as long as this exists. On another node, only the age of this file distinguishes a quiet run, or one whose
/// trace is being written, from one that was killed.
pub struct Heartbeat {
    /// The sender whose end stops the thread.
    _alive: Sender<()>,
}

impl Heartbeat {
    /// Starts the thread. If that fails, only new records show that the collector is alive.
    pub fn start(spool: &Path) -> Heartbeat {
        let (alive, ended) = channel();
        let path = spool.join(MANIFEST);
        let beat = move || loop {
            // The time is the file system's, as for all other files there.
            let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
            let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
            let _ = ampere_owned::open_own(&path).map(|file| rustix::fs::futimens(&file, &times));
            if ended.recv_timeout(HEARTBEAT) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        };
        let _ = std::thread::Builder::new().name("ampere-heart".to_owned()).spawn(beat);
        Heartbeat { _alive: alive }
    }
}

/// Removes a spool, beginning with its manifest, so that the remains of an interrupted removal do not look like an unfinished
/// run.
pub fn remove_spool(directory: &Path) {
    let records = Manifest::load(directory).ok().and_then(|manifest| manifest.records);
    let records = records.filter(|records| spool_place::is_of(records, directory));
    let _ = ampere_owned::remove_file(&directory.join(MANIFEST));
    let _ = ampere_owned::remove_tree(directory);
    records.iter().for_each(|records| spool_place::remove(records));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_loaded_as_it_was_saved() {
        let directory = tempfile::tempdir().unwrap();
        let settings = directory.path().join("ampere.toml");
        std::fs::write(&settings, "[attribution]\npolicy = \"busy_only\"\n").unwrap();
        let command = ["./a.out".to_owned(), "1 \"2\"".to_owned()];
        let mut manifest = Manifest::new(Path::new("/dev/shm/ampere-1/s-x"), "x", &command, Some(&settings));
        assert_eq!(manifest.clock().map(|(_, certain)| certain), None);
        let clock = SessionClock::saved(Timer::Tsc, 2_100_000_000, manifest.started(), true);
        manifest.set_clock(&clock, true);
        manifest.progress.breaks.push(17);
        manifest.save(directory.path()).unwrap();
        let loaded = Manifest::load(directory.path()).unwrap();
        assert_eq!(loaded, manifest);
        let (again, certain) = loaded.clock().unwrap();
        assert!(certain);
        assert_eq!((again.timer, again.ticks_per_second), (clock.timer, clock.ticks_per_second));
        assert_eq!(again.realtime_ns(clock.epoch.tsc), clock.realtime_ns(clock.epoch.tsc));
        assert_eq!(loaded.config().unwrap().attribution.policy, Some(ampere_attribution::Policy::BusyOnly));
        assert!(loaded.collector_is_alive() && loaded.is_of_this_boot());
    }

    #[test]
    fn records_of_an_older_build_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let older = (ABI_VERSION - 1) << 8 | MANIFEST_VERSION;
        let mut manifest = Manifest::new(Path::new("/dev/shm/ampere-1/s-x"), "x", &[], None);
        manifest.format = older;
        manifest.save(directory.path()).unwrap();
        let loaded = Manifest::load(directory.path());
        assert!(matches!(loaded, Err(ManifestError::Format { found, .. }) if found == older), "{loaded:?}");
    }

    #[test]
    fn a_damaged_manifest_is_an_error_of_one_line() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["", "{}", "{\"format\": 1}", "\u{0}\u{0}"] {
            std::fs::write(directory.path().join(MANIFEST), text).unwrap();
            let why = Manifest::load(directory.path()).unwrap_err().to_string();
            assert!(why.contains(MANIFEST) && !why.contains('\n'), "{why}");
        }
    }
}
