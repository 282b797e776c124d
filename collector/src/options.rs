//! What a run is: its settings, where its results go, and how its collector came to be.

use crate::notes::Notes;
use crate::run_directory::manifest::Manifest;
use crate::run_directory::output::Output;
use ampere_figures::summary::Summary;
use ampere_settings::Config;
use ampere_trace::replay::Replay;
use ampere_trace::spool::SpoolDirectory;
use std::path::PathBuf;
use std::time::Duration;

/// Records taken from one ring at a time.
pub(crate) const BATCH: usize = 1 << 14;
/// How often it is checked which processes still live.
pub(crate) const LIVENESS_PERIOD: Duration = Duration::from_millis(100);

/// What a run is.
pub struct Options {
    /// Where the results go.
    pub output: PathBuf,
    /// The claim in the output directory. The manifest says where records lie until the trace is written.
    pub spool: PathBuf,
    /// The settings.
    pub config: Config,
    /// What was started.
    pub command: Vec<String>,
    /// The same on all nodes.
    pub run_id: String,
    /// The run is a trace's that is played: it says what there is and what time it is.
    pub replay: Option<Replay>,
    /// What an earlier collector has found out, if there was one.
    pub manifest: Manifest,
    /// Of a run that was cut off: the summary that it left, for what no record says.
    pub left: Option<Box<Summary>>,
    /// Why there is this collector.
    pub mode: Mode,
}

/// Why this collector runs.
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
    /// Of a claimed output directory; command and id of the run are the manifest's.
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

    pub(crate) fn save_manifest(&self, spool: &SpoolDirectory, notes: &mut Notes) {
        if let Err(why) = self.manifest.save(&spool.directory) {
            notes.add(format!("{why}: were the collector killed, the run could not be recovered"));
        }
    }
}
