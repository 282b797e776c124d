//! Finishes a run whose collector is dead and will not be replaced: `ampere recover`.

use crate::finish::{ResultsError, has_more_events};
use crate::live::{LiveRun, Mode, Options};
use crate::run_directory::files::MANIFEST;
use crate::run_directory::leftover::{Leftover, remove_done, run_id, spools_in};
use crate::run_directory::manifest::{self, Heartbeat, Manifest, ManifestError};
use crate::run_directory::output::{self, ClaimError, Output, is_same};
use crate::run_directory::spool_place;
use crate::serving::latest::Latest;
use ampere_figures::summary::Summary;
use ampere_model::text::printable;
use ampere_owned::Directory;
use ampere_ring::Session;
use ampere_trace::replay::{self, Replay, ReplayFileError};
use std::path::{Path, PathBuf};

/// The result of recovering a leftover.
pub enum Recovered {
    /// There are figures, and a trace if one could be made.
    Finished(Box<Finished>),
    /// There was nothing to finish, and the remains have been removed. Contains their place, and the reason in a few words.
    Removed(String, &'static str),
}

pub struct Finished {
    /// The directory with its results.
    pub output: PathBuf,
    pub summary: Summary,
    /// Whether the figures in the output directory were kept, because they are of more events than the remaining records.
    pub figures_stay: bool,
    pub trace: Traced,
}

/// The state of a run's trace. If there is none, a note in the summary gives the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// The trace exists, or none was wanted.
    Made,
    /// The trace could not be made. The records are kept, so that it can be made later.
    NotYet,
    /// No records are left to make the trace from.
    Never,
}

/// The reason why a run cannot be recovered. It is one line that is safe to print, even if names in the leftover are hostile.
#[derive(Debug, thiserror::Error)]
#[error("{}", printable(&.0.to_string()))]
pub struct RecoverError(#[from] Problem);

impl RecoverError {
    /// Whether the records are out of reach, for example on another node's disk: the run can be recovered there.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.0, Problem::Manifest(ManifestError::NoRecords { .. }))
    }
}

/// The cases of [`RecoverError`]. A place is the path of a session or of an output directory.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("there is no {0}: name an output directory of a run that was killed")]
    Absent(String),
    #[error("cannot find {place}: {why}")]
    Unreadable { place: String, why: std::io::Error },
    #[error("{0}")]
    OfAnother(String),
    #[error("{0} is not a session of this version of ampere")]
    NoSession(String),
    #[error("{0} holds the results of a finished run: there is nothing to recover")]
    Finished(String),
    #[error("there is nothing to recover in {0}: no spool-<node> of a run that was killed")]
    NoSpool(String),
    #[error("{place} is in use: {why}; it can be recovered when that has ended")]
    InUse { place: String, why: String },
    #[error("{0} may be in use, on another node")]
    MayBeInUse(String),
    #[error("{0} is being recovered by another process, or has just been recovered")]
    Taken(String),
    #[error("{0} was killed before anything was measured")]
    NothingMeasured(String),
    #[error(
        "{why}: ampere recover -o DIR {session}; or ampere recover --discard {session} if it is not wanted"
    )]
    Output { why: ClaimError, session: String },
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Session(#[from] ampere_ring::Error),
    #[error(transparent)]
    Settings(#[from] ampere_settings::ConfigError),
    #[error(transparent)]
    Replay(#[from] ReplayFileError),
    #[error(transparent)]
    Results(#[from] ResultsError),
}

/// Finds what can be recovered in a directory: a session, a spool, or an output directory. An output directory may hold the
/// spools of several nodes, each of which may be unreadable.
pub fn find(directory: &Path) -> Result<Vec<Result<Leftover, RecoverError>>, RecoverError> {
    Ok(find_leftovers(directory)?)
}

fn find_leftovers(directory: &Path) -> Result<Vec<Result<Leftover, RecoverError>>, Problem> {
    let shown = directory.display().to_string();
    if !directory.exists() {
        return Err(Problem::Absent(shown));
    }
    require_own(directory)?;
    let directory = match std::fs::canonicalize(directory) {
        Ok(directory) => directory,
        Err(why) => return Err(Problem::Unreadable { place: shown, why }),
    };
    let is_spool = directory.join(MANIFEST).exists();
    if !is_spool && directory.join("session").exists() {
        let left = Leftover::of_session(&directory).ok_or(Problem::NoSession(shown))?;
        return Ok(vec![Ok(left)]);
    }
    let spools = if is_spool { vec![directory.clone()] } else { spools_in(&directory) };
    if spools.is_empty() {
        let is_finished = output::holds_results(&directory);
        return Err(if is_finished { Problem::Finished(shown) } else { Problem::NoSpool(shown) });
    }
    Ok(spools.iter().map(|spool| of_spool(spool)).collect())
}

/// Refuses a leftover of another user, which may be shown, but not finished, removed or written to.
fn require_own(directory: &Path) -> Result<(), Problem> {
    use ampere_owned::Refusal;
    let shown = directory.display();
    match Directory::own(directory) {
        Ok(_) => Ok(()),
        Err(why) => Err(match ampere_owned::refusal(&why) {
            Some(Refusal::OfAnother { owner, .. }) => {
                Problem::OfAnother(output::foreign_run(directory, *owner))
            }
            Some(Refusal::LinkOfAnother { owner, .. }) => Problem::OfAnother(format!(
                "{shown} leads through a link of {}: name the directory itself",
                output::user_text(*owner)
            )),
            _ => return Ok(()), // a path that is not a directory is reported later
        }),
    }
}

/// Returns what is in a spool, with its session if that is still in shared memory. If the spool is a copy and the original is
/// still in its place, the session belongs to the original.
pub fn of_spool(spool: &Path) -> Result<Leftover, RecoverError> {
    require_own(spool)?;
    let alone = Directory::own_alone(spool); // otherwise another user may have written its content
    alone.map_err(|why| Problem::Unreadable { place: spool.display().to_string(), why })?;
    let manifest = Manifest::load(spool).map_err(Problem::from)?;
    let session = Leftover::of_session(&manifest.session);
    let is_here = manifest.is_of_this_boot();
    match session.filter(|_| is_here) {
        Some(left) if left.output.as_ref().is_some_and(|output| is_same(&output.spool, spool)) => Ok(left),
        // The spool was moved.
        Some(left) if left.output.is_none() => Ok(left.with_output(Output::of_spool(spool), manifest)),
        _ => Ok(Leftover::of_spool(spool).map_err(Problem::from)?),
    }
}

/// Makes the trace and the summary of a leftover, and removes it. `output` is the directory of the results if none is claimed.
pub fn recover(left: Leftover, output: Option<&Path>) -> Result<Recovered, RecoverError> {
    let locked = Locked::lock(left)?;
    Ok(locked.recover(output)?)
}

/// Removes a leftover without making its trace and summary.
pub fn discard(left: Leftover) -> Result<Recovered, RecoverError> {
    Ok(Locked::lock(left)?.discard())
}

/// A leftover that no other process can collect or recover while this exists.
struct Locked {
    left: Leftover,
    session: Session,
    manifest: Option<Manifest>,
    mode: Mode,
    /// The session, or else the output directory, for messages.
    place: String,
    _lock: Option<ampere_ring::HeldLock>,
}

impl Locked {
    fn lock(mut left: Leftover) -> Result<Locked, Problem> {
        left.output = left.output.map(Output::held);
        let of_session = left.session.as_ref().map(|path| path.display().to_string());
        let of_output = left.output.as_ref().map(|output| output.directory.display().to_string());
        let place = of_session.or(of_output).unwrap_or_default();
        // The directory may have been replaced since it was checked. From here on it is held.
        let is_own = |output: &Output| output.is_held() && Directory::own_alone(&output.spool).is_ok();
        if !left.output.as_ref().is_none_or(is_own) {
            return Err(Problem::Taken(place));
        }
        if let Some(why) = left.in_use.clone() {
            return Err(Problem::InUse { place, why });
        }
        if left.may_be_written {
            return Err(Problem::MayBeInUse(place));
        }
        let (session, mode) = match &left.session {
            Some(directory) => (Session::open(directory), Mode::Recovery),
            None => {
                let spool = left.output.as_ref().map(|output| output.spool.clone()).unwrap_or_default();
                (Session::open_or_create_in(&spool), Mode::RecoveryFromDisk)
            }
        };
        let load = || left.output.as_ref().map(|output| Manifest::load(&output.spool)).transpose();
        let session = match session {
            Ok(session) => session,
            Err(error) if load().is_ok() => return Err(error.into()),
            Err(_) => return Err(Problem::Taken(place)),
        };
        let lock = session.lock_collector();
        // A file system without locks does not prevent recovery. If the lock is held but is not the file at its path, the file
        // was removed in the meantime and the lock protects nothing.
        if matches!(lock, Ok(None)) || (lock.is_ok() && !session.locks().collector) {
            return Err(Problem::Taken(place));
        }
        // Another process may have finished it between reading and locking.
        let Ok(manifest) = load() else { return Err(Problem::Taken(place)) };
        Ok(Locked { left, session, manifest, mode, place, _lock: lock.ok().flatten() })
    }

    fn discard(self) -> Recovered {
        if let (Some(output), Some(manifest)) = (&self.left.output, self.manifest) {
            remove_records(output, manifest);
        }
        remove(self.left.output.as_ref(), &self.session, self.mode);
        Recovered::Removed(self.place, "it is not wanted")
    }

    fn recover(self, wanted: Option<&Path>) -> Result<Recovered, Problem> {
        let Locked { left, session, manifest, mode, place, _lock } = self;
        if left.is_done {
            remove_done(&session);
            return Ok(Recovered::Removed(place, "its results exist"));
        }
        if !left.has_events() {
            let spooled = left.output.as_ref().zip(manifest.as_ref());
            let is_gone = spooled.is_some_and(|(output, of)| of.why_no_records(&output.spool).is_some());
            remove(left.output.as_ref(), &session, mode);
            let why =
                if is_gone { "its records are gone with the disk of the node" } else { "no records remain" };
            return Ok(Recovered::Removed(place, why));
        }
        let (output, mut manifest) = match (left.output, manifest) {
            (Some(output), Some(manifest)) => (output, manifest),
            _ => begin_output(&session, wanted)?,
        };
        if manifest.is_of_this_boot() {
            // Where locks do not work, other processes see this one in the manifest.
            manifest = manifest.by_this_process();
            let _ = manifest.save(&output.spool);
        }
        let _heartbeat = Heartbeat::start(&output.spool);
        if mode == Mode::RecoveryFromDisk {
            if manifest.replay {
                remove_records(&output, manifest);
                remove(Some(&output), &session, mode);
                return Ok(Recovered::Removed(
                    place,
                    "it was a replay of a trace, which can be played again",
                ));
            }
            if manifest.clock().is_none() {
                return Err(Problem::NothingMeasured(output.directory.display().to_string()));
            }
        }
        finish(session, output, manifest, mode)
    }
}

/// Returns the summary that the run's collector wrote during the run.
fn left_summary(options: &Options) -> Option<Summary> {
    let text =
        ampere_owned::read(&options.output.join("summary.json"), ampere_figures::summary::BYTES_MAX).ok()?;
    let summary: Summary = serde_json::from_slice(&text).ok()?;
    (summary.run.running && summary.run.id == options.run_id).then_some(summary)
}

/// Makes the results of a leftover.
fn finish(
    session: Session,
    output: Output,
    mut manifest: Manifest,
    mode: Mode,
) -> Result<Recovered, Problem> {
    let replay = session.directory().join(replay::FILE_NAME);
    let replay = manifest.replay.then(|| Replay::load(&replay)).transpose()?;
    output::remove_unfinished_trace(&output.directory, &mut manifest);
    let config = manifest.config()?;
    output::let_group_write(config.group_writable);
    let is_traced = config.trace;
    let mut options = Options::new(&output, config, manifest, replay, mode);
    options.left = left_summary(&options).map(Box::new);
    let run = LiveRun::new(session, options, None, Latest::default())?;
    let (summary, session) = run.recover()?;
    output.end_announcement();
    output.release();
    if mode == Mode::Recovery {
        spool_place::remove_if_unclaimed(session.directory());
        session.remove();
    }
    // Records without a trace are kept.
    let keeps_records = output.spool.join(MANIFEST).exists();
    Ok(Recovered::Finished(Box::new(Finished {
        figures_stay: has_more_events(&output.directory, &summary),
        trace: match is_traced {
            true if keeps_records => Traced::NotYet,
            true if !output::holds_trace(&output.directory) => Traced::Never,
            _ => Traced::Made,
        },
        output: output.directory,
        summary,
    })))
}

/// Removes the records, and the trace that was started from them.
fn remove_records(output: &Output, mut manifest: Manifest) {
    output::remove_unfinished_trace(&output.directory, &mut manifest);
    manifest::remove_spool(&output.spool);
}

/// Removes spool and session of a run without events, which would prevent another run in the directory.
fn remove(output: Option<&Output>, session: &Session, mode: Mode) {
    if let Some(output) = output {
        manifest::remove_spool(&output.spool);
        output.give_up();
    }
    if mode == Mode::Recovery {
        spool_place::remove_if_unclaimed(session.directory());
        session.remove();
    }
}

/// Claims a directory for a session whose collector was killed before it had one.
fn begin_output(session: &Session, wanted: Option<&Path>) -> Result<(Output, Manifest), Problem> {
    let run_id = run_id(session.directory());
    let mut manifest = Manifest::new(session.directory(), &run_id, &[], None);
    manifest.job = None; // this process may belong to another job
    let wanted = wanted.map(Path::to_owned).or_else(|| session.output());
    let wanted = wanted.unwrap_or_else(|| output::default_directory(&run_id));
    let output = output::claim(&wanted, &manifest.node, &manifest.text())
        .map_err(|why| Problem::Output { why, session: session.directory().display().to_string() })?;
    Ok((output, manifest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::chown;

    #[test]
    fn a_directory_that_replaced_checked_records_is_not_changed() {
        let place = tempfile::tempdir().unwrap();
        let manifest = Manifest::new(Path::new("/dev/shm/ampere-1/s-gone"), "gone", &[], None).text();
        let put = |name: &str| {
            let spool = place.path().join(name).join("spool-n1");
            ampere_owned::make_all(&spool, ampere_owned::PRIVATE_MODE).unwrap();
            std::fs::write(spool.join(MANIFEST), &manifest).unwrap();
            spool
        };
        let (spool, other) = (put("out"), put("other"));
        let found = || {
            let left = Leftover::of_spool(&spool).unwrap();
            Leftover { in_use: None, may_be_written: false, ..left }
        };
        let exchange = || {
            std::fs::rename(&spool, place.path().join("aside")).unwrap();
            std::fs::rename(&other, &spool).unwrap();
        };
        let left = found();
        exchange();
        std::fs::set_permissions(&spool, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(matches!(recover(left, None), Err(RecoverError(Problem::Taken(_)))));
        assert_eq!(std::fs::read_dir(&spool).unwrap().count(), 1);
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        let left = found();
        chown(&spool, Some(65534), None).unwrap();
        assert!(matches!(discard(left), Err(RecoverError(Problem::Taken(_)))));
        assert_eq!(std::fs::read_dir(&spool).unwrap().count(), 1);
    }
}
