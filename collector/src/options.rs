//! A run's settings, where its results are written, and the reason for its collector.

use crate::notes::Notes;
use crate::run_directory::manifest::Manifest;
use crate::run_directory::output::Output;
use crate::stacks::Activity;
use ampere_figures::summary::Summary;
use ampere_settings::Config;
use ampere_trace::replay::Replay;
use ampere_trace::spool::SpoolDirectory;
use std::path::PathBuf;
use std::time::Duration;

/// The number of records that are taken from one ring at a time.
pub(crate) const BATCH: usize = 1 << 14;
/// The time between two checks of which processes are alive.
pub(crate) const LIVENESS_PERIOD: Duration = Duration::from_millis(100);

/// The description of a run.
pub struct Options {
    /// The directory of the results.
    pub output: PathBuf,
    /// The claim in the output directory. The manifest states where the records are until the trace is written.
    pub spool: PathBuf,
    /// The settings of all parts.
    pub config: Config,
    /// The command line that was started.
    pub command: Vec<String>,
    /// The run's id, which is the same on all nodes.
    pub run_id: String,
    /// In a replay, the trace that is played.
    pub replay: Option<Replay>,
    /// The manifest. If there was an earlier collector, it contains what that collector found out.
    pub manifest: Manifest,
    /// The summary that an interrupted run has left: it contains facts that no record contains.
    pub left: Option<Box<Summary>>,
    /// The reason for this collector.
    pub mode: Mode,
}

/// The reason why this collector runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The run's collector: the first, or one that replaces a killed one.
    Collector,
    /// `ampere recover`: the run and its collector have ended; its results are written from rings and spool.
    Recovery,
    /// `ampere recover` when the rings are gone: the results are written from the spool alone.
    RecoveryFromDisk,
}

impl Options {
    /// Returns the options for a claimed output directory, with command and id from the manifest.
    pub fn new(
        output: &Output,
        config: Config,
        manifest: Manifest,
        replay: Option<Replay>,
        mode: Mode,
    ) -> Options {
        Options {
            output: output.directory.clone(),
            spool: output.spool.clone(),
            config,
            command: manifest.command.clone(),
            run_id: manifest.run_id.clone(),
            replay,
            manifest,
            left: None,
            mode,
        }
    }

    /// Whether it is known when the run's threads are on a CPU.
    pub(crate) fn knows_cpu_times(&self) -> bool {
        match &self.replay {
            Some(replay) => replay.has_cpu_times,
            None => !["", Activity::None.as_str()].contains(&&*self.manifest.progress.activity),
        }
    }

    pub(crate) fn save_manifest(&self, spool: &SpoolDirectory, notes: &mut Notes) {
        if let Err(why) = self.manifest.save(&spool.directory) {
            notes.add(format!("{why}: if the collector is killed, the run cannot be recovered"));
        }
    }
}
