//! What is needed to finish a run, beside its records: kept in `run.json` in the spool, so that whoever finds the spool can
//! make trace and summary of it.
//!
//! It is there before the first record and goes before the last one: a spool with it is of a run that is not finished, one
//! without is on its way to be removed.

use crate::sampling::clock::{SessionClock, Timer};
use ampere_model::Clocks;
use ampere_report::job::Job;
use ampere_ring::process::{boot_id, node_name, start_time};
use ampere_settings::Config;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

pub const FILE_NAME: &str = "run.json";
/// How often a collector shows that it lives to those who see nothing of it but its files.
pub const HEARTBEAT: Duration = Duration::from_secs(10);
const FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    /// The session's directory in shared memory.
    pub session: PathBuf,
    pub run_id: String,
    pub node: String,
    boot: [u64; 2],
    pub command: Vec<String>,
    #[serde(default)]
    pub job: Option<Job>,
    /// The settings: the file's text and name, and the variables of ampere's.
    settings: Option<(String, String)>,
    environment: BTreeMap<String, String>,
    /// The clocks as the run began.
    started: [u64; 4],
    clock: Option<ClockFacts>,
    /// Whether it is a trace that is played.
    pub replay: bool,
    /// Positions of the sampler's ring at which another sampler went on.
    pub breaks: Vec<u64>,
    /// Everything that was measured is in the records on disk.
    #[serde(default)]
    pub is_drained: bool,
    /// The run has ended in order, as far as the collector goes: what was not done then is that the trace was written.
    #[serde(default)]
    pub has_ended: bool,
    /// What only the rings said, and what had happened: of a run whose rings are gone.
    #[serde(default)]
    pub losses: Losses,
    /// A trace was begun where there was nothing of its names: what has them now is ours. Whatever else has them is the
    /// application's, which may write into the same directory.
    #[serde(default)]
    pub trace_begun: bool,
    /// Who collects, as far as is known: pid and start time.
    collector: (u32, u64),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    pub suppressed_calls: u64,
    pub dropped_records: u64,
    pub is_incomplete: bool,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ClockFacts {
    timer: String,
    ticks_per_second: u64,
    epoch: [u64; 4],
    dated: bool,
    /// Whether an event has shown that it is this clock.
    certain: bool,
}

fn words_of(clocks: &Clocks) -> [u64; 4] {
    [clocks.tsc, clocks.monotonic_ns, clocks.monotonic_raw_ns, clocks.realtime_ns]
}

fn clocks_of([tsc, monotonic_ns, monotonic_raw_ns, realtime_ns]: [u64; 4]) -> Clocks {
    Clocks { tsc, monotonic_ns, monotonic_raw_ns, realtime_ns }
}

impl Manifest {
    /// Of a run that begins. `config`: the settings' file.
    pub fn new(session: &Path, run_id: &str, command: &[String], config: Option<&Path>) -> Manifest {
        let settings =
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
            settings,
            environment: environment.collect(),
            started: words_of(&crate::sampling::clock::best_reading()),
            clock: None,
            replay: false,
            breaks: Vec::new(),
            is_drained: false,
            has_ended: false,
            losses: Losses::default(),
            trace_begun: false,
            collector: (0, 0),
        }
        .by_this_process()
    }

    /// This process goes on with it.
    pub fn by_this_process(self) -> Manifest {
        let pid = std::process::id();
        Manifest { collector: (pid, start_time(pid).unwrap_or(0)), ..self }
    }

    /// What is left is for `ampere recover`, though the collector may go on serving its metrics for a while.
    pub fn has_no_collector(&mut self) {
        self.collector = (0, 0);
    }

    /// The error is one line.
    pub fn load(spool: &Path) -> Result<Manifest, String> {
        let path = spool.join(FILE_NAME);
        let text = std::fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|e| format!("{} is no file of this ampere: {e}", path.display()))?;
        if manifest.format != FORMAT {
            return Err(format!("{}: format {}, {FORMAT} expected", path.display(), manifest.format));
        }
        Ok(manifest)
    }

    pub fn save(&self, spool: &Path) -> Result<(), String> {
        let path = spool.join(FILE_NAME);
        ampere_ring::files::replace_private(&path, &self.text())
            .map_err(|e| format!("cannot write {}: {e}", path.display()))
    }

    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// The settings as they were when the run began.
    pub fn config(&self) -> Result<Config, String> {
        let mut config = match &self.settings {
            Some((text, name)) => Config::parse(text, name).map_err(|e| e.to_string())?,
            None => Config::default(),
        };
        config.apply(&|name| self.environment.get(name).cloned()).map_err(|e| e.to_string())?;
        Ok(config)
    }

    pub fn started(&self) -> Clocks {
        clocks_of(self.started)
    }

    /// The clock, once it is known, and whether that is certain.
    pub fn clock(&self) -> Option<(SessionClock, bool)> {
        let known = self.clock.as_ref()?;
        let timer = Timer::from_name(&known.timer)?;
        let epoch = clocks_of(known.epoch);
        let clock = SessionClock::remembered(timer, known.ticks_per_second.max(1), epoch, known.dated);
        Some((clock, known.certain))
    }

    pub fn set_clock(&mut self, clock: &SessionClock, certain: bool) {
        self.clock = Some(ClockFacts {
            timer: clock.timer.as_str().to_owned(),
            ticks_per_second: clock.ticks_per_second,
            epoch: words_of(&clock.epoch),
            dated: clock.is_dated(),
            certain,
        });
    }

    /// Whether the node has not been started anew since.
    pub fn is_of_this_boot(&self) -> bool {
        self.node == node_name() && self.boot == boot_id()
    }

    /// Whether it is the same run on the same machine, whatever name the node has there, in another session: a collector that
    /// cannot see the others' shared memory meets them only where the results go.
    pub fn is_of_same_run(&self, other: &Manifest) -> bool {
        self.run_id == other.run_id && self.boot == other.boot && self.boot != [0, 0]
    }

    /// Whether the collector that wrote this lives, where that can be told.
    pub fn collector_is_alive(&self) -> bool {
        self.is_of_this_boot() && ampere_ring::process::is_alive(self.collector.0, self.collector.1)
    }
}

/// As long as it is there, `run.json` never looks old: on another node that is all that tells a run in which nothing happens,
/// or whose trace is being written, from one that was killed.
pub struct Heartbeat {
    /// Its thread ends when this is dropped.
    _alive: Sender<()>,
}

impl Heartbeat {
    /// Without a thread there are the records alone, as they are written.
    pub fn start(spool: &Path) -> Heartbeat {
        let (alive, ended) = channel();
        let path = spool.join(FILE_NAME);
        let beat = move || loop {
            // The time is the file system's, as it is with what is written there.
            let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
            let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
            let no_link = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            let _ = rustix::fs::utimensat(rustix::fs::CWD, &path, &times, no_link);
            if ended.recv_timeout(HEARTBEAT) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        };
        let _ = std::thread::Builder::new().name("ampere-heart".to_owned()).spawn(beat);
        Heartbeat { _alive: alive }
    }
}

/// Removes a spool. The manifest goes first: half a spool is never taken for a whole one.
pub fn remove_spool(directory: &Path) {
    let _ = std::fs::remove_file(directory.join(FILE_NAME));
    let _ = std::fs::remove_dir_all(directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_what_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let settings = directory.path().join("ampere.toml");
        std::fs::write(&settings, "[attribution]\npolicy = \"busy_only\"\n").unwrap();
        let command = ["./a.out".to_owned(), "1 \"2\"".to_owned()];
        let mut manifest = Manifest::new(Path::new("/dev/shm/ampere-1/s-x"), "x", &command, Some(&settings));
        assert_eq!(manifest.clock().map(|(_, certain)| certain), None);
        let clock = SessionClock::remembered(Timer::Tsc, 2_100_000_000, manifest.started(), true);
        manifest.set_clock(&clock, true);
        manifest.breaks.push(17);
        manifest.save(directory.path()).unwrap();
        let loaded = Manifest::load(directory.path()).unwrap();
        assert_eq!(loaded, manifest);
        let (again, certain) = loaded.clock().unwrap();
        assert!(certain);
        assert_eq!((again.timer, again.ticks_per_second), (clock.timer, clock.ticks_per_second));
        assert_eq!(again.realtime_ns(clock.epoch.tsc), clock.realtime_ns(clock.epoch.tsc));
        assert_eq!(loaded.config().unwrap().attribution.policy, ampere_attribution::Policy::BusyOnly);
        assert!(loaded.collector_is_alive() && loaded.is_of_this_boot());
    }

    #[test]
    fn what_is_damaged_is_one_line() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["", "{}", "{\"format\": 1}", "\u{0}\u{0}"] {
            std::fs::write(directory.path().join(FILE_NAME), text).unwrap();
            let why = Manifest::load(directory.path()).unwrap_err();
            assert!(why.contains(FILE_NAME) && !why.contains('\n'), "{why}");
        }
    }
}
